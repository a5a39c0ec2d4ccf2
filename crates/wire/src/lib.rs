//! Bytes to legal types and back: IPv4, IPv6, TCP and its options, UDP and TCP inside it, ICMP, ASAP's
//! objects.
//!
//! Every other layer of firstflight works on the types of this crate, so that bytes from the network are
//! interpreted only here. Parsing returns legal values or a [`ParseError`] and never panics. Emitting writes
//! into a buffer that the caller owns, or returns an [`EmitError`]. Nothing here allocates, reads a clock, does
//! I/O or draws randomness. [`SeqNum`] and [`Instant`] are here because every layer above needs them.
//!
//! A received packet is parsed in these steps: [`ip::Packet::parse`], then [`tcp::Segment::parse_checked`],
//! [`icmp::parse_v4`] or [`icmp::parse_v6`]. For a segment in UDP the steps are
//! [`udp::Datagram::parse_checked`], [`encapsulation::Carried::parse`] and [`tcp::Segment::parse`].
//! [`ip::Fragment::parse`] reads fragments of packets. A packet is written in the reverse order: the payload is
//! placed first, [`tcp::Header::emit`] writes the TCP header in front of it, [`tcp::fill_checksum`] completes
//! the segment, and [`ip::Header::emit`] writes the IP header in front of that.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate alloc;

pub mod asap;
pub mod checksum;
pub mod encapsulation;
mod error;
pub mod hint;
pub mod icmp;
pub mod ip;
pub mod pretty;
mod seq;
mod setters;
pub mod tcp;
mod time;
pub mod udp;

#[cfg(test)]
#[path = "tests/fixtures.rs"]
mod fixtures;
#[cfg(test)]
mod robustness_tests;

pub use error::{EmitError, ParseError};
pub use pretty::Pretty;
pub use seq::SeqNum;
pub use time::{Clock, Instant};
