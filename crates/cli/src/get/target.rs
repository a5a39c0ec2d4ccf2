//! What a URL asks for.

use hyper::Uri;
use hyper::http::uri::Scheme;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A URL that can be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// As given.
    pub url: String,
    /// Where to connect.
    pub remote: SocketAddr,
    /// For the request's `Host` field.
    pub authority: String,
    /// For the request line.
    pub path: String,
}

/// Why a URL cannot be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    /// Not of the form of a URL.
    NotAUrl,
    /// Another scheme than `http`.
    NotHttp,
    /// A name for a host.
    Name,
    /// User information in front of the host.
    UserInfo,
    /// Port 0, or a broadcast or other address that no connection leads to.
    NotReachable,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAUrl => "not a URL: write http://10.9.0.2:8000/path or http://[fd09::2]/path",
            Self::NotHttp => "only http:// URLs can be fetched",
            Self::Name => {
                "the host is a name, and looking up names is not part of this command: write its address, as in http://10.9.0.2/"
            }
            Self::UserInfo => "user names in URLs are not supported: leave out what is in front of the '@'",
            Self::NotReachable => "that address or port cannot be connected to: name one host and a port from 1 to 65535",
        })
    }
}

impl std::error::Error for TargetError {}

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// See [`TargetError`].
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let uri: Uri = url.parse().map_err(|_| TargetError::NotAUrl)?;
        if uri.scheme().ok_or(TargetError::NotAUrl)? != &Scheme::HTTP {
            return Err(TargetError::NotHttp);
        }
        let authority = uri.authority().ok_or(TargetError::NotAUrl)?;
        if authority.as_str().contains('@') {
            return Err(TargetError::UserInfo);
        }
        let host = authority.host();
        let ip: IpAddr = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(v6) => v6.parse().map(IpAddr::V6).map_err(|_| TargetError::NotAUrl)?,
            None => host.parse().map(IpAddr::V4).map_err(|_| TargetError::Name)?,
        };
        let port = match authority.as_str().get(host.len()..) {
            Some("" | ":") => 80,
            Some(port) => {
                port.strip_prefix(':').and_then(|p| p.parse().ok()).ok_or(TargetError::NotReachable)?
            }
            None => return Err(TargetError::NotAUrl),
        };
        let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
        if port == 0 || ip.is_unspecified() || ip.is_multicast() || broadcast {
            return Err(TargetError::NotReachable);
        }
        Ok(Self {
            url: url.to_owned(),
            remote: SocketAddr::new(ip, port),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_ports_and_paths() {
        let plain = Target::parse("http://10.9.0.2").unwrap();
        assert_eq!(plain.remote, "10.9.0.2:80".parse().unwrap());
        assert_eq!((plain.authority.as_str(), plain.path.as_str()), ("10.9.0.2", "/"));
        let full = Target::parse("http://[fd09::2]:8080/a%20b?c=d").unwrap();
        assert_eq!(full.remote, "[fd09::2]:8080".parse().unwrap());
        assert_eq!((full.authority.as_str(), full.path.as_str()), ("[fd09::2]:8080", "/a%20b?c=d"));
        assert_eq!(Target::parse("http://10.9.0.2:/").unwrap().remote.port(), 80);
    }

    #[test]
    fn what_cannot_be_fetched() {
        for (url, error) in [
            ("nonsense", TargetError::NotAUrl),
            ("http://", TargetError::NotAUrl),
            ("http://10.9.0.2/a b", TargetError::NotAUrl),
            ("http://[fd09::2/", TargetError::NotAUrl),
            ("/path", TargetError::NotAUrl),
            ("https://10.9.0.2/", TargetError::NotHttp),
            ("http://example.org/", TargetError::Name),
            ("http://10.9.0/", TargetError::Name),
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
