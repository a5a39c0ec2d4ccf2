//! Sealed first flights (`docs/spec/sealed.md`): the request is encrypted at the first contact, and answered after one
//! round trip, inside TLS. The protocol is in `firstflight-seal`; this joins it with rustls.

mod client;
#[cfg(feature = "dns")]
mod dns_keys;
mod files;
mod key_sets;
mod report;
mod server;

pub use client::SealClient;
pub(crate) use client::{Considered, Ended, Looked, Ordinary, SealedHello, SealedRequest, finish_over};
#[cfg(feature = "dns")]
pub use dns_keys::DnsKeys;
pub use files::{FollowedSeals, SealFileError, SealFiles, SealFollower, SealSettings, ServedName};
pub use report::{Rejection, SealReport, ServedSeal};
pub(crate) use server::Decline;
pub use server::{Arrival, SealServer, SealServerBuilder};

use firstflight_seal::{PROTOCOL_PREFIX, Why};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::io;
use zeroize::Zeroizing;

/// About a connection whose request came sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SealedInfo {
    /// The client says that the request may be executed more than once.
    pub replayable: bool,
    /// The request ran before the client's Finished was verified. Otherwise [`Acceptor::accept`](crate::Acceptor::accept)
    /// has waited for it.
    pub ran_early: bool,
    /// The flight came in the first flight of the transport. True, too, if that is not known ([`Acceptor::accept_over`]).
    ///
    /// [`Acceptor::accept_over`]: crate::Acceptor::accept_over
    pub in_first_flight: bool,
    /// Why, or why not. For logs: it must not be visible on the network.
    pub why: Why,
}

/// A generator that the operating system has seeded.
pub(crate) fn rng() -> io::Result<ChaCha20Rng> {
    let mut seed = Zeroizing::new([0; 32]);
    firstflight::random_bytes(&mut *seed)?;
    Ok(ChaCha20Rng::from_seed(*seed))
}

/// The application's protocol in an ALPN name.
pub(crate) fn protocol(name: &[u8]) -> &[u8] {
    name.strip_prefix(&PROTOCOL_PREFIX).unwrap_or(name)
}
