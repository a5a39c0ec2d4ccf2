//! Attacks on `Client`, `Server`, `LazyStream` and the race, from their specification alone.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use super::site;
use super::site::{Certified, NETWORK, REQUEST, answer, block, once, policy, ready, safely, verifier};
use crate::namespace::{filter, in_namespace, nft};
use firstflight::credential::asap::{Identity, PrivateKey};
use firstflight::credential::{NetworkId, Outcome, Reason};
use firstflight::kernel::{self, ListenConfig};
use firstflight::record::Published;
use firstflight::{Authority, Client, FirstFlight, Server, Stream, Way};
use firstflight::{CachedCookie, CachedServer, CredentialCache, LazyStream, ReplaySafety};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

/// All requests that servers of this process have executed.
static ALL: std::sync::Mutex<Vec<([u8; 7], u32, SocketAddr)>> = std::sync::Mutex::new(Vec::new());

async fn certified() -> Certified {
    site::certified(note).await
}

fn note(request: [u8; REQUEST.len()], stream: &Stream) {
    ALL.lock().unwrap().push((request, stream.early_bytes(), stream.peer_addr().unwrap()));
}

fn replayable(data: &[u8]) -> bool {
    ReplaySafety::ByMethod.flight(data).is_replayable()
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

// ---- ReplaySafety::ByMethod -------------------------------------------------------------------------------------

#[test]
fn a_second_request_behind_a_bare_lf_is_not_safe() {
    for data in [
        &b"GET / HTTP/1.1\nHost: a\n\nDELETE /all HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: a\r\n\nDELETE /all HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\n\r\nDELETE /all HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert!(!replayable(data), "{:?}", String::from_utf8_lossy(data));
    }
}

#[test]
fn a_disguised_length_is_not_safe() {
    let mut wrong = Vec::new();
    for data in [
        "GET / HTTP/1.1\r\nContent-Length : 5\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length\t: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
        "GET / HTTP/1.1\r\n Content-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length\0: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nA: b\rContent-Length: 5\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length\r\n : 5\r\n\r\n",
    ] {
        if replayable(data.as_bytes()) {
            wrong.push(data);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// HEADERS, whose fragment is empty, with one byte of padding that looks like GET; the fields, of a POST, are in the
/// CONTINUATION.
#[test]
fn padding_is_not_a_method() {
    let settings = frame(4, 0, &[]);
    let padded = frame(1, 1 | 8, &[1, 0x82]);
    let post = frame(9, 4, &[0x83, 0x86, 0x84]);
    let flight = [PREFACE, &settings, &padded, &post].concat();
    assert!(!replayable(&flight), "a POST counts as GET");
}

#[test]
fn an_incomplete_header_block_is_no_whole_request() {
    let flight = [PREFACE, &frame(4, 0, &[]), &frame(1, 1, &[0x82])].concat();
    assert!(!replayable(&flight), "HEADERS without END_HEADERS and without CONTINUATION");
}

#[test]
fn a_second_method_in_the_same_block() {
    let flight = [PREFACE, &frame(4, 0, &[]), &frame(1, 5, &[0x82, 0x83, 0x86, 0x84])].concat();
    assert!(!replayable(&flight), ":method: GET and :method: POST in one block");
}

// ---- LazyStream -------------------------------------------------------------------------------------------------

/// One task reads and another one writes. The writer's second write waits for the connect, too.
#[test]
fn a_reader_and_a_writer_that_wait_for_the_connect_both_wake() {
    in_namespace("3", || async {
        let echo = Server::bind("127.0.0.1:0").await.unwrap();
        let at = echo.local_addrs()[0];
        tokio::spawn(async move {
            let mut stream = echo.accept().await.unwrap();
            let mut got = [0; 6];
            stream.read_exact(&mut got).await.unwrap();
            stream.write_all(b"answer").await.unwrap();
            std::future::pending::<()>().await;
        });
        let client = Client::builder().off(true).build().unwrap();
        let (tell, told) = tokio::sync::oneshot::channel::<()>();
        let lazy = LazyStream::new(move |first: Vec<u8>| async move {
            told.await.unwrap();
            Ok(client.connect(at, ReplaySafety::Safe.flight(&first)).await?)
        });
        let (mut reader, mut writer) = tokio::io::split(lazy);
        writer.write_all(b"one").await.unwrap();
        let reading = tokio::spawn(async move {
            let mut answer = [0; 6];
            reader.read_exact(&mut answer).await.map(|_| answer)
        });
        tokio::task::yield_now().await;
        let writing = tokio::spawn(async move { writer.write_all(b"two").await.map(|()| writer) });
        tokio::task::yield_now().await;
        tell.send(()).unwrap();
        let _writer = writing.await.unwrap().unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(3), reading).await;
        assert_eq!(&answer.expect("the reader is never woken").unwrap().unwrap(), b"answer");
    });
}

/// One task reads while the preface waits for the request, which another task writes.
#[test]
fn a_reader_that_waits_behind_the_preface_wakes() {
    in_namespace("3", || async {
        let settings = [PREFACE, &frame(4, 0, &[])].concat();
        let request = frame(1, 5, &[0x82, 0x86, 0x84]);
        let total = settings.len() + request.len();
        let echo = Server::bind("127.0.0.1:0").await.unwrap();
        let at = echo.local_addrs()[0];
        tokio::spawn(async move {
            let mut stream = echo.accept().await.unwrap();
            let mut got = vec![0; total];
            stream.read_exact(&mut got).await.unwrap();
            stream.write_all(b"answer").await.unwrap();
            std::future::pending::<()>().await;
        });
        let client = Client::builder().off(true).build().unwrap();
        let lazy = client.connect(at, FirstFlight::empty()).lazy(ReplaySafety::ByMethod);
        let (mut reader, mut writer) = tokio::io::split(lazy);
        writer.write_all(&settings).await.unwrap();
        let reading = tokio::spawn(async move {
            let mut answer = [0; 6];
            reader.read_exact(&mut answer).await.map(|_| answer)
        });
        tokio::task::yield_now().await;
        writer.write_all(&request).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(3), reading).await;
        assert_eq!(&answer.expect("the reader is never woken").unwrap().unwrap(), b"answer");
    });
}

// ---- Server -----------------------------------------------------------------------------------------------------

/// The connection is complete and its data acknowledged before the runtime has looked at its sockets.
#[test]
fn a_drain_finds_what_the_runtime_has_not_seen_yet() {
    in_namespace("3", || async {
        let mut server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
        let at = server.local_addrs()[0];
        let mut client = std::net::TcpStream::connect(at).unwrap();
        client.write_all(REQUEST).unwrap();
        let waiting = server.drain().0;
        drop(server);
        assert_eq!(waiting.len(), 1, "lost: the client then reads {:?}", client.read(&mut [0; 1]));
    });
}

/// The same with a first flight that was accepted, in a server that waits in `accept`.
#[test]
fn a_drain_finds_a_first_flight_that_came_just_now() {
    in_namespace("3", || async {
        let mut server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
        let at: Authority = server.local_addrs()[0].into();
        let client = Client::new();
        let (first, accepted) = tokio::join!(client.connect(&at, safely()), server.accept());
        drop((first.unwrap(), accepted.unwrap()));
        // The server waits.
        let waits = tokio::time::timeout(Duration::from_millis(50), server.accept()).await;
        assert!(waits.is_err());
        // The SYN with data leaves in the first poll, and the kernel answers it.
        let mut connect = pin!(client.connect(&at, safely()).into_future());
        let mut begun = false;
        while !begun {
            let _ = poll_once(connect.as_mut());
            begun = kernel_queue(at.port()) > 0;
        }
        let waiting = server.drain().0;
        drop(server);
        assert_eq!(waiting.len(), 1, "an accepted first flight is lost");
    });
}

/// How many connections wait to be accepted at this port.
fn kernel_queue(port: u16) -> u32 {
    let output = std::process::Command::new("ss").args(["-Hltn", &format!("sport = :{port}")]).output();
    let Ok(output) = output else { return 1 };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Between `drain` and the drop the kernel goes on to complete handshakes and to acknowledge data.
#[test]
fn nothing_is_acknowledged_after_the_drain() {
    in_namespace("3", || async {
        let mut server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
        let at = server.local_addrs()[0];
        let waiting = server.drain().0;
        assert!(waiting.is_empty());
        let client = std::net::TcpStream::connect_timeout(&at, Duration::from_millis(300));
        let mut written = false;
        if let Ok(mut client) = client {
            written = client.write_all(REQUEST).is_ok();
            drop(server);
            let read = client.read(&mut [0; 1]);
            assert!(!written || read.is_ok(), "acknowledged, and lost: {read:?}");
        }
        let _ = written;
    });
}

/// Two tasks accept, and one of them gives up.
#[test]
fn an_accept_that_is_dropped_does_not_silence_another_one() {
    in_namespace("3", || async {
        let server = Arc::new(Server::bind("127.0.0.1:0").await.unwrap());
        let at = server.local_addrs()[0];
        let other = Arc::clone(&server);
        let accepting = tokio::spawn(async move { other.accept().await.map(|_| ()) });
        tokio::task::yield_now().await;
        assert!(poll_once(pin!(server.accept())).is_pending());
        let _client = tokio::net::TcpStream::connect(at).await.unwrap();
        let accepted = tokio::time::timeout(Duration::from_secs(3), accepting).await;
        assert!(accepted.is_ok(), "the other accept is never woken");
    });
}

#[test]
fn two_addresses_of_one_family_are_served() {
    in_namespace("3", || async {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Server::builder()
            .address(SocketAddr::from(([127, 0, 0, 1], port)))
            .address(SocketAddr::from(([127, 0, 0, 2], port)))
            .bind();
        let server = server.expect("further addresses, all with one port");
        assert_eq!(server.local_addrs().len(), 2);
    });
}

#[test]
fn another_port_of_a_further_address_is_an_error() {
    in_namespace("3", || async {
        let port = |_: ()| std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (one, two) = (port(()), port(()));
        let server = Server::builder()
            .address(SocketAddr::from(([127, 0, 0, 1], one)))
            .address(format!("[::1]:{two}").parse().unwrap())
            .bind();
        if let Ok(server) = server {
            let ports: Vec<_> = server.local_addrs().iter().map(SocketAddr::port).collect();
            assert_eq!(ports, [one, two], "the port that was asked for is not served, silently");
        }
    });
}

#[test]
fn an_error_says_which_address_and_protocol() {
    in_namespace("3", || async {
        let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let builder = Server::builder().address("127.0.0.1:0".parse().unwrap()).udp_port(port);
        let error = builder.bind().unwrap_err().to_string();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = tcp.local_addr().unwrap();
        let second = Server::builder().address("127.0.0.2:0".parse().unwrap());
        drop(second);
        let taken = Server::builder().address(at).bind().unwrap_err().to_string();
        let udp = error.contains("UDP") && error.contains(&port.to_string());
        let tcp = taken.contains(&at.port().to_string());
        assert!(udp && tcp, "{error:?}; {taken:?}");
    });
}

/// A service manager passes TCP port 443, and the program has no privileges: UDP port 443 is not free for it.
#[test]
fn a_udp_port_without_permission_leaves_tcp_alone() {
    const WHO: &str = "ATTACK_CHILD";
    if std::env::var_os(WHO).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let server = Server::bind("127.0.0.1:443").await;
            eprintln!("CHILD {:?}", server.as_ref().map(Server::local_addrs));
            assert!(server.is_ok(), "{:?}", server.err());
        });
        return;
    }
    in_namespace("3", || async {
        let listener = std::net::TcpListener::bind("127.0.0.1:443").unwrap();
        let exe = std::env::current_exe().unwrap();
        let script = "exec 3<&0; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" --exact \
                      asap::client_attacks::a_udp_port_without_permission_leaves_tcp_alone --nocapture";
        let output = std::process::Command::new("setpriv")
            .args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--inh-caps=-all",
                "--bounding-set=-all",
            ])
            .args(["sh", "-c", script])
            .arg(exe)
            .env(WHO, "1")
            .stdin(std::os::fd::OwnedFd::from(listener))
            .output()
            .unwrap();
        let text =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    });
}

