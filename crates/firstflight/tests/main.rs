//! The tests of the library, in one program. Each module is about one subject. The modules without tests are paths,
//! servers and namespaces for the others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod certified;
#[cfg(feature = "dns")]
mod limits;
#[allow(dead_code, reason = "the tests of firstflight-kernel use all of it")]
#[cfg(target_os = "linux")]
#[path = "../../kernel/tests/namespace/mod.rs"]
mod namespace;
mod queues;
#[cfg(feature = "asap")]
#[cfg(target_os = "linux")]
mod site;

mod as_tokio;
mod by_engine;
mod cache;
#[cfg(feature = "dns")]
mod carriage;
#[cfg(feature = "dns")]
mod carriage_limits;
#[cfg(feature = "asap")]
mod client;
#[cfg(feature = "asap")]
mod client_attacks;
#[cfg(feature = "asap")]
mod client_attacks2;
mod closing;
#[cfg(target_os = "linux")]
mod connecting;
mod kernel;
mod keys;
#[cfg(feature = "metrics")]
mod metrics;
mod outcomes;
mod race;
mod readme;
mod relayed;
mod server_engines;
mod shards;
mod shards_sockets;
mod store;
mod streams;
mod udp;
