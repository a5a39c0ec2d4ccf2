//! A second connection where the first is slow to open: Chromium's backup job (`ClientSocketPool::Group`).
//!
//! When a host has no connection and is asked for one, a timer begins. If the oldest of its connections still opens when the
//! timer fires, and a request waits, another is opened. The request takes the one that is ready first; the other stays for
//! later requests.

use super::connection::Connection;
use super::{Browser, CONNECTIONS};
use crate::pair::Pair;
use firstflight_wire::Instant;
use std::time::Duration;

/// Until the second connection (`kMaxConnectRetryIntervalMs`).
const AFTER: Duration = Duration::from_millis(250);

impl Browser<'_> {
    /// A request needs a connection to `host`, which has none.
    pub(super) fn watch(&mut self, host: usize, now: Instant) {
        // A Fast Open socket counts as connected at once, and HTTP/2 needs one connection.
        if !self.way.binds_early() && !self.way.multiplexed && !self.of_host(host).any(|_| true) {
            self.backups[host].get_or_insert(now + AFTER);
        }
    }

    /// Opens the connections whose time has come. `waiting` requests of each host have no connection.
    pub(super) fn back_up(&mut self, waiting: &[usize], net: &mut Pair) {
        for (host, waiting) in waiting.iter().enumerate() {
            let Some(at) = self.backups[host] else { continue };
            let resolved = self.is_resolved(host);
            let oldest = self.of_host(host).find(|connection| !connection.is_open());
            if *waiting == 0 || (resolved && oldest.is_none()) {
                self.backups[host] = None;
            } else if at <= net.now {
                let connected = oldest.is_some_and(Connection::is_connected);
                let full = self.of_host(host).count() >= CONNECTIONS;
                self.backups[host] = (full || !resolved).then(|| net.now + AFTER).filter(|_| !connected);
                if resolved && !full && !connected {
                    self.counts.backups += 1;
                    self.open_idle(host, net);
                }
            }
        }
    }

    fn of_host(&self, host: usize) -> impl Iterator<Item = &Connection> {
        self.connections.iter().filter(move |connection| connection.host == host)
    }
}
