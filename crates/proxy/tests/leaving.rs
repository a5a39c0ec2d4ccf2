//! Clients that leave: the proxy does not go on for them.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::world::{OTHER, PUBLIC, SILENT, World, echo, head, hello, in_world, ip, read};
use firstflight_proxy::{Event, Limits, Protocol};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const HOUR: Duration = Duration::from_secs(3600);

/// The world ends sooner than any of these.
fn patient() -> Limits {
    let mut limits = Limits::default();
    (limits.connect_timeout, limits.response_timeout, limits.idle_timeout) = (HOUR, HOUR, HOUR);
    limits
}

/// How a client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Closes,
    Resets,
}

use Leaves::{Closes, Resets};

fn leave(tcp: TcpStream, how: Leaves) {
    if how == Resets {
        tcp.set_zero_linger().unwrap();
    }
    drop(tcp);
}

/// What a client says to reach this server.
fn ask(protocol: Protocol, at: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(v4) = at else { panic!("{at}") };
    match protocol {
        Protocol::Connect => format!("CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n").into_bytes(),
        Protocol::Http => format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n").into_bytes(),
        _ => [&[5, 1, 0, 5, 1, 0, 1][..], &v4.ip().octets(), &at.port().to_be_bytes()].concat(),
    }
}

const ALL: [Protocol; 3] = [Protocol::Connect, Protocol::Http, Protocol::Socks5];

/// With two places, the third client waits until a place is free.
#[test]
fn clients_that_leave_during_the_connect_hold_no_places() {
    in_world(|| async {
        let mut limits = patient();
        limits.connections = 2;
        let mut world = World::new(|proxy| proxy.limits(limits)).await;
        let (at, _early) = echo(PUBLIC).await;
        let silent = SocketAddr::from((SILENT, 443));
        for protocol in ALL {
            for how in [Closes, Resets] {
                for _ in 0..2 {
                    let mut tcp = world.dial().await;
                    tcp.write_all(&ask(protocol, silent)).await.unwrap();
                    if protocol == Protocol::Socks5 {
                        assert_eq!(read(&mut tcp, 2).await, [5, 0]);
                    }
                    // A reset throws away what was not read yet.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    leave(tcp, how);
                }
                drop(world.open(&at.to_string()).await);
                let mut left = 0;
                while left < 2 {
                    match world.next().await {
                        Event::Left { protocol: of, server } if server == silent.to_string() => {
                            assert_eq!(of, protocol, "{how:?}");
                            left += 1;
                        }
                        // That of the third client, which says nothing.
                        Event::Left { .. } | Event::Connected { .. } => {}
                        other => panic!("{protocol:?} {how:?}: {other:?}"),
                    }
                }
            }
        }
    });
}

/// A reset is one also behind bytes that nobody has read.
#[test]
fn a_reset_behind_data_is_noticed() {
    in_world(|| async {
        let mut limits = patient();
        limits.connections = 1;
        let world = World::new(|proxy| proxy.limits(limits)).await;
        let (at, _early) = echo(PUBLIC).await;
        for protocol in ALL {
            let mut tcp = world.dial().await;
            tcp.write_all(&ask(protocol, SocketAddr::from((SILENT, 443)))).await.unwrap();
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(30)).await;
                tcp.write_all(&[22; 300]).await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
            leave(tcp, Resets);
            drop(world.open(&at.to_string()).await);
        }
    });
}

