//! The server that a request is for, as the client knows it, and what the server learns of an accepted request.

use core::fmt;

/// The identity of a server: the host name and port to which the application connects, or the address and
/// port if there is no name. A request is signed for one identity, so that no other server can use it. To make one
/// from a name or an address takes the feature `asap`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity([u8; 32]);

impl Identity {
    /// The identity with this digest, for example that of an accepted block.
    #[must_use]
    pub const fn from_digest(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The digest that the request signs.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its first bytes, by which a server with several identities finds the right one.
    #[must_use]
    pub const fn tag(&self) -> [u8; 4] {
        let [a, b, c, d, ..] = self.0;
        [a, b, c, d]
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:08x}…)", u32::from_be_bytes(self.tag()))
    }
}

/// What an accepted credential block says of its client's request. A protocol above can bind what it encrypts to it, so
/// that nobody can put the same bytes under a block of his own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AcceptedBlock {
    /// The client's key.
    pub client_key: [u8; 32],
    /// The request's id, the same in all copies of one request.
    pub request_id: [u8; 8],
    /// Digest of the identity that the request is for ([`Identity::digest`]).
    pub identity: [u8; 32],
}
