//! The boxes of all shards of one endpoint: what waits for each of them, and how it is woken. The content is of any type, so that
//! `crates/models/tests/loom.rs` can try every order of events.

use super::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering};
use std::io;
use std::sync::PoisonError;
use std::task::Waker;

/// See the module.
#[derive(Debug)]
pub(crate) struct Mail<C> {
    boxes: Vec<Mailbox<C>>,
    /// Shards that have no handles and no connections left.
    alone: AtomicUsize,
    /// The error of a shard that has stopped. The others stop, too.
    failed: Mutex<Option<io::ErrorKind>>,
    has_failed: AtomicBool,
}

/// What waits for one shard.
#[derive(Debug)]
struct Mailbox<C> {
    /// Whether there may be something. Set after it was put in.
    any: AtomicBool,
    content: Mutex<C>,
    waker: Mutex<Option<Waker>>,
}

/// A panic leaves neither content nor waker in an invalid state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C> Mailbox<C> {
    /// Tells the shard that there is something.
    fn ring(&self) {
        if !self.any.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        let waker = lock(&self.waker).clone();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<C: Default> Mail<C> {
    pub(crate) fn new(shards: usize) -> Self {
        let mailbox = || Mailbox {
            any: AtomicBool::new(false),
            content: Mutex::new(C::default()),
            waker: Mutex::new(None),
        };
        Self {
            boxes: (0..shards).map(|_| mailbox()).collect(),
            alone: AtomicUsize::new(0),
            failed: Mutex::new(None),
            has_failed: AtomicBool::new(false),
        }
    }

    /// How many shards there are.
    pub(crate) fn shards(&self) -> usize {
        self.boxes.len()
    }

    /// Lets `put` add to what waits for `shard`, and wakes that shard if it says that it did. Returns what it says.
    pub(crate) fn put(&self, shard: usize, put: impl FnOnce(&mut C) -> bool) -> bool {
        let Some(mailbox) = self.boxes.get(shard) else { return false };
        let is_in = put(&mut lock(&mailbox.content));
        if is_in {
            mailbox.ring();
        }
        is_in
    }

    /// `waker` wakes `shard` from now on. Take what waits after this.
    pub(crate) fn register(&self, shard: usize, waker: &Waker) {
        if let Some(mailbox) = self.boxes.get(shard) {
            *lock(&mailbox.waker) = Some(waker.clone());
        }
    }

    /// Exchanges what waits for `shard` with `spare`, if there may be something.
    pub(crate) fn take(&self, shard: usize, spare: &mut C) -> bool {
        let Some(mailbox) = self.boxes.get(shard) else { return false };
        if !mailbox.any.load(Ordering::Relaxed) || !mailbox.any.swap(false, Ordering::AcqRel) {
            return false;
        }
        std::mem::swap(&mut *lock(&mailbox.content), spare);
        true
    }

    /// A shard has no handles and no connections left. It says so once.
    pub(crate) fn leave(&self) {
        if self.alone.fetch_add(1, Ordering::AcqRel) + 1 == self.boxes.len() {
            self.boxes.iter().for_each(Mailbox::wake);
        }
    }

    /// Whether all shards have left.
    pub(crate) fn all_left(&self) -> bool {
        self.alone.load(Ordering::Acquire) >= self.boxes.len()
    }

    /// The error of a shard that has stopped.
    pub(crate) fn failed(&self) -> Option<io::ErrorKind> {
        if self.has_failed.load(Ordering::Acquire) { *lock(&self.failed) } else { None }
    }

    /// A shard stops with an error.
    pub(crate) fn fail(&self, error: io::ErrorKind) {
        lock(&self.failed).get_or_insert(error);
        self.has_failed.store(true, Ordering::Release);
        self.boxes.iter().for_each(Mailbox::wake);
    }
}
