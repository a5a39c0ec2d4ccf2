#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::framing::refusal;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use std::convert::Infallible;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const LIMITS: Limits = Limits { bytes: 8192, fields: 100 };

fn times(idle: Option<Duration>) -> Times {
    Times { head: Duration::from_secs(30), idle, stall: Some(Duration::from_secs(60)) }
}

/// A text as a body.
struct Text(Option<Bytes>);

impl Body for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|text| Ok(Frame::data(text))))
    }
}

/// hyper's `Io` over tokio's, without hyper-util.
struct ForHyper(ServerIo<DuplexStream>);

impl hyper::rt::Read for ForHyper {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut room = vec![0; buf.remaining()];
        let mut part = ReadBuf::new(&mut room);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut part))?;
        buf.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for ForHyper {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A client of a server that answers with the target, or as a refusal says.
fn server(idle: Option<Duration>) -> DuplexStream {
    let (client, server) = duplex(64 * 1024);
    let answer = |request: Request<Incoming>| async {
        let (parts, _) = request.into_parts();
        let text = Bytes::from(format!("<{} {}>", parts.method, parts.uri));
        let mut response = Response::new(Text(Some(text)));
        *response.status_mut() = refusal(&parts).unwrap_or(StatusCode::OK);
        Ok::<_, Infallible>(response)
    };
    let io = ForHyper(ServerIo::new(server, LIMITS, times(idle)));
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .half_close(true)
        .serve_connection(io, service_fn(answer));
    tokio::spawn(connection);
    client
}

async fn all(client: &mut DuplexStream) -> String {
    let mut text = String::new();
    client.read_to_string(&mut text).await.unwrap();
    text
}

const GET: &[u8] = b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test(start_paused = true)]
async fn a_refusal_is_answered_behind_the_requests_in_front_of_it() {
    let mut client = server(None);
    client.write_all(GET).await.unwrap();
    client
        .write_all(b"POST /two HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")
        .await
        .unwrap();
    client.write_all(GET).await.unwrap();
    let text = all(&mut client).await;
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part}: {text}"));
    assert!(
        at("200 OK") < at("<GET /one>") && at("<GET /one>") < at("501 ") && at("501 ") < at("<POST /two>"),
        "{text}"
    );
    assert_eq!(
        (text.matches("HTTP/1.1").count(), text.matches("connection: close").count()),
        (2, 1),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_come_whole_is_answered_and_silence_is_not() {
    let begun = Instant::now();
    let mut client = server(None);
    client.write_all(b"GET /slow HTT").await.unwrap();
    assert!(all(&mut client).await.contains(" 408 "));
    assert_eq!(begun.elapsed().as_secs(), 30);
    let begun = Instant::now();
    assert_eq!(all(&mut server(None)).await, "");
    assert_eq!(begun.elapsed().as_secs(), 30);
}

#[tokio::test(start_paused = true)]
async fn a_kept_connection_has_the_idle_time_and_then_a_head_its_own() {
    for idle in [None, Some(Duration::from_secs(75))] {
        let mut client = server(idle);
        client.write_all(GET).await.unwrap();
        let mut some = [0; 4096];
        assert!(client.read(&mut some).await.unwrap() > 0);
        sleep(Duration::from_secs(70)).await;
        client.write_all(GET).await.unwrap();
        assert!(client.read(&mut some).await.unwrap() > 0, "{idle:?}");
        sleep(Duration::from_secs(70)).await;
        let begun = Instant::now();
        client.write_all(b"GET /slow").await.unwrap();
        assert!(all(&mut client).await.contains(" 408 "), "{idle:?}");
        assert_eq!(begun.elapsed().as_secs(), 30);
    }
    let begun = Instant::now();
    let mut client = server(Some(Duration::from_secs(75)));
    client.write_all(GET).await.unwrap();
    assert!(all(&mut client).await.contains("<GET /one>"));
    assert_eq!(begun.elapsed().as_secs(), 75);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_given_up() {
    let (_client, server) = duplex(16);
    let mut io = ServerIo::new(server, LIMITS, times(None));
    let begun = Instant::now();
    let error = io.write_all(&[0; 100]).await.unwrap_err();
    assert_eq!((error.kind(), begun.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_is_noticed_and_nothing_that_it_said_is_lost() {
    let (mut client, server) = duplex(64 * 1024);
    let mut io = ServerIo::new(server, LIMITS, times(None));
    client.write_all(GET).await.unwrap();
    let mut head = vec![0; GET.len()];
    io.read_exact(&mut head).await.unwrap();
    client.write_all(GET).await.unwrap();
    assert!(poll_fn(|cx| Poll::Ready(io.poll_left(cx))).await.is_pending());
    client.write_all(&vec![b'x'; 40_000]).await.unwrap();
    assert!(poll_fn(|cx| Poll::Ready(io.poll_left(cx))).await.is_pending());
    assert!(io.framing.waiting() <= AHEAD + PIECE, "{}", io.framing.waiting());
    io.read_exact(&mut head).await.unwrap();
    assert_eq!(head, GET);

    let (client, server) = duplex(64);
    let mut io = ServerIo::new(server, LIMITS, times(None));
    drop(client);
    assert_eq!(poll_fn(|cx| io.poll_left(cx)).await, Left::Closed);
}

#[tokio::test(start_paused = true)]
async fn http_2_is_told_from_http_1() {
    for (sent, expected) in
        [(crate::framing::PREFACE, Some(true)), (b"PUT", Some(false)), (b"PRI", Some(false)), (b"", None)]
    {
        let (mut client, server) = duplex(64);
        let mut io = ServerIo::new(server, LIMITS, times(None));
        client.write_all(sent).await.unwrap();
        assert_eq!(io.speaks_http2().await, expected, "{sent:?}");
        if expected == Some(true) {
            let mut preface = [0; 24];
            io.read_exact(&mut preface).await.unwrap();
            assert_eq!(preface, crate::framing::PREFACE);
        }
    }
}

/// The other half of a connection is open, as an idle client leaves it.
#[tokio::test(start_paused = true)]
async fn a_quick_connection_closes_at_once_between_requests_only() {
    for (sent, seconds) in [
        (&b""[..], 0),
        (GET, 0),
        (b"GET /one HTTP/1.1\r\nHost: a\r\n\r\nGET", 5),
        (b"PUT /one HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf", 5),
        (b"GET /one\r\n\r\n", 5),
    ] {
        let (mut client, server) = duplex(64 * 1024);
        let mut io = ServerIo::new(server, LIMITS, times(None)).quick();
        client.write_all(sent).await.unwrap();
        if !sent.is_empty() {
            let mut head = [0; 4096];
            assert!(io.read(&mut head).await.unwrap() > 0);
        }
        let begun = Instant::now();
        io.shutdown().await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), seconds, "{}", String::from_utf8_lossy(sent));
    }
    // The next request has come, and was not read yet.
    let (mut client, server) = duplex(64 * 1024);
    let mut io = ServerIo::new(server, LIMITS, times(None)).quick();
    client.write_all(GET).await.unwrap();
    let begun = Instant::now();
    io.shutdown().await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 5);
}
