//! For tests: a client engine and a server engine with a site, on an emulated path that can prevent the confirmation
//! of connections with data in their SYN.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::conn::Conn;
use crate::network::engine_config;
use crate::observed::{Observed, Served, observe};
use crate::serve::early::EarlyUnsafe;
use crate::serve::{Site, io, log, serve};
use firstflight::credential::{FastOpenPolicy, KeyRing, PendingLimit, Reason, Scheme};
use firstflight::link::path::Verdict;
use firstflight::link::{PathConfig, real_time_pair};
use firstflight::{ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Stream};
use firstflight_http::conn::ServerIo;
use firstflight_http::directory::Files;
use hyper_util::server::graceful::GracefulShutdown;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Both engines. The client has a cookie.
pub struct TestSite {
    pub client: Endpoint,
    pub at: SocketAddr,
    pub listener: Listener,
    unconfirmed: Arc<AtomicBool>,
    /// How long a client may take for each full segment of a request's body; `None` is no limit.
    pub body_timeout: Option<Duration>,
    /// Dropping it ends the connections that are served.
    graceful: GracefulShutdown,
}

/// Filters the client's packets: drops those after a SYN with data while `unconfirmed` is set.
fn keeps_unconfirmed(unconfirmed: Arc<AtomicBool>) -> impl FnMut(&mut Vec<u8>) -> Verdict {
    let mut early_ports = HashSet::new();
    move |packet| {
        // IPv4 without options: the TCP ports are at 20, the header length at 32, the flags at 33.
        let port = [packet[20], packet[21]];
        let data = packet.len() > 20 + usize::from(packet[32] >> 4) * 4;
        let syn = packet[33] & 2 != 0;
        if syn && data {
            early_ports.insert(port);
        }
        let dropped = !syn && early_ports.contains(&port) && unconfirmed.load(Ordering::Relaxed);
        if dropped { Verdict::Drop } else { Verdict::Forward }
    }
}

impl TestSite {
    pub async fn new() -> Self {
        let path = PathConfig::default();
        let (near, far) = real_time_pair(path.clone(), path, 1).unwrap();
        let unconfirmed = Arc::new(AtomicBool::new(true));
        let filter = keeps_unconfirmed(Arc::clone(&unconfirmed));
        near.outgoing(|path| path.set_filter(Box::new(filter)));
        let at = SocketAddr::from(([10, 0, 0, 2], 80));
        let client = Endpoint::new(engine_config(vec!["10.0.0.1".parse().unwrap()]).unwrap(), near);
        let server = Endpoint::new(engine_config(vec![at.ip()]).unwrap(), far);
        let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
        let mut listen = ListenConfig::new(at);
        listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
        let listener = server.listen(listen).unwrap();
        let graceful = GracefulShutdown::new();
        let site = Self { client, at, listener, unconfirmed, body_timeout: None, graceful };
        let (ours, _theirs) = site.connect(FirstFlight::empty()).await;
        assert_eq!(ours.outcome().reason(), Some(Reason::NoCredential));
        site
    }

    async fn connect(&self, first: FirstFlight<'_>) -> (Stream, Stream) {
        let fast = ConnectConfig::default().fast_open(true);
        let (ours, theirs) = tokio::join!(self.client.connect(self.at, first, &fast), self.listener.accept());
        (ours.unwrap(), theirs.unwrap())
    }

    /// A connection that begins with `request`: the client's end, and the server's end with its watch.
    pub async fn early(&self, request: &[u8]) -> (Stream, Observed<ServerIo<Conn>>, Served) {
        let (ours, theirs) = self.connect(FirstFlight::safely_replayable(request)).await;
        let (observed, watch) = observe(io(Conn::from(theirs)));
        (ours, observed, watch)
    }

    /// Lets the client's ACKs arrive from now on.
    pub fn confirm(&self) {
        self.unconfirmed.store(false, Ordering::Relaxed);
    }

    /// Serves the next `count` connections.
    pub async fn serve(&self, count: usize, early_unsafe: EarlyUnsafe) {
        let log = log::Log::new(true, true);
        let site = Site {
            files: Arc::new(Files::below(&std::env::temp_dir()).await.unwrap()),
            early_unsafe,
            body_timeout: self.body_timeout,
            log,
            tls: None,
        };
        for _ in 0..count {
            serve(self.listener.accept().await.unwrap(), site.clone(), &self.graceful);
        }
    }
}
