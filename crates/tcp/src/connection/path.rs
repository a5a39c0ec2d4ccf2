//! The peer's address or port changes: the checks for its segments before that, and the actions after it.

use super::{Connection, DueSegments};
use crate::buffer::Pool;
use crate::error::CloseReason;
use crate::receive::AckNeed;
use crate::state::State;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Flags, Segment};

/// Upper limit of the half round trip used below: the only sample may have been a slow one.
const LONG_HALF: Duration = Duration::from_millis(50);
/// Lower limit of the half round trip.
const SHORT_HALF: Duration = Duration::from_millis(10);

impl Connection {
    /// Checks whether `segment`, which came from another address or port, may belong to this connection.
    /// Returns the distance of its number from the next one expected, or `None`. The segment must have an ACK
    /// and neither SYN nor RST. Its number must be in the window or received before (data whose acknowledgement
    /// went to the wrong place is sent again). Its acknowledgement must be one that RFC 5961 §5.2 allows;
    /// before the handshake is complete, it must acknowledge our SYN-ACK. Timestamps, if in use, must pass PAWS
    /// and must not echo a future time. The segment is not processed.
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
            || segment.options.timestamps.is_some_and(|ts| {
                !rcv.is_old(ts, now)
                    && (rcv.ts_expired(now) || self.ts_now(now).wrapping_sub(ts.echo) as i32 >= 0)
            });
        let ahead = segment.seq.ge(rcv.nxt);
        let distance =
            if ahead { segment.seq.distance_from(rcv.nxt) } else { rcv.nxt.distance_from(segment.seq) };
        (acknowledges && numbered && timed).then_some(distance)
    }

    /// Whether this half-open connection and `other` were made by one SYN, which the client sent from two ports. The client
    /// has one connection.
    #[must_use]
    pub fn is_rival_of(&self, other: &Self) -> bool {
        matches!(self.state, State::SynRcvd(_)) && self.rcv.irs == other.rcv.irs
    }

    /// The client has completed the handshake of another connection for the same SYN, and will not answer this one. Nothing
    /// is sent.
    pub fn left_for_rival(&mut self, pool: &mut Pool) {
        self.die(CloseReason::TimedOut, pool);
    }

    /// The peer asks whether we are at the address that our last segments came from; it accepted none of them.
    /// The first segment that is not acknowledged is sent again, or else the last acknowledgement. The question
    /// can be forged, so this happens at most once in half a round trip, where the half is limited to 10 to 50
    /// ms, and it changes neither timers nor windows.
    pub fn unheard(&mut self, now: Instant) {
        let half = self.rtt.min_rtt().map_or(LONG_HALF, |rtt| (rtt / 2).clamp(SHORT_HALF, LONG_HALF));
        let outstanding = self.snd.outstanding();
        let last = if outstanding { self.last_data } else { self.last_sent };
        if now - last < half {
            return;
        }
        // A probe of the path's size that is sent again would end the search for larger segments.
        let probes = self.search.as_ref().and_then(|search| search.probe());
        if outstanding && probes.is_none_or(|(start, _)| start != self.snd.una) {
            self.owed.set(DueSegments::FIRST);
        } else {
            self.acknowledge_again();
        }
    }

    /// The peer moved to another port of its address. An acknowledgement leaves at once, and unacknowledged
    /// data is sent again, because it went to the old port. Congestion control keeps its state (RFC 9000 §9.4).
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
            if late {
                self.enter_loss(now);
                self.report_losses(now);
                self.release_pace();
            } else {
                // An earlier tail loss probe went to the old port.
                self.tail = None;
                self.repair(|_| true, now);
            }
            self.arm_retransmit(now);
        } else if self.snd.unsent() && self.snd.wnd == 0 {
            // The window update may have gone to the old port.
            self.owed.set(DueSegments::PROBE);
        }
    }
}
