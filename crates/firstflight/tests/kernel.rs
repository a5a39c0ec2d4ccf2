//! The kernel's sockets: the race, the memory, and the listener, in a namespace of each test's own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::namespace::{in_namespace, nft};
use firstflight::credential::{CookieKey, KeyRing, NetworkId, Outcome, Reason, Scheme};
use firstflight::kernel::{self, ListenConfig};
use firstflight::{Client, ClientError, ConnectAnyError, CredentialCache, FirstFlight, Listener, Stream};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::UnboundedReceiver;

const REQUEST: &[u8] = b"request";

fn listen() -> Listener {
    kernel::listen("127.0.0.1:0".parse().unwrap(), ListenConfig::default()).unwrap()
}

/// Answers each connection of `listener`, and counts the requests.
fn serve(listener: Listener) -> UnboundedReceiver<Outcome> {
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let mut stream = listener.accept().await.unwrap();
            let tell = tell.clone();
            tokio::spawn(async move {
                let mut request = [0; REQUEST.len()];
                if stream.read_exact(&mut request).await.is_ok() {
                    assert_eq!(request, REQUEST);
                    let _ = tell.send(stream.outcome());
                    stream.write_all(b"answer").await.unwrap();
                    stream.shutdown().await.unwrap();
                }
            });
        }
    });
    told
}

/// A client on an unknown network.
fn client() -> Client {
    Client::builder().kernel_only().network(NetworkId::UNKNOWN).build().unwrap()
}

/// A client, the address of a server, and what the server executes.
fn begin() -> (Client, SocketAddr, UnboundedReceiver<Outcome>) {
    let listener = listen();
    (client(), listener.local_addr(), serve(listener))
}

/// The server has executed `count` requests by now, and no more.
async fn executed_exactly(count: usize, executed: &mut UnboundedReceiver<Outcome>) {
    for _ in 0..count {
        executed.recv().await.unwrap();
    }
    assert!(executed.try_recv().is_err(), "executed twice");
}

/// Sends the request and reads the answer.
async fn visit(client: &Client, at: SocketAddr, first: FirstFlight<'_>) -> Stream {
    let mut stream = client.connect(at, first).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
    stream
}

/// Why no address answered.
fn attempts(error: ClientError) -> ConnectAnyError {
    match error {
        ClientError::Connect { error, .. } => error,
        other => panic!("{other}"),
    }
}

/// Polls once.
async fn is_pending(mut future: Pin<&mut impl Future>) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}

fn safely() -> FirstFlight<'static> {
    FirstFlight::safely_replayable(REQUEST)
}

fn handshake(reason: Reason) -> Outcome {
    Outcome::Handshake(reason)
}

/// Drops (or, with `reject`, refuses) SYNs to `port` that carry data: with a cookie and without data they have 72 bytes.
fn meddle(port: u16, how: &str) -> bool {
    meddle_above(74, port, how)
}

/// The same for SYNs of more than `bytes`. An ordinary one has 60.
fn meddle_above(bytes: u32, port: u16, how: &str) -> bool {
    nft(&format!(
        "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; \
         add rule ip t c tcp dport {port} tcp flags & (syn | ack) == syn meta length > {bytes} {how}"
    ))
}

#[test]
fn the_second_visit_carries_its_request_and_an_order_waits() {
    in_namespace("3", || async {
        let (client, at, mut executed) = begin();
        assert_eq!(visit(&client, at, safely()).await.outcome(), handshake(Reason::NoCredential));
        let second = visit(&client, at, safely()).await;
        assert_eq!((second.outcome(), second.race()), (Outcome::Accepted, None));
        let order = visit(&client, at, FirstFlight::at_most_once(REQUEST)).await;
        assert_eq!(order.outcome(), handshake(Reason::NotReplaySafe));
        let told = [executed.recv().await, executed.recv().await, executed.recv().await].map(Option::unwrap);
        let no_data = handshake(Reason::NoData);
        assert_eq!(told, [handshake(Reason::NoCredential), Outcome::Accepted, no_data]);
    });
}

#[test]
fn a_server_that_grants_no_cookies_is_named_at_the_second_visit() {
    in_namespace("1", || async {
        let (client, at, _executed) = begin();
        let grants_none = async || client.outlook(&at.into(), &[at]).await.grants_none;
        let mut outcomes = Vec::new();
        for visits in 0..5 {
            assert_eq!(grants_none().await, (1..3).contains(&visits), "before visit {visits}");
            if visits == 2 {
                std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").unwrap();
            }
            outcomes.push(visit(&client, at, safely()).await.outcome());
        }
        let none = handshake(Reason::PeerWithoutFastOpen);
        // The third visit is granted a cookie, and the fourth one shows it.
        assert_eq!(
            outcomes,
            [handshake(Reason::NoCredential), none, none, Outcome::Accepted, Outcome::Accepted]
        );
    });
}

