//! Heads of requests that can be read in more than one way, or that name no server.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::world::{PUBLIC, World, head, in_world};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// A server that answers each connection once, and the heads that it got.
async fn origin() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
    let at = listener.local_addr().unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let head = head(&mut tcp).await;
            tells.lock().unwrap().push(head);
            let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        }
    });
    (at, seen)
}

fn status(said: &str) -> u16 {
    said.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

#[test]
fn transfer_codings_that_are_not_known_are_refused() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, seen) = origin().await;
        for (fields, expected) in [
            ("Transfer-Encoding: gzip, chunked", 501),
            ("Transfer-Encoding: JUNK, chunked", 501),
            ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501),
            ("Transfer-Encoding: chunked, gzip", 400),
            ("Transfer-Encoding: chunked, chunked", 400),
            ("Transfer-Encoding: identity", 400),
            ("Transfer-Encoding: ", 400),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5", 400),
            ("Content-Length: 5\r\nContent-Length: 6", 400),
            ("Content-Length: 5, 6", 400),
        ] {
            let body = "5\r\nhello\r\n0\r\n\r\n";
            let request = format!("POST http://{at}/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n{body}");
            assert_eq!(status(&world.ask(&request).await), expected, "{fields}");
        }
        assert!(seen.lock().unwrap().is_empty(), "{seen:?}");
    });
}

#[test]
fn hosts_that_are_none_are_refused() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, seen) = origin().await;
        let get =
            |target: &str, host: &str| format!("GET {target} HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        for host in [
            "a.example:abc",
            "a.example:99999",
            "a.example:0",
            ":80",
            "a,b",
            "*",
            "a b",
            "a/b",
            "me@a",
            "",
            "[::1",
            "a:80:80",
        ] {
            let said = world.ask(&get(&format!("http://{at}/"), &format!("Host: {host}\r\n"))).await;
            assert_eq!(status(&said), 400, "Host {host:?}: {said}");
            let connect = format!("CONNECT {at} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
            let said = world.ask(&connect).await;
            assert_eq!(status(&said), 400, "CONNECT with Host {host:?}: {said}");
        }
        let two = "Host: a\r\nHost: a\r\n";
        assert_eq!(status(&world.ask(&get(&format!("http://{at}/"), two)).await), 400);
        assert_eq!(status(&world.ask(&format!("CONNECT {at} HTTP/1.1\r\n{two}\r\n")).await), 400);
        for authority in [
            "a:abc", "a:99999", "a:0", "a:-1", "a:+80", "a,b", "*", "me@a", "me:x@a", "", ":80", "[::1",
            "10.1", "0x7f.1",
        ] {
            for target in [format!("http://{authority}/"), format!("http://{authority}")] {
                let said = world.ask(&get(&target, "Host: a\r\n")).await;
                assert_eq!(status(&said), 400, "{target}: {said}");
            }
        }
        for target in ["https://a/", "ftp://a/", "a", "a:80", "http:/a/", "http://a/#b", "//a/"] {
            let said = world.ask(&get(target, "Host: a\r\n")).await;
            // The last ones are the proxy's own pages, which have another host.
            assert!([400, 421].contains(&status(&said)), "{target}: {said}");
        }
        assert!(seen.lock().unwrap().is_empty(), "{seen:?}");
        // An empty port is the default one (RFC 3986 §3.2.3), and is not sent on.
        world.zone.set("empty.example", &[]);
        let said = world.ask(&get("http://empty.example:/", "Host: a\r\n")).await;
        assert!(said.contains("dns_error"), "{said}");
    });
}

#[test]
fn a_connect_has_an_authority_and_nothing_else() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, seen) = origin().await;
        for target in [
            format!("http://{at}/"),
            format!("https://{at}"),
            format!("//{at}"),
            format!("{at}/"),
            format!("{at}/path"),
            format!("{at}?a=b"),
            format!("me@{at}"),
            format!("{}", at.ip()),
            "a:abc".into(),
            "a:99999".into(),
            "a:".into(),
            "a,b:80".into(),
            "*:80".into(),
            "*".into(),
            "/".into(),
        ] {
            let said = world.ask(&format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
            assert_eq!(status(&said), 400, "{target}: {said}");
        }
        for fields in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
            let said = world.ask(&format!("CONNECT {at} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\nhello")).await;
            assert_eq!(status(&said), 400, "{fields}: {said}");
        }
        assert!(seen.lock().unwrap().is_empty(), "{seen:?}");
    });
}

#[test]
fn targets_go_on_as_they_are_or_encoded() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, seen) = origin().await;
        for (method, target, expected) in [
            ("GET", "/a<b>`c", "/a%3Cb%3E%60c"),
            ("GET", "/\u{e4}?\u{fc}", "/%C3%A4?%C3%BC"),
            ("GET", "", "/"),
            ("GET", "?a=b", "/?a=b"),
            ("GET", "/a//b/../c;d", "/a//b/../c;d"),
            ("OPTIONS", "", "*"),
            ("OPTIONS", "/", "/"),
        ] {
            let request =
                format!("{method} http://{at}{target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let said = world.ask(&request).await;
            assert_eq!(status(&said), 200, "{target}: {said}");
            let got = seen.lock().unwrap().pop().unwrap();
            assert!(got.starts_with(&format!("{method} {expected} HTTP/1.1\r\n")), "{target}: {got}");
            assert!(!got.contains("firstflight-"), "{got}");
        }
    });
}

/// The bytes behind a CONNECT are the tunnel's, whatever they look like; those behind a refused one are nobody's.
#[test]
fn what_follows_a_connect_is_no_request() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, seen) = origin().await;
        let hidden = format!("GET http://{at}/hidden HTTP/1.1\r\nHost: a\r\n\r\n");
        let said = world.ask(&format!("CONNECT {at} HTTP/1.1\r\nHost: a\r\n\r\n{hidden}")).await;
        assert_eq!((status(&said), said.matches("HTTP/1.1 200 ").count()), (200, 2), "{said}");
        assert_eq!(seen.lock().unwrap().join(""), hidden);
        let said = world.ask(&format!("CONNECT a:0 HTTP/1.1\r\nHost: a\r\n\r\n{hidden}")).await;
        assert_eq!((status(&said), said.matches("HTTP/1.1 ").count()), (400, 1), "{said}");
        assert_eq!(seen.lock().unwrap().len(), 1);
    });
}