// ---- The race ---------------------------------------------------------------------------------------------------

/// The server executes a first flight, its SYN-ACK is lost, and it ends the connection with a RST, and itself.
#[test]
fn a_first_flight_that_was_executed_and_reset_is_maybe_delivered() {
    in_namespace("3", || async {
        let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
        let at: Authority = server.local_addrs()[0].into();
        let client = Client::new();
        let (first, accepted) = tokio::join!(client.connect(&at, safely()), server.accept());
        drop((first.unwrap(), accepted.unwrap()));
        let rule = format!("tcp sport {} tcp flags & (syn | ack) == (syn | ack) drop", at.port());
        if !filter("input", &rule) {
            return;
        }
        let executing = async {
            let mut stream = server.accept().await.unwrap();
            let mut request = [0; REQUEST.len()];
            stream.read_exact(&mut request).await.unwrap();
            assert!(stream.early_bytes() > 0);
            stream.abort();
            drop(stream);
            drop(server);
        };
        let (result, ()) = tokio::join!(client.connect(&at, safely()), executing);
        let error = result.unwrap_err();
        assert!(error.maybe_delivered(), "it was executed: {error}");
    });
}

/// The first of three servers executes a first flight, and its SYN-ACKs are lost. The others refuse, or do not answer.
#[test]
fn a_first_flight_whose_attempt_was_displaced_is_maybe_delivered() {
    in_namespace("3", || async {
        let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
        let address = server.local_addrs()[0];
        let at: Authority = address.into();
        let client = Client::new();
        let (first, accepted) = tokio::join!(client.connect(&at, safely()), server.accept());
        drop((first.unwrap(), accepted.unwrap()));
        // Its round-trip time is known, so its plain SYN comes second. Nothing of it arrives. The other two drop
        // SYNs for a while and then refuse.
        let port = address.port();
        let rule = format!(
            "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; \
             add rule ip t c ip saddr 127.0.0.1 tcp sport {port} drop; \
             add rule ip t c ip daddr 127.0.0.2 tcp dport {port} drop; \
             add rule ip t c ip daddr 127.0.0.3 tcp dport {port} drop"
        );
        if !nft(&rule) {
            return;
        }
        let addresses = [1, 2, 3].map(|n| SocketAddr::from(([127, 0, 0, n], port)));
        let executing = async {
            let mut stream = server.accept().await.unwrap();
            let mut request = [0; REQUEST.len()];
            stream.read_exact(&mut request).await.unwrap();
            assert!(stream.early_bytes() > 0);
            // Now everything is refused at once.
            tokio::time::sleep(Duration::from_millis(800)).await;
            drop(stream);
            drop(server);
            assert!(nft("flush ruleset"));
        };
        let (result, ()) = tokio::join!(client.connect(&at, safely()).at(&addresses[..]), executing);
        let error = result.unwrap_err();
        assert!(error.maybe_delivered(), "it was executed: {error}");
    });
}

