//! The credential block in front of a SYN's data.

use super::{BLOCK_LEN, BLOCK_MAGIC, CERTIFICATE_LEN, VER_ALG};
use crate::ParseError;
use core::fmt;
use core::time::Duration;

/// Offset of the certificate in a block, behind the magic number, version and flags.
const CERTIFICATE_AT: usize = 4;
const REQUEST_AT: usize = 112;
const SIGNATURE_AT: usize = 132;

/// The first four bytes of the SHA-256 of a verifier's key. It is a name for look-ups, not a proof.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VerifierId(pub [u8; 4]);

impl fmt::Display for VerifierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for VerifierId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// How a certificate was obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CertificateFlags(u8);

impl CertificateFlags {
    const VANTAGE: u8 = 0b111;
    const CHALLENGED: u8 = 1 << 3;
    const REFRESHED: u8 = 1 << 4;

    /// The flags for a client that `vantage` points (1 to 8) have seen at its address; `None` for another
    /// number.
    #[must_use]
    pub const fn new(vantage: u8, challenged: bool, refreshed: bool) -> Option<Self> {
        if vantage == 0 || vantage > 8 {
            return None;
        }
        let challenged = if challenged { Self::CHALLENGED } else { 0 };
        let refreshed = if refreshed { Self::REFRESHED } else { 0 };
        Some(Self((vantage - 1) | challenged | refreshed))
    }

    /// The flags in a byte; `None` if a reserved bit is set.
    #[must_use]
    pub const fn from_u8(bits: u8) -> Option<Self> {
        if bits & !(Self::VANTAGE | Self::CHALLENGED | Self::REFRESHED) != 0 {
            None
        } else {
            Some(Self(bits))
        }
    }

    /// The flags as a byte.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Number of vantage points that have seen the client, including the issuer.
    #[must_use]
    pub const fn vantage(self) -> u8 {
        (self.0 & Self::VANTAGE) + 1
    }

    /// Whether the client answered a challenge that was sent to its address.
    #[must_use]
    pub const fn is_challenged(self) -> bool {
        self.0 & Self::CHALLENGED != 0
    }

    /// Whether it continues an older certificate for the address.
    #[must_use]
    pub const fn is_refreshed(self) -> bool {
        self.0 & Self::REFRESHED != 0
    }
}

/// A provenance certificate without its address. The address is the source address of the packet that contains
/// it. `Debug` omits the signature.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CertificateBody {
    /// The verifier that signed it.
    pub verifier: VerifierId,
    /// The client's public key (Ed25519).
    pub client_key: [u8; 32],
    /// When its validity begins, Unix seconds.
    pub valid_from: u32,
    /// How it was obtained.
    pub flags: CertificateFlags,
    /// How long it is valid, seconds; at most 2²⁴−1.
    duration: u32,
    /// The verifier's signature over [`super::certificate_input`].
    pub signature: [u8; 64],
}

impl CertificateBody {
    /// The longest duration, seconds (194 days).
    pub const MAX_DURATION: u32 = (1 << 24) - 1;

    /// A certificate of these parts; `None` if its duration is too long.
    #[must_use]
    pub fn new(
        verifier: VerifierId,
        client_key: [u8; 32],
        valid_from: u32,
        duration: u32,
        flags: CertificateFlags,
        signature: [u8; 64],
    ) -> Option<Self> {
        let fits = duration <= Self::MAX_DURATION;
        fits.then_some(Self { verifier, client_key, valid_from, flags, duration, signature })
    }

    /// How long it is valid, seconds.
    #[must_use]
    pub const fn duration(&self) -> u32 {
        self.duration
    }

    /// How long it is valid.
    #[must_use]
    pub const fn lasts(&self) -> Duration {
        Duration::from_secs(self.duration as u64)
    }

    /// When its validity ends, Unix seconds.
    #[must_use]
    pub const fn ends(&self) -> u64 {
        self.valid_from as u64 + self.duration as u64
    }

    /// Reads a certificate as verifiers send it: version and algorithm, then the bytes as in a block.
    ///
    /// # Errors
    /// [`ParseError::Malformed`] for another version or algorithm, or if a reserved bit is set.
    pub fn parse(bytes: &[u8; CERTIFICATE_LEN]) -> Result<Self, ParseError> {
        let Some((&[ver_alg], rest)) = bytes.split_first_chunk::<1>() else {
            return Err(ParseError::Truncated);
        };
        if ver_alg != VER_ALG {
            return Err(ParseError::Malformed("version or algorithm of a certificate"));
        }
        let (verifier, rest) = take(rest)?;
        let (client_key, rest) = take(rest)?;
        let (valid_from, rest) = take(rest)?;
        let (&[flags, x, y, z], rest) = take(rest)?;
        let (signature, _) = take(rest)?;
        let flags =
            CertificateFlags::from_u8(flags).ok_or(ParseError::Malformed("flags of a certificate"))?;
        Ok(Self {
            verifier: VerifierId(*verifier),
            client_key: *client_key,
            valid_from: u32::from_be_bytes(*valid_from),
            flags,
            duration: u32::from_be_bytes([0, x, y, z]),
            signature: *signature,
        })
    }

