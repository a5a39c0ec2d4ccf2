//! The provenance verifier of ASAP: it certifies that a client is at its address, so that servers which trust it
//! take the client's data in the first packet (Zhou's thesis §4.2; `docs/spec/asap.md`).
//!
//! - [`Verifier`] is the machine: no socket, no clock, no random source.
#![forbid(unsafe_code)]

mod challenge;
mod config;
mod counters;
mod expiry;
mod global;
mod limits;
mod mac;
mod machine;
mod token;

pub use challenge::CHALLENGE_LASTS;
pub use config::{Config, ConfigError, FIRST_DURATION, Issuer, LONGEST_DURATION, VantagePoint};
pub use counters::Counters;
pub use expiry::{BACKDATED, SHORTEST, duration, seen_for};
pub use global::is_global;
pub use limits::{Limits, Rate};
pub use machine::Verifier;
pub use token::{GroupMember, TOKEN_LASTS, TokenKey};
