use super::*;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What `exchange` returns if the server sends `answer`, and what the server got.
async fn against(answer: &'static [u8]) -> (Result<String, hyper::Error>, String) {
    let (ours, mut theirs) = tokio::io::duplex(1024);
    let url = "http://www.example.com:81/a?b".parse().unwrap();
    let request = request(Method::GET, &url).body(Empty::<bytes::Bytes>::new()).unwrap();
    let asked = exchange(TokioIo::new(ours), request, async |mut response| {
        let head = head_text(&response);
        let body = response.body_mut().collect().await?.to_bytes();
        Ok(head + &String::from_utf8_lossy(&body))
    });
    let serve = async move {
        let mut got = [0; 1024];
        let length = theirs.read(&mut got).await.unwrap();
        theirs.write_all(answer).await.unwrap();
        String::from_utf8_lossy(&got[..length]).into_owned()
    };
    tokio::join!(asked, serve)
}

#[tokio::test]
async fn the_request_is_one_write_and_the_answer_is_received() {
    let (answer, asked) = against(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
    assert_eq!(answer.unwrap(), "HTTP/1.1 200 OK\ncontent-length: 2\nhi");
    assert_eq!(asked, "GET /a?b HTTP/1.1\r\nhost: www.example.com:81\r\nconnection: close\r\n\r\n");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_an_error() {
    for answer in [&b""[..], b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nh"] {
        assert!(against(answer).await.0.is_err(), "{answer:?}");
    }
}
