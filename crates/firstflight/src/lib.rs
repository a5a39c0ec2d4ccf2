//! Async sockets that open network connections in one round trip.
//!
//! An [`Endpoint`] runs a TCP engine in user space on a [`link::Link`]: a TUN device, UDP sockets, or an emulated
//! path in memory. Its connections can carry data in the SYN (TCP Fast Open, RFC 7413). [`Stream::outcome`] says
//! whether the server accepted that data, and if not, why.
//!
//! ```
//! # #[tokio::main(flavor = "multi_thread", worker_threads = 1)]
//! # async fn main() -> std::io::Result<()> {
//! use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig, credential, link};
//! use std::sync::Arc;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! // Two endpoints on an emulated path.
//! let path = link::PathConfig::default();
//! let (a, b) = link::real_time_pair(path.clone(), path, 1).map_err(std::io::Error::other)?;
//! let client = Endpoint::new(firstflight::config(vec!["10.0.0.1".parse().unwrap()])?, a);
//! let server = Endpoint::new(firstflight::config(vec!["10.0.0.2".parse().unwrap()])?, b);
//!
//! // The server grants cookies and accepts data in SYNs that carry one.
//! let keys = credential::KeyRing::new(credential::Scheme::Linux, firstflight::random_key()?);
//! let pending = Arc::new(credential::PendingLimit::new(256));
//! let mut listen = ListenConfig::new("10.0.0.2:80".parse().unwrap());
//! listen.fast_open = Some(credential::FastOpenPolicy::new(Arc::new(keys), pending));
//! let listener = server.listen(listen).map_err(std::io::Error::other)?;
//! tokio::spawn(async move {
//!     while let Ok(mut stream) = listener.accept().await {
//!         let mut request = [0; 4];
//!         stream.read_exact(&mut request).await?;
//!         stream.write_all(b"pong").await?;
//!         stream.shutdown().await?;
//!     }
//!     std::io::Result::Ok(())
//! });
//!
//! // The first visit gets a cookie. The second visit sends its request in the SYN. If the network duplicates that
//! // SYN, the server may execute the request twice, so the caller declares that this is harmless.
//! let ping = FirstFlight::safely_replayable(b"ping");
//! let fast = ConnectConfig::default().fast_open(true);
//! for expected in ["handshake", "accepted"] {
//!     let mut stream = client.connect("10.0.0.2:80".parse().unwrap(), ping, &fast).await?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer).await?;
//!     assert_eq!(answer, "pong");
//!     assert_eq!(stream.outcome().as_str(), expected);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

/// Compiles README.md's example.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod cache;
#[cfg(feature = "dns")]
pub mod carriage;
#[cfg(feature = "kernel")]
mod client;
mod driver;
mod endpoint;
mod first_flight;
mod history;
mod jobs;
#[cfg(feature = "kernel")]
pub mod kernel;
pub mod keys;
mod lazy;
mod lingering;
mod listener;
#[cfg(feature = "kernel")]
mod lookup;
#[cfg(feature = "metrics")]
pub mod metrics;
mod network;
mod post;
mod race;
#[cfg(feature = "asap")]
pub mod record;
mod renewed;
pub mod serial_file;
#[cfg(feature = "kernel")]
mod server;
mod shared;
mod store;
mod stream;
mod time;
pub mod trust;
mod workers;

pub use cache::{Avoided, CacheError, CachedCookie, CachedPathMss, CachedRtt, CachedServer, CredentialCache};
#[cfg(feature = "kernel")]
pub use client::race as racer;
#[cfg(feature = "kernel")]
pub use client::{
    Authority, BadAuthority, Client, ClientBuilder, ClientError, ConnectTimes, Found, Host, Outlook,
};
pub use endpoint::Endpoint;
pub use endpoint::shards::Sharding;
pub use first_flight::FirstFlight;
#[cfg(feature = "kernel")]
pub use first_flight::{Carriage, MakeFlight};
pub use firstflight_credential as credential;
pub use firstflight_link as link;
pub use firstflight_stack::{
    CarrierConfig, Certified, CloseReason, Config, ConnectConfig, ConnectError, ConnectionInfo, Counters,
    FragmentLimits, Gauges, Limits, ListenConfig, ListenError, Outcomes, RelayedFlight, ResponsePolicy,
    StateName,
};
pub use firstflight_tcp as tcp;
#[cfg(feature = "asap")]
pub use firstflight_verifier as verifier;
pub use firstflight_wire as wire;
pub use lazy::{LazyStream, ReplaySafety};
pub use lingering::Lingering;
pub use listener::Listener;
#[cfg(feature = "kernel")]
pub use lookup::{Lookups, Resolve};
pub use network::network_id;
pub use race::{ConnectAnyConfig, ConnectAnyError, FailedAttempt};
#[cfg(feature = "kernel")]
pub use server::{Server, ServerBuilder};
pub use store::{Answer, MemoryStore, SharedStore, StoreCounters, StoreError};
pub use stream::{Race, Stream, Way};
pub use time::{Time, block_on_virtual};
pub use workers::Workers;

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
