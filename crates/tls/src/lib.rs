//! TLS 1.3 whose ClientHello and early data ride in the first flight, for the streams of `firstflight` and any other
//! stream. Built on rustls with the provider aws-lc-rs, which has the hybrid key exchange X25519MLKEM768.
//!
//! | contact | first flight | first byte of the response after |
//! |---|---|---|
//! | first contact | ClientHello | 2 round trips (TCP and TLS without first flights: 3) |
//! | with a session ticket | ClientHello and early data, in one write | 1 |
//! | first contact, the server's seal key is known | ClientHello and request, sealed ([`SealClient`], [`SealServer`]) | 1 |
//!
//! [`Connector`] is the client's end, [`Acceptor`] the server's. Both make a [`TlsStream`].
//!
//! Why not another binding of rustls to tokio: such bindings write ClientHello, ChangeCipherSpec and early data one by one, and only
//! the first write rides in a SYN; and a server of theirs waits for the client's Finished before it answers.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use firstflight::FirstFlight;
//! use firstflight_tls::{Acceptor, Connector, rustls};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # let made = rcgen::generate_simple_self_signed(["www.example.com".to_owned()])?;
//! # let (certificate, key) = (made.cert.der().clone(), made.signing_key.serialize_der());
//! let mut roots = rustls::RootCertStore::empty();
//! roots.add(certificate.clone())?;
//! let connector = Connector::builder().roots(roots).build()?;
//! let acceptor = Acceptor::builder().certificate(vec![certificate], key.try_into()?).build()?;
//!
//! let ping = FirstFlight::safely_replayable(b"ping");
//! // The first visit gets tickets, the second one sends its request as early data.
//! for early in [0, 4] {
//!     let (ours, theirs) = tokio::io::duplex(16 * 1024);
//!     let acceptor = acceptor.clone();
//!     let serving = tokio::spawn(async move {
//!         let mut stream = acceptor.accept_over(theirs).await?;
//!         let mut request = [0; 4];
//!         stream.read_exact(&mut request).await?;
//!         stream.write_all(b"pong").await?;
//!         stream.shutdown().await?;
//!         std::io::Result::Ok(stream.early_bytes())
//!     });
//!     let mut stream = connector.connect_over(ours, &"www.example.com:443".parse()?, ping).await?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer).await?;
//!     assert_eq!(answer, "pong");
//!     assert_eq!(serving.await??, early);
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod acceptor;
mod connector;
mod error;
mod farm;
mod groups;
mod hello;
mod lazy;
mod machine;
mod maybe_tls;
#[cfg(feature = "metrics")]
pub mod metrics;
mod pem;
mod sealed;
mod store;
mod stream;
mod summary;
#[cfg(feature = "test-certificate")]
mod test_certificate;
mod tickets;

pub use acceptor::{
    Acceptor, AcceptorBuilder, ClientCertificates, NewCertificates, ServedCertificate, ServerCertificates,
    Tickets,
};
pub use connector::{Connector, ConnectorBuilder, Departure};
pub use error::{AcceptError, ConfigError, ConnectError, HiddenError};
pub use farm::FarmTickets;
pub use firstflight_seal as seal;
pub use groups::Hybrid;
pub use hello::Hello;
pub use lazy::LazyTlsStream;
pub use maybe_tls::MaybeTlsStream;
pub use rustls;
#[cfg(feature = "dns")]
pub use sealed::DnsKeys;
pub use sealed::{Arrival, FollowedSeals, SealFileError, SealFiles, SealFollower, SealSettings, ServedName};
pub use sealed::{Rejection, SealClient, SealReport, SealServer, SealServerBuilder, SealedInfo, ServedSeal};
pub use store::{MemorySessions, SESSION_ID, SessionId, SessionStore, StoreFuture};
pub use stream::{Confirmation, Early, Handshake, TlsStream};
pub use summary::Summary;
#[cfg(feature = "test-certificate")]
pub use test_certificate::{TestCertificate, TestCertificateError};

/// The name of HTTP/2 in ALPN (RFC 9113 §3.1).
pub const H2: &[u8] = b"h2";
/// The name of HTTP/1.1 in ALPN (RFC 7301 §6).
pub const HTTP_1_1: &[u8] = b"http/1.1";