/// The first SYN to each of ten addresses is lost, and the kernel's second one, a second later, is answered.
#[test]
fn many_addresses_are_not_slower_than_a_plain_connect() {
    in_namespace("3", || async {
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok(one) = listener.accept().await {
                open.push(one);
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let rules = dir.path().join("rules");
        std::fs::write(
            &rules,
            "table ip t {\n set seen { type ipv4_addr . inet_service; flags dynamic,timeout; timeout 60s; }\n chain c { \
             type filter hook input priority 0; tcp flags & (syn|ack) == syn ip daddr . tcp sport @seen accept; \
             tcp flags & (syn|ack) == syn add @seen { ip daddr . tcp sport } drop; }\n}\n",
        )
        .unwrap();
        let loaded = std::process::Command::new("nft").arg("-f").arg(&rules).status();
        if !loaded.is_ok_and(|status| status.success()) {
            return;
        }
        let addresses: Vec<_> = (1..=10).map(|n| SocketAddr::from(([127, 0, 0, n], port))).collect();
        let client = Client::builder().off(true).build().unwrap();
        let stream = client.connect(addresses[0], safely()).at(&addresses[..]).await.unwrap();
        // It kept its place until it was answered.
        assert_eq!(stream.peer_addr().unwrap(), addresses[0]);
    });
}

/// The winner began first, so those that began later have not lost.
#[test]
fn an_attempt_that_began_after_the_winner_has_not_lost() {
    in_namespace("3", || async {
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok(one) = listener.accept().await {
                open.push(one);
            }
        });
        let [a, b] = [1, 2].map(|n| SocketAddr::from(([127, 0, 0, n], port)));
        let client = Client::builder().kernel_only().network(NetworkId::UNKNOWN).build().unwrap();
        let rule = format!(
            "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; add rule ip t c tcp dport {port} drop"
        );
        if !nft(&rule) {
            return;
        }
        let opening = async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            assert!(nft("flush ruleset"));
        };
        // Both SYNs are lost; the kernel's second one to `a` comes 250 ms before that to `b`.
        let order = [a, b];
        let (won, ()) =
            tokio::join!(client.connect(a, FirstFlight::empty()).at(order).into_future(), opening);
        assert_eq!(won.unwrap().peer_addr().unwrap(), a);
        let next = client.connect(b, FirstFlight::empty()).at([b, a]).await.unwrap();
        assert_eq!(next.peer_addr().unwrap(), b, "the caller's first address counts as one that lost");
    });
}

