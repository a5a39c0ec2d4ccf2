//! The kernel's TCP with Fast Open: data in the SYN without root and without an engine of one's own, and what became of
//! that data.
//!
//! The kernel has the cookies and the SYNs. It lacks what this crate adds: an [`Outcome`] with its reason for every
//! connection ([`ConnectFacts`]), the namespace's settings in words ([`Setting`]), and the keys of a farm on a listener
//! ([`Listener::set_keys`]). Which servers get a first flight, and what happens when a path drops it, is decided by the
//! caller: the crate `firstflight` does.
//!
//! Everything here was written against Linux 6.18. On other systems [`connect`] is an ordinary connect, and the reason
//! is [`Reason::SystemDisabled`].
//!
//! ```
//! # async fn ask() -> std::io::Result<()> {
//! use firstflight_kernel::{Carry, connect};
//! let attempt = connect("192.0.2.1:80".parse().unwrap(), None, Carry::Data(b"GET / HTTP/1.0\r\n\r\n"))?;
//! let (stream, taken) = attempt.established().await?;
//! println!("{}", stream.outcome());
//! // Send the bytes from `taken` on, and read the response.
//! # Ok(())
//! # }
//! ```
//!
//! [`Outcome`]: firstflight_credential::Outcome
//! [`Reason::SystemDisabled`]: firstflight_credential::Reason::SystemDisabled
#![cfg_attr(
    not(feature = "server"),
    allow(dead_code, unused_imports, reason = "what listeners need of the system")
)]

mod clock;
mod connect;
mod cookie;
pub mod descriptor;
mod info;
mod interface;
#[cfg(feature = "server")]
mod listener;
mod quote;
mod setting;
#[cfg(unix)]
mod shortage;
mod stream;
#[cfg(feature = "server")]
mod syn;
mod sys;

pub use clock::SystemClock;
pub use connect::{Attempt, BegunConnect, Carry, begin, connect};
pub use cookie::has_cookie;
#[cfg(feature = "server")]
pub use info::Arrived;
pub use info::{ClientFail, ConnectFacts, TcpInfo};
pub use interface::interface;
#[cfg(feature = "server")]
pub use listener::{ListenConfig, Listener};
pub use quote::{Quoted, Trip, send_through};
pub use setting::Setting;
#[cfg(unix)]
pub use shortage::is_shortage;
pub use stream::Stream;
