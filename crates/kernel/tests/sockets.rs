//! The kernel's Fast Open in a network namespace of each test's own. Needs root and `ip`; otherwise nothing is tested.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use crate::namespace::{in_namespace, nft};
use firstflight_credential::{CookieKey, KeyRing, Outcome, Reason, Scheme};
use firstflight_kernel::{
    Carry, ClientFail, ListenConfig, Listener, Quoted, Setting, Stream, SystemClock, Trip, connect,
    has_cookie, send_through,
};
use firstflight_wire::tcp::{FastOpen, FastOpenForm};
use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn any(family: u8) -> SocketAddr {
    if family == 4 { "127.0.0.1:0" } else { "[::1]:0" }.parse().unwrap()
}

/// Connects with `data`, sends the rest of it, and returns both ends.
async fn visit(listener: &Listener, data: &[u8]) -> (Stream, Stream) {
    let attempt = connect(listener.local_addr(), None, Carry::Data(data)).unwrap();
    let client = async {
        let (mut stream, taken) = attempt.established().await.unwrap();
        stream.write_all(&data[taken..]).await.unwrap();
        stream
    };
    let (client, server) = tokio::join!(client, listener.accept());
    (client, server.unwrap())
}

/// What the server reads is `data`, and its answer arrives.
async fn exchange((mut client, mut server): (Stream, Stream), data: &[u8]) {
    let mut request = vec![0; data.len()];
    server.read_exact(&mut request).await.unwrap();
    assert_eq!(request, data);
    server.write_all(b"answer").await.unwrap();
    server.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
}

fn outcomes((client, server): &(Stream, Stream)) -> (Outcome, Outcome) {
    (client.outcome(), server.outcome())
}

fn handshake(reason: Reason) -> Outcome {
    Outcome::Handshake(reason)
}

/// A ring of keys, each made of one byte.
fn keys(bytes: &[u8]) -> Arc<KeyRing> {
    let mut keys = bytes.iter().map(|byte| CookieKey::from_bytes([*byte; 16]));
    let ring = KeyRing::new(Scheme::Linux, keys.next().unwrap());
    Arc::new(keys.fold(ring, KeyRing::with_backup))
}

#[test]
fn a_cookie_of_the_kernel_is_seen() {
    in_namespace("3", || async {
        for family in [4, 6] {
            let listener = Listener::bind(any(family), ListenConfig::default()).unwrap();
            let ip = listener.local_addr().ip();
            assert!(!has_cookie(ip).unwrap(), "before a visit");
            exchange(visit(&listener, b"first").await, b"first").await;
            assert!(has_cookie(ip).unwrap(), "after it");
        }
    });
}

/// The host has two addresses, and what it sent from one is no cookie for the other.
#[test]
fn a_cookie_of_another_address_of_this_host_is_none() {
    in_namespace("3", || async {
        let ip = |arguments: &str| {
            assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "{arguments}");
        };
        let from = |address: &str| {
            ip(&format!("route replace local 10.9.9.9 dev lo table local src {address}"));
        };
        for address in ["10.9.9.9", "10.1.1.1", "10.1.1.2"] {
            ip(&format!("addr add {address}/32 dev lo"));
        }
        from("10.1.1.1");
        let listener = Listener::bind("10.9.9.9:0".parse().unwrap(), ListenConfig::default()).unwrap();
        let server = listener.local_addr().ip();
        exchange(visit(&listener, b"first").await, b"first").await;
        assert!(has_cookie(server).unwrap());
        from("10.1.1.2");
        assert!(!has_cookie(server).unwrap(), "the next SYN would ask for one");
        from("10.1.1.1");
        assert!(has_cookie(server).unwrap());
    });
}

