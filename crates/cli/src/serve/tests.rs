//! Requests in a SYN, before the client's ACK has arrived.

use super::early::EarlyUnsafe;
use super::request_body::{BodyError, RequestBody};
use crate::test_site::TestSite;
use bytes::Bytes;
use firstflight::{ConnectConfig, FirstFlight};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::{Body, Frame};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// The page about the way to the gateway has each option once, and no other.
#[test]
fn the_page_has_every_option() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/from-serve.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `--"));
    let mut told: Vec<_> = rows.filter_map(|row| row.split(['`', ' ']).next()).collect();
    let command = <super::Args as clap::Args>::augment_args(clap::Command::new("serve"));
    let mut options: Vec<_> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
    told.sort_unstable();
    options.sort_unstable();
    assert_eq!(told, options);
}

/// Whether `future` is not ready at the first poll.
async fn waits<F: Future + Unpin>(mut future: F) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx).is_pending())).await
}

#[tokio::test]
async fn an_unsafe_method_waits_for_the_clients_ack() {
    let site = TestSite::new().await;
    let (mut client, _stream, watch) = site.early(b"x").await;
    for safe in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
        assert!(!waits(pin!(EarlyUnsafe::Wait.admits(&safe, &watch))).await, "{safe}");
    }
    let own: Method = "RECALCULATE".parse().unwrap();
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, own] {
        assert!(!EarlyUnsafe::Reject.admits(&method, &watch).await.unwrap(), "{method}");
        assert!(EarlyUnsafe::Allow.admits(&method, &watch).await.unwrap(), "{method}");
        assert!(waits(pin!(EarlyUnsafe::Wait.admits(&method, &watch))).await, "{method}");
    }
    let mut waiting = pin!(EarlyUnsafe::Wait.admits(&Method::POST, &watch));
    assert!(waits(&mut waiting).await);
    site.confirm();
    // This data carries the ACK.
    client.write_all(b"x").await.unwrap();
    assert!(waiting.await.unwrap());
    assert!(EarlyUnsafe::Reject.admits(&Method::POST, &watch).await.unwrap());
}

#[tokio::test]
async fn a_request_that_waits_ends_with_its_connection() {
    let site = TestSite::new().await;
    let (client, _stream, watch) = site.early(b"x").await;
    site.confirm();
    // The handshake's ACK was lost, and a RST arrives.
    client.abort();
    EarlyUnsafe::Wait.admits(&Method::POST, &watch).await.unwrap_err();
}

/// The status of `request` in a SYN whose ACK never comes.
async fn status(early_unsafe: EarlyUnsafe, request: &[u8]) -> String {
    let site = TestSite::new().await;
    let fast = ConnectConfig::default().fast_open(true);
    let first = FirstFlight::safely_replayable(request);
    let (stream, ()) = tokio::join!(site.client.connect(site.at, first, &fast), site.serve(1, early_unsafe));
    let mut status = [0; 12];
    stream.unwrap().read_exact(&mut status).await.unwrap();
    String::from_utf8_lossy(&status).into_owned()
}

#[tokio::test]
async fn too_early_is_said_to_unsafe_methods_only() {
    const POST: &[u8] = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
    const GET: &[u8] = b"GET /nothing-here HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(status(EarlyUnsafe::Reject, POST).await, "HTTP/1.1 425");
    assert_eq!(status(EarlyUnsafe::Reject, GET).await, "HTTP/1.1 404");
    assert_eq!(status(EarlyUnsafe::Wait, GET).await, "HTTP/1.1 404");
    assert_eq!(status(EarlyUnsafe::Allow, POST).await, "HTTP/1.1 200");
}

