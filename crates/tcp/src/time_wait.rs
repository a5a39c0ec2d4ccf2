//! TIME-WAIT as a small record (RFC 9293 §3.6.1): the part of a connection that remains for 2 MSL.

use firstflight_wire::SeqNum;
use firstflight_wire::tcp::{Flags, Segment};

/// The values needed to judge and answer old segments of the connection. The offset of our timestamps is not
/// part of it: it is the same for all connections between the same two endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeWait {
    /// Our next number.
    pub snd_nxt: SeqNum,
    /// The peer's next number.
    pub rcv_nxt: SeqNum,
    /// Last timestamp of the peer.
    pub ts_recent: u32,
    /// Whether timestamps were in use.
    pub timestamps: bool,
}

/// What to do with a segment for a connection in TIME-WAIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeWaitAction {
    /// Nothing: an old ACK, or a RST (RFC 1337 §3). The stack lets a RST end the TIME-WAIT if a SYN before it was
    /// answered.
    Ignore,
    /// Acknowledge again. A retransmission of the peer's FIN restarts the 2 MSL.
    Acknowledge {
        /// Whether the 2 MSL start again.
        restart: bool,
    },
    /// A new SYN may reuse the four-tuple (RFC 6191, RFC 9293 §3.6.1), with an ISN above `above`.
    Reopen {
        /// Our new ISN must be larger.
        above: SeqNum,
    },
}

impl TimeWait {
    /// Judges `segment`.
    #[must_use]
    pub fn judge(&self, segment: &Segment<'_>) -> TimeWaitAction {
        if segment.flags.contains(Flags::RST) {
            return TimeWaitAction::Ignore;
        }
        // A SYN with FIN opens nothing, so it must not end the TIME-WAIT either.
        if segment.flags.contains(Flags::SYN) && !segment.flags.intersects(Flags::ACK.union(Flags::FIN)) {
            // RFC 6191 §2: with an older timestamp the SYN is refused, whatever its sequence number is.
            //= rfc9293 SHLD-4
            let newer = match segment.options.timestamps {
                Some(ts) if self.timestamps && ts.value != self.ts_recent => {
                    (ts.value.wrapping_sub(self.ts_recent) as i32) > 0
                }
                _ => segment.seq.gt(self.rcv_nxt),
            };
            if newer {
                return self.reopen();
            }
            return TimeWaitAction::Acknowledge { restart: false };
        }
        if segment.flags.contains(Flags::FIN) {
            return TimeWaitAction::Acknowledge { restart: self.is_fin_again(segment) };
        }
        if !segment.is_empty() {
            return TimeWaitAction::Acknowledge { restart: false };
        }
        TimeWaitAction::Ignore
    }

    /// A new connection reuses the four-tuple.
    #[must_use]
    pub fn reopen(&self) -> TimeWaitAction {
        TimeWaitAction::Reopen { above: self.snd_nxt + 0xffff }
    }

    /// Whether `segment` is a retransmission of the peer's FIN: it ends where the peer's stream ends, and is no older
    /// than the last segment. No other FIN may prolong the 2 MSL; otherwise an off-path attacker who knows only the
    /// four-tuple could prolong it without limit (the checks of RFC 9293 §3.10.7.4 come before its rule for TIME-WAIT).
    fn is_fin_again(&self, segment: &Segment<'_>) -> bool {
        let timely = |value: u32| (value.wrapping_sub(self.ts_recent) as i32) >= 0;
        segment.flags.contains(Flags::ACK)
            && segment.seq + segment.len() == self.rcv_nxt
            && (!self.timestamps || segment.options.timestamps.is_some_and(|ts| timely(ts.value)))
    }
}
