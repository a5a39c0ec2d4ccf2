//! The proof that servers which the client never contacted can reach it, and the keep-alives that the proof needs.

use super::{DnsPath, Inner};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a proof is valid, with keep-alives.
const PROVED_FOR: Duration = Duration::from_secs(60 * 60);
/// Time between keep-alives (RFC 4787 §4.3: translators hold a mapping for 2 min, in practice for 30 s).
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A verifier's proof that a server can answer the endpoint's UDP socket although the socket never sent to that
/// server. `firstflight_verifier::reach` obtains it; it must use that socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// The address at which other hosts see the socket.
    pub seen: SocketAddr,
    /// The verifier that gets keep-alives, so that the NAT mapping stays.
    pub verifier: SocketAddr,
    /// When the proof was obtained.
    pub at: Instant,
}

impl Inner {
    /// The proof, if it has not expired.
    pub(super) fn proof(&self) -> Option<Proof> {
        let proof = *self.proof.lock().unwrap_or_else(PoisonError::into_inner);
        proof.filter(|(_, until)| self.time.now() < *until).map(|(proof, _)| proof)
    }

    pub(super) fn forget_proof(&self) {
        *self.proof.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl DnsPath {
    /// Uses this proof until it is an hour old. First flights that were already held back stay direct.
    ///
    /// Must be called within a tokio runtime: while there is a proof, keep-alives are sent.
    pub(crate) fn prove(&self, proof: Proof) {
        let inner = &self.0;
        let until = inner.time.now() + PROVED_FOR.saturating_sub(proof.at.elapsed());
        *inner.proof.lock().unwrap_or_else(PoisonError::into_inner) = Some((proof, until));
        tokio::spawn(keep(Arc::downgrade(inner), proof));
    }
}

/// Keeps the translator's mapping alive until the path is dropped, the proof expires, or there is another proof.
async fn keep(inner: Weak<Inner>, proof: Proof) {
    let Some(time) = inner.upgrade().map(|inner| inner.time.clone()) else { return };
    loop {
        time.sleep(KEEP_ALIVE).await;
        let Some(inner) = inner.upgrade() else { return };
        if inner.proof() != Some(proof) {
            return;
        }
        let mut shared = inner.endpoint.shared.lock();
        // An error means that there is no route. Then no keep-alive is sent.
        let _ = shared.find_source(proof.verifier);
        shared.stack.keep_alive(proof.verifier);
        shared.kick();
    }
}
