//! What a capture shows of first flights: which connections carried data in their first packet, what came of it and why, and what
//! handshakes cost the requests.
//!
//! The connections may be those of any program: TCP Fast Open (RFC 7413), certificates (ASAP, `docs/spec/asap.md`) and sealed
//! first flights (`docs/spec/sealed.md`), on IP and in firstflight's UDP datagrams. Captures are pcapng and pcap files of
//! Ethernet, raw IP, Linux cooked and loopback devices, made at the client, at the server or between them.
//!
//! [`explain()`] reports the outcome of each connection's first flight, as far as its packets show it. [`requests()`] counts
//! requests, and their times with and without TCP's handshake. Results are for people (`Display`) and for programs
//! ([`record`]). This crate reads bytes, opens nothing and prints nothing. Whatever is in a capture, its memory has limits.
//!
//! ```
//! use firstflight_explain::{Capture, explain};
//! # // A SYN with a request for a cookie, from 10.9.0.1:40000 to 10.9.0.2:80, and the SYN-ACK that grants one.
//! # fn open() -> &'static [u8] {
//! #     &[
//! #         0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 101, 0, 0, 0,
//! #         1, 0, 0, 0, 0, 0, 0, 0, 44, 0, 0, 0, 44, 0, 0, 0,
//! #         0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6, 0x26, 0xb8, 10, 9, 0, 1, 10, 9, 0, 2,
//! #         0x9c, 0x40, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0, 34, 2, 1, 1,
//! #         1, 0, 0, 0, 0x50, 0xc3, 0, 0, 52, 0, 0, 0, 52, 0, 0, 0,
//! #         0x45, 0, 0, 52, 0, 0, 0x40, 0, 64, 6, 0x26, 0xb0, 10, 9, 0, 2, 10, 9, 0, 1,
//! #         0, 80, 0x9c, 0x40, 0, 0, 0, 5, 0, 0, 0, 10, 0x80, 0x12, 0xff, 0xff, 0, 0, 0, 0,
//! #         34, 10, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1,
//! #     ]
//! # }
//!
//! // Any reader: a file, a pipe, bytes.
//! let capture = Capture::open(open())?;
//! let mut granted = Vec::new();
//! let explained = explain(capture, |report| {
//!     println!("{report}");
//!     granted.extend(report.record().granted);
//! });
//! println!("{}", explained.summary);
//! assert_eq!(granted, ["0102030405060708"]);
//! assert!(explained.missing.is_nothing());
//! # Ok::<_, firstflight_explain::OpenError>(())
//! ```
#![forbid(unsafe_code)]

pub mod asap;
mod capture;
mod conversation;
mod explained;
mod frame;
mod note;
mod offered;
pub mod picture;
pub mod record;
mod report;
mod requests;
mod sealed;
mod sightings;
mod summary;
mod table;
mod time;
mod verdict;

#[cfg(test)]
mod asap_tests;
#[cfg(test)]
mod capture_tests;
#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;
#[cfg(test)]
mod instead_tests;
#[cfg(test)]
mod places_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod udp_tests;
#[cfg(test)]
mod verdict_tests;

pub use capture::{Capture, CaptureDamage, Missing, OpenError};
pub use explained::{Explained, explain};
pub use firstflight_credential::{Outcome, Reason};
pub use frame::LinkType;
pub use report::Report;
pub use requests::{Histogram, RequestCounts, Tally, requests};
pub use summary::Summary;
