//! The examples, each in a network namespace whose kernel grants cookies. What rode in a SYN is seen at both ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(dead_code, unreachable_pub, reason = "main of the examples")]

#[path = "../examples/axum_server.rs"]
mod axum_server;
#[path = "../examples/hyper_client.rs"]
mod hyper_client;
#[path = "../examples/incoming.rs"]
mod incoming;
#[path = "../examples/too_early.rs"]
mod too_early;

use crate::namespace::{in_namespace, nft};
use crate::tonic_both;
use bytes::Bytes;
use firstflight::credential::{Outcome, Reason};
use firstflight::{Authority, Client, FirstFlight, ReplaySafety, Server, Way};
use firstflight_adapters::{Connector, FirstFlightInfo, TooEarlyLayer};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::io::AsyncReadExt;
use tower_service::Service;

const FIRST: Outcome = Outcome::Handshake(Reason::NoCredential);
const WAITED: Outcome = Outcome::Handshake(Reason::NotReplaySafe);

async fn bind() -> (Server, Authority) {
    let server = Server::bind("127.0.0.1:0").await.unwrap();
    let at = server.local_addrs()[0].into();
    (server, at)
}

#[test]
fn a_get_of_hyper_rides_to_axum_and_a_post_waits() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        tokio::spawn(axum_server::serve(server));
        let client = hyper_client::client();
        let uri = format!("http://{at}/");
        for (method, expected) in [
            (Method::GET, FIRST),
            (Method::GET, Outcome::Accepted),
            (Method::POST, WAITED),
            (Method::HEAD, Outcome::Accepted),
        ] {
            let (answer, outcome) = hyper_client::visit(&client, method.clone(), &uri).await.unwrap();
            println!("{method}: {outcome:?}: {answer}");
            assert_eq!(outcome, expected, "{method}");
            let early = !answer.contains("0 bytes arrived early");
            match method.as_str() {
                "GET" => assert_eq!(early, expected == Outcome::Accepted, "{answer}"),
                "POST" => assert_eq!(answer, "ordered; 0 bytes arrived early"),
                _ => {}
            }
        }
    });
}

#[test]
fn a_call_of_tonic_rides_only_if_the_client_says_that_it_may() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        tokio::spawn(tonic_both::serve(server));
        let client = Client::new();
        let call = async |safety| {
            let channel = tonic_both::channel(&client, format!("http://{at}"), safety).unwrap();
            let (early, answer) = tonic_both::call(channel, "hello").await.unwrap();
            assert_eq!(answer, "hello");
            println!("{safety:?}: {early} bytes early");
            early
        };
        assert_eq!(call(ReplaySafety::Safe).await, 0, "no cookie yet");
        // The preface of HTTP/2 waits two milliseconds for the request. On a busy machine it may leave alone.
        let mut longest = 0;
        for _ in 0..20 {
            let early = call(ReplaySafety::Safe).await;
            assert!(early > 0);
            longest = longest.max(early);
            // The preface and its settings are shorter, and hold neither the path nor the message.
            if longest > 150 {
                break;
            }
        }
        assert!(longest > 150, "{longest}");
        assert_eq!(call(ReplaySafety::ByMethod).await, 0);
        assert_eq!(call(ReplaySafety::Unsafe).await, 0);
    });
}

#[test]
fn an_early_call_of_tonic_waits_for_the_handshake() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        if !drop_acks(at.port(), Drops::First) {
            return;
        }
        tokio::spawn(tonic_both::serve(server));
        let client = Client::new();
        for expected in [false, true] {
            let channel = tonic_both::channel(&client, format!("http://{at}"), ReplaySafety::Safe).unwrap();
            let (early, answer) = tonic_both::call(channel, "hello").await.unwrap();
            assert_eq!((early > 0, &answer[..]), (expected, &b"hello"[..]));
        }
    });
}

