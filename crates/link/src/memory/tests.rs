use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::*;
use crate::path::FilterVerdict;

fn pair(config: PathConfig) -> (MemoryLink, MemoryLink) {
    real_time_pair(config.clone(), config, 1).unwrap()
}

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn send(link: &mut MemoryLink, packet: &[u8]) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(link.poll_send(&mut cx, packet), Poll::Ready(Ok(()))));
}

async fn receive(link: &mut MemoryLink) -> Vec<u8> {
    let mut buf = vec![0; link.mtu()];
    let length = poll_fn(|cx| link.poll_recv(cx, &mut buf)).await.unwrap();
    buf.truncate(length);
    buf
}

/// What can be received right now, without waiting.
fn receive_now(link: &mut MemoryLink) -> Option<Vec<u8>> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut buf = vec![0; link.mtu()];
    match link.poll_recv(&mut cx, &mut buf) {
        Poll::Ready(length) => {
            buf.truncate(length.unwrap());
            Some(buf)
        }
        Poll::Pending => None,
    }
}

#[test]
fn packets_go_both_ways_not_before_their_time() {
    let delay = Duration::from_millis(20);
    let (mut a, mut b) = pair(PathConfig::with_delay(delay));
    run(async {
        let start = std::time::Instant::now();
        send(&mut a, b"ping");
        assert_eq!(receive(&mut b).await, b"ping");
        // The lower bound is part of the contract. There is no upper bound on a shared machine.
        assert!(start.elapsed() >= delay);
        send(&mut b, b"pong");
        assert_eq!(receive(&mut a).await, b"pong");
        assert!(start.elapsed() >= 2 * delay);
    });
}

#[test]
fn receiver_that_waits_is_woken_from_another_thread() {
    for delay in [Duration::ZERO, Duration::from_micros(300)] {
        let (mut a, mut b) = pair(PathConfig::with_delay(delay));
        let receiver = std::thread::spawn(move || {
            run(async {
                for number in 0..200u32 {
                    assert_eq!(receive(&mut b).await, number.to_be_bytes());
                }
            });
        });
        for number in 0..200u32 {
            send(&mut a, &number.to_be_bytes());
            if number % 10 == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        receiver.join().unwrap();
        assert_eq!(a.outgoing(|path| path.counters().delivered), 200);
    }
}

/// A packet sent later that arrives earlier must wake the receiver although a later arrival was already awaited.
#[test]
fn earlier_arrival_overrides_a_later_one() {
    let far = Duration::from_secs(3600);
    let (mut a, mut b) = pair(PathConfig::with_delay(far));
    run(async {
        send(&mut a, b"far away");
        let receiver = async { receive(&mut b).await };
        let sender = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            a.outgoing(|path| path.config_mut().delay = Duration::from_millis(5));
            send(&mut a, b"near");
        };
        let mut receiver = std::pin::pin!(receiver);
        let mut sender = std::pin::pin!(sender);
        let mut sent = false;
        let packet = poll_fn(|cx| {
            if let Poll::Ready(packet) = receiver.as_mut().poll(cx) {
                return Poll::Ready(packet);
            }
            if !sent {
                sent = sender.as_mut().poll(cx).is_ready();
            }
            Poll::Pending
        })
        .await;
        assert_eq!(packet, b"near");
    });
}

#[test]
fn dropping_a_receive_loses_nothing() {
    let (mut a, mut b) = pair(PathConfig::with_delay(Duration::from_millis(5)));
    run(async {
        // Polled once and dropped while it waits, its waker still registered.
        let impatient = poll_fn(|cx| {
            let receive = std::pin::pin!(receive(&mut b));
            Poll::Ready(receive.poll(cx).is_pending())
        });
        assert!(impatient.await);
        send(&mut a, b"packet");
        assert_eq!(receive(&mut b).await, b"packet");
    });
}

#[test]
fn path_can_be_changed_in_mid_run() {
    let (mut a, mut b) = pair(PathConfig::default());
    a.outgoing(|path| path.set_filter(Box::new(|_| FilterVerdict::Drop)));
    send(&mut a, b"dropped");
    a.outgoing(Path::clear_filter);
    send(&mut a, b"forwarded");
    assert_eq!(receive_now(&mut b).unwrap(), b"forwarded");
    assert_eq!(a.outgoing(|path| path.counters().filtered), 1);
}

