//! Explicit congestion notification (RFC 3168): routers mark packets that they would otherwise drop, and the
//! receiver echoes the mark until the sender confirms that it slowed down.

use super::Connection;
use super::acknowledge::Delivery;
use crate::config::EcnPolicy;
use crate::congestion::CongestionControl;
use crate::receive::AckNeed;
use crate::recovery::{Episode, Frto, Recovery};
use alloc::boxed::Box;
use firstflight_wire::Instant;
use firstflight_wire::ip::Ecn;
use firstflight_wire::tcp::{Flags, Segment};

/// The ECN state of a connection.
#[derive(Debug, Default)]
pub(super) struct EcnMarks {
    /// Both ends agreed to use ECN.
    agreed: bool,
    /// A packet was marked, and the peer has not confirmed that it slowed down (ECN-Echo).
    echo: bool,
    /// We slowed down, and have not confirmed it to the peer yet (CWR).
    reduced: bool,
    /// The last segment written may be marked by routers.
    capable: bool,
}

impl Connection {
    /// The codepoint for the packet of the segment that [`Connection::poll_transmit`] just wrote.
    #[inline]
    #[must_use]
    pub fn ecn(&self) -> Ecn {
        if self.marks.capable { Ecn::Ect0 } else { Ecn::NotEct }
    }

    /// Flags of the SYN after `retransmits` retransmissions. Only the first SYN asks for ECN, because some
    /// paths drop SYNs with these flags (RFC 3168 §6.1.1.1).
    pub(super) fn ecn_of_syn(&self, retransmits: u8) -> Flags {
        let ask = self.config.ecn == EcnPolicy::Ask && retransmits == 0;
        if ask { Flags::ECE.union(Flags::CWR) } else { Flags::EMPTY }
    }

    /// Takes the ECN flags from the peer's SYN.
    //= rfc9293 SHLD-8
    pub(super) fn take_ecn_of_syn(&mut self, syn: &Segment<'_>) {
        let both = Flags::ECE.union(Flags::CWR);
        self.marks.agreed = if syn.flags.contains(Flags::ACK) {
            let only_echo = syn.flags.contains(Flags::ECE) && !syn.flags.contains(Flags::CWR);
            self.config.ecn == EcnPolicy::Ask && only_echo
        } else {
            self.config.ecn != EcnPolicy::Off && syn.flags.contains(both)
        };
    }

    pub(super) fn ecn_of_syn_ack(&mut self) -> Flags {
        self.marks.capable = false;
        if self.marks.agreed { Flags::ECE } else { Flags::EMPTY }
    }

    /// Takes the marks of an accepted segment: its packet says whether a router marked it, and its flags say
    /// whether the peer slowed down (RFC 3168 §6.1.3).
    #[inline]
    pub(super) fn take_mark(&mut self, segment: &Segment<'_>) {
        if !self.marks.agreed {
            return;
        }
        if segment.flags.contains(Flags::CWR) {
            self.marks.echo = false;
        }
        if segment.ce {
            self.marks.echo = true;
            // The sender must learn of it at once.
            self.rcv.need = AckNeed::Now;
        }
    }

    /// The peer echoes a mark: the window shrinks once for the data under way (RFC 3168 §6.1.2).
    //= rfc9293 SHLD-8
    #[inline]
    pub(super) fn take_echo(&mut self, segment: &Segment<'_>, delivery: &Delivery, now: Instant) {
        if !self.marks.agreed || !segment.flags.contains(Flags::ECE) {
            return;
        }
        // A marked packet is not lost, so this reduction can never be undone.
        self.undo = None;
        // Data was under way, even if all of it has arrived by now.
        let flight = delivery.advanced > 0 || self.snd.outstanding();
        if self.snd.recovery.is_open() && flight {
            let prr = Some(self.reduce(delivery.pipe, now));
            self.control.on_mark(now, delivery.pipe);
            self.undo = None;
            let episode = Episode { point: self.snd.nxt, prr, frto: Frto::Off };
            self.snd.recovery = Recovery::Reducing(Box::new(episode));
        }
    }

    /// The window shrank, so CWR must be sent to the peer.
    pub(super) fn note_reduction(&mut self) {
        self.marks.reduced = self.marks.agreed;
    }

    /// Flags of a segment on an open connection; `fresh` says that it carries data never sent before.
    #[inline]
    pub(super) fn ecn_flags(&mut self, fresh: bool) -> Flags {
        // Neither retransmissions nor bare acknowledgements may be marked (RFC 3168 §6.1.4, §6.1.5).
        self.marks.capable = self.marks.agreed && fresh;
        if !self.marks.agreed {
            return Flags::EMPTY;
        }
        let mut flags = if self.marks.echo { Flags::ECE } else { Flags::EMPTY };
        if fresh && core::mem::take(&mut self.marks.reduced) {
            flags |= Flags::CWR;
        }
        flags
    }

    /// Ends a reduction for a mark, once a number above its point is acknowledged.
    pub(super) fn end_reduction_by_mark(&mut self, now: Instant) {
        self.snd.recovery = Recovery::Open;
        self.control.on_recovery_exit(now);
    }
}
