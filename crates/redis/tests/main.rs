//! The tests of the store in Redis, in one program. Each module is about one subject. The modules without tests start
//! the servers and ask them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod questions;
mod server;

mod attacks;
mod cluster;
mod conformance;
mod failover;
mod fitness;
mod members;
mod reconnecting;
mod redis;
mod strike_register;
