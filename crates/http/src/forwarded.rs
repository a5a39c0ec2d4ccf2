//! Fields about the client, for the next hop: `X-Forwarded-*` and `Forwarded` (RFC 7239).

use hyper::HeaderMap;
use hyper::header::{FORWARDED, HeaderName, HeaderValue};
use serde::Deserialize;
use std::net::IpAddr;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// All of them.
pub const ALL: [HeaderName; 6] = [FORWARDED, FOR, PROTO, HOST, PORT, REAL_IP];

/// Headers about the client for backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Forwarded {
    /// `X-Forwarded-For`, `-Proto` and `-Host`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// Both.
    Both,
    /// Neither.
    None,
}

/// What is said of a client.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Its address.
    pub client: IpAddr,
    /// It came by TLS.
    pub tls: bool,
    /// The host that it asked for, with its port, as it wrote them.
    pub host: Option<&'a str>,
}

/// Sets the headers about the client. What the client says about itself stays only if it is `trusted`.
pub fn set_forwarded(headers: &mut HeaderMap, how: Forwarded, trusted: bool, about: &About<'_>) {
    if !trusted {
        for name in ALL {
            headers.remove(name);
        }
    }
    let host = about.host;
    let client = about.client.to_canonical();
    let proto = if about.tls { "https" } else { "http" };
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

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn about<'a>(client: &str, host: Option<&'a str>) -> About<'a> {
        About { client: client.parse().unwrap(), tls: false, host }
    }

    #[test]
    fn only_a_trusted_client_speaks_for_others() {
        let sent = [
            ("x-forwarded-for", "203.0.113.5"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "203.0.113.5"),
        ];
        let mut headers = map(&sent);
        set_forwarded(&mut headers, Forwarded::Both, false, &about("2001:db8::1", Some("a.example:80")));
        assert_eq!(headers.get(FOR).unwrap(), "2001:db8::1");
        assert_eq!(headers.get(PROTO).unwrap(), "http");
        assert_eq!(headers.get(HOST).unwrap(), "a.example:80");
        assert_eq!(headers.get(FORWARDED).unwrap(), "for=\"[2001:db8::1]\";proto=http;host=\"a.example:80\"");
        assert!(!headers.contains_key(REAL_IP));
        let mut headers = map(&sent);
        set_forwarded(&mut headers, Forwarded::XForwarded, true, &about("192.0.2.1", None));
        assert_eq!(headers.get(FOR).unwrap(), "203.0.113.5, 192.0.2.1");
        assert_eq!(headers.get(PROTO).unwrap(), "https");
        assert!(!headers.contains_key(FORWARDED) && headers.contains_key(REAL_IP));
    }
}
