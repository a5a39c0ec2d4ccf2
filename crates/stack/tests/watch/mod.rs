//! Checks that no end is silent while data waits for longer than its timers allow.

use crate::pair::{End, Pair};
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnId, ConnectionInfo};
use firstflight_tcp::rtt::MAX_RTO;
use firstflight_wire::Instant;
use std::time::Duration;

/// The stack's wheel rounds up to half a millisecond.
const SLACK: Duration = Duration::from_millis(2);

/// The largest timeout that RFC 6298 may compute from round-trip times on `path`, without backoff.
pub(crate) fn longest_timeout(path: &PathConfig) -> Duration {
    let fill =
        path.rate_bits_per_s.map_or(0.0, |rate| (path.queue_bytes + path.mtu) as f64 * 8.0 / rate as f64);
    let one_way = path.delay + path.jitter + path.reorder_delay + Duration::from_secs_f64(fill);
    // The peer's delayed acknowledgement counts, and so does the measurement in whole milliseconds.
    let rtt = one_way * 2 + Duration::from_millis(45);
    // Before the first sample the timeout is 1 s, and 3 s after a lost SYN (§5.7).
    timeout_of(rtt).max(Duration::from_secs(3))
}

/// SRTT and RTTVAR are at most the largest sample.
fn timeout_of(rtt: Duration) -> Duration {
    rtt + rtt.max(Duration::from_millis(50)) * 4
}

/// What one end was last seen doing.
pub(crate) struct Watch {
    end: End,
    longest: Duration,
    /// When the connection was first seen, and what its handshake took: its round-trip time, if a SYN-ACK was lost.
    begun: Option<Instant>,
    handshake: Duration,
    /// Packets out and in, and when that last changed.
    packets: (u64, u64),
    active: Instant,
    /// The timeout that was set at that time.
    patience: Duration,
    /// Bytes acknowledged, bytes that wait, segments retransmitted, and when that last changed.
    progress: (u64, usize, u32),
    moved: Instant,
    /// The largest timeout since then: probes of a closed window double it.
    slowest: Duration,
}

impl Watch {
    pub(crate) fn new(end: End, longest: Duration) -> Self {
        let never = Instant::ZERO;
        Self {
            end,
            longest,
            begun: None,
            handshake: Duration::ZERO,
            packets: (0, 0),
            active: never,
            patience: Duration::ZERO,
            progress: (0, 0, 0),
            moved: never,
            slowest: Duration::ZERO,
        }
    }

    /// Checks the connection. Returns what is wrong if it stalls.
    pub(crate) fn look(&mut self, pair: &Pair, id: ConnId) -> Option<String> {
        let begun = *self.begun.get_or_insert(pair.now);
        let stack = if self.end == End::Client { &pair.client } else { &pair.server };
        let info = stack.info(id)?;
        let counters = stack.counters();
        let packets = (counters.packets_out, counters.packets_in);
        let progress = (info.totals.bytes_acked, info.unacknowledged, info.totals.retransmits);
        if packets != self.packets {
            (self.packets, self.active, self.patience) = (packets, pair.now, info.rto);
        }
        if progress != self.progress {
            (self.progress, self.moved, self.slowest) = (progress, pair.now, info.rto);
        }
        self.slowest = self.slowest.max(info.rto);
        if !info.confirmed {
            self.handshake = pair.now - begun;
        }
        if !info.confirmed || info.unacknowledged == 0 {
            (self.active, self.moved, self.patience) = (pair.now, pair.now, info.rto);
            return None;
        }
        self.judge(&info, pair.now)
    }

    fn judge(&self, info: &ConnectionInfo, now: Instant) -> Option<String> {
        let end = self.end;
        let longest = self.longest.max(timeout_of(self.handshake + self.longest));
        let silent = now - self.active;
        // The timer runs from the time when it was set, with the timeout of that time, which may have become
        // smaller since.
        let patience = self.patience.max(self.slowest).min(MAX_RTO);
        if silent > patience + SLACK {
            return Some(format!("{end:?} is silent for {silent:?}, its timeout was {patience:?}: {info:?}"));
        }
        // Doubling timeouts add up to twice the last one, below the largest. A tail loss probe may come first.
        let stuck = now - self.moved;
        let slowest = self.slowest;
        (slowest < MAX_RTO && stuck > slowest * 2 + longest)
            .then(|| format!("{end:?} is stuck for {stuck:?}, its timeout was {slowest:?}: {info:?}"))
    }
}
