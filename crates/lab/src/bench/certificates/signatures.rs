//! Only the signatures: those of a verifier, of a client, and those that a server verifies.

use super::super::{BenchError, REQUEST};
use super::{BATCH, Row, VerifiedBefore};
use crate::certified::{LASTS, certificate, identity, key, policy, verifier};
use firstflight_credential::asap::{
    AsapShard, BudgetConfig, Candidate, ClientCertificate, PrivateKey, PublicKey, Verified, certify, verify,
};
use firstflight_credential::{
    Claim, FirstFlight, Flow, GuardKey, Offered, PendingLimit, Presented, ReplayTable, Window,
};
use firstflight_wire::asap::{AsapOption, CertificateFlags, Encapsulation, context};
use firstflight_wire::{Clock, Instant, SeqNum};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Number of clients, a multiple of a batch. Their keys and signatures do not fit into the nearest cache.
const CLIENTS: usize = 4 * BATCH;
/// The time at which all of this happens.
pub const NOW: Instant = Instant::from_secs(1000);
pub const NOW_MS: u64 = 1_800_000_000_000;

/// The clock of server and verifier.
pub fn clock() -> Clock {
    Clock { mono: NOW, unix_ms: NOW_MS, uncertainty: Duration::from_millis(1) }
}

/// The address of client `n`.
pub fn client(n: usize) -> IpAddr {
    Ipv4Addr::from_bits((10 << 24) + 0x1_0000 + n as u32).into()
}

/// A budget that is never used up.
pub fn unlimited() -> BudgetConfig {
    BudgetConfig::default().per_second(1_000_000_000).relayed_per_second(0).certificates(1 << 16)
}

/// A guard that started long ago.
pub fn guard() -> Arc<ReplayTable> {
    let key = GuardKey::from_bytes([3; 16]);
    Arc::new(ReplayTable::new(key, Window::REQUESTS, 1 << 22, NOW_MS - 600_000))
}

/// The signed part of a request for a certificate (asap.md, 5.2: no tokens, no old certificate).
struct SignedRequest {
    key: PublicKey,
    address: IpAddr,
    message: [u8; 144],
    signature: [u8; 64],
}

/// The keys, certificates and requests of all clients.
#[allow(clippy::vec_box, reason = "as `verify` takes them")]
pub struct Signatures {
    random: ChaCha20Rng,
    verifier: PrivateKey,
    asked: Vec<SignedRequest>,
    certificates: Vec<ClientCertificate>,
    cached: Vec<Box<Candidate>>,
    new: Vec<Box<Candidate>>,
    next: usize,
}

impl Signatures {
    /// Makes keys, certificates and requests, all valid.
    pub fn new(seed: u64) -> Result<Self, BenchError> {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        let keys: Vec<PrivateKey> = (0..CLIENTS).map(|_| key(&mut random)).collect();
        let asked = keys.iter().enumerate().map(|(n, key)| ask(key, client(n), &mut random)).collect();
        let certificates: Option<Vec<ClientCertificate>> = (0..)
            .zip(keys)
            .map(|(n, key)| certificate(key, client(n), (NOW, NOW_MS / 1000), (LASTS, 1)))
            .collect();
        let certificates = certificates.ok_or(BenchError::Wrong("a certificate for the bench".into()))?;
        let mut shard = AsapShard::new(unlimited());
        let new = examine(&certificates, &mut shard, &mut random)?;
        let verdicts = verify(&new, &mut random);
        shard.learn(&new, &verdicts, NOW);
        let cached = examine(&certificates, &mut shard, &mut random)?;
        Ok(Self { random, verifier: verifier(), asked, certificates, cached, new, next: 0 })
    }

    /// Performs one batch of `row`. Returns the number of operations.
    pub fn step(&mut self, row: Row) -> Result<u64, BenchError> {
        let at = self.next % CLIENTS;
        self.next += BATCH;
        match row {
            Row::Issue => self.issue(at),
            Row::Sign => self.sign(at),
            Row::Verify(seen, together) => self.verify(seen, together, at),
            Row::Accept(..) => Ok(0),
        }
    }

    /// Performs one operation of `row`, except for those of a whole server.
    pub fn once(&mut self, row: Row) -> Result<(), BenchError> {
        let at = self.next % CLIENTS;
        self.next += 1;
        match row {
            Row::Issue => self.issue_one(at),
            Row::Sign => {
                self.sign_one(at);
                Ok(())
            }
            Row::Verify(seen, _) => self.verify_part(seen, at..at + 1),
            Row::Accept(..) => Ok(()),
        }
    }

