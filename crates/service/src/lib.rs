//! What the provenance verifier and the name server have in common when they run: sockets that answer messages, over UDP
//! and TCP at the same addresses, and files of keys that are their owner's only. No protocol is known here.
#![forbid(unsafe_code)]

mod connections;
pub mod key_file;
mod sockets;
mod stream;

pub use key_file::KeyFileError;
pub use sockets::{Messages, Sockets};
pub use stream::StreamLimits;

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use std::io;
use zeroize::Zeroizing;

/// A generator fit for keys, from the operating system's random source.
///
/// # Errors
/// When that fails.
pub fn secure_rng() -> io::Result<ChaCha20Rng> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(io::Error::other)?;
    Ok(ChaCha20Rng::from_seed(*seed))
}
