//! Addresses that nobody else may have this host send to.

use crate::network::gateway;
use std::net::IpAddr;

/// Whether this is an address of this host or of its gateway, or of the same small network (/24, /48) as one of them. Also if the
/// system does not say its addresses.
pub(super) fn is_near(address: IpAddr) -> bool {
    let is_alike = |own: IpAddr| match (own, address) {
        (IpAddr::V4(own), IpAddr::V4(address)) => own.to_bits() >> 8 == address.to_bits() >> 8,
        (IpAddr::V6(own), IpAddr::V6(address)) => own.to_bits() >> 80 == address.to_bits() >> 80,
        _ => false,
    };
    let Ok(mut interfaces) = nix::ifaddrs::getifaddrs() else { return true };
    let ip = |address: nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|address| address.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
    };
    interfaces.any(|interface| interface.address.and_then(ip).is_some_and(is_alike))
        || gateway().is_some_and(|(_, gateway)| is_alike(gateway))
}
