//! Plain HTTP, the proxy's own pages, and which addresses are reached.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::world;
use crate::world::{OTHER, PRIVATE, PUBLIC, World, echo, head, in_world};
use firstflight_proxy::{BindError, Event, Proxy};
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Answers each connection's request once with `response`, and tells what came, and whether it was early.
async fn origin(ip: [u8; 4], response: &'static str) -> (SocketAddr, UnboundedReceiver<(String, bool)>) {
    let server = firstflight::Server::builder().address(SocketAddr::from((ip, 0))).tcp_only().bind().unwrap();
    let at = server.local_addrs()[0];
    let (tell, told) = unbounded_channel();
    tokio::spawn(async move {
        loop {
            let mut stream = server.accept().await.unwrap();
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                while !request.windows(4).any(|end| end == b"\r\n\r\n")
                    && stream.read_buf(&mut request).await.unwrap() > 0
                {}
                let _ = tell.send((String::from_utf8(request).unwrap(), stream.early_bytes() > 0));
                stream.write_all(response.as_bytes()).await.unwrap();
                let _ = stream.shutdown().await;
            });
        }
    });
    (at, told)
}

const OK: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n\r\nhello";

fn get(server: impl std::fmt::Display) -> String {
    format!("GET http://{server}/path?x=1 HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n")
}

#[test]
fn a_get_rides_and_its_fields_are_those_of_the_next_hop() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, mut came) = origin(PUBLIC, OK).await;
        world.zone.set("www.example.com", &[at.ip()]);
        for early in [false, true] {
            let said = world.ask(&get(format!("www.example.com:{}", at.port()))).await;
            assert!(said.starts_with("HTTP/1.1 200 OK\r\n") && said.ends_with("\r\n\r\nhello"), "{said}");
            let lower = said.to_ascii_lowercase();
            assert!(
                !lower.contains("x-hop") && lower.contains("x-end: 2") && lower.contains("via: 1.1"),
                "{said}"
            );
            let (request, was_early) = came.recv().await.unwrap();
            assert!(request.starts_with("GET /path?x=1 HTTP/1.1\r\n"), "{request}");
            let host = format!("host: www.example.com:{}\r\n", at.port());
            assert!(request.contains(&host) && !request.contains("other.example"), "{request}");
            assert!(request.contains("via: 1.1 firstflight"), "{request}");
            assert_eq!(was_early, early);
        }
        let post = format!(
            "POST http://{at}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
        );
        world.ask(&post).await;
        let (request, was_early) = came.recv().await.unwrap();
        assert!(request.starts_with("POST / ") && !was_early, "{request}");
    });
}

/// RFC 8470: the proxy sent the request early, so it repeats it.
#[test]
fn a_425_is_repeated_after_the_handshake() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, mut came) =
            origin(PUBLIC, "HTTP/1.1 425 Too Early\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        let said = world.ask(&get(at)).await;
        assert!(said.starts_with("HTTP/1.1 425 "), "{said}");
        let early = [came.recv().await.unwrap().1, came.recv().await.unwrap().1];
        assert!(came.try_recv().is_err(), "it is repeated once");
        let said = world.ask(&get(at)).await;
        assert!(said.starts_with("HTTP/1.1 425 "), "{said}");
        let again = [came.recv().await.unwrap().1, came.recv().await.unwrap().1];
        assert_eq!((early, again), ([false, false], [true, false]));
        // Another proxy's early request is that one's to repeat.
        let early = get(at).replace("Connection", "Early-Data: 1\r\nConnection");
        assert!(world.ask(&early).await.starts_with("HTTP/1.1 425 "));
        assert!(came.recv().await.unwrap().0.contains("early-data: 1"));
        assert!(came.try_recv().is_err());
    });
}

#[test]
fn failures_of_http_are_told_as_what_they_are() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let closed = SocketAddr::from((PUBLIC, 8079));
        for (server, status, error) in [
            (closed.to_string(), 502, "connection_refused"),
            ("nowhere.example".into(), 502, "dns_error"),
            ("127.0.0.1:8080".into(), 403, "destination_ip_prohibited"),
            ("www.example.com:25".into(), 403, "http_request_denied"),
            ("www.example.com:6667".into(), 403, "http_request_denied"),
        ] {
            let said = world.ask(&get(&server)).await;
            assert!(
                said.starts_with(&format!("HTTP/1.1 {status} ")) && said.contains(error),
                "{server}: {said}"
            );
        }
        for _ in 0..20 {
            let said = world.ask(&get("169.254.169.254:80")).await;
            assert!(said.starts_with("HTTP/1.1 403 "), "{said}");
        }
        let (at, mut came) = origin(PUBLIC, "nonsense\r\n\r\n").await;
        let said = world.ask(&get(at)).await;
        assert!(said.starts_with("HTTP/1.1 502 ") && said.contains("http_response_incomplete"), "{said}");
        came.recv().await.unwrap();
        for (request, status) in [
            ("GET https://www.example.com/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET http://me:secret@www.example.com/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400),
            ("GET http://10.1/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 400),
            ("TRACE http://www.example.com/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405),
            (
                "OPTIONS http://www.example.com/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n",
                200,
            ),
        ] {
            let said = world.ask(request).await;
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {said}");
        }
    });
}

