//! One struct for each state: values that are valid in one state exist only there.
//!
//! Values that outlive a state (the two halves of the stream, timers, congestion control) belong to the
//! connection. The stack owns LISTEN. TIME-WAIT after the last ACK is a separate compact record
//! ([`crate::time_wait`]).

use crate::error::CloseReason;
use crate::transition::StateName;
use alloc::boxed::Box;
use core::time::Duration;
use firstflight_wire::tcp::OptionBytes;
use firstflight_wire::{Instant, SeqNum};

/// A plain SYN directly behind the first one: [`crate::SynPlan::hedged`].
///
/// The timestamp of the first SYN is a millisecond older then, so that the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hedge {
    /// There is none.
    No,
    /// It is still to be sent.
    Due,
    /// It was sent.
    Sent,
}

/// A SYN was sent.
#[derive(Debug)]
pub struct SynSent {
    /// Extra options, sent last.
    pub options: OptionBytes,
    /// Bytes in front of the data that use sequence space but are not part of the stream.
    pub preamble: Box<[u8]>,
    /// Time until the first retransmission of the SYN, if it was measured earlier.
    pub first_timeout: Option<Duration>,
    /// Sequence numbers of preamble and data that the first SYN carried.
    pub carried: u32,
    /// Bytes of the stream that are sent directly behind the first SYN's data.
    pub follow: u32,
    /// Largest payload of the segments that carry these bytes.
    pub segment: u16,
    /// SYNs sent after the first.
    pub retransmits: u8,
    /// The plain SYN that directly follows the first one.
    pub hedge: Hedge,
    /// One of them was sent because the first SYN was too big for the path.
    pub too_big: bool,
    /// A SYN met an earlier connection of the four-tuple, and was sent again at once.
    pub met_old: bool,
    /// A RST or an ICMP error answered the first SYN, and a plain SYN was sent.
    pub refused: bool,
    /// Time from the first SYN to that RST or ICMP error.
    pub refused_after: Duration,
    /// The next SYN was brought forward because of a second RST or ICMP error, which may be a copy of the first.
    pub hastened: bool,
    /// See [`crate::SynPlan::repeats`].
    pub repeats: u8,
    /// SYNs sent because of a timeout.
    pub timeouts: u8,
    /// When the first SYN left; [`Instant::FAR_FUTURE`] before that.
    pub first_sent: Instant,
    /// A SYN is to be sent.
    pub pending: bool,
    /// The SYN also travels by another way, so its answer does not measure the round trip.
    pub elsewhere: bool,
}

impl SynSent {
    /// Number behind the bytes that directly follow the SYN; `None` once the SYN was sent again, and while it travels
    /// by another way only. `iss` is ours.
    #[inline]
    #[must_use]
    pub fn follow_end(&self, iss: SeqNum) -> Option<SeqNum> {
        let follows = self.follow > 0 && self.retransmits == 0 && !self.is_held();
        follows.then(|| iss + 1 + self.carried + self.follow)
    }

    /// Whether the SYN travels by another way and has not left from here.
    #[inline]
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.elsewhere && !self.pending && self.first_sent == Instant::FAR_FUTURE
    }
}

/// How the handshake of a connection in SYN-RECEIVED began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A listener accepted the peer's SYN.
    Listener,
    /// Both sides sent a SYN (RFC 9293 §3.5, figure 8).
    Simultaneous,
}

/// A SYN was received; our SYN-ACK is not acknowledged yet.
#[derive(Debug)]
pub struct SynRcvd {
    /// How the handshake began.
    pub origin: Origin,
    /// The SYN's data was delivered before the handshake completed, and the application may answer.
    pub early: bool,
    /// Options on every SYN-ACK, except the last `once` bytes.
    pub options: OptionBytes,
    /// Number of bytes at the end of `options` that only the first SYN-ACK carries.
    pub once: u8,
    /// Bytes of packets that may be sent before the client's ACK.
    pub budget: u32,
    /// Bytes below TCP that every packet takes from `budget`.
    pub overhead: u32,
    /// SYN-ACKs sent after the first one.
    pub retransmits: u8,
    /// SYN-ACK retransmissions allowed.
    pub retries: u8,
    /// Seconds to wait without sending after the last retransmission.
    pub linger_s: u16,
    /// Segments without ACK are accepted up to this number; with `None` they are dropped.
    pub follow: Option<SeqNum>,
    /// When the newest SYN-ACK left.
    pub last_sent: Option<Instant>,
    /// An earlier SYN-ACK had left before the newest one.
    pub again: bool,
    /// A SYN-ACK is to be sent.
    pub pending: bool,
}

