//! Remembers which addresses recently lost a race, so that they are tried last (RFC 8305 §4 allows historical data to
//! affect the order).

use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// How long a lost race counts. After that the caller's order applies again (RFC 6555 §4.2: on the order of 10
/// minutes).
const REMEMBERED: Duration = Duration::from_secs(10 * 60);
/// Maximum number of addresses remembered. The oldest one is forgotten first.
const CAPACITY: usize = 256;

/// A destination, the local network, and the encapsulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HistoryWay {
    network: NetworkId,
    remote: SocketAddr,
    /// The server's UDP port, if TCP is carried in UDP.
    encapsulation: Option<u16>,
}

impl HistoryWay {
    /// The local network, the destination, and the encapsulation.
    pub(crate) const fn parts(self) -> (NetworkId, SocketAddr, Option<u16>) {
        (self.network, self.remote, self.encapsulation)
    }

    pub(crate) const fn new(network: NetworkId, remote: SocketAddr, encapsulation: Option<u16>) -> Self {
        Self { network, remote, encapsulation }
    }
}

/// The losers of races.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Oldest first.
    lost: VecDeque<(HistoryWay, Instant)>,
    /// Counts changes.
    changes: u64,
}

impl History {
    #[cfg(test)]
    pub(crate) const fn new() -> Self {
        Self { lost: VecDeque::new(), changes: 0 }
    }

    /// Notes that `way` failed, or that an attempt that began later succeeded first.
    pub(crate) fn lost(&mut self, way: HistoryWay, now: Instant) {
        self.won(&way);
        self.changes += 1;
        if self.lost.len() >= CAPACITY {
            self.lost.pop_front();
        }
        self.lost.push_back((way, now));
    }

    /// Notes that `way` succeeded first.
    pub(crate) fn won(&mut self, way: &HistoryWay) {
        let before = self.lost.len();
        self.lost.retain(|(known, _)| known != way);
        self.changes += u64::from(self.lost.len() != before);
    }

    /// Whether `way` should be tried after others.
    pub(crate) fn is_slow(&self, way: &HistoryWay, now: Instant) -> bool {
        self.lost.iter().any(|(known, at)| known == way && now.saturating_since(*at) < REMEMBERED)
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.lost.clear();
        self.changes += 1;
    }

    /// Forgets what was learnt on `network`.
    pub(crate) fn leave(&mut self, network: NetworkId) {
        self.lost.retain(|(known, _)| known.network != network);
        self.changes += 1;
    }

    /// What is remembered, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(HistoryWay, Instant)> {
        self.lost.iter()
    }

    /// The number of changes.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests;
