//! The site that a certificate is used for.

use std::fmt;
use std::net::IpAddr;

/// A site: the servers that may see the same client key.
///
/// It should be a registrable domain, because all of its servers belong to one owner. To find that domain one
/// needs the public suffix list, whose licence (MPL-2.0) this project does not accept. So by default a site
/// is a whole host name. This links no more than a domain would, and uses more certificates. A caller that
/// has the list passes the registrable domain to [`PoolSite::new`] instead of the host name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolSite(Kind);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Name(String),
    Address(IpAddr),
}

impl PoolSite {
    /// A host name in upper or lower case, with or without a final dot, or an address.
    #[must_use]
    pub fn new(host: &str) -> Self {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self(match bare.parse() {
            Ok(address) => Kind::Address(address),
            Err(_) => Kind::Name(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()),
        })
    }

    /// The servers of a host name that is hidden behind another name: for requests that are signed for `public`. Another site
    /// than either name is, so that the client key links none of them.
    #[must_use]
    pub fn behind(host: &str, public: &str) -> Self {
        // No host name contains a slash.
        Self::new(&format!("{host}/{public}"))
    }
}

impl From<IpAddr> for PoolSite {
    fn from(address: IpAddr) -> Self {
        Self(Kind::Address(address))
    }
}

impl fmt::Display for PoolSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Name(name) => f.write_str(name),
            Kind::Address(address) => fmt::Display::fmt(address, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PoolSite;

    #[test]
    fn a_site_is_a_name_without_case_or_an_address() {
        assert_eq!(PoolSite::new("WWW.Example.com."), PoolSite::new("www.example.com"));
        assert_ne!(PoolSite::new("example.com"), PoolSite::new("www.example.com"));
        let hidden = PoolSite::behind("a.example", "p.example");
        assert_eq!(PoolSite::new(&hidden.to_string()), hidden);
        assert!(["a.example", "p.example"].into_iter().all(|name| PoolSite::new(name) != hidden));
        assert_ne!(PoolSite::behind("b.example", "p.example"), hidden);
        assert_eq!(
            PoolSite::new("[2001:DB8::1]"),
            PoolSite::from("2001:db8::1".parse::<std::net::IpAddr>().unwrap())
        );
        for text in ["www.example.com", "192.0.2.1", "2001:db8::1"] {
            assert_eq!(PoolSite::new(text).to_string(), text);
            assert_eq!(PoolSite::new(&PoolSite::new(text).to_string()), PoolSite::new(text));
        }
    }
}
