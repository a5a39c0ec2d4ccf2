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
mod tests;
