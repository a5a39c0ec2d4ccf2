//! The tests of the library, in one program. Each module is about one subject. The modules without tests are paths,
//! servers and namespaces for the others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../src/tests/certified.rs"]
mod certified;
#[allow(dead_code, reason = "the tests of firstflight-kernel use all of it")]
#[cfg(target_os = "linux")]
#[path = "../../kernel/tests/namespace/mod.rs"]
mod namespace;
mod queues;

mod as_tokio;
#[cfg(feature = "asap")]
mod asap;
mod by_engine;
mod cache;
mod closing;
#[cfg(target_os = "linux")]
mod connecting;
mod corpus;
mod flood;
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
