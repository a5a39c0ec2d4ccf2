//! Reflection with certificates: an attacker that previously had an address, or has stolen a key, makes a server send
//! its response to that address (`docs/spec/asap.md`, 7.8 and 10.1).

use super::super::world::{REQUEST, Victim, World, address, clock_at};
use super::{OPEN, guard};
use crate::certified::{self, Forge, digest, key, policy, syn};
use crate::table::Table;
use firstflight_credential::PendingLimit;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the response: more than an initial window.
const RESPONSE: usize = 100_000;
/// The maximum padding with which the SYN fits into 1,500 bytes.
const PADDING: usize = 1500 - 40 - 12 - 196 - REQUEST;

/// A spoofed SYN with a certificate, and its key.
#[derive(Debug, Clone, Copy)]
pub struct Reflection {
    /// The credential is valid. Otherwise the SYN reflects like any SYN.
    pub certificate: bool,
    /// The verifier is the operator's own.
    pub own: bool,
    /// The number of vantage points that saw the victim's address.
    pub vantage: u8,
    /// The age of the certificate.
    pub age: Duration,
    /// Zeros after the block, bytes.
    pub padding: usize,
    /// The victim answers with RST.
    pub resets: bool,
}

/// The result of two such SYNs, the second one ten minutes after the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reflected {
    /// IP bytes of a SYN.
    pub sent: u64,
    /// IP bytes to the victim for the first SYN, until the server gives up.
    pub first: u64,
    /// IP bytes to the victim for the second SYN.
    pub second: u64,
    /// First flights accepted.
    pub accepted: u64,
}

impl Reflected {
    fn factors(self) -> (f64, f64) {
        (self.first as f64 / self.sent as f64, self.second as f64 / self.sent as f64)
    }
}

impl Reflection {
    /// Runs the attack; `None` if there is nothing to send.
    pub fn run(self, seed: u64) -> Option<Reflected> {
        let mut world = World::seeded(seed);
        let (server, victim) = (address(1), address(2));
        let asap = policy(self.own, guard(&clock_at(world.now)), &Arc::new(PendingLimit::new(256)));
        world.serve(server, RESPONSE, |config| config.asap = asap);
        world.victims.insert(victim, Victim { resets: self.resets, bytes: 0 });
        world.run(world.now + OPEN);
        let key = key(&mut world.random);
        let issued = (world.now, clock_at(world.now).unix_ms / 1000);
        let certificate = certified::certificate(key.clone(), victim, issued, (4 * 3600, self.vantage))?;
        let body = *certificate.body();
        world.run(world.now + self.age);
        let mut heard = 0;
        let mut all = [0, 0];
        let mut sent = 0;
        for (n, bytes) in all.iter_mut().enumerate() {
            let data = [b'x'; REQUEST];
            let requested_ms = clock_at(world.now).unix_ms;
            let digest = digest(&body, victim);
            let forge =
                Forge { body, digest, key: &key, address: victim, requested_ms, padding: self.padding };
            let mut block = forge.block(&data, &mut world.random);
            if !self.certificate {
                // A wrong signature: the server answers as it answers any SYN.
                block[140] ^= 1;
            }
            let from = SocketAddr::new(victim, 4000 + n as u16);
            let packet = syn(from, server, 1 + n as u32, &block, &data);
            sent = packet.len() as u64;
            world.inject(packet);
            world.run(world.now + Duration::from_secs(600));
            let now = world.victims.get(&victim).map_or(0, |victim| victim.bytes);
            (*bytes, heard) = (now - heard, now);
        }
        let accepted = world.servers.values().map(|s| s.stack.counters().first_flights_accepted).sum();
        let [first, second] = all;
        Some(Reflected { sent, first, second, accepted })
    }
}

const YOUNG: Duration = Duration::from_secs(60);
const OLD: Duration = Duration::from_secs(2 * 3600);
const BASE: Reflection =
    Reflection { certificate: true, own: false, vantage: 1, age: YOUNG, padding: 0, resets: false };
const ROWS: [(&str, Reflection); 7] = [
    ("wrong signature", Reflection { certificate: false, ..BASE }),
    ("the operator's own verifier", Reflection { own: true, ..BASE }),
    ("another verifier", BASE),
    ("another verifier, padded block", Reflection { padding: PADDING, ..BASE }),
    ("another, 3 vantage points, a minute old", Reflection { vantage: 3, ..BASE }),
    ("another, 3 vantage points, 2 hours old", Reflection { vantage: 3, age: OLD, ..BASE }),
    ("another, 2 vantage points, a minute old", Reflection { vantage: 2, ..BASE }),
];

/// The rows of the last table.
pub fn table(seed: u64) -> Table {
    let mut table = Table::new(
        format!(
            "bytes at the victim for each byte of a spoofed SYN with certificate and key, two of them; response \
             of {RESPONSE} B, seed {seed}"
        ),
        &["certificate", "SYN, B", "silent, B", "factor", "second", "resets, B", "factor", "second"],
    );
    for (name, reflection) in ROWS {
        let of = |resets| Reflection { resets, ..reflection }.run(seed);
        let (Some(silent), Some(resets)) = (of(false), of(true)) else { continue };
        table.row([
            name.into(),
            silent.sent.into(),
            silent.first.into(),
            silent.factors().0.into(),
            silent.factors().1.into(),
            resets.first.into(),
            resets.factors().0.into(),
            resets.factors().1.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
