//! The target of a URL.

use firstflight::Authority;
use hyper::Uri;
use hyper::http::uri::Scheme;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

/// The host of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name.
    Name(String),
}

/// A URL that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The URL as given.
    pub url: String,
    /// An address or a name.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// Both.
    pub server: Authority,
    /// Whether it is fetched by TLS.
    pub tls: bool,
    /// The value of the request's `Host` field.
    pub authority: String,
    /// The path in the request line.
    pub path: String,
    /// A redirect led here from another host, or out of TLS.
    pub foreign: bool,
}

/// Why a URL cannot be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
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

impl Target {
    /// Parses a URL.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let (without, zone) = split_zone(url);
        let uri: Uri = without.parse().map_err(|_| TargetError::NotAUrl)?;
        let scheme = uri.scheme().ok_or(TargetError::NotAUrl)?;
        let tls = scheme == &Scheme::HTTPS;
        if !tls && scheme != &Scheme::HTTP {
            return Err(TargetError::NotHttp);
        }
        let authority = uri.authority().ok_or(TargetError::NotAUrl)?;
        if authority.as_str().contains('@') {
            return Err(TargetError::UserInfo);
        }
        let host = authority.host();
        let parsed = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(v6) => Host::Ip(v6.parse().map(IpAddr::V6).map_err(|_| TargetError::NotAUrl)?),
            None => match host.parse() {
                Ok(v4) => Host::Ip(IpAddr::V4(v4)),
                // 10.9.0 is not a name: resolvers would interpret it as 10.9.0.0.
                Err(_) if ends_in_a_number(host) => return Err(TargetError::BadHost),
                Err(_) => Host::Name(host.to_owned()),
            },
        };
        let port = match authority.as_str().get(host.len()..) {
            Some("" | ":") if tls => 443,
            Some("" | ":") => 80,
            Some(port) => {
                port.strip_prefix(':').and_then(|p| p.parse().ok()).ok_or(TargetError::NotReachable)?
            }
            None => return Err(TargetError::NotAUrl),
        };
        if port == 0 || matches!(parsed, Host::Ip(ip) if !is_one_host(ip)) {
            return Err(TargetError::NotReachable);
        }
        let server = match &parsed {
            Host::Ip(ip) if zone.is_empty() => SocketAddr::new(*ip, port).into(),
            Host::Ip(ip) => {
                Authority::new(&format!("{ip}%{zone}"), port).map_err(|_| TargetError::BadZone)?
            }
            Host::Name(name) => Authority::new(name, port).map_err(|_| TargetError::BadHost)?,
        };
        Ok(Self {
            url: url.to_owned(),
            host: parsed,
            port,
            server,
            tls,
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            foreign: false,
        })
    }
}

/// The URL without the zone of its IPv6 address, and the zone (RFC 6874): `%25eth0`, and `%eth0` as people write it. Servers
/// are not told a zone: it means something on this host only.
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

/// Whether the last part of a name is a number, as only an address's is (RFC 1123 §2.1).
fn ends_in_a_number(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the address can be connected to.
pub fn is_one_host(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_unspecified() || ip.is_multicast() || broadcast)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Host {
        Host::Ip(text.parse().unwrap())
    }

    #[test]
    fn addresses_ports_and_paths() {
        let plain = Target::parse("http://10.9.0.2").unwrap();
        assert_eq!((&plain.host, plain.port), (&ip("10.9.0.2"), 80));
        assert_eq!((plain.authority.as_str(), plain.path.as_str()), ("10.9.0.2", "/"));
        let full = Target::parse("http://[fd09::2]:8080/a%20b?c=d").unwrap();
        assert_eq!((&full.host, full.port), (&ip("fd09::2"), 8080));
        assert_eq!((full.authority.as_str(), full.path.as_str()), ("[fd09::2]:8080", "/a%20b?c=d"));
        assert_eq!(Target::parse("http://10.9.0.2:/").unwrap().port, 80);
        let named = Target::parse("http://example.org:81/x").unwrap();
        assert_eq!((named.host, named.port), (Host::Name("example.org".to_owned()), 81));
        assert_eq!(named.authority, "example.org:81");
    }

    #[test]
    fn a_zone_is_kept_and_not_sent() {
        for (url, scope) in [
            ("http://[fe80::1%25lo]:81/a%25b", 1),
            ("http://[fe80::1%lo]:81/a%25b", 1),
            ("http://[fe80::1%257]:81/a%25b", 7),
            ("http://[fe80::1%7]:81/a%25b", 7),
            ("http://[fe80::1%25]:81/a%25b", 25),
        ] {
            let target = Target::parse(url).unwrap();
            let address =
                SocketAddr::from(std::net::SocketAddrV6::new("fe80::1".parse().unwrap(), 81, 0, scope));
            assert_eq!(target.server.address(), Some(address), "{url}");
            assert_eq!((target.authority.as_str(), target.path.as_str()), ("[fe80::1]:81", "/a%25b"));
        }
        for (url, error) in [
            ("http://[fe80::1%25no-such-device]/", TargetError::BadZone),
            ("http://[fd09::1%25lo]/", TargetError::BadZone),
            ("http://[fe80::1%]/", TargetError::NotAUrl),
        ] {
            assert_eq!(Target::parse(url), Err(error), "{url}");
        }
    }

    #[test]
    fn what_cannot_be_fetched() {
        for (url, error) in [
            ("nonsense", TargetError::NotAUrl),
            ("http://", TargetError::NotAUrl),
            ("http://10.9.0.2/a b", TargetError::NotAUrl),
            ("http://[fd09::2/", TargetError::NotAUrl),
            ("/path", TargetError::NotAUrl),
            ("ftp://10.9.0.2/", TargetError::NotHttp),
            ("http://10.9.0/", TargetError::BadHost),
            ("http://10.9.0.256/", TargetError::BadHost),
            ("http://1/", TargetError::BadHost),
            ("http://me@10.9.0.2/", TargetError::UserInfo),
            ("http://10.9.0.2:0/", TargetError::NotReachable),
            ("http://10.9.0.2:65536/", TargetError::NotReachable),
            ("http://0.0.0.0/", TargetError::NotReachable),
            ("http://[ff02::1]/", TargetError::NotReachable),
            ("http://255.255.255.255/", TargetError::NotReachable),
        ] {
            assert_eq!(Target::parse(url), Err(error), "{url}");
        }
    }
}
