//! The tests of the adapters, in one program. Each module is about one subject. Modules without tests make authorities,
//! namespaces and examples for the others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;
#[cfg(target_os = "linux")]
#[path = "../../kernel/tests/namespace/mod.rs"]
mod namespace;
#[allow(dead_code, unreachable_pub, reason = "the main function of the example")]
#[cfg(target_os = "linux")]
#[path = "../examples/tonic_tls.rs"]
mod tonic_tls;
#[cfg(target_os = "linux")]
use tonic_tls::tonic_both;

mod dns;
mod examples;
mod https;
mod server_tls;
mod too_early;
mod waiting;
