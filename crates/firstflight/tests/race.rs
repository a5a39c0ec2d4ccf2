//! Connecting to one of several addresses by an engine: which attempt wins, and where the data goes. Runs in virtual time.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use firstflight::credential::{FastOpenPolicy, KeyRing, NetworkId, Outcome, PendingLimit, Reason, Scheme};
use firstflight::link::VirtualTime;
use firstflight::{
    Client, ClientError, ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Stream, Time,
    block_on_virtual, link,
};
use firstflight_link::path::FilterVerdict;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(crate) const V4: &str = "10.0.0.2:80";
pub(crate) const V6: &str = "[fd00::2]:80";
/// The server.
pub(crate) const NAME: (&str, u16) = ("www.example.com", 80);
pub(crate) const DATA: &[u8] = b"an order";
/// How long an attempt has before the next one begins.
const DELAY: Duration = Duration::from_millis(250);
const NEVER: Duration = Duration::from_secs(3600);

pub(crate) fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Two endpoints with both address families. IPv6 packets are dropped while their direction is shut.
pub(crate) struct World {
    pub(crate) ours: Endpoint,
    pub(crate) server: Endpoint,
    /// A client by the first endpoint.
    client: Client,
    pub(crate) time: Time,
    to_server_shut: Arc<AtomicBool>,
    pub(crate) to_client_shut: Arc<AtomicBool>,
}

/// Runs a test in virtual time.
pub(crate) fn run(test: impl AsyncFnOnce(World)) {
    let time = VirtualTime::new(Duration::from_millis(firstflight::unix_ms()));
    block_on_virtual(&time, async { test(world(&time)).await }).unwrap();
}

fn shutter(link: &link::MemoryLink) -> Arc<AtomicBool> {
    let shut = Arc::new(AtomicBool::new(false));
    let look = Arc::clone(&shut);
    link.outgoing(|path| {
        path.set_filter(Box::new(move |packet| match packet.first() {
            Some(first) if first >> 4 == 6 && look.load(Ordering::Relaxed) => FilterVerdict::Drop,
            _ => FilterVerdict::Forward,
        }));
    });
    shut
}

fn world(time: &VirtualTime) -> World {
    let path = link::PathConfig::default();
    let (a, b) = link::virtual_time_pair(path.clone(), path, 1, time).unwrap();
    let (to_server_shut, to_client_shut) = (shutter(&a), shutter(&b));
    let time = Time::from(time.clone());
    let endpoint = |addresses: [&str; 2], link| {
        let addresses = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
        Endpoint::in_time(firstflight::config(addresses).unwrap(), link, &time)
    };
    let ours = endpoint(["10.0.0.1", "fd00::1"], a);
    let server = endpoint(["10.0.0.2", "fd00::2"], b);
    let client = Client::builder().engine(ours.clone()).build().unwrap();
    World { ours, server, client, time, to_server_shut, to_client_shut }
}

impl World {
    pub(crate) fn listen(&self, at: &str) -> Listener {
        let keys = KeyRing::new(Scheme::Linux, firstflight::random_key().unwrap());
        let mut listen = ListenConfig::new(addr(at));
        listen.fast_open = Some(FastOpenPolicy::new(Arc::new(keys), Arc::new(PendingLimit::new(16))));
        self.server.listen(listen).unwrap()
    }

    /// Gets a cookie from the server at `V6`.
    async fn visit(&self, listener: &Listener) {
        let fast = ConnectConfig::default().fast_open(true);
        let (ours, theirs) =
            tokio::join!(self.ours.connect(addr(V6), FirstFlight::empty(), &fast), listener.accept());
        assert_eq!(ours.unwrap().outcome().reason(), Some(Reason::NoCredential));
        drop(theirs);
    }

    /// Connects to `V6`, then to `V4`.
    async fn connect(&self, first: FirstFlight<'_>) -> Stream {
        self.connect_to(&[addr(V6), addr(V4)], first).await.unwrap()
    }

    async fn connect_to(&self, at: &[SocketAddr], first: FirstFlight<'_>) -> Result<Stream, ClientError> {
        self.client.connect(NAME, first).at(at).await
    }

