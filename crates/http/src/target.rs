//! For which host a request is. Ambiguous requests are refused, because another server might read them otherwise.

use hyper::header::HOST;
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use hyper::{Method, StatusCode, Version};

/// For which host a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Host and port as the client wrote them. `None` for HTTP/1.0 without a host.
    pub authority: Option<Authority>,
    /// The host in lower case, without port.
    pub host: Option<String>,
}

impl Target {
    /// Reads it. `sni` is the name that TLS asked for.
    ///
    /// # Errors
    /// The status of the refusal.
    pub fn of(parts: &Parts, sni: Option<&str>) -> Result<Self, StatusCode> {
        if parts.method == Method::CONNECT {
            return Err(StatusCode::METHOD_NOT_ALLOWED);
        }
        // Only CONNECT has the authority-form, and only OPTIONS the asterisk-form (RFC 9112 §3.2.3, §3.2.4).
        let bare = parts.uri.scheme().is_none() && parts.uri.authority().is_some();
        if (bare && parts.version != Version::HTTP_2)
            || (parts.uri.path() == "*" && parts.method != Method::OPTIONS)
        {
            return Err(StatusCode::BAD_REQUEST);
        }
        let mut hosts = parts.headers.get_all(HOST).iter();
        let header = match (hosts.next(), hosts.next()) {
            (None, _) => None,
            (Some(_), Some(_)) => return Err(StatusCode::BAD_REQUEST),
            (Some(host), None) => Some(host),
        };
        let header =
            header.map(|host| Authority::try_from(host.as_bytes()).map_err(|_| StatusCode::BAD_REQUEST));
        let header = header.transpose()?;
        let authority = match (parts.uri.authority(), header) {
            // HTTP/2: both must agree (RFC 9113 §8.3.1). HTTP/1.1: the absolute form counts (RFC 9112 §3.2.2).
            (Some(uri), Some(header)) if parts.version == Version::HTTP_2 && *uri != header => {
                return Err(StatusCode::BAD_REQUEST);
            }
            (Some(uri), _) => Some(uri.clone()),
            (None, Some(header)) => Some(header),
            (None, None) if parts.version == Version::HTTP_10 => None,
            (None, None) => return Err(StatusCode::BAD_REQUEST),
        };
        if authority.as_ref().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(StatusCode::BAD_REQUEST);
        }
        let host = authority.as_ref().map(|authority| authority.host().to_ascii_lowercase());
        // A client that asked for one name of the certificate and means another connects again (RFC 9110 §15.5.20).
        match (sni, host.as_deref()) {
            (Some(sni), Some(host)) if sni != host.trim_end_matches('.') => {
                Err(StatusCode::MISDIRECTED_REQUEST)
            }
            _ => Ok(Self { authority, host }),
        }
    }
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
        Target::of(&parts, sni).map(|target| target.host).map_err(|status| status.as_u16())
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

    #[test]
    fn a_host_that_tls_did_not_ask_for_is_misdirected() {
        let (h1, h2) = (Version::HTTP_11, Version::HTTP_2);
        assert_eq!(target(h1, "/", &["a.example:443"], Some("a.example")), Ok(Some("a.example".into())));
        assert_eq!(target(h1, "/", &["b.example"], Some("a.example")), Err(421));
        assert_eq!(target(h2, "https://b.example/", &[], Some("a.example")), Err(421));
        assert_eq!(target(h2, "https://b.example/", &[], None), Ok(Some("b.example".into())));
    }
}
