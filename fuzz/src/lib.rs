//! The bodies of the fuzz targets. Each takes arbitrary bytes and panics if what they describe breaks a guarantee.
//!
//! They need no fuzzer: a test of `firstflight-stack` runs them on the seed corpus with stable Rust. `dns_parse.rs`
//! is not in this list: its target and a test of `firstflight-dns` include the file directly, because `stack` does
//! not know that crate.
#![forbid(unsafe_code)]

pub(crate) mod actions;
pub(crate) mod asap_parse;
pub(crate) mod asap_syns;
pub(crate) mod model;
pub(crate) mod pair;
pub(crate) mod stack_frames;
pub(crate) mod wire_parse;

mod peer;