    /// The bytes that [`CertificateBody::parse`] reads.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CERTIFICATE_LEN] {
        let mut bytes = [0; CERTIFICATE_LEN];
        bytes[0] = VER_ALG;
        bytes[1..5].copy_from_slice(&self.verifier.0);
        bytes[5..37].copy_from_slice(&self.client_key);
        bytes[37..41].copy_from_slice(&self.valid_from.to_be_bytes());
        bytes[41..45].copy_from_slice(&self.duration.to_be_bytes());
        bytes[41] = self.flags.bits();
        bytes[45..].copy_from_slice(&self.signature);
        bytes
    }
}

impl fmt::Debug for CertificateBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verifier, client_key: _, valid_from, flags, duration, signature: _ } = self;
        f.debug_struct("CertificateBody")
            .field("verifier", verifier)
            .field("valid_from", valid_from)
            .field("flags", flags)
            .field("duration", duration)
            .finish_non_exhaustive()
    }
}

/// A client's signed statement about one request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestCertificate {
    /// First two bytes of the SHA-256 of the certificate's address (16-byte form). It distinguishes a wrong
    /// address from a wrong signature. A hint, not signed.
    pub address_tag: [u8; 2],
    /// First four bytes of the digest of the server's identity, to find it among the server's identities. Not
    /// signed.
    pub identity_tag: [u8; 4],
    /// When the request was made, in milliseconds since the certificate's validity began; 48 bits.
    pub requested_ms: u64,
    /// A random number.
    pub request_id: [u8; 8],
    /// The client's signature over [`super::RequestInput`].
    pub signature: [u8; 64],
}

impl fmt::Debug for RequestCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestCertificate").field("requested_ms", &self.requested_ms).finish_non_exhaustive()
    }
}

/// A credential block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// What the verifier signed.
    pub certificate: CertificateBody,
    /// What the client signed.
    pub request: RequestCertificate,
}

impl Block {
    /// Reads the block in `bytes`, which must contain exactly the block and its padding.
    ///
    /// # Errors
    /// [`ParseError::Truncated`], or [`ParseError::Malformed`] for anything that this version does not define:
    /// another magic number, version or algorithm, reserved bits, padding that is not zero.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (block, padding) = bytes.split_first_chunk::<BLOCK_LEN>().ok_or(ParseError::Truncated)?;
        let &[m, n, ver_alg, flags, ..] = block;
        if u16::from_be_bytes([m, n]) != BLOCK_MAGIC {
            return Err(ParseError::Malformed("magic of a credential block"));
        }
        if flags != 0 {
            return Err(ParseError::Malformed("flags of a credential block"));
        }
        if padding.iter().any(|&byte| byte != 0) {
            return Err(ParseError::Malformed("padding of a credential block"));
        }
        let mut certificate = [ver_alg; CERTIFICATE_LEN];
        certificate[1..].copy_from_slice(&block[CERTIFICATE_AT..REQUEST_AT]);
        let certificate = CertificateBody::parse(&certificate)?;
        let (address_tag, rest) = take(&block[REQUEST_AT..])?;
        let (identity_tag, rest) = take(rest)?;
        let (&[a, b, c, d, e, f], rest) = take(rest)?;
        let (request_id, rest) = take(rest)?;
        let (signature, _) = take(rest)?;
        let request = RequestCertificate {
            address_tag: *address_tag,
            identity_tag: *identity_tag,
            requested_ms: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            request_id: *request_id,
            signature: *signature,
        };
        Ok(Self { certificate, request })
    }

    /// The block without padding.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; BLOCK_LEN] {
        let mut bytes = [0; BLOCK_LEN];
        let [_, certificate @ ..] = self.certificate.to_bytes();
        let RequestCertificate { address_tag, identity_tag, requested_ms, request_id, signature } =
            self.request;
        bytes[..2].copy_from_slice(&BLOCK_MAGIC.to_be_bytes());
        bytes[2] = VER_ALG;
        bytes[CERTIFICATE_AT..REQUEST_AT].copy_from_slice(&certificate);
        bytes[112..114].copy_from_slice(&address_tag);
        bytes[114..118].copy_from_slice(&identity_tag);
        bytes[118..124].copy_from_slice(&requested_ms.to_be_bytes()[2..]);
        bytes[124..SIGNATURE_AT].copy_from_slice(&request_id);
        bytes[SIGNATURE_AT..].copy_from_slice(&signature);
        bytes
    }
}

/// Splits off the first `N` bytes.
fn take<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), ParseError> {
    bytes.split_first_chunk().ok_or(ParseError::Truncated)
}
