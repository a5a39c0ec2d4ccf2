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
pub struct ForwardedClient<'a> {
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
pub fn set_forwarded(headers: &mut HeaderMap, how: Forwarded, trusted: bool, about: &ForwardedClient<'_>) {
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
mod tests;
