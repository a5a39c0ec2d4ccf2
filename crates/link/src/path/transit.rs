//! Packets in transit: the bottleneck with its queue, and the packets in flight after it.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use firstflight_wire::Instant;

/// A transmitter of fixed rate behind a tail-drop queue. It is exact: a packet occupies the queue until its
/// first bit is sent, and fractions of a nanosecond are carried over within a busy period.
#[derive(Debug)]
pub(super) struct Bottleneck {
    rate_bits_per_s: Option<u64>,
    queue_bytes: usize,
    /// When the transmitter is idle again, ns.
    idle_at: u64,
    /// The fraction of a nanosecond by which the last transmission ends after `idle_at`, in 1/rate ns.
    carry: u64,
    /// Packets whose transmission has not begun: its start (ns) and the length (bytes).
    waiting: VecDeque<(u64, usize)>,
    waiting_bytes: usize,
}

impl Bottleneck {
    pub(super) fn new(rate_bits_per_s: Option<u64>, queue_bytes: usize) -> Self {
        Self {
            rate_bits_per_s,
            queue_bytes,
            idle_at: 0,
            carry: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// Applies new settings to future packets. Queued packets keep their times.
    pub(super) fn configure(&mut self, rate_bits_per_s: Option<u64>, queue_bytes: usize) {
        // Validation refuses a rate of zero, but it can be set while the path runs. Use the slowest rate
        // instead.
        self.rate_bits_per_s = rate_bits_per_s.map(|rate| rate.max(1));
        self.queue_bytes = queue_bytes;
        self.carry = 0;
    }

    /// When the transmitter will have sent all its packets.
    pub(super) fn idle_at(&self) -> Instant {
        Instant::from_nanos(self.idle_at)
    }

    /// Queues `length` bytes at `now` (ns), and returns when the last bit has left (ns). `None` if the queue
    /// is full.
    pub(super) fn admit(&mut self, now: u64, length: usize) -> Option<u64> {
        let start = now.max(self.idle_at);
        let Some(rate) = self.rate_bits_per_s else {
            return Some(start);
        };
        while let Some(&(begins, bytes)) = self.waiting.front() {
            if begins > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= bytes;
        }
        if start > now {
            let after = self.waiting_bytes.saturating_add(length);
            if after > self.queue_bytes {
                return None;
            }
            self.waiting.push_back((start, length));
            self.waiting_bytes = after;
        } else {
            self.carry = 0;
        }
        let work = (length as u64).saturating_mul(8_000_000_000).saturating_add(self.carry);
        self.idle_at = start.saturating_add(work / rate);
        self.carry = work % rate;
        Some(self.idle_at)
    }
}

/// A packet and when it arrives. Ordered by time of arrival, then by order of sending.
#[derive(Debug)]
pub(super) struct PacketArrival {
    pub at: Instant,
    pub sequence: u64,
    pub packet: Vec<u8>,
}

impl PacketArrival {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.sequence)
    }
}

impl PartialEq for PacketArrival {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for PacketArrival {}

impl PartialOrd for PacketArrival {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PacketArrival {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// Packets in flight. Nearly all arrive in the order of sending and cost only a queue operation. The others
/// go through a heap.
#[derive(Debug, Default)]
pub(super) struct Flight {
    in_order: VecDeque<PacketArrival>,
    out_of_order: BinaryHeap<Reverse<PacketArrival>>,
}

impl Flight {
    /// Adds a packet. A packet that is known to be late goes directly to the heap: at the end of the queue it
    /// would force all following packets into the heap.
    pub(super) fn push(&mut self, arrival: PacketArrival, late: bool) {
        let in_order = self.in_order.back().is_none_or(|last| last.at <= arrival.at);
        if in_order && !late {
            self.in_order.push_back(arrival);
        } else {
            self.out_of_order.push(Reverse(arrival));
        }
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        let queued = self.in_order.front().map(|first| first.at);
        let heaped = self.out_of_order.peek().map(|Reverse(first)| first.at);
        match (queued, heaped) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes the next packet that has arrived by `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<PacketArrival> {
        let queued = self.in_order.front();
        let from_heap = match (queued, self.out_of_order.peek()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(queued), Some(Reverse(heaped))) => heaped < queued,
        };
        if from_heap {
            let due = self.out_of_order.peek().is_some_and(|Reverse(first)| first.at <= now);
            due.then(|| self.out_of_order.pop()).flatten().map(|Reverse(arrival)| arrival)
        } else {
            let due = queued.is_some_and(|first| first.at <= now);
            due.then(|| self.in_order.pop_front()).flatten()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.in_order.len() + self.out_of_order.len()
    }
}