#[test]
fn a_path_that_drops_data_in_syns_is_raced_twice_and_then_known() {
    in_namespace("3", || async {
        let (client, at, mut executed) = begin();
        visit(&client, at, safely()).await;
        if !meddle(at.port(), "drop") {
            eprintln!("skipped: there is no nft command");
            return;
        }
        for _ in 0..2 {
            let raced = visit(&client, at, safely()).await;
            assert_eq!(raced.outcome(), handshake(Reason::SynTimedOut));
            assert!(raced.race().unwrap().data_left_twice());
        }
        let known = visit(&client, at, safely()).await;
        assert_eq!((known.outcome(), known.race()), (handshake(Reason::FailureMemory), None));
        executed_exactly(4, &mut executed).await;
    });
}

/// An order leaves once, whatever the path does with the SYN that asks for a cookie.
#[test]
fn an_order_does_not_leave_twice() {
    in_namespace("3", || async {
        let (client, at, mut executed) = begin();
        visit(&client, at, safely()).await;
        if !meddle_above(60, at.port(), "drop") {
            eprintln!("skipped: there is no nft command");
            return;
        }
        let order = visit(&client, at, FirstFlight::at_most_once(REQUEST)).await;
        assert!(!order.race().unwrap().data_left_twice());
        assert_eq!(order.outcome(), handshake(Reason::SynTimedOut));
        executed_exactly(2, &mut executed).await;
    });
}

#[test]
fn a_refused_syn_with_data_goes_again_plain() {
    in_namespace("3", || async {
        let (client, at, mut executed) = begin();
        visit(&client, at, safely()).await;
        if !meddle(at.port(), "reject with tcp reset") {
            eprintln!("skipped: there is no nft command");
            return;
        }
        let plain = visit(&client, at, safely()).await;
        assert_eq!(plain.outcome(), handshake(Reason::SynRefused));
        assert_eq!(visit(&client, at, safely()).await.outcome(), handshake(Reason::FailureMemory));
        executed_exactly(3, &mut executed).await;
    });
}

/// A server that took the data, answered and reset has not refused the SYN: the request runs once, its answer is read,
/// and the next visit uses Fast Open as before.
#[test]
fn a_reset_behind_an_accepted_first_flight_is_not_a_refused_syn() {
    in_namespace("3", || async {
        let listener = listen();
        let (client, at) = (client(), listener.local_addr());
        for turn in 0..4 {
            let mut connecting = std::pin::pin!(client.connect(at, safely()).into_future());
            assert!(is_pending(connecting.as_mut()).await);
            if turn > 0 {
                // All of this is at the client before it looks.
                let mut server = listener.accept().await.unwrap();
                server.write_all(b"answer").await.unwrap();
                drop(server);
            }
            let mut stream = connecting.await.unwrap();
            if turn == 0 {
                let mut server = listener.accept().await.unwrap();
                server.read_exact(&mut [0; REQUEST.len()]).await.unwrap();
                continue;
            }
            assert_eq!((stream.outcome(), stream.race()), (Outcome::Accepted, None), "turn {turn}");
            let mut answer = [0; 6];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"answer");
            assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
            let again = std::pin::pin!(listener.accept());
            assert!(is_pending(again).await, "the request went again");
        }
    });
}

#[test]
fn a_closed_port_is_refused_and_a_dead_first_address_costs_one_delay() {
    in_namespace("3", || async {
        let (client, at, mut executed) = begin();
        let closed = SocketAddr::new(at.ip(), 1);
        let refused = client.connect(closed, safely()).await.unwrap_err();
        assert_eq!(std::io::Error::from(refused).kind(), std::io::ErrorKind::ConnectionRefused);
        let mut stream = client.connect(at, safely()).at([closed, at]).await.unwrap();
        assert_eq!((stream.peer_addr().unwrap(), stream.outcome()), (at, handshake(Reason::NotFirstAddress)));
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        // The address that lost comes last, so the other one asks for a cookie, and then uses it.
        for outcome in [handshake(Reason::NoCredential), Outcome::Accepted] {
            let mut stream = client.connect(at, safely()).at([closed, at]).await.unwrap();
            assert_eq!(stream.outcome(), outcome);
            stream.read_to_string(&mut answer).await.unwrap();
        }
        let nowhere = client.connect(at, safely()).at([]).await.unwrap_err();
        assert!(attempts(nowhere).attempts.is_empty());
        executed_exactly(3, &mut executed).await;
    });
}

/// The refusal of a SYN with an option may be a filter's, so an ordinary SYN follows. Once that one was refused, too,
/// the next visit begins with it.
#[test]
fn a_closed_port_is_remembered() {
    in_namespace("3", || async {
        let (client, at, mut executed) = begin();
        let refuse = |bytes| meddle_above(bytes, at.port(), "counter reject with tcp reset");
        if !refuse(0) {
            eprintln!("skipped: there is no nft command");
            return;
        }
        for syns in [2, 3, 4] {
            client.connect(at, safely()).await.unwrap_err();
            let rules =
                std::process::Command::new("nft").args(["list", "table", "ip", "t"]).output().unwrap();
            let rules = String::from_utf8(rules.stdout).unwrap();
            assert!(rules.contains(&format!("counter packets {syns} ")), "not {syns} SYNs: {rules}");
        }
        // When it answers, it is asked for a cookie again.
        assert!(nft("flush chain ip t c"));
        assert_eq!(visit(&client, at, safely()).await.outcome(), handshake(Reason::FailureMemory));
        assert_eq!(visit(&client, at, safely()).await.outcome(), handshake(Reason::NoCredential));
        executed_exactly(2, &mut executed).await;
    });
}

