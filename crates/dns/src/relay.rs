//! Relay datagrams from the front, which opens first flights, to their server (`docs/spec/dns-path.md`,
//! section 9).
//!
//! The front does not send with the client's source address: networks filter such packets (BCP 38), and the
//! front would be an open spoofer. It hands over each opened first flight in a datagram that only it can have
//! made. Fronts send each other datagrams of the same form ([`forward`](crate::forward)).

mod clocks;
mod head;
mod receiver;
mod window;

pub use clocks::{ClockReport, FrontClock};
pub use receiver::{RelayCounters, RelayReceiver, RelayRefused, Relayed};

use crate::ReplyKey;
use crate::ci::ConnectionInfo;
use crate::sizes::INNER_HEAD;
use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit, Nonce};
use core::fmt;
use core::net::{IpAddr, SocketAddr};
use firstflight_wire::EmitError;
use firstflight_wire::asap::{context, mapped};
use hmac::{Hmac, Mac};
use hpke::inout::InOutBuf;
use rand_core::CryptoRng;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

const MAGIC: [u8; 2] = [0xff, 0x52];
pub(crate) const HEAD: usize = 22;

pub(crate) const TAG: usize = 16;
const NONCE: core::ops::Range<usize> = 4..16;
const FORWARD: [u8; 32] = context("firstflight ASAP v1 forward");
const MAX_SEQUENCE: u64 = (1 << 48) - 1;

/// The longest relay datagram, bytes.
pub const MAX_RELAY: usize = HEAD + INNER_HEAD + ConnectionInfo::MAX_LEN + TAG;
/// How far a datagram's time may be from the server's, milliseconds.
pub const RELAY_WINDOW_MS: u64 = 5_000;

/// A datagram for a server or another front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relay {
    /// Its destination.
    pub to: SocketAddr,
    /// The datagram.
    pub datagram: Vec<u8>,
}

/// The purpose of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A first flight for a server.
    Relay = 1,
    /// Fragments for another front.
    Forward = 2,
}

impl Kind {
    /// Version 1 (high nibble) and the type.
    const fn octet(self) -> u8 {
        0x10 | self as u8
    }
}

/// A key that one front and one server share, or that the fronts of a zone share. Zeroised when dropped,
/// never printed.
#[derive(Clone)]
pub struct RelayKey(Zeroizing<[u8; 32]>);

impl RelayKey {
    /// A new key from a cryptographic random generator.
    #[must_use]
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        rng.fill_bytes(&mut *bytes);
        Self(bytes)
    }

    /// The key of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        Self(Zeroizing::new(*bytes))
    }

    /// The bytes. They are the secret: use them only for key files.
    #[must_use]
    pub fn to_bytes(&self) -> Zeroizing<[u8; 32]> {
        self.0.clone()
    }

    /// The derived key that fronts use among themselves instead of this key. So a key file that is used for
    /// both purposes by mistake does not use a nonce twice.
    pub(crate) fn for_fronts(&self) -> Self {
        // HMAC accepts keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&*self.0) else { return self.clone() };
        mac.update(&FORWARD);
        Self(Zeroizing::new(mac.finalize().into_bytes().into()))
    }

    fn cipher(&self) -> ChaCha20Poly1305 {
        ChaCha20Poly1305::new((&*self.0).into())
    }
}

impl PartialEq for RelayKey {
    /// Compares in constant time.
    fn eq(&self, other: &Self) -> bool {
        self.0.as_slice().ct_eq(other.0.as_slice()).into()
    }
}

impl Eq for RelayKey {}

impl fmt::Debug for RelayKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RelayKey(..)")
    }
}

/// The start of a front: Unix seconds, strictly larger than at its last start. It ensures that no nonce is
/// used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Boot(pub u32);

impl Boot {
    /// The number for a start at `now`, Unix seconds, after one with `last`. `None` if there are no larger
    /// numbers left. The caller must save it for the next start before it sends anything.
    #[must_use]
    pub fn after(last: Option<Self>, now: u32) -> Option<Self> {
        match last {
            Some(Self(last)) => last.checked_add(1).map(|next| Self(next.max(now))),
            None => Some(Self(now)),
        }
    }
}

/// One sender of a front. It is not `Clone`, because two senders with the same numbers would use nonces
/// twice.
pub struct RelaySender {
    cipher: ChaCha20Poly1305,
    key_id: u8,
    front: u16,
    boot: Boot,
    sequence: u64,
}

