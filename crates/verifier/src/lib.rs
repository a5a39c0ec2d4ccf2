//! The provenance verifier of ASAP: it certifies that a client is at its address, so that servers which trust
//! it accept the client's data in the first packet (Zhou's thesis §4.2; `docs/spec/asap.md`).
//!
//! - [`Verifier`] is the machine: no socket, no clock, no random source.
//! - [`Service`] runs it on UDP and TCP sockets.
//! - [`obtain`] gets a certificate for a client, and a [`CertificatePool`] keeps some ready for use. A [`KeptCertificate`] is one in
//!   a file, and [`site_verifiers`] has those of verifiers that sites name.
#![forbid(unsafe_code)]

mod challenge;
pub mod client;
mod clock;
mod config;
mod counters;
mod expiry;
mod global;
mod group;
mod kept_certificate;
mod key_file;
mod limits;
mod mac;
mod machine;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod pool;
mod service;
pub mod site_verifiers;
mod token;

pub use challenge::CHALLENGE_LASTS;
pub use client::{
    BySystem, Fault, IssuerAddress, IssuerName, LookUp, Looked, Mapping, ObtainError, Patience, Reach,
    VantageFault, Wanted, is_pair, obtain, reach,
};
pub use clock::boot_clock;
pub use config::{Config, ConfigError, FIRST_DURATION, Issuer, LONGEST_DURATION, VantagePoint};
pub use counters::Counters;
pub use expiry::{BACKDATED, SHORTEST, backdated, duration, seen_for};
pub use firstflight_files::lines::{KeyFileError, LineError};
pub use firstflight_service::{StreamLimits, secure_rng};
pub use global::is_global;
pub use group::{Group, GroupError, VantageAddress};
pub use kept_certificate::{KeptCertificate, KeptError, NotUsed, RenewError};
pub use key_file::{VerifierKeys, create_token_key, read_token_keys};
pub use limits::{Limits, Rate};
pub use machine::{Answer, Verifier};
pub use pool::{CertificatePool, PoolConfig, PoolSite, is_usable};
pub use service::{ConfigHandle, CounterHandle, STREAM_LIMITS, Service, ServiceError};
pub use site_verifiers::{LearntVerifier, LearntVerifiers, SiteRecord, Surroundings};
pub use token::{GroupMember, TOKEN_LASTS, TokenKey};
