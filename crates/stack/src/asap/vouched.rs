//! What is kept of the certificate of an accepted first flight.

use firstflight_credential::asap::AcceptedBlock;

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
