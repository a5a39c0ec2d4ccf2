//! Sealing and opening (3): HPKE (RFC 9180) in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM.

use crate::bind::Bind;
use crate::commitment::Commitment;
use crate::defence::{Defence, on};
use crate::flight::{ENC, Flight, HEAD, Head, TAG};
use crate::hello::{Hello, HelloFault};
use crate::keys::SealKey;
use crate::name::HostName;
use crate::plain::{Flags, Inner, MalformedPlaintext, Rid};
use crate::record::Entry;
use core::fmt;
use core::ops::Range;
use firstflight_wire::asap::context;
use hpke::aead::{AeadTag, AesGcm128};
use hpke::inout::InOutBuf;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable, setup_receiver, setup_sender_with_rng};
use rand_core::CryptoRng;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const INFO: [u8; 32] = context("firstflight seal v1 info");

/// What a flight is sealed to: a published key, the public name beside it, and the server's port (3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// The key.
    pub entry: &'a Entry,
    /// The public name of the record.
    pub public_name: &'a HostName,
    /// The port that the client connects to (over UDP, the inner destination port).
    pub port: u16,
}

impl Target<'_> {
    /// `info` (3.2).
    #[must_use]
    pub fn info(&self) -> Vec<u8> {
        let mut info = INFO.to_vec();
        self.entry.emit_info(self.public_name, self.port, &mut info);
        info
    }

    /// Its hash, for the digest (4.2).
    #[must_use]
    pub fn info_hash(&self) -> [u8; 32] {
        Sha256::digest(self.info()).into()
    }
}

/// Why a flight is not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// ClientHello and request do not fit into this length, or the length is impossible.
    #[error("the request does not fit into a flight of this length")]
    Length,
    /// The plaintext breaks a rule (3.3). The caller is at fault.
    #[error("the parts of the flight contradict each other")]
    Plaintext,
    /// The server published an unusable key: treat its record as absent.
    #[error("the server's seal key is no usable X25519 key")]
    BadKey,
}

/// Seals `inner` in a flight of `total` bytes (3.4). Each ClientHello is sealed once; use [`Draft`](crate::Draft), which
/// takes care of that.
///
/// # Errors
/// [`SealError`] says which part cannot be sealed.
pub fn seal(
    inner: &Inner<'_>,
    to: &Target<'_>,
    total: usize,
    rng: &mut impl CryptoRng,
) -> Result<Flight, SealError> {
    let head = Head::new(to.entry.key_id(), total).ok_or(SealError::Length)?;
    let text_len = total.checked_sub(HEAD + ENC + TAG).ok_or(SealError::Length)?;
    if inner.len() > text_len {
        return Err(SealError::Length);
    }
    let plain = inner.emit(text_len).ok_or(SealError::Plaintext)?;
    let key = to.entry.key().ok_or(SealError::BadKey)?;
    let key = <X25519HkdfSha256 as Kem>::PublicKey::from_bytes(key).map_err(|_| SealError::BadKey)?;
    let setup = setup_sender_with_rng::<AesGcm128, HkdfSha256, X25519HkdfSha256>;
    let (enc, mut context) = setup(&OpModeS::Base, &key, &to.info(), rng).map_err(|_| SealError::BadKey)?;
    let head_bytes = head.to_bytes();
    let mut bytes = Vec::with_capacity(total);
    bytes.extend_from_slice(&head_bytes);
    bytes.extend_from_slice(&enc.to_bytes());
    bytes.resize(HEAD + ENC + text_len, 0);
    let text = bytes.get_mut(HEAD + ENC..).ok_or(SealError::Length)?;
    let text = InOutBuf::new(plain.as_slice(), text).map_err(|_| SealError::Length)?;
    let tag = context.seal_inout_detached(text, &head_bytes).map_err(|_| SealError::BadKey)?;
    bytes.extend_from_slice(&tag.to_bytes());
    Flight::new(head, bytes).ok_or(SealError::Length)
}

