//! Other clients' certificates: used from another address, or without the key (`docs/spec/asap.md`, 4.5 and 10.1).

use super::super::world::{REQUEST, Victim, World, address, clock_at};
use super::{OPEN, certificate, guard};
use crate::certified::{Forge, digest, key, policy, syn, unsigned};
use crate::table::Table;
use firstflight_credential::PendingLimit;
use firstflight_credential::asap::{ClientCertificate, PrivateKey};
use firstflight_wire::asap::BLOCK_LEN;
use rand_chacha::rand_core::Rng;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theft {
    /// Nothing: the holder's own requests, from its own address.
    Honest,
    /// The holder's unchanged block, from another source address.
    Copied,
    /// The holder's certificate, which the server has cached, from another source address, with a request that the
    /// holder signs for it.
    Elsewhere,
    /// Like `Elsewhere`, but the signed text names the certificate as if it were valid for the other address.
    ElsewhereRenamed,
    /// Another client's certificate, from its address, with a request signed by another key.
    OtherKey,
    /// Like `OtherKey`, with an invalid signature.
    NoKey,
    /// Like `OtherKey`, with the thief's key in the certificate.
    KeyReplaced,
}

impl Theft {
    const ALL: [(&str, Self); 7] = [
        ("the holder's own request", Self::Honest),
        ("a cached certificate's block, from another address", Self::Copied),
        ("a cached certificate, a request for another address", Self::Elsewhere),
        ("the same, the digest for that address too", Self::ElsewhereRenamed),
        ("a stolen certificate, signed by another key", Self::OtherKey),
        ("a stolen certificate, signed by nobody", Self::NoKey),
        ("a stolen certificate, the key in it replaced", Self::KeyReplaced),
    ];
}

/// The result of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loot {
    /// SYNs sent.
    pub sent: u32,
    /// First flights that were accepted.
    pub accepted: u64,
    /// Requests that were executed.
    pub executed: usize,
    /// Signatures that the server verified for them.
    pub signatures: u64,
    /// IP bytes that reached the source address.
    pub bytes: u64,
}

/// Number of attempts for each attack.
const TRIES: u32 = 5;

/// The server that the SYNs go to, and the holder that they seem to come from.
struct TheftStage {
    world: World,
    server: IpAddr,
    holder: IpAddr,
    certificate: ClientCertificate,
    key: PrivateKey,
}

impl TheftStage {
    fn send(&mut self, from: IpAddr, n: u32, block: &[u8]) {
        let from = SocketAddr::new(from, 4000 + n as u16);
        let packet = syn(from, self.server, n.wrapping_mul(77_777), block, &request(n));
        self.world.inject(packet);
        self.world.run(self.world.now + Duration::from_secs(1));
    }

    /// A valid request of the holder.
    fn own(&mut self, n: u32) -> Vec<u8> {
        let body = *self.certificate.body();
        let digest = digest(&body, self.holder);
        self.forge(n, self.holder, digest)
    }

    fn forge(&mut self, n: u32, address: IpAddr, digest: [u8; 32]) -> Vec<u8> {
        let requested_ms = clock_at(self.world.now).unix_ms;
        let body = *self.certificate.body();
        let forge = Forge { body, digest, key: &self.key, address, requested_ms, padding: 0 };
        forge.block(&request(n), &mut self.world.random)
    }

    fn counts(&self) -> (u64, usize, u64) {
        self.world.servers.values().fold((0, 0, 0), |(accepted, executed, signatures), server| {
            let counters = server.stack.counters();
            (
                accepted + counters.first_flights_accepted,
                executed + server.executed.len(),
                signatures + counters.signatures_verified,
            )
        })
    }
}

fn request(n: u32) -> [u8; REQUEST] {
    let mut data = [0; REQUEST];
    data[..4].copy_from_slice(&n.to_be_bytes());
    data
}

impl Theft {
    /// Runs the attack; `None` if there is nothing to try.
    pub fn run(self, seed: u64) -> Option<Loot> {
        let mut world = World::seeded(seed);
        let (server, holder, other) = (address(1), address(2), address(3));
        let pending = Arc::new(PendingLimit::with_clients(256, 256));
        let asap = policy(true, guard(&clock_at(world.now)), &pending);
        world.serve(server, 300, |config| config.asap = asap);
        for ip in [holder, other] {
            world.victims.insert(ip, Victim::default());
        }
        world.run(world.now + OPEN);
        let key = key(&mut world.random);
        let certificate = certificate(key.clone(), holder, world.now)?;
        let mut stage = TheftStage { world, server, holder, certificate, key };
        // After the holder's first request, the certificate is cached.
        let own = stage.own(0);
        stage.send(holder, 0, &own);
        let (accepted, executed, signatures) = stage.counts();
        let before = stage.heard();
        for n in 1..=TRIES {
            let (from, block) = self.attempt(&mut stage, n, other);
            stage.send(from, n, &block);
        }
        // Run until the server has given up.
        stage.world.run(stage.world.now + Duration::from_secs(300));
        let after = stage.counts();
        Some(Loot {
            sent: TRIES,
            accepted: after.0 - accepted,
            executed: after.1 - executed,
            signatures: after.2 - signatures,
            bytes: stage.heard() - before,
        })
    }

    /// The source address of the next SYN, and its block.
    fn attempt(self, stage: &mut TheftStage, n: u32, other: IpAddr) -> (IpAddr, Vec<u8>) {
        let (body, holder) = (*stage.certificate.body(), stage.holder);
        match self {
            Self::Honest => (holder, stage.own(n)),
            Self::Copied => (other, stage.own(n)),
            Self::Elsewhere => (other, stage.forge(n, other, digest(&body, holder))),
            Self::ElsewhereRenamed => (other, stage.forge(n, other, digest(&body, other))),
            Self::OtherKey => {
                let honest = std::mem::replace(&mut stage.key, key(&mut stage.world.random));
                let block = stage.own(n);
                stage.key = honest;
                (holder, block)
            }
            Self::NoKey => {
                let mut signature = [0; 64];
                stage.world.random.fill_bytes(&mut signature);
                let id = stage.world.random.next_u64().to_be_bytes();
                (holder, unsigned(body, holder, clock_at(stage.world.now).unix_ms, id, signature))
            }
            Self::KeyReplaced => {
                let key = key(&mut stage.world.random);
                let mut body = body;
                body.client_key = *key.public().as_bytes();
                let forge = Forge {
                    body,
                    digest: digest(&body, holder),
                    key: &key,
                    address: holder,
                    requested_ms: clock_at(stage.world.now).unix_ms,
                    padding: 0,
                };
                (holder, forge.block(&request(n), &mut stage.world.random))
            }
        }
    }
}

impl TheftStage {
    /// IP bytes that reached the two addresses.
    fn heard(&self) -> u64 {
        self.world.victims.values().map(|victim| victim.bytes).sum()
    }
}

/// The rows of the third table.
pub fn table(seed: u64) -> Table {
    let bytes = 40 + 12 + BLOCK_LEN + REQUEST;
    let mut table = Table::new(
        format!("{TRIES} SYNs of {bytes} B with other people's certificates, seed {seed}"),
        &["what", "sent", "accepted", "executed", "signatures", "bytes at the source"],
    );
    for (name, theft) in Theft::ALL {
        let Some(Loot { sent, accepted, executed, signatures, bytes }) = theft.run(seed) else { continue };
        table.row([
            name.into(),
            sent.into(),
            accepted.into(),
            executed.into(),
            signatures.into(),
            bytes.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
