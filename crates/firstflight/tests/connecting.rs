//! Connects in an event loop of the program's own, in a namespace of each test's own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::namespace::{in_namespace, nft};
use firstflight::credential::{Outcome, Reason};
use firstflight::kernel::{self, Connected, Connecting, ListenConfig};
use firstflight::{Client, ConnectAnyError, FirstFlight, Listener};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const REQUEST: &[u8] = b"request";

fn listen() -> Listener {
    kernel::listen("127.0.0.1:0".parse().unwrap(), ListenConfig::default()).unwrap()
}

fn client() -> Client {
    Client::builder().kernel_only().build().unwrap()
}

/// Answers each connection, and says what became of its first flight.
fn serve(listener: Listener) {
    tokio::spawn(async move {
        loop {
            let mut stream = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut request = [0; REQUEST.len()];
                if stream.read_exact(&mut request).await.is_ok() {
                    stream.write_all(b"answer").await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            });
        }
    });
}

/// Steps until the connect is over.
async fn connect(
    client: &Client,
    to: &[SocketAddr],
    first: FirstFlight<'_>,
) -> Result<Connected, ConnectAnyError> {
    run(client.begin(to, first)).await
}

async fn run(mut connecting: Connecting) -> Result<Connected, ConnectAnyError> {
    assert_eq!(connecting.sockets().count(), 0, "nothing leaves before the first step");
    // The data may be a secret.
    assert!(!format!("{connecting:?}").contains("114, 101, 113"));
    assert!(!connecting.maybe_delivered());
    loop {
        if let Some(result) = connecting.step() {
            assert!(connecting.step().is_none() && connecting.timeout().is_none());
            return result;
        }
        assert!((1..=2).contains(&connecting.sockets().count()));
        // The server runs meanwhile.
        tokio::time::sleep(connecting.timeout().unwrap_or(Duration::MAX).min(Duration::from_millis(1))).await;
    }
}

/// Connects, sends the rest, and reads the answer. Returns the outcome, and how much left with the SYN.
async fn visit(client: &Client, at: SocketAddr, first: FirstFlight<'_>) -> (Outcome, usize, bool) {
    let mut connected = connect(client, &[at], first).await.unwrap();
    assert_eq!(connected.remote, at);
    connected.stream.write_all(&REQUEST[connected.sent..]).unwrap();
    let mut answer = String::new();
    let mut stream = tokio::net::TcpStream::from_std(connected.stream).unwrap();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
    (connected.outcome, connected.sent, connected.data_left_twice)
}

fn handshake(reason: Reason) -> Outcome {
    Outcome::Handshake(reason)
}

#[test]
fn the_second_visit_carries_its_request_and_an_order_waits() {
    in_namespace("3", || async {
        let (client, listener) = (client(), listen());
        let at = listener.local_addr();
        serve(listener);
        let (safe, order) = (FirstFlight::safely_replayable(REQUEST), FirstFlight::at_most_once(REQUEST));
        assert_eq!(visit(&client, at, safe).await, (handshake(Reason::NoCredential), 0, false));
        assert_eq!(visit(&client, at, safe).await, (Outcome::Accepted, REQUEST.len(), false));
        assert_eq!(visit(&client, at, order).await, (handshake(Reason::NotReplaySafe), 0, false));
        let plain = Client::builder().kernel_only().fast_open(false).build().unwrap();
        let plain = run(plain.begin(&[at], safe)).await.unwrap();
        assert_eq!((plain.outcome, plain.sent), (handshake(Reason::NotRequested), 0));
    });
}

#[test]
fn a_path_that_drops_data_in_syns_is_raced_and_then_known() {
    in_namespace("3", || async {
        let (client, listener) = (client(), listen());
        let at = listener.local_addr();
        serve(listener);
        let safe = FirstFlight::safely_replayable(REQUEST);
        visit(&client, at, safe).await;
        // SYNs with a cookie and data are longer than 74 bytes.
        let rules = format!(
            "table ip t {{ chain c {{ type filter hook input priority 0; \
             tcp dport {} tcp flags & (syn | ack) == syn meta length > 74 drop; }}; }}",
            at.port()
        );
        if !nft(&rules) {
            eprintln!("skipped: there is no nft command");
            return;
        }
        for _ in 0..2 {
            assert_eq!(visit(&client, at, safe).await, (handshake(Reason::SynTimedOut), 0, true));
        }
        assert_eq!(visit(&client, at, safe).await, (handshake(Reason::FailureMemory), 0, false));
    });
}

#[test]
fn a_closed_port_is_refused_and_the_next_address_is_taken() {
    in_namespace("3", || async {
        let (client, listener) = (client(), listen());
        let at = listener.local_addr();
        serve(listener);
        let closed = listen().local_addr();
        let safe = FirstFlight::safely_replayable(REQUEST);
        let error = connect(&client, &[closed], safe).await.unwrap_err();
        assert_eq!(error.attempts.last().unwrap().error.kind(), std::io::ErrorKind::ConnectionRefused);
        let connected = connect(&client, &[closed, at], safe).await.unwrap();
        assert_eq!(connected.remote, at);
        assert!(connect(&client, &[], safe).await.unwrap_err().attempts.is_empty());
    });
}
