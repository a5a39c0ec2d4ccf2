//! What is known of names, and which of them is looked up next. It has no I/O: the caller has the clock and the threads.

use super::failure::Failure;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long addresses are used without another lookup.
pub(super) const FRESH: Duration = Duration::from_secs(5);
/// A lookup that takes longer is slow. A request waits for it no longer if older addresses are known (RFC 8767 §5: the
/// client response timer, which is shorter here, because a connect follows).
pub(super) const PATIENCE: Duration = Duration::from_millis(250);
/// How long a failure counts (RFC 9520 §3.2): the time doubles with each failure in a row, up to the second value.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// The same, if this machine was short of something.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);
/// Lookups at one time, each on a thread.
pub(super) const THREADS: usize = 64;
/// How many of these names may have whose last lookup failed or was slow. The others find a thread.
pub(super) const SLOW_THREADS: usize = THREADS / 2;
/// Names remembered. The one that was not used for the longest time is forgotten first.
pub(super) const CAPACITY: usize = 4096;

/// What is known of names.
#[derive(Debug)]
pub(super) struct NameTable {
    names: HashMap<Arc<str>, Name>,
    /// Names that wait for a thread. Each has the state `Queued`.
    queue: VecDeque<Arc<str>>,
    /// How long addresses are used while lookups fail.
    kept: Duration,
    /// Lookups under way, and those of slow names among them.
    busy: usize,
    busy_slow: usize,
    /// Counts questions and lookups.
    turn: u64,
}

#[derive(Debug, Default)]
struct Name {
    found: Option<(Instant, Vec<SocketAddr>)>,
    failed: Option<FailedLookup>,
    lookup: Lookup,
    /// The last lookup failed, or took longer than `PATIENCE`.
    slow: bool,
    /// Requests that wait for the lookup.
    waiting: usize,
    /// When it was last asked for: the turn.
    used: u64,
}

#[derive(Debug)]
struct FailedLookup {
    /// When it may be looked up again.
    again: Instant,
    pause: Duration,
    why: Failure,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Lookup {
    #[default]
    None,
    /// It waits for a thread, since then.
    Queued(Instant),
    /// It runs. The time is when it was wanted, the number that of its [`Task`].
    Running(Instant, u64),
}

/// The answer to a question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LookupAnswer {
    Found(Vec<SocketAddr>),
    Failed(Failure),
    /// A lookup is under way. Ask again when one has ended, or at this time.
    Wait(Option<Instant>),
}

/// A lookup to be made.
#[derive(Debug, Clone)]
pub(super) struct Task {
    pub name: Arc<str>,
    number: u64,
    began: Instant,
    /// It counts among the slow ones.
    slow: bool,
}

impl NameTable {
    pub(super) fn new(kept: Duration) -> Self {
        Self { names: HashMap::new(), queue: VecDeque::new(), kept, busy: 0, busy_slow: 0, turn: 0 }
    }

    /// Asks for the addresses of a name. A lookup begins with the next call of [`NameTable::begin`] if one is needed
    /// and none is under way. If older addresses are known, `patience` says how long it is waited for.
    ///
    /// A request that is told to wait counts until [`NameTable::leave`], and `waits` from then on.
    pub(super) fn ask(&mut self, name: &str, patience: Duration, waits: bool, now: Instant) -> LookupAnswer {
        self.turn += 1;
        if !self.names.contains_key(name) {
            self.make_room();
            self.names.insert(name.into(), Name::default());
        }
        let Some((key, _)) = self.names.get_key_value(name) else { return LookupAnswer::Wait(None) };
        let key = Arc::clone(key);
        let Some(known) = self.names.get_mut(name) else { return LookupAnswer::Wait(None) };
        known.used = self.turn;
        let age = |at: Instant| now.saturating_duration_since(at);
        known.found.take_if(|(at, _)| age(*at) >= self.kept);
        if let Some((at, addresses)) = &known.found
            && age(*at) < FRESH
        {
            return LookupAnswer::Found(addresses.clone());
        }
        let paused = known.failed.as_ref().filter(|failed| now < failed.again);
        if known.lookup == Lookup::None && paused.is_none() {
            known.lookup = Lookup::Queued(now);
            self.queue.push_back(key);
        }
        let until = match (&known.found, known.lookup, paused) {
            (Some((_, addresses)), Lookup::None, _) => return LookupAnswer::Found(addresses.clone()),
            (Some((_, addresses)), Lookup::Queued(since) | Lookup::Running(since, _), _) => {
                if known.slow || age(since) >= patience {
                    return LookupAnswer::Found(addresses.clone());
                }
                Some(since + patience)
            }
            (None, Lookup::None, Some(failed)) => return LookupAnswer::Failed(failed.why.clone()),
            (None, ..) => None,
        };
        known.waiting += usize::from(!waits);
        LookupAnswer::Wait(until)
    }

