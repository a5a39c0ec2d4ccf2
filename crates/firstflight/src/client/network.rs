//! On which network this host is.

use super::Shared;
use firstflight_credential::NetworkId;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How often the network is determined, while there are connects.
const EVERY: Duration = Duration::from_secs(5);
/// How long a connect waits for the answer. It takes a millisecond, or, right after this host has joined a network, the
/// gateway's answer.
const PATIENCE: Duration = Duration::from_millis(20);

/// How the network is determined.
#[derive(Debug)]
pub(super) enum Networks {
    /// The caller says.
    Fixed,
    /// By the default route. The time is that of the last look.
    Found(Mutex<Option<Instant>>),
}

impl Networks {
    /// Determines the network if that was some time ago.
    pub(super) async fn refresh(&self, shared: &std::sync::Arc<Shared>) {
        let Self::Found(last) = self else { return };
        {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| last.elapsed() < EVERY) {
                return;
            }
            *last = Some(Instant::now());
        }
        let shared = std::sync::Arc::clone(shared);
        let look = tokio::spawn(async move { shared.networks.look(&shared).await });
        // The look goes on.
        let _ = timeout(PATIENCE, look).await;
    }

    /// Determines the network now.
    pub(super) async fn look(&self, shared: &Shared) {
        if matches!(self, Self::Fixed) {
            return;
        }
        // It fails only when the runtime shuts down.
        if let Ok(found) = tokio::task::spawn_blocking(crate::network_id).await {
            shared.move_to(found.unwrap_or(NetworkId::UNKNOWN));
        }
    }
}

impl Shared {
    /// The caller says that the host has moved. A network without an id cannot be told from the next one without.
    pub(super) fn leave_unknown(&self) {
        if self.kernel.leave_unknown()
            && let Some(asap) = &self.asap
        {
            asap.leave_unknown();
        }
    }

    pub(super) fn move_to(&self, network: NetworkId) {
        if network != self.kernel.network() {
            // The same name may have other addresses there.
            self.lookups.forget();
        }
        self.kernel.move_to(network);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        match cache.take() {
            Some(known) if network.is_known() => _ = self.kernel.use_cache(known),
            Some(waits) => {
                *cache = Some(waits);
                if !self.told_unknown.swap(true, Ordering::Relaxed) {
                    tracing::warn!("the cache file is not used: this network has no gateway to know it by");
                }
            }
            None => {}
        }
        drop(cache);
        if let Some(asap) = &self.asap {
            asap.move_to(network);
        }
    }
}
