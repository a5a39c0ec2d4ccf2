//! One struct for each state: what is valid in one state lives only there.
//!
//! What outlives a state (the two halves of the stream, timers, congestion control) belongs to the
//! connection. LISTEN is the stack's, TIME-WAIT after the last ACK is a compact record of its own
//! ([`crate::time_wait`]).

use crate::error::CloseReason;
use crate::transition::StateName;
use alloc::boxed::Box;
use core::time::Duration;
use firstflight_wire::tcp::OptionBytes;
use firstflight_wire::{Instant, SeqNum};

/// A SYN was sent.
#[derive(Debug)]
pub struct SynSent {
    /// Extra options, sent last.
    pub options: OptionBytes,
    /// Bytes in front of the data that use sequence space but are not part of the stream.
    pub preamble: Box<[u8]>,
    /// Time until the SYN is sent again the first time, if it was measured earlier.
    pub first_timeout: Option<Duration>,
    /// Preamble and data that the first SYN carried, numbers.
    pub carried: u32,
    /// Bytes of the stream that follow it at once.
    pub follow: u32,
    /// Largest payload of the segments that they leave in.
    pub segment: u16,
    /// SYNs sent after the first.
    pub retransmits: u8,
    /// How many of them left because the one before was too big for the path.
    pub too_big: u8,
    /// A SYN met an earlier connection of the four-tuple, and was sent again at once.
    pub met_old: bool,
    /// A RST or an ICMP error answered the first SYN; a plain one was sent.
    pub refused: bool,
    /// How long after the first SYN that came.
    pub refused_after: Duration,
    /// See [`crate::SynPlan::repeats`].
    pub repeats: u8,
    /// SYNs that left because of a timeout.
    pub timeouts: u8,
    /// When the first SYN left; [`Instant::FAR_FUTURE`] before.
    pub first_sent: Instant,
    /// A SYN is to be sent.
    pub pending: bool,
    /// It travels another way, too: no answer says how long the way is.
    pub elsewhere: bool,
}

impl SynSent {
    /// The number behind what follows the SYN at once; `None` once the SYN was sent again. `iss` is ours.
    #[inline]
    #[must_use]
    pub fn follow_end(&self, iss: SeqNum) -> Option<SeqNum> {
        (self.follow > 0 && self.retransmits == 0).then(|| iss + 1 + self.carried + self.follow)
    }
}

/// Who began the handshake that is in SYN-RECEIVED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A listener's child.
    Listener,
    /// Both sides sent a SYN (RFC 9293 §3.5, figure 8).
    Simultaneous,
}

/// A SYN was received; our SYN-ACK is not acknowledged.
#[derive(Debug)]
pub struct SynRcvd {
    /// Who began.
    pub origin: Origin,
    /// The SYN's data was delivered before the handshake completed, and we may answer.
    pub early: bool,
    /// Options on every SYN-ACK, but for the last `once` bytes.
    pub options: OptionBytes,
    /// Bytes of them that are on the first alone.
    pub once: u8,
    /// Bytes of packets that may be sent before the client's ACK.
    pub budget: u32,
    /// Bytes below TCP that every packet costs of it.
    pub overhead: u32,
    /// SYN-ACKs sent after the first.
    pub retransmits: u8,
    /// Retransmissions allowed.
    pub retries: u8,
    /// Seconds that it waits in silence after them.
    pub linger_s: u16,
    /// Segments without ACK are taken up to this number; `None`: they are dropped.
    pub follow: Option<SeqNum>,
    /// When a SYN-ACK last left.
    pub last_sent: Option<Instant>,
    /// One had left before it.
    pub again: bool,
    /// A SYN-ACK is to be sent.
    pub pending: bool,
}

impl SynRcvd {
    /// How it begins: nothing was sent, and nothing is allowed.
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
/// We closed; our FIN is not acknowledged.
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
/// The peer closed, then we.
#[derive(Debug)]
pub struct LastAck;
/// Both closed; the stack moves the connection into its TIME-WAIT table.
#[derive(Debug)]
pub struct TimeWait;
/// Gone.
#[derive(Debug)]
pub struct Closed {
    /// Why.
    pub reason: CloseReason,
}

/// The state of a connection. Laid out so that its name is a byte of it.
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

impl State {
    /// Drops what belongs to it, before another one is put in its place: that one is then made there, and not
    /// somewhere else first.
    #[inline(always)]
    pub fn leave(&mut self) {
        *self = Self::TimeWait(TimeWait);
    }

    /// SYN-RECEIVED from now on, its values yet to be written: one by one where they stay, because what is put
    /// together first is waited for when it is copied.
    #[inline(always)]
    pub fn receive_syn(&mut self) -> &mut SynRcvd {
        self.leave();
        // As a whole constant it would be copied through the stack.
        *self = Self::SynRcvd(SynRcvd { options: OptionBytes::EMPTY, ..SynRcvd::BEGIN });
        let Self::SynRcvd(syn) = self else { unreachable!("it was just put there") };
        syn
    }

    /// Its name in the table.
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

    /// The peer may still send data in this state (RFC 9293 §3.10.7.4, seventh step).
    #[inline]
    #[must_use]
    pub fn receives(&self) -> bool {
        matches!(self, Self::SynRcvd(_) | Self::Established(_) | Self::FinWait1(_) | Self::FinWait2(_))
    }
}
