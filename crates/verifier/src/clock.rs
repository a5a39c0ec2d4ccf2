//! The clocks of the operating system.

use firstflight_wire::{Clock, Instant};
use nix::time::{ClockId, clock_gettime};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The clock that is monotonic and also runs while the machine sleeps.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
/// The same on systems whose monotonic clock runs while the machine sleeps, as macOS' does.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// The monotonic clock that runs while the machine sleeps (on Linux `CLOCK_BOOTTIME`): a certificate's time is
/// counted on it.
///
/// # Errors
/// When the kernel does not have it.
pub fn boot_clock() -> io::Result<Instant> {
    let now = Duration::from(clock_gettime(BOOT_CLOCK)?);
    Ok(Instant::ZERO + now)
}

/// Both clocks. The wall clock is assumed to be right within a second.
pub(crate) fn clocks() -> io::Result<Clock> {
    let mono = boot_clock()?;
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Clock { mono, unix_ms: unix.as_millis() as u64, uncertainty: Duration::from_secs(1) })
}
