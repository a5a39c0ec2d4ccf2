//! Tasks that wait for one event.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// The wakers of the tasks. As a waker itself it wakes all of them.
#[derive(Debug, Default)]
pub(super) struct Wakers(Mutex<Vec<Waker>>);

impl Wakers {
    /// Adds a task, if it is not there.
    pub(super) fn add(&self, waker: &Waker) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|one| one.will_wake(waker)) {
            all.push(waker.clone());
        }
    }

    /// Wakes all tasks, and forgets them.
    pub(super) fn wake_all(&self) {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        all.into_iter().for_each(Waker::wake);
    }
}

impl Wake for Wakers {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }
}
