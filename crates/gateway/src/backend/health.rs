//! Whether a backend works: what active checks say, and what connections tell.

use super::{Backend, DialError, Service};
use crate::config::{BackendProtocol, Health, HealthKind, Passive};
use bytes::Bytes;
use firstflight_http::proxy_header;
use http_body_util::Empty;
use hyper::client::conn::{http1, http2};
use hyper::header::{HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

/// What is known of a backend.
#[derive(Debug)]
pub(crate) struct State {
    up: AtomicBool,
    /// Active checks in a row that contradict `up`.
    contrary: AtomicU32,
    /// Connections in a row that failed.
    failures: AtomicU32,
    paused_until: Mutex<Option<Instant>>,
    /// A check has succeeded.
    seen: AtomicBool,
    born: Instant,
    /// When it last worked, if nothing failed since: milliseconds since `born`, and 1.
    good: AtomicU64,
}

/// How long a connection or request that succeeded says that a backend works.
const FRESH: Duration = Duration::from_secs(30);

/// Whether a backend works, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HealthState {
    Up,
    Down,
    Unknown,
}

impl Default for State {
    /// A backend is up until its checks say otherwise.
    fn default() -> Self {
        Self {
            up: AtomicBool::new(true),
            contrary: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            paused_until: Mutex::new(None),
            seen: AtomicBool::new(false),
            born: Instant::now(),
            good: AtomicU64::new(0),
        }
    }
}

impl State {
    /// Whether its active checks say that it works.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    pub(super) fn set_up(&self, up: bool) {
        self.contrary.store(0, Ordering::Relaxed);
        self.up.store(up, Ordering::Relaxed);
    }

    /// Whether it failed lately.
    pub(crate) fn is_paused(&self, now: Instant) -> bool {
        let paused = self.paused_until.lock().unwrap_or_else(PoisonError::into_inner);
        paused.is_some_and(|until| now < until)
    }

    /// Whether it works: as its active checks say, or else what connections and requests told lately.
    pub(crate) fn known(&self, checked: bool) -> HealthState {
        let good = self.good.load(Ordering::Relaxed);
        let fresh = good != 0 && self.age() - good < FRESH.as_millis() as u64;
        match (checked, self.is_up(), self.seen.load(Ordering::Relaxed)) {
            (true, false, _) => HealthState::Down,
            (true, true, true) => HealthState::Up,
            (true, true, false) => HealthState::Unknown,
            (false, ..) if fresh => HealthState::Up,
            (false, ..) if self.is_paused(Instant::now()) => HealthState::Down,
            (false, ..) => HealthState::Unknown,
        }
    }

    fn age(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// A connection succeeded.
    pub(crate) fn succeeded(&self) {
        self.good.store(self.age(), Ordering::Relaxed);
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// A connection failed. Returns true if a pause begins.
    pub(super) fn failed(&self, passive: &Passive, now: Instant) -> bool {
        self.good.store(0, Ordering::Relaxed);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if passive.failures == 0 || failures < passive.failures {
            return false;
        }
        self.failures.store(0, Ordering::Relaxed);
        *self.paused_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + passive.pause.0);
        true
    }

    /// An active check is over. Returns the new state if it changes.
    pub(super) fn checked(&self, good: bool, health: &Health) -> Option<bool> {
        let up = self.is_up();
        if good {
            self.seen.store(true, Ordering::Relaxed);
        }
        if good == up {
            self.contrary.store(0, Ordering::Relaxed);
            return None;
        }
        let contrary = self.contrary.fetch_add(1, Ordering::Relaxed) + 1;
        let needed = if up { health.fall } else { health.rise };
        (contrary >= needed).then(|| {
            self.set_up(good);
            good
        })
    }
}

/// Checks the backends of a service until it is dropped.
pub(crate) fn watch(service: &Arc<Service>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    if let Some(health) = &service.config.health {
        for backend in service.backends() {
            tasks.spawn(check_again_and_again(Arc::clone(service), Arc::clone(backend), health.clone()));
        }
    }
    tasks
}

async fn check_again_and_again(service: Arc<Service>, backend: Arc<Backend>, health: Health) {
    let mut ticks = interval(health.interval.0);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let late = || Err(DialError::TimedOut(health.timeout.0));
        let result =
            timeout(health.timeout.0, check(&service, &backend, &health)).await.unwrap_or_else(|_| late());
        let (name, label) = (service.name(), &backend.label);
        // A check that this machine could not make says nothing of the backend.
        if let Err(error) = &result
            && error.is_own()
        {
            tracing::warn!("service {name}: backend {label} was not checked: {error}");
            continue;
        }
        match backend.state.checked(result.is_ok(), &health) {
            Some(true) => tracing::info!("service {name}: backend {label} is up"),
            Some(false) => {
                let why = result.err().map(|error| error.to_string()).unwrap_or_default();
                tracing::warn!("service {name}: backend {label} is down: {why}");
            }
            None => {}
        }
    }
}

async fn check(service: &Service, backend: &Backend, health: &Health) -> Result<(), DialError> {
    let header = if service.config.proxy_protocol { Some(proxy_header::local()?) } else { None };
    let mut io = super::dial::dial_with(service, backend, header.as_deref(), health.timeout.0, None).await?;
    if health.kind == HealthKind::Tcp {
        return Ok(io.shutdown().await?);
    }
    let host = health.host.clone().unwrap_or_else(|| match &backend.address {
        crate::config::Address::Tcp(at) => at.clone(),
        crate::config::Address::Unix(_) => "localhost".to_owned(),
    });
    let status = match service.config.protocol {
        BackendProtocol::Http1 => {
            let request = Request::get(&health.path).header(HOST, host);
            let (mut sender, connection) =
                http1::handshake(TokioIo::new(io)).await.map_err(io::Error::other)?;
            let sending = sender.send_request(finish(request)?);
            tokio::select! {
                response = sending => response.map_err(io::Error::other)?.status(),
                error = connection => return Err(closed(error).into()),
            }
        }
        BackendProtocol::H2 => {
            let request = Request::get(format!("http://{host}{}", health.path));
            let made = http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await;
            let (mut sender, connection) = made.map_err(io::Error::other)?;
            let sending = sender.send_request(finish(request)?);
            tokio::select! {
                response = sending => response.map_err(io::Error::other)?.status(),
                error = connection => return Err(closed(error).into()),
            }
        }
    };
    match status {
        good if good.is_success() || good.is_redirection() => Ok(()),
        bad => Err(wrong(bad).into()),
    }
}

fn finish(request: hyper::http::request::Builder) -> io::Result<Request<Empty<Bytes>>> {
    request.header(USER_AGENT, "firstflight-gateway").body(Empty::new()).map_err(io::Error::other)
}

fn wrong(status: StatusCode) -> io::Error {
    io::Error::other(format!("it answered {status}"))
}

fn closed(result: Result<(), hyper::Error>) -> io::Error {
    result.err().map_or_else(|| io::ErrorKind::UnexpectedEof.into(), io::Error::other)
}
