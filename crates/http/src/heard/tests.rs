#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn what_passes_is_counted() {
    let (near, mut far) = tokio::io::duplex(64);
    let (mut near, heard) = CountedStream::new(near);
    near.write_all(b"abc").await.unwrap();
    far.write_all(b"12345").await.unwrap();
    assert_eq!((heard.read(), heard.written()), (0, 3));
    near.read_exact(&mut [0; 4]).await.unwrap();
    assert_eq!(heard.read(), 4);
}

#[tokio::test]
async fn an_answer_is_read_although_the_request_cannot_be_written() {
    let (near, mut far) = tokio::io::duplex(64);
    let (mut near, heard) = CountedStream::new(near);
    far.write_all(b"413").await.unwrap();
    drop(far);
    near.write_all(&[0; 1000]).await.unwrap();
    near.flush().await.unwrap();
    let mut answer = String::new();
    near.read_to_string(&mut answer).await.unwrap();
    assert_eq!((answer.as_str(), heard.written()), ("413", 0));
}
