//! Settings and secrets from the operating system's random source, and its clocks.

use crate::time::Time;
use crate::{credential, shared, wire};
use firstflight_stack::Config;
use std::io;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// Default settings for `addresses`, with a secret from the operating system's random source.
///
/// # Errors
/// When the random source fails.
///
/// ```
/// let mut config = firstflight::config(vec!["10.0.0.1".parse().unwrap()])?;
/// config.mtu = 1280;
/// # std::io::Result::Ok(())
/// ```
pub fn config(addresses: Vec<IpAddr>) -> io::Result<Config> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    Ok(Config::new(addresses, secret))
}

/// The clock of certificates. It is monotonic and also runs while the machine sleeps (`CLOCK_BOOTTIME`), so that a
/// certificate ages during that time too. Use it for [`ClientCertificate::new`](credential::asap::ClientCertificate).
///
/// # Errors
/// When the kernel does not have this clock.
pub fn certificate_clock() -> io::Result<wire::Instant> {
    Time::system().certificate_clock()
}

/// The system's wall clock, milliseconds since 1970-01-01 00:00 UTC; 0 if it shows an earlier time.
#[must_use]
pub fn unix_ms() -> u64 {
    shared::wall_clock(wire::Instant::ZERO).unix_ms
}

/// Fills `bytes` from the operating system's random source.
///
/// # Errors
/// When the random source fails.
pub fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(io::Error::other)
}

/// A fresh key of a replay guard from the operating system's random source.
///
/// # Errors
/// When the random source fails.
pub fn random_guard_key() -> io::Result<credential::GuardKey> {
    let mut key = Zeroizing::new([0; 16]);
    random_bytes(&mut *key)?;
    Ok(credential::GuardKey::from_bytes(*key))
}

/// A fresh cookie key from the operating system's random source.
///
/// # Errors
/// When the random source fails.
pub fn random_key() -> io::Result<credential::CookieKey> {
    let mut key = [0; 16];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    Ok(credential::CookieKey::from_bytes(key))
}

/// A fresh farm secret of 32 bytes from the operating system's random source.
///
/// # Errors
/// When the random source fails. When `id` is not valid (see [`credential::FarmSecret`]), the kind is
/// [`io::ErrorKind::InvalidInput`]; the caller is at fault.
pub fn random_secret(id: &str) -> io::Result<credential::FarmSecret> {
    let mut bytes = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *bytes).map_err(io::Error::other)?;
    credential::FarmSecret::new(id, &*bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}
