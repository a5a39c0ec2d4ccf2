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
mod tests {
    use super::*;
    use alloc::string::String;
    use data_encoding::HEXLOWER;

    fn flow(client: &str, server: &str) -> Flow {
        Flow { client: client.parse().unwrap(), server: server.parse().unwrap() }
    }

    fn cookie(scheme: Scheme, key: CookieKey, client: &str, server: &str) -> String {
        HEXLOWER.encode(&scheme.load(key).make(&flow(client, server)))
    }

    //= rfc7413 4.1.2-a test
    #[test]
    fn linux_vectors() {
        let key: CookieKey = "a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4".parse().unwrap();
        let zero = CookieKey::from_bytes([0; 16]);
        let v4 = ("192.0.2.1", "192.168.0.1");
        let v6 = ("fd3d:fa7b:d17d::1", "fd3d:0a0b:17d6::1");
        assert_eq!(cookie(Scheme::Linux, key.clone(), v4.0, v4.1), "3021b9d889017eeb");
        assert_eq!(cookie(Scheme::Linux, key, v6.0, v6.1), "c1d1e9742a47a9bc");
        assert_eq!(cookie(Scheme::Linux, zero.clone(), v4.0, v4.1), "b7c12350a90dc8f5");
        assert_eq!(cookie(Scheme::Linux, zero, v6.0, v6.1), "82af1a8f9a205c34");
    }

    /// FIPS 197 appendix C.1: an IPv6 address is a whole AES block.
    #[test]
    fn paper_is_aes_of_the_client_alone() {
        let key = CookieKey::from_bytes(core::array::from_fn(|i| i as u8));
        let client = "0011:2233:4455:6677:8899:aabb:ccdd:eeff";
        assert_eq!(cookie(Scheme::Paper, key.clone(), client, "::1"), "69c4e0d86a7b0430");
        assert_eq!(cookie(Scheme::Paper, key, client, "::2"), "69c4e0d86a7b0430");
    }

    #[test]
    fn paper_pads_ipv4_with_zeros() {
        let key = CookieKey::from_bytes([7; 16]);
        let v4 = cookie(Scheme::Paper, key.clone(), "192.0.2.1", "192.168.0.1");
        assert_eq!(v4, cookie(Scheme::Paper, key.clone(), "c000:0201::", "::1"));
        assert_ne!(v4, cookie(Scheme::Paper, key, "192.0.2.2", "192.168.0.1"));
    }
}
