//! Ports that refused an ordinary SYN. The next visit asks with an ordinary SYN, which is refused at once.

use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// Ports remembered, and for how long. The oldest refusal is forgotten first.
const CAPACITY: usize = 64;
const LASTS: Duration = Duration::from_secs(60);

/// The ports, the oldest refusal first.
#[derive(Debug, Default)]
pub(crate) struct ClosedPorts {
    closed: VecDeque<(NetworkId, SocketAddr, Instant)>,
    /// Counts changes.
    changes: u64,
}

impl ClosedPorts {
    /// `remote` refused an ordinary SYN.
    pub(crate) fn note(&mut self, network: NetworkId, remote: SocketAddr, at: Instant) {
        self.opened(network, remote);
        if self.closed.len() >= CAPACITY {
            self.closed.pop_front();
        }
        self.closed.push_back((network, remote, at));
        self.changes += 1;
    }

    /// A connection to `remote` is open.
    pub(crate) fn opened(&mut self, network: NetworkId, remote: SocketAddr) {
        let before = self.closed.len();
        self.closed.retain(|(net, closed, _)| (*net, *closed) != (network, remote));
        self.changes += u64::from(self.closed.len() != before);
    }

    /// Whether `remote` refused an ordinary SYN lately.
    pub(crate) fn contains(&self, network: NetworkId, remote: SocketAddr, now: Instant) -> bool {
        self.closed.iter().any(|(net, closed, at)| {
            (*net, *closed) == (network, remote) && now.saturating_since(*at) < LASTS
        })
    }

    pub(crate) fn clear(&mut self) {
        self.closed.clear();
        self.changes += 1;
    }

    /// Forgets what was learnt on `network`.
    pub(crate) fn leave(&mut self, network: NetworkId) {
        self.closed.retain(|(known, ..)| *known != network);
        self.changes += 1;
    }

    /// What is remembered, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(NetworkId, SocketAddr, Instant)> {
        self.closed.iter()
    }

    /// The number of changes.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_a_port_counts_for_a_minute() {
        let (mut ports, now) = (ClosedPorts::default(), Instant::from_secs(1000));
        let port = |n| SocketAddr::from(([192, 0, 2, 1], n));
        for n in 0..=CAPACITY as u16 {
            ports.note(NetworkId::UNKNOWN, port(n), now);
        }
        assert_eq!(ports.closed.len(), CAPACITY);
        assert!(!ports.contains(NetworkId::UNKNOWN, port(0), now));
        assert!(ports.contains(NetworkId::UNKNOWN, port(1), now + LASTS - Duration::from_nanos(1)));
        assert!(!ports.contains(NetworkId::UNKNOWN, port(1), now + LASTS));
    }
}
