#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

#[test]
fn a_server_switches_only_to_what_was_asked_for() {
    let switched = |asked: &'static str, response: &[(&'static str, &str)]| {
        switched(&HeaderValue::from_static(asked), &map(response))
            .map(|value| value.to_str().unwrap().to_owned())
    };
    let to = |asked, chosen| switched(asked, &[("connection", "upgrade"), ("upgrade", chosen)]);
    for (asked, chosen) in [
        ("websocket", "websocket"),
        ("websocket", "WebSocket"),
        ("foo/2, websocket", "websocket"),
        ("foo/2,bar", "bar, foo/2"),
    ] {
        assert_eq!(to(asked, chosen).as_deref(), Some(chosen), "{asked}");
    }
    for (asked, chosen) in [
        ("websocket", "h2c"),
        ("websocket", "other"),
        ("websocket", "websocket, other"),
        ("foo/2", "foo/3"),
        ("foo/2", "foo"),
        ("websocket", ""),
        ("websocket", ","),
        ("", ""),
    ] {
        assert_eq!(to(asked, chosen), None, "{asked} {chosen}");
    }
    assert_eq!(switched("websocket", &[("connection", "upgrade")]), None);
    assert_eq!(switched("websocket", &[("upgrade", "websocket")]), None);
    let twice = [("connection", "upgrade"), ("upgrade", "websocket"), ("upgrade", "h2c")];
    assert_eq!(switched("websocket", &twice), None);
}

#[test]
fn what_concerns_one_hop_is_removed() {
    let mut headers = map(&[
        ("connection", "close, X-Mine"),
        ("connection", "x-forwarded-for"),
        ("x-mine", "1"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("te", "trailers, deflate"),
        ("upgrade", "h2c"),
        ("expect", "100-continue"),
        ("proxy", "http://evil"),
        ("x-forwarded-for", "192.0.2.9"),
        ("accept", "*/*"),
    ]);
    clean_request(&mut headers);
    let mut left: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    left.sort_unstable();
    assert_eq!(left, [("accept", "*/*"), ("te", "trailers"), ("x-forwarded-for", "192.0.2.9")]);
}

#[test]
fn a_list_of_options_is_read_whatever_else_is_in_it() {
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_bytes(b"\xff, x-mine").unwrap());
    headers.insert("x-mine", HeaderValue::from_static("1"));
    strip_hop_by_hop(&mut headers);
    assert!(headers.is_empty(), "{headers:?}");
}

#[test]
fn trailers_say_nothing_that_belongs_into_a_head() {
    let mut trailers = map(&[
        ("content-length", "1"),
        ("host", "evil.example"),
        ("x-forwarded-for", "203.0.113.5"),
        ("forwarded", "for=203.0.113.5"),
        ("transfer-encoding", "chunked"),
        ("connection", "x-mine"),
        ("x-mine", "1"),
        ("keep-alive", "1"),
        ("te", "trailers"),
        ("authorization", "Basic eDp5"),
        ("early-data", "1"),
        ("grpc-status", "0"),
        ("x-checksum", "1"),
        // As CGI has them, these are two of those above.
        ("x_forwarded_for", "203.0.113.5"),
        ("early.data", "1"),
        ("x_checksum", "1"),
    ]);
    clean_trailers(&mut trailers);
    let mut left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["grpc-status", "x-checksum", "x_checksum"]);
}

#[test]
fn names_that_become_those_of_others_are_dropped() {
    let mut headers = map(&[
        ("x_real_ip", "203.0.113.5"),
        ("x_forwarded-for", "203.0.113.5"),
        ("early_data", "1"),
        ("x.real.ip", "203.0.113.5"),
        ("x-real-ip", "192.0.2.1"),
        ("sec-ch-ua", "x"),
    ]);
    drop_odd_names(&mut headers);
    let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["sec-ch-ua", "x-real-ip"]);
}

#[test]
fn cookies_become_one_line() {
    let mut headers = map(&[("cookie", "a=1"), ("accept", "*/*"), ("cookie", "b=2; c=3")]);
    join_cookies(&mut headers);
    assert_eq!(headers.get_all(COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2; c=3"]);
    let mut headers = map(&[("accept", "*/*")]);
    join_cookies(&mut headers);
    assert!(!headers.contains_key(COOKIE));
}

#[test]
fn an_upgrade_needs_both_headers() {
    assert!(upgrade(&map(&[("connection", "keep-alive, Upgrade"), ("upgrade", "websocket")])).is_some());
    assert!(upgrade(&map(&[("upgrade", "websocket")])).is_none());
    assert!(upgrade(&map(&[("connection", "upgrade")])).is_none());
    for hidden in ["h2c", "websocket, H2C", "HTTP/2.0"] {
        assert!(upgrade(&map(&[("connection", "upgrade"), ("upgrade", hidden)])).is_none(), "{hidden}");
    }
}

#[test]
fn a_given_field_has_a_name_and_a_value() {
    assert_eq!(given("Accept: text/html").unwrap(), (header::ACCEPT, HeaderValue::from_static("text/html")));
    assert_eq!(given("x-empty:").unwrap().1, "");
    for wrong in ["Accept", ": a", "a b: c", "a: b\r\nc: d"] {
        assert_eq!(given(wrong), Err(GivenError::Form), "{wrong:?}");
    }
    assert_eq!(given("content-length: 5"), Err(GivenError::Ours(CONTENT_LENGTH)));
    assert!(given("Connection: keep-alive").is_err());
}
