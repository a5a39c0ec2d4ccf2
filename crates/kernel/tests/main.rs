//! The tests of the kernel's sockets, in one program. Each module is about one subject. The module `namespace` makes a
//! network namespace for each test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[cfg(target_os = "linux")]
mod namespace;

#[cfg(target_os = "linux")]
mod descriptors;
mod listener_attacks;
mod sockets;
