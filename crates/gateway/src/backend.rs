//! Services and their backends: which one gets the next connection, and how it is reached.

mod body;
mod dial;
mod h2;
pub(crate) mod health;
mod pool;
mod reach;
mod shared;
mod upload;

pub(crate) use dial::{BackendIo, DialError};
pub(crate) use pool::{AnsweredBody, PoolOpen, RequestConnection, Sender};

use crate::config::{self, Address, Balance};
use crate::metrics;
use firstflight_http::directory::{Files, RootError};
use firstflight_tls::{ConfigError, Connector};
use health::{HealthState, State};
use pool::Pool;
use reach::{AddressTurn, Reach};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// A service with its backends.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) config: config::Service,
    backends: Vec<Arc<Backend>>,
    turn: AtomicUsize,
    /// TLS to the backends.
    connector: Option<Connector>,
    /// The files that it serves itself, in place of backends.
    files: Option<Arc<Files>>,
    response_times: ::metrics::Histogram,
    /// Places for connections that are made before their request has come whole.
    preparing: Semaphore,
}

/// Connections that are made at one time before their request has come whole.
const PREPARING: usize = 32;

/// A backend. It outlives reloads.
#[derive(Debug)]
pub(crate) struct Backend {
    pub(crate) service: String,
    pub(crate) address: Address,
    /// Its name in log and metrics.
    pub(crate) label: String,
    active: AtomicUsize,
    pub(crate) state: State,
    pub(crate) pool: Pool,
    reach: Reach,
    turn: AddressTurn,
}

impl Backend {
    fn new(service: &str, address: &Address, reach: &Reach) -> Self {
        Self {
            service: service.to_owned(),
            address: address.clone(),
            label: address.to_string(),
            active: AtomicUsize::new(0),
            state: State::default(),
            pool: Pool::default(),
            reach: reach.clone(),
            turn: AddressTurn::default(),
        }
    }

    /// Connections or requests under way.
    pub(crate) fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }
}

/// A connection or request at a backend. It counts until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease(Arc<Backend>);

