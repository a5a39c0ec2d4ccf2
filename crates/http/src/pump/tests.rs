#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;

const LIMITS: Limits = Limits { idle: Duration::from_secs(60), half_closed: Duration::from_secs(10) };

struct Scene {
    client: DuplexStream,
    backend: DuplexStream,
    confirmed: Arc<AtomicBool>,
    pump: JoinHandle<(Copied, PumpEnd)>,
}

/// A pump between two pipes of this size.
fn scene(start: Start, size: usize) -> Scene {
    let (client, mut near) = duplex(size);
    let (backend, mut far) = duplex(size);
    let confirmed = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&confirmed);
    let pump = tokio::spawn(async move {
        let confirmed = |_: &DuplexStream, cx: &mut Context<'_>| {
            if told.load(Ordering::Relaxed) {
                return Poll::Ready(Ok(()));
            }
            // Asked again a little later.
            let waker = cx.waker().clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                waker.wake();
            });
            Poll::Pending
        };
        let traffic = Traffic::default();
        let end = run(&mut near, &mut far, start, LIMITS, &traffic, confirmed).await;
        (traffic.copied(), end)
    });
    Scene { client, backend, confirmed, pump }
}

async fn read(stream: &mut DuplexStream, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test(start_paused = true)]
async fn each_direction_ends_by_itself() {
    let mut scene = scene(Start { bytes: b"first ".to_vec(), passes: None }, 64);
    scene.client.write_all(b"second").await.unwrap();
    scene.client.shutdown().await.unwrap();
    let mut request = Vec::new();
    scene.backend.read_to_end(&mut request).await.unwrap();
    assert_eq!(request, b"first second");
    // The other direction is still open.
    scene.backend.write_all(b"answer").await.unwrap();
    assert_eq!(read(&mut scene.client, 6).await, b"answer");
    scene.backend.shutdown().await.unwrap();
    let (copied, end) = scene.pump.await.unwrap();
    assert_eq!(copied, Copied { up: 12, down: 6 });
    assert!(matches!(end, PumpEnd::Closed));
}

