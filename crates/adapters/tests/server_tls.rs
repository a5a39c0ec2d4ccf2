//! Servers of axum and tonic over TLS. What came early is seen by their handlers.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(dead_code, unreachable_pub, reason = "main of the example")]

#[path = "../examples/axum_tls.rs"]
mod axum_tls;

use crate::common::{Ca, client};
use crate::https::https_client;
use crate::namespace::in_namespace;
use crate::{tonic_both, tonic_tls};
use firstflight::credential::{FastOpenPolicy, KeyRing, NetworkId, Outcome, PendingLimit, Scheme};
use firstflight::link::{PathConfig, VirtualTime, virtual_time_pair};
use firstflight::{
    Authority, ConnectConfig, Endpoint, FirstFlight, ListenConfig, ReplaySafety, Server, Time,
    block_on_virtual,
};
use firstflight_adapters::{HttpsConnector, TlsIncoming};
use firstflight_tls::{Connector, Departure, Early, H2, HTTP_1_1};
use http::{Method, Version};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;

const BOTH: &[&[u8]] = &[H2, HTTP_1_1];

async fn bind() -> (Server, Authority) {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let at = server.local_addrs()[0].into();
    (server, at)
}

#[test]
fn a_get_of_a_known_client_is_early_for_the_handler_of_axum_and_a_post_is_not() {
    in_namespace("3", || async {
        let ca = Ca::new();
        for (alpn, version) in [(BOTH, Version::HTTP_2), (&[HTTP_1_1], Version::HTTP_11)] {
            let (server, at) = bind().await;
            tokio::spawn(axum_tls::serve(server, ca.acceptor("localhost", alpn)));
            let connector = HttpsConnector::new(client(), ca.connector(BOTH)).https_only(true);
            let uri = format!("https://localhost:{}/", at.port());
            for (method, early) in [
                (Method::GET, Early::None),
                (Method::GET, Early::Accepted),
                (Method::POST, Early::None),
                (Method::GET, Early::Accepted),
            ] {
                let visit = async || {
                    // A client of its own has no connection that is open already.
                    let client = https_client::client(connector.clone());
                    let visited = https_client::visit(&client, method.clone(), &uri).await.unwrap();
                    https_client::ticket(&visited.2).await;
                    visited
                };
                let mut visited = visit().await;
                // The preface of HTTP/2 waits two milliseconds for the request. On a busy machine it may leave alone.
                for _ in 0..20 {
                    if early == Early::None || visited.2.tls().unwrap().early == early {
                        break;
                    }
                    visited = visit().await;
                }
                let (text, spoken, info) = visited;
                println!("{method} {spoken:?}: {text}");
                assert_eq!((spoken, info.tls().unwrap().early), (version, early), "{method}");
                let (count, name) = text.split_once(" bytes came early, asked for ").unwrap();
                assert_eq!((count != "0", name), (early == Early::Accepted, "localhost"), "{method}: {text}");
            }
        }
    });
}

#[test]
fn a_call_of_a_known_client_is_early_for_the_service_of_tonic() {
    in_namespace("3", || async {
        let ca = Ca::new();
        let (server, at) = bind().await;
        tokio::spawn(tonic_tls::serve(server, ca.acceptor("localhost", &[H2])));
        let connector = HttpsConnector::new(client(), ca.connector(&[H2])).https_only(true);
        let call = async |safety| {
            let uri = format!("https://localhost:{}", at.port());
            let channel = tonic_tls::channel(&connector, uri, safety).unwrap();
            let (early, answer) = tonic_both::call(channel, "hello").await.unwrap();
            assert_eq!(answer, "hello");
            println!("{safety:?}: {early} bytes early");
            early
        };
        assert_eq!(call(ReplaySafety::Safe).await, 0, "no ticket yet");
        // The ticket comes behind the answer, and the preface of HTTP/2 may leave alone on a busy machine.
        let mut longest = 0;
        for _ in 0..50 {
            longest = longest.max(call(ReplaySafety::Safe).await);
            // The preface and its settings are shorter, and hold neither the path nor the message.
            if longest > 150 {
                break;
            }
        }
        assert!(longest > 150, "{longest}");
        assert_eq!(call(ReplaySafety::ByMethod).await, 0, "a POST");
    });
}

#[test]
fn a_handshake_that_stands_still_holds_up_nobody_and_ends() {
    in_namespace("3", || async {
        let ca = Ca::new();
        // One handshake at a time: the second client waits until the first one's time is over.
        for most in [2, 1] {
            let (server, at) = bind().await;
            let within = Duration::from_millis(300);
            let acceptor = ca.server("localhost", &[HTTP_1_1]).timeout(within).build().unwrap();
            let mut incoming =
                TlsIncoming::new(server, acceptor).max_handshakes(NonZeroUsize::new(most).unwrap());
            let mut silent = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], at.port()))).await.unwrap();
            let server = tokio::spawn(async move {
                let mut stream = incoming.accept().await;
                stream.write_all(b"hello").await.unwrap();
                // The handshakes of other clients advance only while somebody accepts.
                tokio::select! {
                    _ = incoming.accept() => panic!("nobody else speaks TLS"),
                    never = std::future::pending() => never,
                }
            });
            let tls = ca.connector(&[HTTP_1_1]);
            let name = format!("localhost:{}", at.port());
            let mut stream = tls.connect(&client(), &name, FirstFlight::empty()).await.unwrap();
            let mut said = [0; 5];
            stream.read_exact(&mut said).await.unwrap();
            assert_eq!(&said, b"hello");
            // The server gives up on who says nothing.
            assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
            server.abort();
        }
    });
}

