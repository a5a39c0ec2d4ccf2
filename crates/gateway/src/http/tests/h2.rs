//! HTTP/2.

use super::*;
use crate::testing::Path;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: u8 = 4;
const HEADERS: u8 = 1;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// `:method` (2 is GET, 3 is POST), `:path: /`, `:scheme: http`, `:authority: a`.
fn fields(method: u8) -> Vec<u8> {
    vec![0x80 | method, 0x84, 0x86, 0x41, 1, b'a']
}

/// The next frame: kind, flags, body.
async fn next(stream: &mut (impl AsyncReadExt + Unpin)) -> Option<(u8, u8, Vec<u8>)> {
    let mut header = [0; 9];
    stream.read_exact(&mut header).await.ok()?;
    let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
    Some((header[3], header[4], exactly(stream, length).await))
}

#[tokio::test]
async fn a_stream_that_waits_stops_no_other() {
    let path = Path::new().await;
    let backend = Backend::new().await;
    let place = Place::new(HTTP, "", backend.at);
    let flight = [
        PREFACE,
        &frame(SETTINGS, 0, 0, &[]),
        &frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(3)),
        &frame(HEADERS, END_HEADERS | END_STREAM, 3, &fields(2)),
    ]
    .concat();
    let (connecting, stream) = path.connect(flight.leak()).await;
    place.serve(stream);
    let mut far = backend.accept().await;
    let asked = head(&mut far).await;
    assert!(asked.starts_with("get / ") && asked.contains("early-data: 1\r\n"), "{asked}");
    assert!(!connecting.is_finished(), "the GET waited");
    send(&mut far, OK).await;
    let asked = tokio::select! {
        mut other = backend.accept() => head(&mut other).await,
        asked = head(&mut far) => asked,
    };
    assert!(asked.starts_with("post / ") && !asked.contains("early-data"), "{asked}");
    assert!(connecting.is_finished(), "the POST did not wait");
}

#[test]
fn the_window_of_a_connection_has_room_for_those_of_all_streams() {
    assert_eq!(crate::http::window_of_all(65_535, 128), 65_535 * 128);
    assert_eq!(crate::http::window_of_all(1, 1), 65_535);
    assert_eq!(crate::http::window_of_all(1 << 30, 128), (1 << 31) - 1);
}

#[tokio::test]
async fn a_drain_sends_goaway_twice() {
    let (mut client, _backend, place) = pair("", "").await;
    client.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    while next(&mut client).await.unwrap().0 != SETTINGS {}
    place.drain.send_replace(true);
    let mut last = Vec::new();
    while let Some((kind, flags, body)) = next(&mut client).await {
        match kind {
            GOAWAY => last.push(u32::from_be_bytes([body[0], body[1], body[2], body[3]])),
            PING if flags & ACK == 0 => client.write_all(&frame(PING, ACK, 0, &body)).await.unwrap(),
            _ => {}
        }
    }
    assert_eq!(last, [(1 << 31) - 1, 0]);
}

/// A service of gRPC: HTTP/2 without TLS, and trailers.
async fn grpc(backend: Backend) {
    let answer = async |request: Request<hyper::body::Incoming>| {
        let te = request.headers().get("te").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        trailers.insert("x-te", te.unwrap());
        let body = Full::new(body).with_trailers(async move { Some(Ok::<_, Infallible>(trailers)) });
        Ok::<_, Infallible>(
            Response::builder().header("content-type", "application/grpc").body(body).unwrap(),
        )
    };
    let io = TokioIo::new(backend.accept().await);
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(io, service_fn(answer))
        .await;
}

#[tokio::test]
async fn trailers_of_grpc_arrive() {
    let (client, backend, _place) = pair("", "protocol = \"h2\"").await;
    let serving = tokio::spawn(grpc(backend));
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection);
    for n in 0..3 {
        let text = format!("message {n}");
        let request = Request::post("http://a/service/method")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .body(Full::new(Bytes::from(text.clone())))
            .unwrap();
        let collected = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap();
        assert_eq!(
            (&trailers["grpc-status"], &trailers["x-te"]),
            (&"0".parse().unwrap(), &"trailers".parse().unwrap())
        );
        assert_eq!(collected.to_bytes(), text);
    }
    serving.abort();
    // A failure of the gateway's own has a status of gRPC, too.
    let (client, backend, _place) = pair("", "protocol = \"h2\"").await;
    drop(backend);
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://a/service/method")
        .header("content-type", "application/grpc")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["grpc-status"]),
        (200, &"14".parse().unwrap())
    );
}