#[tokio::test(start_paused = true)]
async fn before_the_confirmation_only_what_may_pass_does() {
    let mut scene = scene(Start { bytes: b"hello|early".to_vec(), passes: Some(6) }, 64 * 1024);
    scene.client.write_all(b" data").await.unwrap();
    assert_eq!(read(&mut scene.backend, 6).await, b"hello|");
    // The answer passes.
    scene.backend.write_all(b"server hello").await.unwrap();
    assert_eq!(read(&mut scene.client, 12).await, b"server hello");
    let waiting = tokio::time::timeout(Duration::from_secs(5), read(&mut scene.backend, 1)).await;
    assert!(waiting.is_err(), "a byte passed before the confirmation");
    scene.confirmed.store(true, Ordering::Relaxed);
    assert_eq!(read(&mut scene.backend, 10).await, b"early data");
    drop((scene.client, scene.backend));
    let (copied, _) = scene.pump.await.unwrap();
    assert_eq!(copied, Copied { up: 16, down: 12 });
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_bounded() {
    let mut scene = scene(Start { bytes: Vec::new(), passes: Some(0) }, 1024);
    let mut taken = 0;
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(1), scene.client.write(&[7; 512])).await
    {
        taken += written.unwrap();
    }
    assert_eq!(taken, HELD + 1024, "what is held, and the pipe");
    scene.confirmed.store(true, Ordering::Relaxed);
    assert_eq!(read(&mut scene.backend, taken).await, vec![7; taken]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_costs_one_piece() {
    let mut scene = scene(Start::default(), 1024);
    let mut taken = 0;
    while let Ok(written) = tokio::time::timeout(Duration::from_secs(1), scene.backend.write(&[7; 512])).await
    {
        taken += written.unwrap();
    }
    assert!(taken <= PIECE + 2 * 1024, "{taken} bytes are kept for a client that does not read");
    assert_eq!(read(&mut scene.client, taken).await, vec![7; taken]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_ends_and_a_busy_one_does_not() {
    let mut scene = scene(Start::default(), 1024);
    for _ in 0..5 {
        tokio::time::sleep(LIMITS.idle * 3 / 4).await;
        scene.client.write_all(b"x").await.unwrap();
        assert_eq!(read(&mut scene.backend, 1).await, b"x");
    }
    let begun = Instant::now();
    let (copied, end) = scene.pump.await.unwrap();
    assert!(matches!(end, PumpEnd::Idle) && copied.up == 5);
    assert!(begun.elapsed() >= LIMITS.idle - Duration::from_millis(1));
}

/// A program that has closed its connection looks like one that has closed its direction.
#[tokio::test(start_paused = true)]
async fn a_half_closed_connection_ends_when_nothing_passes_for_a_while() {
    for client_closes in [true, false] {
        let Scene { mut client, mut backend, pump, .. } = scene(Start::default(), 1024);
        let (closes, stays) =
            if client_closes { (&mut client, &mut backend) } else { (&mut backend, &mut client) };
        // With both directions open the short limit does not count.
        tokio::time::sleep(LIMITS.half_closed * 3).await;
        closes.shutdown().await.unwrap();
        assert_eq!(stays.read(&mut [0; 9]).await.unwrap(), 0);
        // What passes in the other direction keeps it.
        for _ in 0..5 {
            tokio::time::sleep(LIMITS.half_closed * 3 / 4).await;
            stays.write_all(b"x").await.unwrap();
            assert_eq!(read(closes, 1).await, b"x");
        }
        let begun = Instant::now();
        let (copied, end) = pump.await.unwrap();
        assert!(matches!(end, PumpEnd::HalfClosed), "{end:?}");
        assert_eq!(copied.up + copied.down, 5);
        assert!(
            (LIMITS.half_closed..LIMITS.half_closed * 2)
                .contains(&(begun.elapsed() + Duration::from_millis(1)))
        );
    }
}

/// What is on its way to a slow reader is no end of its direction yet.
#[tokio::test(start_paused = true)]
async fn an_end_that_is_not_delivered_has_the_long_limit() {
    let mut scene = scene(Start::default(), 64);
    scene.client.write_all(&[7; 150]).await.unwrap();
    scene.client.shutdown().await.unwrap();
    tokio::time::sleep(LIMITS.half_closed * 3).await;
    assert_eq!(read(&mut scene.backend, 150).await, [7; 150]);
    scene.backend.write_all(b"done").await.unwrap();
    assert_eq!(read(&mut scene.client, 4).await, b"done");
}

#[tokio::test(start_paused = true)]
async fn what_was_copied_is_known_also_if_the_pump_is_dropped() {
    let ((mut client, mut near), (mut backend, mut far)) = (duplex(64), duplex(64));
    let traffic = Traffic::default();
    traffic.add_up(3);
    let start = Start { bytes: b"four".to_vec(), passes: None };
    let pumping = run(&mut near, &mut far, start, LIMITS, &traffic, |_, _| Poll::Ready(Ok(())));
    let peers = async {
        backend.write_all(b"answer").await.unwrap();
        assert_eq!(read(&mut client, 6).await, b"answer");
        assert_eq!(read(&mut backend, 4).await, b"four");
    };
    tokio::select! {
        end = pumping => panic!("{end:?}"),
        () = peers => {}
    }
    assert_eq!(traffic.copied(), Copied { up: 7, down: 6 });
}

#[tokio::test(start_paused = true)]
async fn the_side_that_failed_is_named() {
    let Scene { client, backend, pump, .. } = scene(Start::default(), 16);
    drop(backend);
    let mut client = client;
    // Enough that the backend's side has to be written.
    let _ = client.write_all(&[1; 64]).await;
    let (_, end) = pump.await.unwrap();
    assert!(matches!(end, PumpEnd::Backend(_)), "{end:?}");
}
