//! Connecting to one of several addresses: which attempt wins, and where the data goes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use crate::certified;
use firstflight::credential::asap::{ClientCertificate, Identity, PrivateKey, certify};
use firstflight::credential::{FastOpenPolicy, KeyRing, NetworkId, Outcome, PendingLimit, Reason, Scheme};
use firstflight::link::path::Verdict;
use firstflight::wire::asap::CertificateFlags;
use firstflight::{
    Certified, ConnectAnyConfig, ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Stream, link,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const V4: &str = "10.0.0.2:80";
const V6: &str = "[fd00::2]:80";
const DATA: &[u8] = b"an order";
/// A delay so long that no attempt starts because of it.
const NEVER: Duration = Duration::from_secs(3600);

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Two endpoints with both address families. IPv6 packets are dropped while their direction is shut.
struct World {
    client: Endpoint,
    server: Endpoint,
    to_server_shut: Arc<AtomicBool>,
    to_client_shut: Arc<AtomicBool>,
}

fn shutter(link: &link::MemoryLink) -> Arc<AtomicBool> {
    let shut = Arc::new(AtomicBool::new(false));
    let look = Arc::clone(&shut);
    link.outgoing(|path| {
        path.set_filter(Box::new(move |packet| match packet.first() {
            Some(first) if first >> 4 == 6 && look.load(Ordering::Relaxed) => Verdict::Drop,
            _ => Verdict::Forward,
        }));
    });
    shut
}

fn world() -> World {
    let path = link::PathConfig::default();
    let (a, b) = link::real_time_pair(path.clone(), path, 1).unwrap();
    let (to_server_shut, to_client_shut) = (shutter(&a), shutter(&b));
    let endpoint = |addresses: [&str; 2], link| {
        let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        Endpoint::new(firstflight::config(addresses).unwrap(), link)
    };
    World {
        client: endpoint(["10.0.0.1", "fd00::1"], a),
        server: endpoint(["10.0.0.2", "fd00::2"], b),
        to_server_shut,
        to_client_shut,
    }
}

impl World {
    fn listen(&self, at: &str) -> Listener {
        let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
        let mut listen = ListenConfig::new(addr(at));
        listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
        self.server.listen(listen).unwrap()
    }

    /// Gets a cookie from the server at `V6`.
    async fn visit(&self, listener: &Listener) {
        let fast = ConnectConfig::default().fast_open(true);
        let (ours, theirs) =
            tokio::join!(self.client.connect(addr(V6), FirstFlight::empty(), &fast), listener.accept());
        assert_eq!(ours.unwrap().outcome().reason(), Some(Reason::NoCredential));
        drop(theirs);
    }

    /// Connects to `V6`, then to `V4`.
    async fn connect(&self, first: FirstFlight<'_>, delay: Duration) -> Stream {
        self.client.connect_any(&[addr(V6), addr(V4)], first, &config(delay)).await.unwrap()
    }
}

fn config(attempt_delay: Duration) -> ConnectAnyConfig {
    let connect = ConnectConfig::default().fast_open(true);
    ConnectAnyConfig::default().connect(connect).attempt_delay(attempt_delay)
}

/// Reads everything until the peer closes.
async fn everything(mut stream: Stream) -> Vec<u8> {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    all
}

/// Closes the client's end, and returns what the server received.
async fn received(mut ours: Stream, theirs: &Listener) -> Vec<u8> {
    ours.shutdown().await.unwrap();
    everything(theirs.accept().await.unwrap()).await
}

#[tokio::test]
async fn a_dark_family_costs_one_delay() {
    for first in [FirstFlight::safely_replayable(DATA), FirstFlight::at_most_once(DATA)] {
        let world = world();
        let (_v6, v4) = (world.listen(V6), world.listen(V4));
        world.to_server_shut.store(true, Ordering::Relaxed);
        let stream = world.connect(first, Duration::ZERO).await;
        assert_eq!(stream.peer_addr().unwrap(), addr(V4));
        assert_eq!(received(stream, &v4).await, DATA);
        assert_eq!(world.server.counters().passive_opens, 1);
    }
}

#[tokio::test]
async fn a_refusal_begins_the_next_attempt_at_once() {
    let world = world();
    let v4 = world.listen(V4);
    let stream = world.connect(FirstFlight::at_most_once(DATA), NEVER).await;
    assert_eq!(stream.peer_addr().unwrap(), addr(V4));
    assert_eq!(received(stream, &v4).await, DATA);
}

#[tokio::test]
async fn where_both_work_the_first_one_wins_and_the_other_sees_nothing() {
    let world = world();
    let (v6, _v4) = (world.listen(V6), world.listen(V4));
    world.visit(&v6).await;
    let stream = world.connect(FirstFlight::safely_replayable(DATA), NEVER).await;
    assert_eq!((stream.peer_addr().unwrap(), stream.outcome()), (addr(V6), Outcome::Accepted));
    assert_eq!(received(stream, &v6).await, DATA);
    // The first visit and this one.
    assert_eq!(world.server.counters().passive_opens, 2);
}

/// The first server accepts the data, but its answers are lost.
async fn answers_lost(first: FirstFlight<'_>) -> (World, Listener, Stream, Stream) {
    let world = world();
    let (v6, v4) = (world.listen(V6), world.listen(V4));
    world.visit(&v6).await;
    world.to_client_shut.store(true, Ordering::Relaxed);
    let won = world.connect(first, Duration::ZERO).await;
    assert_eq!(won.peer_addr().unwrap(), addr(V4));
    let lost = v6.accept().await.unwrap();
    (world, v4, won, lost)
}

/// Checks that an abandoned attempt is reset when its SYN-ACK finally arrives.
async fn is_reset(world: &World, mut lost: Stream) {
    world.to_client_shut.store(false, Ordering::Relaxed);
    let error = lost.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn replayable_data_that_may_have_been_taken_is_sent_again_and_reported_unknown() {
    let (world, v4, won, mut lost) = answers_lost(FirstFlight::safely_replayable(DATA)).await;
    assert_eq!(won.outcome(), Outcome::Handshake(Reason::Unknown));
    let mut copy = vec![0; DATA.len()];
    lost.read_exact(&mut copy).await.unwrap();
    assert_eq!(copy, DATA);
    is_reset(&world, lost).await;
    // The second attempt was an ordinary handshake.
    assert_eq!(won.info().unwrap().outcome, Outcome::Handshake(Reason::NotFirstAddress));
    assert_eq!(received(won, &v4).await, DATA);
}

#[tokio::test]
async fn without_data_nothing_is_unknown() {
    let (_world, _v4, won, _lost) = answers_lost(FirstFlight::safely_replayable(b"")).await;
    assert_eq!(won.outcome(), Outcome::Handshake(Reason::NotFirstAddress));
}

#[tokio::test]
async fn at_most_once_data_is_delivered_by_the_winner_alone() {
    let (world, v4, won, lost) = answers_lost(FirstFlight::at_most_once(DATA)).await;
    assert_eq!(won.outcome(), Outcome::Handshake(Reason::NotFirstAddress));
    assert_eq!(lost.early_bytes(), 0);
    is_reset(&world, lost).await;
    assert_eq!(received(won, &v4).await, DATA);
}

#[tokio::test]
async fn a_later_address_that_wins_says_that_it_was_not_the_first() {
    for (fast_open, reason) in [(true, Reason::NotFirstAddress), (false, Reason::NotRequested)] {
        let world = world();
        let (_v6, _v4) = (world.listen(V6), world.listen(V4));
        world.to_server_shut.store(true, Ordering::Relaxed);
        let mut config = config(Duration::ZERO);
        config.connect.fast_open = fast_open;
        let first = FirstFlight::safely_replayable(DATA);
        let won = world.client.connect_any(&[addr(V6), addr(V4)], first, &config).await.unwrap();
        assert_eq!((won.peer_addr().unwrap(), won.outcome()), (addr(V4), Outcome::Handshake(reason)));
    }
}

/// A certificate for an IPv4 address is not used with an IPv6 server, which sees a different client address.
#[tokio::test]
async fn a_certificate_is_shown_to_its_own_family_only() {
    let world = world();
    let (_v6, _v4) = (world.listen(V6), world.listen(V4));
    let connect = ConnectConfig::default().asap(Some(certified("10.0.0.1".parse().unwrap())));
    let config = ConnectAnyConfig::default().connect(connect).attempt_delay(NEVER);
    // No server here accepts certificates; the reason says so when a certificate was offered.
    for (server, reason) in [(V6, Reason::NoCredential), (V4, Reason::Policy)] {
        let first = FirstFlight::safely_replayable(DATA);
        let stream = world.client.connect_any(&[addr(server)], first, &config).await.unwrap();
        assert_eq!(stream.outcome(), Outcome::Handshake(reason));
    }
}

/// A certificate may carry an order that the server executes once. With several addresses it does not: the first one may
/// have executed the order when another one answers.
#[tokio::test]
async fn an_order_rides_with_a_certificate_to_a_single_address_only() {
    let executed = async |addresses: &[&str], lost: bool| {
        let world = world();
        let policy = certified::policy(&PrivateKey::from_seed(&[1; 32]));
        let early = Arc::new(Mutex::new(Vec::new()));
        for at in [V6, V4] {
            let mut listen = ListenConfig::new(addr(at));
            listen.asap = Some(policy.clone());
            let (listener, early) = (world.server.listen(listen).unwrap(), Arc::clone(&early));
            tokio::spawn(async move {
                while let Ok(mut stream) = listener.accept().await {
                    let mut got = [0; DATA.len()];
                    if stream.read_exact(&mut got).await.is_ok() {
                        early.lock().unwrap().push(stream.early_bytes() > 0);
                    }
                }
            });
        }
        world.to_client_shut.store(lost, Ordering::Relaxed);
        let asap = Some(Certified { once: true, ..certified("fd00::1".parse().unwrap()) });
        let connect = ConnectConfig::default().asap(asap);
        let config = ConnectAnyConfig::default().connect(connect).attempt_delay(Duration::ZERO);
        let addresses: Vec<_> = addresses.iter().map(|at| addr(at)).collect();
        let won =
            world.client.connect_any(&addresses, FirstFlight::at_most_once(DATA), &config).await.unwrap();
        while early.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(won);
        early.lock().unwrap().clone()
    };
    assert_eq!(executed(&[V6], false).await, [true]);
    assert_eq!(executed(&[V6, V4], true).await, [false]);
}

/// A certificate for servers that are known to accept it.
fn certified(address: IpAddr) -> Certified {
    let (verifier, key) = (PrivateKey::from_seed(&[1; 32]), PrivateKey::from_seed(&[2; 32]));
    let unix_s = (firstflight::unix_ms() / 1000) as u32;
    let flags = CertificateFlags::new(1, true, false).unwrap();
    let body = certify(&verifier, &key.public(), address, unix_s, 1800, flags).unwrap();
    let now = firstflight::certificate_clock().unwrap();
    let certificate = ClientCertificate::new(body, verifier.public(), address, key, now).unwrap();
    let identity = Identity::name("www.example.com", 80);
    Certified {
        certificate: certificate.into(),
        now,
        identity,
        known: true,
        once: false,
        mss: None,
        request_id: None,
    }
}

/// The reason of an attempt that requested nothing is the caller's.
#[tokio::test]
async fn why_nothing_was_asked_for_is_told() {
    let world = world();
    let _v6 = world.listen(V6);
    let connect = ConnectConfig::default().held_back(Some(Reason::NoCredential));
    let config = ConnectAnyConfig::default().connect(connect).attempt_delay(NEVER);
    let first = FirstFlight::safely_replayable(DATA);
    let stream = world.client.connect_any(&[addr(V6)], first, &config).await.unwrap();
    assert_eq!(stream.outcome(), Outcome::Handshake(Reason::NoCredential));
}

/// The next visit first tries the working address, without any delay, and sends the data to it.
#[tokio::test]
async fn a_dead_first_address_costs_its_delay_once_and_then_the_data_rides_to_the_other() {
    let world = world();
    let (_v6, v4) = (world.listen(V6), world.listen(V4));
    world.to_server_shut.store(true, Ordering::Relaxed);
    let first = FirstFlight::safely_replayable(DATA);
    let won = world.connect(first, Duration::ZERO).await;
    assert_eq!(received(won, &v4).await, DATA);
    // The delay never elapses here. The first visit gets a cookie, and the second one uses it.
    for expected in [Outcome::Handshake(Reason::NoCredential), Outcome::Accepted] {
        let visit = tokio::time::timeout(Duration::from_secs(30), world.connect(first, NEVER));
        let won = visit.await.expect("the dead address was tried first");
        assert_eq!((won.peer_addr().unwrap(), won.outcome()), (addr(V4), expected));
        assert_eq!(received(won, &v4).await, DATA);
    }
    // On another network the caller's order applies again.
    world.to_server_shut.store(false, Ordering::Relaxed);
    world.client.move_to(NetworkId([1; 16]));
    assert_eq!(world.connect(first, NEVER).await.peer_addr().unwrap(), addr(V6));
}

/// Both families fail at times. The address that worked last is tried first.
#[tokio::test]
async fn the_address_that_worked_last_goes_first() {
    let world = world();
    let (_v6, v4) = (world.listen(V6), world.listen(V4));
    world.to_server_shut.store(true, Ordering::Relaxed);
    let first = FirstFlight::at_most_once(DATA);
    assert_eq!(world.connect(first, Duration::ZERO).await.peer_addr().unwrap(), addr(V4));
    // Now the IPv4 address refuses, and the IPv6 address works again.
    drop(v4);
    world.to_server_shut.store(false, Ordering::Relaxed);
    assert_eq!(world.connect(first, NEVER).await.peer_addr().unwrap(), addr(V6));
    let _v4 = world.listen(V4);
    assert_eq!(world.connect(first, NEVER).await.peer_addr().unwrap(), addr(V6));
}

#[tokio::test]
async fn an_error_has_all_attempts() {
    let world = world();
    let remotes = [addr("[fd00::2]:81"), addr("10.0.0.2:82"), addr("10.0.0.2:83"), addr("0.0.0.0:84")];
    let first = FirstFlight::at_most_once(DATA);
    let error = world.client.connect_any(&remotes, first, &config(NEVER)).await.unwrap_err();
    let failed: Vec<_> = error.attempts.iter().map(|attempt| attempt.remote).collect();
    assert_eq!(failed, remotes);
    let text = error.to_string();
    assert!(text.starts_with("[fd00::2]:81: ") && text.contains("; 0.0.0.0:84: "), "{text}");
    assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);

    let error = world.client.connect_any(&[], first, &config(NEVER)).await.unwrap_err();
    assert_eq!(error.to_string(), "no address to connect to");
    world.client.shutdown(NEVER).await;
    assert_eq!(world.client.connections(), 0);
}

#[tokio::test]
async fn an_attempt_that_cannot_begin_does_not_take_the_data_along() {
    let world = world();
    let v6 = world.listen(V6);
    world.visit(&v6).await;
    let remotes = [addr("0.0.0.0:80"), addr(V6)];
    let first = FirstFlight::safely_replayable(DATA);
    let stream = world.client.connect_any(&remotes, first, &config(NEVER)).await.unwrap();
    assert_eq!((stream.peer_addr().unwrap(), stream.outcome()), (addr(V6), Outcome::Accepted));
    assert_eq!(received(stream, &v6).await, DATA);
}

#[tokio::test]
async fn a_dropped_race_leaves_no_connection() {
    let world = world();
    world.to_server_shut.store(true, Ordering::Relaxed);
    let config = config(NEVER);
    let remotes = [addr(V6)];
    let mut racing = Box::pin(world.client.connect_any(&remotes, FirstFlight::empty(), &config));
    tokio::select! {
        biased;
        _ = &mut racing => {}
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(world.client.connections(), 1);
    drop(racing);
    world.client.shutdown(NEVER).await;
    assert_eq!(world.client.connections(), 0);
}
