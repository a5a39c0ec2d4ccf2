//! The parts that the services of the provenance verifier and of the name server share: sockets that answer
//! messages, over UDP and TCP at the same addresses, and the limits of their TCP connections. This crate knows no
//! protocol.
#![forbid(unsafe_code)]

mod connections;
mod sockets;
mod stream;

pub use sockets::{Messages, Sockets};
pub use stream::StreamLimits;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use std::io;
use zeroize::Zeroizing;

/// A cryptographic random generator, seeded from the operating system's random source.
///
/// # Errors
/// When that fails.
pub fn secure_rng() -> io::Result<ChaCha20Rng> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(io::Error::other)?;
    Ok(ChaCha20Rng::from_seed(*seed))
}
