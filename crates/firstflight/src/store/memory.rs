//! The store in memory: for tests, and for several endpoints of one process.

use super::{Answer, SharedStore, StoreError};
use crate::credential::{JobRequest, JobResult, Reason, Serial};
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a one-time cookie can be used.
const COOKIE_LIVES: Duration = Duration::from_secs(86_400);
/// How long a cookie that was shown is remembered: longer than its activation can be late.
const USED_LIVES: Duration = Duration::from_secs(3600);

/// A [`SharedStore`] in the memory of one process, of bounded size. It begins without memory, so it takes no
/// guarded first flight for 2 MSL.
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    seen: Expiring<[u8; 16], ()>,
    cookies: Expiring<Serial, Cookie>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cookie {
    Active,
    Used,
}

impl MemoryStore {
    /// A store of at most `capacity` first flights and as many one-time cookies (some 100 bytes each). Full, it
    /// refuses.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let state =
            State { since: Instant::now(), seen: Expiring::new(capacity), cookies: Expiring::new(capacity) };
        Self { state: Mutex::new(state) }
    }

    /// Loses its memory, as at a restart.
    pub fn restart(&self) {
        let mut state = self.lock();
        let capacity = state.seen.capacity;
        state.since = Instant::now();
        state.seen = Expiring::new(capacity);
        state.cookies = Expiring::new(capacity);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedStore for MemoryStore {
    fn ask(&self, request: JobRequest) -> Answer<'_> {
        Box::pin(async move { self.lock().answer(request, Instant::now()) })
    }

    fn missed(&self, request: JobRequest) {
        if !matches!(request, JobRequest::Activate { .. }) {
            // Used up, whatever the answer.
            let _ = self.lock().answer(request, Instant::now());
        }
    }
}

impl State {
    fn answer(&mut self, request: JobRequest, now: Instant) -> Result<JobResult, StoreError> {
        let refused = match request {
            JobRequest::GuardSet { key, keep_ms, ahead_ms, reach_ms } => {
                let floor = self.since + Duration::from_millis(reach_ms);
                let keep = Duration::from_millis(keep_ms);
                // Set below the floor too: a copy of what is refused now may come above it.
                match self.seen.swap(key, keep, now, |old| old.is_none().then_some(())) {
                    Ok(Some(())) => Some(Reason::Replay),
                    Ok(None) if now + Duration::from_millis(ahead_ms) <= floor => Some(Reason::GuardFloor),
                    Ok(None) => None,
                    Err(Full) => Some(Reason::Overloaded),
                }
            }
            JobRequest::Redeem { serial } => {
                match self.cookies.swap(serial, USED_LIVES, now, |_| Some(Cookie::Used)) {
                    Ok(Some(Cookie::Active)) => None,
                    Ok(Some(Cookie::Used)) => Some(Reason::Replay),
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

/// A table whose entries end by themselves.
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

    /// What `key` holds now; then it holds what `next` makes of that, if anything, for `lasts`.
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
