//! The DNS path of a first flight inside a DNS lookup: data reaches a server before its address is known
//! (Zhou's thesis, chapter 5; `docs/spec/dns-path.md`).
//!
//! A client encodes its SYN as [`ConnectionInfo`], [`seal`]s it to the key that the server publishes, splits
//! it into [`Fragments`] and asks for each of them ([`FragmentQuery`]), if its [`Manners`] allow it. The
//! front, an authoritative name server, answers every [`Question`] at once, puts the fragments together
//! ([`Reassembly`]), opens complete first flights ([`DnsPathKeys`]) and hands them to the server
//! ([`RelaySender`], [`RelayReceiver`]). The server answers the client itself, and proves with the
//! [`ReplyKey`] that it may. [`Front`] contains all parts of such a name server. Several fronts of one zone
//! hand each other the fragments of a first flight ([`forward`]).
//!
//! All of this is sans-IO: time and randomness are arguments, and the code sends nothing itself. The feature
//! `service` adds the sockets on which a front answers, and key files.
#![forbid(unsafe_code)]

pub use firstflight_credential::asap::ReplyKey;

mod base230;
#[cfg(feature = "service")]
mod boot_file;
mod budget;
mod ci;
pub mod forward;
mod fragment;
pub mod front;
#[cfg(feature = "service")]
mod key_file;
mod keys;
pub mod manners;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod names;
mod query;
mod reassembly;
pub mod relay;
mod seal;
#[cfg(feature = "service")]
pub mod service;
mod sizes;
mod zone;

#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;
#[cfg(test)]
mod vector_tests;

#[cfg(feature = "service")]
pub use boot_file::{BootError, BootFile};
pub use budget::Budget;
pub use ci::{ConnectionInfo, WindowScale};
#[cfg(feature = "service")]
pub use firstflight_files::lines::{KeyFileError, LineError};
pub use forward::{ForwardConfig, ForwardError, ForwardRefused, ForwardSender, Forwarder};
pub use fragment::{Attempt, Fragment, FragmentId, FragmentPart, Fragments, LABEL, MIN_FRAGMENTS};
pub use front::{
    Destination, DnsPathConfig, Front, FrontCounters, FrontError, NotOpened, Policy, RelayServer, Transport,
};
pub use hickory_proto::rr::Name;
#[cfg(feature = "service")]
pub use key_file::{DnsPathKeyFile, create_relay_key, read_relay_keys};
pub use keys::{DnsPathKeys, RotateError};
pub use manners::{Cause, FlightId, Manners, Restraint, Stop};
pub use names::{Position, position, wire_form};
pub use query::{Echo, FragmentQuery, Meaning, MessageError, Question};
pub use reassembly::{Reassembled, Reassembly, ReassemblyCounters, ReassemblyLimits};
pub use relay::{Boot, Relay, RelayKey, RelayReceiver, RelayRefused, RelaySender, Relayed};
pub use seal::{DnsPathKey, OpenBuffer, OpenError, SealError, Sealed, seal};
pub use sizes::MAX_FRAGMENTS;
pub use zone::{AliasLoop, EntryFault, ZoneData, ZoneError, ZoneFault, ZonePlace};
