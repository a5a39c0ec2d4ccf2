//! The beginning of a stream, and what the caller says of it.

use std::fmt;

/// The beginning of a stream, and whether the server may execute it twice.
///
/// A Fast Open cookie proves the client's address, not that a SYN is new: when the network makes a copy of a
/// SYN with data, the server may execute that data a second time (RFC 7413 §6.1, the Fast Open paper's
/// §3.5). So the caller says what its data is, and only data that may be executed twice rides in a SYN.
///
/// ```
/// use firstflight::FirstFlight;
///
/// // A safe request: executed twice, it changes nothing.
/// let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
/// // An order: it waits for the handshake.
/// let order = FirstFlight::at_most_once(b"POST /orders HTTP/1.0\r\nContent-Length: 0\r\n\r\n");
/// assert!(request.is_replayable() && !order.is_replayable());
/// ```
#[derive(Clone, Copy, Default)]
pub struct FirstFlight<'a> {
    data: &'a [u8],
    replayable: bool,
}

impl<'a> FirstFlight<'a> {
    /// Data that the server may execute twice without harm, such as a GET: with Fast Open and a known cookie
    /// it rides in the SYN.
    #[must_use]
    pub const fn safely_replayable(data: &'a [u8]) -> Self {
        Self { data, replayable: true }
    }

    /// Data that must not be executed twice. It is sent when the handshake is complete, once: plain cookies
    /// cannot promise that for data in a SYN.
    #[must_use]
    pub const fn at_most_once(data: &'a [u8]) -> Self {
        Self { data, replayable: false }
    }

    /// No data: the server speaks first, or the data is not known yet.
    #[must_use]
    pub const fn empty() -> Self {
        Self::at_most_once(&[])
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

/// Without the data: it may be a secret.
impl fmt::Debug for FirstFlight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstFlight")
            .field("bytes", &self.data.len())
            .field("replayable", &self.replayable)
            .finish()
    }
}
