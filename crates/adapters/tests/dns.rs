//! hickory's resolver in a network namespace whose kernel grants cookies. The server sees what rode in a SYN.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(dead_code, unreachable_pub, reason = "main of the example")]

#[path = "../examples/hickory_resolver.rs"]
mod hickory_resolver;

use crate::common::{Ca, client};
use crate::namespace::in_namespace;
use ::hickory_resolver::Resolver;
use ::hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use ::hickory_resolver::proto::rr::{RData, RecordType};
use firstflight::{Server, Stream};
use firstflight_adapters::HickoryProvider;
use firstflight_tls::{Acceptor, rustls};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
const NAME: &str = "www.example.com.";

async fn bind() -> (Server, SocketAddr) {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let at = server.local_addrs()[0];
    (server, at)
}

/// Answers one query. Returns its length with the two bytes in front.
async fn answer<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> u64 {
    let length = stream.read_u16().await.unwrap();
    let mut query = vec![0; usize::from(length)];
    stream.read_exact(&mut query).await.unwrap();
    // Behind the header: labels until the empty one, type and class.
    let mut end = 12;
    while query[end] != 0 {
        end += 1 + usize::from(query[end]);
    }
    let question = &query[12..end + 5];
    let header = [query[0], query[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    let record = [&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4][..], &ADDRESS.octets()].concat();
    let response = [&header[..], question, &record].concat();
    stream.write_u16(response.len() as u16).await.unwrap();
    stream.write_all(&response).await.unwrap();
    stream.flush().await.unwrap();
    2 + u64::from(length)
}

/// What a server sees of a connection with one query.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
struct Seen {
    query: u64,
    /// Bytes in the SYN, of TCP.
    in_syn: u64,
    /// Bytes of early data, of TLS.
    early: u64,
    from: IpAddr,
}

async fn serve(server: &Server) -> Seen {
    let mut stream = server.accept().await.unwrap();
    let query = answer(&mut stream).await;
    Seen { query, in_syn: stream.early_bytes().into(), early: 0, from: stream.peer_addr().unwrap().ip() }
}

async fn serve_tls(server: &Server, acceptor: &Acceptor) -> Seen {
    let mut stream = acceptor.accept(server.accept().await.unwrap()).await.unwrap();
    let query = answer(&mut stream).await;
    let io: &Stream = stream.io();
    let (in_syn, from) = (io.early_bytes().into(), io.peer_addr().unwrap().ip());
    let seen = Seen { query, in_syn, early: stream.early_bytes(), from };
    // The client reads the tickets, which come behind its Finished.
    stream.confirmed().await.unwrap();
    stream.shutdown().await.unwrap();
    let _ = stream.read(&mut [0]).await;
    seen
}

/// A lookup on a connection of its own.
async fn ask(resolver: &Resolver<HickoryProvider>) {
    let found = resolver.lookup(NAME, RecordType::A).await.unwrap();
    let found: Vec<_> = found.answers().iter().map(|record| record.data.clone()).collect();
    assert!(matches!(&found[..], [RData::A(found)] if found.0 == ADDRESS), "{found:?}");
}

#[test]
fn a_query_rides_in_the_syn() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let provider = HickoryProvider::new(client());
        for (visit, rides) in [false, true, true].into_iter().enumerate() {
            let resolver = hickory_resolver::resolver(at, provider.clone()).unwrap();
            let ((), seen) = tokio::join!(ask(&resolver), serve(&server));
            println!("{seen:?}");
            // The whole query, so the answer is one round trip away.
            assert_eq!(seen.in_syn, if rides { seen.query } else { 0 }, "visit {visit}");
        }
    });
}

#[test]
fn a_query_over_tls_rides_in_the_syn() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let ca = Ca::new();
        let acceptor = ca.acceptor("dns.example.com", &[]);
        let tls = ca.connector(&[]);
        let provider = hickory_resolver::over_tls(client(), at, "dns.example.com", tls).unwrap();
        for (visit, rides) in [false, true, true].into_iter().enumerate() {
            let resolver = hickory_resolver::resolver(at, provider.clone()).unwrap();
            let visiting = async {
                ask(&resolver).await;
                // Its connection reads on.
                tokio::task::yield_now().await;
                resolver
            };
            let (_resolver, seen) = tokio::join!(visiting, serve_tls(&server, &acceptor));
            println!("{seen:?}");
            if rides {
                // The ClientHello is there, too.
                assert!(seen.early == seen.query && seen.in_syn > seen.query, "visit {visit}: {seen:?}");
            } else {
                assert_eq!((seen.early, seen.in_syn), (0, 0), "visit {visit}");
            }
        }
    });
}

/// hickory's own TLS: the ClientHello rides, and the query waits for the server's Finished.
#[test]
fn a_client_hello_of_hickory_rides_in_the_syn() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let ca = Ca::new();
        let acceptor = ca.acceptor("dns.example.com", &[]);
        let provider = HickoryProvider::new(client());
        let aws = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(aws).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(ca.roots()).with_no_client_auth();
        let mut dot = ConnectionConfig::tls("dns.example.com".into());
        dot.port = at.port();
        let servers = vec![NameServerConfig::new(at.ip(), true, vec![dot])];
        for rides in [false, true] {
            let names = ResolverConfig::from_parts(None, Vec::new(), servers.clone());
            let builder = Resolver::builder_with_config(names, provider.clone());
            let resolver = builder.with_tls_config(config.clone()).build().unwrap();
            let ((), seen) = tokio::join!(
                async {
                    ask(&resolver).await;
                    drop(resolver);
                },
                serve_tls(&server, &acceptor)
            );
            println!("{seen:?}");
            assert_eq!((seen.in_syn > 0, seen.early), (rides, 0));
        }
    });
}

/// A server that is not there costs its queries, and no more; and an address of the caller's is used.
#[test]
fn the_next_server_is_asked_and_the_address_is_the_callers() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let (dead, nobody) = bind().await;
        drop(dead);
        let from: SocketAddr = "127.0.0.2:0".parse().unwrap();
        let config = |port, bind_addr| {
            let mut tcp = ConnectionConfig::tcp();
            (tcp.port, tcp.bind_addr) = (port, bind_addr);
            NameServerConfig::new(at.ip(), true, vec![tcp])
        };
        for bind_addr in [None, Some(from)] {
            let servers = vec![config(nobody.port(), None), config(at.port(), bind_addr)];
            let names = ResolverConfig::from_parts(None, Vec::new(), servers);
            let provider = HickoryProvider::new(client());
            let mut builder = Resolver::builder_with_config(names, provider);
            builder.options_mut().num_concurrent_reqs = 1;
            let resolver = builder.build().unwrap();
            let ((), seen) = tokio::join!(ask(&resolver), serve(&server));
            assert_eq!(seen.from, bind_addr.unwrap_or(at).ip());
        }
    });
}
