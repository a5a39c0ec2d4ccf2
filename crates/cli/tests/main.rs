//! The tests of the command, in one program. Each module is about one subject. The modules without tests run it, and
//! make directories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod dir;
mod program;
mod server;

mod asap;
mod by_system;
mod cli;
mod config;
mod daemon;
mod dns;
mod get;
mod keys;
mod messages;
mod metrics_page;
mod relay;
mod seal;
mod timeline;
mod verifier;
mod version;
mod via_dns;
