//! Floods against the server's budget for signatures (thesis §4.5).

use super::super::world::{REQUEST, RTT, Victim, Visit, World, address, clock_at};
use super::{OPEN, certificate, guard};
use crate::certified::{connect, key, policy, syn, unsigned};
use crate::table::Table;
use firstflight_credential::PendingLimit;
use firstflight_credential::asap::{BudgetConfig, ClientCertificate};
use firstflight_wire::asap::CertificateBody;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// SYNs of the attacker for each signature of the budget.
const TIMES: u32 = 10;

/// What the attacker sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weapon {
    Nothing,
    /// This many valid certificates, each with the address that it is for, and requests without a valid signature.
    Requests(u32),
    /// Certificates that name the trusted verifier and have no valid signature, from this many addresses.
    Certificates(u32),
}

/// A flood, and the honest clients during the flood.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    pub weapon: Weapon,
    /// The owners of the attacker's addresses answer SYN-ACKs with RST, so the SYN queue does not fill.
    pub resets: bool,
    /// Signatures per second that the server verifies.
    pub budget: u32,
    /// Honest clients whose certificate the server has seen before. As many further clients show a new certificate at
    /// each visit.
    pub honest: usize,
    /// How long it lasts, seconds.
    pub seconds: u64,
    pub seed: u64,
}

/// The results of the visits of some clients.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Service {
    pub visits: usize,
    /// The visits that were answered.
    pub answered: usize,
    /// The visits whose data in the SYN was accepted.
    pub fast: usize,
    /// The time to the first byte of the slowest visit that was answered, round-trip times.
    pub slowest_rtts: f64,
}

impl Service {
    fn of<'a>(visits: impl Iterator<Item = &'a Visit>) -> Self {
        visits.fold(Self::default(), |mut all, visit| {
            all.visits += 1;
            if let Some(first) = visit.first_byte {
                all.answered += 1;
                all.fast += usize::from(visit.accepted);
                let rtts = (first - visit.began).as_secs_f64() / RTT.as_secs_f64();
                all.slowest_rtts = all.slowest_rtts.max(rtts);
            }
            all
        })
    }
}

/// The result of a flood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CertificateDamage {
    /// SYNs of the attacker.
    pub syns: u32,
    /// Requests of the attacker that were executed.
    pub executed: usize,
    /// Signatures verified in total, and in the second with the most of them.
    pub signatures: u64,
    pub peak: u64,
    /// Visits of clients whose certificate was known, and of those with a new certificate.
    pub returning: Service,
    pub new: Service,
}

/// The attacker. It uses its certificates repeatedly, with different requests.
struct Attacker {
    certificates: Vec<(IpAddr, CertificateBody)>,
    signed: bool,
}

impl Flood {
    pub fn run(self) -> CertificateDamage {
        let mut world = World::seeded(self.seed);
        let server = address(1);
        world.budget = BudgetConfig::default().per_second(self.budget);
        let pending = Arc::new(PendingLimit::new(256));
        let asap = policy(true, guard(&clock_at(world.now)), &pending);
        world.serve(server, 300, |config| config.asap = asap);
        world.run(world.now + OPEN);
        let attacker = self.arm(&mut world);
        let mut honest = Honest { server, returning: Vec::new(), visits: 0 };
        for n in 0..2 * self.honest {
            let client = world.client(address(0x20_0000 + ((n as u32) << 8)));
            honest.introduce(&mut world, client, n < self.honest);
        }
        world.run(world.now + Duration::from_secs(2));
        let before = world.visits.len();
        let mut damage = self.flood(&mut world, &attacker, &mut honest);
        world.run(world.now + Duration::from_secs(5));
        let visits = world.visits.get(before..).unwrap_or_default();
        damage.returning = Service::of(visits.iter().filter(|visit| visit.client < self.honest));
        damage.new = Service::of(visits.iter().filter(|visit| visit.client >= self.honest));
        let of_attacker = |name: &&[u8; 16]| name[0] == 0xff;
        damage.executed = world.servers.values().flat_map(|s| s.executed.keys()).filter(of_attacker).count();
        damage
    }

    fn arm(self, world: &mut World) -> Attacker {
        let (count, signed) = match self.weapon {
            Weapon::Nothing => (0, false),
            Weapon::Requests(count) => (count, true),
            Weapon::Certificates(count) => (count, false),
        };
        let mut certificates = Vec::new();
        for n in 0..count {
            let ip = address(0x40_0000 + (n << 8));
            world.victims.insert(ip, Victim { resets: self.resets, bytes: 0 });
            let key = key(&mut world.random);
            if let Some(certificate) = certificate(key, ip, world.now) {
                certificates.push((ip, *certificate.body()));
            }
        }
        Attacker { certificates, signed }
    }

