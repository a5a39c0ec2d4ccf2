//! What is early, on an emulated path in virtual time where the client's ACK needs a while.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use bytes::Bytes;
use firstflight::credential::{FastOpenPolicy, KeyRing, Outcome, PendingLimit, Scheme};
use firstflight::link::{PathConfig, VirtualTime, virtual_time_pair};
use firstflight::{
    ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Stream, Time, block_on_virtual,
};
use firstflight_adapters::{Incoming, Peer, TooEarlyLayer};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Empty;
use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_layer::Layer;
use tower_service::Service;

const AT: &str = "10.0.0.2:80";

struct Path {
    client: Endpoint,
    _server: Endpoint,
}

impl Path {
    /// A path whose client has a cookie of the server. The client's ACK arrives after 100 ms.
    async fn new(time: &VirtualTime) -> (Self, Incoming<Listener>) {
        let config = PathConfig::with_delay(Duration::from_millis(50));
        let (a, b) = virtual_time_pair(config.clone(), config, 1, time).unwrap();
        let at = |address: &str, link| {
            let config = firstflight::config(vec![address.parse().unwrap()]).unwrap();
            Endpoint::in_time(config, link, &Time::from(time.clone()))
        };
        let (client, server) = (at("10.0.0.1", a), at("10.0.0.2", b));
        let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
        let mut listen = ListenConfig::new(AT.parse().unwrap());
        listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
        let mut incoming = Incoming::new(server.listen(listen).unwrap());
        let path = Self { client, _server: server };
        let (stream, accepted) = tokio::join!(path.connect(), incoming.accept());
        assert!(!accepted.peer().is_early());
        drop((stream, accepted));
        (path, incoming)
    }

    async fn connect(&self) -> Stream {
        let config = ConnectConfig::default().fast_open(true);
        let first = FirstFlight::safely_replayable(b"request");
        self.client.connect(AT.parse::<SocketAddr>().unwrap(), first, &config).await.unwrap()
    }
}

fn in_virtual_time(test: impl AsyncFnOnce(VirtualTime)) {
    let time = VirtualTime::new(Duration::from_secs(1 << 30));
    block_on_virtual(&time, test(time.clone())).unwrap();
}

#[test]
fn tasks_wait_for_the_handshake_beside_the_one_that_writes() {
    in_virtual_time(async |time| {
        let (path, mut incoming) = Path::new(&time).await;
        let client = tokio::spawn(async move {
            let mut stream = path.connect().await;
            let mut answer = vec![0; 1 << 20];
            stream.read_exact(&mut answer).await.unwrap();
            (path, stream)
        });
        let mut stream = incoming.accept().await;
        let peer = stream.peer();
        assert!(peer.is_early());
        assert_eq!((peer.early_bytes(), peer.outcome()), (7, Outcome::Accepted));
        assert_eq!(peer.addr().map(|addr| addr.ip()), Some("10.0.0.1".parse().unwrap()));
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let peer = peer.clone();
                tokio::spawn(async move { peer.confirmed().await.map(|()| peer.is_early()) })
            })
            .collect();
        let mut request = [0; 7];
        stream.read_exact(&mut request).await.unwrap();
        // More than fits into what may be sent before the ACK.
        stream.write_all(&vec![1; 1 << 20]).await.unwrap();
        for one in waiting {
            assert!(!one.await.unwrap().unwrap());
        }
        let (_path, mut client) = client.await.unwrap();
        // A handle keeps no connection open, and knows how it was.
        drop(stream);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        assert_eq!((peer.early_bytes(), peer.outcome(), peer.is_early()), (7, Outcome::Accepted, false));
        assert!(peer.way().is_some() && peer.local_addr() == Some(AT.parse().unwrap()));
        peer.confirmed().await.unwrap();
    });
}

#[test]
fn a_connection_that_ends_early_is_not_confirmed() {
    in_virtual_time(async |time| {
        let (path, mut incoming) = Path::new(&time).await;
        let client = tokio::spawn(async move { drop(path.connect().await) });
        let stream = incoming.accept().await;
        let peer = stream.peer();
        assert!(peer.is_early());
        let waiting = tokio::spawn({
            let peer = peer.clone();
            async move { peer.confirmed().await }
        });
        tokio::task::yield_now().await;
        drop(stream);
        assert!(waiting.await.unwrap().is_err());
        assert!(peer.is_early() && peer.confirmed().await.is_err());
        client.await.unwrap();
    });
}

/// Counts what it executes.
#[derive(Clone, Default)]
struct Executes(Arc<AtomicU32>);

impl Service<Request<()>> for Executes {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        self.0.fetch_add(1, Ordering::Relaxed);
        ready(Ok(Response::default()))
    }
}

/// The status, and whether the request was executed.
async fn ask(layer: TooEarlyLayer, method: Method, peer: Option<&Peer>, field: bool) -> (StatusCode, bool) {
    let executes = Executes::default();
    let mut service = layer.layer(executes.clone());
    let mut request = Request::builder().method(method).body(()).unwrap();
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer.clone());
    }
    if field {
        request.headers_mut().insert("early-data", "1".parse().unwrap());
    }
    poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
    let status = service.call(request).await.unwrap().status();
    (status, executes.0.load(Ordering::Relaxed) == 1)
}

const EXECUTED: (StatusCode, bool) = (StatusCode::OK, true);
const TOO_EARLY: (StatusCode, bool) = (StatusCode::TOO_EARLY, false);
const MISTAKE: (StatusCode, bool) = (StatusCode::INTERNAL_SERVER_ERROR, false);

#[test]
fn only_a_safe_method_is_executed_early() {
    in_virtual_time(async |time| {
        let (path, mut incoming) = Path::new(&time).await;
        let client = tokio::spawn(async move { (path.connect().await, path) });
        let stream = incoming.accept().await;
        let peer = stream.peer();
        let (answers, waits) = (TooEarlyLayer::new(), TooEarlyLayer::waiting());
        for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
            assert_eq!(ask(answers, method.clone(), Some(&peer), false).await, EXECUTED);
            assert_eq!(ask(waits, method, Some(&peer), true).await, EXECUTED);
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(ask(answers, method, Some(&peer), false).await, TOO_EARLY);
        }
        assert!(peer.is_early());
        assert_eq!(ask(waits, Method::POST, Some(&peer), false).await, EXECUTED);
        assert!(!peer.is_early());
        assert_eq!(ask(answers, Method::POST, Some(&peer), false).await, EXECUTED);
        // It was early elsewhere.
        assert_eq!(ask(waits, Method::POST, Some(&peer), true).await, TOO_EARLY);
        client.await.unwrap();
    });
}

#[tokio::test]
async fn a_request_without_a_peer_is_this_programs_mistake() {
    let layer = TooEarlyLayer::new();
    assert_eq!(ask(layer, Method::POST, None, false).await, MISTAKE);
    assert_eq!(ask(layer, Method::GET, None, false).await, EXECUTED);
    assert_eq!(ask(layer.pass_unknown(true), Method::POST, None, false).await, EXECUTED);
    assert_eq!(ask(layer.pass_unknown(true), Method::POST, None, true).await, TOO_EARLY);
}
