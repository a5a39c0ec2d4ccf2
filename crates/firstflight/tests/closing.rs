//! How connections and endpoints end, in virtual time.
#![allow(clippy::unwrap_used, reason = "tests")]

use firstflight::link::{MemoryLink, PathConfig, VirtualTime, virtual_time_pair};
use firstflight::{
    ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Stream, Time, block_on_virtual,
};
use firstflight_link::path::FilterVerdict;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};

const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)), 80);
/// One-way delay.
const DELAY: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);

/// A client and a server on one path.
struct World {
    time: Time,
    client: Endpoint,
    server: Endpoint,
    listener: Listener,
    /// While set, packets of the client no longer arrive.
    client_is_gone: Arc<AtomicBool>,
}

impl World {
    fn new(time: &VirtualTime, user_timeout: Option<Duration>) -> Self {
        let path = PathConfig::with_delay(DELAY);
        let (near, far) = virtual_time_pair(path.clone(), path, 1, time).unwrap();
        let client_is_gone = Arc::new(AtomicBool::new(false));
        let gone = Arc::clone(&client_is_gone);
        near.outgoing(|path| {
            path.set_filter(Box::new(move |_| match gone.load(Ordering::Relaxed) {
                true => FilterVerdict::Drop,
                false => FilterVerdict::Forward,
            }));
        });
        let time = Time::from(time.clone());
        let engine = |ip: &str, link: MemoryLink| {
            let mut config = firstflight::config(vec![ip.parse().unwrap()]).unwrap();
            config.tcp.set_user_timeout(user_timeout);
            Endpoint::in_time(config, link, &time)
        };
        let (client, server) = (engine("10.0.0.1", near), engine("10.0.0.2", far));
        let listener = server.listen(ListenConfig::new(SERVER)).unwrap();
        Self { time, client, server, listener, client_is_gone }
    }

    /// Both ends of a new connection.
    async fn connect(&self) -> (Stream, Stream) {
        let plain = ConnectConfig::default();
        let (ours, theirs) =
            tokio::join!(self.client.connect(SERVER, FirstFlight::empty(), &plain), self.listener.accept());
        (ours.unwrap(), theirs.unwrap())
    }

    /// Measures how long the server's shutdown takes.
    async fn shut_down(&self) -> Duration {
        let began = self.time.unix();
        self.server.shutdown(PATIENCE).await;
        self.time.unix() - began
    }
}

fn run<F: Future<Output = ()>>(user_timeout: Option<Duration>, test: impl FnOnce(World) -> F) {
    let time = VirtualTime::new(Duration::ZERO);
    // Endpoints start tasks, so they are created within the runtime.
    block_on_virtual(&time, async { test(World::new(&time, user_timeout)).await }).unwrap();
}

/// The client has acknowledged everything, and nothing would read data that it still sends.
#[test]
fn shutdown_does_not_wait_for_a_client_that_stays_open() {
    run(None, |world| async move {
        let (mut ours, mut theirs) = world.connect().await;
        let (idle, released) = world.connect().await;
        drop(released);
        theirs.write_all(&[1; 200_000]).await.unwrap();
        drop(theirs);
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            ours.read_to_end(&mut all).await.map(|_| (all.len(), ours))
        });
        let took = world.shut_down().await;
        assert_eq!(world.server.connections(), 0);
        let (len, _still_open) = reading.await.unwrap().unwrap();
        assert_eq!(len, 200_000);
        assert!(took < Duration::from_secs(1), "{took:?}");
        drop(idle);
    });
}

/// The client's FIN follows its acknowledgement at once, and it is acknowledged.
#[test]
fn shutdown_waits_for_the_fin_of_a_client_that_closes_too() {
    run(None, |world| async move {
        let (mut ours, theirs) = world.connect().await;
        drop(theirs);
        let closing = tokio::spawn(async move { ours.read(&mut [0; 8]).await });
        let took = world.shut_down().await;
        assert_eq!(closing.await.unwrap().unwrap(), 0);
        assert!(took <= DELAY * 3, "{took:?}");
        world.time.sleep(DELAY * 2).await;
        assert_eq!(world.client.connections(), 0);
    });
}

#[test]
fn shutdown_waits_for_what_is_not_acknowledged() {
    run(None, |world| async move {
        let (ours, mut theirs) = world.connect().await;
        // More than the client's window, and the client does not read.
        theirs.write_all(&[1; 200_000]).await.unwrap();
        world.client_is_gone.store(true, Ordering::Relaxed);
        drop(theirs);
        assert_eq!(world.shut_down().await, PATIENCE);
        assert_eq!(world.server.connections(), 1);
        drop(ours);
    });
}

/// Silence of eight seconds, and four questions two seconds apart without an answer.
#[test]
fn a_peer_that_is_gone_is_noticed_by_keep_alive() {
    run(None, |world| async move {
        let (ours, mut theirs) = world.connect().await;
        theirs.set_keep_alive(Some(Duration::from_secs(8))).unwrap();
        let began = world.time.unix();
        // The client answers for as long as it is there.
        world.time.sleep(Duration::from_secs(60)).await;
        assert!(theirs.poll_peek(&mut noop(), &mut ReadBuf::new(&mut [0])).is_pending());
        world.client_is_gone.store(true, Ordering::Relaxed);
        let error = theirs.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let took = world.time.unix() - began - Duration::from_secs(60);
        assert!((Duration::from_secs(8)..=Duration::from_secs(17)).contains(&took), "{took:?}");
        drop(ours);
    });
}

fn noop() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// The application has closed its sending direction and continues to read.
#[test]
fn shutdown_waits_for_a_half_closed_stream() {
    run(None, |world| async move {
        let (mut ours, mut theirs) = world.connect().await;
        let time = world.time.clone();
        let client = tokio::spawn(async move {
            ours.read_to_end(&mut Vec::new()).await?;
            time.sleep(Duration::from_secs(5)).await;
            ours.write_all(b"late").await
        });
        let reading = tokio::spawn(async move {
            theirs.shutdown().await?;
            let mut answer = String::new();
            theirs.read_to_string(&mut answer).await.map(|_| answer)
        });
        let took = world.shut_down().await;
        client.await.unwrap().unwrap();
        assert_eq!(reading.await.unwrap().unwrap(), "late");
        assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
    });
}

/// The server answers what the client sent before its FIN, but nothing acknowledges the answer.
#[test]
fn a_client_that_half_closes_and_vanishes_is_let_go() {
    let user_timeout = Duration::from_secs(60);
    for answer in [100, 20_000_000] {
        run(Some(user_timeout), |world| async move {
            let (mut ours, mut theirs) = world.connect().await;
            ours.shutdown().await.unwrap();
            assert_eq!(theirs.read(&mut [0; 8]).await.unwrap(), 0);
            world.client_is_gone.store(true, Ordering::Relaxed);
            let written = theirs.write_all(&vec![1; answer]).await;
            if answer > 10_000_000 {
                assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
            }
            drop(theirs);
            let began = world.time.unix();
            while world.server.connections() > 0 {
                world.time.sleep(Duration::from_secs(1)).await;
            }
            assert!(world.time.unix() - began <= user_timeout + Duration::from_secs(1));
        });
    }
}
