//! The bodies of the fuzz targets. Each takes arbitrary bytes and panics if what they describe breaks a guarantee.
//!
//! They need no fuzzer: a test of `firstflight-stack` runs them on the seed corpus with stable Rust. `dns_parse.rs`
//! is not in this list: its target and a test of `firstflight-dns` include the file directly, because `stack` does
//! not know that crate. The same holds for the targets of `seal`, `http`, `proxy` and `firstflight`.
#![forbid(unsafe_code)]

pub mod actions;
pub mod asap_parse;
pub mod asap_syns;
pub mod model;
pub mod pair;
pub mod stack_frames;
pub mod wire_parse;

mod peer;
