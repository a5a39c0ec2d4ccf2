//! RACK (RFC 8985): a segment is lost if one that left later has arrived, and the time allowed for reordering
//! has passed since.

use crate::flight::{Flight, SegmentMarks, Sent};
use core::time::Duration;
use firstflight_wire::{Instant, SeqNum};

/// Number of SACKed segments that mean a loss at once while no reordering was seen (DupThresh, RFC 5681 §3.2).
pub(crate) const DUP_THRESH: u32 = 3;
/// Number of recoveries without a D-SACK after which the reordering window is small again (RFC 8985 §6.2 step
/// 4).
const PERSIST: u8 = 16;

/// What RACK knows about the path and about the newest segment that arrived.
#[derive(Debug, Default)]
pub(crate) struct Rack {
    /// Among the segments that arrived, the one that was sent last: when it left, and its end (RACK.xmit_ts,
    /// RACK.end_seq).
    newest: (Instant, SeqNum),
    /// Its round-trip time, nanoseconds (RACK.rtt).
    rtt: u64,
    /// The highest number that arrived (RACK.fack).
    fack: SeqNum,
    /// SND.NXT when a D-SACK last widened the reordering window (RACK.dsack_round).
    dsack_round: Option<SeqNum>,
    /// The reordering window in quarters of the smallest round-trip time (RACK.reo_wnd_mult).
    quarters: u8,
    /// Recoveries until `quarters` is 1 again (RACK.reo_wnd_persist).
    persist: u8,
    /// RACK.reordering_seen.
    reordering_seen: bool,
    /// The largest distance by which a segment was overtaken, bytes.
    overtaken: u32,
    /// A segment has arrived since the last search for losses.
    advanced: bool,
}

/// Other state of the connection that RACK needs when it looks for losses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    /// Now.
    pub now: Instant,
    /// The connection is in fast recovery, or in recovery after a timeout.
    pub recovering: bool,
    /// The smallest round-trip time.
    pub min_rtt: Option<Duration>,
    /// The smoothed round-trip time.
    pub srtt: Option<Duration>,
}

impl Rack {
    /// Initial state; the stream begins at `iss`.
    #[inline]
    #[must_use]
    pub(crate) fn new(iss: SeqNum) -> Self {
        Self {
            newest: (Instant::ZERO, iss),
            rtt: 0,
            fack: iss,
            dsack_round: None,
            quarters: 1,
            persist: 0,
            reordering_seen: false,
            overtaken: 0,
            advanced: false,
        }
    }

    /// The highest number that is known to have arrived.
    #[inline]
    #[must_use]
    pub(crate) fn highest(&self) -> SeqNum {
        self.fack
    }

    /// `sent` has arrived (RFC 8985 §6.2 steps 2 and 3). `highest` is [`Rack::highest`] before the
    /// acknowledgement that reports it: the segments that one acknowledgement reports may have arrived in the
    /// order of the stream, in whatever order it lists them. `spurious` says that the acknowledgement cannot be
    /// for a retransmission.
    #[inline]
    pub(crate) fn arrived(&mut self, sent: &Sent, highest: SeqNum, now: Instant, spurious: bool) {
        let repeated = sent.marks.has(SegmentMarks::REPEATED);
        self.fack = self.fack.max(sent.end);
        if sent.end.lt(highest) && !repeated {
            self.see_reordering(self.fack.distance_from(sent.start));
        }
        if repeated && spurious {
            return;
        }
        self.advanced = true;
        self.rtt = now.nanos_since(sent.at);
        if sent.after(self.newest.0, self.newest.1) {
            self.newest = (sent.at, sent.end);
        }
    }

    /// A segment that begins `distance` bytes below the highest number that had arrived came later.
    pub(crate) fn see_reordering(&mut self, distance: u32) {
        self.reordering_seen = true;
        self.overtaken = self.overtaken.max(distance);
    }

    /// The largest reordering seen, in segments of `mss` bytes; at least [`DUP_THRESH`].
    #[must_use]
    pub(crate) fn reordering(&self, mss: u32) -> u32 {
        self.overtaken.div_ceil(mss.max(1)).max(DUP_THRESH)
    }

    /// A D-SACK arrived: a retransmission was needless, so reordering takes longer than the connection waited
    /// (§6.2 step 4). Counts once in a round trip.
    //= rfc8985 3.3.2-c
    pub(crate) fn duplicate_seen(&mut self, una: SeqNum, nxt: SeqNum) {
        if self.dsack_round.is_some_and(|round| una.ge(round)) {
            self.dsack_round = None;
        }
        if self.dsack_round.is_none() {
            self.dsack_round = Some(nxt);
            self.quarters = self.quarters.saturating_add(1);
            self.persist = PERSIST;
        }
    }

    /// A recovery has ended.
    pub(crate) fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.quarters = 1;
        }
    }

    /// How much later than a segment sent after it a segment may arrive (RACK_update_reo_wnd).
    fn reordering_window(&self, flight: &Flight, path: &Path) -> Duration {
        //= rfc8985 3.3.2-a
        if !self.reordering_seen && (path.recovering || flight.sacked_segments() >= DUP_THRESH) {
            return Duration::ZERO;
        }
        //= rfc8985 3.3.2-b
        let quarter = path.min_rtt.unwrap_or_default() / 4;
        //= rfc8985 3.3.2-d
        (quarter * u32::from(self.quarters)).min(path.srtt.unwrap_or_default())
    }

    /// Whether something arrived since the last call. Then it is time to [`Rack::look`].
    pub(crate) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.advanced)
    }

    /// Marks lost segments (RACK_detect_loss). Returns the time until more segments may be lost.
    pub(crate) fn look(&self, flight: &mut Flight, path: &Path) -> Option<Duration> {
        let patience = Duration::from_nanos(self.rtt) + self.reordering_window(flight, path);
        let (newest, end) = self.newest;
        let mut wait = Duration::ZERO;
        flight.mark(|sent| {
            let repeated = sent.marks.has(SegmentMarks::REPEATED);
            // Segments with equal times left in the order of the stream. A segment that leaves now is not lost
            // yet.
            let earlier = sent.at < path.now && (sent.at < newest || (sent.at == newest && sent.end.lt(end)));
            if !earlier {
                // Only a retransmitted segment can be followed by one that left earlier. Otherwise the search
                // ends.
                return repeated.then_some(false);
            }
            let left = patience.saturating_sub(path.now - sent.at);
            wait = wait.max(left);
            Some(left.is_zero())
        });
        (!wait.is_zero()).then_some(wait)
    }

    /// After a timeout: whether `sent` left so recently that it may still arrive.
    #[must_use]
    pub(crate) fn may_arrive(&self, sent: &Sent, now: Instant) -> bool {
        now.nanos_since(sent.at) < self.rtt
    }
}