/// What a server could read in another way than the proxy.
#[test]
fn a_request_cannot_be_smuggled_behind_another() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, mut came) = origin(PUBLIC, OK).await;
        let hidden = format!("GET http://{at}/hidden HTTP/1.1\r\nHost: a\r\n\r\n");
        let chunked = format!("0\r\n\r\n{hidden}");
        for fields in [
            format!("Content-Length: {}\r\nTransfer-Encoding: chunked", chunked.len()),
            format!("Transfer-Encoding: chunked\r\nContent-Length: {}", chunked.len()),
            format!("Content-Length: 0\r\nContent-Length: {}", chunked.len()),
            // The same twice is one (RFC 9110 §8.6).
            format!("Content-Length: {0}\r\nContent-Length: {0}\r\nConnection: close", chunked.len()),
            "Transfer-Encoding: xchunked".into(),
            "Transfer-Encoding: chunked, identity".into(),
            "Transfer-Encoding : chunked".into(),
            " Transfer-Encoding: chunked".into(),
            "Transfer-Encoding:\x0bchunked".into(),
            "Content-Length: +6".into(),
            "Content-Length: 0x6".into(),
        ] {
            let request = format!("POST http://{at}/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{chunked}");
            let said = world.ask(&request).await;
            let answers = said.matches("HTTP/1.1 ").count();
            assert!(answers <= 1, "{fields}: {said}");
            let mut seen = Vec::new();
            while let Ok((request, _)) = came.try_recv() {
                seen.push(request);
            }
            assert!(seen.iter().all(|request| !request.starts_with("GET /hidden")), "{fields}: {seen:?}");
            let both = |request: &String| {
                request.contains("content-length") && request.contains("transfer-encoding")
            };
            assert!(!seen.iter().any(both), "{fields}: {seen:?}");
            if seen.is_empty() {
                assert!(said.starts_with("HTTP/1.1 400 ") || said.is_empty(), "{fields}: {said}");
            }
        }
    });
}

/// What counts is the address that is connected to, in whatever form, and at each lookup again.
#[test]
fn names_that_resolve_to_this_machine_are_refused() {
    in_world(|| async {
        let mut world = World::new(|proxy| proxy).await;
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        let text = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>();
        for addresses in [
            &["127.0.0.1"][..],
            &["0.0.0.0"],
            &["::ffff:127.0.0.1"],
            &["64:ff9b::7f00:1"],
            &["::1"],
            &["169.254.169.254"],
            &["fd00:ec2::254"],
            &["10.1.2.3"],
            &["127.0.0.1", "169.254.169.254"],
        ] {
            world.zone.set("rebound.example", &text(addresses));
            let (_, said) = world.tunnel(&format!("rebound.example:{port}")).await;
            assert!(said.starts_with("HTTP/1.1 403 "), "{addresses:?}: {said}");
            match world.next().await {
                Event::Failed { error_type, .. } => assert_eq!(error_type, "destination_ip_prohibited"),
                other => panic!("{other:?}"),
            }
        }
        for server in ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[::]", "0.0.0.0"] {
            let (_, said) = world.tunnel(&format!("{server}:{port}")).await;
            assert!(said.starts_with("HTTP/1.1 403 "), "{server}: {said}");
            assert!(
                world.ask(&get(format!("{server}:{port}"))).await.starts_with("HTTP/1.1 403 "),
                "{server}"
            );
        }
        // The name is a good one first, so that the yes is early, and then resolves to this machine.
        let (at, _early) = echo(PUBLIC).await;
        world.zone.set("rebound.example", &[at.ip()]);
        for _ in 0..2 {
            drop(world.open(&format!("rebound.example:{}", at.port())).await);
        }
        world.zone.set("rebound.example", &text(&["127.0.0.1"]));
        let (_, said) = world.tunnel(&format!("rebound.example:{}", at.port())).await;
        assert!(said.starts_with("HTTP/1.1 403 "), "{said}");
        let none = tokio::time::timeout(std::time::Duration::from_millis(50), inside.accept()).await;
        assert!(none.is_err(), "the service inside was reached");
    });
}

