//! Decides which segments have PSH: the one that ends a write of the application (RFC 9293 §3.9.1.2), and the
//! last of several segments that leave together ([`push_bursts`](crate::Config::push_bursts)).

use crate::stamps::Stamps;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;
use firstflight_wire::{Instant, SeqNum};

/// Largest number of write ends kept. With more writes, some in between get no PSH.
const MOST: usize = 64;

/// Room for this many ends stays allocated for later writes.
const KEPT: usize = 8;

/// The ends of writes that are followed by more data, and those whose times the application wants. It is one pointer
/// until the first such end, so that a connection without any pays nothing.
#[derive(Debug, Default)]
pub(crate) struct Push(Option<Box<PushEnds>>);

#[derive(Debug, Default)]
struct PushEnds {
    list: VecDeque<SeqNum>,
    /// The current burst: its time, the number of segments sent in it, and the largest number allowed.
    burst: (Instant, u32, u32),
    /// The last bytes of writes that are watched.
    stamps: Option<Stamps>,
}

impl Push {
    /// Removes everything.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// The application writes more data behind `end`, the end of an earlier write.
    pub(crate) fn note(&mut self, end: SeqNum) {
        let list = &mut self.0.get_or_insert_default().list;
        if list.back() == Some(&end) {
            return;
        }
        if list.len() >= MOST {
            list.pop_back();
        }
        list.push_back(end);
    }

    /// Removes the ends up to `una`.
    #[inline]
    pub(crate) fn acknowledged(&mut self, una: SeqNum) {
        let Some(ends) = &mut self.0 else { return };
        while ends.list.front().is_some_and(|end| end.le(una)) {
            ends.list.pop_front();
        }
        if ends.list.is_empty() && ends.list.capacity() > KEPT {
            ends.list = VecDeque::new();
        }
    }

    /// The ends that are watched, if there ever were any.
    #[inline]
    pub(crate) fn stamps(&mut self) -> Option<&mut Stamps> {
        self.0.as_mut()?.stamps.as_mut()
    }

    /// The ends that are watched. From now on there are some.
    pub(crate) fn begin_stamps(&mut self) -> &mut Stamps {
        self.0.get_or_insert_default().stamps.get_or_insert_default()
    }

    /// Whether a write ended at `end` and more was written behind it.
    #[inline]
    #[must_use]
    pub(crate) fn ends_at(&self, end: SeqNum) -> bool {
        self.0.as_ref().is_some_and(|ends| ends.list.contains(&end))
    }

    /// Whether there has been a burst of segments, or a write that followed another.
    #[inline]
    #[must_use]
    pub(crate) fn is_used(&self) -> bool {
        self.0.is_some()
    }

    /// Whether no burst is under way. A burst is under way from its first segment until its last segment has
    /// left.
    #[inline]
    #[must_use]
    pub(crate) fn is_between_bursts(&self) -> bool {
        self.0.as_ref().is_none_or(|ends| ends.burst.1 == 0)
    }

    /// A segment leaves; at most `most()` segments leave together, and `last` says that no other follows.
    /// Returns whether it is the last of several.
    pub(crate) fn leaves(&mut self, now: Instant, last: bool, most: impl FnOnce() -> u32) -> bool {
        let burst = &mut self.0.get_or_insert_default().burst;
        if burst.0 != now || burst.1 == 0 {
            *burst = (now, 0, most());
        }
        burst.1 += 1;
        let (_, count, most) = *burst;
        let ends = last || count >= most;
        if ends {
            burst.1 = 0;
        }
        ends && count > 1
    }
}

/// Number of segments of `mss` bytes that Linux gives to the network card together. That is what it sends in a
/// millisecond at a rate of two windows in a round trip, more on paths with a short round trip, and at most
/// half a window.
#[must_use]
pub(crate) fn burst(
    mss: u32,
    cwnd: u32,
    least: u32,
    srtt: Option<Duration>,
    min_rtt: Option<Duration>,
) -> u32 {
    /// The largest packet that a network card splits into segments, bytes.
    const LARGEST: u64 = 65_536;
    let half = (cwnd / mss.max(1) / 2).max(1);
    let Some((srtt, min_rtt)) = srtt.zip(min_rtt) else { return half };
    let rate = u64::from(cwnd) * 2_000_000 / (srtt.as_micros() as u64).max(1);
    let short = LARGEST.checked_shr((min_rtt.as_micros() >> 9).min(63) as u32).unwrap_or(0);
    let bytes = ((rate >> 10) + short).min(LARGEST);
    ((bytes / u64::from(mss.max(1))) as u32).max(least).min(half)
}

#[cfg(test)]
mod tests;
