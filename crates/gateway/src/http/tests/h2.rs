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
use std::time::Duration;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const FLOW_CONTROL_ERROR: u8 = 3;

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
    let place = TestSite::new(HTTP, "", backend.at);
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

/// A proxy in front took the POST early. What follows its bytes is there at the same time.
#[tokio::test]
async fn what_a_proxy_in_front_marked_is_refused() {
    let backend = Backend::new().await;
    let listener = format!("{HTTP}\nproxy_protocol_from = [\"127.0.0.0/8\"]");
    let place = TestSite::new(&listener, "", backend.at);
    let request = |stream, fields: &[u8]| frame(HEADERS, END_HEADERS | END_STREAM, stream, fields);
    // `POST /pay`.
    let pay = [0x83, 0x44, 4, b'/', b'p', b'a', b'y', 0x86, 0x41, 1, b'a'];
    let early = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &request(1, &pay)].concat();
    let (from, to) = ("192.0.2.1:9".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
    let marked = firstflight_http::proxy_header::about(from, to, None, early.len() as u32).unwrap();
    let (mut client, stream) = accepted().await;
    let behind = [request(3, &fields(3)), request(5, &fields(2))].concat();
    client.write_all(&[&marked[..], &early, &behind].concat()).await.unwrap();
    place.serve(stream);
    let mut answers = tokio::spawn(async move {
        let mut count = 0;
        while count < 3 {
            count += u32::from(next(&mut client).await.unwrap().0 == HEADERS);
        }
    });
    let mut asked = Vec::new();
    loop {
        tokio::select! {
            mut far = backend.accept() => {
                asked.push(head(&mut far).await);
                send(&mut far, OK).await;
            }
            done = &mut answers => break done.unwrap(),
        }
    }
    asked.sort();
    assert!(
        asked.len() == 2 && asked[0].starts_with("get / ") && asked[1].starts_with("post / "),
        "{asked:?}"
    );
}

/// A client that never reads, and so never learns of a larger window. It has announced itself.
struct Uploader {
    stream: TcpStream,
    /// What the gateway allows for each stream, and for all.
    stream_window: u32,
    window: u32,
    /// The number of the last stream.
    last: u32,
    _backend: Backend,
    _place: TestSite,
}

impl Uploader {
    /// Of a gateway with these settings, and a backend that takes nothing: it does not answer the handshake of TLS.
    async fn new(listener: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let ca = directory.path().join("ca.pem");
        let made = rcgen::generate_simple_self_signed(["app.internal".to_owned()]).unwrap();
        std::fs::write(&ca, made.cert.pem()).unwrap();
        let tls = format!("[service.tls]\nname = \"app.internal\"\nca = {ca:?}");
        let (mut stream, backend, place) = pair(listener, &format!("connect_timeout = \"1h\"\n{tls}")).await;
        stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
        let (mut stream_window, mut window) = (65_535, 65_535);
        // The larger window of the connection may follow the answer to the first ping.
        let mut pings = 0;
        while pings < 2 {
            stream.write_all(&frame(PING, 0, 0, &[pings; 8])).await.unwrap();
            loop {
                let (kind, flags, body) = next(&mut stream).await.unwrap();
                match kind {
                    SETTINGS if flags & ACK == 0 => {
                        // From here on they apply.
                        stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await.unwrap();
                        for setting in body.chunks_exact(6).filter(|setting| setting[..2] == [0, 4]) {
                            stream_window = u32::from_be_bytes(setting[2..].try_into().unwrap());
                        }
                    }
                    WINDOW_UPDATE => window += u32::from_be_bytes(body.try_into().unwrap()),
                    PING if flags & ACK != 0 => break,
                    _ => {}
                }
            }
            pings += 1;
        }
        Self { stream, stream_window, window, last: 0, _backend: backend, _place: place }
    }

    /// Begins another upload, and sends this many bytes of it.
    async fn upload(&mut self, mut bytes: u32) {
        self.last += if self.last == 0 { 1 } else { 2 };
        self.stream.write_all(&frame(HEADERS, END_HEADERS, self.last, &fields(3))).await.unwrap();
        while bytes > 0 {
            let part = bytes.min(16_384);
            self.more(part).await;
            bytes -= part;
        }
    }

