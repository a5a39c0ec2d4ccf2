//! The clocks and the random source of the operating system.

use firstflight_wire::{Clock, Instant};
use nix::time::{ClockId, clock_gettime};
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// The monotonic clock that runs while the machine sleeps (Linux, `CLOCK_BOOTTIME`): a certificate's time is
/// counted on it.
///
/// # Errors
/// When the kernel does not have it.
pub fn boot_clock() -> io::Result<Instant> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    Ok(Instant::ZERO + now)
}

/// Both clocks; the wall clock is taken to be right within a second.
pub(crate) fn clocks() -> io::Result<Clock> {
    let mono = boot_clock()?;
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Clock { mono, unix_ms: unix.as_millis() as u64, uncertainty: Duration::from_secs(1) })
}

/// A generator fit for keys, from the operating system's random source.
///
/// # Errors
/// When that fails.
pub fn secure_rng() -> io::Result<ChaCha20Rng> {
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(io::Error::other)?;
    Ok(ChaCha20Rng::from_seed(*seed))
}
