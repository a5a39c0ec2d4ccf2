//! Keys that change while a listener runs: by a schedule that a farm shares, or because the key file changed.
//!
//! ```
//! # use firstflight::{Listener, credential::Scheme, keys::{self, Form, KeyFile}};
//! /// The listener was created with the ring of `keys::current(&file)`.
//! fn keep_up(listener: &Listener, file: KeyFile) {
//!     tokio::spawn(keys::follow_file(vec![listener.keys()], file));
//! }
//! ```

mod file;

pub use file::{Form, KeyError, KeyFile, KeyFileError};
pub use firstflight_files::ReadError;

use crate::credential::{ClockError, Current, Fingerprint, KeyRing, KeySource};
use crate::endpoint::ending::EngineRef;
use crate::shared::{Shared, wall_clock};
use firstflight_files::LastProblem;
use firstflight_stack::ListenerId;
use firstflight_wire::{Clock, Instant};
use std::fmt::Display;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often the clock and the file are checked.
pub(crate) const EVERY: Duration = Duration::from_secs(1);

/// Sets the keys of one listener. It keeps neither the listener nor the endpoint alive.
#[derive(Debug, Clone)]
pub struct KeyHandle(Kind);

#[derive(Debug, Clone)]
enum Kind {
    /// The listeners of all shards.
    Engine(Vec<(Weak<Shared>, ListenerId)>),
    Kernel(Weak<firstflight_kernel::Listener>),
}

impl KeyHandle {
    pub(crate) fn new(listeners: Vec<(Weak<Shared>, ListenerId)>) -> Self {
        Self(Kind::Engine(listeners))
    }

    pub(crate) fn of_kernel(listener: &Arc<firstflight_kernel::Listener>) -> Self {
        Self(Kind::Kernel(Arc::downgrade(listener)))
    }

    /// Like [`crate::Listener::set_keys`]. Also returns false if the listener is gone.
    pub fn set(&self, keys: Arc<KeyRing>) -> bool {
        match &self.0 {
            Kind::Engine(listeners) => {
                let mut any = false;
                for (shared, id) in listeners {
                    let keys = Arc::clone(&keys);
                    any |=
                        EngineRef::of(shared).is_some_and(|shared| shared.lock().stack.set_keys(*id, keys));
                }
                any
            }
            Kind::Kernel(listener) => {
                let set = listener.upgrade().map(|listener| listener.set_keys(keys));
                if let Some(Err(error)) = &set {
                    tracing::warn!(%error, "the kernel did not take the cookie keys");
                }
                set.is_some_and(|set| set.is_ok())
            }
        }
    }

    fn is_alive(&self) -> bool {
        match &self.0 {
            Kind::Engine(listeners) => listeners.iter().any(|(shared, id)| Shared::has_listener(shared, *id)),
            Kind::Kernel(listener) => listener.strong_count() > 0,
        }
    }
}

/// The keys of `source` at the system's present time. The system's clock is assumed to be right within a second.
///
/// # Errors
/// When the clock is not accurate enough.
pub fn current(source: &impl KeySource) -> Result<Current, ClockError> {
    source.keys_at(&wall_clock(Instant::ZERO))
}

/// Gives the keys of `source` to the listeners, now and whenever they change, until all listeners are gone. If the
/// clock is not accurate enough, the keys stay unchanged and one warning is logged.
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

/// Like [`follow`], for the keys of a file, which is read every second. While it cannot be read or is invalid, the
/// keys stay unchanged and one warning is logged.
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
            Err(error) => warning.say(&format_args!("the key file {} {error}", file.path().display())),
        }
    }
}

/// The times of the wall clock for which the installed keys are valid.
struct Follower {
    listeners: Vec<KeyHandle>,
    holds: Option<Range<u64>>,
    /// The primary key that was installed last.
    primary: Option<Fingerprint>,
    warning: Warning,
}

impl Follower {
    fn new(listeners: Vec<KeyHandle>) -> Self {
        Self { listeners, holds: None, primary: None, warning: Warning::new(KEYS_STAY) }
    }

    /// Says which keys were installed.
    fn tell(&mut self, primary: Fingerprint) {
        let before = self.primary.replace(primary);
        crate::metrics::cookie_key(before, primary);
        match before {
            Some(before) if before != primary => tracing::info!(%primary, "the cookie keys have changed"),
            _ => tracing::debug!(%primary, "cookie keys"),
        }
    }

    /// Forces the next `look` to install the source's keys.
    fn forget(&mut self) {
        self.holds = None;
    }

    /// Installs the keys if they have changed. Returns false once all listeners are gone.
    fn look(&mut self, source: &impl KeySource, clock: &Clock) -> bool {
        self.listeners.retain(KeyHandle::is_alive);
        // If the clock was set back, its time is also outside of the range.
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
                self.tell(current.primary);
            }
            Err(error) => self.warning.say(&error),
        }
        !self.listeners.is_empty()
    }
}

/// Logs a problem once, until it is over.
#[derive(Debug)]
pub(crate) struct Warning {
    /// The consequence of the problem.
    therefore: &'static str,
    last: LastProblem,
}

impl Warning {
    pub(crate) fn new(therefore: &'static str) -> Self {
        Self { therefore, last: LastProblem::default() }
    }

    pub(crate) fn say(&mut self, problem: &dyn Display) {
        if let Some(problem) = self.last.new_message(problem) {
            tracing::warn!("{}: {problem}", self.therefore);
        }
    }

    pub(crate) fn over(&mut self) {
        self.last.over();
    }
}

/// The consequence when no keys are available.
const KEYS_STAY: &str = "the cookie keys stay as they are";

#[cfg(test)]
mod tests;
