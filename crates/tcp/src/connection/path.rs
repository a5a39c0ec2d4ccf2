//! The peer is reached another way from now on: what its segments must be before that is checked, and what follows.

use super::{Connection, Owed};
use crate::receive::AckNeed;
use crate::state::State;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Flags, Segment};

/// What half a round trip is at most taken for: the only one measured may have been a slow one.
const LONG_HALF: Duration = Duration::from_millis(50);
/// And at least.
const SHORT_HALF: Duration = Duration::from_millis(10);

impl Connection {
    /// How far the number of `segment` is from the next one expected, if it may be this connection's although it came
    /// from elsewhere: it has an ACK and neither SYN nor RST, a number in the window or one that was received before
    /// (what was acknowledged to the wrong place goes again), an acknowledgement that RFC 5961 §5.2 allows (before
    /// the handshake is complete, one of our SYN-ACK), and timestamps, if they are in use, that pass PAWS and echo none of
    /// the future. Nothing is taken from it.
    #[cold]
    #[must_use]
    pub fn fits(&self, segment: &Segment<'_>, now: Instant) -> Option<u32> {
        let plain = Flags::SYN.union(Flags::RST).union(Flags::ACK);
        if segment.flags.bits() & plain.bits() != Flags::ACK.bits() {
            return None;
        }
        let (ack, snd, rcv) = (segment.ack, &self.snd, &self.rcv);
        let acknowledges = match &self.state {
            State::SynSent(_) | State::Closed(_) | State::TimeWait(_) => false,
            State::SynRcvd(_) => ack.gt(snd.iss) && ack.le(snd.nxt),
            _ => ack.ge(snd.una - snd.max_wnd) && ack.le(snd.nxt),
        };
        let first = rcv.nxt - self.config.receive_buffer.max(0xffff);
        let numbered = segment.seq.ge(first) && segment.seq.le(rcv.edge);
        let timed = !self.facts.timestamps
            || segment
                .options
                .timestamps
                .is_some_and(|ts| !rcv.is_old(ts, now) && self.ts_now(now).wrapping_sub(ts.echo) as i32 >= 0);
        let ahead = segment.seq.ge(rcv.nxt);
        let distance =
            if ahead { segment.seq.distance_from(rcv.nxt) } else { rcv.nxt.distance_from(segment.seq) };
        (acknowledges && numbered && timed).then_some(distance)
    }

    /// The peer asks whether we are where our last segments came from, and took none of them: the first segment that is
    /// not acknowledged goes again, or else the last acknowledgement. A question can be forged, so that happens at most
    /// once in half a round trip, or in 50 ms, but not more often than every 10 ms, and changes neither timers nor windows.
    #[cold]
    pub fn unheard(&mut self, now: Instant) {
        let half = self.rtt.min_rtt().map_or(LONG_HALF, |rtt| (rtt / 2).clamp(SHORT_HALF, LONG_HALF));
        let outstanding = self.snd.outstanding();
        let last = if outstanding { self.last_data } else { self.last_sent };
        if now - last < half {
            return;
        }
        if outstanding {
            self.owed.set(Owed::FIRST);
        } else {
            self.acknowledge_again();
        }
    }

    /// The peer is at another port of its address. An acknowledgement leaves at once, and what is not acknowledged goes
    /// again, since it went to the old port. Congestion control is kept (RFC 9000 §9.4).
    #[cold]
    pub fn moved(&mut self, now: Instant) {
        match &mut self.state {
            State::SynSent(_) | State::Closed(_) | State::TimeWait(_) => return,
            State::SynRcvd(syn) => {
                syn.pending = true;
                return;
            }
            _ => self.rcv.need = AckNeed::Now,
        }
        if self.snd.outstanding() {
            let late = self.backoffs > 0;
            self.backoffs = 0;
            self.rtt.reset_backoff();
            let whole = self.facts.sack && self.snd.recovery.is_open() && self.snd.flight.sacked() == 0;
            if late || !whole || self.snd.tail_probe(u32::from(self.snd.mss)).is_none() {
                self.enter_loss(now);
                self.report_losses(now);
                self.release_pace();
            } else {
                // One that left before went to nobody.
                self.tail = None;
                self.owed.set(Owed::TAIL);
            }
            self.arm_retransmit(now);
        } else if self.snd.unsent() && self.snd.wnd == 0 {
            // The update that opened the window may have gone unheard.
            self.owed.set(Owed::PROBE);
        }
    }
}