    fn issue(&mut self, at: usize) -> Result<u64, BenchError> {
        for at in at..at + BATCH {
            self.issue_one(at)?;
        }
        Ok(BATCH as u64)
    }

    /// A verifier's work after the challenge: checks the key, checks that its holder asks, and certifies.
    fn issue_one(&self, at: usize) -> Result<(), BenchError> {
        let flags = CertificateFlags::new(1, true, false);
        let issued = self.asked.get(at).and_then(|asked| {
            let proved = asked.key.is_sound() && asked.key.verifies(&asked.message, &asked.signature);
            let valid_from = (NOW_MS / 1000) as u32;
            flags.filter(|_| proved).and_then(|flags| {
                certify(&self.verifier, &asked.key, asked.address, valid_from, LASTS, flags)
            })
        });
        match black_box(issued) {
            Some(_) => Ok(()),
            None => Err(BenchError::Wrong("a request for a certificate was refused".into())),
        }
    }

    fn sign(&mut self, at: usize) -> Result<u64, BenchError> {
        for at in at..at + BATCH {
            self.sign_one(at);
        }
        Ok(BATCH as u64)
    }

    fn sign_one(&mut self, at: usize) {
        let id = self.random.next_u64().to_be_bytes();
        if let Some(certificate) = self.certificates.get(at) {
            black_box(certificate.request(Encapsulation::Ip, &identity(), &REQUEST, id, NOW));
        }
    }

    fn verify(&mut self, seen: VerifiedBefore, together: usize, at: usize) -> Result<u64, BenchError> {
        for from in (at..at + BATCH).step_by(together) {
            self.verify_part(seen, from..(from + together).min(at + BATCH))?;
        }
        Ok(BATCH as u64)
    }

    fn verify_part(&mut self, seen: VerifiedBefore, part: Range<usize>) -> Result<(), BenchError> {
        let all = match seen {
            VerifiedBefore::Cached => &self.cached,
            VerifiedBefore::New => &self.new,
        };
        let part = all.get(part).unwrap_or_default();
        let verdicts = verify(part, &mut self.random);
        if verdicts.is_empty() || verdicts.iter().any(|verdict| *verdict != Verified::Good) {
            return Err(BenchError::Wrong("a good request was refused".into()));
        }
        Ok(())
    }

    /// Number of signatures in one batch of requests.
    #[cfg(test)]
    pub fn signatures(&self, seen: VerifiedBefore) -> u32 {
        let all = if seen == VerifiedBefore::Cached { &self.cached } else { &self.new };
        all.iter().take(BATCH).map(|candidate| u32::from(candidate.signatures())).sum()
    }
}

fn ask(key: &PrivateKey, address: IpAddr, random: &mut ChaCha20Rng) -> SignedRequest {
    let mut message = [0; 144];
    random.fill_bytes(&mut message);
    message[..32].copy_from_slice(&context("firstflight ASAP v1 VREQ"));
    message[32..64].copy_from_slice(verifier().public().as_bytes());
    SignedRequest { key: key.public(), address, message, signature: key.sign(&message) }
}

/// A request of each client, as the checks without signatures return it.
#[allow(clippy::vec_box, reason = "as `verify` takes them")]
fn examine(
    certificates: &[ClientCertificate],
    shard: &mut AsapShard,
    random: &mut ChaCha20Rng,
) -> Result<Vec<Box<Candidate>>, BenchError> {
    let policy = policy(true, guard(), &Arc::new(PendingLimit::new(1)))
        .ok_or(BenchError::Wrong("the policy of the bench".into()))?;
    let examine = |certificate: &ClientCertificate| {
        let id = random.next_u64().to_be_bytes();
        let block = certificate.request(Encapsulation::Ip, &identity(), &REQUEST, id, NOW).to_bytes();
        let len = block.len() as u16;
        let payload = [&block[..], &REQUEST].concat();
        let first = FirstFlight {
            flow: Flow { client: certificate.address(), server: client(0) },
            ports: (4000, 80),
            isn: SeqNum::new(1),
            presented: Presented::None,
            claim: Claim::None,
            offered: Offered::AsapOption(AsapOption::Block { long_reply: true, len }, Encapsulation::Ip),
            payload: &payload,
            relayed: false,
            syn_cookie_pressure: false,
        };
        policy
            .examine(&first, len, Encapsulation::Ip, shard, &clock())
            .map_err(|refused| BenchError::refused("the cheap checks", refused))
    };
    certificates.iter().map(examine).collect()
}
