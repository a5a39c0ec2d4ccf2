//! Fields that end at a proxy, and those that it adds (RFC 9110 §7.6).

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::uri::Authority;
use http::{Method, Version};

/// Fields of one connection. `Transfer-Encoding` is among them: each side has its own framing, made from the body.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];
/// The most requests that may pass further proxies is not known to most clients. 0 means that this proxy answers.
const LAST: HeaderValue = HeaderValue::from_static("0");

/// Removes the fields of one connection: those that are always, and those that it names itself.
fn strip(headers: &mut HeaderMap) {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|value| value.split(','));
    let named: Vec<_> =
        named.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Makes the fields of a request those of the next hop. `server` is the authority of its URI, which counts, whatever its
/// `Host` says (RFC 9112 §3.2.2).
pub(crate) fn forward_request(headers: &mut HeaderMap, server: &Authority, version: Version) {
    let trailers = headers.get_all(TE).iter().any(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    strip(headers);
    // The client has got its answer to it from this proxy.
    headers.remove(EXPECT);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    if let Ok(host) = HeaderValue::from_str(server.as_str()) {
        headers.insert(HOST, host);
    }
    via(headers, version);
}

/// Makes the fields of a response those of the client's connection.
pub(crate) fn forward_response(headers: &mut HeaderMap, version: Version) {
    strip(headers);
    via(headers, version);
}

fn via(headers: &mut HeaderMap, version: Version) {
    let via = if version == Version::HTTP_10 { "1.0 firstflight" } else { "1.1 firstflight" };
    headers.append(VIA, HeaderValue::from_static(via));
}

/// Whether a request ends here, because it may pass no further proxy (RFC 9110 §7.6.2). Counts others down.
pub(crate) fn is_last(method: &Method, headers: &mut HeaderMap) -> bool {
    let Some(left) = headers.get(MAX_FORWARDS).filter(|_| *method == Method::OPTIONS) else { return false };
    if *left == LAST {
        return true;
    }
    let less =
        left.to_str().ok().and_then(|text| text.parse::<u32>().ok()).and_then(|left| left.checked_sub(1));
    match less {
        Some(less) => drop(headers.insert(MAX_FORWARDS, less.into())),
        None => drop(headers.remove(MAX_FORWARDS)),
    }
    false
}

/// Whether the framing of a request can be read in two ways (RFC 9112 §6.3). hyper refuses most of those itself, and this
/// proxy frames each body anew.
pub(crate) fn is_ambiguous(headers: &HeaderMap) -> bool {
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    let hosts = headers.get_all(HOST).iter().count();
    lengths > 1 || hosts > 1 || (lengths > 0 && headers.contains_key(TRANSFER_ENCODING))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn fields_of_one_connection_end_here() {
        let mut headers = fields(&[
            ("host", "other.example"),
            ("connection", "close, X-Private"),
            ("connection", "x-more"),
            ("x-private", "1"),
            ("x-more", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic eDp5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("cookie", "kept"),
        ]);
        forward_request(&mut headers, &"www.example.com:8080".parse().unwrap(), Version::HTTP_11);
        let expected = fields(&[
            ("cookie", "kept"),
            ("te", "trailers"),
            ("connection", "te"),
            ("host", "www.example.com:8080"),
            ("via", "1.1 firstflight"),
        ]);
        assert_eq!(headers, expected);
        let mut headers = fields(&[("connection", "a"), ("a", "b"), ("via", "1.1 other"), ("server", "x")]);
        forward_response(&mut headers, Version::HTTP_10);
        let expected = [("via", "1.1 other"), ("server", "x"), ("via", "1.0 firstflight")];
        assert_eq!(headers, fields(&expected));
    }

    #[test]
    fn requests_that_may_pass_no_further_proxy_are_counted() {
        let mut last = fields(&[("max-forwards", "0")]);
        assert!(is_last(&Method::OPTIONS, &mut last) && !is_last(&Method::GET, &mut last));
        let mut more = fields(&[("max-forwards", "3")]);
        assert!(!is_last(&Method::OPTIONS, &mut more));
        assert_eq!(more, fields(&[("max-forwards", "2")]));
        for odd in ["x", "-1", "00"] {
            assert!(!is_last(&Method::OPTIONS, &mut fields(&[("max-forwards", odd)])), "{odd}");
        }
    }

    #[test]
    fn a_body_with_two_lengths_is_ambiguous() {
        assert!(!is_ambiguous(&fields(&[("content-length", "1"), ("host", "a")])));
        assert!(is_ambiguous(&fields(&[("content-length", "1"), ("transfer-encoding", "chunked")])));
        assert!(is_ambiguous(&fields(&[("content-length", "1"), ("content-length", "1")])));
        assert!(is_ambiguous(&fields(&[("host", "a"), ("host", "b")])));
    }
}
