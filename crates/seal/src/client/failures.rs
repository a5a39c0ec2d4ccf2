//! Where flights fail (7.4).

use crate::defence::{Defence, on};
use core::hash::Hash;
use core::num::NonZeroUsize;
use firstflight_wire::Instant;
use lru::LruCache;
use std::time::Duration;

/// The memory of failures. `Network` and `Server` identify a network and, in it, a server. Bounded: the least recently
/// used are forgotten.
///
/// A failure counts as soon as it happens, and is *open* until an ordinary connection to the same server tells what it was:
/// [`Failures::ordinary_worked`] if it works, so the flight was the reason; [`Failures::ordinary_failed`] if it fails as
/// well, so the server or the path is down. Only what was confirmed says anything about the network.
#[derive(Debug)]
pub struct Failures<Network: Hash + Eq, Server: Hash + Eq> {
    servers: LruCache<(Network, Server), Row>,
    networks: LruCache<Network, Whole>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    /// Confirmed failures in a row.
    confirmed: u8,
    /// Open ones behind them.
    open: u8,
    /// When the last open one happened.
    last: Option<Instant>,
    stopped_until: Option<Instant>,
    /// The same for confirmed failures alone.
    confirmed_until: Option<Instant>,
    /// Until when its key counts as a forged one.
    misbehaved_until: Option<Instant>,
}

/// What is known of a network as a whole.
#[derive(Debug, Clone, Copy, Default)]
struct Whole {
    /// Until when it is known to carry flights.
    carries_until: Option<Instant>,
    stopped_until: Option<Instant>,
}

fn lasts(until: Option<Instant>, now: Instant) -> bool {
    until.is_some_and(|until| now < until)
}

impl<Network: Hash + Eq + Clone, Server: Hash + Eq + Clone> Failures<Network, Server> {
    /// How long no flight is sent to a server.
    pub const STOP: Duration = Duration::from_secs(24 * 3600);
    /// How long no flight is sent on a network.
    pub const NETWORK_STOP: Duration = Duration::from_secs(3600);
    /// How long a network that has carried a flight is not stopped.
    pub const CARRIES: Duration = Duration::from_secs(24 * 3600);
    /// How long after a flight has failed an ordinary connection still tells why.
    pub const SAME_TIME: Duration = Duration::from_secs(600);
    /// Failures in a row that stop a server.
    const OF_A_SERVER: u8 = 2;
    /// Stopped servers that stop a network.
    const OF_A_NETWORK: usize = 3;
    const REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

    /// Nothing has failed yet.
    #[must_use]
    pub fn new() -> Self {
        Self { servers: LruCache::new(Self::REMEMBERED), networks: LruCache::new(Self::REMEMBERED) }
    }

    /// Whether a flight may be sent.
    #[must_use]
    pub fn allows(&self, network: &Network, server: &Server, now: Instant) -> bool {
        let whole = self.networks.peek(network).and_then(|whole| whole.stopped_until);
        let row = self.servers.peek(&(network.clone(), server.clone()));
        !lasts(whole, now) && !lasts(row.and_then(|row| row.stopped_until), now)
    }

    /// Whether a flight with a hidden name may be sent (7.5). Nothing else could be sent in its place, so only a wrong
    /// selection stops it.
    pub fn allows_hidden(&self, network: &Network, server: &Server, now: Instant) -> bool {
        let row = self.servers.peek(&(network.clone(), server.clone()));
        !lasts(row.and_then(|row| row.misbehaved_until), now)
    }

    /// No valid Finished of the server answered a flight.
    pub fn failed(&mut self, network: &Network, server: &Server, now: Instant) {
        let row = self.row(network, server);
        row.open = row.open.saturating_add(1);
        row.last = Some(now);
        // After a stop one failure stops again.
        if row.confirmed.saturating_add(row.open) >= Self::OF_A_SERVER {
            row.stopped_until = Some(now + Self::STOP);
        }
        if !on(Defence::Outage) {
            self.ordinary_worked(network, server, now);
        }
    }