/// A SYN is refused on one network, and the host moves before the plain one is answered.
#[test]
fn what_was_learnt_during_a_move_is_not_used_on_the_next_network() {
    in_namespace("3", || async {
        let listener = kernel::listen("127.0.0.1:0".parse().unwrap(), ListenConfig::default()).unwrap();
        let at = listener.local_addr();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok(one) = listener.accept().await {
                open.push(one);
            }
        });
        let client = Client::builder().kernel_only().network(NETWORK).build().unwrap();
        drop(client.connect(at, safely()).await.unwrap());
        let rule = format!(
            "tcp dport {} tcp flags & (syn | ack) == syn meta length > 74 reject with tcp reset",
            at.port()
        );
        if !filter("input", &rule) {
            return;
        }
        let mut connect = Box::pin(client.connect(at, safely()).into_future());
        assert!(poll_once(connect.as_mut()).is_pending());
        client.move_to(NetworkId([2; 16]));
        let refused = connect.await.unwrap();
        assert_eq!(refused.outcome(), Outcome::Handshake(Reason::SynRefused));
        assert!(nft("flush ruleset"));
        // Nothing was ever refused on this network.
        let next = client.connect(at, safely()).await.unwrap();
        assert_ne!(next.outcome(), Outcome::Handshake(Reason::FailureMemory), "learnt on the other network");
    });
}

// ---- Memory and files -------------------------------------------------------------------------------------------

fn cached(server: &str, network: NetworkId) -> CachedServer {
    CachedServer {
        network,
        server: server.parse().unwrap(),
        cookies: vec![CachedCookie {
            cookie: firstflight_wire::tcp::Cookie::new(&[1; 8]).unwrap(),
            experimental: false,
            granted: firstflight::unix_ms(),
        }],
        one_time: false,
        mss: Some(1460),
        rtt: None,
        path_mss: None,
        failures: 0,
        lost: 0,
        lost_at: 0,
        avoided: None,
    }
}

/// The engine of one client (or another program) stores a cookie, and the kernel's side learns a round-trip time.
#[test]
fn the_kernels_side_does_not_erase_an_engines_cookies() {
    in_namespace("3", || async {
        let listener = kernel::listen("127.0.0.1:0".parse().unwrap(), ListenConfig::default()).unwrap();
        let at = listener.local_addr();
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok(one) = listener.accept().await {
                open.push(one);
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        let client = Client::builder().kernel_only().network(NETWORK).cache(&path).build().unwrap();
        CredentialCache::update(&path, |servers| servers.push(cached("127.0.0.1", NETWORK))).unwrap();
        drop(client.connect(at, safely()).await.unwrap());
        client.close().await;
        let servers = CredentialCache::read(&path).unwrap();
        assert!(servers[0].rtt.is_some());
        assert_eq!(servers[0].cookies.len(), 1, "the cookie is lost");
    });
}

/// A client is used in one runtime after another, as by blocking programs.
#[test]
fn the_file_is_written_in_a_second_runtime_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at: Authority = listener.local_addr().unwrap().into();
    // In one runtime alone it is.
    let other = dir.path().join("other");
    let client = Client::builder().network(NETWORK).fast_open(false).cache(&other).build().unwrap();
    runtime().block_on(async {
        drop(client.connect(&at, FirstFlight::empty()).await.unwrap());
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
    assert!(other.exists());
    let client = Client::builder().network(NETWORK).fast_open(false).cache(&path).build().unwrap();
    runtime().block_on(async { drop(client.connect(&at, FirstFlight::empty()).await.unwrap()) });
    runtime().block_on(async {
        drop(client.connect(&at, FirstFlight::empty()).await.unwrap());
        tokio::time::sleep(Duration::from_secs(4)).await;
    });
    assert!(path.exists(), "nothing was written in four seconds");
}

/// The network is not known yet, so the cache waits.
#[test]
fn forget_reaches_a_cache_that_waits_for_its_network() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        CredentialCache::write(&path, &[cached("192.0.2.1", NETWORK)]).unwrap();
        let client = Client::builder().cache(&path).build().unwrap();
        client.forget();
        client.close().await;
        assert!(CredentialCache::read(&path).unwrap().is_empty(), "forget left the file as it was");
    });
}

/// The host leaves a network without an id, and later joins another network without an id.
#[test]
fn a_client_key_of_an_unknown_network_is_not_used_on_the_next_unknown_one() {
    in_namespace("3", || async {
        use firstflight::verifier::{CertificatePool, Patience, PoolConfig, PoolSite};
        let key = PrivateKey::from_seed(&[1; 32]);
        let issuer = verifier(&key).await;
        let pool = CertificatePool::start(
            PoolConfig::default(),
            vec![issuer],
            NetworkId::UNKNOWN,
            Patience::default(),
        )
        .unwrap();
        let site = PoolSite::new("www.example.com");
        let ids = [key.public().id()];
        while pool.fresh() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let server = "127.0.0.1".parse().unwrap();
        let one = pool.certificate_for(&site, server, &ids).unwrap().body().client_key;
        pool.set_network(NETWORK);
        pool.set_network(NetworkId::UNKNOWN);
        let two = pool.certificate_for(&site, server, &ids).map(|two| two.body().client_key);
        assert_ne!(two, Some(one), "the same key on two networks");
    });
}

