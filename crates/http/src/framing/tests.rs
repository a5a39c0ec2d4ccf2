#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::fields::strip_hop_by_hop;
use crate::target::{RequestedHost, Target};
use proptest::prelude::*;

const LIMITS: Limits = Limits { bytes: 8192, fields: 20 };

/// What goes on of `bytes`, which come in pieces of this size, and whether their framing was malformed.
fn passed(bytes: &[u8], piece: usize, limits: Limits) -> (Vec<u8>, bool) {
    let mut framing = Framing::new(limits);
    let mut out = Vec::new();
    for piece in bytes.chunks(piece) {
        framing.input().extend_from_slice(piece);
        loop {
            let mut room = [0; 61];
            let mut buf = ReadBuf::new(&mut room);
            match framing.pass(&mut buf) {
                Ok(PassedBytes::Bytes) => out.extend_from_slice(buf.filled()),
                Ok(_) => break,
                Err(Malformed) => return (out, true),
            }
        }
        assert!(framing.waiting() <= limits.bytes.max(20_000) + piece.len(), "memory grows");
    }
    (out, false)
}

fn text(bytes: &str) -> String {
    let (whole, malformed) = passed(bytes.as_bytes(), usize::MAX, LIMITS);
    for piece in [1, 2, 3, 7, 64] {
        assert_eq!(
            passed(bytes.as_bytes(), piece, LIMITS),
            (whole.clone(), malformed),
            "in pieces of {piece}"
        );
    }
    assert!(!malformed, "{bytes:?}");
    String::from_utf8(whole).unwrap()
}

