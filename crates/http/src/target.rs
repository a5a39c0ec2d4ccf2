//! For which host a request is. Ambiguous requests are refused, because another server might read them otherwise.

use crate::framing;
use hyper::header::HOST;
use hyper::http::request::Parts;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, StatusCode, Uri, Version};
use std::net::{IpAddr, Ipv6Addr};

/// A name in DNS has no more bytes (RFC 1035 §2.3.4).
const LONGEST: usize = 255;

/// For which host a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Host and port as the client wrote them. `None` for HTTP/1.0 without a host.
    pub authority: Option<Authority>,
    /// The host in lower case, without port, and without the dot at the end of a name that says that it is whole.
    pub host: Option<String>,
}

/// For whom the client's TLS has asked.
#[derive(Clone, Copy)]
pub enum RequestedHost<'a> {
    /// There is no TLS.
    Clear,
    /// This name, in lower case.
    Name(&'a str),
    /// Nobody. The function says whether the certificate that it was shown is for this name.
    Nobody(&'a dyn Fn(&str) -> bool),
}

impl Target {
    /// Reads it.
    ///
    /// # Errors
    /// The status of the refusal.
    pub fn of(parts: &Parts, asked: RequestedHost<'_>) -> Result<Self, StatusCode> {
        if parts.method == Method::CONNECT {
            return Err(StatusCode::METHOD_NOT_ALLOWED);
        }
        let uri = &parts.uri;
        // Only CONNECT has the authority-form, and only OPTIONS the asterisk-form (RFC 9112 §3.2.3, §3.2.4).
        let bare = uri.scheme().is_none() && uri.authority().is_some() && parts.version != Version::HTTP_2;
        let asterisk = uri.path() == "*" && parts.method != Method::OPTIONS;
        let foreign = uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS);
        if bare || asterisk || foreign {
            return Err(StatusCode::BAD_REQUEST);
        }
        path(parts)?;
        let authority = authority(parts)?;
        let host = match &authority {
            Some(authority) => Some(host(authority.as_str()).ok_or(StatusCode::BAD_REQUEST)?),
            None => None,
        };
        // A client that asked for one name of the certificate and means another connects again (RFC 9110 §15.5.20).
        let is_right = match (asked, host.as_deref()) {
            (RequestedHost::Clear, _) | (_, None) => true,
            (RequestedHost::Name(sni), Some(host)) => sni.strip_suffix('.').unwrap_or(sni) == host,
            // Who connects to an address asks for nobody.
            (RequestedHost::Nobody(is_shown), Some(host)) => is_address(host) || is_shown(host),
        };
        if is_right { Ok(Self { authority, host }) } else { Err(StatusCode::MISDIRECTED_REQUEST) }
    }

    /// The target for the next server: the path and the query, or `*` for OPTIONS about a server as a whole, which has no
    /// path in the absolute form (RFC 9112 §3.2.4). It always begins with a slash, or is `*`.
    ///
    /// # Errors
    /// 400 for one that is none of these. A server could take what follows it for its own, or for another request.
    pub fn path(&self, parts: &Parts) -> Result<PathAndQuery, StatusCode> {
        path(parts)
    }
}

fn path(parts: &Parts) -> Result<PathAndQuery, StatusCode> {
    if framing::is_about_server(parts) {
        return Ok(PathAndQuery::from_static("*"));
    }
    let bad = StatusCode::BAD_REQUEST;
    // An empty path is a slash (RFC 9110 §4.2.3), but only in the absolute form.
    let is_absolute = parts.uri.scheme().is_some() && parts.version < Version::HTTP_2;
    let whole = parts.uri.path_and_query();
    // `as_str` of an empty one is a slash, but none is written.
    let filled = whole.filter(|whole| !Uri::from((*whole).clone()).path().is_empty());
    match (filled, filled.map_or("", PathAndQuery::as_str).as_bytes()) {
        (Some(whole), [b'/', ..]) => Ok(whole.clone()),
        (_, b"*") if parts.method == Method::OPTIONS => Ok(PathAndQuery::from_static("*")),
        (_, []) if is_absolute => Ok(PathAndQuery::from_static("/")),
        (Some(whole), [b'?', ..]) if is_absolute => {
            PathAndQuery::try_from(whole.to_string()).map_err(|_| bad)
        }
        _ => Err(bad),
    }
}

fn authority(parts: &Parts) -> Result<Option<Authority>, StatusCode> {
    let bad = StatusCode::BAD_REQUEST;
    let mut hosts = parts.headers.get_all(HOST).iter();
    let header = match (hosts.next(), hosts.next()) {
        (None, _) => None,
        (Some(_), Some(_)) => return Err(bad),
        (Some(host), None) => Some(Authority::try_from(host.as_bytes()).map_err(|_| bad)?),
    };
    match (parts.uri.authority(), header) {
        // HTTP/2: both must agree (RFC 9113 §8.3.1). HTTP/1.1: the absolute form counts (RFC 9112 §3.2.2).
        (Some(uri), Some(header)) if parts.version == Version::HTTP_2 && *uri != header => Err(bad),
        // What does not count must still be one.
        (Some(uri), Some(header)) if host(header.as_str()).is_some() => Ok(Some(uri.clone())),
        (Some(_), Some(_)) => Err(bad),
        (Some(uri), None) => Ok(Some(uri.clone())),
        (None, Some(header)) => Ok(Some(header)),
        (None, None) if parts.version == Version::HTTP_10 => Ok(None),
        (None, None) => Err(bad),
    }
}

/// The host of an authority, in lower case, without its port and the dot behind a whole name. `None` if it is none that
/// every server reads in the same way: an IPv6 address in brackets, or letters, digits, hyphens and underscores with dots
/// between them, and behind a colon nothing or a port.
#[must_use]
pub fn host(authority: &str) -> Option<String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, port) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (
                authority.get(..address.len() + 2)?,
                if port.is_empty() { None } else { Some(port.strip_prefix(':')?) },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if let Some(port) = port.filter(|port| !port.is_empty()) {
        let digits = port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
        port.parse::<u16>().ok().filter(|port| digits && *port != 0)?;
    }
    if host.starts_with('[') {
        return Some(host.to_ascii_lowercase());
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    (name.len() <= LONGEST && name.split('.').all(is_part)).then(|| name.to_ascii_lowercase())
}

fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests;
