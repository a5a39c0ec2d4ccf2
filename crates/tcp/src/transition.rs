//! The transition table of RFC 9293 §3.3.2 as data, with the edges of Fast Open and of the first flight.
//!
//! A connection changes its state only through [`next`], so the table is the implementation.

use core::fmt;

/// The eleven states (RFC 9293 §3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StateName {
    /// No connection.
    Closed,
    /// A listener waits for SYNs (kept by the stack, not by a connection).
    Listen,
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and answered.
    SynRcvd,
    /// Open in both directions.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed; our FIN is acknowledged.
    FinWait2,
    /// The peer closed.
    CloseWait,
    /// Both closed at the same time; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we closed; our FIN is not acknowledged.
    LastAck,
    /// Both closed; the connection waits until old segments have expired.
    TimeWait,
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "CLOSED",
            Self::Listen => "LISTEN",
            Self::SynSent => "SYN-SENT",
            Self::SynRcvd => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
        })
    }
}

/// What makes a connection change its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trigger {
    /// The application listens.
    PassiveOpen,
    /// The application connects without first-flight data.
    ActiveOpen,
    /// The application connects and its first data rides in the SYN.
    ActiveOpenFirstFlight,
    /// A SYN without data that may be delivered at once.
    Syn,
    /// A SYN whose credential was admitted: its data is readable at once.
    SynFirstFlight,
    /// A SYN-ACK that acknowledges the SYN only.
    SynAck,
    /// A SYN-ACK that acknowledges first-flight data too.
    SynAckFirstFlight,
    /// The ACK of our SYN.
    HandshakeAck,
    /// The application closed its sending direction.
    Close,
    /// The peer's FIN; everything before it was received.
    Fin,
    /// The ACK of our FIN.
    FinAck,
    /// 2 MSL have passed.
    TimeWaitOver,
    /// A valid RST, an abort, or no answer for too long.
    Abort,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PassiveOpen => "passive open",
            Self::ActiveOpen => "active open / SYN",
            Self::ActiveOpenFirstFlight => "active open with first flight / SYN+data",
            Self::Syn => "SYN / SYN-ACK",
            Self::SynFirstFlight => "SYN+credential+data admitted / SYN-ACK of all",
            Self::SynAck => "SYN-ACK / ACK",
            Self::SynAckFirstFlight => "SYN-ACK of data / ACK",
            Self::HandshakeAck => "ACK of SYN",
            Self::Close => "close / FIN",
            Self::Fin => "FIN / ACK",
            Self::FinAck => "ACK of FIN",
            Self::TimeWaitOver => "2 MSL",
            Self::Abort => "RST, abort or timeout",
        })
    }
}

use StateName as S;
use Trigger as T;

/// Every legal transition. Any state but CLOSED also goes to CLOSED on [`Trigger::Abort`].
pub const TABLE: &[(StateName, Trigger, StateName)] = &[
    (S::Closed, T::PassiveOpen, S::Listen),
    (S::Closed, T::ActiveOpen, S::SynSent),
    (S::Closed, T::ActiveOpenFirstFlight, S::SynSent),
    (S::Listen, T::Syn, S::SynRcvd),
    (S::Listen, T::SynFirstFlight, S::SynRcvd),
    // A SYN cookie keeps no SYN-RECEIVED state: its ACK opens from LISTEN (RFC 4987 §3.6).
    (S::Listen, T::HandshakeAck, S::Established),
    (S::SynSent, T::SynAck, S::Established),
    (S::SynSent, T::SynAckFirstFlight, S::Established),
    (S::SynSent, T::Syn, S::SynRcvd),
    (S::SynSent, T::Close, S::Closed),
    (S::SynRcvd, T::HandshakeAck, S::Established),
    (S::Established, T::Close, S::FinWait1),
    (S::Established, T::Fin, S::CloseWait),
    (S::FinWait1, T::FinAck, S::FinWait2),
    (S::FinWait1, T::Fin, S::Closing),
    (S::FinWait2, T::Fin, S::TimeWait),
    (S::CloseWait, T::Close, S::LastAck),
    (S::Closing, T::FinAck, S::TimeWait),
    (S::LastAck, T::FinAck, S::Closed),
    (S::TimeWait, T::TimeWaitOver, S::Closed),
];

/// Number of states, and number of triggers.
const STATES: usize = StateName::TimeWait as usize + 1;
const TRIGGERS: usize = Trigger::Abort as usize + 1;

/// [`TABLE`] as an array, so that a transition takes one lookup.
static NEXT: [[Option<StateName>; TRIGGERS]; STATES] = {
    let mut next = [[None; TRIGGERS]; STATES];
    let mut i = 0;
    while i < TABLE.len() {
        let (from, trigger, to) = TABLE[i];
        next[from as usize][trigger as usize] = Some(to);
        i += 1;
    }
    let mut from = S::Closed as usize + 1;
    while from < STATES {
        next[from][T::Abort as usize] = Some(S::Closed);
        from += 1;
    }
    next
};

/// The state that `trigger` leads to, or `None` if it is not legal in `from`.
#[inline]
#[must_use]
pub fn next(from: StateName, trigger: Trigger) -> Option<StateName> {
    NEXT[from as usize][trigger as usize]
}

/// A transition that took place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// State before.
    pub from: StateName,
    /// What happened.
    pub trigger: Trigger,
    /// State after.
    pub to: StateName,
}

/// The newest transitions not yet taken, oldest first. It has room for those that one call can cause.
#[derive(Default)]
pub(crate) struct Transitions {
    list: [Option<Transition>; 4],
    len: u8,
}

impl fmt::Debug for Transitions {
    /// Shows only the transitions not yet taken: the entries behind them are stale.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list.iter().flatten().take(self.len.into())).finish()
    }
}

impl Transitions {
    /// Notes a transition that took place.
    #[inline]
    pub(crate) fn note(&mut self, transition: Transition) {
        if let Some(free) = self.list.get_mut(usize::from(self.len)) {
            *free = Some(transition);
            self.len += 1;
        }
    }

    /// Removes and returns the oldest transition.
    pub(crate) fn take(&mut self) -> Option<Transition> {
        self.len = self.len.checked_sub(1)?;
        let [first, second, third, fourth] = self.list;
        self.list = [second, third, fourth, None];
        first
    }

    /// Removes all transitions.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.len = 0;
    }
}
