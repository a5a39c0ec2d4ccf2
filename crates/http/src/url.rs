//! URLs of servers that are reached by HTTP.

use firstflight::{Authority, Host};
use hyper::Uri;
use hyper::http::uri::Scheme;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// An `http` or `https` URL, split into what a client needs to connect and to ask (RFC 9110 §4.2).
///
/// ```
/// use firstflight_http::url::HttpUrl;
///
/// let url: HttpUrl = "https://www.example.com/a?b".parse()?;
/// assert_eq!(url.server().to_string(), "www.example.com:443");
/// assert_eq!((url.is_tls(), url.host_field(), url.path()), (true, "www.example.com", "/a?b"));
/// # Ok::<_, firstflight_http::url::UrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    text: String,
    server: Authority,
    tls: bool,
    host_field: String,
    path: String,
}

/// Why a text is no URL that a client can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It is not a URL.
    #[error("not a URL: write http://10.9.0.2:8000/path or http://[fd09::2]/path")]
    NotAUrl,
    /// Its scheme is neither `http` nor `https`.
    #[error("only http:// and https:// URLs can be fetched")]
    NotHttp,
    /// Its host is neither an address nor a name.
    #[error("the host is neither a name nor a whole address: write it as in http://10.9.0.2/")]
    BadHost,
    /// The zone of its address is not an interface, or the address has none.
    #[error(
        "that zone cannot be used: write a link-local address and an interface of this host, as in \
             http://[fe80::1%25eth0]/"
    )]
    BadZone,
    /// It has user information before the host.
    #[error("user names in URLs are not supported: leave out what is in front of the '@'")]
    UserInfo,
    /// It has port 0, or a broadcast or other address that cannot be connected to.
    #[error("that address or port cannot be connected to: name one host and a port from 1 to 65535")]
    NotReachable,
}

impl HttpUrl {
    /// The server: host and port.
    #[must_use]
    pub const fn server(&self) -> &Authority {
        &self.server
    }

    /// Whether its server is asked by TLS.
    #[must_use]
    pub const fn is_tls(&self) -> bool {
        self.tls
    }

    /// The value of the request's field `Host`. It has no zone, which means something on this host only (RFC 6874 §3).
    #[must_use]
    pub fn host_field(&self) -> &str {
        &self.host_field
    }

    /// Path and query, as in the request's first line.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Where a reference in a response of this URL leads, as that of `Location` (RFC 3986 §5.2), without its fragment.
    ///
    /// # Errors
    /// When it is no reference, or leads to no URL of HTTP.
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        let base = url::Url::parse(&self.text).map_err(|_| UrlError::NotAUrl)?;
        let mut to = base.join(reference).map_err(|_| UrlError::NotAUrl)?;
        to.set_fragment(None);
        to.as_str().parse()
    }

    /// The URL as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for HttpUrl {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        let (without, zone) = split_zone(url);
        let uri: Uri = without.parse().map_err(|_| UrlError::NotAUrl)?;
        let scheme = uri.scheme().ok_or(UrlError::NotAUrl)?;
        let tls = scheme == &Scheme::HTTPS;
        if !tls && scheme != &Scheme::HTTP {
            return Err(UrlError::NotHttp);
        }
        let authority = uri.authority().ok_or(UrlError::NotAUrl)?;
        if authority.as_str().contains('@') {
            return Err(UrlError::UserInfo);
        }
        let host = authority.host();
        let port = match authority.as_str().get(host.len()..) {
            Some("" | ":") if tls => 443,
            Some("" | ":") => 80,
            Some(port) => {
                port.strip_prefix(':').and_then(|p| p.parse().ok()).ok_or(UrlError::NotReachable)?
            }
            None => return Err(UrlError::NotAUrl),
        };
        if port == 0 {
            return Err(UrlError::NotReachable);
        }
        let server = match zone {
            "" => Authority::new(host, port).map_err(|_| UrlError::BadHost)?,
            zone => {
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                Authority::new(&format!("{bare}%{zone}"), port).map_err(|_| UrlError::BadZone)?
            }
        };
        if matches!(server.host(), Host::Ip(ip) if !is_one_host(*ip)) {
            return Err(UrlError::NotReachable);
        }
        Ok(Self {
            text: url.to_owned(),
            server,
            tls,
            host_field: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }
}

/// The URL without the zone of its IPv6 address, and the zone (RFC 6874): `%25eth0`, and `%eth0` as people write it.
fn split_zone(url: &str) -> (Cow<'_, str>, &str) {
    let split = || {
        let (scheme, rest) = url.split_once("://[")?;
        let (host, rest) = rest.split_once(']')?;
        let (ip, zone) = host.split_once('%')?;
        // `%25` alone is the interface 25.
        let zone = zone.strip_prefix("25").filter(|zone| !zone.is_empty()).unwrap_or(zone);
        let is_plain = !scheme.contains(['/', '?', '#']) && !zone.is_empty();
        is_plain.then(|| (Cow::from(format!("{scheme}://[{ip}]{rest}")), zone))
    };
    split().unwrap_or((url.into(), ""))
}

/// Whether a connection to this address could be made: it is not that of a group, of everybody or of nobody.
#[must_use]
pub const fn is_one_host(ip: IpAddr) -> bool {
    let broadcast = match ip {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(_) => false,
    };
    !(ip.is_unspecified() || ip.is_multicast() || broadcast)
}

#[cfg(test)]
mod tests;
