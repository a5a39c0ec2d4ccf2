#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use std::net::Ipv4Addr;

/// The name server's limits. The verifier's differ in the share of one client.
const LIMITS: StreamLimits = StreamLimits::per_client(32);

struct Listener {
    table: Connections<u32>,
    next: u32,
}

impl Listener {
    fn new(limits: StreamLimits) -> Self {
        Self { table: Connections::new(limits), next: 0 }
    }

    /// Accepts a connection. Returns its id, and the id of the one that ends for it.
    fn accept(&mut self, from: impl Into<IpAddr>) -> (u32, Option<u32>) {
        let from = from.into();
        let ended = self.table.make_room(from);
        self.next += 1;
        self.table.add(self.next, from);
        (self.next, ended)
    }
}

fn address(network: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, network, host)
}

/// Found in review: 543 idle connections from 17 addresses took all places for seconds.
#[test]
fn idle_connections_of_17_addresses_keep_nobody_out() {
    for per_client in [8, 32] {
        for networks in [1, 17] {
            let mut listener = Listener::new(StreamLimits::per_client(per_client));
            for n in 0..543 {
                let from = (n % 17) as u8;
                listener.accept(address(from % networks, from));
            }
            // A client of another network keeps its connection.
            let (mine, _) = listener.accept(Ipv4Addr::new(203, 0, 113, 9));
            for n in 0..2000 {
                let from = (n % 17) as u8;
                let (_, ended) = listener.accept(address(from % networks, from));
                assert_ne!(ended, Some(mine), "{per_client} a client, {networks} networks");
                assert!(listener.table.len() <= LIMITS.connections);
            }
        }
    }
}

#[test]
fn the_oldest_idle_one_of_a_full_client_makes_way() {
    let mut listener = Listener::new(StreamLimits { per_client: 3, ..LIMITS });
    let from = address(0, 1);
    let first: Vec<_> = (0..3).map(|_| listener.accept(from)).collect();
    assert!(first.iter().all(|(_, ended)| ended.is_none()));
    // After a message on the first one, the second one has been idle for longest.
    listener.table.active(first[0].0);
    assert_eq!(listener.accept(from).1, Some(first[1].0));
    assert_eq!(listener.accept(from).1, Some(first[2].0));
    assert_eq!(listener.accept(from).1, Some(first[0].0));
    assert_eq!(listener.table.len(), 3);
    // Another client has its own share.
    assert_eq!(listener.accept(address(0, 2)).1, None);
}

#[test]
fn one_network_has_less_than_all_places() {
    let limits = LIMITS;
    assert!(limits.per_network < limits.connections);
    let mut listener = Listener::new(limits);
    for n in 0..1000 {
        listener.accept(address(7, (n % 256) as u8));
    }
    assert_eq!(listener.table.len(), limits.per_network);
    // For IPv6 the network is a /56.
    let mut listener = Listener::new(limits);
    for n in 0..1000u128 {
        let network = u128::from(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0x4200, 0, 0, 0, 0));
        listener.accept(IpAddr::V6((network + ((n % 256) << 64) + n).into()));
    }
    assert_eq!(listener.table.len(), limits.per_network);
}

/// One connection from each of many networks: the one that has been idle for longest ends.
#[test]
fn strangers_everywhere_displace_who_is_idle_for_longest() {
    let mut listener = Listener::new(LIMITS);
    let of = |n: u32| Ipv4Addr::from_bits(0x0a00_0000 + (n << 8));
    let (mine, _) = listener.accept(Ipv4Addr::new(203, 0, 113, 9));
    for n in 0..2000 {
        let (_, ended) = listener.accept(of(n));
        assert_ne!(ended, Some(mine));
        listener.table.active(mine);
    }
    assert_eq!(listener.table.len(), LIMITS.connections);
}

#[test]
fn what_has_ended_leaves_nothing() {
    let mut listener = Listener::new(LIMITS);
    let ids: Vec<_> = (0..100).map(|n| listener.accept(address(n, n)).0).collect();
    for id in ids {
        listener.table.remove(id);
        listener.table.remove(id);
        listener.table.active(id);
    }
    assert_eq!(listener.table.len(), 0);
    assert!(listener.table.clients.is_empty() && listener.table.networks.is_empty());
}

#[test]
fn an_ipv4_address_in_ipv6_is_that_client() {
    let mapped: IpAddr = "::ffff:198.51.100.7".parse().unwrap();
    assert_eq!(prefix(mapped, CLIENT_BITS), IpAddr::from(Ipv4Addr::new(198, 51, 100, 7)));
    assert_eq!(prefix(mapped, NETWORK_BITS), IpAddr::from(Ipv4Addr::new(198, 51, 100, 0)));
}
