//! What a stack holds at this moment.

use crate::server::listeners::Listeners;
use alloc::sync::Arc;
use alloc::vec::Vec;
use firstflight_credential::PendingLimit;

/// Values that go up and down. Those of listeners are sums over all listeners.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Gauges {
    /// Connections, TIME-WAIT not counted.
    pub connections: usize,
    /// Connections in TIME-WAIT.
    pub time_waits: usize,
    /// Bytes that send and receive buffers hold.
    pub buffer_bytes: usize,
    /// Packets with missing fragments.
    pub fragmented: usize,
    /// Bytes of memory that these packets take.
    pub fragment_bytes: usize,
    /// Handshakes under way at the listeners.
    pub syn_queue: usize,
    /// Connections that wait to be accepted.
    pub accept_queue: usize,
    /// First flights that wait for a verdict.
    pub deferred: usize,
    /// First flights that wait for a verdict, and accepted ones that wait for their client's ACK, including
    /// quarantined permits. A limit that several stacks share counts the permits of all of them.
    pub pending: u64,
    /// Upper limit of `pending`.
    pub pending_limit: u64,
    /// Permits of first flights that were reset, kept for a while (RFC 7413 §5.1).
    pub quarantined: usize,
}

impl Gauges {
    /// Adds what another shard holds. Limits of pending first flights that its listeners share with ours count once:
    /// the larger value counts.
    pub fn add_shard(&mut self, other: &Self) {
        let Self {
            connections,
            time_waits,
            buffer_bytes,
            fragmented,
            fragment_bytes,
            syn_queue,
            accept_queue,
            deferred,
            pending,
            pending_limit,
            quarantined,
        } = other;
        for (sum, more) in [
            (&mut self.connections, connections),
            (&mut self.time_waits, time_waits),
            (&mut self.buffer_bytes, buffer_bytes),
            (&mut self.fragmented, fragmented),
            (&mut self.fragment_bytes, fragment_bytes),
            (&mut self.syn_queue, syn_queue),
            (&mut self.accept_queue, accept_queue),
            (&mut self.deferred, deferred),
            (&mut self.quarantined, quarantined),
        ] {
            *sum += more;
        }
        self.pending = self.pending.max(*pending);
        self.pending_limit = self.pending_limit.max(*pending_limit);
    }

    /// Adds what the listeners hold.
    pub(crate) fn add_listeners(&mut self, listeners: &Listeners) {
        let mut limits: Vec<&Arc<PendingLimit>> = Vec::new();
        for listener in listeners.iter() {
            self.syn_queue += listener.syn_queue;
            self.accept_queue += listener.accept_queue.len();
            limits.extend(listener.config.pending_limits());
        }
        // Listeners of several addresses may share one limit, and so may cookies and certificates of one listener.
        limits.sort_unstable_by_key(|limit| Arc::as_ptr(limit));
        limits.dedup_by(|a, b| Arc::ptr_eq(a, b));
        for limit in limits {
            self.pending += u64::from(limit.pending());
            self.pending_limit += u64::from(limit.limit());
        }
    }
}