/// On a path of 100 ms, on which the client's Finished comes a round trip after its early data.
#[test]
fn tasks_wait_for_the_finished_whether_the_connection_is_read_or_not() {
    const AT: &str = "10.0.0.2:443";
    let clock = VirtualTime::new(Duration::from_secs(1_800_000_000));
    let test = async {
        let config = PathConfig::with_delay(Duration::from_millis(50));
        let (a, b) = virtual_time_pair(config.clone(), config, 1, &clock).unwrap();
        let time = Time::from(clock.clone());
        let endpoint = |address: &str, link| {
            let config = firstflight::config(vec![address.parse().unwrap()]).unwrap();
            Endpoint::in_time(config, link, &time)
        };
        let (ours, theirs) = (endpoint("10.0.0.1", a), endpoint("10.0.0.2", b));
        let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
        let mut listen = ListenConfig::new(AT.parse().unwrap());
        listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
        let ca = Ca::new();
        let acceptor = ca.server("www.example.com", &[HTTP_1_1]).time(time.clone()).build().unwrap();
        let mut incoming = TlsIncoming::new(theirs.listen(listen).unwrap(), acceptor);
        let tls = Connector::builder().roots(ca.roots()).alpn([HTTP_1_1]).time(time.clone()).build().unwrap();
        let client = tokio::spawn(async move {
            let mut early = Vec::new();
            for _ in 0..3 {
                let data = FirstFlight::safely_replayable(b"request");
                let departure = Departure::in_syn(NetworkId::UNKNOWN);
                let hello = tls.hello(&"www.example.com:443".parse().unwrap(), departure, data).unwrap();
                let first = hello.bytes().to_vec();
                let first = FirstFlight::safely_replayable(&first);
                let config = ConnectConfig::default().fast_open(true);
                let stream = ours.connect(AT.parse::<SocketAddr>().unwrap(), first, &config).await.unwrap();
                let mut stream = hello.finish(stream).await.unwrap();
                stream.read_to_end(&mut Vec::new()).await.unwrap();
                early.push(stream.handshake().early);
                stream.shutdown().await.unwrap();
                time.sleep(Duration::from_secs(1)).await;
            }
            early
        });
        // The first visit gets a cookie and tickets.
        for (visit, reads) in [(0, true), (1, false), (2, true)] {
            let mut stream = incoming.accept().await;
            let peer = stream.peer();
            let waiting: Vec<_> = (0..5)
                .map(|_| {
                    let peer = peer.clone();
                    tokio::spawn(async move { peer.confirmed().await.map(|()| peer.is_early()) })
                })
                .collect();
            let mut request = [0; 7];
            stream.read_exact(&mut request).await.unwrap();
            assert_eq!(&request, b"request");
            if visit > 0 {
                assert!(peer.is_early(), "the client has not seen the server's Finished yet");
                assert_eq!((peer.early_bytes(), peer.outcome()), (7, Outcome::Accepted));
                assert!(peer.tls().unwrap().resumed);
            } else {
                assert_eq!((peer.early_bytes(), peer.is_early()), (0, false));
            }
            if reads {
                // A task that reads has the place of the stream's reader.
                let mut buffer = ReadBuf::new(&mut request);
                let read = poll_fn(|cx| Poll::Ready(Pin::new(&mut stream).poll_read(cx, &mut buffer))).await;
                assert!(read.is_pending());
            }
            for one in waiting {
                assert!(!one.await.unwrap().unwrap());
            }
            stream.write_all(b"answer").await.unwrap();
            stream.shutdown().await.unwrap();
            drop(stream);
            assert_eq!(peer.early_bytes(), if visit > 0 { 7 } else { 0 });
            peer.confirmed().await.unwrap();
            assert_eq!(peer.server_name(), Some("www.example.com"));
        }
        let early = client.await.unwrap();
        assert_eq!(early, [Early::None, Early::Accepted, Early::Accepted]);
    };
    block_on_virtual(&clock, test).unwrap();
}

/// Who repeats a first flight can complete TCP's handshake, but not that of TLS.
#[test]
fn a_connection_that_ends_before_its_finished_is_not_confirmed() {
    in_namespace("3", || async {
        let ca = Ca::new();
        let (server, at) = bind().await;
        let mut incoming = TlsIncoming::new(server, ca.acceptor("localhost", &[HTTP_1_1]));
        let tls = ca.connector(&[HTTP_1_1]);
        let site: Authority = format!("localhost:{}", at.port()).parse().unwrap();
        let hello = tls.hello(&site, Departure::elsewhere(NetworkId::UNKNOWN), FirstFlight::empty()).unwrap();
        let mut stream = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], at.port()))).await.unwrap();
        stream.write_all(hello.bytes()).await.unwrap();
        let served = incoming.accept().await;
        let peer = served.peer();
        assert!(peer.is_early());
        drop(stream);
        let (mut served, waiting) = (served, tokio::spawn(async move { (peer.confirmed().await, peer) }));
        assert!(served.read(&mut [0]).await.is_err());
        drop(served);
        let (confirmed, peer) = waiting.await.unwrap();
        assert!(confirmed.is_err() && peer.is_early());
        assert!(peer.confirmed().await.is_err());
    });
}
