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
//! Features: `server` has the keys, cookies and limits of servers, and `asap` (the default) the certificates and
//! [`admit`] besides. Without features the crate is the client's half: [`CredentialStore`], [`Outcome`] and [`Reason`],
//! and needs no other crate than `firstflight-wire`.
//!
//! The crate does no I/O, reads no clock and draws no random numbers: the caller passes the time as an
//! argument.
//!
//! To add a kind of credential that fits into the Fast Open option, implement [`Verifier`] and name it in a
//! [`FastOpenPolicy`]. One with an option of its own also needs a variant of [`Presented`], and a reply in the SYN-ACK, which
//! is the stack's.
#![cfg_attr(
    not(feature = "asap"),
    allow(rustdoc::broken_intra_doc_links, reason = "links to what is left out")
)]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[cfg(feature = "asap")]
mod admission;
#[cfg(feature = "asap")]
pub mod asap;
mod bucket;
#[cfg(feature = "server")]
mod cookie;
#[cfg(feature = "server")]
mod cookie_key;
#[cfg(feature = "server")]
mod cookie_keys;
#[cfg(feature = "server")]
mod flight;
mod identity;
#[cfg(feature = "server")]
mod key;
#[cfg(all(test, loom, feature = "server"))]
mod loom_tests;
mod lru;
mod network;
#[cfg(feature = "server")]
mod one_time;
mod outcome;
#[cfg(feature = "server")]
pub mod pending;
#[cfg(feature = "server")]
mod policy;
#[cfg(feature = "server")]
pub mod replay;
#[cfg(feature = "server")]
mod schedule;
#[cfg(feature = "server")]
mod secret;
mod serial;
#[cfg(feature = "server")]
mod source;
pub mod store;
#[cfg(feature = "server")]
mod sync;

#[cfg(feature = "asap")]
pub use admission::{Accepted, Admission, Policies, Question, Refusal, Work, admit, invalidate};
pub use bucket::Bucket;
pub use identity::{AcceptedBlock, Identity};
pub use network::NetworkId;
pub use outcome::{Outcome, Reason};
pub use serial::Serial;
pub use store::{CredentialStore, Entry, LearntOfServer, Permission};
#[cfg(feature = "server")]
pub use {
    cookie::{CookieScheme, Scheme},
    cookie_key::{CookieKey, KeyParseError},
    cookie_keys::{CookieKeys, Fingerprint},
    flight::{
        Claim, Decision, FirstFlight, FlightId, Flow, Grant, JobRequest, JobResult, Offered, Presented,
        Verifier, VerifierVerdict,
    },
    key::{Check, KeyRing},
    one_time::{Farm, OneTimeCookies, OneTimeKeys, Placement, Redeemed, SerialTable},
    pending::{PendingLimit, PendingPermit},
    policy::{FastOpenPolicy, PolicyError, Quarantine, Replays},
    replay::{GuardKey, Guarded, RemoteGuard, ReplayGuard, ReplayTable, Unreported, Window},
    schedule::{KeyTimes, Schedule, ScheduleError},
    secret::{FarmSecret, FarmSecrets, SecretError, SecretFileError},
    source::{ClockError, Current, Fixed, KeySource},
};