    /// Sends more of the upload that began last.
    async fn more(&mut self, bytes: u32) {
        self.stream.write_all(&frame(DATA, 0, self.last, &vec![b'x'; bytes as usize])).await.unwrap();
    }

    /// The gateway has taken everything until now. Returns what it sent beside settings and the answer to a ping: the
    /// frames' kinds and bodies.
    async fn answers(&mut self) -> Vec<(u8, Vec<u8>)> {
        self.stream.write_all(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
        let mut answers = Vec::new();
        while let Some((kind, flags, body)) = next(&mut self.stream).await {
            match kind {
                PING if flags & ACK != 0 && body == [7; 8] => break,
                SETTINGS | PING => {}
                _ => answers.push((kind, body)),
            }
        }
        answers
    }
}

/// 100 Mbit/s on a path of 100 ms are 1.25 MB in a round trip.
#[tokio::test]
async fn an_upload_may_send_what_a_long_path_holds() {
    let mut client = Uploader::new("").await;
    assert_eq!((client.stream_window, client.window), (2 << 20, 16 << 20));
    client.upload(2 << 20).await;
    assert_eq!(client.answers().await, []);
}

#[tokio::test]
async fn an_upload_to_a_slow_backend_holds_at_most_the_window_of_its_stream() {
    let mut client = Uploader::new("stream_window = 300000").await;
    client.upload(300_000).await;
    assert_eq!(client.answers().await, []);
    client.more(1).await;
    assert_eq!(client.answers().await, [(RST_STREAM, vec![0, 0, 0, FLOW_CONTROL_ERROR])]);
}

#[tokio::test]
async fn uploads_to_slow_backends_hold_at_most_the_window_of_the_connection() {
    let mut client = Uploader::new("stream_window = 300000\nconnection_window = 1000000").await;
    assert_eq!((client.stream_window, client.window), (300_000, 1_000_000));
    for _ in 0..3 {
        client.upload(300_000).await;
    }
    // What the others left is enough for another one to go on.
    client.upload(100_000).await;
    assert_eq!(client.answers().await, []);
    client.more(1).await;
    let answers = client.answers().await;
    let [(GOAWAY, body)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(body[4..8], [0, 0, 0, FLOW_CONTROL_ERROR]);
}

/// Streams that can use less than `connection_window` get no more.
#[tokio::test]
async fn the_window_of_a_connection_is_no_larger_than_those_of_its_streams() {
    let client = Uploader::new("stream_window = 100000\nmax_streams = 4").await;
    assert_eq!((client.stream_window, client.window), (100_000, 400_000));
    let client = Uploader::new("stream_window = 1").await;
    assert_eq!((client.stream_window, client.window), (1, 65_535));
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

/// A client of HTTP/2 always sends behind its request: a WINDOW_UPDATE for the response, an answer to a PING. See
/// `a_client_that_sends_after_the_end_gets_the_whole_response`.
#[tokio::test]
async fn a_drain_loses_nothing_of_a_response() {
    const LARGE: usize = 1_000_000;
    let (mut client, backend, place) = pair("", "").await;
    let window = [&[0, 4][..], &(1u32 << 30).to_be_bytes()].concat();
    let opening = [
        PREFACE,
        &frame(SETTINGS, 0, 0, &window),
        &frame(WINDOW_UPDATE, 0, 0, &(1u32 << 30).to_be_bytes()),
        &frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(2)),
    ];
    client.write_all(&opening.concat()).await.unwrap();
    let mut far = backend.accept().await;
    head(&mut far).await;
    place.drain.send_replace(true);
    loop {
        let (kind, flags, body) = next(&mut client).await.unwrap();
        if kind == PING && flags & ACK == 0 {
            client.write_all(&frame(PING, ACK, 0, &body)).await.unwrap();
            break;
        }
    }
    send(&mut far, &format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n{}", "x".repeat(LARGE))).await;
    place.lines(1).await;
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        client.write_all(&frame(PING, 0, 0, &[0; 8])).await.unwrap();
    }
    let mut count = 0;
    while let Some((kind, flags, body)) = next(&mut client).await {
        if kind == DATA {
            count += body.len();
        }
        if kind == DATA && flags & END_STREAM != 0 {
            assert_eq!(count, LARGE);
            return;
        }
    }
    panic!("the response ended after {count} bytes");
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

/// A field without any index.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

/// Reads until the stream is reset, or its response begins. The code of the reset.
async fn reset_of(client: &mut TcpStream, number: u32) -> Option<u32> {
    loop {
        let mut header = [0; 9];
        client.read_exact(&mut header).await.unwrap();
        let [a, b, c, kind, _, stream @ ..] = header;
        let body = exactly(client, u32::from_be_bytes([0, a, b, c]) as usize).await;
        match (kind, u32::from_be_bytes(stream) == number) {
            (RST_STREAM, true) => return Some(u32::from_be_bytes(body.try_into().unwrap())),
            (HEADERS, true) => return None,
            (GOAWAY, _) => panic!("the connection ends"),
            _ => {}
        }
    }
}

const PROTOCOL_ERROR: u32 = 1;

/// What h2 passes on as well formed: a path is cut at `#`, values keep their spaces, trailers lose their pseudo-header fields.
#[tokio::test]
async fn malformed_requests_reset_their_stream_and_reach_no_backend() {
    let path = |path: &str| [vec![0x82, 0x86, 0x41, 1, b'a'], literal(":path", path)].concat();
    let with = |name: &str, value: &str| [fields(2), literal(name, value)].concat();
    let (mut client, backend, _place) = pair("", "").await;
    client.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await.unwrap();
    let mut number = 1;
    for wrong in [
        path("#"),
        path("#x"),
        path("/#"),
        path("/a#b"),
        path("/a?x#/admin"),
        path("?x"),
        path("?#x"),
        path("*#x"),
        path("/\u{fc}"),
        with("x-a", " v"),
        with("x-a", "v "),
        with("x-a", "\tv"),
        with("x-a", "v\t"),
        with("content-length", "0 "),
    ] {
        client.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, number, &wrong)).await.unwrap();
        assert_eq!(
            reset_of(&mut client, number).await,
            Some(PROTOCOL_ERROR),
            "{}",
            String::from_utf8_lossy(&wrong)
        );
        number += 2;
    }
    for trailers in [literal(":path", "/q"), literal(":status", "200"), literal("x-sum", "1 ")] {
        let post = [
            frame(HEADERS, END_HEADERS, number, &fields(3)),
            frame(DATA, 0, number, b"abc"),
            frame(HEADERS, END_HEADERS | END_STREAM, number, &trailers),
        ];
        client.write_all(&post.concat()).await.unwrap();
        assert_eq!(
            reset_of(&mut client, number).await,
            Some(PROTOCOL_ERROR),
            "{}",
            String::from_utf8_lossy(&trailers)
        );
        number += 2;
    }
    // The first request that the backend sees is a right one.
    client.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, number, &path("/right?a"))).await.unwrap();
    let mut far = backend.accept().await;
    assert!(head(&mut far).await.starts_with("get /right?a http/1.1\r\n"));
    send(&mut far, OK).await;
    assert_eq!(reset_of(&mut client, number).await, None);
}

