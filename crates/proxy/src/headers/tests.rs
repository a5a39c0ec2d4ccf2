use super::*;
use http::header::HeaderName;

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
    forward_request(&mut headers, HeaderValue::from_static("www.example.com:8080"), Version::HTTP_11);
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
