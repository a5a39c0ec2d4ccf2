//! More attacks on `Client`, `Server`, `LazyStream` and the race: on what mended the first ones.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[allow(dead_code, reason = "the tests of firstflight::kernel use all of it")]
#[path = "../../kernel/tests/namespace/mod.rs"]
mod namespace;
mod site;

use firstflight::credential::asap::PrivateKey;
use firstflight::credential::{Outcome, Reason};
use firstflight::{Authority, Client, ReplaySafety, Server};
use namespace::{in_namespace, nft};
use site::{NETWORK, REQUEST, ready, safely, verifier};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A server on the kernel's TCP alone, and a client that has its cookie.
async fn with_cookie() -> (Server, Authority, Client) {
    let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
    let at: Authority = server.local_addrs()[0].into();
    let client = Client::new();
    let (first, accepted) = tokio::join!(client.connect_to(&at, safely()), server.accept());
    drop((first.unwrap(), accepted.unwrap()));
    (server, at, client)
}

// ---- Server -----------------------------------------------------------------------------------------------------

/// A copy of a SYN is refused by its client with a RST before the server accepts, and its data is read all the same.
#[test]
fn a_connection_that_was_reset_before_its_ack_is_early() {
    in_namespace("3", || async {
        let (server, at, client) = with_cookie().await;
        let rule = format!(
            "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; \
             add rule ip t c tcp sport {} tcp flags & (syn | ack) == (syn | ack) drop",
            at.port()
        );
        if !nft(&rule) {
            return;
        }
        let mut connect = Box::pin(client.connect_to(&at, safely()));
        assert!(poll_once(connect.as_mut()).is_pending());
        // The client knows nothing of it any more, and so refuses the next SYN-ACK.
        drop(connect);
        assert!(nft("flush ruleset"));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let mut stream =
            tokio::time::timeout(Duration::from_secs(1), server.accept()).await.unwrap().unwrap();
        assert_eq!(stream.early_bytes(), REQUEST.len() as u32);
        let early = stream.is_early();
        let mut request = [0; REQUEST.len()];
        let read = stream.read_exact(&mut request).await;
        assert!(early, "no ACK ever came, and the request is read: {read:?}");
        assert!(stream.handshake_confirmed().await.is_err());
        // The error is told once by the system.
        assert!(stream.handshake_confirmed().await.is_err() && stream.is_early());
    });
}

/// A service manager keeps the socket that it passed, and passes it to the program's next instance.
#[test]
fn a_socket_that_was_passed_listens_after_a_drain() {
    in_namespace("3", || async {
        let passed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = passed.local_addr().unwrap();
        let adopt = || {
            let config = firstflight::kernel::ListenConfig::default();
            firstflight_kernel::Listener::adopt(passed.try_clone().unwrap(), config).unwrap()
        };
        let listener = adopt();
        listener.drain().unwrap();
        assert!(listener.try_accept().unwrap().is_none());
        drop(listener);
        let within = Duration::from_millis(500);
        let client = std::net::TcpStream::connect_timeout(&at, within);
        assert!(client.is_ok(), "nobody reaches the socket any more: {client:?}");
        // An instance that is killed leaves it as it is.
        let killed = adopt();
        killed.drain().unwrap();
        std::mem::forget(killed);
        let next = adopt();
        assert!(next.try_accept().unwrap().is_some());
        let client = std::net::TcpStream::connect_timeout(&at, within);
        assert!(client.is_ok(), "the next instance gets nothing: {client:?}");
    });
}

/// Under SYN cookies the kernel keeps nothing of the SYN, so the server does not know what the client asked for.
#[test]
fn a_connection_from_a_syn_cookie_is_not_called_not_requested() {
    in_namespace("3", || async {
        let (server, at, client) = with_cookie().await;
        if std::fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").is_err() {
            return;
        }
        let (stream, accepted) = tokio::join!(client.connect_to(&at, safely()), server.accept());
        let (stream, accepted) = (stream.unwrap(), accepted.unwrap());
        assert_eq!(stream.outcome(), Outcome::Handshake(Reason::DataNotAcknowledged));
        assert_ne!(accepted.outcome(), Outcome::Handshake(Reason::NotRequested), "its SYN had a cookie");
    });
}

