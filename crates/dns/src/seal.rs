//! The seal of connection information: HPKE (RFC 9180) in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256
//! and AES-128-GCM, to the key that a server publishes (`docs/spec/dns-path.md`, section 4).

use crate::ReplyKey;
use crate::ci::ConnectionInfo;
use crate::sizes::{INNER_HEAD, MAX_SEALED, SEAL_OVERHEAD};
use core::fmt;
use firstflight_wire::ParseError;
use firstflight_wire::asap::{DnsPathParam, Zone, context};
use hpke::aead::{AeadTag, AesGcm128};
use hpke::inout::InOutBuf;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable, setup_receiver, setup_sender_with_rng};
use rand_core::CryptoRng;
use zeroize::Zeroizing;

type Encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey;

const INFO: [u8; 32] = context("firstflight ASAP v1 CI");
const REPLY: [u8; 32] = context("firstflight ASAP v1 reply");
/// Length of an encapsulated X25519 key.
const ENC: usize = 32;
const TAG: usize = 16;

/// Sealed connection information: key id, encapsulated key, ciphertext, tag.
#[derive(Clone, Copy)]
pub struct Sealed {
    bytes: [u8; Self::MAX],
    len: u16,
}

impl Sealed {
    /// How many bytes the seal adds.
    pub const OVERHEAD: usize = SEAL_OVERHEAD;
    /// The longest sealed bytes that fit into eight fragments after the length, bytes.
    pub const MAX: usize = MAX_SEALED;
    /// The shortest sealed connection information, bytes: IPv4 without data.
    pub const MIN: usize = ConnectionInfo::MIN_LEN + Self::OVERHEAD;

    /// Sealed connection information of these bytes. `None` if their length is not possible.
    /// [`DnsPathKeys::open`] checks whether they can be opened.
    ///
    /// [`DnsPathKeys::open`]: crate::DnsPathKeys::open
    #[must_use]
    pub fn new(sealed: &[u8]) -> Option<Self> {
        if !(Self::MIN..=Self::MAX).contains(&sealed.len()) {
            return None;
        }
        let mut bytes = [0; Self::MAX];
        bytes.get_mut(..sealed.len())?.copy_from_slice(sealed);
        Some(Self { bytes, len: sealed.len() as u16 })
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// The number of the key that it is sealed to.
    #[must_use]
    pub const fn key_id(&self) -> u8 {
        self.bytes[0]
    }
}

impl PartialEq for Sealed {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for Sealed {}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealed({} bytes to key {})", self.len, self.key_id())
    }
}

/// Why connection information cannot be sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The request does not fit into eight fragments, so it goes only the direct way.
    #[error("the request is too long for a DNS lookup")]
    TooLong,
    /// The address is IPv4-mapped. The caller is at fault.
    #[error("the client's address is an IPv4-mapped one")]
    Address,
    /// The server published an invalid key: treat its parameter as absent.
    #[error("the server's DNS-path key is no usable X25519 key")]
    BadKey,
}

/// Writes the data that a seal is bound to in addition to the key: the context and the DNS-path zone. Returns
/// its length.
fn info(zone: Zone<'_>, out: &mut [u8; 32 + Zone::MAX]) -> usize {
    let zone = zone.as_bytes();
    let (context, rest) = out.split_at_mut(32);
    context.copy_from_slice(&INFO);
    for (place, byte) in rest.iter_mut().zip(zone) {
        *place = *byte;
    }
    32 + zone.len()
}

/// Seals `ci` for the server that published `to`. The key returned with it proves the server's answer.
///
/// # Errors
/// [`SealError`] says which part cannot be sealed.
pub fn seal(
    ci: &ConnectionInfo<'_>,
    to: &DnsPathParam<'_>,
    rng: &mut impl CryptoRng,
) -> Result<(Sealed, ReplyKey), SealError> {
    let key_id = to.key_id.get();
    let mut plain = Zeroizing::new([0; ConnectionInfo::MAX_LEN]);
    let len = ci.emit(&mut *plain).map_err(|error| match error {
        firstflight_wire::EmitError::MixedFamilies => SealError::Address,
        _ => SealError::TooLong,
    })?;
    let plain = plain.get(..len).ok_or(SealError::TooLong)?;
    let mut bound = [0; 32 + Zone::MAX];
    let bound_len = info(to.zone, &mut bound);
    let bound = bound.get(..bound_len).ok_or(SealError::BadKey)?;

    let key = <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(&to.key).map_err(|_| SealError::BadKey)?;
    let (enc, mut context) =
        setup_sender_with_rng::<AesGcm128, HkdfSha256, X25519HkdfSha256>(&OpModeS::Base, &key, bound, rng)
            .map_err(|_| SealError::BadKey)?;
    let mut sealed = Sealed { bytes: [0; Sealed::MAX], len: (len + Sealed::OVERHEAD) as u16 };
    let (head, rest) = sealed.bytes.split_at_mut(1 + ENC);
    head[0] = key_id;
    head[1..].copy_from_slice(&enc.to_bytes());
    let (text, rest) = rest.split_at_mut_checked(len).ok_or(SealError::TooLong)?;
    let (place, _) = rest.split_first_chunk_mut::<TAG>().ok_or(SealError::TooLong)?;
    let text = InOutBuf::new(plain, text).map_err(|_| SealError::TooLong)?;
    let tag = context.seal_inout_detached(text, &[key_id]).map_err(|_| SealError::BadKey)?;
    place.copy_from_slice(&tag.to_bytes());

    let mut reply = Zeroizing::new([0; ReplyKey::LEN]);
    context.export(&REPLY, &mut *reply).map_err(|_| SealError::BadKey)?;
    Ok((sealed, ReplyKey::from_bytes(&reply)))
}

