//! SYNs that met a TIME-WAIT and were answered with its numbers.
//!
//! The client of such a SYN resets what it takes for an old connection, and sends its SYN again (RFC 9293 §3.5.1). For
//! that its RST must end the TIME-WAIT (§3.10.7.4), which otherwise ignores RSTs: a RST may be the peer's answer to our
//! answer to an old duplicate (RFC 1337 §3, fix 1). So only a RST behind a SYN counts.

use firstflight_wire::SeqNum;

/// SYNs remembered. A RST follows its SYN within a round trip; with more of them in that time, clients have to wait for
/// the end of the TIME-WAIT.
const MOST: usize = 256;

/// A bounded memory; a new SYN takes the place of the oldest.
#[derive(Debug, Default)]
pub struct Challenged {
    /// Hash of the four-tuple, and the number that the RST must have.
    syns: alloc::vec::Vec<(u64, SeqNum)>,
    next: usize,
}

impl Challenged {
    /// The SYN of the flow with this hash was answered by an acknowledgement of everything below `ack`.
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