#[test]
fn the_second_visit_sends_its_data_in_the_syn() {
    for family in [4, 6] {
        in_namespace("3", move || async move {
            let listener =
                Listener::bind(any(family), ListenConfig::default().keys(Some(keys(&[1])))).unwrap();
            assert!(listener.grants_cookies());
            let ends = visit(&listener, b"first").await;
            assert_eq!(outcomes(&ends), (handshake(Reason::NoCredential), handshake(Reason::NoCredential)));
            assert_eq!(ends.1.early_bytes(), 0);
            exchange(ends, b"first").await;
            let ends = visit(&listener, b"second").await;
            assert_eq!(outcomes(&ends), (Outcome::Accepted, Outcome::Accepted));
            assert_eq!(ends.1.early_bytes(), 6);
            exchange(ends, b"second").await;
        });
    }
}

#[test]
fn a_request_larger_than_the_syn_is_accepted_in_part() {
    in_namespace("3", || async {
        assert!(Command::new("ip").args(["link", "set", "lo", "mtu", "1500"]).status().unwrap().success());
        let listener = Listener::bind(any(4), ListenConfig::default()).unwrap();
        let data = vec![7; 1800];
        exchange(visit(&listener, &data).await, &data).await;
        let ends = visit(&listener, &data).await;
        assert_eq!(outcomes(&ends), (Outcome::AcceptedPart, Outcome::Accepted));
        assert!((1000..1500).contains(&ends.1.early_bytes()), "{}", ends.1.early_bytes());
        exchange(ends, &data).await;
    });
}

#[test]
fn a_listener_that_does_not_grant_says_why() {
    in_namespace("3", || async {
        let listener = Listener::bind(any(4), ListenConfig::default().pending(0)).unwrap();
        assert!(!listener.grants_cookies());
        let ends = visit(&listener, b"request").await;
        assert_eq!(outcomes(&ends), (handshake(Reason::NoCredential), handshake(Reason::Policy)));
        exchange(ends, b"request").await;
    });
    in_namespace("1", || async {
        let setting = Setting::read().unwrap();
        assert!(setting.client && !setting.server);
        let listener = Listener::bind(any(4), ListenConfig::default()).unwrap();
        assert!(!listener.grants_cookies());
        let ends = visit(&listener, b"request").await;
        assert_eq!(outcomes(&ends), (handshake(Reason::NoCredential), handshake(Reason::SystemDisabled)));
        exchange(ends, b"request").await;
    });
}

#[test]
fn a_client_that_may_not_use_fast_open_connects_as_usual() {
    in_namespace("2", || async {
        let listener = Listener::bind(any(4), ListenConfig::default()).unwrap();
        let ends = visit(&listener, b"request").await;
        assert_eq!(outcomes(&ends), (handshake(Reason::SystemDisabled), handshake(Reason::NotRequested)));
        exchange(ends, b"request").await;
    });
}

#[test]
fn data_is_kept_back_if_the_caller_says_so() {
    in_namespace("3", || async {
        let listener = Listener::bind(any(4), ListenConfig::default()).unwrap();
        exchange(visit(&listener, b"first").await, b"first").await;
        for (carry, client, server) in [
            (Carry::Request(Reason::NotReplaySafe), Reason::NotReplaySafe, Reason::NoData),
            (Carry::Nothing(Reason::FailureMemory), Reason::FailureMemory, Reason::NotRequested),
        ] {
            let attempt = connect(listener.local_addr(), None, carry).unwrap();
            assert_eq!(attempt.taken(), 0);
            let (ends, accepted) = tokio::join!(attempt.established(), listener.accept());
            let ends = (ends.unwrap().0, accepted.unwrap());
            assert_eq!(outcomes(&ends), (handshake(client), handshake(server)));
        }
    });
}

