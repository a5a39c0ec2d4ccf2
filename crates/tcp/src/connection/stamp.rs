//! The times at which chosen bytes left and were acknowledged.

use super::{Connection, Readiness};
use crate::flight::SegmentMarks;
use crate::stamps::Stamp;
use crate::state::State;
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;

impl Connection {
    /// Asks when the last byte written so far leaves for the first time, and when the peer acknowledges it:
    /// [`Connection::poll_stamp`] returns these times, and [`Readiness::STAMPED`] announces them. Linux has this as
    /// `SO_TIMESTAMPING`, with `SOF_TIMESTAMPING_TX_SOFTWARE` and `SOF_TIMESTAMPING_TX_ACK`.
    ///
    /// Returns the number of bytes written in the connection's life, by which the times are found again. If the byte
    /// has left and was sent again already, only the acknowledgement is reported.
    ///
    /// `None` if the peer has acknowledged everything, or if 64 bytes are watched or have times that were not taken.
    pub fn stamp(&mut self) -> Option<u64> {
        let buffered = self.snd.buffered();
        if buffered == 0 {
            return None;
        }
        let written = self.totals.bytes_acked + buffered as u64;
        if !self.push.begin_stamps().watch(written) {
            return None;
        }
        let segment = self.snd.flight.last().filter(|sent| !sent.marks.has(SegmentMarks::REPEATED));
        let at = segment.map(|sent| sent.at);
        let left = match &self.state {
            // A SYN that has not left, or only in a lookup, has no time yet.
            State::SynSent(syn) if syn.first_sent == Instant::FAR_FUTURE => None,
            State::SynSent(syn) => Some(at.or(Some(syn.first_sent))),
            _ => Some(at),
        };
        if let Some(at) = left {
            self.stamp_left(at);
        }
        Some(written)
    }

    /// The next time of a byte that [`Connection::stamp`] chose, oldest first.
    pub fn poll_stamp(&mut self) -> Option<Stamp> {
        self.push.stamps()?.take()
    }

    /// A segment left.
    #[inline]
    pub(super) fn stamp_sent(&mut self, now: Instant) {
        if unlikely(self.push.stamps().is_some()) {
            self.stamp_left(Some(now));
        }
    }

    /// Everything below NXT has left, the last of it at `at`.
    #[inline(never)]
    fn stamp_left(&mut self, at: Option<Instant>) {
        let unsent = self.unsent();
        let left = self.totals.bytes_acked + (self.snd.buffered() - unsent) as u64;
        if self.push.stamps().is_some_and(|stamps| stamps.sent(left, at)) {
            self.ready |= Readiness::STAMPED;
        }
    }

    /// The peer has acknowledged more.
    #[inline(never)]
    pub(super) fn stamp_acknowledged(&mut self, now: Instant) {
        let acknowledged = self.totals.bytes_acked;
        if self.push.stamps().is_some_and(|stamps| stamps.acknowledged(acknowledged, now)) {
            self.ready |= Readiness::STAMPED;
        }
    }
}
