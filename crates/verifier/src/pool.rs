//! A pool of certificates. With it a new site needs no round trip to a verifier, and no two sites see the
//! same key.
//!
//! A client's key is sent in the clear in every first flight, so it is used for one site in one network only,
//! and never after its certificate has ended. A [`CertificatePool`] keeps a few unused certificates for each
//! network and verifier, gives each to the first site that wants one, and refreshes those that are used, each
//! time with a new key.

mod file;
mod site;
mod state;

pub use file::PoolFileError;
pub(crate) use file::boot_id;
pub use site::PoolSite;
pub use state::{PoolConfig, is_usable};
pub(crate) use state::{due, is_due};

use crate::client::{IssuerAddress, ObtainError, Patience, Route, Wanted, obtain_by};
use crate::clock::boot_clock;
use firstflight_credential::NetworkId;
use firstflight_credential::asap::{ClientCertificate, PrivateKey};
use firstflight_service::secure_rng;
use firstflight_wire::Instant;
use firstflight_wire::asap::VerifierId;
use firstflight_wire::asap::message::Reason;
use state::{State, Wish};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

/// Certificates that are requested at the same time.
const AT_ONCE: usize = 8;

/// A pool of certificates, kept full in the background until it is dropped.
pub struct CertificatePool {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
    /// Returns the network that the host is on now, if the pool is to watch it: see [`CertificatePool::watch_network`].
    present: OnceLock<fn() -> Option<NetworkId>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CertificatePool {
    /// A pool for the network that this host is on, filled from all `issuers`. It lives in memory only. Needs a
    /// tokio runtime.
    ///
    /// # Errors
    /// When the system has no clock that runs during sleep, or no random numbers.
    pub fn start(
        config: PoolConfig,
        issuers: Vec<IssuerAddress>,
        network: NetworkId,
        patience: Patience,
    ) -> io::Result<Self> {
        Self::begin(State::new(config, issuers, network), Means { route: Route::System, patience }, None)
    }

    /// Like [`CertificatePool::start`], for an engine that has an address of its own: the verifiers are reached by `route`.
    ///
    /// # Errors
    /// As [`CertificatePool::start`].
    pub fn start_by(
        route: Route,
        config: PoolConfig,
        issuers: Vec<IssuerAddress>,
        network: NetworkId,
        patience: Patience,
    ) -> io::Result<Self> {
        Self::begin(State::new(config, issuers, network), Means { route, patience }, None)
    }

    /// Like [`CertificatePool::start`], but loads the valid certificates of an earlier pool from a file, and
    /// keeps the file up to date (mode 0600). Its secrets are the clients' keys: an attacker who reads it can
    /// link this host's activities, and use the certificates from its address. Certificates from before the
    /// last start of the machine are not loaded, because their time can no longer be counted.
    ///
    /// # Errors
    /// When the file cannot be read or written, or is not a pool's file.
    pub fn start_with_file(
        config: PoolConfig,
        issuers: Vec<IssuerAddress>,
        network: NetworkId,
        patience: Patience,
        path: PathBuf,
    ) -> Result<Self, PoolFileError> {
        Self::start_by_with_file(Route::System, config, issuers, network, patience, path)
    }

    /// Like [`CertificatePool::start_with_file`], with the verifiers reached by `route`.
    ///
    /// # Errors
    /// As [`CertificatePool::start_with_file`].
    pub fn start_by_with_file(
        route: Route,
        config: PoolConfig,
        issuers: Vec<IssuerAddress>,
        network: NetworkId,
        patience: Patience,
        path: PathBuf,
    ) -> Result<Self, PoolFileError> {
        let mut state = State::new(config, issuers, network);
        let now = boot_clock().map_err(|error| PoolFileError::Read(path.clone(), error))?;
        file::load(&path, &mut state, now)?;
        file::save(&path, file::to_save(&state))?;
        let begun = Self::begin(state, Means { route, patience }, Some(path.clone()));
        begun.map_err(|error| PoolFileError::Read(path, error))
    }

    fn begin(state: State, means: Means, file: Option<PathBuf>) -> io::Result<Self> {
        boot_clock()?;
        secure_rng()?;
        let shared =
            Arc::new(Shared { state: Mutex::new(state), changed: Notify::new(), present: OnceLock::new() });
        let keeper = tokio::spawn(keep(Arc::clone(&shared), means, file)).abort_handle();
        Ok(Self { shared, keeper })
    }

    /// A certificate by one of the `trusted` verifiers, for first flights to `site`, whose server is at
    /// `server` (of the same address family). A site gets the same certificate each time until it ends. A new
    /// site gets one that no other site has seen. `None` if the pool has none: connect without one, while the
    /// pool obtains it.
    #[must_use]
    pub fn certificate_for(
        &self,
        site: &PoolSite,
        server: IpAddr,
        trusted: &[VerifierId],
    ) -> Option<Arc<ClientCertificate>> {
        let now = boot_clock().ok()?;
        let found = self.shared.lock().certificate_for(site, server, trusted, now);
        // The pool has one unused certificate less, or one more to refresh.
        self.shared.changed.notify_one();
        found
    }

    /// This host is on another network now. The certificates of the previous network are kept until they end.
    pub fn set_network(&self, network: NetworkId) {
        self.shared.lock().set_network(network);
        self.shared.changed.notify_one();
    }

    /// From now on, `present` is asked for the network before each question to a verifier: a program that makes no connects does
    /// not learn that its host has moved. It may block for some 100 ms. A question for one network is not sent in another one,
    /// where its certificate, in clear, would say who was in the first.
    pub fn watch_network(&self, present: fn() -> Option<NetworkId>) {
        let _ = self.shared.present.set(present);
    }

    /// A server refused this certificate, so it is not used again. If the server sees another address than
    /// the verifier, call [`CertificatePool::mismatched`] instead, or the site gets another certificate for
    /// the same address.
    pub fn forget(&self, certificate: &ClientCertificate) {
        self.shared.lock().forget(certificate);
        self.shared.changed.notify_one();
    }

    /// The site's server sees another address than this certificate's
    /// ([`Reason::AddressMismatch`](firstflight_credential::Reason::AddressMismatch)): it is not used again,
    /// and on this network the site gets no certificate for that address for an hour, or until
    /// [`CertificatePool::set_network`]. Until then connect without one. The pool obtains another certificate
    /// to learn whether the verifier sees another address by now, at most one a minute, and later less often.
    pub fn mismatched(&self, site: &PoolSite, certificate: &ClientCertificate) {
        let Ok(now) = boot_clock() else { return };
        self.shared.lock().mismatched(site, certificate, now);
        self.shared.changed.notify_one();
    }

    /// Whether the site's server was found to see another address than a verifier on this network
    /// ([`CertificatePool::mismatched`]).
    #[must_use]
    pub fn is_mismatched(&self, site: &PoolSite) -> bool {
        boot_clock().is_ok_and(|now| self.shared.lock().is_mismatched(site, now))
    }

    /// Whether the last question to each verifier on this network has failed.
    #[must_use]
    pub fn is_failing(&self) -> bool {
        self.shared.lock().is_failing()
    }

    /// This host's address of one family, as a verifier sees it.
    #[must_use]
    pub fn address(&self, v4: bool) -> Option<IpAddr> {
        self.shared.lock().address(v4)
    }

    /// How many certificates of this network no site has seen yet.
    #[must_use]
    pub fn fresh(&self) -> usize {
        self.shared.lock().fresh()
    }
}

impl Drop for CertificatePool {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl fmt::Debug for CertificatePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificatePool").field("fresh", &self.fresh()).finish_non_exhaustive()
    }
}