/// The server's answer to a client that closes its sending direction after `request` and continues to read (half
/// close).
async fn answer_after_half_close(site: &TestSite, request: &[u8], config: &ConnectConfig) -> Vec<u8> {
    let first = FirstFlight::safely_replayable(request);
    let (stream, ()) =
        tokio::join!(site.client.connect(site.at, first, config), site.serve(1, EarlyUnsafe::Wait));
    let mut stream = stream.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn a_client_that_half_closes_after_its_request_gets_the_whole_response() {
    let site = TestSite::new().await;
    site.confirm();
    let fast = ConnectConfig::default().fast_open(true);
    // Larger than all buffers on the path.
    let large = vec![b'x'; 1_000_000];
    let posted = format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", large.len());
    let posted = [posted.into_bytes(), large].concat();
    for config in [ConnectConfig::default(), fast] {
        let old = answer_after_half_close(&site, b"GET /nothing-here HTTP/1.0\r\n\r\n", &config).await;
        let old = String::from_utf8_lossy(&old).into_owned();
        assert!(old.starts_with("HTTP/1.0 404") && old.ends_with("\r\n\r\n404 Not Found\n"), "{old:?}");
        // The request has no length. None is needed, because a GET has no body.
        let new =
            answer_after_half_close(&site, b"GET /nothing-here HTTP/1.1\r\nHost: x\r\n\r\n", &config).await;
        assert!(new.starts_with(b"HTTP/1.1 404") && new.ends_with(b"\r\n\r\n404 Not Found\n"));
        let echo = answer_after_half_close(&site, &posted, &config).await;
        assert!(echo.starts_with(b"HTTP/1.1 200") && echo.ends_with(&posted[posted.len() - 1_000_000..]));
    }
}

#[tokio::test]
async fn a_client_that_half_closes_within_its_request_is_let_go() {
    let site = TestSite::new().await;
    site.confirm();
    let none = ConnectConfig::default();
    for request in [&b""[..], b"GET / HT", b"PUT /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"]
    {
        let answer = answer_after_half_close(&site, request, &none).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&answer));
    }
}

