//! Options that are an address with the length of its network's prefix.

use ipnet::IpNet;
use std::net::IpAddr;

/// Parses an address in a network, as `10.9.0.1/24`. The errors say which part is wrong.
pub fn subnet(text: &str) -> Result<IpNet, String> {
    let (address, prefix) = text.split_once('/').ok_or("add the length of the prefix, as in 10.9.0.1/24")?;
    let address: IpAddr =
        address.parse().map_err(|_| "no IP address in front of the '/'; an example is 10.9.0.1/24")?;
    let subnet = prefix.parse().ok().and_then(|prefix| IpNet::new(address, prefix).ok());
    let most = IpNet::from(address).max_prefix_len();
    subnet.ok_or_else(|| format!("behind the '/' belongs a number from 0 to {most}"))
}

/// Whether `address` is the network address or the broadcast address (RFC 919; not with /31, RFC 3021).
pub fn is_reserved(subnet: &IpNet, address: IpAddr) -> bool {
    match subnet {
        IpNet::V4(net) => net.prefix_len() < 31 && (address == net.network() || address == net.broadcast()),
        IpNet::V6(net) => net.prefix_len() < 127 && address == net.network(),
    }
}

#[cfg(test)]
mod tests;