impl RelaySender {
    /// Sends under `key`, which the server knows as `key_id`. `front` is the number of this sender, unique
    /// among all that have the key.
    #[must_use]
    pub fn new(key: &RelayKey, key_id: u8, front: u16, boot: Boot) -> Self {
        Self { cipher: key.cipher(), key_id, front, boot, sequence: 0 }
    }

    /// Writes the datagram with `ci`, which came through the resolver at `resolver`, to the beginning of
    /// `out`, and returns its length. `unix_ms` is the wall clock's time. [`MAX_RELAY`] bytes are always
    /// sufficient.
    ///
    /// # Errors
    /// [`RelayError::Exhausted`] after 2⁴⁸ datagrams: restart the front. [`RelayError::Emit`]: the caller is
    /// at fault.
    pub fn emit(
        &mut self,
        ci: &ConnectionInfo<'_>,
        reply: &ReplyKey,
        resolver: IpAddr,
        unix_ms: u64,
        out: &mut [u8],
    ) -> Result<usize, RelayError> {
        let mut plain = Zeroizing::new([0; INNER_HEAD + ConnectionInfo::MAX_LEN]);
        let (head, rest) = plain.split_at_mut(INNER_HEAD);
        let len = ci.emit(rest).map_err(RelayError::Emit)?;
        head[..16].copy_from_slice(&mapped(resolver.to_canonical()));
        head[18..20].copy_from_slice(&(len as u16).to_be_bytes());
        head[20..].copy_from_slice(&*reply.to_bytes());
        let plain = plain.get(..INNER_HEAD + len).ok_or(RelayError::Emit(EmitError::TooLong))?;
        self.seal(Kind::Relay, plain, unix_ms, out)
    }

    /// Seals `plain` into a datagram at the beginning of `out`, and returns the datagram's length, which is
    /// [`HEAD`] and [`TAG`] more than that of `plain`.
    pub(crate) fn seal(
        &mut self,
        kind: Kind,
        plain: &[u8],
        unix_ms: u64,
        out: &mut [u8],
    ) -> Result<usize, RelayError> {
        let sequence = self.sequence;
        if sequence > MAX_SEQUENCE {
            return Err(RelayError::Exhausted);
        }
        let whole = HEAD + plain.len() + TAG;
        let out = out.get_mut(..whole).ok_or(RelayError::Emit(EmitError::BufferTooSmall))?;
        let (head, rest) = out.split_at_mut(HEAD);
        head[..2].copy_from_slice(&MAGIC);
        head[2] = kind.octet();
        head[3] = self.key_id;
        head[4..6].copy_from_slice(&self.front.to_be_bytes());
        head[6..10].copy_from_slice(&self.boot.0.to_be_bytes());
        head[10..16].copy_from_slice(&sequence.to_be_bytes()[2..]);
        head[16..].copy_from_slice(&unix_ms.to_be_bytes()[2..]);
        let too_small = RelayError::Emit(EmitError::BufferTooSmall);
        let (text, place) = rest.split_last_chunk_mut::<TAG>().ok_or(too_small)?;
        let nonce = nonce(head).ok_or(too_small)?;
        let pair = InOutBuf::new(plain, text).map_err(|_| too_small)?;
        // The number is used up, even if sealing fails.
        self.sequence += 1;
        let tag = self.cipher.encrypt_inout_detached(&nonce, head, pair).map_err(|_| too_small)?;
        place.copy_from_slice(&tag);
        Ok(whole)
    }
}

impl fmt::Debug for RelaySender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cipher: _, key_id, front, boot, sequence } = self;
        f.debug_struct("RelaySender")
            .field("key_id", key_id)
            .field("front", front)
            .field("boot", boot)
            .field("sequence", sequence)
            .finish_non_exhaustive()
    }
}

fn nonce(head: &[u8]) -> Option<Nonce> {
    Nonce::try_from(head.get(NONCE)?).ok()
}

/// Why no relay datagram was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// All sequence numbers of this start are used.
    #[error("all sequence numbers are used: start the front anew")]
    Exhausted,
    /// The connection information cannot be written, or the buffer is too small.
    #[error("relay datagram: {0}")]
    Emit(EmitError),
}

#[cfg(test)]
mod tests;