/// The SYN with data is lost, and the second attempt's is refused: then there is nothing left to try.
#[test]
fn a_refused_second_attempt_is_the_last_one() {
    in_namespace("3", || async {
        let (client, at, _executed) = begin();
        // The round-trip time and the cookie belong to the address, so they serve the other port, too.
        visit(&client, at, safely()).await;
        if !meddle(1, "drop") {
            eprintln!("skipped: there is no nft command");
            return;
        }
        let closed = SocketAddr::new(at.ip(), 1);
        let refused = attempts(client.connect(closed, safely()).await.unwrap_err());
        // The one with data and the ordinary one.
        assert_eq!(refused.attempts.len(), 2, "{refused}");
    });
}

/// Timestamps tell which copy of a SYN was answered, so a round-trip time is known, and the next visit can race.
#[test]
fn a_lost_syn_does_not_hide_the_round_trip_time() {
    in_namespace("3", || async {
        let (client, at, mut executed) = begin();
        // Every second SYN is lost, beginning with the first one.
        if !meddle_above(0, at.port(), "numgen inc mod 2 == 0 drop") {
            eprintln!("skipped: there is no nft command");
            return;
        }
        let first = visit(&client, at, safely()).await;
        assert_eq!(first.race(), None);
        assert!(nft("flush chain ip t c") && meddle_above(60, at.port(), "drop"));
        let second = visit(&client, at, safely()).await;
        assert!(second.race().is_some(), "it waited for the kernel's second SYN: {}", second.outcome());
        executed_exactly(2, &mut executed).await;
    });
}

/// The keys of two listeners of one port change as a farm changes them, one listener after the other, while a client
/// visits all the time.
#[test]
fn a_rotation_of_keys_under_load_refuses_no_cookie() {
    in_namespace("3", || async {
        let ring = |bytes: &[u8]| {
            let mut keys = bytes.iter().map(|byte| CookieKey::from_bytes([*byte; 16]));
            let first = KeyRing::new(Scheme::Linux, keys.next().unwrap());
            Arc::new(keys.fold(first, KeyRing::with_backup))
        };
        let config = || ListenConfig::default().share_port(true).keys(Some(ring(&[1])));
        let first = kernel::listen("127.0.0.1:0".parse().unwrap(), config()).unwrap();
        let at = first.local_addr();
        let second = kernel::listen(at, config()).unwrap();
        let handles = [first.keys(), second.keys()];
        let (mut one, mut two) = (serve(first), serve(second));
        let client = client();
        visit(&client, at, safely()).await;
        for (step, keys) in [&[1, 2], &[2, 1], &[2, 3], &[3, 2]].into_iter().enumerate() {
            for handle in &handles {
                assert!(handle.set(ring(keys)));
                for n in 0..50 {
                    let outcome = visit(&client, at, safely()).await.outcome();
                    assert_eq!(outcome, Outcome::Accepted, "visit {n} of step {step}");
                }
            }
        }
        let mut served = [0, 0];
        for (count, told) in served.iter_mut().zip([&mut one, &mut two]) {
            while told.try_recv().is_ok() {
                *count += 1;
            }
        }
        assert!(served.iter().all(|count| *count > 0), "{served:?}");
        // A ring that knows none of the cookie's keys refuses it: the keys did change.
        assert!(handles.iter().all(|handle| handle.set(ring(&[4]))));
        let refused = visit(&client, at, safely()).await;
        assert_eq!(refused.outcome(), handshake(Reason::DataNotAcknowledged));
        let paper = Arc::new(KeyRing::new(Scheme::Paper, CookieKey::from_bytes([1; 16])));
        assert!(!handles[0].set(paper), "the kernel has Linux' function only");
    });
}

/// What one process learnt of a path, the next one knows.
#[test]
fn what_was_learnt_outlives_the_process() {
    in_namespace("3", || async {
        let listener = listen();
        let at = listener.local_addr();
        let _executed = serve(listener);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache.json");
        let home = NetworkId([1; 16]);
        let start = |network| Client::builder().network(network).cache(&path).build().unwrap();
        let client = start(home);
        visit(&client, at, safely()).await;
        if !meddle(at.port(), "reject with tcp reset") {
            eprintln!("skipped: there is no nft command");
            return;
        }
        assert_eq!(visit(&client, at, safely()).await.outcome(), handshake(Reason::SynRefused));
        client.close().await;
        let known = CredentialCache::read(&path).unwrap();
        assert!(known[0].rtt.is_some() && known[0].avoided.is_some());
        assert_eq!(visit(&start(home), at, safely()).await.outcome(), handshake(Reason::FailureMemory));
        // On an unknown network the file is not used.
        let elsewhere = start(NetworkId::UNKNOWN);
        assert_eq!(visit(&elsewhere, at, safely()).await.outcome(), handshake(Reason::SynRefused));
    });
}