    /// The server selected another ALPN name (4.4): its key may be a forged one.
    pub fn misbehaved(&mut self, network: &Network, server: &Server, now: Instant) {
        let row = self.row(network, server);
        row.confirmed = row.confirmed.saturating_add(Self::OF_A_SERVER);
        row.confirmed_until = Some(now + Self::STOP);
        row.stopped_until = row.confirmed_until;
        row.misbehaved_until = row.confirmed_until;
    }

    /// A flight was taken. So this network carries flights, and nothing that other servers do stops them here for a day.
    pub fn worked(&mut self, network: &Network, server: &Server, now: Instant) {
        self.servers.pop(&(network.clone(), server.clone()));
        let whole = Whole { carries_until: Some(now + Self::CARRIES), stopped_until: None };
        self.networks.put(network.clone(), whole);
    }

    /// An ordinary connection to the server works: flights that failed before it failed because they were flights.
    pub fn ordinary_worked(&mut self, network: &Network, server: &Server, now: Instant) {
        let Some(row) = self.servers.get_mut(&(network.clone(), server.clone())) else { return };
        if row.open == 0 {
            return;
        }
        row.confirmed = row.confirmed.saturating_add(core::mem::take(&mut row.open));
        row.confirmed_until = row.stopped_until;
        if !lasts(row.confirmed_until, now) {
            return;
        }
        let whole = self.networks.peek(network).copied().unwrap_or_default();
        let stopped = self.servers.iter().filter(|((here, _), row)| {
            here == network && lasts(row.confirmed_until, now) && !lasts(row.misbehaved_until, now)
        });
        let carries = lasts(whole.carries_until, now) && on(Defence::NetworkCarries);
        if stopped.count() >= Self::OF_A_NETWORK && !carries {
            let whole = Whole { stopped_until: Some(now + Self::NETWORK_STOP), ..whole };
            self.networks.put(network.clone(), whole);
        }
    }

    /// An ordinary connection to the server cannot be made either: flights that failed within [`Failures::SAME_TIME`] before
    /// it say nothing.
    pub fn ordinary_failed(&mut self, network: &Network, server: &Server, now: Instant) {
        let Some(row) = self.servers.get_mut(&(network.clone(), server.clone())) else { return };
        if row.last.is_some_and(|last| now <= last + Self::SAME_TIME) {
            row.open = 0;
            row.stopped_until = row.confirmed_until;
        }
    }

    fn row(&mut self, network: &Network, server: &Server) -> &mut Row {
        self.servers.get_or_insert_mut((network.clone(), server.clone()), Row::default)
    }
}

