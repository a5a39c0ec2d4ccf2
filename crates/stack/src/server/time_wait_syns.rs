//! SYNs that met a TIME-WAIT and were answered with an ACK that has its numbers.
//!
//! The client of such a SYN resets the old connection and sends its SYN again (RFC 9293 §3.5.1). After the RST a
//! second SYN may open a connection, although it is not newer than the old one. All other RSTs are ignored in
//! TIME-WAIT, because a RST may be the peer's answer to our ACK of an old duplicate (RFC 1337 §3, fix 1).
//!
//! The second SYN must not carry data. The first SYN may have been a late copy of one whose data was executed, and the
//! second one another copy.

use firstflight_wire::SeqNum;

/// Number of SYNs remembered. A RST follows its SYN within a round trip. If more SYNs than this meet a TIME-WAIT in
/// that time, the clients of the forgotten ones wait until the TIME-WAIT is over.
const MOST: usize = 256;

/// A bounded memory; a new SYN takes the place of the oldest.
#[derive(Debug, Default)]
pub(crate) struct Challenged {
    syns: alloc::vec::Vec<Challenge>,
    next: usize,
}

#[derive(Debug)]
struct Challenge {
    /// Hash of the four-tuple.
    hash: u64,
    /// The number that the RST must have.
    ack: SeqNum,
    /// The RST came.
    reset: bool,
}

impl Challenged {
    /// The SYN of the flow with this hash was answered with the acknowledgement number `ack`.
    pub(crate) fn note(&mut self, hash: u64, ack: SeqNum) {
        if self.find(hash, ack).is_some() {
            return;
        }
        let challenge = Challenge { hash, ack, reset: false };
        match self.syns.get_mut(self.next) {
            Some(oldest) => *oldest = challenge,
            None => self.syns.push(challenge),
        }
        self.next = (self.next + 1) % MOST;
    }

    /// A RST with number `seq`, which may answer that acknowledgement.
    pub(crate) fn reset(&mut self, hash: u64, seq: SeqNum) {
        if let Some(challenge) = self.find(hash, seq) {
            challenge.reset = true;
        }
    }

    /// Whether that acknowledgement was answered by a RST.
    #[must_use]
    pub(crate) fn is_reset(&mut self, hash: u64, ack: SeqNum) -> bool {
        self.find(hash, ack).is_some_and(|challenge| challenge.reset)
    }

    fn find(&mut self, hash: u64, ack: SeqNum) -> Option<&mut Challenge> {
        self.syns.iter_mut().find(|challenge| (challenge.hash, challenge.ack) == (hash, ack))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_way() {
        let mut challenged = Challenged::default();
        let ack = SeqNum::new(7);
        for hash in 0..MOST as u64 + 3 {
            challenged.note(hash, ack);
            challenged.note(hash, ack);
        }
        assert_eq!(challenged.syns.len(), MOST);
        for hash in 2..=4 {
            assert!(!challenged.is_reset(hash, ack));
            challenged.reset(hash, ack + u32::from(hash == 4));
        }
        assert_eq!([2, 3, 4].map(|hash| challenged.is_reset(hash, ack)), [false, true, false]);
    }
}
