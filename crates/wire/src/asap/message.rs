//! What clients and verifiers say to each other, a message in a UDP datagram, or behind its length of two bytes
//! over TCP (`docs/spec/asap.md`, verifier messages).
//!
//! Nothing here is checked but the form: whether a challenge, token or signature is right is the verifier's
//! business.

mod parts;
mod read;
mod request;
#[cfg(test)]
mod tests;
mod write;

pub use parts::{Challenge, Reason, Token, Tokens, TransactionId, VantageId};
pub use request::{ProbeRequest, Renewal, Request, SigningInput, VantageRequest};
pub use write::MessageBytes;

use super::CertificateBody;
use core::net::{IpAddr, SocketAddr};

/// A message to or from a verifier begins with it.
pub const MESSAGE_MAGIC: u16 = 0xff56;
/// Length of a message's header, bytes.
pub const MESSAGE_HEADER_LEN: usize = 16;
/// Shortest request over UDP, bytes: no answer is longer, so a verifier is no amplifier.
pub const REQUEST_MIN_UDP: usize = 320;
/// Longest message, bytes. The longest request with all of its parts has 485.
pub const MESSAGE_MAX: usize = 512;

/// A message.
#[expect(clippy::large_enum_variant, reason = "nothing allocates here, and a message lives for a moment")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// A client asks for a certificate (type 1).
    Request(Request),
    /// The verifier asks whether the client is at its address (2).
    Challenge(ChallengeMessage),
    /// The verifier certifies that it is (3).
    Certificate(CertificateMessage),
    /// The verifier refuses (4).
    Refused(Refused),
    /// A client asks a vantage point for a token (5).
    VantageRequest(VantageRequest),
    /// The vantage point's token (6).
    Token(TokenMessage),
    /// A client asks for a datagram from somewhere else (7).
    ProbeRequest(ProbeRequest),
    /// That datagram (8).
    Probe(Probe),
}

impl Message {
    /// The client's number for what it asked.
    #[must_use]
    pub const fn transaction(&self) -> TransactionId {
        match self {
            Self::Request(message) => message.transaction,
            Self::Challenge(message) => message.transaction,
            Self::Certificate(message) => message.transaction,
            Self::Refused(message) => message.transaction,
            Self::VantageRequest(message) => message.transaction,
            Self::Token(message) => message.transaction,
            Self::ProbeRequest(message) => message.transaction,
            Self::Probe(message) => message.transaction,
        }
    }
}

/// To be sent back in the next request, from the same address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChallengeMessage {
    /// The request's.
    pub transaction: TransactionId,
    /// What to send back.
    pub challenge: Challenge,
    /// Where the request came from, as the verifier sees it.
    pub seen: SocketAddr,
    /// The verifier's time, Unix seconds. For people; never for the stamp of a request.
    pub time: u32,
}

/// A certificate on its way to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateMessage {
    /// The request's.
    pub transaction: TransactionId,
    /// The address that is certified, and the port that the request came from.
    pub seen: SocketAddr,
    /// The certificate.
    pub certificate: CertificateBody,
}

/// No certificate, and no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The request's.
    pub transaction: TransactionId,
    /// Why.
    pub reason: Reason,
    /// Which vantage point's token it is about, where the reason is about one.
    pub vantage: Option<VantageId>,
    /// When asking again may help, seconds from now; 0: not by waiting.
    pub retry_after: u32,
}

/// A vantage point's token on its way to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenMessage {
    /// The request's.
    pub transaction: TransactionId,
    /// To be handed to the issuing verifier.
    pub token: Token,
}

/// A datagram from an address that the client never sent to: if it arrives, the client's network lets strangers in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The request's.
    pub transaction: TransactionId,
    /// The request's.
    pub nonce: [u8; 8],
}

/// The IPv4 or IPv6 address in 16 bytes ([`super::mapped`]).
pub(super) fn unmapped(bytes: [u8; 16]) -> IpAddr {
    IpAddr::from(bytes).to_canonical()
}