/// The kernel's and the engine's listeners are gone, so nothing will ever wake it.
#[test]
fn a_poll_after_the_drain_does_not_wait_for_ever() {
    in_namespace("3", || async {
        let mut server = Server::bind("127.0.0.1:0").await.unwrap();
        server.drain().1.unwrap();
        assert!(server.accept().await.is_err());
        let polled = server.poll_accept(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_ready(), "it waits for ever");
    });
}

struct Flag;

impl Wake for Flag {
    fn wake(self: Arc<Self>) {}
}

/// Each task that gives up to wait for a connection leaves its waker behind, as long as no client comes by UDP.
#[test]
fn an_accept_that_was_dropped_leaves_no_waker() {
    in_namespace("3", || async {
        let server = Server::bind("127.0.0.1:0").await.unwrap();
        assert!(server.udp_port().is_some());
        let flags: Vec<_> = (0..100).map(|_| Arc::new(Flag)).collect();
        for flag in &flags {
            let waker = Waker::from(Arc::clone(flag));
            let mut accept = pin!(server.accept());
            assert!(accept.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        let kept = flags.iter().filter(|flag| Arc::strong_count(flag) > 1).count();
        assert!(kept <= 1, "{kept} wakers of tasks that no longer wait");
    });
}

// ---- Streams ----------------------------------------------------------------------------------------------------

/// The system takes 1,024 buffers in one call, and a caller may have more.
#[test]
fn a_write_of_many_buffers_is_taken_in_part() {
    in_namespace("3", || async {
        let (server, at, client) = with_cookie().await;
        let (stream, accepted) = tokio::join!(client.connect_to(&at, safely()), server.accept());
        let (mut stream, _accepted) = (stream.unwrap(), accepted.unwrap());
        let bufs = vec![IoSlice::new(b"a"); 1500];
        let taken = stream.write_vectored(&bufs).await;
        assert!(matches!(taken, Ok(1..)), "{taken:?}");
    });
}

// ---- The race ---------------------------------------------------------------------------------------------------

/// The host has no route to the first address, so nothing left for it.
#[test]
fn an_address_without_a_route_does_not_take_the_first_flight() {
    in_namespace("3", || async {
        let (server, at, client) = with_cookie().await;
        let addresses = ["[2001:db8::1]:80".parse().unwrap(), SocketAddr::from(([127, 0, 0, 1], at.port()))];
        let (stream, accepted) = tokio::join!(client.connect_at(&at, &addresses, safely()), server.accept());
        drop(accepted);
        assert_eq!(stream.unwrap().outcome(), Outcome::Accepted);
    });
}

// ---- Client -----------------------------------------------------------------------------------------------------

/// Sockets of UDP in this thread's namespace.
fn udp_sockets() -> usize {
    ["udp", "udp6"]
        .map(|file| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap().lines().count() - 1
        })
        .iter()
        .sum()
}

/// A program makes a client for each of its tasks.
#[test]
fn a_client_that_is_gone_leaves_no_socket_and_no_task() {
    in_namespace("3", || async {
        let issuer = verifier(&PrivateKey::from_seed(&[1; 32])).await;
        let (server, at, _client) = with_cookie().await;
        tokio::spawn(async move { while server.accept().await.is_ok() {} });
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (sockets, before) = (udp_sockets(), tasks());
        for closed in [true, false] {
            for _ in 0..3 {
                let builder = Client::builder().network(NETWORK).verifier(issuer.clone()).no_resolver();
                let client = ready(builder).await;
                drop(client.connect_to(&at, safely()).await.unwrap());
                if closed {
                    client.close().await;
                }
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!((udp_sockets(), tasks()), (sockets, before), "closed: {closed}");
        }
    });
}
