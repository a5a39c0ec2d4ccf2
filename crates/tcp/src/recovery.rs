//! Where loss recovery stands, how the window shrinks in it (PRR, RFC 9937), and what would show that it was for
//! nothing (Eifel, RFC 3522; D-SACK, RFC 3708; F-RTO, RFC 5682).

use crate::ranges::RangeSet;
use alloc::boxed::Box;
use firstflight_wire::{Instant, SeqNum};

/// Where loss recovery stands.
#[derive(Debug, Default)]
pub enum Recovery {
    /// Nothing is known to be lost.
    #[default]
    Open,
    /// The window shrinks though nothing was lost: a packet was marked (RFC 3168 §6.1.2).
    Reducing(Box<Episode>),
    /// Something was lost, and what arrives says so.
    Fast(Box<Episode>),
    /// The retransmission timer said so.
    Loss(Box<Episode>),
}

/// One recovery.
#[derive(Debug)]
pub struct Episode {
    /// Everything sent when it began (RecoveryPoint); acknowledged, it is over.
    pub point: SeqNum,
    /// How the window shrinks; none if only the size of a probe was at fault, or after a timeout.
    pub prr: Option<Prr>,
    /// After a timeout: whether it may have come too early.
    pub frto: Frto,
}

/// F-RTO with SACK (RFC 5682 §3.1): what the first acknowledgements after a timeout show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frto {
    /// Nothing any more: conventional recovery.
    Off,
    /// Step 1: only the first segment was sent again.
    Begun,
    /// Step 2b: new data goes, and nothing again, until it is acknowledged.
    Asking,
}

impl Recovery {
    /// The recovery, if there is one.
    #[inline]
    #[must_use]
    pub fn episode(&self) -> Option<&Episode> {
        match self {
            Self::Open => None,
            Self::Reducing(e) | Self::Fast(e) | Self::Loss(e) => Some(e),
        }
    }

    /// The same, to be changed.
    #[inline]
    pub fn episode_mut(&mut self) -> Option<&mut Episode> {
        match self {
            Self::Open => None,
            Self::Reducing(e) | Self::Fast(e) | Self::Loss(e) => Some(e),
        }
    }

    /// Nothing is known to be lost.
    #[inline]
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Something was lost, and all that was sent by then is not acknowledged.
    #[inline]
    #[must_use]
    pub fn is_repairing(&self) -> bool {
        matches!(self, Self::Fast(_) | Self::Loss(_))
    }

    /// What was lost was too large for the path, so the window does not shrink.
    #[inline]
    #[must_use]
    pub fn is_spared(&self) -> bool {
        matches!(self, Self::Fast(e) if e.prr.is_none())
    }

    /// New data goes, and nothing again (F-RTO step 2b).
    #[inline]
    #[must_use]
    pub fn asks(&self) -> bool {
        matches!(self, Self::Loss(e) if e.frto == Frto::Asking)
    }
}

/// Proportional rate reduction (RFC 9937): what leaves in a recovery follows what arrives, so that the window is at
/// the new threshold when the recovery ends. Bytes.
#[derive(Debug, Clone, Copy)]
pub struct Prr {
    /// The threshold.
    ssthresh: u32,
    /// What was under way when the recovery began (RecoverFS).
    flight: u32,
    /// What has arrived since (prr_delivered).
    delivered: u32,
    /// What has left since (prr_out).
    out: u32,
    /// The window now.
    window: u32,
    mss: u32,
}

impl Prr {
    /// A reduction to `ssthresh` that begins with `flight` bytes under way.
    #[must_use]
    pub fn new(ssthresh: u32, flight: u32, mss: u32) -> Self {
        Self { ssthresh, flight: flight.max(1), delivered: 0, out: 0, window: 0, mss: mss.max(1) }
    }

    /// The window, with it the next segment may leave.
    #[inline]
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// `delivered` bytes have arrived, `pipe` are under way; `safe` says that the oldest number moved and nothing
    /// more was found lost (SafeACK).
    pub fn acknowledged(&mut self, delivered: u32, pipe: u32, safe: bool) {
        if delivered == 0 {
            return;
        }
        self.delivered = self.delivered.saturating_add(delivered);
        let mut room = if pipe > self.ssthresh {
            let share = u64::from(self.delivered) * u64::from(self.ssthresh);
            let share = share.div_ceil(u64::from(self.flight)).min(u64::from(u32::MAX)) as u32;
            // Whole segments: less than one cannot leave.
            share.saturating_sub(self.out).div_ceil(self.mss) * self.mss
        } else {
            let more = if safe { self.mss } else { 0 };
            let room = self.delivered.saturating_sub(self.out).max(delivered) + more;
            room.min(self.ssthresh - pipe)
        };
        if self.out == 0 {
            // The first retransmission goes at once.
            room = room.max(self.mss);
        }
        self.window = pipe.saturating_add(room);
    }

    /// `bytes` left.
    #[inline]
    pub fn sent(&mut self, bytes: u32) {
        self.out = self.out.saturating_add(bytes);
    }
}

/// What would show that the last reduction of the window was for nothing.
#[derive(Debug, Clone)]
pub struct Undo {
    /// The oldest number when it happened: repetitions below were of an earlier one.
    pub marker: SeqNum,
    /// When something was first sent again since: an echo of an earlier time is of an original (Eifel, RFC 3522).
    pub first: Option<Instant>,
    /// Segments sent again that the peer has not reported as duplicates (RFC 3708 §2); `None` until there was one.
    pub repeated: Option<u32>,
    /// What was sent again.
    ranges: RangeSet,
}

impl Undo {
    /// A reduction happens now; `repeated` segments are already under way again.
    #[must_use]
    pub fn new(marker: SeqNum, repeated: u32) -> Self {
        Self {
            marker,
            first: None,
            repeated: (repeated > 0).then_some(repeated),
            ranges: RangeSet::default(),
        }
    }

    /// Numbers from `start` to `end` leave again.
    pub fn repeat(&mut self, start: SeqNum, end: SeqNum, now: Instant) {
        self.first.get_or_insert(now);
        self.repeated = Some(self.repeated.unwrap_or(0).saturating_add(1));
        self.ranges.insert(start, end);
    }

    /// The peer had `segments` already that came again, from `start` on; true if it was we who sent them again, not
    /// the network that doubled them.
    pub fn duplicate(&mut self, start: SeqNum, segments: u32) -> bool {
        let ours = start.ge(self.marker) && self.ranges.containing(start).is_some();
        if let Some(repeated) = self.repeated.as_mut().filter(|_| ours) {
            *repeated = repeated.saturating_sub(segments);
        }
        ours
    }

    /// All that was sent again since was there already.
    #[must_use]
    pub fn all_duplicates(&self) -> bool {
        self.repeated == Some(0)
    }
}
