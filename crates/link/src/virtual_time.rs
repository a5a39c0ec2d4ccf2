//! A clock that stops while any task can run, and moves to the next timer when all tasks wait.
//!
//! It is for programs and tests on emulated paths. They give the same result on every machine, however busy it is, and
//! take only as long as their computation.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use firstflight_wire::Instant;

/// A clock in memory. Clones are handles to the same one.
///
/// [`advance`](Self::advance) must be called when no task can run, again and again until one can. A single-threaded tokio
/// runtime without timers and I/O of its own knows that moment, and does not park when it gets a task there:
///
/// ```
/// use firstflight_link::VirtualTime;
/// use std::time::Duration;
///
/// let time = VirtualTime::new(Duration::ZERO);
/// let clock = time.clone();
/// let runtime = tokio::runtime::Builder::new_current_thread()
///     .on_thread_park(move || {
///         if clock.advance() {
///             tokio::spawn(async {});
///         }
///     })
///     .build()?;
/// // An hour passes at once.
/// runtime.block_on(time.sleep(Duration::from_secs(3600)));
/// assert_eq!(time.now().as_nanos(), 3_600_000_000_000);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct VirtualTime {
    began: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    now: Instant,
    /// The waiting tasks, by time and then by the order in which they began to wait.
    waiting: BTreeMap<(Instant, u64), Waker>,
    sequence: u64,
}

impl VirtualTime {
    /// A clock that shows zero. Its wall clock then shows `began`, the time since 1970-01-01 00:00 UTC.
    #[must_use]
    pub fn new(began: Duration) -> Self {
        Self { began, state: Arc::default() }
    }

    /// Time since the clock was made.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.lock().now
    }

    /// The wall clock: time since 1970-01-01 00:00 UTC.
    #[must_use]
    pub fn unix(&self) -> Duration {
        self.began + (self.now() - Instant::ZERO)
    }

    /// Moves the clock to the earliest time that a task waits for, and wakes all tasks that wait for it, in
    /// the order in which they began to wait. False if none waits. True does not mean
    /// that a task can run now: the one that waited may have ended.
    pub fn advance(&self) -> bool {
        let mut state = self.lock();
        let Some((&(at, _), _)) = state.waiting.first_key_value() else { return false };
        state.now = state.now.max(at);
        let later = state.waiting.split_off(&(at, u64::MAX));
        let due = std::mem::replace(&mut state.waiting, later);
        // Wake outside the lock, because a waker can own a task, and the task can own a sleep of this clock.
        drop(state);
        due.into_values().for_each(Waker::wake);
        true
    }

    /// Waits until `duration` has passed.
    #[must_use]
    pub fn sleep(&self, duration: Duration) -> VirtualSleep {
        self.sleep_until(self.now() + duration)
    }

    /// Waits until the clock shows `at`.
    #[must_use]
    pub fn sleep_until(&self, at: Instant) -> VirtualSleep {
        VirtualSleep { time: self.clone(), at, sequence: None }
    }

    pub(crate) fn wake_at(&self, at: Instant, waker: Waker) {
        self.lock().insert(at, waker);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn insert(&mut self, at: Instant, waker: Waker) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        self.waiting.insert((at, sequence), waker);
        sequence
    }
}

/// Waits for a time, see [`VirtualTime::sleep`].
#[derive(Debug)]
pub struct VirtualSleep {
    time: VirtualTime,
    at: Instant,
    /// The number of this sleep among the waiting tasks, while it waits.
    sequence: Option<u64>,
}

impl VirtualSleep {
    /// Waits until `at` instead.
    pub fn reset(&mut self, at: Instant) {
        self.stop_waiting();
        self.at = at;
    }

    fn stop_waiting(&mut self) {
        if let Some(sequence) = self.sequence.take() {
            let waker = self.time.lock().waiting.remove(&(self.at, sequence));
            // Dropped outside the lock, as in `advance`.
            drop(waker);
        }
    }
}

impl Future for VirtualSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let mut state = this.time.lock();
        if state.now >= this.at {
            drop(state);
            this.stop_waiting();
            return Poll::Ready(());
        }
        let waiting = this.sequence.and_then(|sequence| state.waiting.get_mut(&(this.at, sequence)));
        match waiting {
            Some(waker) => waker.clone_from(cx.waker()),
            None => this.sequence = Some(state.insert(this.at, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}