#[test]
fn a_stream_of_connections_has_their_first_flights() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        tokio::spawn(incoming::serve(server));
        let client = Client::new();
        for expected in ["0 early: hello\n", "6 early: hello\n", "6 early: hello\n"] {
            let mut stream = client.connect(&at, FirstFlight::safely_replayable(b"hello\n")).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, expected);
        }
    });
}

/// Which packets of the client are dropped that acknowledge and carry nothing. Without them the server does not know that
/// the handshake is complete.
#[derive(PartialEq)]
enum Drops {
    /// All: only the next request or the end of the connection completes it.
    All,
    /// The first one of each connection: it is complete when the server has repeated its SYN-ACK, after a second.
    First,
}

/// False if there is no `nft`.
fn drop_acks(port: u16, drops: Drops) -> bool {
    let first = if drops == Drops::First { "tcp sport != @seen add @seen { tcp sport }" } else { "" };
    let dropped = nft(&format!(
        "table inet t {{ set seen {{ type inet_service; flags dynamic; size 1024; }}; \
         chain c {{ type filter hook input priority 0; \
         tcp dport {port} tcp flags & (syn | fin | rst | psh | ack) == ack {first} drop; }}; }}"
    ));
    if !dropped {
        eprintln!("skipped: there is no nft");
    }
    dropped
}

async fn send(
    client: &mut impl Service<Request<Full<Bytes>>, Response = Response<Incoming>, Error: std::fmt::Debug>,
    method: Method,
    at: &Authority,
) -> (StatusCode, Bytes, Outcome) {
    let uri = format!("http://{at}/");
    let request = Request::builder().method(method).uri(uri).body(Full::default()).unwrap();
    let mut response = client.call(request).await.unwrap();
    let info = response.extensions().get::<FirstFlightInfo>().unwrap().clone();
    assert_eq!(info.way(), Some(Way::Kernel));
    let body = response.body_mut().collect().await.unwrap().to_bytes();
    println!("{} {body:?} {:?}", response.status(), info.outcome());
    (response.status(), body, info.outcome())
}

#[test]
fn an_early_post_gets_425_and_is_repeated_after_the_handshake() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        if !drop_acks(at.port(), Drops::All) {
            return;
        }
        tokio::spawn(too_early::serve(server, TooEarlyLayer::new()));
        let connector = Connector::new(Client::new());
        let mut retries = too_early::retrying(connector.clone());
        let mut plain = too_early::client(connector.replay_safety(ReplaySafety::Safe));
        let page = Bytes::from_static(b"page");
        let ordered = Bytes::from_static(b"ordered");
        // The cookie. After the handshake every method is executed.
        assert_eq!(send(&mut plain, Method::POST, &at).await, (StatusCode::OK, ordered.clone(), FIRST));
        // A safe method is executed early.
        assert_eq!(send(&mut plain, Method::GET, &at).await, (StatusCode::OK, page, Outcome::Accepted));
        let (status, body, outcome) = send(&mut plain, Method::POST, &at).await;
        assert_eq!((status, outcome), (StatusCode::TOO_EARLY, Outcome::Accepted));
        assert!(body.is_empty());
        assert_eq!(send(&mut retries, Method::POST, &at).await, (StatusCode::OK, ordered, WAITED));
    });
}

#[test]
fn an_early_post_can_wait_for_the_handshake() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        if !drop_acks(at.port(), Drops::First) {
            return;
        }
        tokio::spawn(too_early::serve(server, TooEarlyLayer::waiting()));
        let mut client = too_early::client(Connector::new(Client::new()).replay_safety(ReplaySafety::Safe));
        let ordered = Bytes::from_static(b"ordered");
        assert_eq!(send(&mut client, Method::POST, &at).await, (StatusCode::OK, ordered.clone(), FIRST));
        // It rides in the SYN. The server repeats its SYN-ACK after a second, and the client's ACK then passes.
        assert_eq!(send(&mut client, Method::POST, &at).await, (StatusCode::OK, ordered, Outcome::Accepted));
    });
}
