//! Fields about the client, for the next hop: `X-Forwarded-*` and `Forwarded` (RFC 7239).

use crate::fields;
use hyper::HeaderMap;
use hyper::header::{FORWARDED, HeaderName, HeaderValue};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// What the names of the whole family begin with: `-For`, `-Proto`, `-Host`, `-Port`, `-Server`, `-Prefix`, `-Ssl`, and what
/// others add to them.
const FAMILY: &str = "x-forwarded-";
/// Fields in which balancers say the same, and which backends believe: the client's address, its scheme, its certificate (RFC
/// 9440), and the path and the host that it asked for, by which routes were chosen.
const OTHERS: [&str; 27] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "client-cert",
    "client-cert-chain",
    "client-ip",
    "fastly-client-ip",
    "forwarded-for",
    "forwarded-for-ip",
    "front-end-https",
    "true-client-ip",
    "x-appengine-user-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forwarded",
    "x-host",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-uri",
    "x-original-url",
    "x-originating-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
];

/// Whether a field with this name speaks for the client, or for what it asked for. Only a proxy that is trusted may.
#[must_use]
pub fn is_about_client(name: &HeaderName) -> bool {
    let text = name.as_str();
    *name == FORWARDED || text.starts_with(FAMILY) || OTHERS.binary_search(&text).is_ok()
}

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

impl Forwarded {
    /// Whether a field of a trusted proxy stays. A proxy that adds to one of the two lists passes on what a client says in the
    /// other one.
    fn keeps(self, name: &HeaderName) -> bool {
        match self {
            Self::Both => true,
            Self::Forwarded => !name.as_str().starts_with(FAMILY),
            Self::XForwarded => *name != FORWARDED,
            Self::None => *name != FORWARDED && !name.as_str().starts_with(FAMILY),
        }
    }
}

/// Who the client is: the last address in the fields of a request that no trusted one has added, or the sender's own. It is
/// read of the fields that `how` names, else of `X-Forwarded-For` or, without it, `Forwarded`. `trusts` says who may speak for
/// others. A mistake in a field ends what it tells.
pub fn client(headers: &HeaderMap, how: Forwarded, peer: IpAddr, trusts: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut client = peer.to_canonical();
    if !trusts(client) {
        return client;
    }
    let name = match how {
        Forwarded::XForwarded => FOR,
        Forwarded::Forwarded => FORWARDED,
        Forwarded::Both | Forwarded::None if headers.contains_key(FOR) => FOR,
        Forwarded::Both | Forwarded::None => FORWARDED,
    };
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

/// Sets the headers about the client. What the client says about itself stays only if it is `trusted`, and in the fields that
/// `how` names.
pub fn set_forwarded(headers: &mut HeaderMap, how: Forwarded, trusted: bool, about: &About<'_>) {
    fields::remove(headers, |name| is_about_client(name) && !(trusted && how.keeps(name)));
    let host = about.host;
    let client = about.client.to_canonical();
    let proto = if about.tls { "https" } else { "http" };
    if matches!(how, Forwarded::XForwarded | Forwarded::Both) {
        append(headers, FOR, &client.to_string());
        headers.entry(PROTO).or_insert(HeaderValue::from_static(proto));
        if let Some(Ok(host)) = host.map(HeaderValue::from_str) {
            headers.entry(HOST).or_insert(host);
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
    let said = headers.get_all(&name).iter().filter_map(|value| value.to_str().ok());
    let all: Vec<_> = said.chain([value]).collect();
    let value = match all[..] {
        [alone] => HeaderValue::from_str(alone),
        _ => HeaderValue::from_str(&all.join(", ")),
    };
    if let Ok(value) = value {
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
        assert!(!headers.contains_key("x-real-ip"));
        let mut headers = map(&sent);
        set_forwarded(&mut headers, Forwarded::XForwarded, true, &about("192.0.2.1", None));
        assert_eq!(headers.get(FOR).unwrap(), "203.0.113.5, 192.0.2.1");
        assert_eq!(headers.get(PROTO).unwrap(), "https");
        assert!(!headers.contains_key(FORWARDED) && headers.contains_key("x-real-ip"));
    }

    #[test]
    fn nobody_else_speaks_for_a_client_under_any_name() {
        assert!(OTHERS.is_sorted());
        let names = [
            "forwarded",
            "x-forwarded-ssl",
            "x-forwarded-server",
            "x-forwarded-prefix",
            "x-forwarded-port",
            "x-forwarded-client-cert",
            "x-forwarded-what-comes-next",
            "x-forwarded",
            "front-end-https",
            "x-client-ip",
            "true-client-ip",
            "client-ip",
            "x-original-url",
            "x-rewrite-url",
            "x-real-ip",
            "client-cert",
        ];
        let sent: Vec<_> =
            names.iter().map(|name| (*name, "1")).chain([("x-mine", "1"), ("x-forward", "1")]).collect();
        let left = |how, trusted| {
            let mut headers = map(&sent);
            set_forwarded(&mut headers, how, trusted, &about("192.0.2.1", None));
            let names = headers.keys().filter(|name| headers.get(*name).unwrap() == "1");
            let mut names: Vec<_> = names.map(|name| name.as_str().to_owned()).collect();
            names.sort();
            names
        };
        for how in [Forwarded::XForwarded, Forwarded::Forwarded, Forwarded::Both, Forwarded::None] {
            assert_eq!(left(how, false), ["x-forward", "x-mine"], "{how:?}");
            assert!(left(how, true).contains(&"true-client-ip".to_owned()), "{how:?}");
        }
    }

    #[test]
    fn a_trusted_proxy_speaks_in_the_fields_that_are_configured() {
        let sent =
            [("x-forwarded-for", "203.0.113.5"), ("x-forwarded-ssl", "on"), ("forwarded", "for=203.0.113.6")];
        let read = |how| {
            let mut headers = map(&sent);
            set_forwarded(&mut headers, how, true, &about("10.0.0.1", None));
            let read = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            (read("x-forwarded-for"), read("x-forwarded-ssl"), read("forwarded"))
        };
        let (list, on) = (Some("203.0.113.5, 10.0.0.1".to_owned()), Some("on".to_owned()));
        let forwarded = Some("for=203.0.113.6, for=10.0.0.1;proto=http".to_owned());
        assert_eq!(read(Forwarded::XForwarded), (list.clone(), on.clone(), None));
        assert_eq!(read(Forwarded::Forwarded), (None, None, forwarded.clone()));
        assert_eq!(read(Forwarded::Both), (list, on, forwarded));
        assert_eq!(read(Forwarded::None), (None, None, None));
        let client = |how| {
            let trusts = |address: IpAddr| address.to_string() == "10.0.0.1";
            client(&map(&sent), how, "10.0.0.1".parse().unwrap(), trusts).to_string()
        };
        let all = [Forwarded::XForwarded, Forwarded::Forwarded, Forwarded::Both, Forwarded::None];
        assert_eq!(all.map(client), ["203.0.113.5", "203.0.113.6", "203.0.113.5", "203.0.113.5"]);
    }

    #[test]
    fn a_client_is_who_no_trusted_one_speaks_for() {
        let trusts = |address: IpAddr| ["10.0.0.1", "10.0.0.2"].contains(&address.to_string().as_str());
        let of = |peer: &str, pairs: &[(&'static str, &str)]| {
            client(&map(pairs), Forwarded::Both, peer.parse().unwrap(), trusts).to_string()
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
