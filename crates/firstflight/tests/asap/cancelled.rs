//! Futures that are dropped at each of their polls: of `Client`, `Server`, `LazyStream`, `Lingering`. Nothing runs twice,
//! nothing is lost that a later call should find, no place and no socket is left, and what follows works.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::site::{NETWORK, REQUEST, answer, bind, ready, safely};
use crate::namespace::in_namespace;
use firstflight::{Client, FirstFlight, LazyStream, Lingering, ReplaySafety, Server, ToAuthority};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Polls that a future needs at most, here.
const MOST: usize = 200;

/// Polls `future` `polls` times at most, and drops it then. `None`: it was not ready.
async fn polled<F: IntoFuture>(future: F, polls: usize) -> Option<F::Output> {
    let (mut future, mut left) = (pin!(future.into_future()), polls);
    std::future::poll_fn(|cx| {
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Calls `attempt` with 1, 2, 3, … polls until it is ready. Returns how often it was dropped.
async fn at_each_poll<T>(mut attempt: impl AsyncFnMut(usize) -> Option<T>) -> (usize, T) {
    for polls in 1..MOST {
        if let Some(output) = attempt(polls).await {
            return (polls - 1, output);
        }
    }
    panic!("it is not ready after {MOST} polls");
}

/// How often each request was executed.
type Counts = Arc<Mutex<HashMap<[u8; REQUEST.len()], u32>>>;

fn count(server: Server) -> Counts {
    let counts = Counts::default();
    let counted = Arc::clone(&counts);
    tokio::spawn(async move {
        loop {
            let mut stream = server.accept().await.unwrap();
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut request = [0; REQUEST.len()];
                if stream.read_exact(&mut request).await.is_ok() {
                    *counted.lock().unwrap().entry(request).or_default() += 1;
                    // A client may be gone.
                    let _ = stream.write_all(b"answer").await;
                    let _ = stream.shutdown().await;
                }
            });
        }
    });
    counts
}

fn numbered(number: usize) -> [u8; REQUEST.len()] {
    let mut request = [0; REQUEST.len()];
    request.copy_from_slice(format!("ask{number:04}").as_bytes());
    request
}

/// Nothing was executed twice, and the last one was executed.
fn once_each(counts: &Counts, last: usize) {
    let counts = counts.lock().unwrap();
    let twice: Vec<_> = counts.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(counts.get(&numbered(last)), Some(&1));
}

/// Counts the open sockets of this namespace. Other tests of the process use other namespaces.
fn sockets() -> usize {
    let tables = ["tcp", "tcp6", "udp", "udp6"].map(|table| format!("/proc/thread-self/net/{table}"));
    let held = |line: &&str| line.split_whitespace().nth(9).is_some_and(|inode| inode != "0");
    tables
        .iter()
        .map(|table| std::fs::read_to_string(table).unwrap().lines().skip(1).filter(held).count())
        .sum()
}

/// Until the sockets of what was dropped are closed.
async fn closed(before: usize) {
    for _ in 0..200 {
        if sockets() <= before {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} sockets, {before} before", sockets());
}

async fn each_connect_dropped(client: &Client, at: impl ToAuthority + Copy, counts: &Counts) -> usize {
    let (dropped, stream) = at_each_poll(async |polls| {
        let request = numbered(polls);
        polled(client.connect(at, FirstFlight::at_most_once(&request)), polls).await
    })
    .await;
    answer(stream).await;
    // What left may still arrive.
    tokio::time::sleep(Duration::from_millis(300)).await;
    once_each(counts, dropped + 1);
    // And the client works as before.
    answer(client.connect(at, safely()).await).await;
    dropped
}

#[test]
fn a_connect_of_the_kernel_can_be_dropped_at_each_poll() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let counts = count(server);
        let client = Client::new();
        let before = sockets();
        let mut dropped = 0;
        // Without a cookie and with one.
        for _ in 0..3 {
            counts.lock().unwrap().clear();
            dropped += each_connect_dropped(&client, &at, &counts).await;
        }
        assert!(dropped >= 3, "only {dropped} were dropped");
        closed(before).await;
    });
}

#[test]
fn a_connect_with_a_certificate_can_be_dropped_at_each_poll() {
    in_namespace("3", || async {
        use firstflight::credential::asap::{Identity, PrivateKey};
        use firstflight::record::Published;
        let key = PrivateKey::from_seed(&[1; 32]);
        let verifier = super::site::verifier(&key).await;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let policy = super::site::policy(&key, Identity::address(address.ip(), port));
        let server = Server::builder().address(address).asap(policy).bind().unwrap();
        let at = firstflight::Authority::from(address);
        let record = Published::in_udp(server.udp_port().unwrap(), 1200, &[verifier.id()]).unwrap();
        let builder = Client::builder().network(NETWORK).verifier(verifier).no_resolver();
        let client = ready(builder.record(at.clone(), record)).await;
        let counts = count(server);
        let before = sockets();
        let dropped = each_connect_dropped(&client, &at, &counts).await;
        assert!(dropped >= 1, "only {dropped} were dropped");
        closed(before).await;
    });
}

