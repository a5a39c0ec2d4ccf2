//! Addresses that identify one host in the whole Internet. A certificate for any other address would be valid
//! in every network that uses this address.

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const fn v4(a: u8, b: u8, c: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), prefix)
}

const fn v6(a: u16, b: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix)
}

/// IPv4 prefixes that the IANA IPv4 Special-Purpose Address Registry (RFC 6890) lists as not globally
/// reachable, multicast, and reserved or deprecated ones.
const NOT_GLOBAL_V4: [Ipv4Net; 16] = [
    v4(0, 0, 0, 8),
    v4(10, 0, 0, 8),
    v4(100, 64, 0, 10),
    v4(127, 0, 0, 8),
    v4(169, 254, 0, 16),
    v4(172, 16, 0, 12),
    v4(192, 0, 0, 24),
    v4(192, 0, 2, 24),
    v4(192, 88, 99, 24),
    v4(192, 168, 0, 16),
    v4(198, 18, 0, 15),
    v4(198, 51, 100, 24),
    v4(203, 0, 113, 24),
    v4(224, 0, 0, 4),
    v4(240, 0, 0, 4),
    Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32),
];

/// IPv6 global unicast (RFC 4291 §2.4 as assigned by IANA).
const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 3);

/// The registry's IPv6 prefixes within [`GLOBAL_V6`]: protocol assignments (with Teredo and benchmarking),
/// two for documentation, and 6to4, whose addresses are only as trustworthy as the IPv4 addresses in them.
const NOT_GLOBAL_V6: [Ipv6Net; 4] =
    [v6(0x2001, 0, 23), v6(0x2001, 0xdb8, 32), v6(0x2002, 0, 16), v6(0x3fff, 0, 20)];

/// Whether `address` identifies the same host everywhere.
#[must_use]
pub fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NOT_GLOBAL_V4.iter().any(|net| net.contains(&address)),
        IpAddr::V6(address) => {
            GLOBAL_V6.contains(&address) && !NOT_GLOBAL_V6.iter().any(|net| net.contains(&address))
        }
    }
}

/// Whether a verifier with the extra prefixes `allowed` may certify `address`.
pub(crate) fn may_certify(address: IpAddr, allowed: &[IpNet]) -> bool {
    is_global(address) || allowed.iter().any(|net| net.contains(&address))
}

#[cfg(test)]
mod tests;
