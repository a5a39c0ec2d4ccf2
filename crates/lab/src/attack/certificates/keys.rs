//! Reflection with many keys: an attacker that once had an address can hold many certificates for it. Each is good
//! for one response, which the address resets. Also measures what the defence costs honest clients behind the same
//! address (`docs/spec/asap.md`, 7.8).

use super::super::world::{REQUEST, Victim, World, address, clock_at};
use super::{OPEN, certificate, guard};
use crate::certified::{Forge, connect, digest, key, policy, syn};
use crate::table::Table;
use firstflight_credential::PendingLimit;
use firstflight_credential::asap::{ClientCertificate, PrivateKey};
use firstflight_wire::asap::CertificateBody;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the response: more than an initial window.
const RESPONSE: usize = 100_000;
/// The first spoofed SYN is sent at once; the second follows after this time.
const EVERY: Duration = Duration::from_millis(100);
const MINUTE: Duration = Duration::from_secs(60);

/// Certificates for a victim's address, by the operator's own verifier, and their keys.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    /// The number of keys. The attacker uses them in turn.
    pub keys: usize,
    /// All SYNs are sent at once, and then none. Otherwise ten a second for a minute.
    pub at_once: bool,
}

/// The result of a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minute {
    /// First flights of the attacker that are accepted.
    pub accepted: u64,
    /// IP bytes to the victim.
    pub bytes: u64,
    /// Visits of an honest client at the same address, one a second, each with a certificate for a new key; and the
    /// number of them that are accepted.
    pub visits: usize,
    pub fast: usize,
}

impl Keys {
    /// Runs the minute twice: with a victim that resets unexpected connections, and with an honest client in its
    /// place.
    pub fn run(self, seed: u64) -> Option<Minute> {
        let (accepted, bytes, _) = self.minute(seed, false)?;
        let (_, _, honest) = self.minute(seed, true)?;
        Some(Minute { accepted, bytes, visits: honest.0, fast: honest.1 })
    }

    fn minute(self, seed: u64, honest: bool) -> Option<(u64, u64, (usize, usize))> {
        let mut world = World::seeded(seed);
        let (server, victim) = (address(1), address(2));
        let asap = policy(true, guard(&clock_at(world.now)), &Arc::new(PendingLimit::new(256)));
        world.serve(server, RESPONSE, |config| config.asap = asap);
        world.run(world.now + OPEN);
        let client = honest.then(|| world.client(victim));
        world.victims.insert(victim, Victim { resets: true, bytes: 0 });
        let held: Option<Vec<_>> =
            (0..self.keys).map(|_| StolenCertificate::new(&mut world, victim)).collect();
        let mut attacker = Attacker { held: held?, server, victim, sent: 0 };
        let (began, mut visits) = (world.now, 0);
        while world.now < began + MINUTE {
            if let Some(client) = client
                && world.now >= began + Duration::from_secs(visits)
            {
                let certificate = certificate(key(&mut world.random), victim, world.now)?;
                let config = connect(&Arc::new(certificate), world.now);
                world.visit_with(client, server, u128::from(visits), &config);
                visits += 1;
            }
            let count = if !self.at_once {
                1
            } else if world.now == began {
                self.keys
            } else {
                0
            };
            (0..count).try_for_each(|_| attacker.send(&mut world))?;
            world.run(world.now + EVERY);
        }
        let server = world.servers.get(&server)?;
        let fast = world.visits.iter().filter(|visit| visit.accepted).count();
        let bytes = world.victims.get(&victim)?.bytes;
        Some((server.stack.counters().first_flights_accepted, bytes, (world.visits.len(), fast)))
    }
}

/// A certificate that the attacker obtained when it had the address.
struct StolenCertificate {
    key: PrivateKey,
    body: CertificateBody,
}

impl StolenCertificate {
    fn new(world: &mut World, victim: IpAddr) -> Option<Self> {
        let key = key(&mut world.random);
        let body = *ClientCertificate::body(&certificate(key.clone(), victim, world.now)?);
        Some(Self { key, body })
    }
}

struct Attacker {
    held: Vec<StolenCertificate>,
    server: IpAddr,
    victim: IpAddr,
    sent: usize,
}

impl Attacker {
    /// Sends the next SYN, correctly signed.
    fn send(&mut self, world: &mut World) -> Option<()> {
        if self.held.is_empty() {
            return Some(());
        }
        let StolenCertificate { key, body } = self.held.get(self.sent % self.held.len())?;
        let data = [b'x'; REQUEST];
        let forge = Forge {
            body: *body,
            digest: digest(body, self.victim),
            key,
            address: self.victim,
            requested_ms: clock_at(world.now).unix_ms,
            padding: 0,
        };
        let block = forge.block(&data, &mut world.random);
        let from = SocketAddr::new(self.victim, 2000 + self.sent as u16);
        let packet = syn(from, self.server, 1 + self.sent as u32, &block, &data);
        self.sent += 1;
        world.inject(packet);
        Some(())
    }
}

const ROWS: [(&str, Keys); 6] = [
    ("none", Keys { keys: 0, at_once: false }),
    ("1 key", Keys { keys: 1, at_once: false }),
    ("10 keys", Keys { keys: 10, at_once: false }),
    ("600 keys", Keys { keys: 600, at_once: false }),
    ("8 keys at once", Keys { keys: 8, at_once: true }),
    ("600 keys at once", Keys { keys: 600, at_once: true }),
];

/// The rows of the table.
pub fn table(seed: u64) -> Table {
    let mut table = Table::new(
        format!(
            "spoofed SYNs with n certificates for the victim's address in a minute, ten a second or all at once; the \
             victim resets; response of {RESPONSE} B, seed {seed}"
        ),
        &["the attacker has", "accepted", "B at the victim", "honest clients there", "of them fast"],
    );
    for (name, keys) in ROWS {
        let Some(minute) = keys.run(seed) else { continue };
        table.row([
            name.into(),
            minute.accepted.into(),
            minute.bytes.into(),
            minute.visits.into(),
            minute.fast.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