impl<Network: Hash + Eq + Clone, Server: Hash + Eq + Clone> Default for Failures<Network, Server> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_secs(10);
    const DAY: Instant = Instant::from_secs(10 + 24 * 3600);
    const HOUR: Instant = Instant::from_secs(10 + 3600);

    type Memory = Failures<i32, &'static str>;

    /// Two flights fail, while ordinary connections work.
    fn stop(failures: &mut Memory, network: i32, server: &'static str, now: Instant) {
        for _ in 0..2 {
            failures.failed(&network, &server, now);
            failures.ordinary_worked(&network, &server, now);
        }
    }

    #[test]
    fn two_in_a_row_stop_a_server_for_a_day() {
        let mut failures = Memory::new();
        failures.failed(&1, &"a", NOW);
        failures.worked(&1, &"a", NOW);
        failures.failed(&1, &"a", NOW);
        assert!(failures.allows(&1, &"a", NOW));
        failures.failed(&1, &"a", NOW);
        assert!(
            !failures.allows(&1, &"a", NOW)
                && failures.allows(&1, &"b", NOW)
                && failures.allows(&2, &"a", NOW)
        );
        assert!(failures.allows(&1, &"a", DAY));
        failures.ordinary_worked(&1, &"a", NOW);
        failures.failed(&1, &"a", DAY);
        assert!(!failures.allows(&1, &"a", DAY), "one failure stops it again");
        failures.misbehaved(&1, &"b", NOW);
        assert!(!failures.allows(&1, &"b", NOW));
    }

    #[test]
    fn only_a_wrong_selection_stops_a_hidden_name() {
        let mut failures = Memory::new();
        for server in ["a", "b", "c"] {
            stop(&mut failures, 1, server, NOW);
            assert!(!failures.allows(&1, &server, NOW) && failures.allows_hidden(&1, &server, NOW));
        }
        failures.misbehaved(&1, &"a", NOW);
        assert!(!failures.allows_hidden(&1, &"a", NOW) && failures.allows_hidden(&1, &"a", DAY));
        assert!(failures.allows_hidden(&2, &"a", NOW) && failures.allows_hidden(&1, &"b", NOW));
    }

    /// A network that has carried nothing yet is stopped for an hour.
    #[test]
    fn three_servers_stop_a_network_for_an_hour() {
        let mut failures = Memory::new();
        for server in ["a", "b", "c"] {
            assert!(failures.allows(&1, &"d", NOW), "{server}");
            stop(&mut failures, 1, server, NOW);
        }
        assert!(!failures.allows(&1, &"d", NOW) && failures.allows(&2, &"d", NOW));
        assert!(failures.allows(&1, &"d", HOUR) && !failures.allows(&1, &"a", HOUR));
        // One more is enough then, unless a flight works first.
        stop(&mut failures, 1, "d", HOUR);
        assert!(!failures.allows(&1, &"e", HOUR));
        failures.worked(&1, &"e", HOUR);
        stop(&mut failures, 1, "f", HOUR);
        assert!(failures.allows(&1, &"e", HOUR) && !failures.allows(&1, &"f", HOUR));
        // Wrong selections are about keys, not about the network.
        for server in ["g", "h", "i"] {
            failures.misbehaved(&2, &server, NOW);
        }
        stop(&mut failures, 2, "j", NOW);
        assert!(failures.allows(&2, &"d", NOW));
    }

    #[test]
    fn an_outage_is_taken_back_and_only_that() {
        let mut failures = Memory::new();
        for _ in 0..9 {
            failures.failed(&1, &"a", NOW);
            failures.ordinary_failed(&1, &"a", NOW);
            assert!(failures.allows(&1, &"a", NOW));
        }
        // Without an ordinary connection it counts until one tells.
        failures.failed(&1, &"a", NOW);
        failures.failed(&1, &"a", NOW);
        assert!(!failures.allows(&1, &"a", NOW));
        failures.ordinary_failed(&1, &"a", NOW + Memory::SAME_TIME);
        assert!(failures.allows(&1, &"a", NOW));
        // What was confirmed stays, and what is long ago.
        stop(&mut failures, 1, "a", NOW);
        failures.ordinary_failed(&1, &"a", NOW);
        assert!(!failures.allows(&1, &"a", NOW));
        failures.failed(&1, &"b", NOW);
        failures.failed(&1, &"b", NOW);
        failures.ordinary_failed(&1, &"b", HOUR);
        assert!(!failures.allows(&1, &"b", HOUR));
        // One confirmed failure and one of an outage.
        failures.failed(&1, &"c", NOW);
        failures.ordinary_worked(&1, &"c", NOW);
        failures.failed(&1, &"c", NOW);
        failures.ordinary_failed(&1, &"c", NOW);
        assert!(failures.allows(&1, &"c", NOW));
        failures.failed(&1, &"c", NOW);
        assert!(!failures.allows(&1, &"c", NOW));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut failures = Failures::new();
        for server in 0..5000 {
            failures.misbehaved(&server, &server, NOW);
            failures.worked(&server, &(server + 1), NOW);
        }
        assert!(failures.servers.len() <= 1024 && failures.networks.len() <= 1024);
    }
}
