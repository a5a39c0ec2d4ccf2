//! The proof that strangers can answer, and the keep-alives that it needs.

use super::{DnsPath, Inner};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a proof holds, with keep-alives.
const PROVED_FOR: Duration = Duration::from_secs(60 * 60);
/// Time between keep-alives (RFC 4787 §4.3: translators hold a mapping for 2 min, in practice for 30 s).
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// That servers which the endpoint's UDP socket never sent to can answer it, as a verifier has found
/// (`firstflight_verifier::reach`, with the very socket).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Where everybody sees the socket.
    pub seen: SocketAddr,
    /// Who is sent keep-alives, so that it stays there.
    pub verifier: SocketAddr,
    /// When it was found.
    pub at: Instant,
}

impl Inner {
    /// The proof, if it has not expired.
    pub(super) fn proof(&self) -> Option<Proof> {
        let proof = *self.proof.lock().unwrap_or_else(PoisonError::into_inner);
        proof.filter(|(_, until)| self.time.now() < *until).map(|(proof, _)| proof)
    }
}

impl DnsPath {
    /// Uses this proof from now on, until it is an hour old. First flights that were held back without one stay direct.
    ///
    /// Must be called within a tokio runtime: while there is a proof, keep-alives are sent.
    pub fn prove(&self, proof: Proof) {
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
        // An error means that there is no route; then no keep-alive is sent.
        let _ = shared.find_source(proof.verifier);
        shared.stack.keep_alive(proof.verifier);
        shared.kick();
    }
}
