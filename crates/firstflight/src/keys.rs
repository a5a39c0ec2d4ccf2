//! Keys that change while a listener runs: by a schedule that a farm shares, or because their file changed.
//!
//! ```
//! # use firstflight::{Listener, credential::Scheme, keys::{self, Form, KeyFile}};
//! /// The listener was made with the ring of `keys::current(&file)`.
//! fn keep_up(listener: &Listener, file: KeyFile) {
//!     tokio::spawn(keys::follow_file(vec![listener.keys()], file));
//! }
//! ```

mod file;

pub use file::{Form, KeyFile, KeyFileError};

use crate::credential::{ClockError, Current, KeyRing, KeySource};
use crate::shared::{Shared, wall_clock};
use firstflight_stack::ListenerId;
use firstflight_wire::{Clock, Instant};
use std::fmt::Display;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the clock and the file are looked at.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// Sets the keys of one listener. It keeps neither the listener nor the endpoint alive.
#[derive(Debug, Clone)]
pub struct KeyHandle {
    shared: Weak<Shared>,
    id: ListenerId,
}

impl KeyHandle {
    pub(crate) fn new(shared: &Arc<Shared>, id: ListenerId) -> Self {
        Self { shared: Arc::downgrade(shared), id }
    }

    /// As [`crate::Listener::set_keys`]; false also if the listener has gone.
    pub fn set(&self, keys: Arc<KeyRing>) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.lock().stack.set_keys(self.id, keys))
    }

    fn is_alive(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.lock().stack.queues(self.id).is_some())
    }
}

/// The keys of `source` by the system's clock, which is taken to be right within a second.
///
/// # Errors
/// When the clock is not good enough.
pub fn current(source: &impl KeySource) -> Result<Current, ClockError> {
    source.keys_at(&wall_clock(Instant::ZERO))
}

/// Gives the listeners the keys of `source`, now and whenever they change, until all listeners have gone. A
/// clock that is not good enough leaves the keys as they are, with one warning.
///
/// ```
/// # use firstflight::{Listener, credential::Schedule, keys};
/// fn keep_up(listener: &Listener, schedule: Schedule) {
///     tokio::spawn(keys::follow(vec![listener.keys()], schedule));
/// }
/// ```
pub async fn follow(listeners: Vec<KeyHandle>, source: impl KeySource) {
    let mut follower = Follower::new(listeners);
    while follower.look(&source, &wall_clock(Instant::ZERO)) {
        tokio::time::sleep(EVERY).await;
    }
}

/// [`follow`] for the keys of a file, which is read again every second. While it cannot be read or makes no
/// sense, the keys stay as they are, with one warning.
pub async fn follow_file(listeners: Vec<KeyHandle>, mut file: KeyFile) {
    let mut follower = Follower::new(listeners);
    let mut warning = Warning::new(KEYS_STAY);
    while follower.look(&file, &wall_clock(Instant::ZERO)) {
        tokio::time::sleep(EVERY).await;
        match file.reload().await {
            Ok(changed) => {
                warning.over();
                if changed {
                    follower.forget();
                }
            }
            Err(error) => warning.say(&error),
        }
    }
}

/// What was installed, and while which times of the wall clock it holds.
struct Follower {
    listeners: Vec<KeyHandle>,
    holds: Option<Range<u64>>,
    warning: Warning,
}

impl Follower {
    fn new(listeners: Vec<KeyHandle>) -> Self {
        Self { listeners, holds: None, warning: Warning::new(KEYS_STAY) }
    }

    /// The source has other keys.
    fn forget(&mut self) {
        self.holds = None;
    }

    /// Installs the keys if they have changed; false once all listeners have gone.
    fn look(&mut self, source: &impl KeySource, clock: &Clock) -> bool {
        self.listeners.retain(KeyHandle::is_alive);
        // A clock that was set back is outside of the times, too.
        if self.holds.as_ref().is_some_and(|times| times.contains(&clock.unix_ms)) {
            return !self.listeners.is_empty();
        }
        match source.keys_at(clock) {
            Ok(current) => {
                self.warning.over();
                self.holds = Some(clock.unix_ms..current.next_change.unwrap_or(u64::MAX));
                for listener in &self.listeners {
                    listener.set(Arc::clone(&current.ring));
                }
                tracing::info!(primary = %current.primary, "cookie keys");
            }
            Err(error) => self.warning.say(&error),
        }
        !self.listeners.is_empty()
    }
}

/// Says the same thing once, until it was over.
#[derive(Debug)]
pub(crate) struct Warning {
    /// What follows from the problem.
    therefore: &'static str,
    said: Option<String>,
}

impl Warning {
    pub const fn new(therefore: &'static str) -> Self {
        Self { therefore, said: None }
    }

    pub fn say(&mut self, problem: &dyn Display) {
        let problem = problem.to_string();
        if self.said.as_ref() != Some(&problem) {
            tracing::warn!("{}: {problem}", self.therefore);
            self.said = Some(problem);
        }
    }

    pub fn over(&mut self) {
        self.said = None;
    }
}

/// What follows when no keys can be had.
const KEYS_STAY: &str = "the cookie keys stay as they are";

#[cfg(test)]
mod tests;
