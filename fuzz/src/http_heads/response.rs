//! Responses, from backends: any bytes, read by hyper's client, and passed on by the shared rules to a client of HTTP/1.1.

use super::check_hops;
use super::wire::{Sizes, Wire};
use firstflight_http::fields::{clean_trailers, strip_hop_by_hop};
use firstflight_http::response::{Framing, Settled, settle};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1 as client;
use hyper::ext::ReasonPhrase;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// A body that has come, and whether it came to its end.
struct Come {
    frames: VecDeque<Frame<Bytes>>,
    whole: bool,
    is_empty: bool,
    hint: SizeHint,
}

impl Body for Come {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let end = if self.whole { None } else { Some(Err("the backend ended early")) };
        Poll::Ready(self.frames.pop_front().map(Ok).or(end))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty
    }

    fn size_hint(&self) -> SizeHint {
        self.hint
    }
}

pub fn run(choice: u8, bytes: &[u8]) {
    let methods = [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS];
    let method = &methods[usize::from(choice) % 4];
    let mut sizes = Sizes(u32::from(choice >> 4));
    let Some((response, settled)) = from_backend(method, bytes, &mut sizes) else { return };
    let data: Vec<u8> =
        response.body().frames.iter().filter_map(|frame| frame.data_ref()).flatten().copied().collect();
    let (whole, status) = (response.body().whole, response.status());
    let is_old = choice & 8 != 0;
    let (sent, ended) = to_client(method, is_old, response);
    if sent.is_empty() {
        // hyper sends no head of a body that has already failed.
        assert!(!whole && !ended);
        return;
    }
    let read = read(method, &sent);
    assert_eq!(read.status, status.as_u16());
    assert!(read.body.len() <= data.len() && data.starts_with(&read.body), "another body");
    if whole {
        assert!(read.whole != Some(false), "a body that was whole is cut: {settled:?}");
        assert!(read.body == data || settled.framing == Framing::None || *method == Method::HEAD);
    } else {
        // The client notices: by the framing, or because the connection is not closed in order.
        assert!(read.whole == Some(false) || !ended, "a body that was cut seems whole");
    }
}

/// What hyper reads of a backend's bytes, and what would go on of it.
fn from_backend(method: &Method, bytes: &[u8], sizes: &mut Sizes) -> Option<(Response<Come>, Settled)> {
    let sent = RefCell::default();
    let wire = Wire { rest: bytes, sizes, sent: &sent, answers: true };
    let mut cx = Context::from_waker(Waker::noop());
    let mut making = pin!(client::Builder::new().max_headers(200).handshake::<_, String>(wire));
    let Poll::Ready(made) = making.as_mut().poll(&mut cx) else { panic!("the handshake waits") };
    let (mut sender, connection) = made.unwrap();
    let mut connection = pin!(connection);
    let mut request = Request::new(String::new());
    *request.method_mut() = method.clone();
    let mut answering = pin!(sender.send_request(request));
    let mut running = true;
    let mut turn = |cx: &mut Context<'_>| {
        running = running && connection.as_mut().poll(cx).is_pending();
    };
    let answer = (0..100_000).find_map(|_| {
        turn(&mut cx);
        match answering.as_mut().poll(&mut cx) {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    });
    let (mut parts, mut body) = answer.expect("hyper hangs").ok()?.into_parts();
    let came = came(&mut body, || turn(&mut cx));
    let settled = settle(method, parts.status, parts.version, &mut parts.headers).ok()?;
    if parts.status.is_informational() {
        // A switch of protocols, which nobody has asked for.
        return None;
    }
    agrees(&settled, &came, parts.version);
    let before = parts.headers.clone();
    strip_hop_by_hop(&mut parts.headers);
    check_hops(&before, &parts.headers);
    parts.version = Version::default();
    let reason = parts.extensions.remove::<ReasonPhrase>();
    parts.extensions.clear();
    if let Some(reason) = reason {
        parts.extensions.insert(reason);
    }
    Some((Response::from_parts(parts, came), settled))
}

fn came(body: &mut Incoming, mut turn: impl FnMut()) -> Come {
    let (is_empty, hint) = (body.is_end_stream(), body.size_hint());
    let mut come = Come { frames: VecDeque::new(), whole: false, is_empty, hint };
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        match Pin::new(&mut *body).poll_frame(&mut cx) {
            Poll::Pending => turn(),
            Poll::Ready(None) => {
                come.whole = true;
                return come;
            }
            Poll::Ready(Some(Err(_))) => return come,
            Poll::Ready(Some(Ok(frame))) => come.frames.push_back(match frame.into_trailers() {
                Ok(mut trailers) => {
                    clean_trailers(&mut trailers);
                    Frame::trailers(trailers)
                }
                Err(frame) => frame,
            }),
        }
    }
    panic!("hyper hangs");
}

