//! Fields that concern one hop only (RFC 9110 §7.6.1).

use crate::forwarded;
use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};

/// `Early-Data` (RFC 8470 §5.1).
pub const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// Whether the `Connection` header names this option.
fn connection_has(headers: &HeaderMap, option: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(option))
}

/// The protocol to which a request or response switches. Never HTTP/2: its requests would pass unseen (RFC 9113 §3.1 has no
/// such switch any more).
pub fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_http = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        name.starts_with("h2") || name.starts_with("http")
    };
    let protocol = headers.get(UPGRADE).filter(|_| connection_has(headers, "upgrade"))?;
    let names = protocol.to_str().ok()?;
    let several = headers.get_all(UPGRADE).iter().count() > 1;
    (!several && !names.split(',').any(is_http)).then(|| protocol.clone())
}

/// Removes what concerns this hop only. `te: trailers` stays, because gRPC needs it.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let trailers = headers.get_all(TE).iter().any(|value| {
        value
            .to_str()
            .is_ok_and(|value| value.split(',').any(|one| one.trim().eq_ignore_ascii_case("trailers")))
    });
    for name in named {
        // Nobody can make the gateway forget what it says itself.
        if !is_ours(&name) {
            headers.remove(name);
        }
    }
    for name in ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "te"] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

fn is_ours(name: &HeaderName) -> bool {
    forwarded::ALL.contains(name) || [&EARLY_DATA, &HOST, &CONTENT_LENGTH].contains(&name)
}

/// Prepares a client's request for a backend.
pub fn clean_request(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    // The gateway has said "100 Continue" itself.
    headers.remove(EXPECT);
    // CGI programs take it for a setting (httpoxy).
    headers.remove("proxy");
    debug_assert!(!headers.contains_key(TRANSFER_ENCODING));
}

/// Makes one line of the cookies that HTTP/2 may split, for a backend with HTTP/1.1 (RFC 9113 §8.2.3).
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut all = Vec::new();
    for (n, cookie) in headers.get_all(COOKIE).iter().enumerate() {
        if n > 0 {
            all.extend_from_slice(b"; ");
        }
        all.extend_from_slice(cookie.as_bytes());
    }
    if let (false, Ok(value)) = (all.is_empty(), HeaderValue::from_bytes(&all)) {
        headers.insert(COOKIE, value);
    }
}

#[cfg(test)]
mod tests {
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
}