// ---- Client -----------------------------------------------------------------------------------------------------

/// A connect to known addresses alone never starts the engine, so no certificate is ever obtained.
#[test]
fn connect_at_alone_comes_to_use_certificates() {
    in_namespace("3", || async {
        let site = certified().await;
        let client = site.client.build().unwrap();
        let address: SocketAddr = site.at.to_string().parse().unwrap();
        for _ in 0..20 {
            let stream = answer(client.connect(&site.at, safely()).at([address]).await).await;
            if stream.way() == Way::Udp {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("four seconds, and no visit in UDP");
    });
}

/// A resolver that answers for addresses, and never for HTTPS records.
async fn resolver() -> (SocketAddr, UnboundedReceiver<u16>) {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut buf = [0; 1500];
        loop {
            let (len, from) = socket.recv_from(&mut buf).await.unwrap();
            let question = &buf[12..len];
            let end = 12 + question.iter().position(|b| *b == 0).unwrap() + 5;
            let kind = u16::from_be_bytes([buf[end - 4], buf[end - 3]]);
            let _ = tell.send(kind);
            if kind == 65 {
                continue;
            }
            let mut reply = buf[..end].to_vec();
            reply[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(kind == 1), 0, 0, 0, 0]);
            if kind == 1 {
                reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]);
            }
            socket.send_to(&reply, from).await.unwrap();
        }
    });
    (at, told)
}

#[test]
fn an_unanswered_https_question_does_not_delay_ordinary_connects() {
    in_namespace("3", || async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (at, mut asked) = resolver().await;
        let names = firstflight::record::Names::at(at).unwrap();
        let client = Client::builder().off(true).resolver(names).build().unwrap();
        let server: Authority = format!("www.example.com:{port}").parse().unwrap();
        for _ in 0..3 {
            drop(client.connect(&server, FirstFlight::empty()).await.unwrap());
        }
        let mut https = 0;
        while let Ok(kind) = asked.try_recv() {
            https += u32::from(kind == 65);
        }
        assert_eq!(https, 0, "questions of a client that is switched off");
    });
}

#[test]
fn a_record_that_was_given_is_not_asked_for() {
    in_namespace("3", || async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (at, mut asked) = resolver().await;
        let names = firstflight::record::Names::at(at).unwrap();
        let key = PrivateKey::from_seed(&[1; 32]);
        let issuer = verifier(&key).await;
        let server: Authority = format!("www.example.com:{port}").parse().unwrap();
        let record = Published::in_udp(9, 1200, &[key.public().id()]).unwrap();
        let client = Client::builder()
            .network(NETWORK)
            .verifier(issuer)
            .resolver(names)
            .record(server.clone(), record)
            .build()
            .unwrap();
        drop(client.tcp_only().connect(&server, FirstFlight::empty()).await.unwrap());
        let mut https = 0;
        while let Ok(kind) = asked.try_recv() {
            https += u32::from(kind == 65);
        }
        assert_eq!(https, 0, "the resolver was asked");
    });
}

/// glibc takes this for 127.0.0.1.
#[test]
fn a_number_in_hexadecimal_is_no_name() {
    for text in ["0x7f000001:80", "127.0.0x1:80", "0x7f.0x1:80"] {
        assert!(text.parse::<Authority>().is_err(), "{text}");
    }
}

/// The scope of a link-local address is a part of the address.
#[test]
fn an_authority_of_a_link_local_address_keeps_its_scope() {
    in_namespace("3", || async {
        let up = |args: &[&str]| std::process::Command::new("ip").args(args).status().unwrap().success();
        assert!(up(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]));
        assert!(up(&["link", "set", "v0", "up"]) && up(&["link", "set", "v1", "up"]));
        assert!(up(&["addr", "add", "fe80::1234/64", "dev", "v0", "nodad"]));
        let index: u32 = std::fs::read_to_string("/sys/class/net/v0/ifindex")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or_else(|| nix_index("v0"));
        let at = SocketAddr::V6(std::net::SocketAddrV6::new("fe80::1234".parse().unwrap(), 0, 0, index));
        let listener = tokio::net::TcpListener::bind(at).await.unwrap();
        let at = listener.local_addr().unwrap();
        let client = Client::builder().off(true).build().unwrap();
        let result = client.connect(at, FirstFlight::empty()).await;
        assert!(result.is_ok(), "{:?}", result.err().map(|error| error.to_string()));
    });
}

fn nix_index(name: &str) -> u32 {
    let output = std::process::Command::new("ip").args(["-o", "link", "show", name]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).split(':').next().unwrap().trim().parse().unwrap()
}

// ---- At most once in UDP ----------------------------------------------------------------------------------------

/// A client whose UDP has answered.
async fn answered(site: &mut Certified) -> Client {
    let builder = std::mem::take(&mut site.client);
    let client = ready(builder.servers_run_once(true)).await;
    answer(client.connect(&site.at, safely()).await).await;
    assert_eq!(site.executed.recv().await, Some(true));
    client
}

