//! Samples the delivery rate of the path, one sample for each acknowledgement, after
//! draft-cheng-iccrg-delivery-rate-estimation in the version of draft-ietf-ccwg-bbr §4.5. Only algorithms that
//! need samples use it.
//!
//! The state at the time a segment left is kept here and not in the records of `flight.rs`, so that those stay
//! small for all other algorithms.

use crate::congestion::{LostSegment, RateSample};
use crate::flight::{CRUMB, Flight, MANY, SegmentMarks, Sent};
use alloc::collections::VecDeque;
use core::time::Duration;
use firstflight_wire::{Instant, SeqNum};

/// The state at the time a part of the stream last left (P in the draft).
#[derive(Debug, Clone, Copy)]
struct Stamp {
    start: SeqNum,
    end: SeqNum,
    /// P.delivered.
    delivered: u64,
    /// P.delivered_time.
    delivered_at: Instant,
    /// P.first_send_time.
    first_sent: Instant,
    /// P.lost.
    lost: u64,
    /// P.tx_in_flight.
    in_flight: u32,
    /// P.is_app_limited.
    app_limited: bool,
    /// It was counted as lost since it last left.
    counted: bool,
}

/// Among the segments that one acknowledgement delivers, the one that left last.
#[derive(Debug, Clone, Copy)]
struct Newest {
    stamp: Stamp,
    sent: Instant,
    end: SeqNum,
    repeated: bool,
}

/// What one acknowledgement has delivered so far.
#[derive(Debug, Default)]
struct Gathered {
    bytes: u32,
    newest: Option<Newest>,
    /// When the newest of the segments that were sent only once left (Karn).
    timed: Option<Instant>,
}

/// Other state of the connection that a sample needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Around {
    /// Now.
    pub now: Instant,
    /// The smallest round-trip time.
    pub min_rtt: Option<Duration>,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Bytes in flight after the acknowledgement.
    pub in_flight: u32,
    /// The window held back data.
    pub cwnd_limited: bool,
    /// The peer reports data that arrived out of order.
    pub sack: bool,
    /// Fast recovery is under way.
    pub recovering: bool,
}

/// Delivery-rate sampling of one connection (C in the draft).
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    /// In the order of the stream, without overlaps.
    stamps: VecDeque<Stamp>,
    /// C.delivered, bytes.
    delivered: u64,
    /// C.delivered_time.
    delivered_at: Instant,
    /// C.first_send_time.
    first_sent: Instant,
    /// C.lost, bytes.
    lost: u64,
    /// The value of `lost` at the last sample.
    lost_before: u64,
    /// C.app_limited; 0 if the application keeps up.
    app_limited: u64,
    gathered: Gathered,
}

impl Sampler {
    /// Whether the application had less to send than the path takes.
    #[must_use]
    pub(crate) fn is_app_limited(&self) -> bool {
        self.app_limited != 0
    }