impl Lease {
    pub(crate) fn new(backend: &Arc<Backend>) -> Self {
        backend.active.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(backend))
    }

    pub(crate) fn backend(&self) -> &Arc<Backend> {
        &self.0
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service {
    /// The service. Backends of `former`, the same service before a reload, are kept with all that is known of them.
    /// Errors: when a file of its TLS cannot be used.
    pub(crate) fn new(config: &config::Service, former: Option<&Self>) -> Result<Self, ConfigError> {
        Self::over(&Reach::of_process(), config, former)
    }

    /// Opens the directory that it serves, if it has one. That of `former` is kept with the files that it holds open.
    pub(crate) async fn open_root(mut self, former: Option<&Self>) -> Result<Self, RootError> {
        let Some(root) = &self.config.root else { return Ok(self) };
        let same = |former: &&Self| {
            former.config.root == self.config.root && former.config.hidden == self.config.hidden
        };
        self.files = match former.filter(same).and_then(|former| former.files.clone()) {
            Some(files) => Some(files),
            None => Some(Arc::new(Files::below(root).await?.hidden(self.config.hidden))),
        };
        Ok(self)
    }

    /// The files that it serves itself.
    pub(crate) const fn files(&self) -> Option<&Arc<Files>> {
        self.files.as_ref()
    }

    fn over(reach: &Reach, config: &config::Service, former: Option<&Self>) -> Result<Self, ConfigError> {
        let connector = dial::connector(config)?;
        // Connections that are kept are encrypted as they were.
        let same =
            |former: &&Self| former.config.tls == config.tls && former.config.protocol == config.protocol;
        let former = former.filter(same);
        let name = config.name.get_ref();
        let kept = |address: &Address| {
            let backends = former.map_or(&[][..], |former| &former.backends);
            backends.iter().find(|backend| backend.address == *address).cloned()
        };
        let backends: Vec<_> = config
            .backend
            .get_ref()
            .iter()
            .map(|address| kept(address).unwrap_or_else(|| Arc::new(Backend::new(name, address, reach))))
            .collect();
        let response_times = metrics::response_times(name);
        let (config, turn) = (config.clone(), AtomicUsize::new(0));
        let preparing = Semaphore::new(PREPARING);
        Ok(Self { config, backends, turn, connector, files: None, response_times, preparing })
    }

    /// The service is in use from now on.
    pub(crate) fn begin(&self) {
        for backend in &self.backends {
            if self.config.health.is_none() {
                // Nobody would ever say that it is up again.
                backend.state.set_up(true);
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.config.name.get_ref()
    }

    /// A backend answered a request after this time.
    pub(crate) fn responded(&self, after: Duration) {
        self.response_times.record(after.as_secs_f64());
    }

    pub(crate) fn backends(&self) -> &[Arc<Backend>] {
        &self.backends
    }

    /// Whether a backend works, as far as is known.
    pub(crate) fn known(&self, backend: &Backend) -> HealthState {
        backend.state.known(self.config.health.is_some())
    }

    /// Whether any backend may work.
    pub(crate) fn is_available(&self) -> bool {
        self.files.is_some() || self.backends.iter().any(|backend| self.known(backend) != HealthState::Down)
    }

    /// The next backend that is not in `tried`. Backends that failed lately are used only if there is no other one; one
    /// that its active checks say is down is never used.
    fn choose(&self, tried: &[Arc<Backend>]) -> Option<Lease> {
        let now = Instant::now();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.backends.len();
        let in_turn = || (0..count).filter_map(move |n| self.backends.get(turn.wrapping_add(n) % count));
        let usable = || {
            in_turn()
                .filter(|backend| backend.state.is_up() && !tried.iter().any(|t| Arc::ptr_eq(t, backend)))
        };
        let pick = |paused: bool| {
            let mut candidates = usable().filter(|backend| paused || !backend.state.is_paused(now));
            match self.config.balance {
                Balance::RoundRobin => candidates.next(),
                Balance::LeastConnections => candidates.min_by_key(|backend| backend.active()),
            }
        };
        pick(false).or_else(|| pick(true)).map(Lease::new)
    }

    /// Connects to a backend, and to others if that fails. The connection begins with the PROXY header, if there is one.
    /// Errors: the last one.
    pub(crate) async fn connect(&self, header: Option<&[u8]>) -> Result<(BackendIo, Lease), DialError> {
        let (mut tried, mut last) = (Vec::new(), DialError::NoBackend);
        for _ in 0..=self.config.retries {
            let Some(lease) = self.choose(&tried) else { break };
            match self.dial(lease.backend(), header).await {
                Ok(io) => return Ok((io, lease)),
                Err(error) => last = error,
            }
            tried.push(Arc::clone(lease.backend()));
        }
        Err(last)
    }

    /// Connects to this backend, and notes whether that failed.
    /// Errors: when it failed.
    pub(crate) async fn dial(
        &self,
        backend: &Backend,
        header: Option<&[u8]>,
    ) -> Result<BackendIo, DialError> {
        let result = dial::dial(self, backend, header, self.config.connect_timeout.0).await;
        match &result {
            Ok(_) => backend.state.succeeded(),
            Err(error) if error.is_own() => {
                tracing::warn!(service = self.name(), backend = backend.label, %error, "cannot connect");
            }
            Err(error) => {
                tracing::debug!(service = self.name(), backend = backend.label, %error, "cannot connect");
                metrics::backend_failed(backend, "connect");
                self.failed(backend);
            }
        }
        result
    }

    /// Notes that the backend failed.
    pub(crate) fn failed(&self, backend: &Backend) {
        if backend.state.failed(&self.config.passive, Instant::now()) {
            let pause = self.config.passive.pause.0;
            tracing::warn!(
                service = self.name(),
                backend = backend.label,
                ?pause,
                "failed several times in a row"
            );
        }
    }
}

#[cfg(test)]
mod tests;
