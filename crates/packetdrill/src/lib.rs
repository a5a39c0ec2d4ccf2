//! The stack behind packetdrill's interface for user-space stacks (`--so_filename`).
//!
//! packetdrill says which packets come in and which system calls an application makes, and compares what goes out,
//! and when. It asks this library for the time, so that no second of a script is waited for: `world` has a clock of
//! its own, which moves when packetdrill sleeps or waits for a packet. How to run it: `docs/conformance.md`.
//!
//! `abi` is all that C sees. Behind it system calls are methods of `world::World` (`calls`, `transfer`,
//! `options`, `readiness`), each one attempt that never blocks; `world::block` makes blocking ones of them.

mod abi;
mod address;
mod buffer;
mod calls;
mod options;
mod queue;
mod readiness;
mod settings;
mod socket;
mod sysctl;
mod tcp_info;
mod transfer;
mod world;
