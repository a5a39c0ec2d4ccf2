//! What a proxy did, for logs.

use crate::outcomes::Contact;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// How a client speaks to the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Protocol {
    /// HTTP's CONNECT.
    Connect,
    /// SOCKS5.
    Socks5,
    /// A request of plain HTTP.
    Http,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// A connection to a server was made.
    Connected {
        /// How the client asked for it.
        protocol: Protocol,
        /// The server.
        server: String,
        /// Its address.
        address: String,
        /// What became of the first flight.
        #[serde(flatten)]
        contact: Contact,
    },
    /// A server was not reached.
    Failed {
        /// How the client asked for it.
        protocol: Protocol,
        /// The server.
        server: String,
        /// Why.
        error: String,
        /// The error type of RFC 9209.
        error_type: &'static str,
        /// The client had been told yes, so its connection was reset.
        reset: bool,
    },
    /// A client left before it had an answer: its server was looked up, connected to, or had not responded.
    Left {
        /// How the client asked for it.
        protocol: Protocol,
        /// The server.
        server: String,
    },
    /// A tunnel has ended.
    Closed {
        /// How the client asked for it.
        protocol: Protocol,
        /// The server.
        server: String,
        /// Bytes to the server.
        sent: u64,
        /// Bytes from the server.
        received: u64,
        /// Why it did not end in order.
        error: Option<String>,
    },
    /// A client was refused, before a server was named or because of it.
    Refused {
        /// Why.
        reason: String,
    },
}

type Call = dyn Fn(&Event) + Send + Sync;

#[derive(Clone, Default)]
pub(crate) struct Listener(pub Option<Arc<Call>>);

impl Listener {
    pub(crate) fn tell(&self, event: &Event) {
        if let Some(listener) = &self.0 {
            listener(event);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.0.is_some()).finish()
    }
}