/// Also public addresses, also those that it gets later.
fn is_local(address: &str) -> bool {
    let route = Command::new("ip").args(["route", "get", address]).output().unwrap();
    route.stdout.starts_with(b"local ")
}

#[test]
fn addresses_of_this_machines_interfaces_are_refused() {
    in_world(|| async {
        let mut world = World::new(|proxy| proxy).await;
        let ip = |action: &str, address: &str| {
            let done = Command::new("ip").args(["addr", action, address, "dev", "void"]).status();
            assert!(done.unwrap().success(), "{action} {address}");
        };
        let inside = TcpListener::bind("[::]:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        for (address, prefix) in [("192.0.2.7", "192.0.2.7/24"), ("2001:db8::7", "2001:db8::7/64")] {
            world.zone.set("own.example", &[address.parse().unwrap()]);
            let host = if address.contains(':') { format!("[{address}]") } else { address.into() };
            ip("add", prefix);
            // The kernel makes the route of an IPv6 address a moment later.
            while !is_local(address) {}
            for server in [format!("{host}:{port}"), format!("own.example:{port}")] {
                let (_, said) = world.tunnel(&server).await;
                assert!(said.starts_with("HTTP/1.1 403 "), "{server}: {said}");
                match world.next().await {
                    Event::Failed { error, .. } => assert!(error.contains("own machine"), "{error}"),
                    other => panic!("{other:?}"),
                }
                assert!(world.ask(&get(&server)).await.starts_with("HTTP/1.1 403 "), "{server}");
                world.next().await;
            }
            ip("del", prefix);
            // Now it is another machine's, and there is no way to it.
            let (_, said) = world.tunnel(&format!("{host}:{port}")).await;
            assert!(said.contains("error=destination_ip_unroutable"), "{said}");
            world.next().await;
        }
        let none = tokio::time::timeout(std::time::Duration::from_millis(50), inside.accept()).await;
        assert!(none.is_err(), "the service inside was reached");
    });
}

#[test]
fn private_networks_are_an_option_and_the_proxy_itself_is_none() {
    in_world(|| async {
        let (at, _early) = echo(PRIVATE).await;
        let world = World::new(|proxy| proxy).await;
        assert!(world.tunnel(&at.to_string()).await.1.starts_with("HTTP/1.1 403 "));
        // This one is this machine's, too.
        let world = World::new(|proxy| proxy.allow_private(true)).await;
        let (_, said) = world.tunnel(&at.to_string()).await;
        assert!(said.starts_with("HTTP/1.1 403 "), "{said}");
        let (_, said) = world.tunnel("10.1.2.4:80").await;
        assert!(said.contains("error=destination_ip_unroutable"), "{said}");
        let world = World::new(|proxy| proxy.allow_net("10.1.2.0/24".parse().unwrap())).await;
        drop(world.open(&at.to_string()).await);
        let world = World::new(|proxy| proxy.allow_net("127.0.0.0/8".parse().unwrap())).await;
        assert!(world.tunnel(&world.at.to_string()).await.1.starts_with("HTTP/1.1 403 "));
        let inside = TcpListener::bind("127.0.0.1:0").await.unwrap();
        drop(world.open(&inside.local_addr().unwrap().to_string()).await);
        // Of two addresses the one that is allowed is taken.
        let (at, _early) = echo(OTHER).await;
        world.zone.set("both.example", &["10.1.2.3".parse().unwrap(), at.ip()]);
        drop(world.open(&format!("both.example:{}", at.port())).await);
    });
}

