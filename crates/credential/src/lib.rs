//! Credentials in the first flight, and the checks that let a client skip the handshake.
//!
//! - Server: [`admit`] is the one function that decides about a SYN. It asks a [`Verifier`] (the
//!   [`KeyRing`] of plain cookies unless the policy names another) and the [`PendingLimit`]. A [`KeySource`]
//!   says which keys are valid now: fixed keys, or those of a [`Schedule`] that a whole farm derives from one
//!   [`FarmSecret`].
//! - Client: the [`CredentialStore`] remembers the cookies of servers, and to which servers first flights
//!   failed.
//! - Both: an [`Outcome`] with a [`Reason`], used by the API, the metrics and the logs.
//!
//! The crate does no I/O, reads no clock and draws no random numbers: the caller passes the time as an
//! argument.
//!
//! To add a kind of credential, add a file with its [`Verifier`] and a variant of [`Presented`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod admission;
pub mod asap;
mod bucket;
mod cookie;
mod cookie_key;
mod cookie_keys;
mod flight;
mod key;
mod lru;
mod one_time;
mod outcome;
pub mod pending;
mod policy;
pub mod replay;
mod schedule;
mod secret;
mod serial;
mod source;
pub mod store;

pub use admission::{Admission, Policies, Work, admit, spoil};
pub use bucket::Bucket;
pub use cookie::{CookieScheme, Scheme};
pub use cookie_key::{CookieKey, KeyParseError};
pub use cookie_keys::{CookieKeys, Fingerprint};
pub use flight::{
    Claim, FirstFlight, Flow, Grant, JobRequest, JobResult, Offered, Presented, Redemption, Verdict, Verifier,
};
pub use key::{Check, KeyRing};
pub use one_time::{Farm, OneTimeCookies, OneTimeKeys, Placement, Redeemed, SerialTable};
pub use outcome::{Outcome, Reason};
pub use pending::{PendingLimit, Place};
pub use policy::{FastOpenPolicy, PolicyError, Quarantine, Replays};
pub use replay::{GuardKey, Guarded, RemoteGuard, ReplayGuard, ReplayTable, Window};
pub use schedule::{Schedule, ScheduleError};
pub use secret::{FarmSecret, FarmSecrets, SecretError, SecretFileError};
pub use serial::Serial;
pub use source::{ClockError, Current, Fixed, KeySource};
pub use store::{CredentialStore, Entry, Learnt, NetworkId, Permission};
