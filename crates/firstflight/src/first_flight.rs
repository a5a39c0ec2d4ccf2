//! The first data of a stream, and whether it may be executed twice.

mod make_flight;

pub(crate) use make_flight::Flights;
pub use make_flight::{AttemptInfo, MakeFlight};

use std::fmt;

/// The first data of a stream, and whether the server may execute it twice.
///
/// A Fast Open cookie proves the client's address. It does not prove that a SYN is new. If the network duplicates a
/// SYN with data, the server may execute that data a second time (RFC 7413 §6.1, the Fast Open paper's §3.5). So the
/// caller declares what its data is. Without a certificate, a SYN carries only data that may be executed twice.
///
/// ```
/// use firstflight::FirstFlight;
///
/// // A safe request: executing it twice changes nothing.
/// let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
/// // An order: it waits for the handshake.
/// let order = FirstFlight::at_most_once(b"POST /orders HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
/// assert!(request.is_replayable() && !order.is_replayable());
/// ```
#[derive(Clone, Copy, Default)]
pub struct FirstFlight<'a> {
    data: &'a [u8],
    replayable: bool,
    beginning: usize,
}

impl<'a> FirstFlight<'a> {
    /// Data that the server may execute twice without harm, such as a GET: with Fast Open and a known cookie
    /// it rides in the SYN.
    #[must_use]
    pub const fn safely_replayable(data: &'a [u8]) -> Self {
        Self { data, replayable: true, beginning: 0 }
    }

    /// Data that must not be executed twice. It is sent once, after the handshake is complete, because a plain cookie
    /// does not detect a copied SYN. It rides in the SYN only with a certificate, and only if the caller says that
    /// the server remembers requests ([`Certified::once`](crate::Certified::once)).
    #[must_use]
    pub const fn at_most_once(data: &'a [u8]) -> Self {
        Self { data, replayable: false, beginning: 0 }
    }

    /// No data, because the server speaks first or the data is not known yet.
    #[must_use]
    pub const fn empty() -> Self {
        Self::at_most_once(&[])
    }

    /// The first `len` bytes are enough for the server to begin with, as the first line of a request of HTTP is. Where all of
    /// the data does not fit into a lookup ([`InsideLookups`](crate::InsideLookups)), they travel there, and the rest
    /// follows the direct copy's SYN. The server may prepare, and must not execute anything before it has the rest.
    ///
    /// The answer comes as soon as if all of it had gone directly, and sooner by what the server has prepared. Without
    /// a server that prepares it is of no use.
    #[must_use]
    pub const fn beginning(self, len: usize) -> Self {
        Self { beginning: len, ..self }
    }

    /// See [`FirstFlight::beginning`]. 0 if the application has not said it.
    pub(crate) const fn beginning_len(&self) -> usize {
        self.beginning
    }

    /// The data.
    #[must_use]
    pub const fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Whether it may be executed twice.
    #[must_use]
    pub const fn is_replayable(&self) -> bool {
        self.replayable
    }
}

/// Leaves out the data, which may be a secret.
impl fmt::Debug for FirstFlight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstFlight")
            .field("bytes", &self.data.len())
            .field("replayable", &self.replayable)
            .field("beginning", &self.beginning_len())
            .finish()
    }
}