/// Every datagram to the server arrives twice.
#[test]
fn duplicated_datagrams_execute_an_order_once() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = answered(&mut site).await;
        let rule = format!("udp dport {} dup to 127.0.0.1 device lo", site.udp_port);
        if !filter("output", &rule) {
            return;
        }
        for _ in 0..20 {
            let stream = answer(client.connect(&site.at, once()).await).await;
            assert_eq!(stream.way(), Way::Udp);
            assert_eq!(site.executed.recv().await, Some(true));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(site.executed.try_recv().is_err(), "executed twice");
    });
}

/// The answers are lost for a while.
#[test]
fn a_lost_answer_is_maybe_delivered() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = answered(&mut site).await;
        let rule = format!("udp sport {} drop", site.udp_port);
        if !filter("input", &rule) {
            return;
        }
        let opening = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            assert!(nft("flush ruleset"));
        };
        let (result, ()) = tokio::join!(client.connect(&site.at, once()), opening);
        let executed = site.executed.try_recv().is_ok();
        assert!(site.executed.try_recv().is_err(), "executed twice");
        match result {
            Ok(stream) => assert_eq!(stream.way(), Way::Udp),
            Err(error) => assert!(error.maybe_delivered() || !executed, "executed: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(site.executed.try_recv().is_err(), "executed later or twice");
    });
}

/// The port closes: an ICMP error answers.
#[test]
fn an_order_refused_by_icmp_does_not_leave_by_another_way() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = answered(&mut site).await;
        let rule = format!("udp dport {} reject", site.udp_port);
        if !filter("input", &rule) {
            return;
        }
        let connect = client.connect(&site.at, once());
        match tokio::time::timeout(Duration::from_secs(8), connect).await {
            Err(_) => {}
            Ok(Ok(stream)) => panic!("connected by {:?}", stream.way()),
            Ok(Err(error)) => assert!(error.maybe_delivered(), "{error}"),
        }
        assert!(site.executed.try_recv().is_err());
    });
}

/// Another handle of the client is closed, and its engine with it, while the answer to an order is lost.
#[test]
fn an_order_whose_client_is_closed_is_maybe_delivered() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = answered(&mut site).await;
        let rule = format!("udp sport {} drop", site.udp_port);
        if !filter("input", &rule) {
            return;
        }
        let closing = async {
            assert_eq!(site.executed.recv().await, Some(true));
            client.clone().close().await;
        };
        let (result, ()) = tokio::join!(client.connect(&site.at, once()), closing);
        let error = result.unwrap_err();
        assert!(error.maybe_delivered(), "it was executed: {error}");
        assert!(error.to_string().starts_with("maybe delivered: "), "{error}");
    });
}

/// UDP is blocked from now on. The caller gives up on one order; the next one must not have the same fate for ten
/// minutes.
#[test]
fn an_unanswered_order_ends_the_trust_in_udp() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = answered(&mut site).await;
        if !block(site.udp_port) {
            return;
        }
        let connect = client.connect(&site.at, once());
        assert!(tokio::time::timeout(Duration::from_secs(4), connect).await.is_err());
        let connect = client.connect(&site.at, once());
        let next = tokio::time::timeout(Duration::from_secs(4), connect).await;
        assert!(next.is_ok(), "the next order gets no answer in UDP either");
    });
}

/// The future of an order is dropped at different moments.
#[test]
fn a_dropped_order_runs_at_most_once() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = answered(&mut site).await;
        for n in 0..40 {
            let connect = client.connect(&site.at, once());
            let _ = tokio::time::timeout(Duration::from_micros(n * 50), connect).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            let mut executed = 0;
            while site.executed.try_recv().is_ok() {
                executed += 1;
            }
            assert!(executed <= 1, "executed {executed} times");
        }
    });
}

// ---- More -------------------------------------------------------------------------------------------------------

/// A drained server goes on to accept first flights in UDP, and then loses them.
#[test]
fn a_drained_server_accepts_no_first_flight_in_udp() {
    in_namespace("3", || async {
        let key = PrivateKey::from_seed(&[1; 32]);
        let verifier = verifier(&key).await;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Server::builder()
            .address(address)
            .asap(policy(&key, Identity::address(address.ip(), port)))
            .bind()
            .unwrap();
        let record = Published::in_udp(server.udp_port().unwrap(), 1200, &[verifier.id()]).unwrap();
        let at = Authority::from(address);
        let client =
            Client::builder().network(NETWORK).verifier(verifier).no_resolver().record(at.clone(), record);
        let client = ready(client).await;
        assert!(server.drain().0.is_empty());
        let result = tokio::time::timeout(Duration::from_secs(3), client.connect(&at, safely())).await;
        let Ok(Ok(mut stream)) = result else { return };
        if stream.way() == Way::Udp && stream.outcome().is_accepted() {
            server.shutdown(Duration::from_secs(1)).await;
            let read = stream.read(&mut [0; 1]).await;
            assert!(read.is_ok(), "accepted after the drain, and lost: {read:?}");
        }
    });
}

#[test]
fn an_empty_write_is_not_the_first_flight() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let mut stream = LazyStream::new(move |first: Vec<u8>| async move {
            tell.send(first).unwrap();
            std::future::pending().await
        });
        assert_eq!(stream.write(b"").await.unwrap(), 0);
        let _ = tokio::time::timeout(Duration::from_millis(50), stream.write_all(b"request")).await;
        assert_eq!(told.try_recv().unwrap(), b"request");
    });
}

/// The preface waits two milliseconds at most, and a flush sends what was written.
#[test]
fn a_flushed_preface_leaves() {
    in_namespace("3", || async {
        let server = Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
        let client = Client::builder().off(true).build().unwrap();
        let mut stream =
            client.connect(server.local_addrs()[0], FirstFlight::empty()).lazy(ReplaySafety::ByMethod);
        stream.write_all(PREFACE).await.unwrap();
        stream.flush().await.unwrap();
        let accepted = tokio::time::timeout(Duration::from_secs(1), server.accept()).await;
        assert!(accepted.is_ok(), "flushed a second ago, and nothing has left");
    });
}