/// The status with which the request is refused. Nothing goes on behind it.
fn refused(bytes: &str) -> Option<u16> {
    let out = text(bytes);
    let (_, status) = out.split_once("x-firstflight-refused: ")?;
    assert!(status.ends_with("\r\n\r\n") && status.len() == 7, "{out:?}");
    status.get(..3)?.parse().ok()
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn requests_go_on_one_by_one_and_in_one_form() {
    let body = "Content-Length: 1\r\n\r\n";
    let size = body.len();
    for (sent, expected) in [
        (GET.to_owned(), GET.to_owned()),
        (format!("\r\n\r\n{GET}{GET}"), format!("{GET}{GET}")),
        ("GET /a HTTP/1.0\nX:  y \n\n".into(), "GET /a HTTP/1.0\r\nX: y\r\n\r\n".into()),
        (
            format!(
                "POST / HTTP/1.1\r\nContent-Length: 00{size}\r\nContent-Length: {size}\r\n\r\n{body}{GET}"
            ),
            format!("POST / HTTP/1.1\r\ncontent-length: {size}\r\n\r\n{body}{GET}"),
        ),
        (
            format!(
                "POST / HTTP/1.1\r\nTRANSFER-ENCODING:\tChunked\r\n\r\n00{size:X};a=\"b\"\r\n{body}\r\n1 ;c\r\nx\r\n0\r\nX: y\r\n\r\n{GET}"
            ),
            format!(
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n1\r\nx\r\n0\r\nX: y\r\n\r\n{GET}"
            ),
        ),
        (
            "PUT / HTTP/1.1\r\nContent-Length: 0\r\n\r\n".into(),
            "PUT / HTTP/1.1\r\ncontent-length: 0\r\n\r\n".into(),
        ),
    ] {
        assert_eq!(text(&sent), expected);
    }
}

#[test]
fn what_is_read_in_two_ways_is_refused_and_nothing_behind_it_goes_on() {
    let te = "Transfer-Encoding: chunked\r\n";
    for (fields, status) in [
        (format!("Content-Length: 1\r\n{te}"), 400),
        (format!("{te}Content-Length: 1\r\n"), 400),
        (format!("Content-Length:{}1\r\n{te}", " ".repeat(140)), 400),
        ("Content-Length: 1\r\nContent-Length: 2\r\n".into(), 400),
        ("Content-Length: 1, 1\r\n".into(), 400),
        ("Content-Length: +1\r\n".into(), 400),
        ("Content-Length: \r\n".into(), 400),
        ("Content-Length: 9223372036854775808\r\n".into(), 400),
        ("Transfer-Encoding: gzip, chunked\r\n".into(), 501),
        ("Transfer-Encoding: JUNK,chunked\r\n".into(), 501),
        (format!("Transfer-Encoding: gzip\r\n{te}"), 501),
        ("Transfer-Encoding: gzip\r\n".into(), 400),
        ("Transfer-Encoding: chunked, chunked\r\n".into(), 400),
        (format!("{te}{te}"), 400),
        (format!("{te}Transfer-Encoding: identity\r\n"), 400),
        ("Transfer-Encoding: chunked;q=1\r\n".into(), 400),
        ("Transfer-Encoding:\r\n".into(), 400),
        ("Transfer-Encoding: , chunked\r\n".into(), 400),
        ("Transfer-Encoding : chunked\r\n".into(), 400),
        ("X: y\r\n Transfer-Encoding: chunked\r\n".into(), 400),
        ("X: a\rb\r\n".into(), 400),
        ("X: a\0b\r\n".into(), 400),
        ("nothing\r\n".into(), 400),
        ("X: y\r\n".repeat(21), 431),
        (format!("X: {}\r\n", "y".repeat(9000)), 431),
    ] {
        let sent = format!("POST /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n0\r\n\r\n{GET}");
        assert_eq!(refused(&sent), Some(status), "{fields:?}");
        assert!(text(&sent).starts_with("POST /x HTTP/1.1\r\n"), "the log has the request");
    }
    for (line, status) in [
        ("GET /#a HTTP/1.1", 400),
        ("GET / HTTP/1.2", 400),
        ("GET / http/1.1", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET / x HTTP/1.1", 400),
        ("GET\t/\tHTTP/1.1", 400),
        ("GET /", 400),
        ("(ET / HTTP/1.1", 400),
        ("PRI * HTTP/1.1", 400),
        ("CONNECT http://a:443 HTTP/1.1", 400),
        ("CONNECT a:443/ HTTP/1.1", 400),
        ("\u{16}\u{3}\u{1}", 400),
    ] {
        assert_eq!(refused(&format!("{line}\r\nHost: a\r\n\r\n{GET}")), Some(status), "{line}");
    }
    assert_eq!(refused(&format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(9000))), Some(414));
    assert_eq!(refused(&format!("POST / HTTP/1.0\r\n{te}\r\n0\r\n\r\n")), Some(400));
}

#[test]
fn a_refusal_cannot_be_forged_and_is_told_to_http_1_only() {
    let forged = text("GET / HTTP/1.1\r\nHost: a\r\nX-Firstflight-Refused: 418\r\n\r\n");
    assert_eq!(forged, GET);
    let parts = |version| {
        let request = hyper::Request::builder().version(version).header(REFUSED, "431").body(());
        request.unwrap().into_parts().0
    };
    assert_eq!(refusal(&parts(Version::HTTP_11)), Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
    assert_eq!(refusal(&parts(Version::HTTP_2)), None);
}

#[test]
fn what_a_uri_cannot_hold_is_encoded() {
    let sent = [&b"GET /a<b>`\xe4\xff?<\x7c HTTP/1.1\r\nX: \xe4\r\n\r\n"[..]].concat();
    let (out, _) = passed(&sent, 3, LIMITS);
    assert_eq!(out, b"GET /a%3Cb%3E%60%E4%FF?%3C| HTTP/1.1\r\nX: \xe4\r\n\r\n");
}

/// hyper would answer it by itself, and the log would not have it.
#[test]
fn nothing_goes_on_that_hyper_does_not_take() {
    for target in
        ["/a\0b", "/a\rb", "/a\u{7f}b", "a[", "http://", "http://a b", "?", "a?b", "//\\", "http:///", "[::1"]
    {
        for version in ["1.1", "1.0"] {
            let out = text(&format!("GET {target} HTTP/{version}\r\nHost: a\r\n\r\n{GET}"));
            let mut fields = [httparse::EMPTY_HEADER; 8];
            let mut read = httparse::Request::new(&mut fields);
            assert!(read.parse(out.as_bytes()).unwrap().is_complete(), "{out:?}");
            assert!(hyper::Uri::try_from(read.path.unwrap()).is_ok(), "{out:?}");
        }
    }
    assert_eq!(refused("GET a[ HTTP/1.1\r\nHost: a\r\n\r\n"), Some(400));
    assert_eq!(refused("GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n"), Some(400));
}

#[test]
fn what_becomes_too_long_when_it_is_encoded_is_refused() {
    assert_eq!(refused(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "<".repeat(8000))), Some(414));
    let (out, _) =
        passed(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "<".repeat(2000)).as_bytes(), 9, LIMITS);
    assert!(out.starts_with(b"GET /%3C%3C") && out.len() <= LIMITS.bytes + MORE);
}

