use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn ms(n: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(n)
}

fn poll(sleep: &mut VirtualSleep, count: &Arc<Count>) -> bool {
    let waker = Waker::from(Arc::clone(count));
    Pin::new(sleep).poll(&mut Context::from_waker(&waker)).is_ready()
}

#[test]
fn the_clock_moves_to_the_next_timer_only() {
    let time = VirtualTime::new(Duration::from_secs(100));
    let [early, late] = [(); 2].map(|()| Arc::new(Count::default()));
    let mut sleeps = [time.sleep(Duration::from_millis(7)), time.sleep(Duration::from_millis(3))];
    assert!(!poll(&mut sleeps[0], &late) && !poll(&mut sleeps[1], &early));
    assert!(time.advance());
    assert_eq!((time.now(), time.unix()), (ms(3), Duration::from_millis(100_003)));
    assert_eq!((early.0.load(Ordering::Relaxed), late.0.load(Ordering::Relaxed)), (1, 0));
    assert!(poll(&mut sleeps[1], &early) && !poll(&mut sleeps[0], &late));
    assert!(time.advance() && poll(&mut sleeps[0], &late));
    assert_eq!(time.now(), ms(7));
    assert!(!time.advance(), "nothing waits");
    assert_eq!(time.now(), ms(7));
}

#[test]
fn who_no_longer_waits_does_not_move_the_clock() {
    let time = VirtualTime::new(Duration::ZERO);
    let count = Arc::new(Count::default());
    let mut dropped = time.sleep(Duration::from_millis(1));
    let mut moved = time.sleep(Duration::from_millis(2));
    assert!(!poll(&mut dropped, &count) && !poll(&mut moved, &count));
    drop(dropped);
    moved.reset(ms(9));
    assert!(!poll(&mut moved, &count) && !poll(&mut moved, &count));
    assert!(time.advance());
    assert_eq!((time.now(), count.0.load(Ordering::Relaxed)), (ms(9), 1));
    assert!(poll(&mut moved, &count) && !time.advance());
}