/// After an early yes the client's first words ride in the connect.
#[test]
fn a_client_that_leaves_after_an_early_yes_is_let_go() {
    for (says, how) in [(true, Resets), (false, Resets), (false, Closes)] {
        in_world(move || async move {
            let mut limits = patient();
            // The first tunnel keeps its place: its end does not reach the server any more.
            limits.connections = 2;
            let mut world = World::new(|proxy| proxy.limits(limits)).await;
            let (at, _early) = echo(PUBLIC).await;
            let (other, _early) = echo(OTHER).await;
            // A cookie belongs to the addresses of both ends, and ours has to be the same before and after.
            let (to, ours) = (format!("{}/32", at.ip()), other.ip().to_string());
            let local = ["local", to.as_str(), "dev", "lo", "table", "local", "src", &ours];
            let route = |verb, rest: &[&str]| ip(&[&["route", verb], rest].concat());
            assert!(route("change", &local));
            assert_eq!(read(&mut world.open(&at.to_string()).await, 5).await, b"echo ");
            assert!(matches!(world.next().await, Event::Connected { .. }));
            // Now its packets vanish.
            assert!(route("del", &local) && ip(&["addr", "del", &to, "dev", "lo"]));
            assert!(route("add", &[&to, "dev", "void", "src", &ours]));
            let mut tcp = world.open(&at.to_string()).await;
            if says {
                tcp.write_all(&hello(100)).await.unwrap();
            }
            // The proxy waits for words for 300 ms, and then connects without.
            tokio::time::sleep(Duration::from_millis(500)).await;
            leave(tcp, how);
            assert_eq!(read(&mut world.open(&other.to_string()).await, 5).await, b"echo ");
            let event = world.next().await;
            assert!(matches!(event, Event::Left { .. }), "{says} {how:?}: {event:?}");
        });
    }
}

/// A server that takes a request, and what it has got.
async fn taken(listener: &TcpListener) -> TcpStream {
    let (mut far, _) = listener.accept().await.unwrap();
    assert!(head(&mut far).await.starts_with("GET "));
    far
}

#[test]
fn clients_that_leave_before_or_in_the_response_close_their_servers_connection() {
    in_world(|| async {
        let mut limits = patient();
        limits.half_closed_timeout = Duration::from_millis(200);
        let world = World::new(|proxy| proxy.limits(limits)).await;
        let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
        let at = listener.local_addr().unwrap();
        for responds in [false, true] {
            for how in [Closes, Resets] {
                let mut tcp = world.dial().await;
                tcp.write_all(&ask(Protocol::Http, at)).await.unwrap();
                let mut far = taken(&listener).await;
                if responds {
                    far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
                    assert!(head(&mut tcp).await.starts_with("HTTP/1.1 200 "));
                    assert_eq!(read(&mut tcp, 4).await, b"half");
                }
                leave(tcp, how);
                // The end, or a reset.
                let end = far.read(&mut [0]).await;
                assert!(matches!(end, Ok(0) | Err(_)), "{responds} {how:?}: {end:?}");
            }
        }
    });
}

/// What comes while the proxy connects is the tunnel's, and an end behind it is one of its direction only.
#[test]
fn what_a_client_says_while_the_proxy_connects_is_not_lost() {
    in_world(|| async {
        let world = World::new(|proxy| proxy.limits(patient())).await;
        let (at, _early) = echo(PUBLIC).await;
        for protocol in [Protocol::Connect, Protocol::Socks5] {
            for apart in [false, true] {
                let mut tcp = world.dial().await;
                tcp.write_all(&ask(protocol, at)).await.unwrap();
                if apart {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                tcp.write_all(b"said ahead").await.unwrap();
                tcp.shutdown().await.unwrap();
                let mut all = Vec::new();
                tcp.read_to_end(&mut all).await.unwrap();
                assert!(all.ends_with(b"echo said ahead"), "{protocol:?} {apart}: {all:?}");
            }
        }
    });
}

/// A program that closes its end, and one that ends its direction only, look the same.
#[test]
fn a_half_closed_tunnel_ends_soon_when_nothing_passes() {
    in_world(|| async {
        let mut limits = patient();
        limits.half_closed_timeout = Duration::from_millis(200);
        let world = World::new(|proxy| proxy.limits(limits)).await;
        let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        for client_closes in [true, false] {
            let mut tcp = world.open(&at).await;
            let (mut far, _) = listener.accept().await.unwrap();
            let (closes, stays) = if client_closes { (&mut tcp, &mut far) } else { (&mut far, &mut tcp) };
            closes.shutdown().await.unwrap();
            assert_eq!(stays.read(&mut [0]).await.unwrap(), 0);
            stays.write_all(b"last").await.unwrap();
            assert_eq!(read(closes, 4).await, b"last");
            // Both are reset: what was cut must not look like an end.
            assert!(closes.read(&mut [0]).await.is_err());
            while stays.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
}
