//! Identifies the local network of this host. Sends nothing beyond the gateway.

#[cfg_attr(not(all(target_os = "linux", feature = "tun")), path = "network/no_neighbours.rs")]
mod neighbours;

use firstflight_credential::NetworkId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Route flags RTF_UP and RTF_GATEWAY (Linux, `include/uapi/linux/route.h`).
const UP_BY_GATEWAY: u32 = 3;
/// How long to wait for the gateway's answer to ARP. In a local network it takes some milliseconds. In a wireless
/// network that saves power it takes up to a beacon interval, 0.1 s.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often the kernel's table is read while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// The discard port, whose data is ignored (RFC 863).
const DISCARD: u16 = 9;

/// An id for the network of the default route, derived from the kind of its interface and the gateway's link-layer
/// address. Another network has another gateway, even if it uses the same IP addresses. The IPv4 default route is
/// used; without one, the IPv6 default route. Linux only; the IPv6 route needs the feature `tun`. Returns `None` when the id cannot be determined, for
/// example without a gateway.
///
/// Right after this host has joined a network, it may not have spoken to the gateway yet. Then this function sends
/// one empty UDP datagram to the gateway's discard port, so that the kernel resolves its link-layer address (ARP, RFC
/// 4861), and blocks until the address is known, for at most 200 ms. In an async runtime, call it through
/// [`spawn_blocking`](tokio::task::spawn_blocking). If the address is already known, it sends nothing and does not
/// block.
///
/// The id has no meaning outside this host. Anyone who knows the gateway can compute it, so it is neither secret nor
/// anonymous.
#[must_use]
pub fn network_id() -> Option<NetworkId> {
    let (interface, gateway) = gateway()?;
    let device = format!("/sys/class/net/{interface}");
    let index = read(&format!("{device}/ifindex"))?.trim().parse().ok()?;
    let known = || match gateway {
        IpAddr::V4(gateway) => link_address(&read("/proc/net/arp")?, gateway, &interface),
        IpAddr::V6(_) => neighbours::link_address(index, gateway),
    };
    let address = known().or_else(|| when_resolved(gateway, index, known))?;
    let wireless = std::path::Path::new(&device).join("wireless").exists();
    let kind = if wireless { "wireless".into() } else { read(&format!("{device}/type"))? };
    Some(derive(kind.trim(), &address))
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// Interface and gateway of the default route.
pub(crate) fn gateway() -> Option<(String, IpAddr)> {
    let v4 = read("/proc/net/route").and_then(|table| default_route(&table));
    if let Some((interface, gateway)) = v4 {
        return Some((interface, gateway.into()));
    }
    let (interface, gateway) = default_route_v6(&read("/proc/net/ipv6_route")?)?;
    Some((interface, gateway.into()))
}

/// Makes the kernel resolve the gateway's link-layer address on the interface with this index. Returns the address
/// once `known` returns it.
fn when_resolved(gateway: IpAddr, index: u32, known: impl Fn() -> Option<String>) -> Option<String> {
    let began = Instant::now();
    let sent = match gateway {
        IpAddr::V4(gateway) => {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
            socket.send_to(&[], (gateway, DISCARD))
        }
        IpAddr::V6(gateway) => {
            let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).ok()?;
            socket.send_to(&[], SocketAddrV6::new(gateway, DISCARD, 0, index))
        }
    };
    sent.ok()?;
    loop {
        sleep(LOOK_EVERY);
        let found = known();
        if found.is_some() || began.elapsed() >= PATIENCE {
            return found;
        }
    }
}

/// Derives the id of a network from the kind of its interface and the gateway's link-layer address: FNV-1a of 128 bits. Who
/// wants the id of another network can as well take the address of its gateway, so that a hash for secrets would prevent
/// nothing.
fn derive(kind: &str, gateway: &str) -> NetworkId {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let text = format!("firstflight network\n{kind}\n{gateway}\n");
    let hash = text.bytes().fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    NetworkId(hash.to_be_bytes())
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
        // The kernel prints these bytes in its native byte order.
        let gateway = Ipv4Addr::from(number(gateway)?.to_ne_bytes());
        let metric: u32 = metric.parse().ok()?;
        usable.then(|| (metric, interface.to_owned(), gateway))
    };
    let best = table.lines().skip(1).filter_map(route).min_by_key(|(metric, ..)| *metric)?;
    Some((best.1, best.2))
}

/// Like `default_route`, for `/proc/net/ipv6_route`.
fn default_route_v6(table: &str) -> Option<(String, Ipv6Addr)> {
    let route = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, length, _, _, gateway, metric, _, _, flags, interface] = fields[..] else {
            return None;
        };
        let number = |text| u32::from_str_radix(text, 16).ok();
        let default = u128::from_str_radix(destination, 16).ok()? == 0 && number(length)? == 0;
        let usable = default && number(flags)? & UP_BY_GATEWAY == UP_BY_GATEWAY;
        let gateway = Ipv6Addr::from_bits(u128::from_str_radix(gateway, 16).ok()?);
        usable.then_some((number(metric)?, interface.to_owned(), gateway))
    };
    let best = table.lines().filter_map(route).min_by_key(|(metric, ..)| *metric)?;
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
mod tests;
