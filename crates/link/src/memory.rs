//! Two links joined by a [`Path`] in each direction that runs in real time, or in virtual time.
//!
//! The links work with any executor, because they need only wakers. Real time is kept by one thread for each
//! pair, because the timers of async runtimes are too coarse (tokio's tick is 1 ms, a hundredth of a 100 ms
//! path).
//!
//! To measure the accuracy, run `cargo run --profile dist -p firstflight-link --example path_accuracy`, which
//! documents measured figures.

mod clock;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use firstflight_wire::Instant;

use crate::link::{Link, short_buffer};
use crate::path::{Duplex, Path, PathConfig, PathError};
use crate::virtual_time::VirtualTime;

/// The most packets that one direction holds. If the receiver does not receive, further packets are lost, as
/// with the ring of a network card.
const MAX_IN_FLIGHT: usize = 1 << 16;

/// Why a pair of links could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryLinkError {
    /// A setting is invalid. The caller is at fault.
    #[error("{0}")]
    Path(#[from] PathError),
    /// The system could not start the thread that keeps the time.
    #[error("cannot start the thread that keeps the path's time: {0}")]
    Thread(#[source] io::Error),
}

/// Two links, A and B, joined by a path in each direction: `config_ab` from A to B, `config_ba` from B to A.
///
/// With the same `seed` the same packets have the same fates, but their times of sending depend on the real
/// world. The MTU of both links is the larger of the two paths' MTUs. If one MTU is smaller, larger packets
/// vanish in that direction. The path can be changed while it runs, see [`MemoryLink::outgoing`].
///
/// # Errors
/// See [`MemoryLinkError`].
pub fn real_time_pair(
    config_ab: PathConfig,
    config_ba: PathConfig,
    seed: u64,
) -> Result<(MemoryLink, MemoryLink), MemoryLinkError> {
    let keeper = TimeKeeper::Thread { origin: std::time::Instant::now(), thread: OnceLock::new() };
    let (a, b) = pair(config_ab, config_ba, seed, keeper)?;
    clock::spawn(&a.shared).map_err(MemoryLinkError::Thread)?;
    Ok((a, b))
}

/// Like [`real_time_pair`], in virtual time: packets arrive exactly when `time` shows their arrival. With one seed, the
/// same packets sent at the same times arrive at the same times.
///
/// # Errors
/// A setting is invalid, see [`PathConfig::validate`].
pub fn virtual_time_pair(
    config_ab: PathConfig,
    config_ba: PathConfig,
    seed: u64,
    time: &VirtualTime,
) -> Result<(MemoryLink, MemoryLink), PathError> {
    pair(config_ab, config_ba, seed, TimeKeeper::Virtual(time.clone()))
}

fn pair(
    config_ab: PathConfig,
    config_ba: PathConfig,
    seed: u64,
    keeper: TimeKeeper,
) -> Result<(MemoryLink, MemoryLink), PathError> {
    let mtu = config_ab.mtu.max(config_ba.mtu);
    let Duplex { a_to_b, b_to_a } = Duplex::new(config_ab, config_ba, seed)?;
    let shared = Arc::new(Shared {
        directions: [a_to_b, b_to_a].map(|path| Mutex::new(Direction::new(path))),
        open_ends: AtomicUsize::new(2),
        keeper,
    });
    let end = |sends_to: usize| MemoryLink {
        shared: Arc::clone(&shared),
        sends_to,
        receives_from: 1 - sends_to,
        mtu,
    };
    Ok((end(0), end(1)))
}

/// What keeps the time and wakes receivers.
enum TimeKeeper {
    /// A thread, in real time.
    Thread {
        origin: std::time::Instant,
        thread: OnceLock<Thread>,
    },
    Virtual(VirtualTime),
}

/// Wakes the receiver of a direction when the virtual clock shows an arrival.
struct Receiver {
    shared: Weak<Shared>,
    index: usize,
}

impl Wake for Receiver {
    fn wake(self: Arc<Self>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut direction = shared.lock(self.index);
        direction.armed = None;
        let due = direction.path.next_arrival().is_some_and(|at| at <= shared.now());
        let waker = if due { direction.waker.take() } else { None };
        shared.await_arrival(self.index, direction);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// State that both ends and their timekeeper share.
struct Shared {
    /// From A to B, from B to A.
    directions: [Mutex<Direction>; 2],
    open_ends: AtomicUsize,
    keeper: TimeKeeper,
}

impl Shared {
    /// The paths' clock: time since the pair was made, or what the virtual clock shows.
    fn now(&self) -> Instant {
        match &self.keeper {
            TimeKeeper::Thread { origin, .. } => {
                let nanos = origin.elapsed().as_nanos();
                Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            TimeKeeper::Virtual(time) => time.now(),
        }
    }

    /// Schedules the wake-up of the receiver of `direction`, number `index`, if its next arrival is earlier than the
    /// one scheduled before.
    fn await_arrival(self: &Arc<Self>, index: usize, mut direction: MutexGuard<'_, Direction>) {
        if !direction.arm() {
            return;
        }
        let at = direction.armed;
        drop(direction);
        match (&self.keeper, at) {
            (TimeKeeper::Virtual(time), Some(at)) => {
                let receiver = Receiver { shared: Arc::downgrade(self), index };
                time.wake_at(at, Arc::new(receiver).into());
            }
            _ => self.wake_timekeeper(),
        }
    }

    /// A panic elsewhere (in a filter, say) leaves a path that is still consistent.
    fn lock(&self, index: usize) -> MutexGuard<'_, Direction> {
        let [a_to_b, b_to_a] = &self.directions;
        let direction = if index == 0 { a_to_b } else { b_to_a };
        direction.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_timekeeper(&self) {
        if let TimeKeeper::Thread { thread, .. } = &self.keeper
            && let Some(thread) = thread.get()
        {
            thread.unpark();
        }
    }
}

struct Direction {
    path: Path,
    /// The waker of the waiting receiver.
    waker: Option<Waker>,
    /// The arrival for which the timekeeper will wake, so that it is disturbed only by an earlier one.
    armed: Option<Instant>,
    receiver_open: bool,
    overrun: u64,
}

impl Direction {
    fn new(path: Path) -> Self {
        Self { path, waker: None, armed: None, receiver_open: true, overrun: 0 }
    }

    /// Notes the next arrival for the timekeeper, if a receiver waits for it. True if the timekeeper must be
    /// woken.
    fn arm(&mut self) -> bool {
        let Some(next) = self.path.next_arrival() else {
            return false;
        };
        if self.waker.is_none() || self.armed.is_some_and(|armed| armed <= next) {
            return false;
        }
        self.armed = Some(next);
        true
    }
}

/// One end of a pair made by [`real_time_pair`] or [`virtual_time_pair`].
///
/// When the other end is dropped, packets in flight still arrive. After that the link is silent, like a cut
/// wire.
pub struct MemoryLink {
    shared: Arc<Shared>,
    sends_to: usize,
    receives_from: usize,
    mtu: usize,
}

impl MemoryLink {
    /// Looks at or changes the path from this end to the other: settings, filter, counters.
    pub fn outgoing<R>(&self, look: impl FnOnce(&mut Path) -> R) -> R {
        look(&mut self.shared.lock(self.sends_to).path)
    }

    /// Packets from this end that were dropped because the other end does not receive (65,536 are held).
    #[must_use]
    pub fn overrun(&self) -> u64 {
        self.shared.lock(self.sends_to).overrun
    }
}

impl Link for MemoryLink {
    fn mtu(&self) -> usize {
        self.mtu
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if buf.len() < self.mtu {
            return Poll::Ready(Err(short_buffer()));
        }
        let mut direction = self.shared.lock(self.receives_from);
        let now = self.shared.now();
        while let Some(packet) = direction.path.poll_deliver(now) {
            // A packet can exceed the link's MTU only if the path's MTU was raised while it runs, or a filter
            // enlarged the packet.
            let length = packet.len();
            let fits = buf.get_mut(..length).map(|part| part.copy_from_slice(&packet));
            direction.path.recycle(packet);
            if fits.is_some() {
                return Poll::Ready(Ok(length));
            }
        }
        match &mut direction.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        self.shared.await_arrival(self.receives_from, direction);
        Poll::Pending
    }

    fn poll_send(&mut self, _cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let mut direction = self.shared.lock(self.sends_to);
        if !direction.receiver_open {
            return Poll::Ready(Ok(()));
        }
        if direction.path.in_flight() >= MAX_IN_FLIGHT {
            direction.overrun += 1;
            return Poll::Ready(Ok(()));
        }
        let now = self.shared.now();
        direction.path.send(now, packet);
        // Without delay the packet has arrived already, so the timekeeper is not needed.
        let arrived = direction.path.next_arrival().is_some_and(|next| next <= now);
        let waker = if arrived {
            direction.armed = None;
            direction.waker.take()
        } else {
            None
        };
        self.shared.await_arrival(self.sends_to, direction);
        if let Some(waker) = waker {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for MemoryLink {
    fn drop(&mut self) {
        let mut direction = self.shared.lock(self.receives_from);
        direction.receiver_open = false;
        // Drop it outside the lock, because a waker can own a task, and with it the other end.
        let waker = direction.waker.take();
        direction.armed = None;
        drop(direction);
        drop(waker);
        if self.shared.open_ends.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.wake_timekeeper();
        }
    }
}

impl fmt::Debug for MemoryLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLink")
            .field("end", if self.sends_to == 0 { &"A" } else { &"B" })
            .field("outgoing", &self.shared.lock(self.sends_to).path)
            .finish_non_exhaustive()
    }
}
