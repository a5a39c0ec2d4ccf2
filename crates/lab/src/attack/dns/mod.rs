//! Attacks on a name server that accepts first flights (`docs/spec/dns-path.md`, section 11).

mod answers;
mod flood;
mod forged;
mod fronts;
mod relay;
mod site;

use crate::table::Table;
use std::net::{IpAddr, Ipv4Addr};

/// The tables of `attack dns`.
pub fn tables(seconds: u64, seed: u64) -> [Table; 4] {
    [
        answers::table(seed),
        flood::table(seconds, seed),
        relay::table(seconds, seed),
        fronts::table(seconds, seed),
    ]
}

/// Honest first flights a second.
const HONEST: u32 = 4;

/// An attacker's address in network (/24) `n`.
fn attacker(n: u32) -> IpAddr {
    Ipv4Addr::from_bits(11 << 24 | (n % 65_536) << 8 | 53).into()
}

/// Resolvers of honest clients.
const RESOLVERS: u32 = 20;

/// Resolver `n`. Each is in its own network.
fn resolver(n: u32) -> IpAddr {
    Ipv4Addr::new(100, 64, (n % RESOLVERS) as u8, 53).into()
}
