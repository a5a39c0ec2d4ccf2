//! The messages between clients and verifiers: one message in a UDP datagram, or behind its length of two bytes
//! over TCP (`docs/spec/asap.md`, verifier messages).
//!
//! Only the form is checked here. The verifier checks whether a challenge, token or signature is correct.

mod parts;
mod read;
mod request;
#[cfg(test)]
mod tests;
mod write;

pub use parts::{Challenge, Reason, Token, Tokens, TransactionId, VantageId};
pub use request::{ProbeRequest, Renewal, Request, SigningInput, VantageRequest};
pub use write::MessageBytes;

use super::{CertificateBody, VER_ALG};
use core::net::{IpAddr, SocketAddr};

/// The first bytes of a message to or from a verifier.
pub const MESSAGE_MAGIC: u16 = 0xff56;
/// Length of a message's header, bytes.
pub const MESSAGE_HEADER_LEN: usize = 16;
/// Shortest request over UDP, bytes. No answer is longer, so a verifier cannot be used for amplification.
pub const REQUEST_MIN_UDP: usize = 320;
/// Longest message, bytes. The longest request, with all of its parts, has 485.
pub const MESSAGE_MAX: usize = 512;

/// A message.
#[expect(clippy::large_enum_variant, reason = "nothing allocates here, and a message lives for a moment")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// A client asks for a certificate (type 1).
    Request(Request),
    /// The verifier asks the client to prove that it is at its address (2).
    Challenge(ChallengeMessage),
    /// The verifier certifies the client's address (3).
    Certificate(CertificateMessage),
    /// The verifier refuses (4).
    Refused(Refused),
    /// A client asks a vantage point for a token (5).
    VantageRequest(VantageRequest),
    /// The vantage point's token (6).
    Token(TokenMessage),
    /// A client asks for a datagram from another address (7).
    ProbeRequest(ProbeRequest),
    /// That datagram (8).
    Probe(Probe),
}

/// Whether a UDP datagram is a client's message to a verifier, as far as its beginning and its length say: magic, version,
/// type and length. Where a verifier shares a port with the encapsulation, all other datagrams are the encapsulation's
/// (`docs/spec/asap.md` §5.9).
#[must_use]
pub fn is_for_verifier(datagram: &[u8]) -> bool {
    let [magic_high, magic_low] = MESSAGE_MAGIC.to_be_bytes();
    let &[a, b, VER_ALG, kind, high, low, ..] = datagram else { return false };
    let types = [Request::TYPE, VantageRequest::TYPE, ProbeRequest::TYPE];
    (a, b) == (magic_high, magic_low)
        && types.contains(&kind)
        && usize::from(u16::from_be_bytes([high, low])) == datagram.len()
        && (REQUEST_MIN_UDP..=MESSAGE_MAX).contains(&datagram.len())
}

impl Message {
    /// The client's number for its request.
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

/// A challenge, to be sent back in the next request from the same address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChallengeMessage {
    /// The transaction of the request.
    pub transaction: TransactionId,
    /// The challenge to send back.
    pub challenge: Challenge,
    /// The address and port that the verifier saw as the request's source.
    pub seen: SocketAddr,
    /// The verifier's time, Unix seconds. For display only; never use it as the time of a request.
    pub time: u32,
}

/// A certificate for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CertificateMessage {
    /// The transaction of the request.
    pub transaction: TransactionId,
    /// The certified address, and the port that the request came from.
    pub seen: SocketAddr,
    /// The certificate.
    pub certificate: CertificateBody,
}

/// A refusal: the client gets no certificate and no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The transaction of the request.
    pub transaction: TransactionId,
    /// The reason.
    pub reason: Reason,
    /// The vantage point whose token the reason is about, if it is about a token.
    pub vantage: Option<VantageId>,
    /// Seconds from now until another request may succeed; 0 if waiting does not help.
    pub retry_after: u32,
}

/// A vantage point's token for the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenMessage {
    /// The transaction of the request.
    pub transaction: TransactionId,
    /// The token, for the client to pass on to the issuing verifier.
    pub token: Token,
}

/// A datagram from an address to which the client has never sent. If it arrives, the client's network accepts
/// unsolicited datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// The transaction of the request.
    pub transaction: TransactionId,
    /// The nonce of the request.
    pub nonce: [u8; 8],
}

/// The IPv4 or IPv6 address that the 16 bytes contain (the reverse of [`super::mapped`]).
pub(super) fn unmapped(bytes: [u8; 16]) -> IpAddr {
    IpAddr::from(bytes).to_canonical()
}
