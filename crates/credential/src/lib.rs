//! Who may skip the handshake: a credential in the first flight, and who checks it.
//!
//! - Server: [`admit`] is the one function that decides about a SYN. It asks a [`Verifier`] (the
//!   [`KeyRing`] of plain cookies unless the policy names another) and the [`PendingLimit`].
//!   Its keys are fixed, or follow a [`Schedule`] that a whole farm derives from one [`FarmSecret`]: a
//!   [`KeySource`] says which are valid now.
//! - Client: the [`CredentialStore`] remembers what servers gave, and which of them to leave alone.
//! - Both: an [`Outcome`] with a [`Reason`], for the API, the metrics and the logs alike.
//!
//! No clock is read, no random number drawn, nothing sent: time comes in as an argument.
//!
//! A new kind of credential is a file with its [`Verifier`], and a variant of [`Presented`].
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
