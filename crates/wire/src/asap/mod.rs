//! ASAP's objects as bytes: the TCP option, the credential block in front of a SYN's data, what is signed, and what
//! a server publishes (`docs/spec/asap.md`).
//!
//! Legal types only: whoever holds a [`Block`] holds one whose reserved bits are zero and whose lengths fit.
//! Whether its signatures are right is said elsewhere; no hash is made and no key is used here.

mod block;
mod input;
pub mod message;
mod numbered;
mod option;
mod service;

#[cfg(test)]
mod tests;

pub use block::{Block, CertificateBody, CertificateFlags, RequestCertificate, VerifierId};
pub use input::{Carrier, RequestInput, certificate_input, context, identity_input, mapped};
pub use option::{Hint, Offer, Reply, Status};
pub use service::{Carriage, ServiceParam, UdpService, VerifierIds, Zone};

/// Version 1 (high nibble) with algorithm 1: Ed25519 and SHA-256.
pub const VER_ALG: u8 = 0x11;
/// The experiment identifier of the TCP option (kind 253). Provisional: not registered with IANA.
pub const EXID: u16 = 0xfa57;
/// A credential block begins with it.
pub const BLOCK_MAGIC: u16 = 0xff46;
/// Length of a credential block without padding, bytes.
pub const BLOCK_LEN: usize = 196;
/// Length of a certificate as it stands in a block and in a verifier's messages, bytes.
pub const CERTIFICATE_LEN: usize = 109;
