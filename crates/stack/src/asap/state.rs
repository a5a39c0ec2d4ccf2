//! What the stack keeps of certificates: while a SYN waits, and while a connection lives.

use crate::event::JobId;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use core::net::{IpAddr, SocketAddr};
use firstflight_credential::Work;
use firstflight_credential::asap::{AcceptedBlock, AsapShard, BudgetConfig, Candidate, ReplyKey};
use firstflight_wire::SeqNum;
use firstflight_wire::asap::{Hint, Status};

/// What the server's side keeps.
#[derive(Debug)]
pub(crate) struct ServerState {
    /// What is known of certificates and of the clients that show them.
    pub shard: AsapShard,
    /// Children (by index) whose first flight came with a certificate, which vouches for them until their client's ACK.
    pub certified: BTreeMap<u32, Vouched>,
    /// Signatures to verify, oldest first. Some may belong to SYNs that no longer wait.
    pub verifications: VecDeque<(JobId, Box<Candidate>)>,
    /// Messages to the verifier, if one shares the encapsulation's port.
    pub messages: Option<VecDeque<VerifierMessage>>,
}

impl ServerState {
    pub(crate) fn new(config: BudgetConfig) -> Self {
        Self {
            shard: AsapShard::new(config),
            certified: BTreeMap::new(),
            verifications: VecDeque::new(),
            messages: None,
        }
    }
}

/// A credential block whose SYN waits.
#[derive(Debug)]
pub(crate) struct DeferredBlock {
    /// The tag that the reply repeats.
    pub tag: [u8; 2],
    /// Set once its signatures are right.
    pub candidate: Option<Box<Candidate>>,
    /// Set if a front delivered it.
    pub returned: Option<Returned>,
}

impl DeferredBlock {
    /// The block, if this work is about one.
    pub(crate) fn of(work: &Work) -> Option<Self> {
        match work {
            Work::Verify(candidate) => Some(Self { tag: candidate.tag(), candidate: None, returned: None }),
            _ => None,
        }
    }

    /// The certificate, if its signatures are right.
    pub(crate) fn certificate(self) -> Option<Box<Certificate>> {
        let Self { candidate, returned, .. } = self;
        candidate.map(|candidate| Box::new(Certificate { candidate, returned }))
    }
}

/// The certificate of an admitted first flight.
pub(crate) struct Certificate {
    pub candidate: Box<Candidate>,
    /// Set if a front delivered it.
    pub returned: Option<Returned>,
}

/// What the answer to a first flight that a front delivered needs.
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

/// The client whose certificate came with an accepted first flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vouched {
    pub block: AcceptedBlock,
    /// How many bytes of data the block signs.
    pub signed_len: u32,
    /// When the certificate ends, Unix seconds.
    pub ends: u64,
    /// Set if a front delivered the first flight: what the client's own copy permits.
    pub direct: Option<DirectCopy>,
    /// The client's ACK proved its address: the certificate vouches for nothing any more.
    pub proved: bool,
}

/// What the client's own copy of a relayed first flight permits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectCopy {
    pub request_id: [u8; 8],
    /// Additional bytes that may be sent before the client's ACK.
    pub more: u32,
}

/// A message to the verifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierMessage {
    /// The client's address and port.
    pub client: SocketAddr,
    /// Our address that it came to. The answer leaves from there.
    pub local: IpAddr,
    /// The message.
    pub bytes: Box<[u8]>,
}
