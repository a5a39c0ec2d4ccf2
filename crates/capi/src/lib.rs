//! `libfirstflight`: first flights of the kernel's TCP for programs in C and C++.
//!
//! `include/firstflight.h` is the documentation: it says for each function what its arguments must be and what it returns.
//! What is here keeps to that. Two layers are built on the kernel's TCP: functions for any descriptor (`descriptor`), which
//! keep no state, and a client that remembers servers, in the program's own event loop (`client`). They start no thread. A third one
//! (`runtime`, a feature) has one thread, for certificates, TCP in UDP, names and servers. No function calls back from a thread that
//! is not the caller's. No panic leaves the library: [`boundary`].
#![cfg(unix)]
#![allow(unsafe_code, reason = "an interface to C")]
#![allow(non_camel_case_types, reason = "names of C")]

pub mod boundary;
pub mod client;
pub mod descriptor;
pub mod log;
pub mod names;
pub mod outcome;
mod reasons;
#[cfg(feature = "runtime")]
pub mod runtime;
