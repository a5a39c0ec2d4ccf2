//! Outcomes as numbers and as a structure.

pub use crate::reasons::*;

use crate::boundary::Structure;
use firstflight::credential::{Outcome, Reason};
use firstflight_kernel::TcpInfo;
use std::ffi::c_int;
use std::time::Duration;

/// Not decided yet.
pub const FF_OUTCOME_UNDECIDED: c_int = 0;
/// The data skipped the handshake.
pub const FF_OUTCOME_ACCEPTED: c_int = 1;
/// The same, and something on the path removed the server's option.
pub const FF_OUTCOME_ACCEPTED_REPLY_STRIPPED: c_int = 2;
/// A part of the data skipped the handshake.
pub const FF_OUTCOME_ACCEPTED_PART: c_int = 3;
/// An ordinary handshake, for a reason.
pub const FF_OUTCOME_HANDSHAKE: c_int = 4;

/// `struct ff_outcome`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ff_outcome {
    /// `sizeof(struct ff_outcome)` of the caller.
    pub size: usize,
    /// `FF_OUTCOME_…`.
    pub outcome: i32,
    /// `FF_REASON_…`.
    pub reason: i32,
    /// 1 if the data, or a part of it, skipped the handshake.
    pub accepted: i32,
    /// 1 if the handshake is complete.
    pub confirmed: i32,
    /// Server: bytes that arrived in the SYN.
    pub early_bytes: u32,
    /// Smoothed round-trip time, µs.
    pub rtt_us: u32,
    /// Its variation, µs.
    pub rttvar_us: u32,
    /// Segments sent again.
    pub retransmissions: u32,
}

// SAFETY: `repr(C)`; a `usize` and an even number of words of four bytes leave no padding; integers take any bytes.
unsafe impl Structure for ff_outcome {
    const LEAST: usize = size_of::<Self>();
}

impl ff_outcome {
    /// An outcome with what the kernel says of the connection.
    pub fn of(outcome: Outcome, early_bytes: u32, info: Option<&TcpInfo>) -> Self {
        let (number, reason) = numbers(outcome);
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        Self {
            size: size_of::<Self>(),
            outcome: number,
            reason,
            accepted: outcome.is_accepted().into(),
            confirmed: info.is_some_and(|info| info.confirmed).into(),
            early_bytes,
            rtt_us: info.map_or(0, |info| micros(info.srtt)),
            rttvar_us: info.map_or(0, |info| micros(info.rttvar)),
            retransmissions: info.map_or(0, |info| info.retransmissions),
        }
    }
}

/// The numbers of an outcome and its reason.
fn numbers(outcome: Outcome) -> (c_int, c_int) {
    let number = match outcome {
        Outcome::Accepted => FF_OUTCOME_ACCEPTED,
        Outcome::AcceptedReplyStripped => FF_OUTCOME_ACCEPTED_REPLY_STRIPPED,
        Outcome::AcceptedPart => FF_OUTCOME_ACCEPTED_PART,
        Outcome::Handshake(_) => FF_OUTCOME_HANDSHAKE,
        _ => FF_OUTCOME_UNDECIDED,
    };
    (number, outcome.reason().map_or(FF_REASON_NONE, number_of))
}

fn number_of(reason: Reason) -> c_int {
    reason.index() as c_int + 1
}

pub(crate) fn reason(number: c_int) -> Option<Reason> {
    Reason::ALL.iter().copied().find(|reason| number_of(*reason) == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_the_number_of_its_constant() {
        let source = include_str!("reasons.rs");
        for reason in Reason::ALL {
            let name = reason.as_str().replace('-', "_").to_uppercase();
            let (_, number) = numbers(Outcome::Handshake(*reason));
            assert!(source.contains(&format!("FF_REASON_{name}: c_int = {number};")), "{name} {number}");
            assert_eq!(super::reason(number), Some(*reason));
        }
        assert_eq!(source.matches(": c_int =").count(), Reason::ALL.len() + 1);
        assert_eq!([0, -1, 4711].map(reason), [None; 3]);
    }
}
