//! SYNs that met a TIME-WAIT and were answered with an ACK that has its numbers.
//!
//! The client of such a SYN resets the old connection and sends its SYN again (RFC 9293 §3.5.1). The RST has to end the
//! TIME-WAIT (§3.10.7.4), so that the second SYN opens a connection. All other RSTs are ignored in TIME-WAIT, because a
//! RST may be the peer's answer to our ACK of an old duplicate (RFC 1337 §3, fix 1).

use firstflight_wire::SeqNum;

/// Number of SYNs remembered. A RST follows its SYN within a round trip. If more SYNs than this meet a TIME-WAIT in
/// that time, the clients of the forgotten ones wait until the TIME-WAIT is over.
const MOST: usize = 256;

/// A bounded memory; a new SYN takes the place of the oldest.
#[derive(Debug, Default)]
pub struct Challenged {
    /// Hash of the four-tuple, and the number that the RST must have.
    syns: alloc::vec::Vec<(u64, SeqNum)>,
    next: usize,
}

impl Challenged {
    /// The SYN of the flow with this hash was answered with the acknowledgement number `ack`.
    #[cold]
    pub fn note(&mut self, hash: u64, ack: SeqNum) {
        if self.syns.contains(&(hash, ack)) {
            return;
        }
        match self.syns.get_mut(self.next) {
            Some(oldest) => *oldest = (hash, ack),
            None => self.syns.push((hash, ack)),
        }
        self.next = (self.next + 1) % MOST;
    }

    /// Whether a RST with number `seq` answers that acknowledgement.
    #[cold]
    #[must_use]
    pub fn confirms(&self, hash: u64, seq: SeqNum) -> bool {
        self.syns.contains(&(hash, seq))
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
        assert!(!challenged.confirms(2, ack) && challenged.confirms(3, ack));
        assert!(!challenged.confirms(3, ack + 1));
    }
}
