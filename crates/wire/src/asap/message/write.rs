//! Writes messages to bytes.

use super::parts::{Challenge, Token, TransactionId};
use super::{
    CertificateMessage, ChallengeMessage, MESSAGE_MAGIC, MESSAGE_MAX, Message, Probe, Refused, TokenMessage,
};
use crate::asap::{VER_ALG, mapped};
use core::fmt;
use core::ops::Deref;

/// A message as it is sent: up to [`MESSAGE_MAX`] bytes.
#[derive(Clone)]
pub struct MessageBytes {
    bytes: [u8; MESSAGE_MAX],
    len: usize,
}

impl MessageBytes {
    /// A message of `len` bytes, with zeros where `write` writes nothing.
    pub(super) fn build(len: usize, write: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut bytes = [0; MESSAGE_MAX];
        write(&mut Writer::new(&mut bytes));
        Self { bytes, len: len.min(MESSAGE_MAX) }
    }
}

impl Deref for MessageBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl fmt::Debug for MessageBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageBytes").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Writes values one behind another. A value that does not fit is omitted: the buffers fit the longest message.
pub(super) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(super) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) const fn written(&self) -> usize {
        self.at
    }

    pub(super) fn put(&mut self, part: &[u8]) {
        let end = self.at + part.len();
        if let Some(place) = self.bytes.get_mut(self.at..end) {
            place.copy_from_slice(part);
            self.at = end;
        }
    }

    pub(super) fn header(&mut self, kind: u8, len: u16, transaction: TransactionId) {
        self.put(&MESSAGE_MAGIC.to_be_bytes());
        self.put(&[VER_ALG, kind]);
        self.put(&len.to_be_bytes());
        self.put(&[0; 2]);
        self.put(&transaction.0);
    }

    pub(super) fn challenge(&mut self, challenge: Option<Challenge>) {
        match challenge {
            Some(Challenge { key, time, mac }) => {
                self.put(&[key, 0, 0, 0]);
                self.put(&time.to_be_bytes());
                self.put(&mac);
            }
            None => self.put(&[0; Challenge::LEN]),
        }
    }

    pub(super) fn token(&mut self, token: Token) {
        let Token { vantage, key, time, mac } = token;
        self.put(&vantage.get().to_be_bytes());
        self.put(&[key, 0]);
        self.put(&time.to_be_bytes());
        self.put(&mac);
    }
}

impl ChallengeMessage {
    /// The type number of the message.
    pub const TYPE: u8 = 2;
    /// The length of the message, bytes.
    pub const LEN: usize = 64;

    /// The message.
    #[must_use]
    pub fn to_bytes(&self) -> MessageBytes {
        MessageBytes::build(Self::LEN, |writer| {
            writer.header(Self::TYPE, Self::LEN as u16, self.transaction);
            writer.challenge(Some(self.challenge));
            writer.put(&mapped(self.seen.ip()));
            writer.put(&self.seen.port().to_be_bytes());
            writer.put(&[0; 2]);
            writer.put(&self.time.to_be_bytes());
        })
    }
}

impl CertificateMessage {
    /// The type number of the message.
    pub const TYPE: u8 = 3;
    /// The length of the message, bytes.
    pub const LEN: usize = 145;

    /// The message.
    #[must_use]
    pub fn to_bytes(&self) -> MessageBytes {
        MessageBytes::build(Self::LEN, |writer| {
            writer.header(Self::TYPE, Self::LEN as u16, self.transaction);
            writer.put(&[if self.seen.is_ipv4() { 4 } else { 6 }, 0]);
            writer.put(&self.seen.port().to_be_bytes());
            writer.put(&mapped(self.seen.ip()));
            writer.put(&self.certificate.to_bytes());
        })
    }
}

impl Refused {
    /// The type number of the message.
    pub const TYPE: u8 = 4;
    /// The length of the message, bytes.
    pub const LEN: usize = 24;

    /// The message.
    #[must_use]
    pub fn to_bytes(&self) -> MessageBytes {
        MessageBytes::build(Self::LEN, |writer| {
            writer.header(Self::TYPE, Self::LEN as u16, self.transaction);
            writer.put(&[self.reason as u8, 0]);
            writer.put(&self.vantage.map_or(0, |vantage| vantage.get()).to_be_bytes());
            writer.put(&self.retry_after.to_be_bytes());
        })
    }
}

impl TokenMessage {
    /// The type number of the message.
    pub const TYPE: u8 = 6;
    /// The length of the message, bytes.
    pub const LEN: usize = 40;

    /// The message.
    #[must_use]
    pub fn to_bytes(&self) -> MessageBytes {
        MessageBytes::build(Self::LEN, |writer| {
            writer.header(Self::TYPE, Self::LEN as u16, self.transaction);
            writer.token(self.token);
        })
    }
}

impl Probe {
    /// The type number of the message.
    pub const TYPE: u8 = 8;
    /// The length of the message, bytes.
    pub const LEN: usize = 24;

    /// The message.
    #[must_use]
    pub fn to_bytes(&self) -> MessageBytes {
        MessageBytes::build(Self::LEN, |writer| {
            writer.header(Self::TYPE, Self::LEN as u16, self.transaction);
            writer.put(&self.nonce);
        })
    }
}

impl Message {
    /// The bytes that [`Message::parse`] reads.
    #[must_use]
    pub fn to_bytes(&self) -> MessageBytes {
        match self {
            Self::Request(message) => message.to_bytes(),
            Self::Challenge(message) => message.to_bytes(),
            Self::Certificate(message) => message.to_bytes(),
            Self::Refused(message) => message.to_bytes(),
            Self::VantageRequest(message) => message.to_bytes(),
            Self::Token(message) => message.to_bytes(),
            Self::ProbeRequest(message) => message.to_bytes(),
            Self::Probe(message) => message.to_bytes(),
        }
    }
}