#[test]
fn the_status_needs_a_token_and_shows_each_server() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, _early) = echo(PUBLIC).await;
        for _ in 0..2 {
            let mut tcp = world.open(&at.to_string()).await;
            tcp.write_all(&world::hello(100)).await.unwrap();
            world::read(&mut tcp, 105).await;
        }
        let own = |path: &str, fields: &str| {
            format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{fields}\r\n", world.at)
        };
        let (_, token) = world.status.split_once("token=").unwrap();
        for (path, fields, status) in [
            ("/status.json", String::new(), 401),
            ("/status.json?token=", String::new(), 401),
            ("/status?token=00", String::new(), 401),
            ("/status/events", String::new(), 401),
            (&format!("/status?token={token}"), String::new(), 200),
            ("/status.json", format!("Authorization: Bearer {token}\r\n"), 200),
            (&format!("/status.json?token={token}"), "Origin: http://evil.example\r\n".into(), 403),
            (&format!("/status.json?token={token}"), "Sec-Fetch-Site: cross-site\r\n".into(), 403),
            ("/proxy.pac", String::new(), 404),
            ("/other", String::new(), 404),
        ] {
            let said = world.ask(&own(path, &fields)).await;
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{path} {fields}: {said}");
            assert!(said.contains("content-security-policy: default-src 'none'"), "{said}");
        }
        let rebound = format!(
            "GET /status.json?token={token} HTTP/1.1\r\nHost: evil.example:{}\r\n\r\n",
            world.at.port()
        );
        assert!(world.ask(&rebound).await.starts_with("HTTP/1.1 421 "));
        // The events begin with the present state.
        let mut tcp = world.dial().await;
        tcp.write_all(own(&format!("/status/events?token={token}"), "").as_bytes()).await.unwrap();
        assert!(head(&mut tcp).await.contains("text/event-stream"));
        let event = line(&mut tcp, "data: ").await;
        let value: serde_json::Value = serde_json::from_str(&event).unwrap();
        assert_eq!(value["servers"][0]["server"], at.to_string());
        assert_eq!(value["servers"][0]["last"]["outcome"], "accepted");
        assert_eq!(
            (&value["total"]["contacts"], &value["total"]["round_trips_saved"]),
            (&2.into(), &1.into())
        );
        // A change comes.
        drop(world.open(&at.to_string()).await);
        let value: serde_json::Value = serde_json::from_str(&line(&mut tcp, "data: ").await).unwrap();
        assert!(value["now"].is_u64());
    });
}

/// The next line that begins so, without that.
async fn line(tcp: &mut TcpStream, begin: &str) -> String {
    let mut line = Vec::new();
    loop {
        let byte = tcp.read_u8().await.unwrap();
        if byte != b'\n' {
            line.push(byte);
            continue;
        }
        let text = String::from_utf8(std::mem::take(&mut line)).unwrap();
        if let Some(rest) = text.strip_prefix(begin) {
            return rest.to_owned();
        }
    }
}

#[test]
fn the_pac_file_names_hosts_that_took_a_first_flight_or_are_allowed() {
    in_world(|| async {
        let world = World::new(|proxy| proxy.pac(true).allow_host("listed.example").unwrap()).await;
        let (at, mut early) = echo(PUBLIC).await;
        world.zone.set("fast.example", &[at.ip()]);
        world.zone.set("new.example", &[at.ip()]);
        for visits in 0..2 {
            let mut tcp = world.open(&format!("fast.example:{}", at.port())).await;
            tcp.write_all(&world::hello(100)).await.unwrap();
            world::read(&mut tcp, 105).await;
            assert_eq!(early.recv().await.unwrap() > 0, visits > 0);
        }
        let pac = format!("GET /proxy.pac HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", world.at);
        let said = world.ask(&format!("{pac}\r\n")).await;
        assert!(said.contains("application/x-ns-proxy-autoconfig"), "{said}");
        assert!(said.contains("\"fast.example\": 1") && said.contains("\"listed.example\": 1"), "{said}");
        assert!(
            !said.contains("new.example") && said.contains(&format!("PROXY {}; DIRECT", world.at)),
            "{said}"
        );
        // A page of another site could run it as a script, and see what was visited.
        let said = world.ask(&format!("{pac}Sec-Fetch-Site: cross-site\r\n\r\n")).await;
        assert!(said.starts_with("HTTP/1.1 403 ") && !said.contains("fast.example"), "{said}");
        assert!(
            world
                .ask("GET /proxy.pac HTTP/1.1\r\nHost: evil.example\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 421 ")
        );
    });
}

#[tokio::test]
async fn other_machines_are_let_in_only_by_an_explicit_setting() {
    let builder = || Proxy::builder(firstflight::Client::new());
    for at in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let refused = builder().listen(at.parse().unwrap()).bind().await;
        assert!(matches!(refused, Err(BindError::NotLoopback(_))), "{at}");
    }
    let proxy = builder().listen("0.0.0.0:0".parse().unwrap()).allow_remote(true).bind().await.unwrap();
    assert_eq!(proxy.local_addrs().len(), 1);
    assert!(builder().allow_host("no host").is_err());
    let taken = proxy.local_addrs()[0];
    let again = builder().listen(taken).allow_remote(true).bind().await;
    assert!(matches!(again, Err(BindError::Listen(at, _)) if at == taken));
}
