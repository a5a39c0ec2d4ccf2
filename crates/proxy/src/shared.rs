//! What the connections of a proxy share.

use crate::event::{Event, Listener, Protocol};
use crate::failure::Failure;
use crate::outcomes::Board;
use crate::policy::Policy;
use crate::settings::{EarlyData, Limits};
use firstflight::{Authority, Client};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

pub(crate) struct Shared {
    pub client: Client,
    /// See [`Shared::rules`].
    pub rules: RwLock<Arc<Rules>>,
    pub limits: Limits,
    pub early_data: EarlyData,
    pub board: Board,
    pub listener: Listener,
    pub token: String,
    /// Places for status pages.
    pub watchers: Arc<Semaphore>,
    /// When the proxy was started, milliseconds since 1970.
    pub started: u64,
    pub stopping: watch::Receiver<Stopping>,
}

/// What can be changed while the proxy runs.
pub(crate) struct Rules {
    pub policy: Policy,
    /// Hosts that the PAC file names in any case.
    pub hosts: BTreeSet<String>,
    pub pac: bool,
}

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stopping {
    No,
    /// Connections may end in order.
    Draining,
    /// They are reset.
    Now,
}

/// A place among the connections of the proxy. The proxy waits at its end until all are gone.
pub(crate) struct ConnectionPermit {
    pub _permit: OwnedSemaphorePermit,
    pub _alive: mpsc::Sender<()>,
}

impl Shared {
    /// The rules as they are now.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A server was not reached. With `reset` its client had been told yes.
    pub(crate) fn failed(&self, protocol: Protocol, server: &Authority, failure: &Failure, reset: bool) {
        self.board.failed(server, &failure.to_string(), reset, firstflight::unix_ms());
        self.listener.tell(&Event::Failed {
            protocol,
            server: server.to_string(),
            error: failure.to_string(),
            error_type: failure.error_type(),
            reset,
        });
    }

    /// A client waits for its server. If this is dropped before [`WaitingClient::over`], the client has left.
    pub(crate) fn waiting(self: &Arc<Self>, protocol: Protocol, server: &Authority) -> WaitingClient {
        WaitingClient { shared: Some(Arc::clone(self)), protocol, server: server.clone() }
    }

    /// A client was refused.
    pub(crate) fn refused(&self, reason: impl Into<String>) {
        self.listener.tell(&Event::Refused { reason: reason.into() });
    }

    /// Waits until the end has come so far.
    pub(crate) async fn stopping(&self, far: Stopping) {
        let mut stopping = self.stopping.clone();
        // An error means that the proxy is gone.
        let _ = stopping.wait_for(|now| *now >= far).await;
    }
}

/// A client that waits for its server.
pub(crate) struct WaitingClient {
    shared: Option<Arc<Shared>>,
    protocol: Protocol,
    server: Authority,
}

impl WaitingClient {
    /// It has its answer.
    pub(crate) fn over(mut self) {
        self.shared = None;
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        // At its end the proxy leaves its clients.
        if let Some(shared) = self.shared.take().filter(|shared| *shared.stopping.borrow() < Stopping::Now) {
            shared.listener.tell(&Event::Left { protocol: self.protocol, server: self.server.to_string() });
        }
    }
}
