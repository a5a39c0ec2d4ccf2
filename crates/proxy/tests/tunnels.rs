//! Tunnels: when the proxy says yes, what leaves in the first packet, and how connections end.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::world::{OTHER, PUBLIC, World, echo, head, hello, in_world, read};
use firstflight_proxy::{EarlyData, Event};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn connected(event: &Event) -> (&'static str, bool, u32) {
    match event {
        Event::Connected { contact, .. } => (contact.outcome, contact.early_yes, contact.round_trips_saved),
        other => panic!("{other:?}"),
    }
}

/// Sends a hello through a tunnel, and reads it again.
async fn visit(world: &World, server: &str, sent: &[u8]) -> TcpStream {
    let mut tcp = world.open(server).await;
    tcp.write_all(sent).await.unwrap();
    let expected = [b"echo ", sent].concat();
    assert_eq!(read(&mut tcp, expected.len()).await, expected);
    tcp
}

async fn is_reset(mut tcp: TcpStream) -> bool {
    let mut rest = Vec::new();
    let end = tcp.read_to_end(&mut rest).await;
    assert!(rest.is_empty(), "bytes that no server sent: {rest:?}");
    end.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn the_second_visit_sends_its_hello_in_the_syn() {
    in_world(|| async {
        let mut world = World::new(|proxy| proxy).await;
        let (at, mut early) = echo(PUBLIC).await;
        world.zone.set("www.example.com", &[at.ip()]);
        let server = format!("www.example.com:{}", at.port());
        let sent = hello(240);
        for visits in 0..3 {
            drop(visit(&world, &server, &sent).await);
            let expected = if visits == 0 { ("handshake", false, 0) } else { ("accepted", true, 1) };
            assert_eq!(connected(&world.next().await), expected, "visit {visits}");
            let bytes = if visits == 0 { 0 } else { sent.len() as u32 };
            assert_eq!(early.recv().await, Some(bytes), "visit {visits}");
        }
    });
}

#[test]
fn a_hello_may_come_in_pieces() {
    in_world(|| async {
        let mut world = World::new(|proxy| proxy).await;
        let (at, mut early) = echo(PUBLIC).await;
        let server = at.to_string();
        drop(visit(&world, &server, &hello(100)).await);
        assert_eq!((early.recv().await, connected(&world.next().await).1), (Some(0), false));
        let whole = hello(700);
        let mut tcp = world.open(&server).await;
        for piece in whole.chunks(200) {
            tcp.write_all(piece).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let expected = [b"echo ", &whole[..]].concat();
        assert_eq!(read(&mut tcp, expected.len()).await, expected);
        assert_eq!(early.recv().await, Some(whole.len() as u32));
        assert_eq!(connected(&world.next().await), ("accepted", true, 1));
    });
}

#[test]
fn early_data_waits_unless_the_user_says_otherwise() {
    in_world(|| async {
        for (setting, rides) in
            [(EarlyData::Hold, false), (EarlyData::AtMostOnce, false), (EarlyData::Replay, true)]
        {
            let world = World::new(|proxy| proxy.early_data(setting)).await;
            let (at, mut early) = echo(PUBLIC).await;
            drop(visit(&world, &at.to_string(), &hello(100)).await);
            early.recv().await.unwrap();
            let alone = hello(200);
            // ChangeCipherSpec, and a record of early data.
            let both = [&alone[..], &[20, 3, 3, 0, 1, 1], &[23, 3, 3, 0, 4, 1, 2, 3, 4]].concat();
            drop(visit(&world, &at.to_string(), &both).await);
            let expected = if rides { both.len() } else { alone.len() };
            assert_eq!(early.recv().await, Some(expected as u32), "{setting:?}");
        }
    });
}

#[test]
fn what_is_no_hello_waits_for_the_handshake_and_a_get_does_not() {
    in_world(|| async {
        let mut world = World::new(|proxy| proxy).await;
        let (at, mut early) = echo(PUBLIC).await;
        let server = at.to_string();
        for (sent, rides) in [
            (&b"first"[..], false),
            (b"SSH-2.0-OpenSSH\r\n", false),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
            (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx", false),
        ] {
            drop(visit(&world, &server, sent).await);
            world.next().await;
            assert_eq!(early.recv().await.unwrap() > 0, rides, "{}", String::from_utf8_lossy(sent));
        }
    });
}

/// A browser connects ahead, and mail servers speak first.
#[test]
fn a_client_that_says_nothing_is_connected() {
    in_world(|| async {
        let mut world = World::new(|proxy| proxy).await;
        let (at, mut early) = echo(PUBLIC).await;
        drop(visit(&world, &at.to_string(), &hello(100)).await);
        assert_eq!((early.recv().await, connected(&world.next().await).1), (Some(0), false));
        let mut tcp = world.open(&at.to_string()).await;
        // The server's first words arrive, although the client has said nothing.
        assert_eq!(read(&mut tcp, 5).await, b"echo ");
        assert_eq!(early.recv().await, Some(0));
        let (outcome, early_yes, saved) = connected(&world.next().await);
        assert_eq!((outcome, early_yes, saved), ("handshake", true, 0));
        tcp.write_all(b"late").await.unwrap();
        assert_eq!(read(&mut tcp, 4).await, b"late");
    });
}

#[test]
fn without_a_contact_failures_are_told_as_what_they_are() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let closed = SocketAddr::from((PUBLIC, 9)).to_string();
        let (_, said) = world.tunnel(&closed).await;
        assert!(said.starts_with("HTTP/1.1 502 ") && said.contains("error=connection_refused"), "{said}");
        let (_, said) = world.tunnel("nowhere.example:443").await;
        assert!(said.starts_with("HTTP/1.1 502 ") && said.contains("error=dns_error"), "{said}");
        for wrong in ["nowhere.example", "me@nowhere.example:443", "nowhere.example:0"] {
            let (_, said) = world.tunnel(wrong).await;
            assert!(said.starts_with("HTTP/1.1 400 "), "{wrong}: {said}");
        }
    });
}

