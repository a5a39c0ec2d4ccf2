//! The ClientHello commits to the request, and the server to the seal (4).

use crate::defence::{Defence, on};
use crate::plain::Inner;
use core::fmt;
use firstflight_wire::asap::context;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const CONTEXT: [u8; 32] = context("firstflight seal v1 commitment");

/// In front of the protocol in the first ALPN name.
pub const PROTOCOL_PREFIX: [u8; 3] = [0xff, 0x53, 0x01];
/// In front of the digest in the second ALPN name.
pub const DIGEST_PREFIX: [u8; 3] = [0xff, 0x53, 0x02];
/// What both begin with.
const RESERVED: [u8; 2] = [0xff, 0x53];
/// Longest protocol, bytes: an ALPN name has at most 255.
const LONGEST_PROTOCOL: usize = 255 - PROTOCOL_PREFIX.len();

/// The digest of a request (4.2).
#[derive(Clone, Copy)]
pub struct Commitment([u8; 32]);

impl Commitment {
    /// The digest for the request in `inner`, sealed with the `info` that has this hash. The ClientHello in `inner` does
    /// not matter.
    #[must_use]
    pub fn new(info_hash: &[u8; 32], inner: &Inner<'_>) -> Self {
        let Inner { rid, bind, t_ms, flags, hello: _, request } = inner;
        let info: &[u8] = if on(Defence::DigestCoversInfo) { info_hash } else { &[] };
        let len = (request.len() as u16).to_be_bytes();
        let [_, _, t @ ..] = t_ms.to_be_bytes();
        let hash = Sha256::new_with_prefix(CONTEXT)
            .chain_update(info)
            .chain_update(rid.0)
            .chain_update(bind.0)
            .chain_update(t)
            .chain_update([flags.to_byte()])
            .chain_update(len)
            .chain_update(request);
        Self(hash.finalize().into())
    }

    /// The digest.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Whether a ClientHello commits to this request.
    #[must_use]
    pub fn is(&self, digest: &[u8; 32]) -> bool {
        bool::from(self.0.ct_eq(digest)) || !on(Defence::Digest)
    }
}

impl fmt::Debug for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Commitment(..)")
    }
}

/// The two ALPN names of a ClientHello in a flight, in their order (4.1). `None` if the protocol has not 1 to 252 bytes.
#[must_use]
pub fn names(protocol: &[u8], commitment: &Commitment) -> Option<[Vec<u8>; 2]> {
    if protocol.is_empty() || protocol.len() > LONGEST_PROTOCOL {
        return None;
    }
    Some([[&PROTOCOL_PREFIX, protocol].concat(), [&DIGEST_PREFIX[..], &commitment.0].concat()])
}

/// Whether an ALPN name belongs to flights. A server refuses a ClientHello in clear that offers one, and never selects one
/// there (4.3).
#[must_use]
pub fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(&RESERVED) && on(Defence::ReservedNames)
}

/// Whether the server took the flight, by the ALPN name that it selected (4.4). It counts only after the server's Finished
/// was verified.
#[must_use]
pub fn is_taken(selected: Option<&[u8]>, protocol: &[u8]) -> bool {
    let name = selected.and_then(|name| name.strip_prefix(&PROTOCOL_PREFIX));
    name == Some(protocol) || !on(Defence::Selection)
}
