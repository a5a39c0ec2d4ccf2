//! The bind of a flight to a block (5).

use core::fmt;
use firstflight_credential::asap::{AcceptedBlock, Identity};
use firstflight_wire::asap::context;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const CONTEXT: [u8; 32] = context("firstflight seal v1 bind");

/// Which block a flight belongs to (5).
#[derive(Clone, Copy)]
pub struct Bind(pub(crate) [u8; 16]);

impl Bind {
    /// Without a block.
    pub const NONE: Self = Self([0; 16]);

    /// The bind to the block with this client key and request id, which was signed for this identity. With hidden names
    /// that is the identity of the public name (7.5).
    #[must_use]
    pub fn new(client_key: &[u8; 32], request_id: &[u8; 8], identity: &Identity) -> Self {
        let hash = Sha256::new_with_prefix(CONTEXT)
            .chain_update(client_key)
            .chain_update(request_id)
            .chain_update(identity.digest());
        let hash: [u8; 32] = hash.finalize().into();
        let mut bind = [0; 16];
        bind.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        Self(bind)
    }

    /// The bind to this block, as its client or its server sees it.
    #[must_use]
    pub fn to(block: &AcceptedBlock) -> Self {
        Self::new(&block.client_key, &block.request_id, &Identity::from_digest(block.identity))
    }

    /// Whether there is a block: the request is bound, and could have run early somewhere.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        !bool::from(self.0.ct_eq(&[0; 16]))
    }

    /// The bytes. They are public: an eavesdropper can compute them from the block.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }
}

impl PartialEq for Bind {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Bind {}

impl fmt::Debug for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_bound() { "Bind(..)" } else { "Bind::NONE" })
    }
}
