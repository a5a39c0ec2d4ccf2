//! The messages that clients send.

use super::parts::{Challenge, Token, Tokens, TransactionId};
use super::write::{MessageBytes, Writer};
use super::{MESSAGE_HEADER_LEN, REQUEST_MIN_UDP};
use crate::asap::{CERTIFICATE_LEN, CertificateBody, context};
use core::fmt;

const REQUEST: [u8; 32] = context("firstflight ASAP v1 VREQ");

/// Length of the part that every request has behind the header, bytes.
pub(super) const FIXED: usize = 64;

/// A request for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// A random number.
    pub transaction: TransactionId,
    /// The key to be certified.
    pub client_key: [u8; 32],
    /// The requested duration of the certificate, seconds.
    pub wished: u32,
    /// The verifier's challenge; `None` in the first request over UDP, and over TCP.
    pub challenge: Option<Challenge>,
    /// The tokens of the verifier's vantage points.
    pub tokens: Tokens,
    /// The certificate that the new one continues.
    pub old: Option<Renewal>,
    /// The signature of [`Request::client_key`] over [`Request::signing_input`].
    pub signature: [u8; 64],
    /// The length of the message; zeros fill it up.
    pub(super) len: u16,
}

/// The certificate that a new one continues. Its address is the source address of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// The certificate.
    pub certificate: CertificateBody,
    /// The signature of its key over [`Request::signing_input`].
    pub signature: [u8; 64],
}

impl Request {
    /// The type number of the message.
    pub const TYPE: u8 = 1;

    /// A request that is not signed yet. With `padded` it has at least the length that requests over UDP need.
    /// If there is an old certificate, its key must sign, too.
    #[must_use]
    pub fn new(
        transaction: TransactionId,
        client_key: [u8; 32],
        wished: u32,
        challenge: Option<Challenge>,
        tokens: Tokens,
        old: Option<CertificateBody>,
        padded: bool,
    ) -> Self {
        let old = old.map(|certificate| Renewal { certificate, signature: [0; 64] });
        let unsigned =
            Self { transaction, client_key, wished, challenge, tokens, old, signature: [0; 64], len: 0 };
        let least = if padded { REQUEST_MIN_UDP } else { 0 };
        // At most 485.
        Self { len: unsigned.length().max(least) as u16, ..unsigned }
    }

    /// Length without padding, bytes.
    pub(super) fn length(&self) -> usize {
        let old = if self.old.is_some() { CERTIFICATE_LEN + 64 } else { 0 };
        MESSAGE_HEADER_LEN + FIXED + self.tokens.len() * Token::LEN + 64 + old
    }

    /// The input that both keys sign: a context, the verifier's key, and the message up to the first signature.
    /// So a request is valid only for one verifier, and for the address to which its challenge was sent.
    #[must_use]
    pub fn signing_input(&self, verifier_key: &[u8; 32]) -> SigningInput {
        let mut input = SigningInput { bytes: [0; SigningInput::MAX], len: 0 };
        let mut writer = Writer::new(&mut input.bytes);
        writer.put(&REQUEST);
        writer.put(verifier_key);
        self.put_signed(&mut writer);
        input.len = writer.written();
        input
    }

    fn put_signed(&self, writer: &mut Writer<'_>) {
        writer.header(Self::TYPE, self.len, self.transaction);
        writer.put(&self.client_key);
        writer.put(&self.wished.to_be_bytes());
        // At most seven tokens.
        writer.put(&[self.tokens.len() as u8, self.old.is_some().into(), 0, 0]);
        writer.challenge(self.challenge);
        if let Some(old) = &self.old {
            writer.put(&old.certificate.to_bytes());
        }
        self.tokens.iter().for_each(|token| writer.token(*token));
    }

    /// The message.
    #[must_use]
    pub fn to_bytes(&self) -> MessageBytes {
        MessageBytes::build(usize::from(self.len), |writer| {
            self.put_signed(writer);
            writer.put(&self.signature);
            if let Some(old) = &self.old {
                writer.put(&old.signature);
            }
        })
    }
}

/// The part of a request that is signed.
#[derive(Clone)]
pub struct SigningInput {
    bytes: [u8; Self::MAX],
    len: usize,
}

impl SigningInput {
    const MAX: usize = 64 + MESSAGE_HEADER_LEN + FIXED + CERTIFICATE_LEN + Tokens::MAX * Token::LEN;

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for SigningInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningInput").field("len", &self.len).finish_non_exhaustive()
    }
}

/// A request for a datagram from another address and port than the one that is asked ([`super::Probe`]). Only
/// over UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeRequest {
    /// A random number.
    pub transaction: TransactionId,
    /// The verifier's challenge; `None` in the first request.
    pub challenge: Option<Challenge>,
    /// A random number: a host that has not seen the request cannot send the probe.
    pub nonce: [u8; 8],
    /// The length of the message; zeros fill it up.
    pub(super) len: u16,
}

impl ProbeRequest {
    /// The type number of the message.
    pub const TYPE: u8 = 7;

    /// A new request.
    #[must_use]
    pub const fn new(transaction: TransactionId, challenge: Option<Challenge>, nonce: [u8; 8]) -> Self {
        Self { transaction, challenge, nonce, len: REQUEST_MIN_UDP as u16 }
    }

    /// The value that its challenge covers in place of the client's key: the nonce, followed by zeros.
    #[must_use]
    pub fn key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.nonce);
        key
    }

    /// The message.
    #[must_use]
    pub fn to_bytes(&self) -> MessageBytes {
        MessageBytes::build(usize::from(self.len), |writer| {
            writer.header(Self::TYPE, self.len, self.transaction);
            writer.challenge(self.challenge);
            writer.put(&self.nonce);
        })
    }
}

/// A request for a vantage point's token. It is not signed, because a token is useless without the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VantageRequest {
    /// A random number.
    pub transaction: TransactionId,
    /// The key to be certified.
    pub client_key: [u8; 32],
    /// The vantage point's challenge; `None` in the first request over UDP, and over TCP.
    pub challenge: Option<Challenge>,
    /// The length of the message; zeros fill it up.
    pub(super) len: u16,
}

impl VantageRequest {
    /// The type number of the message.
    pub const TYPE: u8 = 5;

    /// A new request; with `padded` it has the length that requests over UDP need.
    #[must_use]
    pub const fn new(
        transaction: TransactionId,
        client_key: [u8; 32],
        challenge: Option<Challenge>,
        padded: bool,
    ) -> Self {
        let len = if padded { REQUEST_MIN_UDP } else { MESSAGE_HEADER_LEN + FIXED };
        Self { transaction, client_key, challenge, len: len as u16 }
    }

    /// The message.
    #[must_use]
    pub fn to_bytes(&self) -> MessageBytes {
        MessageBytes::build(usize::from(self.len), |writer| {
            writer.header(Self::TYPE, self.len, self.transaction);
            writer.put(&self.client_key);
            // The place of a request's duration and counts.
            writer.put(&[0; 8]);
            writer.challenge(self.challenge);
        })
    }
}