    /// Whether a name waits for a thread.
    pub(super) fn is_queued(&self, name: &str) -> bool {
        self.names.get(name).is_some_and(|known| matches!(known.lookup, Lookup::Queued(_)))
    }

    /// A request that was told to wait does not wait any more. What nobody needs is not looked up.
    pub(super) fn leave(&mut self, name: &str) {
        let Some(known) = self.names.get_mut(name) else { return };
        known.waiting = known.waiting.saturating_sub(1);
        let needed = known.waiting > 0 || known.found.is_some();
        if !needed && matches!(known.lookup, Lookup::Queued(_)) {
            known.lookup = Lookup::None;
            self.queue.retain(|queued| **queued != *name);
        }
    }

    /// The next lookup, if there is one and a thread for it. Report its end with [`NameTable::end`].
    pub(super) fn begin(&mut self, now: Instant) -> Option<Task> {
        if self.busy >= THREADS {
            return None;
        }
        let is_slow = |name: &Arc<str>| self.names.get(name).is_some_and(|known| known.slow);
        let at = match self.busy_slow < SLOW_THREADS {
            true => 0,
            false => self.queue.iter().position(|name| !is_slow(name))?,
        };
        let name = self.queue.remove(at)?;
        let known = self.names.get_mut(&name)?;
        self.turn += 1;
        let (number, slow) = (self.turn, known.slow);
        let since = match known.lookup {
            Lookup::Queued(since) | Lookup::Running(since, _) => since,
            Lookup::None => now,
        };
        known.lookup = Lookup::Running(since, number);
        self.busy += 1;
        self.busy_slow += usize::from(slow);
        Some(Task { name, number, began: now, slow })
    }

    /// A lookup has ended, and its thread is free.
    pub(super) fn end(&mut self, task: &Task, result: Result<Vec<SocketAddr>, Failure>, now: Instant) {
        self.busy = self.busy.saturating_sub(1);
        self.busy_slow = self.busy_slow.saturating_sub(usize::from(task.slow));
        let Some(known) = self.names.get_mut(&task.name) else { return };
        if !matches!(known.lookup, Lookup::Running(_, number) if number == task.number) {
            // It was given up.
            return;
        }
        known.lookup = Lookup::None;
        match result {
            Ok(addresses) => {
                known.slow = now.saturating_duration_since(task.began) > PATIENCE;
                known.found = Some((now, addresses));
                known.failed = None;
            }
            Err(why) => {
                let former = known.failed.as_ref().map(|failed| (failed.pause * 2).min(LONGEST_PAUSE));
                let pause = match why.is_shortage() {
                    true => SHORTAGE_PAUSE,
                    false => former.unwrap_or(PAUSE).max(PAUSE),
                };
                known.slow |= !why.is_shortage();
                known.failed = Some(FailedLookup { again: now + pause, pause, why });
            }
        }
    }

    /// Forgets all addresses and failures: this host is on another network. A lookup that has had no answer for a while asks
    /// the resolver of the former one, so it is given up. Its thread stays taken until it ends.
    pub(super) fn forget(&mut self, now: Instant) {
        self.names.retain(|_, known| known.waiting > 0 || known.lookup != Lookup::None);
        for known in self.names.values_mut() {
            (known.found, known.failed, known.slow) = (None, None, false);
            if matches!(known.lookup, Lookup::Running(since, _) if now.saturating_duration_since(since) >= PATIENCE)
            {
                known.lookup = Lookup::None;
            }
        }
    }

    /// Makes room for another name. Those that are looked up or waited for stay: there are few.
    fn make_room(&mut self) {
        if self.names.len() < CAPACITY {
            return;
        }
        let free = self.names.iter().filter(|(_, known)| known.waiting == 0 && known.lookup == Lookup::None);
        let oldest = free.min_by_key(|(_, known)| known.used).map(|(name, _)| Arc::clone(name));
        oldest.and_then(|name| self.names.remove(&name));
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.names.len()
    }
}
