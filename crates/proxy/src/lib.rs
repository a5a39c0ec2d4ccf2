//! A proxy at the client: connections in one round trip for programs that are not changed.
//!
//! A [`Proxy`] speaks HTTP (CONNECT, and requests with an absolute URI) and SOCKS5 on the loopback address, and connects
//! by a [`firstflight::Client`]. The first bytes of a program, a ClientHello as a rule, then leave in the first packet.
//!
//! A program sends these bytes only when the proxy has said yes. The proxy says so **early**, before it is connected, only
//! if the name resolved, a credential is at hand, and the last connect to this server succeeded. Otherwise it connects
//! first, and answers truthfully. If the connect fails after an early yes, the client's connection is reset.
//!
//! `docs/guide/proxy.md` describes the command `firstflight proxy`.
#![forbid(unsafe_code)]

mod body;
mod client_end;
mod conn;
mod connector;
mod event;
mod failure;
mod first;
mod forward;
mod headers;
mod outcomes;
mod pac;
mod pages;
mod policy;
mod pool;
mod proxy;
mod reach;
mod relay;
mod settings;
mod shared;
/// Public for the fuzz targets only.
#[doc(hidden)]
pub mod socks;
mod tunnel;

pub use event::{Event, Protocol};
pub use failure::Failure;
pub use outcomes::{Contact, Tally, Total};
pub use policy::Forbidden;
pub use proxy::{BindError, Proxy, ProxyRules};
pub use settings::{ADDRESS, EarlyData, Limits, ProxyBuilder};
