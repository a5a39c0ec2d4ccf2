//! The thread that keeps the time of a pair. It wakes each waiting receiver when its next packet arrives.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use firstflight_wire::Instant;

use super::{Shared, TimeKeeper};

/// The thread sleeps until this long before an arrival and spins for the rest, because sleeping alone overshoots: by
/// 50 to 150 µs on a virtual machine.
const SPIN: Duration = Duration::from_micros(150);

/// Share of the elapsed time that may be spent spinning: one part in this many. Beyond it, under bulk traffic, the
/// thread only sleeps and arrivals are late by the overshoot.
const SPIN_SHARE: u32 = 8;

/// Unused spinning time is kept up to this, enough for a handshake's volley of packets.
const MAX_SPIN_CREDIT: Duration = Duration::from_millis(5);

/// Starts the thread. It ends when both ends are dropped.
pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<()> {
    let theirs = Arc::clone(shared);
    let handle = thread::Builder::new().name("firstflight-path".to_owned()).spawn(move || run(&theirs))?;
    if let TimeKeeper::Thread { thread, .. } = &shared.keeper {
        // Set it before any packet can be sent: the links are not handed out yet.
        let _ = thread.set(handle.thread().clone());
    }
    Ok(())
}

fn run(shared: &Shared) {
    // The default timer slack delays every sleep by 50 µs to save power. If the call fails, only accuracy
    // suffers.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_timerslack(1);
    let mut credit = SpinCredit::new(shared.now());
    while shared.open_ends.load(Ordering::Acquire) > 0 {
        match serve(shared) {
            Some(next) => wait_until(shared, next, &mut credit),
            None => thread::park(),
        }
    }
}

/// Wakes every receiver whose packet has arrived. Returns the next arrival that a receiver waits for.
fn serve(shared: &Shared) -> Option<Instant> {
    let mut next: Option<Instant> = None;
    for index in [0, 1] {
        let mut direction = shared.lock(index);
        direction.armed = None;
        let arrival = direction.path.next_arrival();
        let due = arrival.is_some_and(|at| at <= shared.now());
        let waker: Option<Waker> = if due { direction.waker.take() } else { None };
        if direction.arm() {
            next = match (next, direction.armed) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        drop(direction);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    next
}

/// Returns at `deadline`, or earlier when unparked because something changed.
fn wait_until(shared: &Shared, deadline: Instant, credit: &mut SpinCredit) {
    let now = shared.now();
    let spin = credit.available(now).min(SPIN);
    let left = Duration::from_nanos(deadline.as_nanos().saturating_sub(now.as_nanos()));
    if left > spin {
        return thread::park_timeout(left - spin);
    }
    while shared.now() < deadline {
        std::hint::spin_loop();
    }
    credit.spend(left);
}

/// Limits the time spent spinning.
struct SpinCredit {
    credit: Duration,
    counted_until: Instant,
}

impl SpinCredit {
    fn new(now: Instant) -> Self {
        Self { credit: MAX_SPIN_CREDIT, counted_until: now }
    }

    fn available(&mut self, now: Instant) -> Duration {
        let elapsed = now.as_nanos().saturating_sub(self.counted_until.as_nanos());
        self.counted_until = now;
        self.credit = (self.credit + Duration::from_nanos(elapsed) / SPIN_SHARE).min(MAX_SPIN_CREDIT);
        self.credit
    }

    fn spend(&mut self, spent: Duration) {
        self.credit = self.credit.saturating_sub(spent);
    }
}