/// The yes was early, so there is nothing left to say.
#[test]
fn a_failure_after_an_early_yes_is_a_reset_and_the_next_answer_is_true() {
    in_world(|| async {
        let mut world = World::new(|proxy| proxy).await;
        let listener = firstflight::Server::builder();
        let listener = listener.address(SocketAddr::from((PUBLIC, 0))).tcp_only().bind().unwrap();
        let server = listener.local_addrs()[0].to_string();
        drop(world.open(&server).await);
        drop(listener.accept().await.unwrap());
        assert!(!connected(&world.next().await).1);
        drop(listener);
        // A process that another test starts may have the socket until it runs its own program.
        while TcpStream::connect(&server).await.is_ok() {}
        let mut tcp = world.open(&server).await;
        tcp.write_all(&hello(100)).await.unwrap();
        assert!(is_reset(tcp).await);
        match world.next().await {
            Event::Failed { reset, error_type, .. } => {
                assert_eq!((reset, error_type), (true, "connection_refused"))
            }
            other => panic!("{other:?}"),
        }
        // The last contact failed, so the proxy connects first.
        let (_, said) = world.tunnel(&server).await;
        assert!(said.starts_with("HTTP/1.1 502 "), "{said}");
    });
}

#[test]
fn each_direction_closes_alone_and_a_reset_passes() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, _early) = echo(PUBLIC).await;
        let mut tcp = world.open(&at.to_string()).await;
        tcp.write_all(b"all").await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"echo all", "after the client has closed its direction");
        // A server that resets.
        let listener = TcpListener::bind(SocketAddr::from((OTHER, 0))).await.unwrap();
        let tcp = world.open(&listener.local_addr().unwrap().to_string()).await;
        let (accepted, _) = listener.accept().await.unwrap();
        accepted.set_zero_linger().unwrap();
        drop(accepted);
        assert!(is_reset(tcp).await);
    });
}

#[test]
fn large_transfers_arrive_whole_and_one_that_is_not_read_stops() {
    in_world(|| async {
        const LEN: usize = 30_000_000;
        let world = World::new(|proxy| proxy).await;
        let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let mut near = world.open(&at).await;
        let (mut far, _) = listener.accept().await.unwrap();
        let block: Vec<u8> = (0..251).cycle().take(LEN).collect();
        let (sent, expected) = (block.clone(), block);
        let sending = tokio::spawn(async move {
            far.write_all(&sent).await.unwrap();
            far.shutdown().await.unwrap();
            far
        });
        let mut got = Vec::new();
        near.read_to_end(&mut got).await.unwrap();
        assert!(got == expected, "{} of {LEN} bytes", got.len());
        drop((near, sending.await.unwrap()));
        // Nobody reads: the sender has to wait, so the bytes are not in the proxy.
        let _near = world.open(&at).await;
        let (mut far, _) = listener.accept().await.unwrap();
        let mut sent = 0;
        let block = vec![1; 1 << 16];
        while let Ok(written) = tokio::time::timeout(Duration::from_millis(500), far.write(&block)).await {
            sent += written.unwrap();
            assert!(sent < 200_000_000, "nothing stops the sender");
        }
    });
}

