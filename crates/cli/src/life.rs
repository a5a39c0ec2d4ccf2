//! The life of a command that stays running, as the service manager and the admin address (`--metrics`) get to know it.

use crate::output;
use firstflight_daemon::{Admin, Ready, Shows, manager, process};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// The options of the admin address.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct Metrics {
    /// Answer Prometheus at http://ADDR/metrics, and probes at /healthz and /readyz, through the operating system's TCP, as
    /// 127.0.0.1:7413. While ADDR is in use, the command runs without it and tries it again
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Answer questions for this host at --metrics, too; can be repeated. IP addresses and names without a dot need no such
    /// option. Other names get no answer, because a web page of anybody's can have one
    #[arg(long, value_name = "NAME", requires = "metrics")]
    metrics_host: Vec<String>,
}

/// Where a command is in its life.
#[derive(Default)]
struct State {
    /// Updates the recorder with the present counters, once the command serves.
    publish: Option<Box<dyn FnMut() + Send>>,
    is_stopping: bool,
}

/// What is told of the command's life, until this is dropped.
pub struct Life {
    state: Arc<Mutex<State>>,
    watchdog: JoinHandle<()>,
    _admin: Option<Admin>,
}

impl Metrics {
    /// What a file says.
    pub const fn new(metrics: Option<SocketAddr>, metrics_host: Vec<String>) -> Self {
        Self { metrics, metrics_host }
    }

    /// Begins to answer at the admin address, if there is one. `describe` gives the recorder the descriptions of the series.
    pub async fn start(&self, describe: fn()) -> Life {
        let state = Arc::<Mutex<State>>::default();
        let admin = match self.metrics {
            Some(at) => match PrometheusBuilder::new().install_recorder() {
                Ok(recorder) => {
                    describe();
                    process::describe();
                    let shown = AdminState { state: Arc::clone(&state), recorder };
                    Some(Admin::start(at, self.metrics_host.clone(), shown).await)
                }
                Err(error) => {
                    tracing::warn!(%error, "there are no metrics");
                    None
                }
            },
            None => None,
        };
        Life::new(state, admin)
    }
}

impl Life {
    fn new(state: Arc<Mutex<State>>, admin: Option<Admin>) -> Self {
        Self { state, watchdog: tokio::spawn(manager::keep_watchdog_quiet()), _admin: admin }
    }

    /// Of a command without an admin address.
    pub fn unobserved() -> Self {
        Self::new(Arc::default(), None)
    }

    /// The command serves from now on: its addresses are bound and its files are read. `publish` updates the recorder with the
    /// present counters.
    pub fn serving(&self, publish: impl FnMut() + Send + 'static) {
        lock(&self.state).publish = Some(Box::new(publish));
        output::is_a_log();
        manager::ready();
    }

    /// No new connections should come.
    pub fn stopping(&self) {
        lock(&self.state).is_stopping = true;
        manager::stopping();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.watchdog.abort();
    }
}

/// What the admin address shows.
struct AdminState {
    state: Arc<Mutex<State>>,
    recorder: PrometheusHandle,
}

impl Shows for AdminState {
    fn metrics(&self) -> Option<String> {
        if let Some(publish) = &mut lock(&self.state).publish {
            publish();
        }
        process::publish();
        Some(self.recorder.render())
    }

    fn ready(&self) -> Ready {
        let state = lock(&self.state);
        let (is_ready, text) = match (state.is_stopping, state.publish.is_some()) {
            (true, _) => (false, "stopping\n"),
            (false, false) => (false, "starting\n"),
            (false, true) => (true, "ready\n"),
        };
        Ready { is_ready, text: text.to_owned() }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
