//! Async sockets that open network connections in one round trip.
//!
//! A [`Client`] sends its request in the first packet where the server takes that: with TCP Fast Open (RFC 7413) on the kernel's
//! TCP, or with a certificate (ASAP) in UDP. A [`Server`] takes such requests. Neither needs privileges. [`Stream::outcome`] says
//! whether the first flight was accepted, and if not, why.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstflight::{Client, FirstFlight, Server};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let server = Server::bind("127.0.0.1:0").await?;
//! let at = server.local_addrs()[0];
//! tokio::spawn(async move {
//!     while let Ok(mut stream) = server.accept().await {
//!         let mut request = [0; 4];
//!         stream.read_exact(&mut request).await?;
//!         stream.write_all(b"pong").await?;
//!         stream.shutdown().await?;
//!     }
//!     std::io::Result::Ok(())
//! });
//!
//! // If the network duplicates a SYN, the server may execute its request twice, so the caller declares that this is harmless.
//! let ping = FirstFlight::safely_replayable(b"ping");
//! let client = Client::new();
//! for _ in 0..2 {
//!     let mut stream = client.connect(at, ping).await?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer).await?;
//!     assert_eq!(answer, "pong");
//!     // With `sysctl net.ipv4.tcp_fastopen=3` the second visit prints "accepted".
//!     println!("by way of {}: {}", stream.way().as_str(), stream.outcome().as_str());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! | feature | what it adds |
//! |---|---|
//! | `client` | nothing: [`Client`] on the kernel's TCP is always there |
//! | `cache` | the client's memory in a file: [`ClientBuilder::cache`] |
//! | `engine` | a TCP of its own in user space: [`Endpoint`] |
//! | `server` | [`Server`] |
//! | `trust`, `activation` | files of trusted verifiers; sockets that a service manager passes |
//! | `tun`, `udp`, `xdp`, `pcap` | links of engines, and captures |
//! | `asap` | certificates, and requests inside lookups: `ClientBuilder::verifier`, `ServerBuilder::verifier`, `ClientBuilder::inside_lookups`, `ServerBuilder::from_fronts` |
//! | `metrics` | counters for the recorder of the crate `metrics` |
//!
//! `kernel` (all up to `activation`), `tun`, `udp`, `xdp` and `pcap` are on by default.
//!
//! # An engine of one's own
//!
//! An [`Endpoint`] runs a TCP engine in user space on a [`link::Link`]: a TUN device, a network card, UDP sockets, or an emulated
//! path in memory. A client connects by it with [`ClientBuilder::engine`]; it has calls of its own, too.
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

// Files of tests are also parts of programs outside.
#[cfg(test)]
extern crate self as firstflight;

/// Compiles the examples of the README.md beside it; neither is run: the client asks www.example.com, the server does not end.
#[cfg(all(doctest, feature = "kernel"))]
#[doc = include_str!("../README.md")]
struct Readme;

mod attempts;
mod causes;
mod client;
mod clock;
#[cfg(feature = "asap")]
pub mod dns_path;
#[cfg(not(feature = "asap"))]
#[path = "no_dns_path.rs"]
mod dns_path;
#[cfg(feature = "engine")]
mod engine;
mod first_flight;
mod forward;
pub mod kernel;
mod lazy;
mod lingering;
mod lookup;
#[cfg_attr(not(feature = "asap"), allow(dead_code, reason = "of one of the holders"))]
mod memory;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(all(feature = "engine", not(feature = "metrics")))]
#[cfg_attr(not(feature = "server"), allow(dead_code, reason = "of servers"))]
#[path = "no_metrics.rs"]
mod metrics;
mod network;
mod parts;
#[cfg(feature = "asap")]
pub mod record;
#[cfg(feature = "server")]
mod server;
mod stream;
#[cfg(all(test, feature = "asap"))]
mod tests;

use memory::file as cache;

pub use attempts::{ConnectAnyError, FailedAttempt};
pub use cache::CacheError;
#[cfg(feature = "cache")]
pub use cache::{
    Avoided, CacheContent, CachedClosedPort, CachedCookie, CachedLostRace, CachedPathMss, CachedRecord,
    CachedResolver, CachedRtt, CachedServer, CachedUdpPause, CachedUnreachable, CredentialCache,
};
pub use causes::causes;
pub use client::race as racer;
pub use client::{
    Authority, BadAuthority, Client, ClientBuilder, ClientError, Connect, ConnectMade, FoundAddresses, Host,
    ServerKnowledge, ServerPlace, ToAuthority,
};
#[cfg(feature = "xdp")]
pub use engine::card::{Card, CardError, LateCard};
#[cfg(feature = "engine")]
use engine::{
    driver, endpoint, jobs, listener, mailboxes, own_verifier, random, renewed, shared, store, time, workers,
};
pub use first_flight::FirstFlight;
pub use first_flight::{AttemptInfo, MakeFlight};
pub use lazy::{LazyStream, ReplaySafety};
pub use lingering::Lingering;
pub use lookup::{Lookups, Resolve};
pub use network::network_id;
pub use parts::{credential, wire};
#[cfg(feature = "server")]
pub use server::{Server, ServerBuilder, ToLocalAddrs};
pub use stream::{
    ConnectTimes, KernelStream, OwnedReadHalf, OwnedWriteHalf, Race, ReuniteError, Stream, Way,
};
#[cfg(feature = "asap")]
pub use {
    client::asap::{FoundVerifiers, InsideLookups, NamedVerifier, Uncertified},
    engine::own_verifier::{OwnVerifier, OwnVerifierError},
    parts::verifier,
    server::fronts::{RelayTarget, RelayTargetError},
};
#[cfg(feature = "engine")]
pub use {
    endpoint::Endpoint,
    endpoint::shards::Sharding,
    engine::{keys, serial_file, trust},
    firstflight_stack::{
        Certified, CloseReason, Config, ConnectConfig, ConnectError, ConnectionInfo, Counters,
        EncapsulationConfig, FragmentLimits, Gauges, Limits, ListenConfig, ListenError, Outcomes,
        RelayedFlight, ResponsePolicy, StateName, UnknownResponsePolicy,
    },
    listener::Listener,
    parts::{link, tcp},
    random::{certificate_clock, config, random_bytes, random_guard_key, random_key, random_secret, unix_ms},
    store::{MemoryStore, SharedStore, StoreAnswer, StoreCounters, StoreError},
    time::{Time, block_on_virtual},
    workers::Workers,
};
