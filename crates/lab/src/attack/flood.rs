//! SYN floods with valid cookies (the Fast Open paper §§3.4.1, 7.3).

use super::world::{REQUEST, Victim, World, address, spoof};
use super::{Cookies, keys, policy};
use crate::table::Table;
use firstflight_credential::{Flow, PendingLimit, Quarantine};
use firstflight_wire::tcp::{FastOpen, FastOpenForm, OptionsBuf};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of pending first flights at the listener.
const LIMIT: u32 = 256;
/// SYNs per second of a flood that does not fill the SYN queue.
const RATE: u32 = 200;

/// A flood, and the defence against it.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// SYNs a second.
    pub rate: u32,
    /// Stolen addresses with their cookies.
    pub stolen: u32,
    /// Whether the owners of the stolen addresses answer SYN-ACKs with RST.
    pub resets: bool,
    /// How many pending first flights a client may have.
    pub clients: Clients,
    /// Which resets keep the place of their first flight.
    pub quarantine: Quarantine,
    /// How long the application takes to accept.
    pub accepts_after: Duration,
    /// Honest clients.
    pub honest: usize,
    /// Bytes of a response.
    pub response: usize,
    /// The duration, seconds.
    pub seconds: u64,
}

/// The limit of pending first flights for one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// No limit.
    Unlimited,
    /// A 32nd of all permits.
    Fixed,
    /// The default: a fixed number of permits, plus half of the free permits.
    Borrowing,
}

/// The result of a flood.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FloodDamage {
    /// The maximum number of pending first flights at one time.
    pub pending: u32,
    /// IP bytes that reached the stolen addresses.
    pub reflected: u64,
    /// Requests of the attacker that the application executed.
    pub executed: usize,
    /// SYNs of the attacker.
    pub syns: u32,
    /// Visits of honest clients.
    pub visits: usize,
    /// The visits that were answered.
    pub answered: usize,
    /// The visits whose data in the SYN was accepted.
    pub fast: usize,
    /// The time to the first byte of the slowest visit that was answered, round-trip times.
    pub slowest_rtts: f64,
}

impl Flood {
    pub fn run(self) -> FloodDamage {
        let mut world = World::new();
        let server = address(1);
        let pending = Arc::new(match self.clients {
            Clients::Unlimited => PendingLimit::with_clients(LIMIT, u32::MAX),
            Clients::Fixed => PendingLimit::with_clients(LIMIT, LIMIT / 32),
            Clients::Borrowing => PendingLimit::new(LIMIT),
        });
        let mut policy = policy(Cookies::Plain, &pending);
        policy.quarantine = self.quarantine;
        world.serve(server, self.response, |config| config.fast_open = Some(policy));
        if let Some(server) = world.servers.get_mut(&server) {
            server.accepts_after = self.accepts_after;
        }
        for n in 0..self.stolen {
            world.victims.insert(address(0x10_0000 + n), Victim { resets: self.resets, bytes: 0 });
        }
        let mut honest = 0;
        for n in 0..self.honest {
            world.client(address(0x20_0000 + n as u32));
            honest += u128::from(world.visit(n, server, honest));
        }
        // Every client has a cookie before the flood begins.
        world.run(world.now + Duration::from_secs(2));
        let before = world.visits.len();
        let mut damage = self.flood(&mut world, server, &pending, &mut honest);
        world.run(world.now + Duration::from_secs(5));
        let visits = world.visits.get(before..).unwrap_or_default();
        let answered = visits.iter().filter_map(|v| Some((v.first_byte? - v.began).as_secs_f64()));
        damage.visits = visits.len();
        damage.reflected = world.victims.values().map(|victim| victim.bytes).sum();
        damage.answered = answered.clone().count();
        damage.fast = visits.iter().filter(|v| v.accepted && v.first_byte.is_some()).count();
        damage.slowest_rtts = answered.fold(0.0, f64::max) / super::world::RTT.as_secs_f64();
        let of_attacker = |name: &&[u8; 16]| name[0] == 0xff;
        damage.executed = world.servers.values().flat_map(|s| s.executed.keys()).filter(of_attacker).count();
        damage
    }