#[test]
fn short_buffer_is_the_callers_fault_and_costs_no_packet() {
    let (mut a, mut b) = pair(PathConfig::default());
    send(&mut a, b"packet");
    let mut cx = Context::from_waker(Waker::noop());
    let mut buf = [0; 1499];
    let Poll::Ready(Err(error)) = b.poll_recv(&mut cx, &mut buf) else {
        panic!("accepted a short buffer");
    };
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(receive_now(&mut b).unwrap(), b"packet");
}

#[test]
fn packet_larger_than_the_links_mtu_is_dropped_not_cut() {
    let (mut a, mut b) = pair(PathConfig::default());
    a.outgoing(|path| path.config_mut().mtu = 9000);
    send(&mut a, &[1; 1501]);
    send(&mut a, &[2; 1500]);
    assert_eq!(receive_now(&mut b).unwrap(), [2; 1500]);
}

#[test]
fn narrower_direction_is_a_black_hole() {
    let narrow = PathConfig { mtu: 1280, ..PathConfig::default() };
    let (mut a, mut b) = real_time_pair(narrow, PathConfig::default(), 1).unwrap();
    assert_eq!((a.mtu(), b.mtu()), (1500, 1500));
    send(&mut a, &[1; 1281]);
    send(&mut b, &[2; 1500]);
    assert_eq!(receive_now(&mut b), None);
    assert_eq!(receive_now(&mut a).unwrap(), [2; 1500]);
}

#[test]
fn receiver_that_never_receives_does_not_grow_memory() {
    let (mut a, mut b) = pair(PathConfig::default());
    for _ in 0..MAX_IN_FLIGHT + 3 {
        send(&mut a, b"x");
    }
    assert_eq!(a.overrun(), 3);
    assert_eq!(receive_now(&mut b).unwrap(), b"x");
    send(&mut a, b"x");
    assert_eq!(a.overrun(), 3);
}

#[test]
fn packets_arrive_after_the_sender_is_gone_and_sending_to_nobody_is_no_error() {
    let (mut a, mut b) = pair(PathConfig::with_delay(Duration::from_millis(2)));
    send(&mut a, b"last words");
    drop(a);
    assert_eq!(run(receive(&mut b)), b"last words");
    send(&mut b, b"hello?");
    assert_eq!(b.outgoing(|path| path.in_flight()), 0);
}

#[test]
fn thread_ends_when_both_ends_are_dropped() {
    let (mut a, mut b) = pair(PathConfig::with_delay(Duration::from_secs(3600)));
    send(&mut a, b"never arrives");
    assert_eq!(receive_now(&mut b), None);
    let shared: Weak<Shared> = Arc::downgrade(&a.shared);
    drop(a);
    drop(b);
    // The thread holds the last reference. Its end is awaited, not timed.
    while shared.strong_count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn senseless_settings_are_refused() {
    let config = PathConfig { mtu: 0, ..PathConfig::default() };
    let error = real_time_pair(PathConfig::default(), config, 1).unwrap_err();
    assert!(matches!(error, MemoryLinkError::Path(PathError::ZeroMtu)));
}

#[test]
fn virtual_time_is_exact_and_passes_at_once() {
    let delay = Duration::from_secs(3600) + Duration::from_nanos(1);
    let time = VirtualTime::new(Duration::ZERO);
    let clock = time.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_park(move || {
            clock.advance();
        })
        .build()
        .unwrap();
    let (mut a, mut b) =
        virtual_time_pair(PathConfig::with_delay(delay), PathConfig::with_delay(delay / 2), 1, &time)
            .unwrap();
    runtime.block_on(async {
        send(&mut a, b"one");
        time.sleep(Duration::from_nanos(1)).await;
        send(&mut a, b"two");
        assert_eq!(receive_now(&mut b), None);
        assert_eq!(receive(&mut b).await, b"one");
        assert_eq!(time.now(), Instant::ZERO + delay);
        assert_eq!(receive(&mut b).await, b"two");
        assert_eq!(time.now(), Instant::ZERO + delay + Duration::from_nanos(1));
        send(&mut b, b"back");
        assert_eq!(receive(&mut a).await, b"back");
        assert_eq!(time.now(), Instant::ZERO + delay + Duration::from_nanos(1) + delay / 2);
    });
}
