//! Requests of plain HTTP to servers that do odd things.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use crate::world::{PUBLIC, World, head, in_world, read};
use firstflight_proxy::Limits;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a server has got, in order.
type Seen = Arc<Mutex<Vec<String>>>;

/// A server. `answer` has the number of the connection, the number of the request on it, and its head. It says what to send,
/// and `false` closes the connection behind it.
async fn server(
    answer: impl Fn(usize, usize, &str) -> (String, bool) + Send + Sync + 'static,
) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
    let at = listener.local_addr().unwrap();
    let (seen, answer) = (Seen::default(), Arc::new(answer));
    let tells = Arc::clone(&seen);
    tokio::spawn(async move {
        for connection in 0.. {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let (tells, answer) = (Arc::clone(&tells), Arc::clone(&answer));
            tokio::spawn(async move {
                for request in 0.. {
                    let head = head(&mut tcp).await;
                    if !head.ends_with("\r\n\r\n") {
                        return;
                    }
                    tells.lock().unwrap().push(head.clone());
                    let (says, stays) = answer(connection, request, &head);
                    tcp.write_all(says.as_bytes()).await.unwrap();
                    if !stays {
                        return;
                    }
                }
            });
        }
    });
    (at, seen)
}

fn ok(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

/// One request of a client whose connection stays. Returns the head and the body of the response.
async fn ask(tcp: &mut TcpStream, at: SocketAddr, method: &str, fields: &str) -> (String, String) {
    let request = format!("{method} http://{at}/ HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    tcp.write_all(request.as_bytes()).await.unwrap();
    answer(tcp, method).await
}

async fn answer(tcp: &mut TcpStream, method: &str) -> (String, String) {
    let head = head(tcp).await;
    let lower = head.to_ascii_lowercase();
    let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let length = length.filter(|_| method != "HEAD").map_or(0, |length| length.parse().unwrap());
    let body = read(tcp, length).await;
    (head, String::from_utf8(body).unwrap())
}

/// The server closes kept connections when it likes, also when a request is on its way.
#[test]
fn a_request_that_meets_the_end_of_a_kept_connection_goes_again_if_it_may() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        for (method, again) in
            [("GET", true), ("HEAD", true), ("DELETE", true), ("POST", false), ("PATCH", false)]
        {
            // Each connection answers one request, and ends with the next one.
            let (at, seen) = server(|_, request, _| match request {
                0 => (ok(""), true),
                _ => (String::new(), false),
            })
            .await;
            let mut tcp = world.dial().await;
            assert!(ask(&mut tcp, at, "GET", "").await.0.starts_with("HTTP/1.1 200 "));
            let length = if again { "" } else { "Content-Length: 0\r\n" };
            let (head, _) = ask(&mut tcp, at, method, length).await;
            let status = if again { "HTTP/1.1 200 " } else { "HTTP/1.1 502 " };
            assert!(head.starts_with(status), "{method}: {head}");
            let count = seen.lock().unwrap().iter().filter(|head| head.starts_with(method)).count();
            let first = usize::from(method == "GET");
            assert_eq!(count - first, if again { 2 } else { 1 }, "{method}");
        }
    });
}

/// A byte of an answer, or a new connection: the server has seen it, so it does not go again.
#[test]
fn a_request_that_was_answered_somehow_does_not_go_again() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        for says in
            ["", "H", "HTTP/1.1 200 OK\r\nContent-Le", "HTTP/1.1 103 Early Hints\r\n\r\n", "nonsense\r\n\r\n"]
        {
            for kept in [false, true] {
                let (at, seen) = server(move |connection, request, _| match (connection, request) {
                    (0, 0) if kept => (ok(""), true),
                    _ => (says.to_owned(), false),
                })
                .await;
                let mut tcp = world.dial().await;
                if kept {
                    assert!(ask(&mut tcp, at, "GET", "").await.0.starts_with("HTTP/1.1 200 "));
                }
                let (head, _) = ask(&mut tcp, at, "DELETE", "").await;
                assert!(head.starts_with("HTTP/1.1 502 "), "{says:?} {kept}: {head}");
                let count = seen.lock().unwrap().iter().filter(|head| head.starts_with("DELETE")).count();
                assert_eq!(count, if kept && says.is_empty() { 2 } else { 1 }, "{says:?} {kept}");
            }
        }
    });
}