    fn flood(self, world: &mut World, attacker: &Attacker, honest: &mut Honest) -> CertificateDamage {
        let mut damage = CertificateDamage {
            syns: 0,
            executed: 0,
            signatures: 0,
            peak: 0,
            returning: Service::default(),
            new: Service::default(),
        };
        let verified = |world: &World| -> u64 {
            world.servers.values().map(|server| server.stack.counters().signatures_verified).sum()
        };
        let first = verified(world);
        let (mut mark, mut mark_at) = (first, world.now + Duration::from_secs(1));
        let end = world.now + Duration::from_secs(self.seconds);
        let every = Duration::from_secs(1) / (self.budget * TIMES);
        let mut visit_at = world.now;
        while world.now < end {
            if let Some(packet) = attacker.syn(honest.server, damage.syns, world.now, &mut world.random) {
                world.inject(packet);
                damage.syns += 1;
            }
            // Each honest client visits once a second; the visits are spread over the second.
            while visit_at <= world.now {
                honest.visit(world, 2 * self.honest);
                visit_at += Duration::from_secs(1) / (2 * self.honest) as u32;
            }
            world.run(world.now + every);
            if world.now >= mark_at {
                damage.peak = damage.peak.max(verified(world) - mark);
                (mark, mark_at) = (verified(world), mark_at + Duration::from_secs(1));
            }
        }
        damage.signatures = verified(world) - first;
        damage
    }
}

impl Attacker {
    /// A block that is valid except for its signatures.
    fn syn(
        &self,
        server: IpAddr,
        n: u32,
        now: firstflight_wire::Instant,
        random: &mut ChaCha20Rng,
    ) -> Option<Vec<u8>> {
        let count = u32::try_from(self.certificates.len()).ok()?;
        let &(from, mut body) = self.certificates.get(n.checked_rem(count)? as usize)?;
        if !self.signed {
            random.fill_bytes(&mut body.client_key);
            random.fill_bytes(&mut body.signature);
        }
        let mut signature = [0; 64];
        random.fill_bytes(&mut signature);
        let id = random.next_u64().to_be_bytes();
        let block = unsigned(body, from, clock_at(now).unix_ms, id, signature);
        let mut data = [0; REQUEST];
        data[0] = 0xff;
        data[12..16].copy_from_slice(&n.to_be_bytes());
        let from = SocketAddr::new(from, 1024 + (n / count % 60_000) as u16);
        Some(syn(from, server, n.wrapping_mul(77_777), &block, &data))
    }
}

/// The honest clients.
struct Honest {
    server: IpAddr,
    returning: Vec<Arc<ClientCertificate>>,
    visits: u128,
}

impl Honest {
    /// A client gets its certificate. If it will return, it shows the certificate to the server.
    fn introduce(&mut self, world: &mut World, client: usize, returns: bool) {
        let Some(certificate) = fresh(world, client).filter(|_| returns) else { return };
        self.returning.push(certificate);
        self.visits += 1;
        self.show(world, client);
    }

    /// The visit of the next client.
    fn visit(&mut self, world: &mut World, clients: usize) {
        let client = (self.visits % clients as u128) as usize;
        self.visits += 1;
        self.show(world, client);
    }

    fn show(&self, world: &mut World, client: usize) {
        let held = self.returning.get(client).cloned();
        if let Some(certificate) = held.or_else(|| fresh(world, client)) {
            let config = connect(&certificate, world.now);
            world.visit_with(client, self.server, self.visits, &config);
        }
    }
}

/// A new certificate for a client's address.
fn fresh(world: &mut World, client: usize) -> Option<Arc<ClientCertificate>> {
    let (ip, now) = (world.clients.get(client)?.0, world.now);
    certificate(key(&mut world.random), ip, now).map(Arc::new)
}

/// The rows of the first table.
pub fn table(seconds: u64, seed: u64) -> Table {
    let base = Flood { weapon: Weapon::Nothing, resets: true, budget: 500, honest: 10, seconds, seed };
    let rows = [
        ("no attack", base),
        ("wrong requests, 100 valid certificates", Flood { weapon: Weapon::Requests(100), ..base }),
        ("wrong requests, 4,000 valid certificates", Flood { weapon: Weapon::Requests(4000), ..base }),
        (
            "the same, nobody resets: the SYN queue fills",
            Flood { weapon: Weapon::Requests(4000), resets: false, ..base },
        ),
        ("unsigned certificates, 8 addresses", Flood { weapon: Weapon::Certificates(8), ..base }),
        ("unsigned certificates, 4,000 addresses", Flood { weapon: Weapon::Certificates(4000), ..base }),
        (
            "the same, nobody resets: the SYN queue fills",
            Flood { weapon: Weapon::Certificates(4000), resets: false, ..base },
        ),
    ];
    let mut table = Table::new(
        format!(
            "{} SYNs/s with blocks for {seconds} s, budget {} signatures/s, {} clients known and {} new ones, seed {seed}",
            base.budget * TIMES,
            base.budget,
            base.honest,
            base.honest
        ),
        &[
            "attack",
            "SYNs",
            "executed",
            "signatures/s",
            "peak",
            "known answered",
            "of them fast",
            "new answered",
            "of them fast",
            "slowest, RTT",
        ],
    );
    for (name, flood) in rows {
        let CertificateDamage { syns, executed, signatures, peak, returning, new } = flood.run();
        table.row([
            name.into(),
            syns.into(),
            executed.into(),
            (signatures / seconds).into(),
            peak.into(),
            format!("{}/{}", returning.answered, returning.visits).into(),
            returning.fast.into(),
            format!("{}/{}", new.answered, new.visits).into(),
            new.fast.into(),
            returning.slowest_rtts.max(new.slowest_rtts).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
