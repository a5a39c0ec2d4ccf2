//! The connections of HTTP/2 to one backend. Requests share them.

use super::dial::DialError;
use super::h2::{Link, Slot};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// The connections of one backend.
#[derive(Default)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// A place is free, a connection is there, or a dial failed.
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    links: Vec<(Arc<Link>, Instant)>,
    /// Requests that wait for a place.
    waiting: usize,
    /// Connections that are being made.
    dials: usize,
    /// How many requests a connection has room for, as the backend said last.
    room: Option<usize>,
    /// Dials that failed, and why the last one did.
    failed: u64,
    why: Option<DialError>,
}

/// A request that waits. It counts until it is dropped.
struct WaitingRequest<'a>(&'a Shared);

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// A connection that is being made. Those that wait hear of its end, also if nobody finishes it.
pub(super) struct Dial(Arc<Shared>);

impl Dial {
    /// It is over.
    pub(super) fn done(self, result: Result<Arc<Link>, DialError>) {
        let mut state = self.0.lock();
        match result {
            Ok(link) => state.links.push((link, Instant::now())),
            Err(error) => (state.failed, state.why) = (state.failed + 1, Some(error)),
        }
    }
}

impl Drop for Dial {
    fn drop(&mut self) {
        self.0.lock().dials -= 1;
        self.0.changed.notify_waiters();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears when a place is free.
    pub(super) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// A place on a connection that there is. A request with a body avoids one on which another body waits for the backend.
    fn find(&self, with_body: bool) -> Option<Slot> {
        let mut state = self.lock();
        // What drains ends by itself when its last request does.
        state.links.retain(|(link, _)| link.is_open());
        let now = Instant::now();
        if let Some((link, _)) = state.links.last() {
            state.room = Some(link.room());
        }
        state.links.iter_mut().find_map(|(link, used)| {
            let slot = Some(&link).filter(|link| !(with_body && link.is_stuck()))?.take()?;
            *used = now;
            Some(slot)
        })
    }

    /// A place, on a connection that there is, or on a new one. Requests that wait share one dial, as far as its connection will have room for them; `dial` begins another one. If it fails, all
    /// that wait for it fail.
    /// Errors: when no connection is made within this time.
    pub(super) async fn place(
        self: &Arc<Self>,
        with_body: bool,
        most: usize,
        within: Duration,
        dial: impl Fn(Dial),
    ) -> Result<Slot, DialError> {
        if let Some(slot) = self.find(with_body) {
            return Ok(slot);
        }
        let until = Instant::now() + within;
        self.lock().waiting += 1;
        let _waiting = WaitingRequest(self);
        let failed = self.lock().failed;
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if let Some(slot) = self.find(with_body) {
                return Ok(slot);
            }
            let begins = {
                let mut state = self.lock();
                if state.failed != failed {
                    let why = state.why.as_ref().map(DialError::again);
                    return Err(why.unwrap_or(DialError::NoBackend));
                }
                let room = state.room.map_or(most, |room| room.clamp(1, most.max(1)));
                // One without requests and without room is a backend that takes none. Another one would be the same.
                let useless = state.links.iter().any(|(link, _)| link.is_unused());
                let begins = !useless && state.dials.saturating_mul(room) < state.waiting;
                state.dials += usize::from(begins);
                begins
            };
            if begins {
                dial(Dial(Arc::clone(self)));
            }
            if timeout_at(until, changed).await.is_err() {
                return Err(DialError::TimedOut(within));
            }
        }
    }

    /// Closes connections without requests that nobody has used for this long.
    pub(super) fn close_idle(&self, within: Duration) {
        self.lock().links.retain(|(link, used)| !link.is_unused() || used.elapsed() < within);
    }

    /// Closes one that no request uses. Returns false if there is none.
    pub(super) fn close_one(&self) -> bool {
        let mut state = self.lock();
        let at = state.links.iter().position(|(link, _)| link.is_unused());
        at.map(|at| state.links.remove(at)).is_some()
    }
}
