//! What a flight contains (3.3).

use crate::bind::Bind;
use crate::defence::{Defence, on};
use crate::reader::Reader;
use core::fmt;
use firstflight_wire::asap::context;
use rand_core::CryptoRng;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

const RUN: [u8; 32] = context("firstflight seal v1 run");
const REPLAYABLE: u8 = 1;
const COMPLETE: u8 = 1 << 1;

/// The number of a request, which all copies of it share. It is inside the seal, so nobody else knows it.
#[derive(Clone, Copy)]
pub struct Rid(pub(crate) [u8; 16]);

impl Rid {
    /// A new one.
    #[must_use]
    pub fn random(rng: &mut impl CryptoRng) -> Self {
        let mut bytes = [0; 16];
        rng.fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// The number with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The key of its entry in a shared table (6.6).
    #[must_use]
    pub fn table_key(&self) -> [u8; 16] {
        let hash: [u8; 32] = Sha256::new_with_prefix(RUN).chain_update(self.0).finalize().into();
        let mut key = [0; 16];
        key.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        key
    }
}

impl PartialEq for Rid {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Rid {}

impl fmt::Debug for Rid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rid(..)")
    }
}

/// What the application says about a request (3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// It may be executed more than once, and goes again by itself.
    pub replayable: bool,
    /// It needs no further byte of the client.
    pub complete: bool,
}

impl Flags {
    pub(crate) const fn to_byte(self) -> u8 {
        let replayable = if self.replayable { REPLAYABLE } else { 0 };
        replayable | if self.complete { COMPLETE } else { 0 }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        if byte & !(REPLAYABLE | COMPLETE) != 0 {
            return None;
        }
        Some(Self { replayable: byte & REPLAYABLE != 0, complete: byte & COMPLETE != 0 })
    }
}

/// The plaintext of a flight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Inner<'a> {
    /// The request's number.
    pub rid: Rid,
    /// The block that it belongs to.
    pub bind: Bind,
    /// When the client first sealed this request, Unix milliseconds by its clock. 48 bits are sent.
    pub t_ms: u64,
    /// About the request.
    pub flags: Flags,
    /// The record with the ClientHello (4.1).
    pub hello: &'a [u8],
    /// The first bytes of the client's TLS application stream.
    pub request: &'a [u8],
}

/// A plaintext breaks a rule (3.3): the sender is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} of the plaintext is malformed")]
pub struct MalformedPlaintext(pub(crate) &'static str);

impl<'a> Inner<'a> {
    /// Bytes besides ClientHello, request and padding.
    pub const FIXED: usize = 43;

    /// Reads a plaintext.
    ///
    /// # Errors
    /// When a rule of 3.3 is broken.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedPlaintext> {
        let mut reader = Reader::new(bytes);
        let cut = MalformedPlaintext("length");
        let rid = Rid(*reader.array().ok_or(cut)?);
        let bind = Bind(*reader.array().ok_or(cut)?);
        let &[a, b, c, d, e, f] = reader.array().ok_or(cut)?;
        let flags = reader.u8().and_then(Flags::from_byte).ok_or(MalformedPlaintext("flags"))?;
        let hello = reader.part16().ok_or(cut)?;
        let request = reader.part16().ok_or(cut)?;
        if request.is_empty() && flags != Flags::default() {
            return Err(MalformedPlaintext("flags"));
        }
        let padded = reader.rest().iter().fold(0, |all, byte| all | byte) == 0;
        if !padded && on(Defence::Padding) {
            return Err(MalformedPlaintext("padding"));
        }
        let t_ms = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        Ok(Self { rid, bind, t_ms, flags, hello, request })
    }

    /// Length without padding.
    #[must_use]
    pub const fn len(&self) -> usize {
        Self::FIXED + self.hello.len() + self.request.len()
    }

    /// Never: the fixed part is there.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The plaintext in `len` bytes. `None` if it is longer, or breaks a rule.
    pub(crate) fn emit(&self, len: usize) -> Option<Zeroizing<Vec<u8>>> {
        let no_request = self.request.is_empty() && self.flags != Flags::default();
        if len < self.len() || self.t_ms >> 48 != 0 || no_request {
            return None;
        }
        let (hello, request) =
            (u16::try_from(self.hello.len()).ok()?, u16::try_from(self.request.len()).ok()?);
        let mut out = Zeroizing::new(Vec::with_capacity(len));
        out.extend_from_slice(&self.rid.0);
        out.extend_from_slice(&self.bind.0);
        out.extend_from_slice(self.t_ms.to_be_bytes().get(2..)?);
        out.push(self.flags.to_byte());
        out.extend_from_slice(&hello.to_be_bytes());
        out.extend_from_slice(self.hello);
        out.extend_from_slice(&request.to_be_bytes());
        out.extend_from_slice(self.request);
        out.resize(len, 0);
        Some(out)
    }
}

impl fmt::Debug for Inner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rid: _, bind, t_ms, flags, hello, request } = self;
        f.debug_struct("Inner")
            .field("bind", bind)
            .field("t_ms", t_ms)
            .field("flags", flags)
            .field("hello_len", &hello.len())
            .field("request_len", &request.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
