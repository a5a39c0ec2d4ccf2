//! Which IP addresses can be those of a host.

use core::net::{IpAddr, Ipv6Addr};

/// Whether an IPv6 address stands for an IPv4 address (RFC 4291 §2.5.5.2).
pub(crate) fn is_mapped(ip: Ipv6Addr) -> bool {
    ip.to_ipv4_mapped().is_some()
}

/// Whether `ip` can be the address of one host. Nobody sends from other addresses (RFC 1122 §3.2.1.3), and nobody
/// connects to them (RFC 9293 §3.9.1.1).
pub(crate) fn possible_source(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !(ip.is_broadcast() || ip.is_multicast() || ip.is_unspecified()),
        IpAddr::V6(ip) => !(ip.is_multicast() || ip.is_unspecified()),
    }
}

/// Whether `ip` can be the source of an IP packet on a link. Loopback addresses, those of no network (0.0.0.0/8) and reserved
/// ones (240.0.0.0/4) cannot, beside those that are of no host (RFC 1122 §3.2.1.3, RFC 4291 §2.5.3). A UDP socket may well
/// have a peer at a loopback address.
pub(crate) fn possible_on_link(ip: IpAddr) -> bool {
    let reserved = matches!(ip, IpAddr::V4(ip) if matches!(ip.octets(), [0 | 240..=255, ..]));
    possible_source(ip) && !reserved && !ip.is_loopback()
}
