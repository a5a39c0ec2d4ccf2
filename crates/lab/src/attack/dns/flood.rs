//! Floods of fragments, forged and copied, while honest clients send first flights through other resolvers.

use super::site::{DnsSite, Outcome};
use super::{HONEST, RESOLVERS, attacker, forged, resolver};
use crate::table::Table;
use firstflight_dns::front::RateLimit;
use firstflight_dns::{Attempt, Fragments, LABEL, Sealed};
use rand_chacha::rand_core::Rng;
use std::net::IpAddr;
use std::time::Duration;

/// Queries a second of a flood.
const RATE: u32 = 10_000;
/// Fragments of a forged set.
const PARTS: u8 = 7;
/// When a first flight is repeated, milliseconds after it was first sent. A set is kept for 3 s, and a request is
/// valid for 30 s.
const AGAIN_MS: [u64; 5] = [50, 2_000, 3_500, 8_000, 20_000];
/// Number of resolvers that send a copy.
const COPIES: u32 = 8;

/// What the attacker sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgery {
    Nothing,
    /// One fragment each of sets that never become complete. Some of them may have the id of a set that is under way.
    Strays,
    /// Complete sets whose id does not match their content.
    WrongIds,
    /// Complete sets with the right id, whose content is not sealed.
    Unsealed,
}

/// A flood, and what is done to honest first flights at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// What is sent continuously.
    pub forgery: Forgery,
    /// The number of networks that it comes from.
    pub networks: u32,
    /// The number of resolvers that honest clients use.
    pub resolvers: u32,
    /// An attacker that sees the first fragment of an honest first flight replaces the last fragment.
    pub poisons: bool,
    /// All fragments of honest first flights are repeated, and again later, through other resolvers.
    pub copies: bool,
    /// The duration, seconds.
    pub seconds: u64,
}

/// Makes the queries of a flood, one after the other.
struct Queries {
    flood: Flood,
    sent: u32,
    /// The rest of a set, and its source.
    set: Vec<[u8; LABEL]>,
    from: IpAddr,
}

impl Queries {
    fn send(&mut self, site: &mut DnsSite) {
        if self.set.is_empty() {
            self.from = attacker(self.sent % self.flood.networks);
            self.set = set(self.flood.forgery, site);
        }
        if let Some(label) = self.set.pop() {
            site.ask(self.from, forged::ask(&label, self.sent as u16), Duration::ZERO);
        }
        self.sent += 1;
    }
}

fn set(forgery: Forgery, site: &mut DnsSite) -> Vec<[u8; LABEL]> {
    let id = forged::id(&mut site.random);
    match forgery {
        Forgery::Nothing => Vec::new(),
        Forgery::Strays => vec![forged::fragment(id, 0, &mut site.random)],
        Forgery::WrongIds => (0..PARTS).map(|index| forged::fragment(id, index, &mut site.random)).collect(),
        Forgery::Unsealed => {
            let mut bytes = [0; 300];
            site.random.fill_bytes(&mut bytes);
            // The number of the key, so that opening is attempted.
            bytes[0] = 1;
            let sealed = Sealed::new(&bytes);
            sealed
                .map_or_else(Vec::new, |s| Fragments::split(&s, Attempt::default(), false).labels().collect())
        }
    }
}

impl Flood {
    /// Runs the flood; `None` if the site cannot be created.
    pub fn run(self, seed: u64) -> Option<Outcome> {
        let mut site = DnsSite::new(seed, RateLimit::default())?;
        let (began, every) = (site.now, Duration::from_secs(1) / RATE);
        let end = began + Duration::from_secs(self.seconds);
        let mut queries = Queries { flood: self, sent: 0, set: Vec::new(), from: attacker(0) };
        let mut visits = 0;
        while site.now < end {
            if site.now >= began + Duration::from_secs(1) * visits / HONEST {
                let arriving = site.visit(visits, resolver(visits % self.resolvers));
                self.meddle(&mut site, visits, arriving);
                visits += 1;
            }
            if self.forgery != Forgery::Nothing {
                queries.send(&mut site);
            }
            site.run(site.now + every);
        }
        // Wait for the last copies and the server's timers.
        for _ in 0..30 {
            site.run(site.now + Duration::from_secs(1));
        }
        Some(site.outcome())
    }

