//! The packets of a send buffer as the kernel would have cut them. Each costs more memory than its data.

use std::collections::VecDeque;

/// The memory of a packet in addition to its data (`SKB_TRUESIZE` of one without fragments), bytes.
const OVERHEAD: usize = 1280;

/// A packet: data that leaves together and that the network card cuts into segments.
#[derive(Debug, Clone, Copy)]
struct Packet {
    len: usize,
    /// When it left, µs.
    sent: Option<u64>,
    /// Nothing may be added to it (MSG_EOR).
    complete: bool,
}

/// The state of the path when packets leave.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    /// Data of a segment, bytes.
    pub segment: usize,
    /// Maximum number of segments in a packet.
    pub burst: usize,
    /// The congestion window, segments.
    pub cwnd: usize,
    /// Segments under way (`tcp_packets_in_flight`), including all that the stack has sent.
    pub in_flight: usize,
    /// Space in the peer's window after all that the stack has sent, bytes.
    pub window: usize,
    /// The peer's window, bytes.
    pub offered: usize,
    /// The smoothed round-trip time, µs.
    pub srtt: u64,
    /// Now, µs.
    pub now: u64,
    /// Whether loss recovery is in progress.
    pub recovering: bool,
    /// The stream ends at the last packet, so nothing is added to it.
    pub closed: bool,
}

/// The packets of one socket: first those that left and are not acknowledged, then those that wait.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    packets: VecDeque<Packet>,
    len: usize,
    unsent: usize,
    /// When a packet last left, µs.
    left: u64,
}

impl Queue {
    /// The memory of all packets (`sk_wmem_queued`), bytes.
    pub(crate) fn cost(&self) -> usize {
        self.len + self.packets.len() * OVERHEAD
    }

    /// Bytes that have not left.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent
    }

    /// How many bytes can be added to the last packet, if packets hold up to `goal` bytes.
    pub(crate) fn rest(&self, goal: usize) -> usize {
        let last = self.packets.back().filter(|packet| packet.sent.is_none() && !packet.complete);
        last.map_or(0, |packet| goal.saturating_sub(packet.len))
    }

    /// The application wrote `len` bytes, not more than fit into a packet of `goal` bytes.
    pub(crate) fn append(&mut self, len: usize, goal: usize) {
        if len == 0 {
            return;
        }
        (self.len, self.unsent) = (self.len + len, self.unsent + len);
        if len <= self.rest(goal)
            && let Some(last) = self.packets.back_mut()
        {
            last.len += len;
            return;
        }
        self.packets.push_back(Packet { len, sent: None, complete: false });
    }

    /// Prevents adding to the last packet.
    pub(crate) fn complete(&mut self) {
        if let Some(last) = self.packets.back_mut() {
            last.complete = true;
        }
    }

    /// Updates the queue: the stack holds `queued` bytes and has not sent `unsent` of them. Acknowledged data is
    /// removed, and data that left is cut as the kernel does.
    pub(crate) fn follow(&mut self, queued: usize, unsent: usize, path: &Path) {
        if queued > self.len {
            // Data in the SYN is not a write.
            self.append(queued - self.len, usize::MAX);
        }
        self.acknowledged(self.len - queued);
        while self.unsent > unsent {
            let Some(at) = self.packets.iter().position(|packet| packet.sent.is_none()) else { break };
            let held = self.unsent - unsent;
            if self.is_deferred(at, held, path) {
                break;
            }
            self.leave(at, held.min(path.burst.max(1) * path.segment.max(1)), path.now);
        }
    }

    /// Removes `len` acknowledged bytes. If a packet is acknowledged in part, its rest stays.
    fn acknowledged(&mut self, mut len: usize) {
        self.len -= len;
        while let Some(first) = self.packets.front_mut().filter(|_| len > 0) {
            let part = first.len.min(len);
            (first.len, len) = (first.len - part, len - part);
            if first.sent.is_none() {
                self.unsent -= part;
            }
            if first.len == 0 {
                self.packets.pop_front();
            }
        }
    }

    /// Sends up to `most` bytes of the packet `at`. The rest becomes a separate packet (`tso_fragment`).
    fn leave(&mut self, at: usize, most: usize, now: u64) {
        let Some(packet) = self.packets.get_mut(at) else { return };
        let rest = Packet { len: packet.len.saturating_sub(most), ..*packet };
        (packet.len, packet.sent) = (packet.len.min(most), Some(now));
        (self.unsent, self.left) = (self.unsent - packet.len, now);
        if rest.len > 0 {
            self.packets.insert(at + 1, rest);
        }
    }

    /// Whether the kernel would wait for more acknowledgements before it sends the packet `at`, although it could
    /// send `held` bytes of it and the following packets (`tcp_tso_should_defer`).
    fn is_deferred(&self, at: usize, held: usize, path: &Path) -> bool {
        let Some(packet) = self.packets.get(at) else { return false };
        let Some(first) = self.packets.front().and_then(|first| first.sent) else { return false };
        if packet.len <= path.segment || path.recovering || path.now > self.left + 1000 {
            return false;
        }
        let in_flight = path.in_flight.saturating_sub(held.div_ceil(path.segment));
        let by_window = path.window + held;
        let by_cwnd = path.cwnd.saturating_sub(in_flight) * path.segment;
        let most = by_window.min(by_cwnd);
        let last = at + 1 == self.packets.len();
        let third = path.offered.min(path.cwnd * path.segment) / 3;
        if most >= path.burst * path.segment || !last && most >= packet.len || most >= third {
            return false;
        }
        // The next acknowledgement is at least half a round trip away.
        if path.now - first < path.srtt / 2 {
            return false;
        }
        most <= packet.len || !(packet.complete || last && path.closed)
    }
}
