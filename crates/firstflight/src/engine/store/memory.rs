//! A store in memory, for tests and for several endpoints of one process.

use super::{SharedStore, StoreAnswer, StoreError};
use crate::credential::{FlightId, JobRequest, JobResult, Reason, RemoteGuard, Serial};
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a one-time cookie can be used.
const COOKIE_LIVES: Duration = Duration::from_secs(86_400);
/// How long a used cookie is remembered. It is longer than the delay that its activation can have.
const USED_LIVES: Duration = Duration::from_secs(3600);

/// A [`SharedStore`] of bounded size in the memory of one process. It starts without memory, so it accepts no guarded
/// first flight for 2 MSL.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    /// A moment, and the members' wall clock at that moment, Unix milliseconds.
    clock: Option<(Instant, u64)>,
    /// Signed stamps up to this one are refused, Unix milliseconds. It rises when the clock was set.
    floor_ms: u64,
    seen: Expiring<[u8; 16], ()>,
    cookies: Expiring<Serial, Cookie>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cookie {
    Active,
    /// By this first flight, unless it was refused whatever the cookie was.
    Used(Option<FlightId>),
}

impl MemoryStore {
    /// A store for at most `capacity` first flights and as many one-time cookies (about 100 bytes each). When it is
    /// full, it refuses.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { state: Mutex::new(State::new(capacity)) }
    }

    /// Forgets everything, as after a restart.
    pub fn restart(&self) {
        let mut state = self.lock();
        *state = State::new(state.seen.capacity);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedStore for MemoryStore {
    fn ask(&self, request: JobRequest) -> StoreAnswer<'_> {
        Box::pin(async move { self.lock().answer(request, Instant::now()) })
    }

    fn missed(&self, request: JobRequest) {
        if !matches!(request, JobRequest::Activate { .. }) {
            // The id or cookie is used up, whatever the answer is.
            let _ = self.lock().answer(request, Instant::now());
        }
    }
}

impl State {
    fn new(capacity: usize) -> Self {
        Self {
            since: Instant::now(),
            clock: None,
            floor_ms: 0,
            seen: Expiring::new(capacity),
            cookies: Expiring::new(capacity),
        }
    }

    /// How much longer an id is kept by the store's clock than by the asker's clock, milliseconds. The first wall
    /// clock seen counts as the store's clock. If a later one differs too much, the clock was set or belongs to
    /// another member. Then the floor rises above everything that was accepted by either clock.
    fn compare(&mut self, unix_ms: u64, reach_ms: u64, now: Instant) -> i64 {
        let (at, showed) = *self.clock.get_or_insert((now, unix_ms));
        let shows = showed.saturating_add((now - at).as_millis() as u64);
        if shows.abs_diff(unix_ms) > RemoteGuard::CLOCKS_APART.as_millis() as u64 {
            self.floor_ms = self.floor_ms.max(shows.max(unix_ms).saturating_add(reach_ms));
            self.clock = Some((now, unix_ms));
            return 0;
        }
        unix_ms as i64 - shows as i64
    }

    fn answer(&mut self, request: JobRequest, now: Instant) -> Result<JobResult, StoreError> {
        let refused = match request {
            JobRequest::GuardSet { key, keep_ms, ahead_ms, reach_ms, unix_ms, .. } => {
                let longer = unix_ms.map_or(0, |unix_ms| self.compare(unix_ms, reach_ms, now));
                let keep = Duration::from_millis(keep_ms.saturating_add_signed(longer));
                let age_ms = (now - self.since).as_millis() as i64;
                let stamp_ms = unix_ms.map(|unix_ms| unix_ms.saturating_add_signed(ahead_ms));
                let below = age_ms.saturating_add(ahead_ms) <= reach_ms as i64
                    || stamp_ms.is_some_and(|stamp_ms| stamp_ms <= self.floor_ms);
                // Set the id even below the floor, because a copy of a refused flight may arrive when the floor no
                // longer refuses it.
                match self.seen.swap(key, keep, now, |old| old.is_none().then_some(())) {
                    Ok(Some(())) => return Ok(JobResult::Repeat),
                    Ok(None) if below => Some(Reason::GuardFloor),
                    Ok(None) => None,
                    Err(Full) => Some(Reason::Overloaded),
                }
            }
            JobRequest::Redeem { serial, flight } => {
                let used = |old| match old {
                    Some(Cookie::Used(by)) => Some(Cookie::Used(by)),
                    Some(Cookie::Active) => Some(Cookie::Used(flight)),
                    // It is not good, so this first flight is refused.
                    None => Some(Cookie::Used(None)),
                };
                match self.cookies.swap(serial, USED_LIVES, now, used) {
                    Ok(Some(Cookie::Active)) => None,
                    Ok(Some(Cookie::Used(Some(by)))) if flight == Some(by) => return Ok(JobResult::Repeat),
                    Ok(Some(Cookie::Used(_))) => Some(Reason::Replay),
                    Ok(None) => Some(Reason::NotActive),
                    Err(Full) => Some(Reason::Overloaded),
                }
            }
            JobRequest::Activate { serial } => {
                let active = |old: Option<Cookie>| old.is_none().then_some(Cookie::Active);
                match self.cookies.swap(serial, COOKIE_LIVES, now, active) {
                    Ok(_) => None,
                    Err(Full) => Some(Reason::Overloaded),
                }
            }
            _ => return Err(StoreError::Unsupported),
        };
        Ok(refused.map_or(JobResult::Accept, JobResult::Refuse))
    }
}

/// The table has no room.
struct Full;

/// A table whose entries expire.
#[derive(Debug)]
struct Expiring<K, V> {
    entries: HashMap<K, (V, Instant)>,
    ends: BTreeSet<(Instant, K)>,
    capacity: usize,
}

impl<K: Copy + Eq + Hash + Ord, V: Copy> Expiring<K, V> {
    fn new(capacity: usize) -> Self {
        Self { entries: HashMap::new(), ends: BTreeSet::new(), capacity }
    }

    /// Returns what `key` holds now. If `next` returns a new value for it, stores that value for `lasts`.
    fn swap(
        &mut self,
        key: K,
        lasts: Duration,
        now: Instant,
        next: impl FnOnce(Option<V>) -> Option<V>,
    ) -> Result<Option<V>, Full> {
        while let Some(first) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            self.ends.remove(&first);
            self.entries.remove(&first.1);
        }
        let old = self.entries.get(&key).copied();
        if let Some(new) = next(old.map(|(value, _)| value)) {
            if old.is_none() && self.entries.len() >= self.capacity {
                return Err(Full);
            }
            if let Some((_, end)) = self.entries.insert(key, (new, now + lasts)) {
                self.ends.remove(&(end, key));
            }
            self.ends.insert((now + lasts, key));
        }
        Ok(old.map(|(value, _)| value))
    }
}

#[cfg(test)]
mod tests;