/// A program ends its server and starts it again.
#[test]
fn a_server_that_was_dropped_leaves_its_udp_port() {
    in_namespace("3", || async {
        let server = Server::bind("127.0.0.1:0").await.unwrap();
        let at = server.local_addrs()[0];
        assert_eq!(server.udp_port(), Some(at.port()));
        server.shutdown(Duration::from_secs(1)).await;
        let again = Server::bind(at).await.unwrap();
        assert_eq!(again.udp_port(), Some(at.port()), "\"belongs to another program\"");
    });
}

/// UDP is blocked, and the round-trip time is known: the bound of "never slower".
#[test]
fn blocked_udp_costs_no_more_than_the_race_delay() {
    in_namespace("3", || async {
        let site = certified().await;
        let client = ready(site.client).await;
        answer(client.tcp_only().connect(&site.at, safely()).await).await;
        if !block(site.udp_port) {
            return;
        }
        let stream = answer(client.connect(&site.at, safely()).await).await;
        assert_eq!(stream.way(), Way::Kernel);
        assert!(stream.race().is_some());
    });
}

/// The certified attempt is executed, its answer lost, and it is displaced by two at other addresses.
#[test]
fn a_displaced_attempt_in_udp_is_maybe_delivered() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = ready(site.client).await;
        let address: SocketAddr = site.at.to_string().parse().unwrap();
        answer(client.tcp_only().connect(&site.at, safely()).await).await;
        assert_eq!(site.executed.recv().await, Some(false));
        let port = address.port();
        let rule = format!(
            "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; \
             add rule ip t c udp sport {} drop; \
             add rule ip t c tcp dport {port} drop",
            site.udp_port
        );
        if !nft(&rule) {
            return;
        }
        // Later, TCP is refused everywhere.
        let opening = async {
            tokio::time::sleep(Duration::from_millis(900)).await;
            assert!(nft(&format!(
                "flush chain ip t c; add rule ip t c udp sport {} drop; \
                 add rule ip t c tcp dport {port} reject with tcp reset",
                site.udp_port
            )));
        };
        let other = SocketAddr::from(([127, 0, 0, 2], port));
        let addresses = [address, other];
        let (result, ()) = tokio::join!(client.connect(&site.at, safely()).at(&addresses[..]), opening);
        assert_eq!(site.executed.try_recv().ok(), Some(true));
        let error = result.unwrap_err();
        assert!(error.maybe_delivered(), "it was executed: {error}");
    });
}

/// Datagrams are lost and duplicated at random, in both directions.
#[test]
fn loss_and_duplication_execute_an_order_at_most_once() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = answered(&mut site).await;
        let port = site.udp_port;
        let rule = format!(
            "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; \
             add chain ip t d {{ type filter hook output priority 0; }}; \
             add rule ip t c udp dport {port} numgen random mod 100 < 30 drop; \
             add rule ip t c udp sport {port} numgen random mod 100 < 40 drop; \
             add rule ip t d udp dport {port} dup to 127.0.0.1 device lo; \
             add rule ip t d udp sport {port} dup to 127.0.0.1 device lo"
        );
        if !nft(&rule) {
            return;
        }
        let (mut ok, mut failed, mut late) = (0, 0, 0);
        let began = Instant::now();
        let mut log = Vec::new();
        for n in 0.. {
            if began.elapsed() > Duration::from_secs(5) {
                break;
            }
            let order = format!("o{n:06}");
            let connect = client.connect(&site.at, FirstFlight::at_most_once(order.as_bytes()));
            let result = tokio::time::timeout(Duration::from_secs(3), connect).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            let executed = executions(&order);
            match result {
                Ok(Ok(stream)) => {
                    ok += 1;
                    log.push((order.clone(), format!("{:?} {:?}", stream.way(), stream.outcome())));
                }
                Ok(Err(error)) => {
                    failed += 1;
                    log.push((order.clone(), error.to_string()));
                    assert!(executed.is_empty() || error.maybe_delivered(), "executed: {error}");
                }
                Err(_) => {
                    late += 1;
                    log.push((order.clone(), "given up".into()));
                }
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        eprintln!("{ok} connected, {failed} failed, {late} given up");
        for (order, what) in log {
            let executed = executions(&order);
            assert!(executed.len() <= 1, "{order} ({what}) executed {executed:?}");
        }
    });
}

fn executions(order: &str) -> Vec<(u32, SocketAddr)> {
    let all = ALL.lock().unwrap();
    all.iter().filter(|(one, ..)| one == order.as_bytes()).map(|(_, early, peer)| (*early, *peer)).collect()
}