#[test]
fn a_cookie_of_a_forgotten_key_is_stale_and_one_of_the_backup_is_not() {
    in_namespace("3", || async {
        let listener = Listener::bind(any(4), ListenConfig::default().keys(Some(keys(&[1])))).unwrap();
        exchange(visit(&listener, b"first").await, b"first").await;
        // The new key grants, and the old one is still good.
        listener.set_keys(keys(&[2, 1])).unwrap();
        let ends = visit(&listener, b"backup").await;
        assert_eq!(outcomes(&ends), (Outcome::Accepted, Outcome::Accepted));
        exchange(ends, b"backup").await;
        listener.set_keys(keys(&[3, 4, 5])).unwrap();
        let ends = visit(&listener, b"stale").await;
        let reasons = (Reason::DataNotAcknowledged, Reason::StaleOrWrongCredential);
        assert_eq!(outcomes(&ends), (handshake(reasons.0), handshake(reasons.1)));
        exchange(ends, b"stale").await;
        // The refusal brought a cookie of the new key.
        let ends = visit(&listener, b"again").await;
        assert_eq!(outcomes(&ends), (Outcome::Accepted, Outcome::Accepted));
        exchange(ends, b"again").await;
        let paper = Arc::new(KeyRing::new(Scheme::Paper, CookieKey::from_bytes([1; 16])));
        assert_eq!(listener.set_keys(paper).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn a_closed_port_refuses_with_and_without_a_cookie() {
    in_namespace("3", || async {
        // Below the ports that the kernel gives to clients: a client with this very port would reach itself.
        let listener = Listener::bind("127.0.0.1:1080".parse().unwrap(), ListenConfig::default()).unwrap();
        let at = listener.local_addr();
        exchange(visit(&listener, b"first").await, b"first").await;
        drop(listener);
        // A child of another test has the socket as well, from its fork to its exec.
        for _ in 0..3000 {
            if std::net::TcpStream::connect(at).is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for carry in
            [Carry::Data(b"data"), Carry::Request(Reason::NotReplaySafe), Carry::Nothing(Reason::Policy)]
        {
            let refused = match connect(at, None, carry) {
                Ok(attempt) => attempt.established().await.map(|_| ()),
                Err(error) => Err(error),
            };
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused, "{carry:?}");
        }
    });
}

#[test]
fn a_drained_listener_loses_no_connection_whose_data_was_acknowledged() {
    in_namespace("3", || async {
        let listener = Listener::bind(any(4), ListenConfig::default()).unwrap();
        exchange(visit(&listener, b"first").await, b"first").await;
        let mut clients = Vec::new();
        for _ in 0..20 {
            let attempt = connect(listener.local_addr(), None, Carry::Data(b"order")).unwrap();
            clients.push(attempt.established().await.unwrap().0);
        }
        listener.drain().unwrap();
        let mut served = 0;
        while let Some(mut stream) = listener.try_accept().unwrap() {
            let mut order = [0; 5];
            stream.read_exact(&mut order).await.unwrap();
            stream.write_all(b"done").await.unwrap();
            served += 1;
        }
        drop(listener);
        assert_eq!(served, 20);
        for mut client in clients {
            assert_eq!(client.outcome(), Outcome::Accepted);
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "done");
        }
    });
}

#[test]
fn two_listeners_of_one_port_know_each_others_cookies() {
    in_namespace("3", || async {
        let config = || ListenConfig::default().keys(Some(keys(&[1]))).share_port(true);
        let first = Listener::bind(any(4), config()).unwrap();
        let second = Listener::bind(first.local_addr(), config()).unwrap();
        let mut early = 0;
        for n in 0..40 {
            let attempt = connect(first.local_addr(), None, Carry::Data(b"request")).unwrap();
            let accept = async {
                tokio::select! {
                    one = first.accept() => one.unwrap(),
                    two = second.accept() => two.unwrap(),
                }
            };
            let (client, server) = tokio::join!(attempt.established(), accept);
            early += usize::from(client.unwrap().0.outcome().is_accepted());
            assert_eq!(server.outcome().is_accepted(), n > 0);
        }
        assert_eq!(early, 39);
    });
}

#[test]
fn an_aborted_connection_ends_with_a_reset() {
    in_namespace("3", || async {
        let listener = Listener::bind(any(4), ListenConfig::default()).unwrap();
        let (mut client, server) = visit(&listener, b"request").await;
        server.abort().unwrap();
        let mut answer = String::new();
        let error = client.read_to_string(&mut answer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    });
}

/// The SYN's data can be read and answered before the client's ACK, and the ACK is noticed.
#[test]
fn an_early_child_writes_before_it_is_confirmed() {
    in_namespace("3", || async {
        let listener = Listener::bind(any(4), ListenConfig::default()).unwrap();
        exchange(visit(&listener, b"first").await, b"first").await;
        // Nothing but the SYN and the SYN-ACK passes: the ACK is dropped until the rule goes.
        let port = listener.local_addr().port();
        let drop = format!(
            "add table ip t; add chain ip t c {{ type filter hook input priority 0; }}; \
             add rule ip t c tcp dport {port} tcp flags & (syn | ack) == ack drop"
        );
        if !nft(&drop) {
            eprintln!("skipped: there is no nft command");
            return;
        }
        let attempt = connect(listener.local_addr(), None, Carry::Data(b"early")).unwrap();
        let mut server = listener.accept().await.unwrap();
        assert!(server.is_early() && server.early_bytes() == 5);
        let waited = tokio::time::timeout(Duration::from_millis(50), server.handshake_confirmed()).await;
        assert!(waited.is_err(), "confirmed without an ACK");
        let mut request = [0; 5];
        server.read_exact(&mut request).await.unwrap();
        server.write_all(b"answer").await.unwrap();
        server.shutdown().await.unwrap();
        assert!(server.is_early());
        assert!(nft("flush ruleset"));
        let (mut client, taken) = attempt.established().await.unwrap();
        assert_eq!(taken, 5);
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "answer");
        server.handshake_confirmed().await.unwrap();
        assert!(!server.is_early());
    });
}

/// Data without a cookie is ignored, and its SYN is answered.
#[test]
fn data_without_a_cookie_shows_that_the_path_passes_it() {
    in_namespace("3", || async {
        let listener = Listener::bind(any(4), ListenConfig::default()).unwrap();
        let attempt = connect(listener.local_addr(), None, Carry::WithoutCookie(b"request")).unwrap();
        assert_eq!(attempt.taken(), 7);
        let (ends, accepted) = tokio::join!(attempt.established(), listener.accept());
        let ends = (ends.unwrap().0, accepted.unwrap());
        let reasons = (Reason::DataNotAcknowledged, Reason::NotRequested);
        assert_eq!(outcomes(&ends), (handshake(reasons.0), handshake(reasons.1)));
        assert_eq!(ends.0.info().unwrap().client_fail, ClientFail::DataNotAcked);
        exchange(ends, b"request").await;
    });
}

/// A host that refuses a SYN with an ICMP error quotes it. The quote shows the option as it arrived there.
#[test]
fn a_returned_syn_shows_its_option() {
    for family in [4, 6] {
        in_namespace("3", move || async move {
            let listener = Listener::bind(any(family), ListenConfig::default()).unwrap();
            let to = listener.local_addr();
            let chain = "add table inet t; add chain inet t c { type filter hook input priority 0; };";
            let back = "add rule inet t c tcp flags & (syn | ack) == syn";
            if !nft(&format!("{chain} {back} reject with icmpx type admin-prohibited")) {
                eprintln!("skipped: there is no nft command");
                return;
            }
            let quoted = Quoted::Option(FastOpen::Request(FastOpenForm::Standard));
            let returned = Trip::Returned { router: Some(to.ip()), quoted };
            assert_eq!(send_through(to, 1, b"data").await.unwrap(), returned);
            assert!(nft("flush ruleset"));
            assert_eq!(send_through(to, 9, b"data").await.unwrap(), Trip::Arrived);
            drop(listener);
            assert_eq!(send_through(to, 9, b"data").await.unwrap(), Trip::Arrived, "a closed port");
        });
    }
}

#[test]
fn the_kernel_knows_whether_its_clock_is_kept() {
    assert!(SystemClock::read().is_ok());
}
