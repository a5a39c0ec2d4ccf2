//! What is kept of a connect whose first flight travels inside a lookup.

use crate::config::Certified;
use alloc::boxed::Box;
use firstflight_credential::asap::ReplyKey;
use firstflight_tcp::CloseReason;

/// What a connect carried in a lookup needs until it is bound to a server.
#[derive(Debug)]
pub(crate) struct InLookup {
    pub index: u32,
    pub certified: Certified,
    pub request_id: [u8; 8],
    pub data: Box<[u8]>,
    /// The server's UDP port, for the direct copy.
    pub outer: Option<u16>,
    pub answer: Expected,
    /// Why the direct copy failed, if it did.
    pub refused: Option<CloseReason>,
}

/// What makes the answer of a server that was never contacted valid.
#[derive(Debug)]
pub(crate) enum Expected {
    /// Nothing yet: no answer is accepted.
    Nothing,
    Proof(ReplyKey),
    /// The acknowledgement of the right numbers, as in the thesis.
    #[cfg(feature = "lab")]
    LabNumbers,
}