/// Also one whose body is as long as its head says.
#[tokio::test]
async fn malformed_trailers_cut_a_request_that_has_begun() {
    for (more, begun) in [
        (literal("x-a", "b"), "transfer-encoding: chunked\r\n"),
        (literal("content-length", "3"), "content-length: 3\r\n"),
    ] {
        let (mut client, backend, _place) = pair("", "").await;
        let begin = [
            PREFACE,
            &frame(SETTINGS, 0, 0, &[]),
            &frame(HEADERS, END_HEADERS, 1, &[fields(3), more].concat()),
            &frame(DATA, 0, 1, b"ab"),
            &frame(DATA, 0, 1, b"c"),
        ];
        client.write_all(&begin.concat()).await.unwrap();
        let mut far = backend.accept().await;
        assert!(head(&mut far).await.contains(begun));
        let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &literal(":path", "/q"));
        client.write_all(&trailers).await.unwrap();
        assert_eq!(reset_of(&mut client, 1).await, Some(PROTOCOL_ERROR));
        let mut rest = Vec::new();
        let _ = far.read_to_end(&mut rest).await;
        let rest = String::from_utf8_lossy(&rest);
        assert!(
            !rest.contains("abc") && !rest.contains("0\r\n\r\n"),
            "the backend takes it for whole: {rest}"
        );
    }
}

