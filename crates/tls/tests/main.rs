//! The tests of TLS, in one program. Each module is about one subject. The modules without tests are servers, paths and
//! namespaces for the others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod common;
#[allow(dead_code, reason = "the tests of firstflight-kernel use all of it")]
#[cfg(target_os = "linux")]
#[path = "../../kernel/tests/namespace/mod.rs"]
mod namespace;
#[path = "../../redis/tests/server/process.rs"]
mod process;
#[cfg(target_os = "linux")]
#[path = "../../firstflight/tests/site/mod.rs"]
mod site;

mod attackers;
mod farm;
mod files;
mod first_answer;
mod lazy;
mod outcomes_page;
mod round_trips;
mod sealed;
mod sealed_attacks;
mod sealed_dns;
mod sealed_failures;
mod sealed_farm;
mod sealed_hidden;
mod sealed_hidden_engine;
mod sealed_listeners;
mod sealed_names;
mod sealed_round_trips;
mod sealed_sockets;
mod sockets;
mod streams;