/// A server's private X25519 key. Zeroised when dropped, never printed.
#[derive(Clone)]
pub struct DnsPathKey(<X25519HkdfSha256 as Kem>::PrivateKey);

impl DnsPathKey {
    /// A new key from a cryptographic random generator.
    #[must_use]
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(X25519HkdfSha256::gen_keypair_with_rng(rng).0)
    }

    /// The key of these 32 bytes (RFC 7748 §5: clamped). `None` if the library does not accept them.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<Self> {
        Deserializable::from_bytes(bytes).ok().map(Self)
    }

    /// The bytes. They are the secret: use them only for key files.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        let mut bytes = Zeroizing::new([0; 32]);
        self.0.write_exact(&mut *bytes);
        bytes
    }

    /// The public half, to publish.
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        X25519HkdfSha256::sk_to_pk(&self.0).to_bytes().into()
    }

    /// Opens connection information that was sealed to this key with number `sealed.key_id()`.
    pub(crate) fn open<'b>(
        &self,
        zone: Zone<'_>,
        sealed: &Sealed,
        buffer: &'b mut OpenBuffer,
    ) -> Result<(ConnectionInfo<'b>, ReplyKey), OpenError> {
        let mut bound = [0; 32 + Zone::MAX];
        let bound_len = info(zone, &mut bound);
        let bound = bound.get(..bound_len).ok_or(OpenError::Forged)?;
        let (&[key_id], rest) = sealed.as_slice().split_first_chunk().ok_or(OpenError::Forged)?;
        let (enc, rest) = rest.split_first_chunk::<ENC>().ok_or(OpenError::Forged)?;
        let (text, tag) = rest.split_last_chunk::<TAG>().ok_or(OpenError::Forged)?;
        let enc = Encapsulated::from_bytes(enc).map_err(|_| OpenError::Forged)?;
        let tag = AeadTag::<AesGcm128>::from_bytes(tag).map_err(|_| OpenError::Forged)?;
        let mut context =
            setup_receiver::<AesGcm128, HkdfSha256, X25519HkdfSha256>(&OpModeR::Base, &self.0, &enc, bound)
                .map_err(|_| OpenError::Forged)?;
        let plain = buffer.part_mut(text.len()).ok_or(OpenError::Forged)?;
        let pair = InOutBuf::new(text, &mut *plain).map_err(|_| OpenError::Forged)?;
        context.open_inout_detached(pair, &[key_id], &tag).map_err(|_| OpenError::Forged)?;
        let mut reply = Zeroizing::new([0; ReplyKey::LEN]);
        context.export(&REPLY, &mut *reply).map_err(|_| OpenError::Forged)?;
        let ci = ConnectionInfo::parse(plain).map_err(OpenError::Malformed)?;
        Ok((ci, ReplyKey::from_bytes(&reply)))
    }
}

impl fmt::Debug for DnsPathKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DnsPathKey(..)")
    }
}

/// The buffer for opened bytes. Zeroised when dropped, because it holds the client's request.
pub struct OpenBuffer(Zeroizing<[u8; INNER_HEAD + ConnectionInfo::MAX_LEN]>);

impl OpenBuffer {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self(Zeroizing::new([0; INNER_HEAD + ConnectionInfo::MAX_LEN]))
    }

    pub(crate) fn whole_mut(&mut self) -> &mut [u8] {
        &mut *self.0
    }

    pub(crate) fn part_mut(&mut self, len: usize) -> Option<&mut [u8]> {
        self.0.get_mut(..len)
    }
}

impl Default for OpenBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for OpenBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenBuffer(..)")
    }
}

/// Why sealed connection information cannot be opened. The sender is at fault, or uses an old parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No key has this number, or it has ended.
    #[error("sealed to a key that is not held, or no longer")]
    UnknownKey,
    /// It was not sealed to this key for this zone, or was changed.
    #[error("not sealed to this key for this zone, or changed on the way")]
    Forged,
    /// It opens, but does not contain connection information.
    #[error("sealed, and {0}")]
    Malformed(ParseError),
}

#[cfg(test)]
mod tests;
