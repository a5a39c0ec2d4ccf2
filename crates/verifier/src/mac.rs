//! Authentication codes by HMAC-SHA-256 (RFC 2104), cut to 16 bytes as its §5 allows.

use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use rand_core::CryptoRng;
use sha2::Sha256;
use zeroize::Zeroizing;

/// A key of 32 bytes. Zeroised when dropped, never printed.
#[derive(Clone)]
pub(crate) struct MacKey(Zeroizing<[u8; 32]>);

impl MacKey {
    pub(crate) fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *bytes);
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn hash(&self, input: &[u8]) -> Hmac<Sha256> {
        // Pad the key to a block of the hash: HMAC pads a shorter key with zeros (RFC 2104 §2).
        let mut block = Zeroizing::new([0; 64]);
        block[..32].copy_from_slice(&*self.0);
        Hmac::<Sha256>::new((&*block).into()).chain_update(input)
    }

    /// The key that follows from this one and `input`.
    pub(crate) fn derive(&self, input: &[u8]) -> Self {
        Self(Zeroizing::new(self.hash(input).finalize().into_bytes().into()))
    }

    pub(crate) fn code(&self, input: &[u8]) -> [u8; 16] {
        let code: [u8; 32] = self.hash(input).finalize().into_bytes().into();
        code.first_chunk().copied().unwrap_or_default()
    }

    /// Compares in constant time.
    pub(crate) fn verifies(&self, input: &[u8], code: &[u8; 16]) -> bool {
        self.hash(input).verify_truncated_left(code).is_ok()
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::MacKey;

    /// RFC 4231 §4.2 has a key of 20 bytes. With zeros appended it is an equivalent key.
    #[test]
    fn the_code_is_hmac_sha_256() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let code = MacKey::new(key).code(b"Hi There");
        let expected =
            [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53, 0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b, 0xf1, 0x2b];
        assert_eq!(code, expected);
        assert!(MacKey::new(key).verifies(b"Hi There", &expected));
        assert!(!MacKey::new(key).verifies(b"Hi there", &expected));
        assert!(!MacKey::new([0; 32]).verifies(b"Hi There", &expected));
    }
}