type PoolAnswer = (Wish, Answer);

/// What became of a question.
enum Answer {
    Obtained(Box<ClientCertificate>),
    Failed(ObtainError),
    /// It was not asked, because the host is on this network now.
    Moved(NetworkId),
}

/// How certificates are obtained.
#[derive(Debug, Clone)]
struct Means {
    route: Route,
    patience: Patience,
}

/// Keeps the pool full.
async fn keep(shared: Arc<Shared>, means: Means, file: Option<PathBuf>) {
    let mut asking: JoinSet<PoolAnswer> = JoinSet::new();
    let mut saved = 0;
    loop {
        let Ok(now) = boot_clock() else { return };
        let wake = {
            let mut state = shared.lock();
            while asking.len() < AT_ONCE
                && let Some(wish) = state.poll_wish(now)
            {
                asking.spawn(fulfil(wish, means.clone(), shared.present.get().copied()));
            }
            state.poll_timeout(now)
        };
        if let Some(path) = &file {
            save(path, &shared, &mut saved);
        }
        // Timers do not run while the machine sleeps, so poll from time to time.
        let wait = wake.map_or(Duration::MAX, |wake| wake.saturating_since(now));
        let wait = wait.clamp(Duration::from_millis(10), Duration::from_secs(60));
        tokio::select! {
            () = shared.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
            Some(answered) = asking.join_next() => {
                // A task that panicked returns no result, so its wish stays open until the host leaves the
                // network.
                if let (Ok((wish, answer)), Ok(now)) = (answered, boot_clock()) {
                    settle(&shared, wish, answer, now);
                }
            }
        }
    }
}

