//! The tests of the proxy, in one program. Each module is about one subject. The modules without tests are the networks
//! of the others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "the tests of firstflight-kernel use all of it")]
#[cfg(target_os = "linux")]
#[path = "../../kernel/tests/namespace/mod.rs"]
mod namespace;
#[cfg(target_os = "linux")]
#[path = "../../firstflight/tests/site/mod.rs"]
mod site;
#[cfg(target_os = "linux")]
mod world;

mod certified;
mod corpus;
mod forwarding;
mod heads;
mod leaving;
mod requests;
mod tunnels;
