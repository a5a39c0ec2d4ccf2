//! A connection from its accept to its end.

use crate::client::Client;
use crate::config::Mode;
use crate::limits::{ClientPermit, Clients, LimitPermit};
use crate::site::Site;
use crate::{http, l4, metrics};
use arc_swap::ArcSwap;
use firstflight::Stream;
use firstflight_http::patience::timeout;
use std::sync::Arc;
use std::sync::OnceLock;
use tokio::sync::{mpsc, watch};

/// How far the end of a listener or of the gateway has come.
#[derive(Debug, Clone)]
pub(crate) struct Phases {
    /// Connections end after the requests under way.
    pub(crate) draining: watch::Receiver<bool>,
    /// Connections end at once.
    pub(crate) killed: watch::Receiver<bool>,
}

/// What a connection holds until its end, also after it became a tunnel.
pub(crate) struct Guards {
    _permits: Vec<LimitPermit>,
    place: OnceLock<ClientPermit>,
    _open: metrics::OpenGauge,
    /// The listener waits until all of these are gone.
    _alive: mpsc::Sender<()>,
    killed: watch::Receiver<bool>,
}

impl Guards {
    /// Waits until connections are to end at once.
    pub(crate) async fn killed(&self) {
        // The sender is gone when the gateway is.
        let _ = self.killed.clone().wait_for(|killed| *killed).await;
    }
}

/// Serves a connection.
pub(crate) async fn serve(
    stream: Stream,
    site: Arc<ArcSwap<Site>>,
    clients: Clients,
    permits: Vec<LimitPermit>,
    alive: mpsc::Sender<()>,
    phases: Phases,
) {
    // It fails only when the connection is over.
    let _ = stream.set_nodelay(true);
    let now = site.load_full();
    let mut client = Client::new(stream);
    let about = client.about();
    let open = now.series.accepted(&about);
    let killed = phases.killed.clone();
    let place = OnceLock::new();
    let guards = Arc::new(Guards { _permits: permits, place, _open: open, _alive: alive, killed });
    if now.config.expects_proxy_header(about.hop.ip()) {
        let reading = timeout(now.config.header_timeout.0, client.read_proxy_header()).await;
        if let Err(error) = reading.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())) {
            tracing::debug!(listener = now.name(), peer = %about.hop, %error, "no PROXY header");
            metrics::refused(now.name(), "proxy-header");
            return client.abort();
        }
    }
    if let Some(most) = now.config.max_connections_per_client {
        match clients.connection(client.about().peer.ip(), most.get()) {
            Some(place) => drop(guards.place.set(place)),
            None => {
                metrics::refused(now.name(), "client-limit");
                return client.abort();
            }
        }
    }
    let serving = async {
        match *now.config.mode.get_ref() {
            Mode::Http => {
                let shared = http::Shared { guards: Arc::clone(&guards), clients };
                // Apart, because it is large, and this future is moved several times before it begins.
                Box::pin(http::serve(client, &site, phases.draining, shared)).await;
            }
            Mode::Tcp | Mode::TlsPassthrough => Box::pin(l4::serve(client, &now)).await,
        }
    };
    tokio::select! {
        () = serving => {}
        () = guards.killed() => {}
    }
}
