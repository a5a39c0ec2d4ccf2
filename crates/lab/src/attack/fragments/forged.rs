//! The fragments of an attacker.

use crate::attack::world::address;
use firstflight_wire::ip::{Ecn, Fragment, Protocol};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;
use std::net::IpAddr;

/// Number of source addresses of a flood from many sources.
const SOURCES: u32 = 50_000;
/// Number of the first honest client's address.
const HONEST: u32 = 0x20_0000;

/// The kind of fragments in a flood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// First fragments of 1,400 bytes, each of a different packet.
    First,
    /// First fragments of 1,400 bytes from 50,000 sources, each of a different packet.
    FirstOfMany,
    /// First fragments of 8 bytes, each of a different packet.
    Tiny,
    /// The last 8 bytes of packets of 1,500 bytes from 50,000 sources: the smallest fragment that takes the most
    /// memory.
    TinyLastOfMany,
    /// Fragments of 8 bytes, 100 for each packet, which is more than the limit.
    Pieces,
    /// Pairs that overlap.
    Overlaps,
    /// One fragment, sent repeatedly.
    Copies,
    /// First fragments with honest clients' addresses and random identifications.
    Impersonating,
}

impl Kind {
    /// Packet number `n` of the flood.
    pub fn packet(self, n: u32, random: &mut ChaCha20Rng) -> Vec<u8> {
        let payload = [0xff; 1400];
        let [one, many] = [address(0x10_0000), address(0x30_0000 + n % SOURCES)];
        let (src, identification, offset, len) = match self {
            Self::First => (one, n, 0, 1400),
            Self::FirstOfMany => (many, n / SOURCES, 0, 1400),
            Self::Tiny => (one, n, 0, 8),
            Self::TinyLastOfMany => (many, n / SOURCES, 1472, 8),
            Self::Pieces => (one, n / 100, n % 100 * 16, 8),
            Self::Overlaps => (one, n / 2, n % 2 * 8, 16),
            Self::Copies => (one, 1, 0, 1400),
            Self::Impersonating => (honest(n % super::UPLOADS), random.next_u32(), 0, 1000),
        };
        let fragment = Fragment {
            src,
            dst: address(1),
            identification: identification & 0xffff,
            next: Protocol::Tcp,
            transport: Some(Protocol::Tcp),
            offset: offset as u16,
            more: self != Self::TinyLastOfMany,
            hop_limit: 60,
            ecn: Ecn::NotEct,
            payload: payload.get(..len).unwrap_or_default(),
        };
        let mut out = vec![0; 20 + len];
        let _ = fragment.emit(&mut out);
        out
    }
}

/// The address of honest client `n`.
pub fn honest(n: u32) -> IpAddr {
    address(HONEST + n)
}

/// The honest client that has this address.
pub fn client_at(ip: IpAddr) -> Option<usize> {
    let IpAddr::V4(ip) = ip else { return None };
    let number = (ip.to_bits() & 0xff_ffff).checked_sub(HONEST).filter(|n| *n < super::UPLOADS)?;
    Some(number as usize)
}
