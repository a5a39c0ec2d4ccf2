//! Not an attack, but similar to one for a farm's clients: the key changes while they visit (the Fast Open paper
//! §4.2).

use super::policy;
use super::world::{Server, World, address};
use super::{Cookies, clock_at};
use crate::table::Table;
use firstflight_credential::{FarmSecret, FarmSecrets, KeySource, PendingLimit, Schedule, Scheme};
use firstflight_wire::Clock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Number of members behind one address. The load balancer sends each visit to the next member.
const MEMBERS: usize = 4;
const PERIOD: Duration = Duration::from_secs(12 * 60 * 60);
const EVERY: Duration = Duration::from_millis(500);

/// A farm and its clocks.
#[derive(Debug, Clone, Copy)]
pub struct RollOver {
    /// The difference between the members' clocks.
    pub skew: Duration,
    /// How long before its period a key is accepted.
    pub lead: Duration,
    /// Number of visits.
    pub visits: usize,
}

/// What clients noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Noticed {
    /// Visits after the first.
    pub visits: usize,
    /// Those that were answered.
    pub answered: usize,
    /// Those with data in the SYN accepted.
    pub accepted: usize,
    /// Key changes that members made.
    pub turns: usize,
}

struct Member {
    server: Option<Server>,
    /// How far it is ahead of the first member's clock.
    ahead: Duration,
    changes_at: Option<u64>,
}

impl RollOver {
    /// Runs the visits: half before the key change, half after it.
    pub fn run(self) -> Option<Noticed> {
        let secret = FarmSecret::new("lab", &[7; 32]).ok()?;
        let schedule = Schedule::new(FarmSecrets::new(secret), Scheme::Linux, PERIOD, self.lead).ok()?;
        let mut world = World::new();
        let ip = address(1);
        let period = PERIOD.as_millis() as u64;
        let half = EVERY * (self.visits / 2) as u32;
        // Choose the start of virtual time so that the key changes in the middle.
        let turn = (clock_at(world.now).unix_ms / period + 1) * period;
        let shift = turn - clock_at(world.now + half).unix_ms;
        let time = |now, ahead: Duration| {
            let clock = clock_at(now);
            Clock { unix_ms: clock.unix_ms + shift + ahead.as_millis() as u64, ..clock }
        };
        let pending = Arc::new(PendingLimit::with_clients(256, 256));
        let mut members: Vec<Member> = (0..MEMBERS)
            .map(|n| {
                world.serve(ip, 300, |config| config.fast_open = Some(policy(Cookies::Plain, &pending)));
                let ahead = self.skew * n as u32 / (MEMBERS as u32 - 1);
                Member { server: world.servers.remove(&ip), ahead, changes_at: Some(0) }
            })
            .collect();
        let client = world.client(address(0x20_0000));
        let mut noticed = Noticed::default();
        for visit in 0..self.visits {
            let member = members.get_mut(visit % MEMBERS)?;
            let mut server = member.server.take()?;
            let clock = time(world.now, member.ahead);
            if member.changes_at.is_some_and(|at| at <= clock.unix_ms) {
                let current = schedule.keys_at(&clock).ok()?;
                server.stack.set_keys(server.listener, current.ring);
                member.changes_at = current.next_change;
                noticed.turns += 1;
            }
            world.servers.insert(ip, server);
            world.visit(client, ip, visit as u128);
            world.run(world.now + EVERY);
            member.server = world.servers.remove(&ip);
        }
        let after_first = world.visits.get(1..)?;
        noticed.visits = after_first.len();
        noticed.answered = after_first.iter().filter(|v| v.first_byte.is_some()).count();
        noticed.accepted = after_first.iter().filter(|v| v.accepted).count();
        let executed: BTreeMap<_, u32> =
            members.iter().filter_map(|m| m.server.as_ref()).flat_map(|s| s.executed.clone()).collect();
        (executed.len() == self.visits).then_some(noticed)
    }
}

/// The rows of `attack roll-over`.
pub fn table() -> Table {
    let mut table = Table::new(
        format!(
            "{MEMBERS} servers behind one address, a new key every {} h, visits through a turn",
            PERIOD.as_secs() / 3600
        ),
        &["clocks apart, lead", "visits", "answered", "accepted", "rejected", "key changes"],
    );
    for (name, skew, lead) in [
        ("0 s, 300 s", 0, 300),
        ("1 s, 300 s", 1, 300),
        ("1 s, 2 s", 1, 2),
        ("5 s, 2 s: beyond the bound", 5, 2),
    ] {
        let roll =
            RollOver { skew: Duration::from_secs(skew), lead: Duration::from_secs(lead), visits: 2000 };
        let n = roll.run().unwrap_or_default();
        table.row([
            name.into(),
            n.visits.into(),
            n.answered.into(),
            n.accepted.into(),
            (n.visits - n.accepted).into(),
            n.turns.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_with_a_second_of_skew_rejects_nobody() {
        let lead = Duration::from_secs(300);
        let n = RollOver { skew: Duration::from_secs(1), lead, visits: 2000 }.run().unwrap();
        assert_eq!((n.answered, n.accepted), (1999, 1999), "{n:?}");
        assert!(n.turns >= 3 * MEMBERS, "the first keys, the lead, the turn: {n:?}");
    }

    /// The bound is sharp: beyond it cookies are refused. The visits still succeed.
    #[test]
    fn beyond_the_documented_skew_the_handshake_serves() {
        let lead = Duration::from_secs(2);
        let n = RollOver { skew: Duration::from_secs(8), lead, visits: 2000 }.run().unwrap();
        assert_eq!(n.answered, 1999);
        assert!(n.accepted < 1999, "{n:?}");
    }
}