fn save(path: &std::path::Path, shared: &Shared, saved: &mut u64) {
    let certificates = {
        let state = shared.lock();
        if state.changes() == *saved {
            return;
        }
        *saved = state.changes();
        file::to_save(&state)
    };
    // Write without the lock, so that no caller waits for the disk.
    if let Err(error) = file::save(path, certificates) {
        tracing::warn!("{error}");
    }
}

async fn fulfil(wish: Wish, means: Means, present: Option<fn() -> Option<NetworkId>>) -> PoolAnswer {
    if let Some(present) = present
        && let Ok(found) = tokio::task::spawn_blocking(present).await
        && let network = found.unwrap_or(NetworkId::UNKNOWN)
        && network != wish.network()
    {
        return (wish, Answer::Moved(network));
    }
    let key = match secure_rng() {
        Ok(mut rng) => PrivateKey::generate(&mut rng),
        Err(error) => return (wish, Answer::Failed(ObtainError::System(error))),
    };
    let wanted = Wanted { key, wished: wish.wished, old: wish.renew.as_deref() };
    let answer = match obtain_by(&means.route, &wish.issuer, wanted, &means.patience).await {
        Ok(certificate) => Answer::Obtained(Box::new(certificate)),
        Err(error) => Answer::Failed(error),
    };
    (wish, answer)
}

fn settle(shared: &Shared, wish: Wish, answer: Answer, now: Instant) {
    match answer {
        Answer::Obtained(certificate) => shared.lock().handle_obtained(wish, *certificate),
        Answer::Moved(network) => shared.lock().handle_moved(&wish, network),
        Answer::Failed(error) => {
            let refused = error.refused();
            let useless = refused.is_some_and(|refused| refused.reason == Reason::OldCertificate);
            let wait = refused.map_or(0, |refused| refused.retry_after);
            let wait = Duration::from_secs(wait.into());
            let mut state = shared.lock();
            let is_first = state.handle_failed(&wish, useless, wait, now);
            // A verifier with a name is asked by both families, and a host may have one of them.
            let is_told = wish.issuer.host.is_none() || state.is_failing();
            drop(state);
            if is_first && is_told {
                tracing::warn!("no certificate: {error}; first flights go without");
            } else {
                tracing::debug!(verifier = %wish.issuer.name, %error, "no certificate");
            }
        }
    }
}

#[cfg(test)]
mod renewal_tests;
#[cfg(test)]
mod tests;