/// A server that authenticates connections, as with NTLM (RFC 4559 §6): who has sent the second message is known on it.
async fn domain() -> (SocketAddr, Seen) {
    let known = Mutex::new(std::collections::HashMap::<usize, String>::new());
    server(move |connection, _, head| {
        let mut known = known.lock().unwrap();
        if let Some(user) = head.split("TYPE3-").nth(1).and_then(|rest| rest.split("\r\n").next()) {
            known.insert(connection, user.to_owned());
        }
        let challenge = |text: &str| {
            format!("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: {text}\r\nContent-Length: 0\r\n\r\n")
        };
        let says = match known.get(&connection) {
            Some(user) => ok(user),
            None if head.contains("TYPE1") => challenge("NTLM challenge"),
            None => challenge("NTLM"),
        };
        (says, true)
    })
    .await
}

#[test]
fn a_connection_that_a_client_authenticated_serves_no_other_client() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        for scheme in ["NTLM", "Negotiate"] {
            let (at, _) = domain().await;
            let (mut alice, mut mallory) = (world.dial().await, world.dial().await);
            let one = format!("Authorization: {scheme} TYPE1\r\n");
            let three = |user: &str| format!("Authorization: {scheme} TYPE3-{user}\r\n");
            assert!(ask(&mut mallory, at, "GET", "").await.0.starts_with("HTTP/1.1 401 "));
            assert!(ask(&mut alice, at, "GET", &one).await.0.starts_with("HTTP/1.1 401 "));
            // Between challenge and answer nobody else gets the connection.
            assert!(ask(&mut mallory, at, "GET", "").await.0.starts_with("HTTP/1.1 401 "));
            assert_eq!(ask(&mut alice, at, "GET", &three("alice")).await.1, "alice");
            let (head, body) = ask(&mut mallory, at, "GET", "").await;
            assert!(head.starts_with("HTTP/1.1 401 ") && body.is_empty(), "{scheme}: {head}{body}");
            let mut third = world.dial().await;
            assert!(ask(&mut third, at, "GET", "").await.0.starts_with("HTTP/1.1 401 "));
            // Her own requests stay on it.
            assert_eq!(ask(&mut alice, at, "GET", "").await.1, "alice");
            drop(alice);
            assert!(ask(&mut mallory, at, "GET", "").await.0.starts_with("HTTP/1.1 401 "));
            // And so does what another client does on its own.
            assert!(ask(&mut mallory, at, "GET", &one).await.0.starts_with("HTTP/1.1 401 "));
            assert_eq!(ask(&mut mallory, at, "GET", &three("mallory")).await.1, "mallory");
            assert!(ask(&mut third, at, "GET", "").await.0.starts_with("HTTP/1.1 401 "));
        }
    });
}

/// RFC 9112 §6.3.
#[test]
fn the_length_of_a_response_is_settled() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let chunked = "5\r\nhello\r\n0\r\n\r\n";
        for (fields, body, status, expected) in [
            ("Content-Length: 1\r\nTransfer-Encoding: chunked", chunked, 200, "hello"),
            ("Transfer-Encoding: chunked\r\nContent-Length: 100", chunked, 200, "hello"),
            ("Content-Length: 5\r\nContent-Length: 5", "hello", 200, "hello"),
            ("Content-Length: 5, 5", "hello", 200, "hello"),
            ("Content-Length: 5\r\nContent-Length: 6", "hello", 502, ""),
            ("Transfer-Encoding: gzip, chunked", chunked, 502, ""),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", chunked, 502, ""),
            ("Transfer-Encoding: identity", "hello", 502, ""),
            ("X: no length", "hello", 200, "hello"),
        ] {
            let (at, _) =
                server(move |_, _, _| (format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}"), false)).await;
            let request = format!("GET http://{at}/ HTTP/1.0\r\nHost: a\r\n\r\n");
            let said = world.ask(&request).await;
            assert!(
                said.starts_with(&format!("HTTP/1.1 {status} "))
                    || said.starts_with(&format!("HTTP/1.0 {status} ")),
                "{fields}: {said}"
            );
            let (head, got) = said.split_once("\r\n\r\n").unwrap();
            let head = head.to_ascii_lowercase();
            if status == 200 {
                assert_eq!(got, expected, "{fields}");
                assert!(!head.contains("transfer-encoding"), "{fields}: {head}");
                assert!(head.matches("content-length").count() <= 1, "{fields}: {head}");
            }
        }
    });
}

