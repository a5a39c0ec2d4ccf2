//! Which local network this host is on, without asking anybody.

use firstflight_credential::NetworkId;
use sha2::{Digest, Sha256};
use std::net::Ipv4Addr;

/// Route flags: up, and by a gateway (Linux, `include/uapi/linux/route.h`).
const UP_BY_GATEWAY: u32 = 3;

/// An id for the network of the default route, from the kind of its interface and the gateway's link-layer
/// address: another network has another gateway, even where its addresses are the same. Linux with IPv4;
/// `None` where it cannot be known, such as without a gateway or before it was spoken to.
///
/// The id means nothing elsewhere, but who knows a gateway can compute it: it is not a secret and not
/// anonymous.
#[must_use]
pub fn network_id() -> Option<NetworkId> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let (interface, gateway) = default_route(&read("/proc/net/route")?)?;
    let address = link_address(&read("/proc/net/arp")?, gateway, &interface)?;
    let device = format!("/sys/class/net/{interface}");
    let wireless = std::path::Path::new(&device).join("wireless").exists();
    let kind = if wireless { "wireless".into() } else { read(&format!("{device}/type"))? };
    Some(derive(kind.trim(), &address))
}

/// The id of a network behind an interface of this kind and a gateway with this address.
fn derive(kind: &str, gateway: &str) -> NetworkId {
    let text = format!("firstflight network\n{kind}\n{gateway}\n");
    let hash = Sha256::digest(text.as_bytes());
    NetworkId(hash.first_chunk().copied().unwrap_or_default())
}

/// Interface and gateway of the default route with the lowest metric in `/proc/net/route`.
fn default_route(table: &str) -> Option<(String, Ipv4Addr)> {
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [interface, destination, gateway, flags, _, _, metric, mask, ..] = fields[..] else {
            return None;
        };
        let number = |text| u32::from_str_radix(text, 16).ok();
        let default = number(destination)? == 0 && number(mask)? == 0;
        let usable = default && number(flags)? & UP_BY_GATEWAY == UP_BY_GATEWAY;
        // The kernel prints the bytes in its own order.
        let gateway = Ipv4Addr::from(number(gateway)?.to_ne_bytes());
        let metric: u32 = metric.parse().ok()?;
        usable.then(|| (metric, interface.to_owned(), gateway))
    };
    let best = table.lines().skip(1).filter_map(route).min_by_key(|(metric, ..)| *metric)?;
    Some((best.1, best.2))
}

/// The link-layer address of `ip` on `interface` in `/proc/net/arp`, if it is complete.
fn link_address(table: &str, ip: Ipv4Addr, interface: &str) -> Option<String> {
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, _, flags, link, _, device] = fields[..] else { return None };
        let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
        let found = address.parse() == Ok(ip) && device == interface && flags & 2 != 0;
        found.then(|| link.to_ascii_lowercase())
    };
    table.lines().skip(1).find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
wlan0\t00000000\tFE01A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
tun0\t00000000\t00000000\t0001\t0\t0\t50\t00000000\t0\t0\t0
eth0\t0001A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0
";
    const NEIGHBOURS: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
192.168.1.7      0x1         0x0         00:00:00:00:00:00     *        eth0
192.168.1.1      0x1         0x2         02:FC:00:00:00:06     *        wlan0
192.168.1.1      0x1         0x2         02:FC:00:00:00:05     *        eth0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_default_route_with_the_lowest_metric_by_a_gateway() {
        let gateway = Ipv4Addr::new(192, 168, 1, 1);
        assert_eq!(default_route(ROUTES), Some(("eth0".into(), gateway)));
        assert_eq!(default_route(ROUTES.lines().next().unwrap_or_default()), None);
        assert_eq!(default_route("no\ntable at all\n"), None);
    }

    #[test]
    fn the_gateway_on_its_interface_if_it_is_known() {
        let find = |ip: [u8; 4], on| link_address(NEIGHBOURS, ip.into(), on);
        assert_eq!(find([192, 168, 1, 1], "eth0").as_deref(), Some("02:fc:00:00:00:05"));
        assert_eq!(find([192, 168, 1, 1], "wlan0").as_deref(), Some("02:fc:00:00:00:06"));
        assert_eq!(find([192, 168, 1, 7], "eth0"), None, "incomplete");
        assert_eq!(find([192, 168, 1, 1], "eth1"), None);
    }

    #[test]
    fn every_part_makes_another_network() {
        let home = derive("1", "02:fc:00:00:00:05");
        assert_eq!(home, derive("1", "02:fc:00:00:00:05"));
        assert_ne!(home, derive("1", "02:fc:00:00:00:06"));
        assert_ne!(home, derive("wireless", "02:fc:00:00:00:05"));
        assert!(home.is_known());
    }
}