    /// The application has less to send than the path takes, with `in_flight` bytes under way.
    pub(crate) fn mark_app_limited(&mut self, in_flight: u32) {
        self.app_limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// The numbers from `start` to `end` left, for the first time or `again`, with `before` bytes in flight
    /// before and `after` bytes in flight after.
    pub(crate) fn sent(
        &mut self,
        (start, end): (SeqNum, SeqNum),
        again: bool,
        (before, after): (u32, u32),
        now: Instant,
    ) {
        if before == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        let stamp = Stamp {
            start,
            end,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent: self.first_sent,
            lost: self.lost,
            in_flight: after,
            app_limited: self.is_app_limited(),
            counted: false,
        };
        if again {
            return self.stamp_again(stamp);
        }
        let crowded = self.is_crowded(end);
        match self.stamps.back_mut() {
            Some(last) if crowded => last.end = end,
            _ => self.stamps.push_back(stamp),
        }
    }

    /// Like the records, at most one stamp for each `CRUMB` bytes once there are `MANY`.
    fn is_crowded(&self, end: SeqNum) -> bool {
        let bytes = self.stamps.front().map_or(0, |stamp| end.distance_from(stamp.start));
        self.stamps.len() >= MANY && self.stamps.len() as u32 > bytes / CRUMB
    }

    /// Replaces the stamps within the range of `fresh`.
    fn stamp_again(&mut self, fresh: Stamp) {
        let mut index = self.index(fresh.start);
        if self.stamps.get(index).is_some_and(|stamp| stamp.start.lt(fresh.start)) {
            self.split(index, fresh.start);
            index += 1;
        }
        while self.stamps.get(index).is_some_and(|stamp| stamp.start.lt(fresh.end)) {
            if self.stamps.get(index).is_some_and(|stamp| stamp.end.gt(fresh.end)) {
                self.split(index, fresh.end);
            }
            if let Some(stamp) = self.stamps.get_mut(index) {
                *stamp = Stamp { start: stamp.start, end: stamp.end, ..fresh };
            }
            index += 1;
        }
    }

    /// Index of the first stamp that ends behind `seq`.
    fn index(&self, seq: SeqNum) -> usize {
        self.stamps.partition_point(|stamp| stamp.end.le(seq))
    }

    fn split(&mut self, index: usize, at: SeqNum) {
        if let Some(stamp) = self.stamps.get_mut(index) {
            let back = Stamp { start: at, ..*stamp };
            stamp.end = at;
            self.stamps.insert(index + 1, back);
        }
    }

    /// `sent` is newly known to have arrived.
    pub(crate) fn delivered(&mut self, sent: &Sent, now: Instant) {
        let len = sent.end.distance_from(sent.start);
        self.delivered += u64::from(len);
        self.delivered_at = now;
        let repeated = sent.marks.has(SegmentMarks::REPEATED);
        let stamp =
            self.stamps.get(self.index(sent.start)).filter(|stamp| stamp.start.le(sent.start)).copied();
        let gathered = &mut self.gathered;
        gathered.bytes = gathered.bytes.saturating_add(len);
        if !repeated {
            gathered.timed = gathered.timed.max(Some(sent.at));
        }
        let newer = gathered.newest.is_none_or(|newest| sent.after(newest.sent, newest.end));
        if let Some(stamp) = stamp.filter(|_| newer) {
            gathered.newest = Some(Newest { stamp, sent: sent.at, end: sent.end, repeated });
            self.first_sent = sent.at;
        }
    }

    /// Calls `each` for the ranges of `flight` that are marked as lost and were not counted as lost yet.
    pub(crate) fn losses(
        &mut self,
        flight: &Flight,
        sack: bool,
        now: Instant,
        mut each: impl FnMut(&LostSegment),
    ) {
        let mut index = 0;
        for sent in (0..flight.len()).map_while(|i| flight.get(i)).filter(|sent| sent.marks.waits()) {
            while self.stamps.get(index).is_some_and(|stamp| stamp.end.le(sent.start)) {
                index += 1;
            }
            let Some(stamp) = self.stamps.get_mut(index) else { return };
            if stamp.counted || stamp.start.gt(sent.start) {
                continue;
            }
            stamp.counted = true;
            let bytes = sent.end.distance_from(sent.start);
            self.lost += u64::from(bytes);
            each(&LostSegment {
                now,
                bytes,
                in_flight: stamp.in_flight,
                lost: clamped(self.lost - stamp.lost),
                app_limited: stamp.app_limited,
                delivered: self.delivered,
                sack,
            });
        }
    }

    /// The sample of an acknowledgement whose segments were passed to [`Sampler::delivered`]. Everything up to
    /// `una` has arrived.
    pub(crate) fn sample(&mut self, una: SeqNum, around: &Around) -> RateSample {
        let Gathered { bytes, newest, timed } = core::mem::take(&mut self.gathered);
        if self.app_limited != 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let lost_now = clamped(self.lost - core::mem::replace(&mut self.lost_before, self.lost));
        let mut sample = RateSample {
            now: around.now,
            rate: 0,
            delivered: 0,
            prior_delivered: None,
            total: self.delivered,
            acked: bytes,
            lost: 0,
            lost_now,
            sent_in_flight: 0,
            app_limited: self.is_app_limited(),
            rtt: timed.map(|sent| around.now - sent),
            srtt: around.srtt,
            in_flight: around.in_flight,
            cwnd_limited: around.cwnd_limited,
            sack: around.sack,
            recovering: around.recovering,
        };
        if let Some(newest) = newest {
            let stamp = newest.stamp;
            sample.prior_delivered = Some(stamp.delivered);
            sample.delivered = clamped(self.delivered - stamp.delivered);
            sample.lost = clamped(self.lost - stamp.lost);
            sample.sent_in_flight = stamp.in_flight;
            sample.app_limited = stamp.app_limited;
            let interval = (newest.sent - stamp.first_sent).max(self.delivered_at - stamp.delivered_at);
            // A shorter interval belongs to a needless retransmission. Without SACK, the data that a
            // retransmission delivers had arrived earlier.
            let plausible = around.min_rtt.is_none_or(|min| interval >= min);
            if plausible && (around.sack || !newest.repeated) && !interval.is_zero() {
                let rate = u128::from(sample.delivered) * 1_000_000_000 / interval.as_nanos();
                sample.rate = rate.min(u128::from(u64::MAX)) as u64;
            }
        }
        while self.stamps.front().is_some_and(|stamp| stamp.end.le(una)) {
            self.stamps.pop_front();
        }
        if self.stamps.is_empty() {
            // An idle connection owns no buffers.
            self.stamps = VecDeque::new();
        }
        sample
    }
}

fn clamped(bytes: u64) -> u32 {
    bytes.min(u64::from(u32::MAX)) as u32
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
