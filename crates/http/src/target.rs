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
pub enum Asked<'a> {
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
    pub fn of(parts: &Parts, asked: Asked<'_>) -> Result<Self, StatusCode> {
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
            (Asked::Clear, _) | (_, None) => true,
            (Asked::Name(sni), Some(host)) => sni.strip_suffix('.').unwrap_or(sni) == host,
            // Who connects to an address asks for nobody.
            (Asked::Nobody(is_shown), Some(host)) => is_address(host) || is_shown(host),
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use hyper::Request;

    fn target(version: Version, uri: &str, hosts: &[&str], sni: Option<&str>) -> Result<Option<String>, u16> {
        let mut request = Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        Target::of(&parts, sni.map_or(Asked::Clear, Asked::Name))
            .map(|target| target.host)
            .map_err(|status| status.as_u16())
    }

    #[test]
    fn a_request_is_for_one_host() {
        let (h1, h2, old) = (Version::HTTP_11, Version::HTTP_2, Version::HTTP_10);
        let named = |host: &str| Ok(Some(host.to_owned()));
        assert_eq!(target(h1, "/", &["WWW.Example.com:80"], None), named("www.example.com"));
        assert_eq!(target(h1, "/", &[], None), Err(400));
        assert_eq!(target(h1, "/", &["a", "a"], None), Err(400));
        assert_eq!(target(h1, "/", &["a b"], None), Err(400));
        assert_eq!(target(h1, "/", &["user@a"], None), Err(400));
        assert_eq!(target(h1, "http://b/", &["a"], None), named("b"));
        assert_eq!(target(old, "/", &[], None), Ok(None));
        assert_eq!(target(h1, "a:80", &["a"], None), Err(400));
        assert_eq!(target(h1, "*", &["a"], None), Err(400));
        assert_eq!(target(h2, "https://a/", &[], None), named("a"));
        assert_eq!(target(h2, "https://a/", &["a"], None), named("a"));
        assert_eq!(target(h2, "https://a/", &["b"], None), Err(400));
    }

    /// h2 makes such URIs of a `:path` that is or has a fragment, and hyper writes nothing for the first ones.
    #[test]
    fn a_target_begins_with_a_slash_or_is_an_asterisk() {
        let written = |method: Method, version: Version, uri: hyper::http::uri::Parts| {
            let request = Request::builder().method(method).version(version).header(HOST, "a");
            let (parts, ()) = request.uri(Uri::from_parts(uri).unwrap()).body(()).unwrap().into_parts();
            let target = Target { authority: None, host: None };
            let path = target.path(&parts).map(|path| Uri::from(path).to_string());
            assert!(path.is_ok() || Target::of(&parts, Asked::Clear).is_err(), "{path:?}");
            path.map_err(|status| status.as_u16())
        };
        let uri = |path: &[u8], scheme: Option<Scheme>| {
            let mut uri = hyper::http::uri::Parts::default();
            uri.authority = scheme.as_ref().map(|_| Authority::from_static("a"));
            let path = bytes::Bytes::copy_from_slice(path);
            (uri.scheme, uri.path_and_query) = (scheme, Some(PathAndQuery::from_maybe_shared(path).unwrap()));
            uri
        };
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for path in [&b"#x"[..], b"?x", b"*"] {
                assert_eq!(written(Method::GET, version, uri(path, None)), Err(400), "{path:?}");
            }
            assert_eq!(written(Method::GET, version, uri(b"/a?b", None)), Ok("/a?b".into()));
            assert_eq!(written(Method::OPTIONS, version, uri(b"*", None)), Ok("*".into()));
            assert_eq!(written(Method::OPTIONS, version, uri(b"#", None)), Err(400));
        }
        let of_http = |path, version| written(Method::GET, version, uri(path, Some(Scheme::HTTP)));
        assert_eq!([of_http(b"#x", Version::HTTP_2), of_http(b"?x", Version::HTTP_2)], [Err(400), Err(400)]);
        assert_eq!(of_http(b"?x", Version::HTTP_11), Ok("/?x".into()));
        assert_eq!(of_http(b"#x", Version::HTTP_11), Ok("/".into()));
    }

    #[test]
    fn a_host_that_tls_did_not_ask_for_is_misdirected() {
        let (h1, h2) = (Version::HTTP_11, Version::HTTP_2);
        assert_eq!(target(h1, "/", &["a.example:443"], Some("a.example")), Ok(Some("a.example".into())));
        assert_eq!(target(h1, "/", &["b.example"], Some("a.example")), Err(421));
        assert_eq!(target(h2, "https://b.example/", &[], Some("a.example")), Err(421));
        assert_eq!(target(h2, "https://b.example/", &[], None), Ok(Some("b.example".into())));
    }

    #[test]
    fn a_host_is_read_in_one_way() {
        for good in [
            "a",
            "a.example",
            "A.example:80",
            "a_b.example",
            "xn--a.example:443",
            "192.0.2.1:80",
            "[::1]:80",
            "[2001:DB8::1]",
            "a:",
        ] {
            assert!(target(Version::HTTP_11, "/", &[good], None).is_ok(), "{good}");
        }
        for bad in [
            "a.example:abc",
            "a:99999",
            "a:0",
            "a:+1",
            "a,b",
            "*",
            "*.example",
            ":80",
            "",
            "a..b",
            ".a",
            ".",
            "a b/c",
            "a/b",
            "a%2eb",
            "user@a",
            "[::1",
            "[::g]",
            "[::1]x",
            "a:80:80",
            "a;b",
            "a'b",
            "::1",
        ] {
            assert_eq!(target(Version::HTTP_11, "/", &[bad], None), Err(400), "{bad}");
            assert_eq!(target(Version::HTTP_10, "/", &[bad], None), Err(400), "{bad}");
            assert_eq!(
                target(Version::HTTP_11, "http://a/", &[bad], None),
                Err(400),
                "a Host that does not count: {bad}"
            );
        }
        assert_eq!(target(Version::HTTP_11, "ftp://a/", &["a"], None), Err(400));
    }

    #[test]
    fn a_name_with_a_dot_at_its_end_is_the_same_name() {
        let named = Ok(Some("b.example".to_owned()));
        for host in ["b.example", "b.example.", "B.Example.:443"] {
            assert_eq!(target(Version::HTTP_11, "/", &[host], Some("b.example")), named, "{host}");
            assert_eq!(target(Version::HTTP_11, "/", &[host], None), named, "{host}");
        }
        assert_eq!(target(Version::HTTP_2, "https://b.example./", &[], Some("b.example.")), named);
    }

    #[test]
    fn a_client_that_asked_for_nobody_gets_what_its_certificate_is_for() {
        let asked = |host: &str| {
            let request = Request::builder().uri("/").header(HOST, host).body(()).unwrap();
            let is_shown = |name: &str| name == "a.example";
            Target::of(&request.into_parts().0, Asked::Nobody(&is_shown))
                .map(drop)
                .map_err(|status| status.as_u16())
        };
        assert_eq!(
            [asked("a.example"), asked("A.example.:443"), asked("192.0.2.1"), asked("[::1]:443")],
            [Ok(()); 4]
        );
        assert_eq!([asked("b.example"), asked("b.example.")], [Err(421); 2]);
    }
}
