//! Endpoints on a TUN device.

use super::Endpoint;
use firstflight_link::TunConfig;
use firstflight_stack::Config;
use std::net::{IpAddr, Ipv4Addr};

impl Endpoint {
    /// Adapts `config` to a TUN device: its largest packet, and the broadcast addresses of its networks. Then give a
    /// [`Tun`](firstflight_link::Tun) of `device` to [`Endpoint::new`].
    pub fn prepare_tun(config: &mut Config, device: &TunConfig) {
        config.mtu = usize::from(device.mtu);
        config.tcp.set_mss(device.mtu.saturating_sub(40));
        config.broadcasts = device.host.iter().filter_map(|&(ip, prefix)| broadcast(ip, prefix)).collect();
    }
}

/// The address that means all hosts of an IPv4 network. Networks with two addresses or one have none (RFC 3021).
fn broadcast(ip: IpAddr, prefix: u8) -> Option<Ipv4Addr> {
    match ip {
        IpAddr::V4(ip) if prefix < 31 => Some(Ipv4Addr::from(u32::from(ip) | (u32::MAX >> prefix))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_more_than_two_addresses_has_one_for_all() {
        let of = |ip: [u8; 4], prefix| broadcast(ip.into(), prefix).map(|ip| ip.octets());
        assert_eq!(of([10, 9, 0, 1], 24), Some([10, 9, 0, 255]));
        assert_eq!(of([10, 9, 3, 1], 22), Some([10, 9, 3, 255]));
        assert_eq!(of([10, 9, 0, 1], 30), Some([10, 9, 0, 3]));
        assert_eq!(of([10, 9, 0, 1], 0), Some([255; 4]));
        assert_eq!((of([10, 9, 0, 1], 31), of([10, 9, 0, 1], 32)), (None, None));
        assert_eq!(broadcast(std::net::Ipv6Addr::LOCALHOST.into(), 24), None);
    }
}