/// The answer to a client that sends the head of a request, and then a byte of its body every 20 ms.
async fn answer_to_a_slow_body(request: &[u8]) -> String {
    let mut site = TestSite::new().await;
    site.confirm();
    site.body_timeout = Some(Duration::from_millis(200));
    let plain = ConnectConfig::default();
    let first = FirstFlight::safely_replayable(request);
    let (stream, ()) =
        tokio::join!(site.client.connect(site.at, first, &plain), site.serve(1, EarlyUnsafe::Wait));
    let (mut reader, mut writer) = stream.unwrap().into_split();
    let dripping = tokio::spawn(async move {
        // The loop ends when the server closes. The patience is used up long before a full segment is sent.
        while writer.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let mut answer = Vec::new();
    // An error is expected where the response breaks off.
    let _ = reader.read_to_end(&mut answer).await;
    dripping.abort();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_client_that_sends_its_body_slowly_is_let_go() {
    let sink =
        answer_to_a_slow_body(b"PUT /sink HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n").await;
    assert!(sink.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{sink}");
    assert!(sink.contains("\r\nconnection: close\r\n"), "{sink}");
    // The response to this request had begun, so it breaks off.
    let echo =
        answer_to_a_slow_body(b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    assert!(!echo.ends_with("0\r\n\r\n"), "{echo}");
}

/// Sends `request` whole, however early the server answers, and reads to the end of the connection.
async fn answer_while_sending(site: &TestSite, request: Vec<u8>) -> String {
    let (first, config) = (FirstFlight::empty(), ConnectConfig::default());
    let (stream, ()) =
        tokio::join!(site.client.connect(site.at, first, &config), site.serve(1, EarlyUnsafe::Wait));
    let (mut reader, mut writer) = stream.unwrap().into_split();
    let sending = tokio::spawn(async move {
        writer.write_all(&request).await.unwrap();
        writer.shutdown().await.unwrap();
    });
    let mut answer = Vec::new();
    reader.read_to_end(&mut answer).await.unwrap();
    sending.await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// A server that closes with unread data resets the connection, and its client can lose the response.
#[tokio::test]
async fn a_client_that_still_sends_gets_the_refusal() {
    let site = TestSite::new().await;
    site.confirm();
    let upload = format!("PUT /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 3 << 20);
    let upload = [upload.into_bytes(), vec![b'x'; 3 << 20]].concat();
    let answer = answer_while_sending(&site, upload).await;
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.ends_with("405 Method Not Allowed\n"), "{answer}");
    let field = format!("X-Long: {}\r\n", "x".repeat(1000)).repeat(120);
    let answer =
        answer_while_sending(&site, format!("GET / HTTP/1.1\r\nHost: x\r\n{field}\r\n").into_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn requests_that_servers_read_differently_are_refused() {
    let site = TestSite::new().await;
    site.confirm();
    let (host, post) = ("Host: x\r\n", "POST /echo");
    let chunked = |lines: &str| format!("{host}{lines}\r\n0\r\n\r\n");
    for (request, rest, status) in [
        ("GET /nothing-here", "\r\n".to_owned(), "400"),
        ("GET /nothing-here", format!("{host}{host}\r\n"), "400"),
        ("GET /nothing-here", "Host: a b/c\r\n\r\n".to_owned(), "400"),
        ("GET /nothing-here", "Host: a.example:abc\r\n\r\n".to_owned(), "400"),
        ("GET /nothing-here", "Host: a,b\r\n\r\n".to_owned(), "400"),
        ("GET /nothing-here", "Host: a.example:8080\r\n\r\n".to_owned(), "404"),
        ("GET *", format!("{host}\r\n"), "400"),
        ("CONNECT x:80", format!("{host}\r\n"), "405"),
        ("OPTIONS *", format!("{host}Connection: close\r\n\r\n"), "405"),
        (post, chunked("Transfer-Encoding: chunked\r\n"), "200"),
        (post, chunked("Transfer-Encoding: gzip, chunked\r\n"), "501"),
        (post, chunked("Transfer-Encoding: JUNK, chunked\r\n"), "501"),
        (post, chunked("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"), "501"),
        (post, chunked("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), "400"),
        (post, format!("{host}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx"), "400"),
        ("PUT /sink", format!("{host}Transfer-Encoding: chunked\r\n\r\nnone"), "400"),
        ("GET /nothing-here", format!("{host}Expect: a-miracle\r\n\r\n"), "417"),
    ] {
        let request = format!("{request} HTTP/1.1\r\n{rest}");
        let answer = answer_while_sending(&site, request.clone().into_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    let old =
        answer_while_sending(&site, b"GET /nothing-here HTTP/1.0\r\nExpect: a-miracle\r\n\r\n".to_vec());
    assert!(old.await.starts_with("HTTP/1.0 404 "));
}

/// The first line that the server says to a client that waits with its body, and the last one.
async fn expecting(site: &TestSite, line: &str) -> (String, String) {
    let head = format!("{line} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    let first = FirstFlight::safely_replayable(head.as_bytes());
    let config = ConnectConfig::default();
    let (stream, ()) =
        tokio::join!(site.client.connect(site.at, first, &config), site.serve(1, EarlyUnsafe::Wait));
    let mut stream = stream.unwrap();
    let mut line = [0; 12];
    stream.read_exact(&mut line).await.unwrap();
    // After a refusal the client keeps its body.
    if line.ends_with(b"100") {
        stream.write_all(b"hi").await.unwrap();
    }
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    let last = rest.lines().last().unwrap_or_default().to_owned();
    (String::from_utf8_lossy(&line).into_owned(), last)
}

#[tokio::test]
async fn a_body_is_asked_for_only_if_it_is_wanted() {
    let site = TestSite::new().await;
    site.confirm();
    let (first, last) = expecting(&site, "POST /echo").await;
    assert_eq!((&*first, &*last), ("HTTP/1.1 100", "hi"));
    let (first, last) = expecting(&site, "PUT /sink").await;
    assert!(first == "HTTP/1.1 100" && last.contains("\"bytes\":2"), "{last}");
    let (first, last) = expecting(&site, "PUT /nothing").await;
    assert_eq!((&*first, &*last), ("HTTP/1.1 405", "405 Method Not Allowed"));
    let (first, last) = expecting(&site, "GET /nothing-here").await;
    assert_eq!((&*first, &*last), ("HTTP/1.1 404", "404 Not Found"));
}

/// A body whose pieces the test sends.
struct Pieces(mpsc::Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

#[tokio::test]
async fn only_the_time_in_which_a_body_is_waited_for_counts() {
    let patience = Duration::from_millis(100);
    let (sender, pieces) = mpsc::channel(1);
    let mut body = RequestBody::new(Pieces(pieces), Some(patience));
    for piece in ["a little", "and more"] {
        sender.send(Bytes::from(piece)).await.unwrap();
        assert!(body.frame().await.unwrap().is_ok());
        // Meanwhile the server does not read.
        tokio::time::sleep(patience * 2).await;
    }
    assert!(waits(body.frame()).await);
    assert!(matches!(body.frame().await, Some(Err(BodyError::TooSlow))));
}