/// Why a flight is not opened: the sender is at fault, or uses an old record. The server rejects for each of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No key has this number, or it has ended.
    #[error("sealed to a key that is not held, or no longer")]
    UnknownKey,
    /// It was not sealed to this key for this name and port, or was changed.
    #[error("not sealed to this key for this server, or changed on the way")]
    Forged,
    /// It opens, but its plaintext breaks a rule.
    #[error("sealed, and {0}")]
    Malformed(#[from] MalformedPlaintext),
    /// Its ClientHello breaks a rule.
    #[error("sealed, and its ClientHello: {0}")]
    Hello(#[from] HelloFault),
    /// Its ClientHello commits to another request (4.3).
    #[error("the ClientHello commits to another request")]
    Digest,
    /// The server does not serve the name of the ClientHello with this key (6.8).
    #[error("the ClientHello names a server that is not served with this key")]
    Name,
}

pub(crate) fn open(key: &SealKey, to: &Target<'_>, flight: &Flight) -> Result<OpenedFlight, OpenError> {
    let (head, rest) = flight.as_bytes().split_first_chunk::<HEAD>().ok_or(OpenError::Forged)?;
    let (enc, rest) = rest.split_first_chunk::<ENC>().ok_or(OpenError::Forged)?;
    let (text, tag) = rest.split_last_chunk::<TAG>().ok_or(OpenError::Forged)?;
    let enc = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(enc).map_err(|_| OpenError::Forged)?;
    let tag = AeadTag::<AesGcm128>::from_bytes(tag).map_err(|_| OpenError::Forged)?;
    let info = to.info();
    let setup = setup_receiver::<AesGcm128, HkdfSha256, X25519HkdfSha256>;
    let mut context = setup(&OpModeR::Base, key.private(), &enc, &info).map_err(|_| OpenError::Forged)?;
    let mut plain = Zeroizing::new(vec![0; text.len()]);
    let pair = InOutBuf::new(text, plain.as_mut_slice()).map_err(|_| OpenError::Forged)?;
    context.open_inout_detached(pair, head, &tag).map_err(|_| OpenError::Forged)?;
    let Inner { rid, bind, t_ms, flags, hello, request } = Inner::parse(&plain)?;
    let hello_at = Inner::FIXED - 2;
    let hello = hello_at..hello_at + hello.len();
    let request = hello.end + 2..hello.end + 2 + request.len();
    let info_hash = Sha256::digest(&info).into();
    Ok(OpenedFlight { plain, rid, bind, t_ms, flags, hello, request, info_hash })
}

/// An opened flight. Its memory is wiped when it is dropped.
pub struct OpenedFlight {
    plain: Zeroizing<Vec<u8>>,
    rid: Rid,
    bind: Bind,
    t_ms: u64,
    flags: Flags,
    hello: Range<usize>,
    request: Range<usize>,
    info_hash: [u8; 32],
}

impl OpenedFlight {
    /// What it contains.
    #[must_use]
    pub fn inner(&self) -> Inner<'_> {
        let part = |range: &Range<usize>| self.plain.get(range.clone()).unwrap_or_default();
        let (hello, request) = (part(&self.hello), part(&self.request));
        Inner { rid: self.rid, bind: self.bind, t_ms: self.t_ms, flags: self.flags, hello, request }
    }

    /// Checks the ClientHello, that it commits to the request, and that the server serves its name with this key (4.3,
    /// 6.8). Until this succeeds nothing of the flight may be given to TLS. Whether the server speaks the protocol is
    /// the caller's check.
    ///
    /// # Errors
    /// [`OpenError::Hello`], [`OpenError::Digest`] or [`OpenError::Name`]: reject.
    pub fn check(&self, serves: impl Fn(&HostName) -> bool) -> Result<Hello<'_>, OpenError> {
        let inner = self.inner();
        let hello = Hello::parse(inner.hello)?;
        if !Commitment::new(&self.info_hash, &inner).is(hello.digest) {
            return Err(OpenError::Digest);
        }
        if !serves(&hello.server_name) && on(Defence::Names) {
            return Err(OpenError::Name);
        }
        Ok(hello)
    }
}

impl fmt::Debug for OpenedFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OpenedFlight").field(&self.inner()).finish()
    }
}
