//! Connections that have switched to another protocol, as WebSocket.

use crate::backend::Lease;
use crate::connection::Guards;
use crate::log::Entry;
use firstflight_http::pump::{self, Limits, Start, Traffic};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::task::Poll;

/// What lasts as long as the tunnel.
pub(super) struct TunnelGuard {
    pub(super) lease: Lease,
    pub(super) guards: Arc<Guards>,
    pub(super) entry: Entry,
}

/// Copies in both directions, from the moment at which both ends have switched.
pub(super) fn start(on_client: OnUpgrade, on_backend: OnUpgrade, limits: Limits, held: TunnelGuard) {
    let guards = Arc::clone(&held.guards);
    tokio::spawn(async move {
        tokio::select! {
            () = copy(on_client, on_backend, limits, held) => {}
            () = guards.killed() => {}
        }
    });
}

async fn copy(on_client: OnUpgrade, on_backend: OnUpgrade, limits: Limits, held: TunnelGuard) {
    let TunnelGuard { lease, guards: _guards, mut entry } = held;
    let (client, backend) = match tokio::try_join!(on_client, on_backend) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(backend = lease.backend().label, %error, "no switch of protocols");
            entry.end = Some("no-upgrade");
            return;
        }
    };
    let (mut client, mut backend) = (TokioIo::new(client), TokioIo::new(backend));
    let (start, traffic) = (Start::default(), Traffic::default());
    let ended = pump::run(&mut client, &mut backend, start, limits, &traffic, |_, _| Poll::Ready(Ok(())));
    let end = ended.await;
    let copied = traffic.copied();
    (entry.bytes_in, entry.bytes_out) = (copied.up, copied.down);
    entry.end = Some(end.as_str());
}