    /// Runs `visit`, and checks that no second attempt began because of its delay.
    pub(crate) async fn at_once<T>(&self, visit: impl Future<Output = T>) -> T {
        let began = self.time.now();
        let result = visit.await;
        assert!(self.time.now() - began < DELAY);
        result
    }
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

#[test]
fn a_dark_family_costs_one_delay() {
    for first in [FirstFlight::safely_replayable(DATA), FirstFlight::at_most_once(DATA)] {
        run(async |world| {
            let (_v6, v4) = (world.listen(V6), world.listen(V4));
            world.to_server_shut.store(true, Ordering::Relaxed);
            let began = world.time.now();
            let stream = world.connect(first).await;
            assert_eq!(world.time.now() - began, DELAY);
            assert_eq!(stream.peer_addr().unwrap(), addr(V4));
            assert_eq!(received(stream, &v4).await, DATA);
            assert_eq!(world.server.counters().passive_opens, 1);
        });
    }
}

#[test]
fn a_refusal_begins_the_next_attempt_at_once() {
    run(async |world| {
        let v4 = world.listen(V4);
        let stream = world.at_once(world.connect(FirstFlight::at_most_once(DATA))).await;
        assert_eq!(stream.peer_addr().unwrap(), addr(V4));
        assert_eq!(received(stream, &v4).await, DATA);
    });
}

#[test]
fn where_both_work_the_first_one_wins_and_the_other_sees_nothing() {
    run(async |world| {
        let (v6, _v4) = (world.listen(V6), world.listen(V4));
        world.visit(&v6).await;
        let stream = world.at_once(world.connect(FirstFlight::safely_replayable(DATA))).await;
        assert_eq!((stream.peer_addr().unwrap(), stream.outcome()), (addr(V6), Outcome::Accepted));
        assert_eq!(received(stream, &v6).await, DATA);
        // The first visit and this one.
        assert_eq!(world.server.counters().passive_opens, 2);
    });
}

/// The first server accepts the data, but its answers are lost.
async fn answers_lost(world: &World, first: FirstFlight<'_>) -> (Listener, Stream, Stream) {
    let (v6, v4) = (world.listen(V6), world.listen(V4));
    world.visit(&v6).await;
    world.to_client_shut.store(true, Ordering::Relaxed);
    let won = world.connect(first).await;
    assert_eq!(won.peer_addr().unwrap(), addr(V4));
    let lost = v6.accept().await.unwrap();
    (v4, won, lost)
}

/// Checks that an abandoned attempt is reset when its SYN-ACK finally arrives.
async fn is_reset(world: &World, mut lost: Stream) {
    world.to_client_shut.store(false, Ordering::Relaxed);
    let error = lost.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn replayable_data_that_may_have_been_taken_is_sent_again_and_reported_unknown() {
    run(async |world| {
        let (v4, won, mut lost) = answers_lost(&world, FirstFlight::safely_replayable(DATA)).await;
        assert_eq!(won.outcome(), Outcome::Handshake(Reason::Unknown));
        let mut copy = vec![0; DATA.len()];
        lost.read_exact(&mut copy).await.unwrap();
        assert_eq!(copy, DATA);
        is_reset(&world, lost).await;
        // The second attempt was an ordinary handshake.
        assert_eq!(won.info().unwrap().outcome, Outcome::Handshake(Reason::NotFirstAddress));
        assert_eq!(received(won, &v4).await, DATA);
    });
}

#[test]
fn without_data_nothing_is_unknown() {
    run(async |world| {
        let (_v4, won, _lost) = answers_lost(&world, FirstFlight::safely_replayable(b"")).await;
        assert_eq!(won.outcome(), Outcome::Handshake(Reason::NotFirstAddress));
    });
}

#[test]
fn at_most_once_data_is_delivered_by_the_winner_alone() {
    run(async |world| {
        let (v4, won, lost) = answers_lost(&world, FirstFlight::at_most_once(DATA)).await;
        assert_eq!(won.outcome(), Outcome::Handshake(Reason::NotFirstAddress));
        assert_eq!(lost.early_bytes(), 0);
        is_reset(&world, lost).await;
        assert_eq!(received(won, &v4).await, DATA);
    });
}

#[test]
fn a_later_address_that_wins_says_that_it_was_not_the_first() {
    for (fast_open, reason) in [(true, Reason::NotFirstAddress), (false, Reason::NotRequested)] {
        run(async |world| {
            let (_v6, _v4) = (world.listen(V6), world.listen(V4));
            world.to_server_shut.store(true, Ordering::Relaxed);
            let client = Client::builder().engine(world.ours.clone()).fast_open(fast_open).build().unwrap();
            let first = FirstFlight::safely_replayable(DATA);
            let won = client.connect(NAME, first).at([addr(V6), addr(V4)]).await.unwrap();
            assert_eq!((won.peer_addr().unwrap(), won.outcome()), (addr(V4), Outcome::Handshake(reason)));
        });
    }
}

/// The next visit first tries the working address, without any delay, and sends the data to it.
#[test]
fn a_dead_first_address_costs_its_delay_once_and_then_the_data_rides_to_the_other() {
    run(async |world| {
        let (_v6, v4) = (world.listen(V6), world.listen(V4));
        world.to_server_shut.store(true, Ordering::Relaxed);
        let first = FirstFlight::safely_replayable(DATA);
        let won = world.connect(first).await;
        assert_eq!(received(won, &v4).await, DATA);
        // The first visit gets a cookie, and the second one uses it.
        for expected in [Outcome::Handshake(Reason::NoCredential), Outcome::Accepted] {
            // Else the dead address was tried first.
            let won = world.at_once(world.connect(first)).await;
            assert_eq!((won.peer_addr().unwrap(), won.outcome()), (addr(V4), expected));
            assert_eq!(received(won, &v4).await, DATA);
        }
        // On another network the caller's order applies again.
        world.to_server_shut.store(false, Ordering::Relaxed);
        world.ours.move_to(NetworkId([1; 16]));
        assert_eq!(world.at_once(world.connect(first)).await.peer_addr().unwrap(), addr(V6));
    });
}

/// Both families fail at times. The address that worked last is tried first.
#[test]
fn the_address_that_worked_last_goes_first() {
    run(async |world| {
        let (_v6, v4) = (world.listen(V6), world.listen(V4));
        world.to_server_shut.store(true, Ordering::Relaxed);
        let first = FirstFlight::at_most_once(DATA);
        assert_eq!(world.connect(first).await.peer_addr().unwrap(), addr(V4));
        // Now the IPv4 address refuses, and the IPv6 address works again.
        drop(v4);
        world.to_server_shut.store(false, Ordering::Relaxed);
        assert_eq!(world.at_once(world.connect(first)).await.peer_addr().unwrap(), addr(V6));
        let _v4 = world.listen(V4);
        assert_eq!(world.at_once(world.connect(first)).await.peer_addr().unwrap(), addr(V6));
    });
}

#[test]
fn an_error_has_all_attempts() {
    run(async |world| {
        let remotes = [addr("[fd00::2]:81"), addr("10.0.0.2:82"), addr("10.0.0.2:83"), addr("0.0.0.0:84")];
        let first = FirstFlight::at_most_once(DATA);
        let error = world.at_once(world.connect_to(&remotes, first)).await.unwrap_err();
        let ClientError::Connect { error, .. } = error else { panic!("{error}") };
        let failed: Vec<_> = error.attempts.iter().map(|attempt| attempt.remote).collect();
        assert_eq!(failed, remotes);
        let text = error.to_string();
        assert!(text.starts_with("[fd00::2]:81: ") && text.contains("; 0.0.0.0:84: "), "{text}");
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::ConnectionRefused);

        let error = world.connect_to(&[], first).await.unwrap_err();
        assert_eq!(error.to_string(), "no address to connect to");
        world.ours.shutdown(NEVER).await;
        assert_eq!(world.ours.connections(), 0);
    });
}

#[test]
fn an_attempt_that_cannot_begin_does_not_take_the_data_along() {
    run(async |world| {
        let v6 = world.listen(V6);
        world.visit(&v6).await;
        let remotes = [addr("0.0.0.0:80"), addr(V6)];
        let first = FirstFlight::safely_replayable(DATA);
        let stream = world.at_once(world.connect_to(&remotes, first)).await.unwrap();
        assert_eq!((stream.peer_addr().unwrap(), stream.outcome()), (addr(V6), Outcome::Accepted));
        assert_eq!(received(stream, &v6).await, DATA);
    });
}

#[test]
fn a_dropped_race_leaves_no_connection() {
    run(async |world| {
        world.to_server_shut.store(true, Ordering::Relaxed);
        let remotes = [addr(V6)];
        let mut racing = Box::pin(world.connect_to(&remotes, FirstFlight::empty()));
        tokio::select! {
            biased;
            _ = &mut racing => {}
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(world.ours.connections(), 1);
        drop(racing);
        world.ours.shutdown(NEVER).await;
        assert_eq!(world.ours.connections(), 0);
    });
}
