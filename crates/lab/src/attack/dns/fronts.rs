//! Two fronts of a zone, and forged datagrams at one front in the name of the other (dns-path.md, 7.1 and 9.1).

use super::super::world::clock_at;
use super::forged::{ask, label};
use super::site::{DnsSite, Outcome};
use super::{HONEST, attacker, resolver};
use crate::table::Table;
use firstflight_dns::forward::ForwardCounters;
use firstflight_dns::front::RateLimit;
use firstflight_dns::{Boot, ForwardConfig, ForwardSender, Forwarder, Front, RelayKey, Transport};
use rand_chacha::rand_core::Rng;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Datagrams or queries a second.
const RATE: u32 = 10_000;
const KEY_ID: u8 = 5;
/// Fields of the header (section 9 of the DNS path).
const BOOT: core::ops::Range<usize> = 6..10;
const SEQUENCE: core::ops::Range<usize> = 10..16;
const TIME: core::ops::Range<usize> = 16..22;

/// What the attacker sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flood {
    Nothing,
    /// Datagrams in the other front's name, from its address, with a wrong key.
    WrongKey,
    /// Copies of the other front's datagrams.
    Copies,
    /// The other front's datagrams, with one bit changed and another number.
    Altered,
    /// First fragments of sets that never become complete, at one front, through one network.
    Strays,
    /// Such fragments in datagrams with the right key, in the other front's name. Each names another network.
    StolenKey,
}

/// The result.
#[derive(Debug)]
pub struct Happened {
    outcome: Outcome,
    /// Counters of the attacked front.
    counters: ForwardCounters,
    /// What the attacker sent.
    sent: u64,
    /// Honest fragments that were answered.
    answered: u64,
}

fn key() -> RelayKey {
    RelayKey::from_bytes(&[11; 32])
}

const fn address(front: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, front as u8)), 4455)
}

fn forwarder(front: u16, other: u16) -> Option<Forwarder> {
    let sender = ForwardSender::new(&key(), KEY_ID, front, Boot(1));
    let (others, keys) = (vec![address(other)], vec![(KEY_ID, key())]);
    Forwarder::new(ForwardConfig { others, sender, keys, per_second: ForwardConfig::PER_SECOND }).ok()
}

/// The site's front, number 1, and a second front, number 2.
struct Zone {
    site: DnsSite,
    other: Front,
    /// Datagrams of the other front, as seen by an attacker between the two.
    overheard: Vec<Vec<u8>>,
    /// The attacker's sender, if it has the key: a front that started later than the other one.
    thief: ForwardSender,
    sent: u64,
    answered: u64,
}

impl Zone {
    fn new(seed: u64) -> Option<Self> {
        let mut site = DnsSite::new(seed, RateLimit::default())?;
        let mut other = site.neighbour()?;
        site.front.forward(forwarder(1, 2)?);
        other.forward(forwarder(2, 1)?);
        let thief = ForwardSender::new(&key(), KEY_ID, 2, Boot(2));
        Some(Self { site, other, overheard: Vec::new(), thief, sent: 0, answered: 0 })
    }

    /// Delivers the fronts' datagrams to each other and to the server.
    fn exchange(&mut self) {
        let clock = clock_at(self.site.now);
        let random = &mut self.site.random;
        while let Some(due) = self.site.front.poll_forward(&clock) {
            let _ = self.other.handle_forward(&clock, address(1), &due.datagram, random);
        }
        while let Some(due) = self.other.poll_forward(&clock) {
            let _ = self.site.front.handle_forward(&clock, address(2), &due.datagram, random);
            self.overheard.push(due.datagram);
        }
        self.site.hand_over();
        while let Some(relay) = self.other.poll_relay(&clock) {
            self.site.take(&relay.datagram);
        }
    }

    /// An honest client's resolver, which asks the two fronts in turn.
    fn visit(&mut self, number: u32) {
        let (now, from) = (self.site.now, resolver(number));
        for (n, label) in self.site.set_out(number).iter().enumerate() {
            let query = ask(label, n as u16);
            let random = &mut self.site.random;
            let answer = match n % 2 {
                0 => self.site.front.handle_query(now, from, Transport::Udp, &query, random),
                _ => self.other.handle_query(now, from, Transport::Udp, &query, random),
            };
            self.answered += u64::from(answer.is_some());
            self.exchange();
        }
    }

    fn stray(&mut self) -> [u8; 58] {
        let mut number = [0; 58];
        self.site.random.fill_bytes(&mut number);
        // The first of seven fragments, first attempt, version 1.
        if let Some(place) = number.get_mut(6..8) {
            place.copy_from_slice(&[6, 1]);
        }
        number
    }

