//! The kernel's table of neighbours.

use std::net::IpAddr;

/// The link-layer address of a gateway on the interface with this index, in the format of `/proc/net/arp`.
pub(super) fn link_address(index: u32, gateway: IpAddr) -> Option<String> {
    let address = firstflight_link::tun::link_address(index, gateway).ok().flatten()?;
    Some(address.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":"))
}
