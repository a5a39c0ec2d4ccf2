//! A server's host and port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

/// A server's host and port, as in `www.example.com:443` and `[2001:db8::1]:53`. Names are kept in lower case and
/// without a final dot. A link-local IPv6 address needs its zone, an interface by name or number: `[fe80::1%eth0]:53`
/// (RFC 4007 §11). The zone is kept as the interface's number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    host: Host,
    port: u16,
    /// The interface of a link-local IPv6 address; 0 for others.
    scope: u32,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name.
    Name(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Ip(_) => self.address().map_or(Ok(()), |address| address.fmt(f)),
        }
    }
}

/// Text that is not a host and a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {}", match zone {
    false => "is not a host and a port: write www.example.com:443, 192.0.2.1:443 or [2001:db8::1]:443",
    true => "has a zone that cannot be used: write a link-local address and an interface of this host, as in \
             fe80::1%eth0",
})]
pub struct BadAuthority {
    text: String,
    /// The zone is wrong.
    zone: bool,
}

impl Authority {
    /// The host, an address (IPv6 with or without brackets and zone) or a name, and the port.
    ///
    /// # Errors
    /// When the host is neither, the port is 0, or the zone is no interface of this host.
    pub fn new(host: &str, port: u16) -> Result<Self, BadAuthority> {
        let wrong = || BadAuthority { text: format!("{host}:{port}"), zone: false };
        if port == 0 {
            return Err(wrong());
        }
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = bare.parse() {
            return Ok(Self { host: Host::Ip(ip), port, scope: 0 });
        }
        if let Some(zoned) = zoned(host, port) {
            let (ip, scope) = zoned.map(|at| (*at.ip(), at.scope_id()))?;
            return Ok(Self { host: Host::Ip(ip.into()), port, scope });
        }
        let name = host.strip_suffix('.').unwrap_or(host);
        // Resolvers would take 10.1 for 10.0.0.1, and 0x7f.1 for 127.0.0.1.
        let last = name.rsplit('.').next().unwrap_or_default();
        let hexadecimal = last.strip_prefix("0x").or(last.strip_prefix("0X"));
        let number = last.bytes().all(|b| b.is_ascii_digit())
            || hexadecimal.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.') || !b.is_ascii();
        if number || !name.bytes().all(legal) || name.len() > 253 {
            return Err(wrong());
        }
        Ok(Self { host: Host::Name(name.to_ascii_lowercase()), port, scope: 0 })
    }

    /// The host.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The address, if the host is one, with its zone as scope id.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(IpAddr::V6(ip)) => Some(SocketAddrV6::new(ip, self.port, 0, self.scope).into()),
            Host::Ip(ip) => Some(SocketAddr::new(ip, self.port)),
            Host::Name(_) => None,
        }
    }

    /// The port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl From<SocketAddr> for Authority {
    fn from(address: SocketAddr) -> Self {
        let scope = match address {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        Self { host: Host::Ip(address.ip()), port: address.port(), scope }
    }
}

impl FromStr for Authority {
    type Err = BadAuthority;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || BadAuthority { text: text.to_owned(), zone: false };
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        // An IPv6 address needs brackets, or its last part would be the port.
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return Err(wrong());
        }
        let digits = port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|_| digits).ok_or_else(wrong)?;
        Self::new(host, port).map_err(|error| BadAuthority { zone: error.zone, ..wrong() })
    }
}

/// A server's host and port, in any of these forms: text as `www.example.com:443`, a host and a port, or an address.
///
/// ```
/// use firstflight::ToAuthority;
/// let named = "www.example.com:443".to_authority()?;
/// assert_eq!(("www.example.com", 443).to_authority()?, named);
/// assert_eq!(std::net::SocketAddr::from(([192, 0, 2, 1], 80)).to_authority()?, "192.0.2.1:80".to_authority()?);
/// # Ok::<(), firstflight::BadAuthority>(())
/// ```
pub trait ToAuthority {
    /// The host and port.
    ///
    /// # Errors
    /// When it is none, the port is 0, or the zone is no interface of this host.
    fn to_authority(&self) -> Result<Authority, BadAuthority>;
}

impl<T: ToAuthority + ?Sized> ToAuthority for &T {
    fn to_authority(&self) -> Result<Authority, BadAuthority> {
        (**self).to_authority()
    }
}

impl ToAuthority for Authority {
    fn to_authority(&self) -> Result<Authority, BadAuthority> {
        Ok(self.clone())
    }
}

impl ToAuthority for str {
    fn to_authority(&self) -> Result<Authority, BadAuthority> {
        self.parse()
    }
}

impl ToAuthority for String {
    fn to_authority(&self) -> Result<Authority, BadAuthority> {
        self.parse()
    }
}

impl ToAuthority for (&str, u16) {
    fn to_authority(&self) -> Result<Authority, BadAuthority> {
        Authority::new(self.0, self.1)
    }
}

impl ToAuthority for (String, u16) {
    fn to_authority(&self) -> Result<Authority, BadAuthority> {
        Authority::new(&self.0, self.1)
    }
}

impl ToAuthority for SocketAddr {
    fn to_authority(&self) -> Result<Authority, BadAuthority> {
        match self.port() {
            0 => Err(BadAuthority { text: self.to_string(), zone: false }),
            _ => Ok(Authority::from(*self)),
        }
    }
}

macro_rules! addresses {
    ($($address:ty),*) => {$(
        impl ToAuthority for $address {
            fn to_authority(&self) -> Result<Authority, BadAuthority> {
                SocketAddr::from(*self).to_authority()
            }
        }
    )*};
}

addresses!(SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

/// An IPv6 address with a zone, with or without brackets. `None` if `host` is something else.
pub(crate) fn zoned(host: &str, port: u16) -> Option<Result<SocketAddrV6, BadAuthority>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let (ip, zone) = bare.split_once('%')?;
    let ip = ip.parse::<Ipv6Addr>().ok()?;
    let scope = interface(zone).filter(|_| ip.is_unicast_link_local());
    let wrong = || BadAuthority { text: format!("{host}:{port}"), zone: true };
    Some(scope.map(|scope| SocketAddrV6::new(ip, port, 0, scope)).ok_or_else(wrong))
}

/// The number of an interface of this host, given by name or number.
fn interface(zone: &str) -> Option<u32> {
    let digits = !zone.is_empty() && zone.bytes().all(|b| b.is_ascii_digit());
    match digits {
        true => zone.parse().ok().filter(|number| *number > 0),
        false => firstflight_kernel::interface(zone),
    }
}

#[cfg(test)]
mod tests;
