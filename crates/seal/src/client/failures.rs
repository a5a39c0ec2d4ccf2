//! Where flights fail (7.4).

use core::hash::Hash;
use core::num::NonZeroUsize;
use firstflight_wire::Instant;
use lru::LruCache;
use std::time::Duration;

/// The memory of failures. `Network` and `Server` identify a network and, in it, a server. Bounded: the least recently
/// used are forgotten.
#[derive(Debug)]
pub struct Failures<Network: Hash + Eq, Server: Hash + Eq> {
    servers: LruCache<(Network, Server), Row>,
    networks: LruCache<Network, Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    in_a_row: u8,
    stopped_until: Option<Instant>,
    /// Until when its key counts as a forged one.
    misbehaved_until: Option<Instant>,
}

impl<Network: Hash + Eq + Clone, Server: Hash + Eq + Clone> Failures<Network, Server> {
    /// How long no flight is sent.
    pub const STOP: Duration = Duration::from_secs(24 * 3600);
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
        let network_open = self.networks.peek(network).is_none_or(|&until| now >= until);
        let row = self.servers.peek(&(network.clone(), server.clone()));
        network_open && row.and_then(|row| row.stopped_until).is_none_or(|until| now >= until)
    }

    /// Whether a flight with a hidden name may be sent (7.5). Nothing else could be sent in its place, so only a wrong
    /// selection stops it.
    pub fn allows_hidden(&self, network: &Network, server: &Server, now: Instant) -> bool {
        let row = self.servers.peek(&(network.clone(), server.clone()));
        row.and_then(|row| row.misbehaved_until).is_none_or(|until| now >= until)
    }

    /// No valid Finished of the server answered a flight.
    pub fn failed(&mut self, network: &Network, server: &Server, now: Instant) {
        self.add(network, server, 1, now);
    }

    /// The server selected another ALPN name (4.4): its key may be a forged one.
    pub fn misbehaved(&mut self, network: &Network, server: &Server, now: Instant) {
        self.add(network, server, Self::OF_A_SERVER, now);
        if let Some(row) = self.servers.get_mut(&(network.clone(), server.clone())) {
            row.misbehaved_until = Some(now + Self::STOP);
        }
    }

    /// A flight was taken.
    pub fn worked(&mut self, network: &Network, server: &Server) {
        self.servers.pop(&(network.clone(), server.clone()));
    }

    fn add(&mut self, network: &Network, server: &Server, failures: u8, now: Instant) {
        let fresh = || Row { in_a_row: 0, stopped_until: None, misbehaved_until: None };
        let row = self.servers.get_or_insert_mut((network.clone(), server.clone()), fresh);
        // After a stop one failure stops again.
        row.in_a_row = row.in_a_row.saturating_add(failures);
        if row.in_a_row < Self::OF_A_SERVER {
            return;
        }
        row.stopped_until = Some(now + Self::STOP);
        let stopped = self
            .servers
            .iter()
            .filter(|((here, _), row)| here == network && row.stopped_until.is_some_and(|until| now < until));
        if stopped.count() >= Self::OF_A_NETWORK {
            self.networks.put(network.clone(), now + Self::STOP);
        }
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

    #[test]
    fn two_in_a_row_stop_a_server_for_a_day() {
        let mut failures = Failures::new();
        failures.failed(&1, &"a", NOW);
        failures.worked(&1, &"a");
        failures.failed(&1, &"a", NOW);
        assert!(failures.allows(&1, &"a", NOW));
        failures.failed(&1, &"a", NOW);
        assert!(
            !failures.allows(&1, &"a", NOW)
                && failures.allows(&1, &"b", NOW)
                && failures.allows(&2, &"a", NOW)
        );
        let day = NOW + Failures::<i32, &str>::STOP;
        assert!(failures.allows(&1, &"a", day));
        failures.failed(&1, &"a", day);
        assert!(!failures.allows(&1, &"a", day), "one failure stops it again");
        failures.misbehaved(&1, &"b", NOW);
        assert!(!failures.allows(&1, &"b", NOW));
    }

    #[test]
    fn only_a_wrong_selection_stops_a_hidden_name() {
        let mut failures = Failures::new();
        for server in ["a", "b", "c"] {
            failures.failed(&1, &server, NOW);
            failures.failed(&1, &server, NOW);
            assert!(!failures.allows(&1, &server, NOW) && failures.allows_hidden(&1, &server, NOW));
        }
        failures.misbehaved(&1, &"a", NOW);
        let day = NOW + Failures::<i32, &str>::STOP;
        assert!(!failures.allows_hidden(&1, &"a", NOW) && failures.allows_hidden(&1, &"a", day));
        assert!(failures.allows_hidden(&2, &"a", NOW) && failures.allows_hidden(&1, &"b", NOW));
    }

    #[test]
    fn three_servers_stop_a_network() {
        let mut failures = Failures::new();
        for server in ["a", "b", "c"] {
            assert!(failures.allows(&1, &"d", NOW), "{server}");
            failures.failed(&1, &server, NOW);
            failures.failed(&1, &server, NOW);
        }
        assert!(!failures.allows(&1, &"d", NOW) && failures.allows(&2, &"d", NOW));
        assert!(failures.allows(&1, &"d", NOW + Failures::<i32, &str>::STOP));
        for server in 0..10_000 {
            let mut many = Failures::new();
            many.failed(&0, &server, NOW);
            assert!(many.servers.len() == 1);
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut failures = Failures::new();
        for server in 0..5000 {
            failures.misbehaved(&server, &server, NOW);
        }
        assert!(failures.servers.len() <= 1024 && failures.networks.len() <= 1024);
    }
}
