//! Fast Open cookies: a keyed function of the addresses, so that the server keeps no state for clients (RFC
//! 7413 §4.1.2).

use crate::cookie_key::CookieKey;
use crate::flight::Flow;
use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use alloc::boxed::Box;
use core::hash::Hasher;
use core::net::IpAddr;
use siphasher::sip::SipHasher24;

/// A cookie function with its key loaded.
pub trait CookieScheme {
    /// The cookie of `flow`, 8 bytes.
    fn make(&self, flow: &Flow) -> [u8; 8];
}

/// The cookie function. All members of a farm use the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Scheme {
    /// The function of the Linux kernel since 5.3: SipHash-2-4 of client address ‖ server address. A farm can
    /// mix kernels and this stack.
    #[default]
    Linux,
    /// The function of the TCP Fast Open paper (§4.1): AES-128 of the client address, truncated.
    Paper,
}

impl Scheme {
    /// Loads `key`, and computes here what needs to be computed only once.
    pub(crate) fn load(self, key: CookieKey) -> Loaded {
        match self {
            Self::Linux => Loaded::Linux(Linux { key }),
            Self::Paper => Loaded::Paper(Box::new(Paper::new(&key))),
        }
    }
}

/// A scheme with its key. Both schemes zeroise their key material when dropped.
pub(crate) enum Loaded {
    Linux(Linux),
    Paper(Box<Paper>),
}

impl CookieScheme for Loaded {
    fn make(&self, flow: &Flow) -> [u8; 8] {
        match self {
            Self::Linux(scheme) => scheme.make(flow),
            Self::Paper(scheme) => scheme.make(flow),
        }
    }
}

pub(crate) struct Linux {
    key: CookieKey,
}

impl Linux {
    pub(crate) const fn key(&self) -> &CookieKey {
        &self.key
    }
}

impl CookieScheme for Linux {
    fn make(&self, flow: &Flow) -> [u8; 8] {
        //= rfc7413 4.1.2-a
        let mut hasher = SipHasher24::new_with_key(self.key.as_bytes());
        // Hash the raw octets as whole numbers, which is fast. `Hash` for addresses would also hash their
        // lengths.
        match (flow.client, flow.server) {
            (IpAddr::V4(client), IpAddr::V4(server)) => {
                let pair = (u64::from(client.to_bits()) << 32) | u64::from(server.to_bits());
                hasher.write_u64(pair.swap_bytes());
            }
            (client, server) => {
                for end in [client, server].map(|end| u128::from_le_bytes(octets(end))) {
                    hasher.write_u64(end as u64);
                    hasher.write_u64((end >> 64) as u64);
                }
            }
        }
        hasher.finish().to_le_bytes()
    }
}

pub(crate) struct Paper {
    cipher: Aes128,
}

impl Paper {
    fn new(key: &CookieKey) -> Self {
        Self { cipher: Aes128::new(key.as_bytes().into()) }
    }
}

impl CookieScheme for Paper {
    fn make(&self, flow: &Flow) -> [u8; 8] {
        let mut block = Array::from(octets(flow.client));
        self.cipher.encrypt_block(&mut block);
        let [a, b, c, d, e, f, g, h, ..] = block.0;
        [a, b, c, d, e, f, g, h]
    }
}

/// The address in 16 bytes. An IPv4 address is followed by zeros.
pub(crate) fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96).to_be_bytes(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests;
