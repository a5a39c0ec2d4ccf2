//! More attacks on `Client`, `Server`, `LazyStream` and the race: on what mended the first ones.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::site::{NETWORK, REQUEST, ready, safely, verifier};
use crate::namespace::{filter, in_namespace, nft};
use firstflight::credential::asap::PrivateKey;
use firstflight::credential::{Outcome, Reason};
use firstflight::{Authority, Client, FirstFlight, ReplaySafety, Server};
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
    let (first, accepted) = tokio::join!(client.connect(&at, safely()), server.accept());
    drop((first.unwrap(), accepted.unwrap()));
    (server, at, client)
}

// ---- Server -----------------------------------------------------------------------------------------------------

/// The client resets the connection that a copy of its SYN opened, before the server accepts. The server can still read
/// the copied data.
#[test]
fn a_connection_that_was_reset_before_its_ack_is_early() {
    in_namespace("3", || async {
        let (server, at, client) = with_cookie().await;
        let rule = format!("tcp sport {} tcp flags & (syn | ack) == (syn | ack) drop", at.port());
        if !filter("input", &rule) {
            return;
        }
        let mut connect = Box::pin(client.connect(&at, safely()).into_future());
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

/// The next instance begins before the earlier one ends, with the same socket.
#[test]
fn a_socket_that_was_passed_takes_first_flights_after_a_drain() {
    in_namespace("3", || async {
        let passed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at: Authority = passed.local_addr().unwrap().into();
        let adopt = |pending| {
            let mut config = firstflight::kernel::ListenConfig::default();
            config.pending = pending;
            firstflight_kernel::Listener::adopt(passed.try_clone().unwrap(), config).unwrap()
        };
        // The earlier one did without Fast Open.
        let (earlier, next) = (adopt(0), adopt(256));
        earlier.drain().unwrap();
        drop(earlier);
        let client = Client::new();
        let mut outcomes = Vec::new();
        for _ in 0..2 {
            let (stream, accepted) = tokio::join!(client.connect(&at, safely()), next.accept());
            outcomes.push(accepted.unwrap().outcome());
            drop(stream.unwrap());
        }
        assert_eq!(outcomes, [Outcome::Handshake(Reason::NoCredential), Outcome::Accepted]);
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
        let (stream, accepted) = tokio::join!(client.connect(&at, safely()), server.accept());
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
        let (stream, accepted) = tokio::join!(client.connect(&at, safely()), server.accept());
        let (mut stream, _accepted) = (stream.unwrap(), accepted.unwrap());
        let bufs = vec![IoSlice::new(b"a"); 1500];
        let taken = stream.write_vectored(&bufs).await;
        assert!(matches!(taken, Ok(1..)), "{taken:?}");
    });
}

/// Its caller waits for something else than the stream, as it may with any stream.
#[test]
fn a_first_write_leaves_although_nobody_polls_the_stream() {
    in_namespace("3", || async {
        let server = Server::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new();
        let mut stream =
            client.connect(server.local_addrs()[0], FirstFlight::empty()).lazy(ReplaySafety::ByMethod);
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let accepted = tokio::time::timeout(Duration::from_secs(1), server.accept()).await;
        assert!(accepted.is_ok(), "written a second ago, and nothing has left");
        drop(stream);
    });
}

/// The second method is spelt out, plain or in Huffman's code.
#[test]
fn a_second_method_that_is_spelt_out() {
    for name in [&b"\x07:method"[..], b"\x85\xb9\x49\x53\x39\xe4"] {
        let fields = [&[0x82, 0x40][..], name, &[6], b"DELETE", &[0x86, 0x84]].concat();
        let len = (fields.len() as u32).to_be_bytes();
        let head = [&len[1..], &[1, 5, 0, 0, 0, 1], &fields].concat();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let flight = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &head].concat();
        assert!(!ReplaySafety::ByMethod.flight(&flight).is_replayable(), "{fields:x?}");
    }
}

// ---- The race ---------------------------------------------------------------------------------------------------

/// The host has no route to the first address, so nothing left for it.
#[test]
fn an_address_without_a_route_does_not_take_the_first_flight() {
    in_namespace("3", || async {
        let (server, at, client) = with_cookie().await;
        let addresses = ["[2001:db8::1]:80".parse().unwrap(), SocketAddr::from(([127, 0, 0, 1], at.port()))];
        let (stream, accepted) =
            tokio::join!(client.connect(&at, safely()).at(&addresses[..]), server.accept());
        drop(accepted);
        assert_eq!(stream.unwrap().outcome(), Outcome::Accepted);
    });
}

/// The host moves from a network without an id to another one without an id, and its caller says so.
#[test]
fn what_was_learnt_on_an_unknown_network_is_not_used_on_the_next_unknown_one() {
    in_namespace("3", || async {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let addresses = [2, 1].map(|n| SocketAddr::from(([127, 0, 0, n], port)));
        let server = Server::builder().address(addresses[0]).address(addresses[1]).tcp_only().bind().unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok(one) = server.accept().await {
                open.push(one);
            }
        });
        let at: Authority = addresses[0].into();
        // Its network is never known.
        let client = Client::builder().off(true).build().unwrap();
        if !nft("table ip t { chain c { type filter hook input priority 0; ip daddr 127.0.0.2 drop; }; }") {
            return;
        }
        let stream = client.connect(&at, safely()).at(&addresses[..]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
        assert!(nft("flush ruleset"));
        client.network_changed().await;
        let stream = client.connect(&at, safely()).at(&addresses[..]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), addresses[0], "the other network's losers are tried last");
    });
}

