//! Requests for a program's own pages: those that a web page of another site makes a browser send are refused.
//!
//! A web page can make its visitor's browser send requests to any address that the browser reaches. If the name of the
//! page's site resolves to this machine (DNS rebinding), the browser lets the page read the answers. So the host of a
//! request must not be a name that others can have, and the request must come from no other site.

use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotOwn {
    /// Its host is none of this program: 421.
    Host,
    /// It comes from another site: 403.
    Site,
}

/// Checks the fields of a request. `is_own` says whether a host, with its port if there is one, is one of this program.
///
/// # Errors
/// See [`NotOwn`].
pub fn check(headers: &HeaderMap, is_own: impl Fn(&str) -> bool) -> Result<(), NotOwn> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = match (hosts.next().map(HeaderValue::to_str), hosts.next()) {
        (Some(Ok(host)), None) if is_own(host) => Some(host),
        // Only HTTP/1.0 goes without one, and no browser speaks it.
        (None, None) => None,
        _ => return Err(NotOwn::Host),
    };
    let is_own_origin = |origin: &HeaderValue| {
        let origin = origin.as_bytes().strip_prefix(b"http://");
        origin.is_some_and(|origin| host.is_some_and(|host| origin == host.as_bytes()))
    };
    let is_own_site = |site: &HeaderValue| matches!(site.as_bytes(), b"none" | b"same-origin");
    let own = headers.get_all(ORIGIN).iter().all(is_own_origin)
        && headers.get_all("sec-fetch-site").iter().all(is_own_site);
    if own { Ok(()) } else { Err(NotOwn::Site) }
}

/// Whether nobody else can have this host, so that no site of another can be behind it: an IP address, a name of one label, or
/// a name below a domain that the public DNS does not have (RFC 6761, RFC 6762, RFC 8375, and ICANN's `internal`). A port may
/// follow.
#[must_use]
pub fn is_private(host: &str) -> bool {
    /// A page of another site cannot have a name below these.
    const RESERVED: [&str; 4] = [".localhost", ".local", ".internal", ".home.arpa"];
    let Some(name) = name(host) else { return true };
    !name.is_empty() && (!name.contains('.') || RESERVED.iter().any(|domain| name.ends_with(domain)))
}

/// Whether a host, perhaps with a port behind it, is this name.
#[must_use]
pub fn is_name(host: &str, name: &str) -> bool {
    self::name(host).is_some_and(|host| host == name.trim_end_matches('.').to_ascii_lowercase())
}

/// The name in a host, in small letters, without the root's dot and the port. `None` if it is an IP address.
fn name(host: &str) -> Option<String> {
    if let Some(rest) = host.strip_prefix('[') {
        let address = rest.split_once(']').and_then(|(address, _)| address.parse::<Ipv6Addr>().ok());
        return address.is_none().then(String::new);
    }
    let name =
        host.rsplit_once(':').map_or(host, |(name, _)| name).trim_end_matches('.').to_ascii_lowercase();
    // Browsers read numbers in other forms, as 0x7f.1, as addresses, too. They write the usual form into the field.
    name.parse::<Ipv4Addr>().is_err().then_some(name)
}

#[cfg(test)]
mod tests;
