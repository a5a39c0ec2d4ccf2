//! The server that a request is for, as the client knows it.

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