/// Also systemd's default for `ListenStream=PORT` and `ListenDatagram=PORT`: sockets of both families.
#[test]
fn sockets_of_a_service_manager_serve_again_after_a_reload() {
    const WHO: &str = "ATTACK_CHILD_AT";
    if let Ok(at) = std::env::var(WHO) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for _ in 0..2 {
                let server = Server::bind(at.as_str()).await.unwrap();
                // A socket of both families is none for UDP.
                assert_eq!(server.udp_port().is_some(), !at.starts_with("[::]"));
                assert!(Server::bind(at.as_str()).await.is_err(), "two servers on one socket");
                let client = std::net::TcpStream::connect(&at).unwrap();
                let accepted = tokio::time::timeout(Duration::from_secs(10), server.accept()).await;
                accepted.expect("nobody listens").unwrap();
                drop(client);
                server.shutdown(Duration::from_secs(10)).await;
                // The driver of UDP ends with the last handle.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        return;
    }
    in_namespace("3", || async {
        for host in ["[::]", "127.0.0.1"] {
            let tcp = std::net::TcpListener::bind(format!("{host}:0")).unwrap();
            let at = format!("{host}:{}", tcp.local_addr().unwrap().port());
            let udp = std::net::UdpSocket::bind(&at).unwrap();
            let script = "exec 3<&0 4<&1 1>&2; export LISTEN_PID=$$ LISTEN_FDS=2; exec \"$0\" --exact \
                          asap::client_attacks::sockets_of_a_service_manager_serve_again_after_a_reload --nocapture";
            let output = std::process::Command::new("sh")
                .args(["-c", script])
                .arg(std::env::current_exe().unwrap())
                .env(WHO, at)
                .stdin(std::os::fd::OwnedFd::from(tcp))
                .stdout(std::os::fd::OwnedFd::from(udp))
                .stderr(std::process::Stdio::piped())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{host}: {text}");
        }
    });
}

/// Too many files are open while a server drains.
#[test]
fn a_drain_without_descriptors_does_not_lose_what_waits_silently() {
    const WHO: &str = "ATTACK_CHILD_FILES";
    if std::env::var_os(WHO).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut server =
                Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap();
            let at = server.local_addrs()[0];
            let mut client = std::net::TcpStream::connect(at).unwrap();
            client.write_all(REQUEST).unwrap();
            // The reactor sees it.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut files = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                files.push(file);
            }
            let (mut waiting, rest) = server.drain();
            assert!(rest.is_err());
            drop(files);
            let (more, rest) = server.drain();
            rest.unwrap();
            waiting.extend(more);
            client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let read = client.read(&mut [0; 1]).map_err(|error| error.kind());
            assert_eq!(waiting.len(), 1, "{read:?}");
        });
        return;
    }
    let script = "ulimit -n 64; exec \"$0\" --exact \
                  asap::client_attacks::a_drain_without_descriptors_does_not_lose_what_waits_silently --nocapture";
    let output = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(WHO, "1")
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// The private mode: nothing is asked of the kernel, nothing is read from or written to a file.
#[test]
fn a_private_client_leaves_a_cache_alone() {
    in_namespace("3", || async {
        let site = certified().await;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache");
        let client = ready(site.client.private(true).cache(&path)).await;
        let stream = answer(client.connect(&site.at, safely()).await).await;
        assert_eq!(stream.way(), Way::Udp);
        for _ in 0..2 {
            let stream = answer(client.tcp_only().connect(&site.at, safely()).await).await;
            assert_eq!(stream.outcome(), Outcome::Handshake(Reason::NotRequested));
        }
        client.close().await;
        assert!(!path.exists());
    });
}

/// All datagrams of an order are sent again, from the same address and port, when its connection is over.
#[test]
fn replayed_datagrams_execute_an_order_once() {
    in_namespace("3", || async {
        let mut site = certified().await;
        let client = answered(&mut site).await;
        let script = format!(
            "import socket,time\n\
             s=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.htons(3)); s.bind(('lo',0)); s.settimeout(0.1)\n\
             print('ready',flush=True)\n\
             got=[]; end=time.time()+1.5\n\
             while time.time()<end:\n\
             \x20try: p,a=s.recvfrom(2000)\n\
             \x20except TimeoutError: continue\n\
             \x20if a[2]==4 and p[23]==17 and int.from_bytes(p[36:38],'big')=={}: got.append(p)\n\
             for k in range(3):\n\
             \x20for p in got: s.send(p)\n\
             \x20time.sleep(0.2)\n\
             print(len(got),flush=True)\n",
            site.udp_port
        );
        let child = std::process::Command::new("python3")
            .args(["-c", &script])
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut child) = child else { return };
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        for order in ["replay1", "replay2"] {
            let first = FirstFlight::at_most_once(order.as_bytes());
            let stream = answer(client.connect(&site.at, first).await).await;
            assert_eq!((stream.way(), stream.outcome()), (Way::Udp, Outcome::Accepted));
        }
        tokio::time::sleep(Duration::from_secs(4)).await;
        line.clear();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        assert!(child.wait().unwrap().success());
        eprintln!("{} datagrams again", line.trim());
        assert!(line.trim().parse::<u32>().unwrap() >= 2);
        for order in ["replay1", "replay2"] {
            assert_eq!(executions(order).len(), 1, "{:?}", executions(order));
        }
    });
}

/// Several tasks accept, each serves one connection at a time, and one of them is slow.
#[test]
fn a_slow_worker_does_not_stop_the_others() {
    in_namespace("3", || async {
        let server =
            Arc::new(Server::builder().address("127.0.0.1:0".parse().unwrap()).tcp_only().bind().unwrap());
        let at = server.local_addrs()[0];
        for _ in 0..4 {
            let server = Arc::clone(&server);
            tokio::spawn(async move {
                while let Ok(mut stream) = server.accept().await {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).await.is_ok() {
                        let _ = stream.write_all(&byte).await;
                    }
                }
            });
        }
        tokio::task::yield_now().await;
        let mut open = Vec::new();
        for n in 0..4 {
            let mut one = tokio::net::TcpStream::connect(at).await.unwrap();
            one.write_all(b"x").await.unwrap();
            let echoed = tokio::time::timeout(Duration::from_secs(3), one.read_u8()).await;
            assert!(echoed.is_ok(), "connection {n} of 4 waits although workers are idle");
            open.push(one);
        }
    });
}