    fn attack(&mut self, flood: Flood) {
        let clock = clock_at(self.site.now);
        if flood == Flood::Strays {
            let query = ask(&label(&self.stray()), 7);
            let random = &mut self.site.random;
            self.site.front.handle_query(clock.mono, attacker(0), Transport::Udp, &query, random);
            self.sent += 1;
        } else if let Some(datagram) = self.datagram(flood) {
            let random = &mut self.site.random;
            let _ = self.site.front.handle_forward(&clock, address(2), &datagram, random);
            self.sent += 1;
        }
        self.exchange();
    }

    fn datagram(&mut self, flood: Flood) -> Option<Vec<u8>> {
        let now = clock_at(self.site.now).unix_ms;
        if flood == Flood::StolenKey {
            let IpAddr::V4(named) = attacker(self.site.random.next_u32()) else { return None };
            let content = [&named.to_ipv6_mapped().octets()[..], &self.stray()].concat();
            return self.thief.seal(&content, now);
        }
        // One of the last five, which are recent enough.
        let back = self.site.random.next_u64() as usize % 5;
        let mut datagram = self.overheard.get(self.overheard.len().checked_sub(1 + back)?)?.clone();
        let sequence = self.site.random.next_u64().to_be_bytes();
        match flood {
            Flood::WrongKey => {
                datagram.get_mut(BOOT)?.copy_from_slice(&u32::MAX.to_be_bytes());
                datagram.get_mut(SEQUENCE)?.copy_from_slice(&sequence[2..]);
                datagram.get_mut(TIME)?.copy_from_slice(&now.to_be_bytes()[2..]);
            }
            Flood::Copies => {}
            Flood::Altered => {
                let at = TIME.end + self.site.random.next_u64() as usize % (datagram.len() - TIME.end);
                *datagram.get_mut(at)? ^= 1;
                datagram.get_mut(SEQUENCE)?.copy_from_slice(&sequence[2..]);
            }
            Flood::Nothing | Flood::Strays | Flood::StolenKey => return None,
        }
        Some(datagram)
    }
}

impl Flood {
    /// Runs the flood; `None` if the site cannot be created.
    pub fn run(self, seconds: u64, seed: u64) -> Option<Happened> {
        let mut zone = Zone::new(seed)?;
        let (began, every) = (zone.site.now, Duration::from_secs(1) / RATE);
        let end = began + Duration::from_secs(seconds);
        zone.exchange();
        let mut visits = 0;
        while zone.site.now < end {
            if zone.site.now >= began + Duration::from_secs(1) * visits / HONEST {
                zone.visit(visits);
                visits += 1;
            }
            zone.attack(self);
            zone.site.run(zone.site.now + every);
        }
        for _ in 0..30 {
            zone.site.run(zone.site.now + Duration::from_secs(1));
        }
        let (counters, _) = zone.site.front.forwarding(zone.site.now)?;
        Some(Happened { outcome: zone.site.outcome(), counters, sent: zone.sent, answered: zone.answered })
    }
}

const ROWS: [(&str, Flood); 6] = [
    ("none, for comparison", Flood::Nothing),
    ("all right but the key", Flood::WrongKey),
    ("the other front's own, copied", Flood::Copies),
    ("the same, altered", Flood::Altered),
    ("queries: strays, one network", Flood::Strays),
    ("with the key: strays, 65,536 networks named", Flood::StolenKey),
];

/// The rows of the fourth table.
pub fn table(seconds: u64, seed: u64) -> Table {
    let mut table = Table::new(
        format!(
            "{RATE}/s at one of two fronts for {seconds} s, {HONEST} honest first flights/s spread over both, seed {seed}"
        ),
        &[
            "datagrams",
            "sent",
            "time",
            "old start",
            "seen",
            "forged",
            "over the limit",
            "taken",
            "forwarded",
            "honest served",
            "fragments answered",
            "executed twice",
        ],
    );
    for (name, flood) in ROWS {
        let Some(Happened { outcome: o, counters: c, sent, answered }) = flood.run(seconds, seed) else {
            continue;
        };
        table.row([
            name.into(),
            sent.into(),
            c.datagrams.time.into(),
            c.datagrams.old_boot.into(),
            (c.datagrams.replayed + c.datagrams.behind).into(),
            c.datagrams.forged.into(),
            (c.over_budget_in + c.over_budget_out).into(),
            c.taken.into(),
            c.forwarded.into(),
            format!("{}/{}", o.served, o.honest).into(),
            format!("{answered}/{}", o.fragments).into(),
            o.twice.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
