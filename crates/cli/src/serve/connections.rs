//! The connections of `serve`.

use super::{answer, early, log, readers};
use crate::conn::Conn;
use crate::observed::observe;
use firstflight::{Listener, Stream};
use firstflight_http::conn::{ServerIo, Times};
use firstflight_http::directory::Files;
use firstflight_http::framing::Limits;
use futures_util::FutureExt;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A request head that is not complete within this time gets 408, and a connection without a request is closed.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Fields of a request's head. More get 431, as do more bytes than [`readers::HTTP_BUFFER`].
const MOST_FIELDS: usize = 100;
/// What every connection needs.
#[derive(Clone)]
pub struct Site {
    pub(crate) files: Arc<Files>,
    pub(crate) early_unsafe: early::EarlyUnsafe,
    /// How long a client may take for each full segment of a request's body; `None` is no limit.
    pub(crate) body_timeout: Option<Duration>,
    pub(crate) log: log::Log,
    pub(crate) tls: Option<firstflight_tls::Acceptor>,
}

/// Accepts connections until `stopping` closes, and then those that wait.
pub(super) async fn accept(
    listener: Listener,
    site: Site,
    graceful: Arc<GracefulShutdown>,
    mut stopping: watch::Receiver<()>,
) {
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(stream) => serve(stream, site.clone(), &graceful),
                // The engine has stopped because its device failed. The trace says why.
                Err(_) => return,
            },
            _ = stopping.changed() => break,
        }
    }
    while let Some(Ok(stream)) = listener.accept().now_or_never() {
        serve(stream, site.clone(), &graceful);
    }
}

/// A connection as hyper gets it. Clients that take nothing are given up below it (`--send-timeout`).
pub(crate) fn io(conn: Conn) -> ServerIo<Conn> {
    let limits = Limits { bytes: readers::HTTP_BUFFER, fields: MOST_FIELDS };
    let times = Times { head: HEAD_TIMEOUT, idle: Some(HEAD_TIMEOUT), stall: None };
    ServerIo::new(conn, limits, times).quick()
}

pub(crate) fn serve(stream: Stream, site: Site, graceful: &GracefulShutdown) {
    let Ok(peer) = stream.peer_addr() else { return };
    let log = site.log;
    let stream = match &site.tls {
        Some(acceptor) => Conn::tls(stream, acceptor.clone()),
        None => stream.into(),
    };
    let (stream, watch) = observe(io(stream));
    let seen = watch.clone();
    let service = service_fn(move |request| answer::answer(site.clone(), request, peer, watch.clone()));
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(readers::HTTP_BUFFER)
        // A client may close its sending direction after its request and still read the response.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        let ended = connection.await;
        if let Some(seal) = seen.conn(Conn::stopped) {
            log.stopped(peer, seal);
        }
        let closed = match ended {
            Ok(()) => seen.close().await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = closed {
            // Connections end often. The log says what the client requested.
            tracing::debug!(%peer, %error, "connection ended");
        }
    });
}