#[test]
fn a_body_where_none_may_be_reaches_no_other_client() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        for (method, response) in [
            ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n"),
            ("GET", "HTTP/1.1 204 No Content\r\nContent-Length: 30\r\n\r\n"),
            ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 30\r\n\r\n"),
        ] {
            let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
            let at = listener.local_addr().unwrap();
            tokio::spawn(async move {
                loop {
                    let (mut tcp, _) = listener.accept().await.unwrap();
                    tokio::spawn(async move {
                        while head(&mut tcp).await.ends_with("\r\n\r\n") {
                            tcp.write_all(response.as_bytes()).await.unwrap();
                            tokio::time::sleep(Duration::from_millis(100)).await;
                            // The body that it announced, late.
                            let _ =
                                tcp.write_all(b"HTTP/1.1 200 EVIL\r\nContent-Length: 4\r\n\r\nevil").await;
                        }
                    });
                }
            });
            for wait in [0, 200] {
                let mut tcp = world.dial().await;
                let request = format!("{method} http://{at}/ HTTP/1.1\r\nHost: a\r\n\r\n");
                for _ in 0..2 {
                    tcp.write_all(request.as_bytes()).await.unwrap();
                    let head = head(&mut tcp).await;
                    assert!(!head.contains("EVIL"), "{method} {response}: {head}");
                    assert!(
                        !head.contains("204") || !head.to_ascii_lowercase().contains("content-length"),
                        "{head}"
                    );
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
            }
        }
    });
}

#[test]
fn reasons_and_trailers_pass_and_what_belongs_to_a_head_does_not() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut request = head(&mut tcp).await;
            while !request.contains("\r\n0\r\n") || !request.ends_with("\r\n\r\n") {
                request.push(tcp.read_u8().await.unwrap().into());
            }
            let trailers = "X-Sum: 1\r\nContent-Length: 9\r\nHost: evil\r\nConnection: x-hop\r\nX-Hop: 2\r\n";
            let names = "X-Sum, Content-Length, Host, Connection, X-Hop";
            let head =
                format!("HTTP/1.1 299 All is Fine\r\nTrailer: {names}\r\nTransfer-Encoding: chunked\r\n\r\n");
            tcp.write_all(format!("{head}2\r\nok\r\n0\r\n{trailers}\r\n").as_bytes()).await.unwrap();
            request
        });
        let trailers = "X-Sum: 1\r\nContent-Length: 9\r\nHost: evil\r\nX-Forwarded-For: 1.2.3.4\r\n";
        let names =
            "Trailer: X-Sum, Content-Length, Host, X-Forwarded-For\r\nTE: trailers\r\nConnection: TE, close";
        let head =
            format!("POST http://{at}/ HTTP/1.1\r\nHost: a\r\n{names}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let said = world.ask(&format!("{head}2\r\nhi\r\n0\r\n{trailers}\r\n")).await;
        let (_, request) = serving
            .await
            .unwrap()
            .split_once("\r\n\r\n")
            .map(|(a, b)| (a.to_owned(), b.to_lowercase()))
            .unwrap();
        assert!(request.contains("x-sum: 1"), "{request}");
        assert!(
            !["content-length", "host", "x-forwarded-for"].iter().any(|name| request.contains(name)),
            "{request}"
        );
        assert!(said.starts_with("HTTP/1.1 299 All is Fine\r\n"), "{said}");
        let body = said.split_once("\r\n\r\n").unwrap().1.to_lowercase();
        assert!(body.contains("x-sum: 1"), "{said}");
        assert!(!["content-length", "host", "x-hop"].iter().any(|name| body.contains(name)), "{said}");
    });
}

/// hyper leaves out a body of unknown length for these methods unless the head names it.
#[test]
fn the_chunked_body_of_a_get_arrives() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
            let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
            let at = listener.local_addr().unwrap();
            let serving = tokio::spawn(async move {
                let (mut tcp, _) = listener.accept().await.unwrap();
                let mut request = head(&mut tcp).await;
                while !request.ends_with("\r\n0\r\n\r\n") {
                    request.push(tcp.read_u8().await.unwrap().into());
                }
                tcp.write_all(ok("").as_bytes()).await.unwrap();
                request
            });
            let fields = "Transfer-Encoding: chunked\r\nConnection: close";
            let said = world
                .ask(&format!(
                    "{method} http://{at}/x HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
                ))
                .await;
            assert!(said.starts_with("HTTP/1.1 200 "), "{method}: {said}");
            assert!(serving.await.unwrap().ends_with("\r\n\r\n4\r\nbody\r\n0\r\n\r\n"), "{method}");
        }
    });
}