/// The caller's resolver answers for addresses, and never for HTTPS records.
#[test]
fn an_unanswered_https_question_does_not_delay_a_connect_by_the_callers_resolver() {
    in_namespace("3", || async {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let resolver = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buf = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut buf).await {
                let end = 12 + buf[12..len].iter().position(|byte| *byte == 0).unwrap() + 5;
                let kind = u16::from_be_bytes([buf[end - 4], buf[end - 3]]);
                let mut answer = buf[..end].to_vec();
                (answer[2], answer[3]) = (0x85, 0x80);
                answer[6..12].fill(0);
                match kind {
                    1 => {
                        answer[7] = 1;
                        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
                    }
                    28 => {}
                    _ => continue,
                }
                let _ = socket.send_to(&answer, from).await;
            }
        });
        let server = Server::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addrs()[0].port();
        tokio::spawn(async move { while server.accept().await.is_ok() {} });
        let issuer = verifier(&PrivateKey::from_seed(&[1; 32])).await;
        let names = firstflight::record::Names::at(resolver).unwrap();
        let client = Client::builder().network(NETWORK).verifier(issuer).resolver(names).build().unwrap();
        let server = format!("www.example.com:{port}");
        let _ = client.connect(&server, safely()).await.unwrap();
        let began = Instant::now();
        let _ = client.connect(&server, safely()).await.unwrap();
        let took = began.elapsed();
        assert!(took < Duration::from_millis(40), "{took:?}: a server that never published anything");
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
                drop(client.connect(&at, safely()).await.unwrap());
                if closed {
                    client.close().await;
                }
            }
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!((udp_sockets(), tasks()), (sockets, before), "closed: {closed}");
        }
    });
}

/// The number of questions for HTTPS records at a resolver in port 53 of this address.
async fn counts_questions(at: &str) -> Arc<AtomicU32> {
    let socket = tokio::net::UdpSocket::bind((at, 53)).await.unwrap();
    let count = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&count);
    tokio::spawn(async move {
        let mut buf = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buf).await {
            let end = 12 + buf[12..len].iter().position(|byte| *byte == 0).unwrap() + 5;
            let kind = u16::from_be_bytes([buf[end - 4], buf[end - 3]]);
            told.fetch_add(u32::from(kind == 65), Ordering::Relaxed);
            // There is no such name.
            let mut answer = buf[..end].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0]);
            let _ = socket.send_to(&answer, from).await;
        }
    });
    count
}

/// The next network has other resolvers, and those of the last one are not to learn which servers are visited there.
#[test]
fn the_last_networks_resolver_is_not_asked_on_the_next_one() {
    in_namespace("3", || async {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("resolv.conf");
        std::fs::write(&file, "nameserver 127.0.0.1\n").unwrap();
        let run = |args: &[&str]| {
            std::process::Command::new("mount").args(args).status().is_ok_and(|status| status.success())
        };
        if !run(&["--make-rprivate", "/"]) || !run(&["--bind", file.to_str().unwrap(), "/etc/resolv.conf"]) {
            eprintln!("skipped: mount does not work here");
            return;
        }
        let (one, two) = (counts_questions("127.0.0.1").await, counts_questions("127.0.0.2").await);
        let issuer = verifier(&PrivateKey::from_seed(&[1; 32])).await;
        let client = Client::builder().verifier(issuer).build().unwrap();
        let wait = || tokio::time::sleep(Duration::from_millis(200));
        assert!(client.connect("one.test:80", safely()).await.is_err());
        wait().await;
        assert_eq!((one.load(Ordering::Relaxed), two.load(Ordering::Relaxed)), (1, 0));
        std::fs::write(&file, "nameserver 127.0.0.2\n").unwrap();
        client.network_changed().await;
        assert!(client.connect("two.test:80", safely()).await.is_err());
        wait().await;
        assert_eq!(
            (one.load(Ordering::Relaxed), two.load(Ordering::Relaxed)),
            (1, 1),
            "the old one is asked"
        );
    });
}
