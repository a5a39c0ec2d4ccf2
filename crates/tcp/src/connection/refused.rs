//! What happens to a SYN that is refused: by a RST, by an ICMP error, or by an earlier connection of its four-tuple.

use super::{Connection, Disposition};
use crate::buffer::Pool;
use crate::error::CloseReason;
use crate::rtt::MIN_RTO;
use crate::state::State;
use crate::timers::Timer;
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::{Instant, SeqNum};

impl Connection {
    /// Whether `segment` is a reset that refuses our SYN (RFC 9293 §3.10.7.3, second step).
    #[must_use]
    pub fn is_refused_by(&self, segment: &Segment<'_>) -> bool {
        matches!(self.state, State::SynSent(_))
            && segment.flags.contains(Flags::RST.union(Flags::ACK))
            && segment.ack.gt(self.snd.iss)
            && segment.ack.le(self.snd.nxt)
    }

    /// An earlier connection of the four-tuple, usually in TIME-WAIT, answers our SYN. Our RST ends that
    /// connection, and the SYN is sent again directly behind the RST, as in RFC 9293 §3.5.1 (half-open
    /// connection discovery). The retransmission timer would send it a second later. The new SYN is plain,
    /// whatever the first one carried: if the answer is forged, the peer may have accepted the first SYN, and
    /// must not receive its data twice.
    ///
    /// This happens once for each connect, so that many forged answers cause only one SYN.
    pub(super) fn met_old_connection(&mut self) {
        let State::SynSent(syn) = &mut self.state else { return };
        if syn.met_old || syn.first_sent == Instant::FAR_FUTURE {
            return;
        }
        syn.retransmits = syn.retransmits.saturating_add(1);
        (syn.met_old, syn.pending) = (true, true);
        // The timer starts again when the SYN leaves.
        self.timers.stop(Timer::Retransmit);
    }

    /// Whether a RST that acknowledges `ack` is only about the first SYN's option or data. Some middleboxes
    /// send such a RST but pass a plain SYN. Then a plain SYN leaves at once, or is already under way, and its
    /// answer decides.
    pub(super) fn refuses_first_flight(&mut self, ack: SeqNum, now: Instant) -> bool {
        if !self.config.retry_refused {
            return false;
        }
        let plain_refused = ack == self.snd.iss + 1;
        if let State::SynSent(syn) = &mut self.state
            && syn.retransmits > 0
            && syn.carried > 0
            && !plain_refused
        {
            // The numbers that it acknowledges behind the SYN show that it answers the first SYN.
            syn.refused = true;
            return true;
        }
        self.send_plain_syn(now)
    }

    /// A RST or an ICMP error answered the SYN. If that SYN carried an option or data, a plain one leaves at
    /// once, on the same four-tuple and with the same number: a peer that has accepted the first one repeats
    /// its first answer. This happens once for each connect. Returns false if the SYN was plain, or if another
    /// SYN was sent already.
    pub(super) fn send_plain_syn(&mut self, now: Instant) -> bool {
        let last_sent = self.last_sent;
        let State::SynSent(syn) = &mut self.state else { return false };
        if !self.config.retry_refused {
            return false;
        }
        if syn.refused && syn.timeouts == 0 && (syn.pending || now - last_sent < syn.refused_after / 2) {
            // It is early for an answer to the plain SYN, so this may be a copy of the first answer. But the first
            // answer may also have come late, for example because this host was busy, and this is the second one. Then
            // no other answer comes, so the SYN is soon sent again, and what answers then is believed.
            let again = last_sent + MIN_RTO.max(syn.refused_after);
            if !syn.pending && again < self.timers.at(Timer::Retransmit) && self.config.syn_retries > 0 {
                syn.hastened = true;
                self.timers.set(Timer::Retransmit, again);
            }
            return true;
        }
        let unusual = syn.carried > 0 || !syn.options.as_slice().is_empty();
        let only_first = syn.retransmits == 0 && syn.first_sent != Instant::FAR_FUTURE;
        if !unusual || !only_first || syn.elsewhere {
            return false;
        }
        syn.retransmits = 1;
        syn.refused_after = now - syn.first_sent;
        (syn.refused, syn.pending) = (true, true);
        // The timer starts again when the SYN leaves.
        self.timers.stop(Timer::Retransmit);
        true
    }

    /// Whether a RST or an ICMP error answered the SYN of a connection in SYN-SENT.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        matches!(&self.state, State::SynSent(syn) if syn.refused)
    }

    /// Whether the peer may have accepted the first flight of a SYN that got no answer: see
    /// [`crate::SynAckReport::may_have_run`].
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        matches!(&self.state, State::SynSent(syn) if syn.refused || syn.timeouts > 0 || syn.met_old)
    }

    /// The SYN-ACK acknowledges the plain SYN after a refused one, but not the data of the first SYN, which
    /// must not be sent twice. The connection ends, and the caller must answer the SYN-ACK with a RST.
    pub fn refuse(&mut self, pool: &mut Pool) -> Disposition {
        self.die(CloseReason::Refused, pool);
        Disposition::Reset
    }
}
