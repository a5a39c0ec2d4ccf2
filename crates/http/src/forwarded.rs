//! Fields about the client, for the next hop: `X-Forwarded-*` and `Forwarded` (RFC 7239).

use hyper::HeaderMap;
use hyper::header::{FORWARDED, HeaderName, HeaderValue};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};

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

/// Who the client is: the last address in the fields of a request that no trusted one has added, or the sender's own.
/// `trusts` says who may speak for others. A mistake in a field ends what it tells.
pub fn client(headers: &HeaderMap, peer: IpAddr, trusts: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut client = peer.to_canonical();
    if !trusts(client) {
        return client;
    }
    let name = if headers.contains_key(FOR) { FOR } else { FORWARDED };
    let lines: Vec<_> =
        headers.get_all(&name).iter().map(|value| value.to_str().unwrap_or_default()).collect();
    let said = lines.iter().rev().flat_map(|line| line.rsplit(','));
    for one in said {
        let one = if name == FOR { Some(one) } else { node(one) };
        let Some(address) = one.and_then(address) else { break };
        client = address;
        if !trusts(client) {
            break;
        }
    }
    client
}

/// The node that an element of `Forwarded` is for.
fn node(element: &str) -> Option<&str> {
    let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("for")).map(|(_, value)| value)
}

/// An address, perhaps in quotation marks, in brackets, or with a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    let bare = text.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|at| at.ip()));
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    bare.ok().or_else(bracketed).map(|address: IpAddr| address.to_canonical())
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

    #[test]
    fn a_client_is_who_no_trusted_one_speaks_for() {
        let trusts = |address: IpAddr| ["10.0.0.1", "10.0.0.2"].contains(&address.to_string().as_str());
        let of = |peer: &str, pairs: &[(&'static str, &str)]| {
            client(&map(pairs), peer.parse().unwrap(), trusts).to_string()
        };
        let named = |list| of("10.0.0.1", &[("x-forwarded-for", list)]);
        assert_eq!(of("192.0.2.1", &[("x-forwarded-for", "203.0.113.5")]), "192.0.2.1", "nobody trusts it");
        assert_eq!(of("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(named("203.0.113.5"), "203.0.113.5");
        assert_eq!(
            named("198.51.100.9, 203.0.113.5"),
            "203.0.113.5",
            "what the client says itself does not count"
        );
        assert_eq!(named("203.0.113.5, 10.0.0.2"), "203.0.113.5");
        assert_eq!(named("203.0.113.5:4711, 10.0.0.2"), "203.0.113.5");
        assert_eq!(named("[2001:db8::1]:4711"), "2001:db8::1");
        assert_eq!(named("unknown, 10.0.0.2"), "10.0.0.2");
        let lines = [("x-forwarded-for", "203.0.113.5"), ("x-forwarded-for", "10.0.0.2")];
        assert_eq!(of("10.0.0.1", &lines), "203.0.113.5");
        let forwarded = "for=198.51.100.9, for=\"[2001:db8::7]:80\";proto=https, FOR=10.0.0.2";
        assert_eq!(of("10.0.0.1", &[("forwarded", forwarded)]), "2001:db8::7");
        assert_eq!(of("::ffff:10.0.0.1", &[("x-forwarded-for", "203.0.113.5")]), "203.0.113.5");
    }
}
