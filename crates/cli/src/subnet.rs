//! An address with the length of its network's prefix.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address in a network, as `10.9.0.1/24`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix, at most 32 or 128.
    pub prefix: u8,
}

impl Subnet {
    /// Whether `other` is in the same network.
    pub fn contains(&self, other: IpAddr) -> bool {
        self.host_bits(other).is_some()
    }

    /// Whether `other` is the network address or the broadcast address (RFC 919; not with /31, RFC 3021).
    pub fn is_reserved(&self, other: IpAddr) -> bool {
        match self.host_bits(other) {
            Some(host) if other.is_ipv4() && self.prefix < 31 => {
                host == 0 || host == (1 << (32 - u32::from(self.prefix))) - 1
            }
            Some(host) => other.is_ipv6() && self.prefix < 127 && host == 0,
            None => false,
        }
    }

    /// The host part of `other`, if both have the same prefix.
    fn host_bits(&self, other: IpAddr) -> Option<u128> {
        let (ours, theirs, bits) = match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
            _ => return None,
        };
        let mask = 1_u128.checked_shl(bits - u32::from(self.prefix)).map_or(u128::MAX, |bit| bit - 1);
        (ours & !mask == theirs & !mask).then_some(theirs & mask)
    }
}

/// Why a text is not an address with a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubnetError {
    /// There is no `/`.
    NoPrefix,
    /// The part before the `/` is not an address.
    BadAddress,
    /// The part after the `/` is not a number up to this one.
    BadPrefix(u8),
}

impl fmt::Display for SubnetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPrefix => f.write_str("add the length of the prefix, as in 10.9.0.1/24"),
            Self::BadAddress => f.write_str("no IP address in front of the '/'; an example is 10.9.0.1/24"),
            Self::BadPrefix(most) => write!(f, "behind the '/' belongs a number from 0 to {most}"),
        }
    }
}

impl std::error::Error for SubnetError {}

impl FromStr for Subnet {
    type Err = SubnetError;

    fn from_str(text: &str) -> Result<Self, SubnetError> {
        let (address, prefix) = text.split_once('/').ok_or(SubnetError::NoPrefix)?;
        let address: IpAddr = address.parse().map_err(|_| SubnetError::BadAddress)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= most);
        Ok(Self { address, prefix: prefix.ok_or(SubnetError::BadPrefix(most))? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn texts_that_are_none() {
        assert_eq!("10.0.0.1".parse::<Subnet>(), Err(SubnetError::NoPrefix));
        assert_eq!("10.0.0/8".parse::<Subnet>(), Err(SubnetError::BadAddress));
        assert_eq!("10.0.0.1/33".parse::<Subnet>(), Err(SubnetError::BadPrefix(32)));
        assert_eq!("fd09::1/129".parse::<Subnet>(), Err(SubnetError::BadPrefix(128)));
        assert_eq!("fd09::1/".parse::<Subnet>(), Err(SubnetError::BadPrefix(128)));
    }

    #[test]
    fn contains_up_to_the_edges() {
        let net = subnet("10.9.1.1/23");
        assert!(net.contains(ip("10.9.0.0")) && net.contains(ip("10.9.1.255")));
        assert!(!net.contains(ip("10.9.2.0")) && !net.contains(ip("10.8.255.255")));
        assert!(!net.contains(ip("fd09::1")));
        assert!(subnet("0.0.0.0/0").contains(ip("255.0.0.1")));
        assert!(subnet("::/0").contains(ip("fd09::2")));
        assert!(!subnet("fd09::1/128").contains(ip("fd09::2")));
    }

    #[test]
    fn reserved_addresses() {
        let net = subnet("10.9.1.1/23");
        assert!(net.is_reserved(ip("10.9.0.0")) && net.is_reserved(ip("10.9.1.255")));
        assert!(!net.is_reserved(ip("10.9.0.255")));
        assert!(!subnet("10.9.0.0/31").is_reserved(ip("10.9.0.1")));
        assert!(subnet("fd09::1/64").is_reserved(ip("fd09::")));
        assert!(!subnet("fd09::1/64").is_reserved(ip("fd09::2")));
    }
}
