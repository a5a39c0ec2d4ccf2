#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use std::future::poll_fn;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

/// A connection whose peer has closed, of which the connect already took the report of a reset.
async fn reset() -> Stream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (tcp, accepted) = tokio::join!(TcpStream::connect(at), listener.accept());
    drop(accepted.unwrap());
    Stream::new(tcp.unwrap(), at, Outcome::Accepted, 0).ended_by(io::ErrorKind::ConnectionReset.into())
}

async fn peek(stream: &Stream) -> io::Result<usize> {
    let mut room = [0; 4];
    let mut buf = ReadBuf::new(&mut room);
    poll_fn(|cx| stream.poll_peek(cx, &mut buf)).await
}

#[tokio::test]
async fn a_reset_is_no_end_to_whoever_looks_first() {
    let mut stream = reset().await;
    for _ in 0..2 {
        assert_eq!(peek(&stream).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }
    let mut other = stream.share();
    for stream in [&mut stream, &mut other] {
        assert_eq!(stream.read(&mut [0; 4]).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(peek(stream).await.unwrap(), 0, "it is reported once, as the system does");
    }
}
