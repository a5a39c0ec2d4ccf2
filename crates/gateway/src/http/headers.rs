//! Headers that concern one hop only, and headers about the client (RFC 9110 §7.6.1, RFC 7239).

use crate::client::About;
use crate::config::Forwarded;
use hyper::HeaderMap;
use hyper::header::{
    CONNECTION, COOKIE, EXPECT, FORWARDED, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use std::net::IpAddr;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// Whether the `Connection` header names this option.
fn connection_has(headers: &HeaderMap, option: &str) -> bool {
    let values = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(option))
}

/// The protocol to which a request or response switches. Never HTTP/2: its requests would pass unseen (RFC 9113 §3.1 has no
/// such switch any more).
pub(super) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
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
pub(super) fn strip_hop_by_hop(headers: &mut HeaderMap) {
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
    [&FORWARDED, &FOR, &PROTO, &HOST, &PORT, &REAL_IP, &super::early::EARLY_DATA, &hyper::header::HOST]
        .contains(&name)
        || *name == hyper::header::CONTENT_LENGTH
}

/// Prepares a client's request for a backend.
pub(super) fn clean_request(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    // The gateway has said "100 Continue" itself.
    headers.remove(EXPECT);
    // CGI programs take it for a setting (httpoxy).
    headers.remove("proxy");
    debug_assert!(!headers.contains_key(TRANSFER_ENCODING));
}

/// Makes one line of the cookies that HTTP/2 may split, for a backend with HTTP/1.1 (RFC 9113 §8.2.3).
pub(super) fn join_cookies(headers: &mut HeaderMap) {
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

/// Sets the headers about the client. What the client says about itself stays only if it is `trusted`.
pub(super) fn set_forwarded(
    headers: &mut HeaderMap,
    how: Forwarded,
    trusted: bool,
    about: &About,
    tls: bool,
    host: Option<&str>,
) {
    if !trusted {
        for name in [FORWARDED, FOR, PROTO, HOST, PORT, REAL_IP] {
            headers.remove(name);
        }
    }
    let client = about.peer.ip().to_canonical();
    let proto = if tls { "https" } else { "http" };
    if matches!(how, Forwarded::XForwarded | Forwarded::Both) {
        append(headers, FOR, &client.to_string());
        set(headers, PROTO, proto);
        if let Some(host) = host {
            set(headers, HOST, host);
        }
    }
    if matches!(how, Forwarded::Forwarded | Forwarded::Both) {
        let node = match client {
            IpAddr::V4(v4) => v4.to_string(),
            IpAddr::V6(v6) => format!("\"[{v6}]\""),
        };
        let host = host.map(|host| format!(";host=\"{host}\"")).unwrap_or_default();
        append(headers, FORWARDED, &format!("for={node};proto={proto}{host}"));
    }
}

/// Adds to a list in one line, as many backends read the first line only.
fn append(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    let mut all: Vec<String> =
        headers.get_all(&name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect();
    all.push(value.to_owned());
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        headers.insert(name, value);
    }
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let (false, Ok(value)) = (headers.contains_key(&name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use firstflight::Way;
    use firstflight_credential::Outcome;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn about(peer: &str) -> About {
        let peer = peer.parse().unwrap();
        let (way, outcome) = (Way::Kernel, Outcome::Accepted);
        About { peer, local: peer, hop: peer, way, outcome, early_bytes: 0, marked: 0 }
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

    #[test]
    fn only_a_trusted_client_speaks_for_others() {
        let sent = [
            ("x-forwarded-for", "203.0.113.5"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "203.0.113.5"),
        ];
        let mut headers = map(&sent);
        set_forwarded(
            &mut headers,
            Forwarded::Both,
            false,
            &about("[2001:db8::1]:9"),
            false,
            Some("a.example:80"),
        );
        assert_eq!(headers.get(FOR).unwrap(), "2001:db8::1");
        assert_eq!(headers.get(PROTO).unwrap(), "http");
        assert_eq!(headers.get(HOST).unwrap(), "a.example:80");
        assert_eq!(headers.get(FORWARDED).unwrap(), "for=\"[2001:db8::1]\";proto=http;host=\"a.example:80\"");
        assert!(!headers.contains_key(REAL_IP));
        let mut headers = map(&sent);
        set_forwarded(&mut headers, Forwarded::XForwarded, true, &about("192.0.2.1:9"), false, None);
        assert_eq!(headers.get(FOR).unwrap(), "203.0.113.5, 192.0.2.1");
        assert_eq!(headers.get(PROTO).unwrap(), "https");
        assert!(!headers.contains_key(FORWARDED) && headers.contains_key(REAL_IP));
    }
}
