//! Requests that arrived before the client's address was proved: "early data" (RFC 8470).

use crate::conn::Conn;
use crate::observed::Served;
use hyper::Method;
use std::io;

/// What the server does with a request that may change something and arrived in a SYN, which the network may have
/// copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum EarlyUnsafe {
    /// Answer 425 Too Early: the client asks again after its handshake
    Reject,
    /// Keep it until the client's ACK has arrived, with TLS its Finished
    Wait,
    /// Execute it at once
    Allow,
}

impl EarlyUnsafe {
    /// Whether a request with this method may be executed now; 425 is the answer if not (RFC 8470 §5.2).
    ///
    /// Data that can be read before the handshake is complete arrived in the SYN. When the handshake is complete, the
    /// SYN was not a stray copy, because its client has answered. With TLS the same holds for early data and the client's
    /// Finished.
    ///
    /// # Errors
    /// When the connection ends while the request waits.
    pub async fn admits(self, method: &Method, watch: &Served) -> io::Result<bool> {
        // Safe methods: RFC 9110 §9.2.1 has the same four as hyper.
        if method.is_safe() || !watch.conn(Conn::is_early) {
            return Ok(true);
        }
        match self {
            Self::Reject => Ok(false),
            Self::Wait => watch.confirmed().await.map(|()| true),
            Self::Allow => Ok(true),
        }
    }
}