impl SynRcvd {
    /// Initial values: nothing was sent, and nothing is allowed.
    const BEGIN: Self = Self {
        origin: Origin::Listener,
        early: false,
        options: OptionBytes::EMPTY,
        once: 0,
        budget: 0,
        overhead: 0,
        retransmits: 0,
        retries: 0,
        linger_s: 0,
        follow: None,
        last_sent: None,
        again: false,
        pending: true,
    };
}

/// Open in both directions.
#[derive(Debug)]
pub struct Established;
/// We closed; our FIN is not acknowledged yet.
#[derive(Debug)]
pub struct FinWait1;
/// We closed; our FIN is acknowledged.
#[derive(Debug)]
pub struct FinWait2;
/// The peer closed.
#[derive(Debug)]
pub struct CloseWait;
/// Both closed at the same time.
#[derive(Debug)]
pub struct Closing;
/// The peer closed, then we closed.
#[derive(Debug)]
pub struct LastAck;
/// Both closed; the stack moves the connection into its TIME-WAIT table.
#[derive(Debug)]
pub struct TimeWait;
/// The connection is gone.
#[derive(Debug)]
pub struct Closed {
    /// Why it is gone.
    pub reason: CloseReason,
}

/// The state of a connection. The layout makes its name one byte of it.
#[derive(Debug)]
#[repr(u8)]
pub enum State {
    /// See [`Closed`].
    Closed(Closed) = StateName::Closed as u8,
    /// See [`SynSent`].
    SynSent(SynSent) = StateName::SynSent as u8,
    /// See [`SynRcvd`].
    SynRcvd(SynRcvd) = StateName::SynRcvd as u8,
    /// See [`Established`].
    Established(Established) = StateName::Established as u8,
    /// See [`FinWait1`].
    FinWait1(FinWait1) = StateName::FinWait1 as u8,
    /// See [`FinWait2`].
    FinWait2(FinWait2) = StateName::FinWait2 as u8,
    /// See [`CloseWait`].
    CloseWait(CloseWait) = StateName::CloseWait as u8,
    /// See [`Closing`].
    Closing(Closing) = StateName::Closing as u8,
    /// See [`LastAck`].
    LastAck(LastAck) = StateName::LastAck as u8,
    /// See [`TimeWait`].
    TimeWait(TimeWait) = StateName::TimeWait as u8,
}

impl Default for State {
    #[inline]
    fn default() -> Self {
        Self::Closed(Closed { reason: CloseReason::Aborted })
    }
}

impl State {
    /// Drops the values of this state, so that the next state can be built in place without a copy.
    #[inline]
    pub fn leave(&mut self) {
        *self = Self::TimeWait(TimeWait);
    }

    /// Enters SYN-RECEIVED. The caller then writes its values one by one in place. If they were assembled
    /// elsewhere first, the copy would wait for those stores.
    #[inline]
    pub fn receive_syn(&mut self) -> &mut SynRcvd {
        self.leave();
        // Assigned as a whole, the constant would be copied through the stack.
        *self = Self::SynRcvd(SynRcvd { options: OptionBytes::EMPTY, ..SynRcvd::BEGIN });
        let Self::SynRcvd(syn) = self else { unreachable!("it was just put there") };
        syn
    }

    /// The state's name in the transition table.
    #[inline]
    #[must_use]
    pub fn name(&self) -> StateName {
        match self {
            Self::SynSent(_) => StateName::SynSent,
            Self::SynRcvd(_) => StateName::SynRcvd,
            Self::Established(_) => StateName::Established,
            Self::FinWait1(_) => StateName::FinWait1,
            Self::FinWait2(_) => StateName::FinWait2,
            Self::CloseWait(_) => StateName::CloseWait,
            Self::Closing(_) => StateName::Closing,
            Self::LastAck(_) => StateName::LastAck,
            Self::TimeWait(_) => StateName::TimeWait,
            Self::Closed(_) => StateName::Closed,
        }
    }

    /// Whether the peer may still send data in this state (RFC 9293 §3.10.7.4, seventh step).
    #[inline]
    #[must_use]
    pub fn receives(&self) -> bool {
        matches!(self, Self::SynRcvd(_) | Self::Established(_) | Self::FinWait1(_) | Self::FinWait2(_))
    }
}