    fn flood(
        self,
        world: &mut World,
        server: IpAddr,
        pending: &PendingLimit,
        honest: &mut u128,
    ) -> FloodDamage {
        let mut damage = FloodDamage {
            pending: 0,
            reflected: 0,
            executed: 0,
            syns: 0,
            visits: 0,
            answered: 0,
            fast: 0,
            slowest_rtts: 0.0,
        };
        let began = world.now;
        let end = began + Duration::from_secs(self.seconds);
        let every = Duration::from_secs(1) / self.rate;
        let mut visit_at = began;
        while world.now < end {
            let stolen = address(0x10_0000 + damage.syns % self.stolen);
            world.inject(syn(stolen, server, damage.syns));
            damage.syns += 1;
            // Each honest client visits once a second; the visits are spread over the second.
            while visit_at <= world.now && self.honest > 0 {
                let client = (*honest % self.honest as u128) as usize;
                *honest += u128::from(world.visit(client, server, *honest));
                visit_at += Duration::from_secs(1) / self.honest as u32;
            }
            world.run(world.now + every);
            damage.pending = damage.pending.max(pending.pending());
        }
        damage
    }
}

/// A SYN with a stolen, valid cookie and its own request.
fn syn(stolen: IpAddr, server: IpAddr, n: u32) -> Vec<u8> {
    let cookie = keys().grant(&Flow { client: stolen, server });
    let mut options = OptionsBuf::new();
    let _ = options.mss(1460) && options.fast_open(&FastOpen::Cookie(FastOpenForm::Standard, cookie));
    let mut data = [0; REQUEST];
    data[0] = 0xff;
    data[12..16].copy_from_slice(&n.to_be_bytes());
    let from = SocketAddr::new(stolen, 1024 + (n % 60_000) as u16);
    spoof(from, server, n.wrapping_mul(77_777), &mut options, &data)
}

/// The rows of `attack flood`.
pub fn table(seconds: u64) -> Table {
    let base = Flood {
        rate: RATE,
        stolen: 1,
        resets: false,
        clients: Clients::Unlimited,
        response: 300,
        quarantine: Quarantine::Accepted,
        accepts_after: Duration::ZERO,
        honest: 50,
        seconds,
    };
    let slow = Duration::from_millis(250);
    let rows = [
        ("one stolen cookie, no limit per client", base),
        ("one stolen cookie, limit per client 8", Flood { clients: Clients::Fixed, ..base }),
        ("one stolen cookie", Flood { clients: Clients::Borrowing, ..base }),
        ("16 stolen cookies, limit per client 8", Flood { stolen: 16, clients: Clients::Fixed, ..base }),
        ("16 stolen cookies", Flood { stolen: 16, clients: Clients::Borrowing, ..base }),
        ("300 stolen cookies", Flood { stolen: 300, clients: Clients::Borrowing, ..base }),
        (
            "the same, 2,000 SYNs/s: the SYN queue fills",
            Flood { rate: 2000, stolen: 300, clients: Clients::Borrowing, ..base },
        ),
        ("owner resets, no limit per client", Flood { resets: true, ..base }),
        ("owner resets, limit per client 8", Flood { resets: true, clients: Clients::Fixed, ..base }),
        ("owner resets", Flood { resets: true, clients: Clients::Borrowing, ..base }),
        ("one, 100 kB each, no limit per client", Flood { response: 100_000, ..base }),
        (
            "one, 100 kB each, limit per client 8",
            Flood { response: 100_000, clients: Clients::Fixed, ..base },
        ),
        ("one, 100 kB each", Flood { response: 100_000, clients: Clients::Borrowing, ..base }),
        ("owner resets, slow application, Linux' rule", Flood { resets: true, accepts_after: slow, ..base }),
        (
            "owner resets, slow application, strict rule",
            Flood { resets: true, accepts_after: slow, quarantine: Quarantine::Every, ..base },
        ),
    ];
    let mut table = Table::new(
        format!("{RATE} SYNs/s with valid cookies for {seconds} s, limit {LIMIT}, 50 honest clients"),
        &[
            "attack",
            "SYNs",
            "executed",
            "pending max",
            "B at the victims",
            "honest answered",
            "of them fast",
            "slowest, RTT",
        ],
    );
    for (name, flood) in rows {
        let d = flood.run();
        table.row([
            name.into(),
            d.syns.into(),
            d.executed.into(),
            d.pending.into(),
            d.reflected.into(),
            format!("{}/{}", d.answered, d.visits).into(),
            d.fast.into(),
            d.slowest_rtts.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
