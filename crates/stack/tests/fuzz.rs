//! The fuzz targets without a fuzzer, in one program: on their corpus, and two of them on random bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(unreachable_pub, reason = "public in the library of the fuzz targets")]
#[path = "../../../fuzz/src/lib.rs"]
mod targets;

mod actions;
mod corpus;
mod model;
