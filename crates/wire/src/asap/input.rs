//! The inputs that are signed or hashed. Each begins with its own context, so that none can be taken for
//! another.

use super::{CertificateBody, VER_ALG};
use core::net::IpAddr;

/// A context: the text in 32 bytes, padded with zeros. A text beyond 32 bytes would be cut, so none is that
/// long.
#[must_use]
pub const fn context(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    let text = text.as_bytes();
    let mut at = 0;
    while at < text.len() && at < 32 {
        bytes[at] = text[at];
        at += 1;
    }
    bytes
}

const CERTIFICATE: [u8; 32] = context("firstflight ASAP v1 PC");
const REQUEST: [u8; 32] = context("firstflight ASAP v1 RC");
const IDENTITY: [u8; 32] = context("firstflight ASAP v1 ID");

/// An address in 16 bytes; IPv4 as an IPv4-mapped address (RFC 4291 §2.5.5.2).
#[must_use]
pub const fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

const fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// The input that a verifier signs for the certificate of the client at `address`, issued by the verifier (or
/// group) with `verifier_key`. The signature in `body` is not part of it.
#[must_use]
pub fn certificate_input(body: &CertificateBody, verifier_key: &[u8; 32], address: IpAddr) -> [u8; 124] {
    let mut input = [0; 124];
    input[..32].copy_from_slice(&CERTIFICATE);
    input[32] = VER_ALG;
    input[33] = body.flags.bits();
    input[34] = family(address);
    input[36..68].copy_from_slice(verifier_key);
    input[68..100].copy_from_slice(&body.client_key);
    input[100..116].copy_from_slice(&mapped(address));
    input[116..120].copy_from_slice(&body.valid_from.to_be_bytes());
    input[120..].copy_from_slice(&body.duration().to_be_bytes());
    input
}

/// The first part of the input whose SHA-256 is an identity: context, kind (1 host name, 2 IPv4, 3 IPv6), and
/// the port as the client sees it. The name in lower-case A-labels without a final dot, or the octets of the
/// address, follow.
#[must_use]
pub const fn identity_input(kind: u8, port: u16) -> [u8; 35] {
    let mut input = [0; 35];
    let mut at = 0;
    while at < 32 {
        input[at] = IDENTITY[at];
        at += 1;
    }
    let [high, low] = port.to_be_bytes();
    input[32] = kind;
    input[33] = high;
    input[34] = low;
    input
}

/// How a first flight travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encapsulation {
    /// TCP on IP.
    Ip,
    /// TCP in UDP datagrams.
    Udp,
}

impl Encapsulation {
    const fn number(self, relayed: bool) -> u8 {
        let number = match self {
            Self::Ip => 1,
            Self::Udp => 2,
        };
        if relayed { number | 0x80 } else { number }
    }
}

/// The input that a client signs for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestInput {
    /// How the first flight travels.
    pub encapsulation: Encapsulation,
    /// The first flight travels by DNS.
    pub relayed: bool,
    /// The client's address as the verifier saw it.
    pub address: IpAddr,
    /// Digest of the server's identity.
    pub identity: [u8; 32],
    /// Length of the credential block, including padding, bytes.
    pub block_len: u32,
    /// Length of the application data in the first flight, bytes.
    pub data_len: u32,
    /// SHA-256 of that data.
    pub data_digest: [u8; 32],
    /// When the request was made:
    /// [`RequestCertificate::requested_ms`](super::RequestCertificate::requested_ms); 48 bits.
    pub requested_ms: u64,
    /// The random number in the block.
    pub request_id: [u8; 8],
    /// SHA-256 of [`certificate_input`] and the verifier's signature.
    pub certificate: [u8; 32],
}

impl RequestInput {
    /// The bytes that are signed.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 170] {
        let mut input = [0; 170];
        input[..32].copy_from_slice(&REQUEST);
        input[32] = self.encapsulation.number(self.relayed);
        input[34] = family(self.address);
        input[36..52].copy_from_slice(&mapped(self.address));
        input[52..84].copy_from_slice(&self.identity);
        input[84..88].copy_from_slice(&self.block_len.to_be_bytes());
        input[88..92].copy_from_slice(&self.data_len.to_be_bytes());
        input[92..124].copy_from_slice(&self.data_digest);
        input[124..130].copy_from_slice(&self.requested_ms.to_be_bytes()[2..]);
        input[130..138].copy_from_slice(&self.request_id);
        input[138..].copy_from_slice(&self.certificate);
        input
    }
}