#[tokio::test]
async fn a_body_with_a_length_is_whole_when_its_stream_ends() {
    for end in
        [frame(DATA, END_STREAM, 1, &[]), frame(HEADERS, END_HEADERS | END_STREAM, 1, &literal("x-sum", "1"))]
    {
        let (mut client, backend, _place) = pair("", "").await;
        let begin = [
            PREFACE,
            &frame(SETTINGS, 0, 0, &[]),
            &frame(HEADERS, END_HEADERS, 1, &[fields(3), literal("content-length", "3")].concat()),
            &frame(DATA, 0, 1, b"abc"),
            &frame(DATA, 0, 1, b""),
        ];
        client.write_all(&begin.concat()).await.unwrap();
        let mut far = backend.accept().await;
        head(&mut far).await;
        client.write_all(&end).await.unwrap();
        assert_eq!(exactly(&mut far, 3).await, b"abc");
        send(&mut far, OK).await;
        assert_eq!(reset_of(&mut client, 1).await, None);
    }
}

/// Reads the frames of a request without a body, and answers with these.
async fn answer_by_hand(backend: &Backend, frames: &[Vec<u8>]) -> TcpStream {
    let mut far = backend.accept().await;
    exactly(&mut far, PREFACE.len()).await;
    far.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    loop {
        let (kind, flags, _) = next(&mut far).await.unwrap();
        if kind == HEADERS && flags & END_STREAM != 0 {
            break;
        }
    }
    far.write_all(&frames.concat()).await.unwrap();
    far
}

#[tokio::test]
async fn malformed_responses_of_a_backend_are_not_passed_on() {
    let head_of = |more: &[u8]| frame(HEADERS, END_HEADERS, 1, &[&[0x88], more].concat());
    let end = frame(DATA, END_STREAM, 1, b"ok");
    for (wrong, answer) in [
        (head_of(&[]), " 200 "),
        (head_of(&literal("x-a", " v")), " 502 "),
        (head_of(&literal("x-a", "v\t")), " 502 "),
        (head_of(&[literal("x-a", "v"), literal(":path", "/")].concat()), " 502 "),
        (
            [
                frame(HEADERS, END_HEADERS, 1, &[literal(":status", "103"), literal("link", "x ")].concat()),
                head_of(&[]),
            ]
            .concat(),
            " 502 ",
        ),
    ] {
        let (mut client, backend, _place) = pair("", "protocol = \"h2\"").await;
        send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let _far = answer_by_hand(&backend, &[wrong.clone(), end.clone()]).await;
        let got = head(&mut client).await;
        assert!(got.contains(answer), "{}: {got}", String::from_utf8_lossy(&wrong));
    }
    for (trailers, whole) in [
        (literal("x-sum", "1"), true),
        (literal("x-sum", "1 "), false),
        ([vec![0x88], literal("x-sum", "1")].concat(), false),
        ([literal("x-sum", "1"), literal(":path", "/")].concat(), false),
    ] {
        let (mut client, backend, _place) = pair("", "protocol = \"h2\"").await;
        send(&mut client, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        let frames =
            [head_of(&[]), frame(DATA, 0, 1, b"ok"), frame(HEADERS, END_HEADERS | END_STREAM, 1, &trailers)];
        let _far = answer_by_hand(&backend, &frames).await;
        let mut got = String::new();
        let _ = client.read_to_string(&mut got).await;
        assert_eq!(got.ends_with("0\r\n\r\n"), whole, "{}: {got}", String::from_utf8_lossy(&trailers));
    }
}
