//! ASAP: a certificate of a provenance verifier, which both ends trust, lets the first packet carry data,
//! even at the first contact (Zhou's thesis, chapter 4; `docs/spec/asap.md`).
//!
//! - A verifier [certifies](certify) that a client is at an address.
//! - The client signs each request with the certified key: [`ClientCertificate::request`].
//! - The server checks both signatures, and that it has not seen the request before.

mod block_list;
mod budget;
mod certificate;
mod identity;
mod keys;
mod policy;
mod refused;
mod reply_key;
mod trust;
mod verify;

#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;
#[cfg(test)]
mod vector_tests;

pub use crate::identity::{AcceptedBlock, Identity};
pub use budget::{AsapShard, BudgetConfig};
pub use certificate::{CertificateDigest, ClientCertificate, certify, is_certified};
pub use identity::address_tag;
pub use keys::{NotAKey, PrivateKey, PublicKey};
pub use policy::{AsapPolicy, GuardDomain};
pub use refused::{Refused, reason};
pub use reply_key::ReplyKey;
pub use trust::{BeforeAck, TrustError, TrustStore, Trusted};
pub use verify::{BATCH, Candidate, Verified, verify};