    /// Attacks an honest first flight whose labels arrive at these times.
    fn meddle(self, site: &mut DnsSite, number: u32, mut arriving: Vec<(Duration, [u8; LABEL])>) {
        arriving.sort_unstable_by_key(|(delay, _)| *delay);
        if self.poisons
            && let (Some((first, label)), Some((_, last))) = (arriving.first(), arriving.last())
        {
            let (seen, replaced) = (forged::bytes(label), forged::bytes(last));
            let forged = forged::fragment(forged::id_of(&seen), replaced[6] >> 4, &mut site.random);
            let query = forged::ask(&forged, 0);
            site.ask(attacker(number), query, *first + Duration::from_micros(1));
        }
        if self.copies {
            for (again, attempt) in AGAIN_MS.into_iter().zip(0..) {
                for copy in 0..COPIES {
                    for (_, label) in &arriving {
                        // Another attempt number gives another name with the same content.
                        let mut bytes = forged::bytes(label);
                        bytes[7] = attempt << 4 | 1;
                        let query = forged::ask(&forged::label(&bytes), copy as u16);
                        site.ask(attacker(COPIES * number + copy), query, Duration::from_millis(again));
                    }
                }
            }
        }
    }
}

const NOTHING: Flood = Flood {
    forgery: Forgery::Nothing,
    networks: 1,
    resolvers: RESOLVERS,
    poisons: false,
    copies: false,
    seconds: 20,
};
const MANY: u32 = 65_536;
const ROWS: [(&str, Flood); 12] = [
    ("none, for comparison", NOTHING),
    ("strays, one network", Flood { forgery: Forgery::Strays, ..NOTHING }),
    ("strays, 16 networks", Flood { forgery: Forgery::Strays, networks: 16, ..NOTHING }),
    ("strays, 4,000 networks", Flood { forgery: Forgery::Strays, networks: 4000, ..NOTHING }),
    ("strays, 65,536 networks", Flood { forgery: Forgery::Strays, networks: MANY, ..NOTHING }),
    (
        "the same, one resolver for all clients",
        Flood { forgery: Forgery::Strays, networks: MANY, resolvers: 1, ..NOTHING },
    ),
    (
        "whole sets, wrong ids, 4,000 networks",
        Flood { forgery: Forgery::WrongIds, networks: 4000, ..NOTHING },
    ),
    ("whole sets that nobody sealed, one network", Flood { forgery: Forgery::Unsealed, ..NOTHING }),
    ("the same, 4,000 networks", Flood { forgery: Forgery::Unsealed, networks: 4000, ..NOTHING }),
    ("another fragment under a known id", Flood { poisons: true, ..NOTHING }),
    ("all copied, five times, 8 resolvers", Flood { copies: true, ..NOTHING }),
    (
        "the same, and strays of 65,536 networks",
        Flood { copies: true, forgery: Forgery::Strays, networks: MANY, ..NOTHING },
    ),
];

/// The rows of the second table.
pub fn table(seconds: u64, seed: u64) -> Table {
    let mut table = Table::new(
        format!(
            "{RATE} queries/s with fragments for {seconds} s, {HONEST} honest first flights/s through {RESOLVERS} \
             other resolvers, seed {seed}"
        ),
        &[
            "attack",
            "queries",
            "out per in",
            "sets max",
            "table max, KiB",
            "opened",
            "honest served",
            "answered",
            "handed over again",
            "executed twice",
        ],
    );
    for (name, flood) in ROWS {
        let Some(o) = (Flood { seconds, ..flood }).run(seed) else { continue };
        table.row([
            name.into(),
            o.attack.queries.into(),
            o.attack.factor().into(),
            o.sets.into(),
            o.table_bytes.div_ceil(1024).into(),
            o.opened.into(),
            format!("{}/{}", o.served, o.honest).into(),
            format!("{}/{}", o.answered, o.fragments).into(),
            o.handed_again.into(),
            o.twice.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
