//! The stack behind packetdrill's interface for user-space stacks (`--so_filename`).
//!
//! packetdrill injects packets and makes an application's system calls, and compares the packets that are sent, with
//! their times. It gets the time from this library, so that a script does not really wait: `world` has its own clock,
//! which advances when packetdrill sleeps or waits for a packet. How to run it: `docs/conformance.md`.
//!
//! C sees only `abi`. Behind it, system calls are methods of `world::World` (`calls`, `transfer`, `options`,
//! `readiness`). Each is one attempt that never blocks; `world::block` turns them into blocking calls.

mod abi;
mod address;
mod buffer;
mod calls;
mod errors;
mod options;
mod queue;
mod readiness;
mod settings;
mod socket;
mod sysctl;
mod tcp_info;
mod transfer;
mod world;