#[test]
fn socks_names_addresses_and_refusals() {
    in_world(|| async {
        let mut world = World::new(|proxy| proxy).await;
        let (at, mut early) = echo(PUBLIC).await;
        world.zone.set("www.example.com", &[at.ip()]);
        let named = |name: &str, port: u16| {
            [&[5, 1, 0, 3, name.len() as u8], name.as_bytes(), &port.to_be_bytes()[..]].concat()
        };
        let numbered = |at: SocketAddr| [&[5, 1, 0, 1], &PUBLIC[..], &at.port().to_be_bytes()].concat();
        // The second visit is early. The greeting and the request may come together.
        for (request, expected) in
            [(named("www.example.com", at.port()), false), (named("www.example.com", at.port()), true)]
        {
            let mut tcp = world.dial().await;
            tcp.write_all(&[&[5, 2, 0, 2], &request[..]].concat()).await.unwrap();
            assert_eq!(read(&mut tcp, 12).await, [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
            let sent = hello(100);
            tcp.write_all(&sent).await.unwrap();
            assert_eq!(read(&mut tcp, 5 + sent.len()).await, [b"echo ", &sent[..]].concat());
            assert_eq!(connected(&world.next().await).1, expected);
            assert_eq!(early.recv().await.unwrap() > 0, expected);
        }
        let code = async |request: Vec<u8>| {
            let mut tcp = world.dial().await;
            tcp.write_all(&[5, 1, 0]).await.unwrap();
            assert_eq!(read(&mut tcp, 2).await, [5, 0]);
            tcp.write_all(&request).await.unwrap();
            read(&mut tcp, 10).await[1]
        };
        assert_eq!(code(numbered(at)).await, 0);
        assert_eq!(code(named("nowhere.example", 80)).await, 4, "no such name");
        assert_eq!(code(named("127.0.0.1", 80)).await, 2, "not allowed");
        assert_eq!(code(numbered(SocketAddr::from((PUBLIC, 9)))).await, 5, "refused");
        assert_eq!(code(vec![5, 2, 0, 1, 1, 1, 1, 1, 0, 1]).await, 7, "BIND");
        // A client that wants a password, and one of SOCKS4.
        let mut tcp = world.dial().await;
        tcp.write_all(&[5, 1, 2]).await.unwrap();
        assert_eq!(read(&mut tcp, 2).await, [5, 0xff]);
        let mut tcp = world.dial().await;
        tcp.write_all(&[4, 1, 0, 80, 1, 1, 1, 1, 0]).await.unwrap();
        assert_eq!(read(&mut tcp, 2).await, [0, 91]);
    });
}

#[test]
fn at_the_end_tunnels_may_finish_and_are_then_reset() {
    in_world(|| async {
        let mut world = World::new(|proxy| proxy.drain(Duration::from_millis(300))).await;
        let (at, _early) = echo(PUBLIC).await;
        let mut idle = world.open(&at.to_string()).await;
        let mut busy = world.open(&at.to_string()).await;
        assert_eq!(read(&mut idle, 5).await, b"echo ");
        assert_eq!(read(&mut busy, 5).await, b"echo ");
        drop(world.stop.take());
        busy.write_all(b"more").await.unwrap();
        assert_eq!(read(&mut busy, 4).await, b"more");
        busy.shutdown().await.unwrap();
        assert_eq!(busy.read(&mut [0; 9]).await.unwrap(), 0, "it ends in order");
        assert!(is_reset(idle).await);
        world.ended.await.unwrap();
        assert!(TcpStream::connect(world.at).await.is_err());
    });
}

#[test]
fn a_tunnel_that_is_idle_for_too_long_is_reset() {
    in_world(|| async {
        let mut limits = firstflight_proxy::Limits::default();
        limits.idle_timeout = Duration::from_millis(200);
        let world = World::new(|proxy| proxy.limits(limits)).await;
        let (at, _early) = echo(PUBLIC).await;
        let mut tcp = world.open(&at.to_string()).await;
        assert_eq!(read(&mut tcp, 5).await, b"echo ");
        assert!(is_reset(tcp).await);
    });
}

/// A slow client of HTTP, and one that says nothing at all.
#[test]
fn clients_that_do_not_finish_their_requests_are_closed() {
    in_world(|| async {
        let mut limits = firstflight_proxy::Limits::default();
        limits.head_timeout = Duration::from_millis(200);
        limits.connections = 3;
        let world = World::new(|proxy| proxy.limits(limits)).await;
        for said in [&b""[..], b"CONNECT www", b"\x05\x01", b"GET http://www.example.com/ HT"] {
            let mut tcp = world.dial().await;
            tcp.write_all(said).await.unwrap();
            let mut rest = Vec::new();
            let _ = tcp.read_to_end(&mut rest).await;
            let rest = String::from_utf8_lossy(&rest);
            assert!(rest.is_empty() || rest.starts_with("HTTP/1.1 408 "), "{rest}");
        }
        // More than there are places: all are served in the end.
        let (at, _early) = echo(PUBLIC).await;
        let mut all: Vec<_> = Vec::new();
        for _ in 0..5 {
            let mut tcp = world.dial().await;
            tcp.write_all(format!("CONNECT {at} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
            all.push(tcp);
        }
        for mut tcp in all {
            assert!(head(&mut tcp).await.starts_with("HTTP/1.1 200 "));
        }
    });
}
