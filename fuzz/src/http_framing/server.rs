//! hyper's connection of a server, in memory and without a clock.

use super::strict::Seen;
use super::wire::{Sizes, Wire};
use super::{LONGEST, goes_on};
use firstflight_http::framing::{self, Limits, MORE};
use hyper::body::{Body, Incoming};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// A request as hyper reads it.
struct Got {
    parts: Parts,
    body: Vec<u8>,
    trailers: HeaderMap,
    whole: bool,
}

async fn answer(request: Request<Incoming>, all: &RefCell<Vec<Got>>) -> Response<String> {
    let (parts, mut incoming) = request.into_parts();
    let status = framing::refusal(&parts);
    let connects = parts.method == Method::CONNECT;
    all.borrow_mut().push(Got { parts, body: Vec::new(), trailers: HeaderMap::new(), whole: false });
    let (mut body, mut trailers) = (Vec::new(), HeaderMap::new());
    let whole = loop {
        match poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
            None => break true,
            Some(Err(_)) => break false,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => body.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().unwrap(),
            },
        }
    };
    let mut all = all.borrow_mut();
    let got = all.last_mut().unwrap();
    (got.body, got.trailers, got.whole) = (body, trailers, whole);
    let mut response = Response::new(String::new());
    // As CONNECT is answered. hyper would begin a tunnel.
    *response.status_mut() =
        status.unwrap_or(if connects { StatusCode::BAD_REQUEST } else { StatusCode::OK });
    response
}

/// The requests that hyper reads, and whether it could not read one.
fn read(bytes: &[u8], limits: Limits, sizes: &mut Sizes) -> (Vec<Got>, bool) {
    let all = RefCell::new(Vec::new());
    let service = service_fn(|request| {
        let all = &all;
        async move { Ok::<_, Infallible>(answer(request, all).await) }
    });
    let result = {
        let mut builder = http1::Builder::new();
        builder.header_read_timeout(None).half_close(true);
        builder.max_headers(limits.fields + 8).max_buf_size((limits.bytes + 2 * MORE).max(8192));
        let sent = RefCell::default();
        let wire = Wire { rest: bytes, sizes, sent: &sent, answers: false };
        let mut connection = pin!(builder.serve_connection(wire, service));
        let mut cx = Context::from_waker(Waker::noop());
        // It never waits for anybody, but yields now and then.
        (0..=2 * LONGEST)
            .find_map(|_| match connection.as_mut().poll(&mut cx) {
                Poll::Ready(result) => Some(result),
                Poll::Pending => None,
            })
            .expect("hyper hangs")
    };
    (all.into_inner(), result.is_err_and(|error| error.is_parse()))
}

/// hyper reads what was passed on as it was meant.
pub fn agrees(out: &[u8], seen: &[Seen], limits: Limits, sizes: &mut Sizes) {
    let (all, failed) = read(out, limits, sizes);
    assert!(!failed, "hyper cannot read what was passed on: {:?}", out.escape_ascii().to_string());
    assert!(all.len() <= seen.len(), "hyper reads {} requests of {}", all.len(), seen.len());
    let last = seen.len().saturating_sub(1);
    if seen[..last].iter().all(goes_on) {
        assert_eq!(all.len(), seen.len(), "hyper reads fewer requests");
    }
    for (got, seen) in all.iter().zip(seen) {
        let parts = &got.parts;
        assert_eq!(parts.method.as_str().as_bytes(), seen.method);
        assert_eq!(parts.uri, Uri::try_from(&seen.target[..]).unwrap());
        if seen.target[0] == b'/' {
            assert_eq!(parts.uri.to_string().as_bytes(), seen.target);
        }
        assert_eq!(parts.version == Version::HTTP_11, seen.is_new);
        same_fields(&parts.headers, &seen.fields);
        assert_eq!(framing::refusal(parts).is_some(), seen.refused);
        assert_eq!(got.whole, seen.whole, "the end of the body of {seen:?}");
        if seen.whole {
            assert_eq!(got.body, seen.body);
            same_fields(&got.trailers, &seen.trailers);
        }
    }
}

fn same_fields(got: &HeaderMap, seen: &[(String, Vec<u8>)]) {
    let mut got: Vec<_> = got.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let mut seen: Vec<_> = seen.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    got.sort_unstable();
    seen.sort_unstable();
    assert_eq!(got, seen);
}

/// hyper as a reader of its own of what the client sent: as long as both read requests, they read the same ones.
pub fn agrees_about(sent: &[u8], seen: &[Seen], sizes: &mut Sizes) {
    let (all, _) = read(sent, Limits { bytes: LONGEST, fields: 200 }, sizes);
    for (got, seen) in all.iter().zip(seen).take_while(|(_, seen)| !seen.refused) {
        assert_eq!(got.parts.method.as_str().as_bytes(), seen.method);
        assert_eq!(got.parts.version == Version::HTTP_11, seen.is_new);
        // Our reader escapes what is no URI, and hyper takes it as it is.
        let is_uri = got.parts.uri.to_string().bytes().all(|byte| byte.is_ascii() && byte != b'`');
        if let Ok(uri) = Uri::try_from(&seen.target[..])
            && is_uri
        {
            assert_eq!(got.parts.uri, uri);
        }
        if !(got.whole && seen.whole) {
            break;
        }
        assert_eq!(got.body, seen.body, "hyper reads another body in {:?}", sent.escape_ascii().to_string());
    }
}
