//! The state of loss recovery, how the window shrinks during it (PRR, RFC 9937), and what shows that it was
//! needless (Eifel, RFC 3522; D-SACK, RFC 3708; F-RTO, RFC 5682).

use crate::ranges::RangeSet;
use alloc::boxed::Box;
use firstflight_wire::{Instant, SeqNum};

/// The state of loss recovery.
#[derive(Debug, Default)]
pub(crate) enum Recovery {
    /// No segment is known to be lost.
    #[default]
    Open,
    /// The window shrinks although nothing was lost, because a packet was marked (RFC 3168 §6.1.2).
    Reducing(Box<Episode>),
    /// A segment was lost, as the acknowledgements show.
    Fast(Box<Episode>),
    /// A segment was lost, as the retransmission timer shows.
    Loss(Box<Episode>),
}

/// One period of recovery.
#[derive(Debug)]
pub(crate) struct Episode {
    /// The highest number sent when it began (RecoveryPoint). The recovery ends when everything below is
    /// acknowledged.
    pub point: SeqNum,
    /// How the window shrinks; `None` after a timeout, or if only a probe's size caused the loss.
    pub prr: Option<Prr>,
    /// After a timeout: whether it may have been spurious.
    pub frto: Frto,
}

/// F-RTO with SACK (RFC 5682 §3.1): what the first acknowledgements after a timeout show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Frto {
    /// F-RTO is over: conventional recovery.
    Off,
    /// Step 1: only the first segment was sent again.
    Begun,
    /// Step 2b: new data is sent, and no retransmission, until the new data is acknowledged.
    Asking,
}

impl Recovery {
    /// The recovery, if there is one.
    #[inline]
    #[must_use]
    pub(crate) fn episode(&self) -> Option<&Episode> {
        match self {
            Self::Open => None,
            Self::Reducing(e) | Self::Fast(e) | Self::Loss(e) => Some(e),
        }
    }

    /// The recovery, mutable, if there is one.
    #[inline]
    pub(crate) fn episode_mut(&mut self) -> Option<&mut Episode> {
        match self {
            Self::Open => None,
            Self::Reducing(e) | Self::Fast(e) | Self::Loss(e) => Some(e),
        }
    }

    /// Whether no recovery is under way.
    #[inline]
    #[must_use]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Whether a segment was lost and not everything sent by then is acknowledged.
    #[inline]
    #[must_use]
    pub(crate) fn is_repairing(&self) -> bool {
        matches!(self, Self::Fast(_) | Self::Loss(_))
    }

    /// Whether the lost segment was too large for the path, so that the window does not shrink.
    #[inline]
    #[must_use]
    pub(crate) fn is_spared(&self) -> bool {
        matches!(self, Self::Fast(e) if e.prr.is_none())
    }

    /// Whether only new data may be sent, and no retransmission (F-RTO step 2b).
    #[inline]
    #[must_use]
    pub(crate) fn asks(&self) -> bool {
        matches!(self, Self::Loss(e) if e.frto == Frto::Asking)
    }
}

/// Proportional rate reduction (RFC 9937): during a recovery, sending follows what arrives, so that the window
/// is at the new threshold when the recovery ends. All values are in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prr {
    /// The slow-start threshold.
    ssthresh: u32,
    /// Bytes under way when the recovery began (RecoverFS).
    flight: u32,
    /// Bytes that have arrived since (prr_delivered).
    delivered: u32,
    /// Bytes that were sent since (prr_out).
    out: u32,
    /// The current window.
    window: u32,
    mss: u32,
}

impl Prr {
    /// A reduction to `ssthresh` that begins with `flight` bytes under way.
    #[must_use]
    pub(crate) fn new(ssthresh: u32, flight: u32, mss: u32) -> Self {
        Self { ssthresh, flight: flight.max(1), delivered: 0, out: 0, window: 0, mss: mss.max(1) }
    }

    /// The window, within which the next segment may leave.
    #[inline]
    #[must_use]
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// `delivered` bytes have arrived, and `pipe` bytes are under way. `safe` says that the oldest number moved
    /// and no more losses were found (SafeACK).
    pub(crate) fn acknowledged(&mut self, delivered: u32, pipe: u32, safe: bool) {
        if delivered == 0 {
            return;
        }
        self.delivered = self.delivered.saturating_add(delivered);
        let mut room = if pipe > self.ssthresh {
            let share = u64::from(self.delivered) * u64::from(self.ssthresh);
            let share = share.div_ceil(u64::from(self.flight)).min(u64::from(u32::MAX)) as u32;
            // Round up to whole segments, because less than one cannot leave.
            share.saturating_sub(self.out).div_ceil(self.mss) * self.mss
        } else {
            let more = if safe { self.mss } else { 0 };
            let room = self.delivered.saturating_sub(self.out).max(delivered) + more;
            room.min(self.ssthresh - pipe)
        };
        if self.out == 0 {
            // The first retransmission is sent at once.
            room = room.max(self.mss);
        }
        self.window = pipe.saturating_add(room);
    }

    /// `bytes` were sent.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u32) {
        self.out = self.out.saturating_add(bytes);
    }
}

/// What would show that the last reduction of the window was needless.
#[derive(Debug, Clone)]
pub(crate) struct Undo {
    /// The oldest number at the reduction: retransmissions below it belong to an earlier one.
    pub marker: SeqNum,
    /// When the first retransmission since then left. An echo of an earlier time belongs to an original (Eifel,
    /// RFC 3522).
    pub first: Option<Instant>,
    /// Retransmitted segments that the peer has not reported as duplicates (RFC 3708 §2); `None` before the
    /// first retransmission.
    pub repeated: Option<u32>,
    /// The ranges that were sent again.
    ranges: RangeSet,
}

impl Undo {
    /// The window is reduced now; `repeated` retransmissions are already under way.
    #[must_use]
    pub(crate) fn new(marker: SeqNum, repeated: u32) -> Self {
        Self {
            marker,
            first: None,
            repeated: (repeated > 0).then_some(repeated),
            ranges: RangeSet::default(),
        }
    }

    /// Numbers from `start` to `end` are sent again.
    pub(crate) fn repeat(&mut self, start: SeqNum, end: SeqNum, now: Instant) {
        self.first.get_or_insert(now);
        self.repeated = Some(self.repeated.unwrap_or(0).saturating_add(1));
        self.ranges.insert(start, end);
    }

    /// The peer received `segments` segments, from `start` on, that it already had. Returns true if we sent
    /// them again, and false if the network duplicated them.
    pub(crate) fn duplicate(&mut self, start: SeqNum, segments: u32) -> bool {
        let ours = start.ge(self.marker) && self.ranges.containing(start).is_some();
        if let Some(repeated) = self.repeated.as_mut().filter(|_| ours) {
            *repeated = repeated.saturating_sub(segments);
        }
        ours
    }

    /// Whether every segment sent again since then was a duplicate.
    #[must_use]
    pub(crate) fn all_duplicates(&self) -> bool {
        self.repeated == Some(0)
    }
}
