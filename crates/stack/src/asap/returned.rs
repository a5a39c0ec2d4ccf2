//! What is kept of a first flight that a front delivered, for its answer.

use core::net::SocketAddr;
use firstflight_credential::asap::ReplyKey;
use firstflight_wire::SeqNum;
use firstflight_wire::asap::{Hint, Status};

/// What the answer to a relayed first flight needs.
#[derive(Debug)]
pub(crate) struct Returned {
    pub key: ReplyKey,
    /// The server's address and UDP port as the client sees them.
    pub seen_as: SocketAddr,
}

impl Returned {
    /// The proof that the SYN-ACK with this sequence number, of a server that the client never contacted, is an answer.
    pub(crate) fn proof(&self, isn: SeqNum) -> Hint {
        Hint::Proof(self.key.proof(self.seen_as, isn, Status::Accepted))
    }
}
