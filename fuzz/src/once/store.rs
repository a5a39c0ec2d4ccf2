//! The store that servers share, and each server's driver of it, as described in `docs/farm-store.md`: an answer
//! arrives within 18 ms or not at all; missed questions are reported before other questions are asked; a new memory
//! begins with a floor; a server that was killed begins a new memory for all servers; clocks are compared with the
//! store's.

use super::UNIX_MS;
use firstflight_credential::{JobRequest, JobResult, Reason, RemoteGuard};
use firstflight_stack::Job;
use firstflight_wire::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time limit of an answer.
pub const WITHIN: Duration = Duration::from_millis(18);
/// Time between two attempts to connect.
const RETRY: Duration = Duration::from_millis(100);

/// The store.
#[derive(Debug, Default)]
pub struct Store {
    seen: BTreeMap<[u8; 16], Instant>,
    /// The number of its memory.
    pub memory: u64,
    /// The end of its downtime.
    pub down_until: Option<Instant>,
}

impl Store {
    pub fn restart(&mut self) {
        self.seen.clear();
        self.memory += 1;
    }

    fn is_down(&self, now: Instant) -> bool {
        self.down_until.is_some_and(|until| now < until)
    }

    /// Sets an id. Returns whether it was new.
    fn set(&mut self, job: JobRequest, now: Instant) -> bool {
        let JobRequest::GuardSet { key, keep_ms, unix_ms, .. } = job else { return false };
        self.seen.retain(|_, until| *until > now);
        let new = !self.seen.contains_key(&key);
        if new {
            let until = unix_ms.unwrap_or(clock(now)) + keep_ms;
            self.seen.insert(key, now + Duration::from_millis(until.saturating_sub(clock(now)).max(1)));
        }
        new
    }

    /// Answers a question of a server that has been connected to `memory` since `since`. `None` means no answer.
    pub fn answer(
        &mut self,
        job: JobRequest,
        (memory, since): (u64, Instant),
        now: Instant,
    ) -> Option<JobResult> {
        let JobRequest::GuardSet { ahead_ms, reach_ms, unix_ms, .. } = job else { return None };
        if self.is_down(now) || memory != self.memory {
            return None;
        }
        if !self.set(job, now) {
            return Some(JobResult::Repeat);
        }
        let apart = unix_ms.map_or(0, |unix_ms| unix_ms.abs_diff(clock(now)));
        if apart > RemoteGuard::CLOCKS_APART.as_millis() as u64 {
            return Some(JobResult::Refuse(Reason::ClockSkew));
        }
        let age_ms = (now - since).as_millis() as i64;
        if age_ms + ahead_ms <= reach_ms as i64 {
            return Some(JobResult::Refuse(Reason::GuardFloor));
        }
        Some(JobResult::Accept)
    }
}

/// The store's clock, which is correct.
fn clock(now: Instant) -> u64 {
    UNIX_MS + now.as_millis()
}

/// The driver of one server.
#[derive(Debug, Default)]
pub struct Driver {
    /// The memory that it is connected to, and since when.
    pub connection: Option<(u64, Instant)>,
    known: Option<(u64, Instant)>,
    pub owed: Vec<JobRequest>,
    pub retry_at: Option<Instant>,
    open: BTreeMap<u64, Job>,
    count: u64,
}

impl Driver {
    /// Starts the process again after it was killed. What it owed is lost, so a new memory begins for all servers.
    pub fn start_again(&mut self, store: &mut Store, now: Instant) {
        store.memory += 1;
        self.owed.clear();
        (self.known, self.connection, self.retry_at) = (None, None, None);
        self.open.clear();
        self.connect(store, now);
    }

    /// Tries to connect. Returns whether it finds a memory that is new to it.
    pub fn connect(&mut self, store: &mut Store, now: Instant) -> bool {
        if self.connection.is_some() {
            return false;
        }
        if store.is_down(now) {
            self.retry_at = Some(now + RETRY);
            return false;
        }
        self.retry_at = None;
        for job in std::mem::take(&mut self.owed) {
            store.set(job, now);
        }
        let new = self.known.is_none_or(|(memory, _)| memory != store.memory);
        if new {
            self.known = Some((store.memory, now));
        }
        self.connection = self.known;
        new
    }

    /// Starts a question. `None` if it cannot be asked; then it is owed.
    pub fn ask(&mut self, job: Job) -> Option<u64> {
        if self.connection.is_none() {
            self.owed.push(job.request);
            return None;
        }
        self.count += 1;
        self.open.insert(self.count, job);
        Some(self.count)
    }

    /// The question with this number, if it is open.
    pub fn waiting(&self, number: u64) -> Option<&Job> {
        self.open.get(&number)
    }

    /// Ends a question, with or without an answer in time.
    pub fn close(&mut self, number: u64, answered: bool, now: Instant) -> Option<Job> {
        let job = self.open.remove(&number)?;
        if !answered {
            self.owed.push(job.request);
            self.connection = None;
            self.retry_at.get_or_insert(now + RETRY);
        }
        Some(job)
    }

    /// Whether it owes this id to the store.
    pub fn owes(&self, id: &[u8; 16]) -> bool {
        self.owed.iter().any(|job| matches!(job, JobRequest::GuardSet { key, .. } if key == id))
    }
}
