//! Connections to the port of `serve --xdp` that do not come by the device, as those of programs on this host: the kernel's TCP
//! takes them, and the same site is served.

use super::{Site, serve};
use crate::error::Error;
use crate::network::NetworkError;
use firstflight::kernel::{self, ListenConfig};
use firstflight::{Card, CardError, Listener};
use futures_util::FutureExt;
use hyper_util::server::graceful::GracefulShutdown;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pause after a failed accept, which may be caused by a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The sockets that hold the port.
pub struct Beside(Vec<TcpListener>);

impl Beside {
    /// Handles of the sockets. The card keeps them open as long as it takes packets.
    pub fn of(card: &Card) -> Result<Self, NetworkError> {
        card.listeners().map(Self).map_err(NetworkError::card)
    }

    /// Accepts connections until `stopping` closes, and then those that wait.
    pub fn accept(
        self,
        listening: &mut JoinSet<()>,
        site: &Site,
        graceful: &Arc<GracefulShutdown>,
        stopping: &watch::Receiver<()>,
    ) -> Result<(), Error> {
        for socket in self.0 {
            let at = socket.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
            // The filter drops what comes by the device. Programs of this host gain nothing from Fast Open.
            let config = ListenConfig::default().pending(0).keep_filter(true);
            let listener = kernel::adopt(socket, config)
                .map_err(|error| NetworkError::card(CardError::Hold(at, error)))?;
            listening.spawn(accept(listener, site.clone(), Arc::clone(graceful), stopping.clone()));
        }
        Ok(())
    }
}

async fn accept(
    listener: Listener,
    site: Site,
    graceful: Arc<GracefulShutdown>,
    mut stopping: watch::Receiver<()>,
) {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => serve(stream, site.clone(), &graceful),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            _ = stopping.changed() => break,
        }
    }
    while let Some(Ok(stream)) = listener.accept().now_or_never() {
        serve(stream, site.clone(), &graceful);
    }
}
