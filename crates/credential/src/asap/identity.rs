//! Identities from names and addresses.

use crate::identity::Identity;
use alloc::string::String;
use core::net::IpAddr;
use firstflight_wire::asap::{identity_input, mapped};
use sha2::{Digest, Sha256};

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
        Self::from_digest(hash.finalize().into())
    }
}

/// First bytes of the SHA-256 of an address. They distinguish a certificate for another address from a forged
/// one.
#[must_use]
pub fn address_tag(address: IpAddr) -> [u8; 2] {
    let [a, b, ..]: [u8; 32] = Sha256::digest(mapped(address)).into();
    [a, b]
}
