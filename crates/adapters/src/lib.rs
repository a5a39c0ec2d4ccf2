//! Connections in one round trip for hyper, axum, tonic, tower and hickory.
//!
//! [`firstflight::Client`] and [`firstflight::Server`] open connections. The types here give them to the libraries of the
//! HTTP ecosystem, and to the resolver of hickory, each in its own convention and behind its own feature. None is on by
//! default.
//!
//! | library | feature | type | example |
//! |---|---|---|---|
//! | hyper-util's client | `hyper-util` | `Connector` | `hyper_client` |
//! | the same, and https | `tls` | `HttpsConnector` | `https_client` |
//! | axum | `axum` | [`Incoming`] is an `axum::serve::Listener`, [`Peer`] its `ConnectInfo` | `axum_server` |
//! | the same, with TLS | `axum`, `tls` | `TlsIncoming`, in the same way | `axum_tls` |
//! | tonic | `tonic` | [`Incoming`] for the server, `Connector` or `HttpsConnector` for the `Endpoint`; [`Peer`] is an extension | `tonic_both` |
//! | the same, with TLS | `tonic`, `tls` | `TlsIncoming` for the server, `HttpsConnector` for the `Endpoint` | `tonic_tls` |
//! | tower | `tower` | `TooEarlyLayer` for servers, `RetryTooEarlyLayer` for clients (RFC 8470) | `too_early` |
//! | hickory-resolver | `hickory` | `HickoryProvider`, a `RuntimeProvider` | `hickory_resolver` |
//! | futures | `stream` | [`Incoming`] is a `Stream` | `incoming` |
//! | reqwest | none | not possible, see below | |
//!
//! # What may run twice
//! A request in a SYN, or in early data of TLS, may be a copy that the network made. **The client** decides for each request: one with a safe method
//! (GET) rides in the SYN, and a POST of the same client waits for the handshake
//! ([`ReplaySafety::ByMethod`](firstflight::ReplaySafety)). **The server** cannot rely on its clients: `TooEarlyLayer`
//! keeps a request that is not safe until the handshake is complete, or answers 425. A handler can also ask for itself:
//! [`Peer::is_early`], [`Peer::confirmed`].
//!
//! # gRPC
//! All of its requests are POST, so they wait for the handshake. If the methods of a service may run twice, say so with
//! `Connector::replay_safety`. Use `Endpoint::connect_with_connector_lazy`: without a request, the connect of
//! `connect_with_connector` carries only the preface of HTTP/2.
//!
//! With `HttpsConnector`, tonic's own features of TLS must be off: with one of them, tonic puts its TLS around an endpoint
//! whose URI has the scheme https, or refuses it.
//!
//! # reqwest
//! It does not let a program replace its transport (reqwest 0.13.5). `ClientBuilder::connector_layer` puts a layer around
//! its own connector. The layer's service must return reqwest's `Conn`, which only that connector can make, and it gets an
//! `Unnameable` whose URI it cannot read. Use hyper-util's client with `Connector` or `HttpsConnector` instead.
#![forbid(unsafe_code)]

#[cfg(feature = "axum")]
mod axum;
#[cfg(feature = "hyper-util")]
mod connector;
#[cfg(feature = "hickory")]
mod hickory;
#[cfg(feature = "tls")]
mod https;
mod incoming;
#[cfg(feature = "tower")]
mod retry;
#[cfg(feature = "tls")]
mod tls_incoming;
#[cfg(feature = "tonic")]
mod tonic;
#[cfg(feature = "tower")]
mod too_early;
mod watched;

#[cfg(feature = "hyper-util")]
pub use connector::{ClientStream, Connector, ConnectorError, FirstFlightInfo};
#[cfg(feature = "hickory")]
pub use hickory::{HickoryProvider, HickoryStream};
#[cfg(feature = "tls")]
pub use https::{HttpsConnector, HttpsStream};
pub use incoming::{Accept, Incoming, Peer, ServerStream};
#[cfg(feature = "tower")]
pub use retry::{RetryTooEarly, RetryTooEarlyLayer};
#[cfg(feature = "tls")]
pub use tls_incoming::{TlsIncoming, TlsServerStream};
#[cfg(feature = "tower")]
pub use too_early::{TooEarly, TooEarlyLayer};
