//! Which verifiers a server trusts: read from a file, and updated while the server runs.
//!
//! ```toml
//! # begin
//! [[verifier]]
//! key = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"
//! prefixes = ["192.0.2.0/24", "2001:db8::/32"] # it may certify these; all, if left out
//! longest = "1d"     # the longest certificate taken
//! oldest = "1h"      # the oldest certificate taken
//! min_vantage = 1    # vantage points that must have seen the client
//! own = false        # run by this server's operator: no further limit before the client's ACK
//! times = 3          # else at most so many times the bytes received
//! per_second = 1000  # first flights accepted a second
//! # end
//! ```
//!
//! Only `key` is required. A verifier whose entry is removed is no longer trusted from the next reading on. A change
//! that admits more certificates of a verifier closes that verifier for a while: see [`TrustHandle::set`].
//!
//! A truncated file can trust more than the complete one: an entry that lost its `prefixes` covers every address. The
//! first and the last line show that a file is complete. A file that begins with `# begin` and does not end with `#
//! end` is never accepted. A file without these lines is accepted when it is opened, with a warning. A change of such a
//! file is accepted only if two readings agree and it admits nothing new.

#[cfg(feature = "trust")]
mod file;

#[cfg(feature = "trust")]
pub use file::{TrustFile, TrustFileError, follow};

use crate::credential::asap::TrustStore;
use crate::endpoint::ending::EngineRef;
use crate::shared::Shared;
use firstflight_stack::ListenerId;
use std::sync::{Arc, Weak};

/// Sets the verifiers that one listener trusts. It keeps neither the listener nor the endpoint alive.
#[derive(Debug, Clone)]
pub struct TrustHandle {
    /// The listeners of all shards.
    listeners: Vec<(Weak<Shared>, ListenerId)>,
}

impl TrustHandle {
    pub(crate) fn new(listeners: Vec<(Weak<Shared>, ListenerId)>) -> Self {
        Self { listeners }
    }

    /// Replaces the trusted verifiers, starting with the next first flight. Returns false if the listener is gone or
    /// takes no certificates, or if `trust` has another key with the id of the server's own verifier; that one stays
    /// trusted in any case. A verifier that is new, or may certify more than before, has a pause: requests with its
    /// certificates that were made before the change, or up to ten seconds after it, take the ordinary handshake.
    pub fn set(&self, trust: Arc<TrustStore>) -> bool {
        let (mut any, mut contradicts) = (false, None);
        for (shared, id) in &self.listeners {
            let Some(shared) = EngineRef::of(shared) else { continue };
            let mut inner = shared.lock();
            inner.set_clock();
            let now = inner.now();
            match inner.desk.reload(*id, &trust) {
                Ok(trust) => any |= inner.stack.set_trust(*id, trust, now),
                Err(error) => contradicts = Some(error),
            }
        }
        if let Some(error) = contradicts {
            tracing::warn!(
                "the trusted verifiers stay as they are: {error}; the server itself is one of the two"
            );
        }
        any
    }
}