#[test]
fn an_accept_that_is_dropped_loses_no_connection() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let clients = 20;
        let asking = tokio::spawn(async move {
            let client = Client::new();
            for _ in 0..clients {
                answer(client.connect(&at, safely()).await).await;
            }
        });
        let mut accepted = 0;
        while accepted < clients {
            // Each accept is dropped after one poll, and after two, and so on, until there is a connection.
            let (_, stream) = at_each_poll(async |polls| polled(server.accept(), 1 + polls % 3).await).await;
            let mut stream = stream.unwrap();
            let mut request = [0; REQUEST.len()];
            stream.read_exact(&mut request).await.unwrap();
            assert_eq!(request, REQUEST);
            stream.write_all(b"answer").await.unwrap();
            stream.shutdown().await.unwrap();
            accepted += 1;
        }
        asking.await.unwrap();
    });
}

/// The stream is dropped while it connects, and its calls are dropped while it lives.
#[test]
fn a_lazy_stream_can_be_dropped_at_each_poll() {
    in_namespace("3", || async {
        let (server, at) = bind().await;
        let counts = count(server);
        let client = Client::new();
        let visit = async |request: [u8; REQUEST.len()]| {
            let mut stream = client.connect(&at, FirstFlight::empty()).lazy(ReplaySafety::Unsafe);
            stream.write_all(&request).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await.map(|_| text)
        };
        let before = sockets();
        let (dropped, answer) = at_each_poll(async |polls| polled(visit(numbered(polls)), polls).await).await;
        assert_eq!(answer.unwrap(), "answer");
        assert!(dropped >= 1, "only {dropped} were dropped");
        tokio::time::sleep(Duration::from_millis(300)).await;
        once_each(&counts, dropped + 1);
        closed(before).await;

        // Each call is dropped after one poll and made again: nothing is sent twice or lost.
        let mut stream = client.connect(&at, FirstFlight::empty()).lazy(ReplaySafety::Unsafe);
        let request = numbered(9999);
        let mut sent = 0;
        while sent < request.len() {
            sent += polled(stream.write(&request[sent..]), 1).await.map_or(0, Result::unwrap);
            tokio::task::yield_now().await;
        }
        let flushed = at_each_poll(async |_| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            polled(stream.flush(), 1).await
        });
        flushed.await.1.unwrap();
        let mut text = Vec::new();
        loop {
            let mut bytes = [0; 3];
            match polled(stream.read(&mut bytes), 1).await.map(Result::unwrap) {
                Some(0) => break,
                Some(n) => text.extend_from_slice(&bytes[..n]),
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
        assert_eq!(text, b"answer");
        once_each(&counts, 9999);
    });
}

/// A connect that a lazy stream has begun goes with the stream. If it did not, this would not end.
#[tokio::test]
async fn a_lazy_stream_takes_its_connect_along() {
    let held = Arc::new(());
    let alive = Arc::clone(&held);
    let mut stream = LazyStream::new(move |_| {
        let alive = Arc::clone(&alive);
        async move {
            std::future::pending::<()>().await;
            drop(alive);
            Err(std::io::ErrorKind::Other.into())
        }
    });
    let _ = polled(stream.write_all(b"x"), 1).await;
    let _ = polled(stream.read_u8(), 1).await;
    assert!(Arc::strong_count(&held) > 1, "the connect has begun");
    drop(stream);
    // The runtime drops the task when it has its turn.
    while Arc::strong_count(&held) > 1 {
        tokio::task::yield_now().await;
    }
}

/// The peer sends while the connection closes. A shutdown that is dropped goes on where it was, and the peer gets everything.
#[tokio::test(start_paused = true)]
async fn a_shutdown_in_stages_can_be_dropped_at_each_poll() {
    let (near, mut far) = tokio::io::duplex(64);
    let peer = tokio::spawn(async move {
        let mut got = Vec::new();
        for _ in 0..10 {
            far.write_all(&[1; 40]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        far.read_to_end(&mut got).await.unwrap();
        far.shutdown().await.unwrap();
        got
    });
    let mut stream = Lingering::new(near);
    stream.write_all(b"the last response").await.unwrap();
    let mut dropped = 0;
    while polled(stream.shutdown(), 1).await.is_none() {
        assert!(stream.is_lingering());
        dropped += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(dropped > 50, "{dropped}");
    assert!(!stream.is_lingering() && !stream.is_open());
    assert_eq!(peer.await.unwrap(), b"the last response");
    // It is over.
    assert!(polled(stream.shutdown(), 1).await.is_some());
}
