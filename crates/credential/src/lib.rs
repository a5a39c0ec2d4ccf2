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

pub mod admission;
pub mod asap;
pub mod cookie;
pub mod cookie_keys;
pub mod key;
mod lru;
pub mod one_time;
pub mod outcome;
pub mod pending;
pub mod policy;
pub mod replay;
pub mod schedule;
pub mod secret;
pub mod source;
pub mod store;

pub use admission::{
    Admission, FirstFlight, Grant, JobRequest, JobResult, Offered, Policies, Presented, Redemption, Verdict,
    Verifier, Work, admit, spoil,
};
pub use cookie::{CookieScheme, Flow, Scheme};
pub use cookie_keys::{CookieKeys, Fingerprint};
pub use key::{Check, CookieKey, KeyParseError, KeyRing};
pub use one_time::{Farm, OneTimeCookies, OneTimeKeys, Placement, Serial, SerialTable};
pub use outcome::{Outcome, Reason};
pub use pending::{PendingLimit, Place};
pub use policy::{FastOpenPolicy, PolicyError, Quarantine, Replays};
pub use replay::{GuardKey, Guarded, RemoteGuard, ReplayGuard, ReplayTable, Window};
pub use schedule::{Schedule, ScheduleError};
pub use secret::{FarmSecret, FarmSecrets, SecretError, SecretFileError};
pub use source::{ClockError, Current, Fixed, KeySource};
pub use store::{CredentialStore, Entry, NetworkId, Permission};
