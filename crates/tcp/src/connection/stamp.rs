//! The times at which chosen bytes left and were acknowledged.

use super::{Connection, Readiness};
use crate::flight::Marks;
use crate::stamps::Stamp;
use crate::state::State;
use firstflight_wire::Instant;

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
        if !self.stamps.get_or_insert_default().watch(written) {
            return None;
        }
        let left = match &self.state {
            State::SynSent(syn) if syn.pending => None,
            State::SynSent(syn) => Some(Some(syn.first_sent)),
            _ => Some(
                self.snd.flight.last().filter(|sent| !sent.marks.has(Marks::REPEATED)).map(|sent| sent.at),
            ),
        };
        if let Some(at) = left {
            self.stamp_left(at);
        }
        Some(written)
    }

    /// The next time of a byte that [`Connection::stamp`] chose, oldest first.
    pub fn poll_stamp(&mut self) -> Option<Stamp> {
        self.stamps.as_mut()?.take()
    }

    /// A segment left.
    #[cold]
    pub(super) fn stamp_sent(&mut self, now: Instant) {
        self.stamp_left(Some(now));
    }

    /// Everything below NXT has left, the last of it at `at`.
    fn stamp_left(&mut self, at: Option<Instant>) {
        let unsent = self.unsent();
        let left = self.totals.bytes_acked + (self.snd.buffered() - unsent) as u64;
        let news = self.stamps.as_mut().is_some_and(|stamps| stamps.sent(left, at));
        self.announce(news);
    }

    /// The peer has acknowledged more.
    #[cold]
    pub(super) fn stamp_acknowledged(&mut self, now: Instant) {
        let acknowledged = self.totals.bytes_acked;
        let news = self.stamps.as_mut().is_some_and(|stamps| stamps.acknowledged(acknowledged, now));
        self.announce(news);
    }

    fn announce(&mut self, news: bool) {
        if news {
            self.ready |= Readiness::STAMPED;
        }
    }
}
