//! Ed25519 keys of clients and verifiers.

use core::fmt;
use curve25519_dalek::edwards::CompressedEdwardsY;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ed25519_zebra::{Signature, SigningKey, VerificationKey, VerificationKeyBytes};
use firstflight_wire::asap::VerifierId;
use rand_core::CryptoRng;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// A private key. Zeroised when dropped, never printed.
#[derive(Clone)]
pub struct PrivateKey(SigningKey);

impl PrivateKey {
    /// A new key from a cryptographic random generator.
    #[must_use]
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut seed = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *seed);
        Self::from_seed(&seed)
    }

    /// The key of a seed (RFC 8032 §5.1.5).
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The seed. It is the secret: use it only for key files.
    #[must_use]
    pub fn to_seed(&self) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(*self.0.as_bytes())
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verification_key().into())
    }

    /// Signs (RFC 8032 §5.1.6).
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

/// A public key, as its 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// A key of these bytes, whatever they are: see [`PublicKey::is_sound`].
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// First bytes of its SHA-256, by which a certificate names its verifier.
    #[must_use]
    pub fn id(&self) -> VerifierId {
        let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(self.0).into();
        VerifierId([a, b, c, d])
    }

    /// Whether it is the canonical encoding of a point that is not of small order. With a point of small
    /// order one signature is valid for many messages, so such a key must be neither certified nor trusted.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let point = CompressedEdwardsY(self.0).decompress();
        point.is_some_and(|point| !point.is_small_order() && point.compress().0 == self.0)
    }

    /// Whether `signature` is this key's signature of `message`, by the rules of ZIP 215. Under these rules
    /// single and batched verification always agree.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let key = VerificationKey::try_from(VerificationKeyBytes::from(self.0));
        key.is_ok_and(|key| key.verify(&Signature::from_bytes(signature), message).is_ok())
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HEXLOWER.encode_display(&self.0).fmt(f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::str::FromStr for PublicKey {
    type Err = NotAKey;

    /// 64 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, NotAKey> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        let key = Self(bytes.ok_or(NotAKey::Digits)?);
        if key.is_sound() { Ok(key) } else { Err(NotAKey::Unsound) }
    }
}

/// Why a text is not a public key. The text is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAKey {
    /// Not 64 hexadecimal digits.
    Digits,
    /// Not a point of the curve, not its canonical encoding, or a point of small order.
    Unsound,
}

impl fmt::Display for NotAKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Digits => "a public key is 64 hexadecimal digits",
            Self::Unsound => "this is no Ed25519 public key that can be trusted",
        })
    }
}

impl core::error::Error for NotAKey {}
