//! ASAP's objects as bytes: the TCP option, the credential block in front of a SYN's data, the inputs for
//! signatures, and the parameter that a server publishes (`docs/spec/asap.md`).
//!
//! All types are legal by construction: in a [`Block`], reserved bits are zero and lengths fit. Signatures are
//! checked elsewhere; this module computes no hash and uses no key.

mod block;
mod input;
pub mod message;
mod name;
mod numbered;
mod option;
mod service;
mod verifiers;
mod writer;

#[cfg(test)]
mod tests;

pub use block::{Block, CertificateBody, CertificateFlags, RequestCertificate, VerifierId};
pub use input::{Encapsulation, RequestInput, certificate_input, context, identity_input, mapped};
pub use name::Name;
pub use option::{AsapOption, Hint, Reply, Status};
pub use service::{DnsPathParam, ServiceParam, UdpService, VerifierIds, Zone, ZoneText};
pub use verifiers::{SitePoint, SitePoints, SiteVerifier, VerifiersParam};

/// Version 1 (high nibble) with algorithm 1: Ed25519 and SHA-256.
pub const VER_ALG: u8 = 0x11;
/// The experiment identifier of the TCP option (kind 253). Provisional: not registered with IANA.
pub const EXID: u16 = 0xfa57;
/// The first two bytes of a credential block.
pub const BLOCK_MAGIC: u16 = 0xff46;
/// Length of a credential block without padding, bytes.
pub const BLOCK_LEN: usize = 196;
/// Length of a certificate in a block and in a verifier's messages, bytes.
pub const CERTIFICATE_LEN: usize = 109;