/// The rules and hyper mean the same end of a body.
fn agrees(settled: &Settled, came: &Come, version: Version) {
    let exact = came.hint.exact();
    match settled.framing {
        Framing::None => assert!(came.is_empty && came.frames.is_empty()),
        Framing::Length(length) => assert_eq!(exact, Some(length)),
        Framing::Chunked => assert!(exact.is_none() && version == Version::HTTP_11),
        Framing::Open => assert!(exact.is_none() && !settled.keeps),
    }
}

/// What a client is sent, and whether its connection is closed in order.
fn to_client(method: &Method, is_old: bool, response: Response<Come>) -> (Vec<u8>, bool) {
    let (sent, held) = (RefCell::default(), RefCell::new(Some(response)));
    let version = if is_old { "1.0" } else { "1.1" };
    let asked = format!("{method} / HTTP/{version}\r\nHost: a\r\nTE: trailers\r\nConnection: close\r\n\r\n");
    let ended = {
        let mut sizes = Sizes(0);
        let wire = Wire { rest: asked.as_bytes(), sizes: &mut sizes, sent: &sent, answers: false };
        let service = service_fn(|_: Request<Incoming>| {
            let response = held.borrow_mut().take().unwrap();
            async move { Ok::<_, Infallible>(response) }
        });
        let mut builder = server::Builder::new();
        let mut connection =
            pin!(builder.header_read_timeout(None).half_close(true).serve_connection(wire, service));
        let mut cx = Context::from_waker(Waker::noop());
        let result = (0..100_000).find_map(|_| match connection.as_mut().poll(&mut cx) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        });
        result.expect("hyper hangs").is_ok()
    };
    (sent.into_inner(), ended)
}

/// A response as a strict client reads it.
struct Read {
    status: u16,
    body: Vec<u8>,
    /// `None`: by the end of the connection.
    whole: Option<bool>,
}

fn line<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let line = rest[..end].strip_suffix(b"\r").expect("a bare LF");
    assert!(!line.iter().any(|byte| matches!(byte, b'\r' | b'\0')), "a bare CR, or NUL");
    *rest = &rest[end + 1..];
    Some(line)
}

fn head(rest: &mut &[u8]) -> Option<HeaderMap> {
    let begin = *rest;
    while !line(rest)?.is_empty() {}
    Some(super::fields(&begin[..begin.len() - rest.len()]))
}

fn read(method: &Method, sent: &[u8]) -> Read {
    let mut rest = sent;
    let first = line(&mut rest).expect("no status line");
    let status = first.strip_prefix(b"HTTP/1.1 ").or_else(|| first.strip_prefix(b"HTTP/1.0 "));
    let status = std::str::from_utf8(&status.expect("a status line")[..3]).unwrap();
    let status: u16 = status.parse().unwrap();
    let headers = head(&mut rest).expect("half a head");
    for name in super::ONE_HOP.iter().filter(|name| !["connection", "transfer-encoding"].contains(name)) {
        assert!(!headers.contains_key(*name), "{name} goes to the client");
    }
    for value in headers.get_all("connection") {
        assert!(["close", "keep-alive"].contains(&value.to_str().unwrap()), "Connection: {value:?}");
    }
    let lengths: Vec<_> = headers.get_all("content-length").iter().collect();
    let codings: Vec<_> = headers.get_all("transfer-encoding").iter().collect();
    assert!(lengths.len() + codings.len() <= 1, "{lengths:?} and {codings:?}");
    let length = lengths.first().map(|length| {
        let text = length.to_str().unwrap();
        let number: usize = text.parse().unwrap();
        assert_eq!(number.to_string(), text, "a length in another form");
        number
    });
    let none = *method == Method::HEAD || [204, 304].contains(&status);
    let (body, whole) = match (length, codings.first()) {
        _ if none => (rest.to_vec(), Some(rest.is_empty())),
        (Some(length), _) => {
            assert!(rest.len() <= length, "a body behind its length");
            (rest.to_vec(), Some(rest.len() == length))
        }
        (None, Some(coding)) => {
            assert_eq!(coding.as_bytes(), b"chunked");
            let mut body = Vec::new();
            let whole = chunks(&mut rest, &mut body).is_some();
            assert!(rest.is_empty(), "bytes behind a response");
            (body, Some(whole))
        }
        (None, None) => (rest.to_vec(), None),
    };
    assert!(!none || body.is_empty(), "a body where there is none");
    assert!(StatusCode::from_u16(status).is_ok());
    Read { status, body, whole }
}

fn chunks(rest: &mut &[u8], body: &mut Vec<u8>) -> Option<()> {
    loop {
        let size = std::str::from_utf8(line(rest)?).unwrap();
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            let trailers = head(rest)?;
            let mut clean = trailers.clone();
            clean_trailers(&mut clean);
            assert_eq!(clean, trailers, "a trailer that belongs into a head");
            return Some(());
        }
        let (chunk, behind) = rest.split_at(size.min(rest.len()));
        body.extend_from_slice(chunk);
        *rest = behind;
        if chunk.len() < size || !line(rest)?.is_empty() {
            return None;
        }
    }
}
