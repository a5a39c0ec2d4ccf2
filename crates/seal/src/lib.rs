//! Sealed first flights: a TLS 1.3 ClientHello and a request in one HPKE message, so that the first request to a server
//! that was never contacted is encrypted, and answered after one round trip by an authenticated server
//! (`docs/spec/sealed.md`, whose section numbers stand beside everything here).
//!
//! This crate is the protocol without TLS and without sockets: bytes and decisions. Time and randomness are arguments.
//! The crate that joins it with a TLS library does this:
//!
//! # Server
//! 1. [`Intake`] reads the first bytes: ordinary TLS, or a flight (3.5).
//! 2. [`KeySet::open`] opens it (3). Without an accepted block it asks an [`OpeningBudget`] before (6.10).
//! 3. [`Hello::parse`] and [`OpenedFlight::check`] compare the ClientHello with the request (4).
//! 4. [`Request::judge`] decides whether the request runs early, and [`Waiting`] what happens after Finished (6). A
//!    [`StrikeRegister`], or the [`SharedStrikeRegister`] of a farm, remembers what ran.
//!
//! # Client
//! 1. [`Record::parse`] reads the key, [`Record::usable`] and [`Trust`] say whether it may be used (8).
//! 2. [`FlightRoom::plan`] says whether the flight fits (7.6), [`Failures`] whether flights work here (7.4).
//! 3. [`Draft`] gives the ALPN names for the ClientHello, and seals it (3, 4).
//! 4. [`ServerAnswer::read`] reads the server's first bytes, and [`Sent`] says what may go again (7).
#![forbid(unsafe_code)]

mod bind;
mod budget;
mod client;
mod commitment;
mod defence;
mod farm;
mod flight;
mod hello;
#[cfg(feature = "files")]
mod key_file;
mod keys;
mod name;
mod plain;
mod reader;
mod record;
mod run;
mod seal;

pub use bind::Bind;
pub use budget::OpeningBudget;
pub use client::draft::{Draft, DraftError};
pub use client::failures::Failures;
pub use client::outcome::Outcome;
pub use client::reason::Reason;
pub use client::sent::{Event, Sent, SentAgain, Then};
pub use client::size::{FlightRoom, Plan, UDP_FOLLOWERS};
pub use client::trust::{AnsweredBy, KeySource, NamePolicy, Trust};
pub use commitment::{Commitment, DIGEST_PREFIX, PROTOCOL_PREFIX, is_reserved, is_taken, names};
pub use farm::{ChainFault, Farm, FarmError};
pub use flight::{Flight, Head, Intake, MAX_N, MIN_N, REJECT, Refused, ServerAnswer, Step};
pub use hello::{Hello, HelloFault};
#[cfg(feature = "files")]
pub use key_file::{ContentFault, KeyFile, KeyFileError};
pub use keys::{KeySet, RotateError, SealKey};
pub use name::HostName;
pub use plain::{Flags, Inner, MalformedPlaintext, Rid};
#[cfg(feature = "files")]
pub use record::RecordFileError;
pub use record::{Entry, Record, RecordError, RecordTextError, Suite};
pub use run::admission::{BlockState, EarlyCandidate, Judged, Request, Runs, Server, Why};
pub use run::shared::{RegisterFuture, SharedStrikeRegister};
pub use run::strike_register::{MemoryRegister, Question, RegisterAnswer, RegisterLimits, StrikeRegister};
pub use run::waiting::{Finished, Waiting};
pub use seal::{OpenError, OpenedFlight, SealError, Target, seal};

#[cfg(test)]
#[path = "tests/attacks/mod.rs"]
mod attacks;
#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;
#[cfg(test)]
mod reader_tests;
#[cfg(test)]
mod vector_tests;