#[test]
fn interim_responses_end_here_and_an_expectation_is_answered() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, seen) = server(|_, _, _| {
            let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
            (format!("{interim}{}", ok("yes")), true)
        })
        .await;
        let mut tcp = world.dial().await;
        let (head, body) = ask(&mut tcp, at, "GET", "").await;
        assert!(head.starts_with("HTTP/1.1 200 ") && body == "yes", "{head}");
        let request = format!(
            "POST http://{at}/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        );
        tcp.write_all(request.as_bytes()).await.unwrap();
        let (head, _) = answer(&mut tcp, "POST").await;
        assert!(head.starts_with("HTTP/1.1 100 "), "{head}");
        tcp.write_all(b"hi").await.unwrap();
        let (head, body) = answer(&mut tcp, "POST").await;
        assert!(head.starts_with("HTTP/1.1 200 ") && body == "yes", "{head}");
        assert!(!seen.lock().unwrap()[1].to_lowercase().contains("expect"));
        let (head, _) = ask(&mut world.dial().await, at, "GET", "Expect: a miracle\r\n").await;
        assert!(head.starts_with("HTTP/1.1 417 "), "{head}");
    });
}

#[test]
fn an_answer_before_the_end_of_the_request_arrives() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        let (at, _) = server(|_, _, _| {
            (
                "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge"
                    .into(),
                false,
            )
        })
        .await;
        let mut tcp = world.dial().await;
        let head = format!("PUT http://{at}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n");
        tcp.write_all(head.as_bytes()).await.unwrap();
        let (mut reads, mut writes) = tcp.into_split();
        let sending = tokio::spawn(async move {
            // Until the proxy closes.
            let _ = writes.write_all(&vec![7; 3_000_000]).await;
            writes
        });
        let mut said = Vec::new();
        let _ = reads.read_to_end(&mut said).await;
        let said = String::from_utf8_lossy(&said);
        assert!(said.starts_with("HTTP/1.1 413 ") && said.ends_with("large"), "{said}");
        sending.await.unwrap();
    });
}

/// What was cut must not look whole, also where only the end of the connection says where a body ends.
#[test]
fn a_response_that_its_server_cut_ends_with_a_reset() {
    in_world(|| async {
        let world = World::new(|proxy| proxy).await;
        for (fields, body) in [("Content-Length: 100", "half"), ("Transfer-Encoding: chunked", "64\r\nhalf")]
        {
            for version in ["1.0", "1.1"] {
                let (at, _) =
                    server(move |_, _, _| (format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}"), false))
                        .await;
                let mut tcp = world.dial().await;
                let request = format!("GET http://{at}/ HTTP/{version}\r\nHost: a\r\n\r\n");
                tcp.write_all(request.as_bytes()).await.unwrap();
                let end = tcp.read_to_end(&mut Vec::new()).await;
                assert!(end.is_err(), "{fields} HTTP/{version}");
            }
        }
    });
}

/// Neither a client that takes nothing, nor one that sends nothing more, has its server for ever.
#[test]
fn clients_that_neither_take_nor_send_are_given_up() {
    in_world(|| async {
        let mut limits = Limits::default();
        limits.body_timeout = Duration::from_millis(300);
        let world = World::new(|proxy| proxy.limits(limits)).await;
        let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
        let at = listener.local_addr().unwrap();
        let mut takes_nothing = world.dial().await;
        takes_nothing
            .write_all(format!("GET http://{at}/ HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
            .await
            .unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        head(&mut far).await;
        far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await.unwrap();
        while far.write_all(&[7; 1 << 16]).await.is_ok() {}
        // Its own connection is reset.
        while takes_nothing.read(&mut [0; 1 << 16]).await.is_ok_and(|count| count > 0) {}
        let mut sends_nothing = world.dial().await;
        let request = format!("POST http://{at}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf");
        sends_nothing.write_all(request.as_bytes()).await.unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        head(&mut far).await;
        let mut body = Vec::new();
        let _ = far.read_to_end(&mut body).await;
        assert_eq!(body, b"half");
    });
}

/// One that reads slowly is none of those.
#[test]
fn a_client_that_reads_slowly_gets_everything() {
    in_world(|| async {
        let mut limits = Limits::default();
        limits.body_timeout = Duration::from_secs(2);
        let world = World::new(|proxy| proxy.limits(limits)).await;
        let listener = TcpListener::bind(SocketAddr::from((PUBLIC, 0))).await.unwrap();
        let at = listener.local_addr().unwrap();
        let sent = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&sent);
        tokio::spawn(async move {
            let (mut far, _) = listener.accept().await.unwrap();
            head(&mut far).await;
            far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n").await.unwrap();
            far.write_all(&vec![7; 20_000_000]).await.unwrap();
            counts.store(1, Ordering::Relaxed);
        });
        let mut tcp = world.dial().await;
        tcp.write_all(format!("GET http://{at}/ HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
        head(&mut tcp).await;
        let mut room = vec![0; 1 << 20];
        let mut got = 0;
        while got < 20_000_000 {
            let count = tcp.read(&mut room).await.unwrap();
            assert!(count > 0, "cut after {got} bytes");
            got += count;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(sent.load(Ordering::Relaxed), 1);
    });
}
