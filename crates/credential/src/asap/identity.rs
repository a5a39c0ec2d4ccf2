//! The server that a request is for, as the client knows it.

use alloc::string::String;
use core::fmt;
use core::net::IpAddr;
use firstflight_wire::asap::{identity_input, mapped};
use sha2::{Digest, Sha256};

/// The identity of a server: the host name and port to which the application connects, or the address and
/// port if there is no name. A request is signed for one identity, so that no other server can use it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity([u8; 32]);

impl Identity {
    /// The server `name` at `port`, as the client sees it. `name` is an A-label host name, in upper or lower
    /// case, with or without a final dot.
    #[must_use]
    pub fn name(name: &str, port: u16) -> Self {
        let name: String = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        Self::of(1, port, name.as_bytes())
    }

    /// The server at this address and port as the client sees them, for connections without a name.
    #[must_use]
    pub fn address(address: IpAddr, port: u16) -> Self {
        match address {
            IpAddr::V4(address) => Self::of(2, port, &address.octets()),
            IpAddr::V6(address) => Self::of(3, port, &address.octets()),
        }
    }

    fn of(kind: u8, port: u16, value: &[u8]) -> Self {
        let hash = Sha256::new_with_prefix(identity_input(kind, port)).chain_update(value);
        Self(hash.finalize().into())
    }

    /// The identity with this digest, for example that of an [`AcceptedBlock`](super::AcceptedBlock).
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

/// First bytes of the SHA-256 of an address. They distinguish a certificate for another address from a forged
/// one.
#[must_use]
pub fn address_tag(address: IpAddr) -> [u8; 2] {
    let [a, b, ..]: [u8; 32] = Sha256::digest(mapped(address)).into();
    [a, b]
}