/// RFC 9112 §3.2.4.
#[test]
fn options_about_a_whole_server_keep_their_form() {
    let path = |line: &str| {
        let head = text(&format!("{line} HTTP/1.1\r\nHost: a\r\nX-Firstflight-Whole: 1\r\n\r\n"));
        let mut fields = [httparse::EMPTY_HEADER; 8];
        let mut read = httparse::Request::new(&mut fields);
        assert!(read.parse(head.as_bytes()).unwrap().is_complete());
        let mut request = hyper::Request::builder().method(read.method.unwrap()).uri(read.path.unwrap());
        for field in read.headers.iter() {
            request = request.header(field.name, field.value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let target = Target::of(&parts, RequestedHost::Clear).unwrap().path(&parts).unwrap().to_string();
        strip_hop_by_hop(&mut parts.headers);
        assert_eq!(parts.headers.len(), 1, "{:?}", parts.headers);
        target
    };
    assert_eq!(path("OPTIONS http://a"), "*");
    assert_eq!(path("OPTIONS *"), "*");
    assert_eq!(path("OPTIONS http://a/"), "/");
    assert_eq!(path("OPTIONS http://a?b"), "/?b");
    assert_eq!(path("GET http://a"), "/");
    assert_eq!(path("GET /b?c"), "/b?c");
}

#[test]
fn malformed_chunks_end_the_connection() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let long = "x".repeat(70_000);
    // With the empty line, 16 KiB: hyper takes fewer.
    let longest = |more: usize| format!("0\r\nX: {}\r\n\r\n", "x".repeat(16 * 1024 - 8 + more));
    let (out, malformed) = passed(format!("{head}{}{GET}", longest(0)).as_bytes(), 100_000, LIMITS);
    assert!(!malformed && out.ends_with(GET.as_bytes()));
    for body in [
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-1\r\n",
        "\r\nhello",
        "10000000000000005\r\nhello",
        "8000000000000000\r\nhello",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5 5\r\nhello",
        "5;a\nb\r\nhello",
        "5;a\0b\r\nhello",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        &format!("5;{long}"),
        &format!("0\r\nX: {long}"),
        &longest(1),
        "0\r\nX y\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\n X: y\r\n\r\n",
        &format!("0\r\n{}\r\n", "X: y\r\n".repeat(21)),
    ] {
        let sent = format!("{head}{body}{GET}");
        for piece in [1, 5, 100_000] {
            let (out, malformed) = passed(sent.as_bytes(), piece, LIMITS);
            assert!(malformed, "{:?}", body.get(..30.min(body.len())));
            assert!(!out.ends_with(GET.as_bytes()));
        }
    }
}

#[test]
fn a_protocol_that_was_switched_to_goes_on_as_it_is() {
    let mut framing = Framing::new(LIMITS);
    framing.input().extend_from_slice(b"GET / HTTP/1.1\r\nUpgrade: x\r\n\r\nhello\0\n");
    let mut room = [0; 100];
    let mut buf = ReadBuf::new(&mut room);
    assert_eq!(framing.pass(&mut buf), Ok(PassedBytes::Bytes));
    assert!(buf.filled().ends_with(b"\r\n\r\n"), "what follows may be another protocol");
    framing.switch();
    buf.clear();
    assert_eq!(framing.pass(&mut buf), Ok(PassedBytes::Bytes));
    assert_eq!(buf.filled(), b"hello\0\n");
    assert_eq!(framing.pass(&mut buf), Ok(PassedBytes::Directly(u64::MAX)));
    // One that was not taken hides nothing.
    let declined = "GET / HTTP/1.1\r\nUpgrade: x\r\n\r\n";
    let bad = "POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(bad), Some(400));
    assert!(text(&[declined, bad].concat()).contains("refused: 400"));
}

#[test]
fn bodies_are_read_past_the_input() {
    let mut framing = Framing::new(LIMITS);
    framing.input().extend_from_slice(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n123");
    let head = framing.waiting() - 3;
    let mut room = [0; 100];
    let mut buf = ReadBuf::new(&mut room);
    for _ in 0..2 {
        assert_eq!(framing.pass(&mut buf), Ok(PassedBytes::Bytes));
    }
    assert!(!framing.is_at_head());
    assert_eq!(framing.pass(&mut buf), Ok(PassedBytes::Directly(7)));
    framing.passed_directly(4);
    assert_eq!(framing.pass(&mut buf), Ok(PassedBytes::Directly(3)));
    framing.passed_directly(3);
    assert!(framing.is_between());
    assert_eq!(framing.consumed(), head as u64 + 10);
    assert_eq!(framing.pass(&mut buf), Ok(PassedBytes::NeedsMore));
}

#[test]
fn http_2_is_recognized_by_its_preface() {
    let speaks = |bytes: &[u8]| {
        let mut framing = Framing::new(LIMITS);
        framing.input().extend_from_slice(bytes);
        framing.speaks_http2()
    };
    for cut in 0..PREFACE.len() {
        assert_eq!(speaks(&PREFACE[..cut]), None);
    }
    assert_eq!(
        (speaks(PREFACE), speaks(b"PUT"), speaks(b"PRI * HTTP/2.0\r\n\r\nXX")),
        (Some(true), Some(false), Some(false))
    );
}

proptest! {
    /// Pieces make no difference, and memory is bounded.
    #[test]
    fn any_bytes_go_on_in_the_same_way_in_any_pieces(
        parts in prop::collection::vec(
            prop_oneof![
                Just("GET / HTTP/1.1\r\n"), Just("POST /a HTTP/1.1\r\n"), Just("Content-Length: 3\r\n"), Just("Transfer-Encoding: chunked\r\n"),
                Just("\r\n"), Just("3\r\nabc\r\n"), Just("0\r\n\r\n"), Just("\n"), Just("\r"), Just("abc"), Just("X: y\r\n"), Just("\0"),
            ],
            0..20,
        ),
        piece in 1_usize..40,
    ) {
        let bytes = parts.concat().into_bytes();
        let whole = passed(&bytes, usize::MAX, LIMITS);
        prop_assert_eq!(passed(&bytes, piece, LIMITS), whole);
    }
}

#[test]
fn a_request_has_begun_when_its_first_line_is_there() {
    let begun = |input: &str| {
        let mut framing = Framing::new(Limits { bytes: 1000, fields: 10 });
        framing.input().extend_from_slice(input.as_bytes());
        framing.begun().map(|(method, target)| (method.to_owned(), target.to_owned()))
    };
    let expected = Some(("GET".to_owned(), "/a?b".to_owned()));
    assert_eq!(begun("GET /a?b HTTP/1.1\r\n"), expected);
    assert_eq!(begun("GET /a?b HTTP/1.1\r\nHost: a\r\n"), expected);
    for other in [
        "",
        "GET /a HTTP/1.1",
        "GET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a\r\n",
        "GET http://10.0.0.1/ HTTP/1.1\r\n",
        "GET / HTTP/1.0\r\n",
        "\n\n",
        "PRI * HTTP/2.0\r\n",
    ] {
        assert_eq!(begun(other), None, "{other:?}");
    }
}
