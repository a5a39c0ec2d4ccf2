//! What the parts of the demonstration share: addresses, and the result of a visit.

use crate::error::Error;
use crate::network::engine_config;
use firstflight::{Config, EncapsulationConfig, Time};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub(super) const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// A server that accepts cookies.
pub(super) const COOKIES: SocketAddr = server(80);

/// A server that accepts certificates, as its DNS record says.
pub(super) const CERTIFICATES: SocketAddr = server(81);

/// A server that accepts certificates, which the client does not know.
pub(super) const UNKNOWN: SocketAddr = server(82);

/// Two hosts of a site that is its own verifier, and says so in its records. Each has a port of its own, because one engine is all of
/// these hosts (`docs/spec/asap.md` §7.5).
pub(super) const SITE: [SocketAddr; 2] =
    [SocketAddr::new(server(84).ip(), 8084), SocketAddr::new(server(85).ip(), 8085)];

/// A server that accepts certificates, and speaks TLS.
pub(super) const TLS: SocketAddr = SocketAddr::new(server(83).ip(), 443);

/// The UDP port of both ends for TCP in UDP.
pub(super) const UDP_PORT: u16 = 4433;

const fn server(n: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n)), 80)
}

/// Bytes of the object written at once.
pub(super) const PIECE: usize = 64 * 1024;

/// One visit.
#[derive(Serialize)]
pub(super) struct Visit {
    pub mode: &'static str,
    #[serde(skip)]
    pub title: &'static str,
    /// From the call of connect, or from the lookup before it, to the first byte of the response.
    pub first_byte_ms: f64,
    /// `first_byte_ms` in round trips of the emulated path.
    pub first_byte_rtts: f64,
    /// From the call of connect to the end of the response.
    pub total_ms: f64,
    /// Bytes of the object.
    pub bytes: u64,
    pub outcome: &'static str,
    pub reason: Option<&'static str>,
    /// How often the server answered the request.
    pub executed: u64,
    /// Seed of the path's losses.
    pub seed: u64,
}

/// Settings of an engine that carries TCP on IP and in UDP.
pub(super) fn engine(addresses: Vec<IpAddr>, seeds: &mut ChaCha20Rng) -> Result<Config, Error> {
    let mut config = engine_config(addresses)?;
    config.secret = draw(seeds);
    config.encapsulation = Some(EncapsulationConfig::new(UDP_PORT));
    Ok(config)
}

/// The wall clock of `time`, Unix milliseconds.
pub(super) fn unix_ms(time: &Time) -> u64 {
    time.unix().as_millis() as u64
}

/// The next `N` bytes from the seed.
pub(super) fn draw<const N: usize>(seeds: &mut ChaCha20Rng) -> [u8; N] {
    let mut bytes = [0; N];
    seeds.fill_bytes(&mut bytes);
    bytes
}

/// The position after a message's head.
pub(super) fn find_blank_line(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}
