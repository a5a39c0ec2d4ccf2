//! Requests with certificates at a farm whose two members share a guard in a store: copies at both members, questions and
//! answers that are lost, members that are killed, a store that forgets, clocks that differ.
//!
//! The members are the project's policies and `RemoteGuard`. The store and its driver are modelled after `docs/farm-store.md`:
//! what a member could not ask it reports before its next question, a new memory begins with a floor, a member that was killed
//! begins one for all, and the store compares clocks.
//!
//! A request runs early at most once at all members together, and not after the store has learnt that a copy was refused. If it
//! ran and the store knows, a member that asks says so to the client of a copy, which would send the data by the handshake.

use super::asap::{BEGIN_MS, payload, policy, syn};
use super::{holds, needs};
use firstflight_credential::asap::{AsapPolicy, AsapShard, BudgetConfig, Verified};
use firstflight_credential::{
    Admission, Decision, GuardKey, JobRequest, JobResult, Policies, Question, Reason, RemoteGuard,
    ReplayGuard, Window, Work, admit,
};
use firstflight_models::{Digest, World};
use firstflight_wire::{Clock, Instant};
use std::sync::Arc;
use std::time::Duration;

/// What is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defence {
    /// The members share the store's memory.
    OneStore,
    /// The store keeps an id until no member's clock allows it any more.
    KeptForAllClocks,
    /// It refuses members whose clock is far from its own.
    ClocksCompared,
    /// A memory begins with a floor.
    FloorAtStart,
    /// A member notices that the memory is another one.
    MemoryNoticed,
    /// A member reports what it could not ask, before other questions.
    OwedIsReported,
    /// A member that was killed begins a new memory for all.
    NewMemoryAfterKill,
    /// That the id was set is said first, whatever the clocks and the memory's age are.
    SeenIsSaidFirst,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    QuestionLost,
    AnswerLost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A copy arrives at a member, is verified, and the store is asked.
    Arrives {
        member: usize,
        and: Fate,
    },
    Connects {
        member: usize,
    },
    Milliseconds(u64),
    Killed {
        member: usize,
    },
    StoreRestarts,
}

/// A member and its driver of the store.
struct Member {
    guard: Arc<RemoteGuard>,
    policy: AsapPolicy,
    /// How far its clock is from the store's, milliseconds.
    apart_ms: i64,
    /// The memory that it is connected to, and since when.
    connected: Option<(u64, u64)>,
    known: Option<(u64, u64)>,
    owed: Vec<JobRequest>,
}

struct Farm {
    off: Option<Defence>,
    payload: Vec<u8>,
    now_ms: u64,
    members: Vec<Member>,
    /// The store: when it forgets the id, and the number of its memory. Without `OneStore` each member has one.
    until_ms: [Option<u64>; 2],
    memory: u64,
    ran: bool,
    is_used_up: bool,
}

impl Farm {
    fn new(off: Option<Defence>, (made_ms, apart): (i64, [i64; 2])) -> Self {
        let member = |apart_ms| {
            let guard = guard();
            Member {
                policy: policy(Arc::clone(&guard) as Arc<dyn ReplayGuard>),
                guard,
                apart_ms,
                connected: Some((1, 0)),
                known: Some((1, 0)),
                owed: Vec::new(),
            }
        };
        Self {
            off,
            payload: payload(made_ms),
            // The store's memory began long ago.
            now_ms: 3_600_000,
            members: apart.map(member).into(),
            until_ms: [None; 2],
            memory: 1,
            ran: false,
            is_used_up: false,
        }
    }

    fn store_ms(&self) -> u64 {
        BEGIN_MS + self.now_ms - 3_600_000
    }

    fn has(&self, off: Defence) -> bool {
        self.off != Some(off)
    }

    /// The memory that a member's questions reach.
    fn place(&self, member: usize) -> usize {
        if self.has(Defence::OneStore) { 0 } else { member }
    }

    /// Whether the store has the id.
    fn is_set(&self, member: usize) -> bool {
        self.until_ms[self.place(member)].is_some_and(|until| self.store_ms() < until)
    }

    /// The store sets the id. Returns whether it is new.
    fn set(&mut self, member: usize, job: JobRequest) -> bool {
        let JobRequest::GuardSet { keep_ms, unix_ms, .. } = job else { return false };
        if self.is_set(member) {
            return false;
        }
        let now_ms = self.store_ms();
        let place = self.place(member);
        let until = &mut self.until_ms[place];
        let for_all = if self.off == Some(Defence::KeptForAllClocks) { 1000 } else { 0 };
        *until = Some((unix_ms.unwrap() + keep_ms - for_all).max(now_ms + 1));
        true
    }

    /// The store's answer, by the driver of the member. `None`: the store was not reached.
    fn asks(&mut self, member: usize, job: JobRequest) -> Option<JobResult> {
        let (memory, since_ms) = self.members[member].connected?;
        if memory != self.memory && self.has(Defence::MemoryNoticed) {
            return None;
        }
        let is_new = self.set(member, job);
        if !is_new && self.has(Defence::SeenIsSaidFirst) {
            return Some(JobResult::Repeat);
        }
        let JobRequest::GuardSet { ahead_ms, reach_ms, unix_ms, .. } = job else { return None };
        let apart_ms = unix_ms.unwrap().abs_diff(self.store_ms());
        if apart_ms > RemoteGuard::CLOCKS_APART.as_millis() as u64 && self.has(Defence::ClocksCompared) {
            return Some(JobResult::Refuse(Reason::ClockSkew));
        }
        let above = (self.now_ms - since_ms) as i64 + ahead_ms > reach_ms as i64;
        if !above && self.has(Defence::FloorAtStart) {
            return Some(JobResult::Refuse(Reason::GuardFloor));
        }
        Some(if is_new { JobResult::Accept } else { JobResult::Repeat })
    }

    fn arrives(&mut self, n: usize, fate: Fate) -> Result<(), String> {
        let member = &self.members[n];
        let unix_ms = self.store_ms().saturating_add_signed(member.apart_ms);
        let clock = Clock { mono: Instant::from_millis(self.now_ms), unix_ms, uncertainty: Duration::ZERO };
        let mut shard = AsapShard::new(BudgetConfig::default());
        let policies = Policies { fast_open: None, asap: Some(&member.policy) };
        let Admission::Ask(Question { work: Work::Verify(candidate), .. }) =
            admit(policies, &syn(&self.payload), &mut shard, &clock)
        else {
            return Ok(());
        };
        let decided = member.policy.decide(&candidate, Verified::Good, &mut shard, &clock);
        let Decision::Ask(job) = decided else { return Ok(()) };
        let knew = self.is_set(n);
        let told = match fate {
            Fate::QuestionLost => None,
            Fate::Answered => self.asks(n, job),
            Fate::AnswerLost => self.asks(n, job).and(None),
        };
        match told {
            Some(JobResult::Accept) if self.ran => return Err("the request runs early twice".to_owned()),
            Some(JobResult::Accept) if self.is_used_up => {
                return Err(
                    "the request runs twice: by the handshake after a copy was refused, as the store has learnt, and early".to_owned()
                );
            }
            Some(JobResult::Accept) => self.ran = true,
            Some(JobResult::Refuse(_)) if self.ran && knew => {
                return Err(
                    "the request runs twice: early, and by the handshake after a copy was refused".to_owned()
                );
            }
            Some(_) => self.is_used_up = true,
            None => {
                let member = &mut self.members[n];
                member.connected = None;
                member.owed.push(job);
            }
        }
        Ok(())
    }

    fn connects(&mut self, n: usize) {
        for job in std::mem::take(&mut self.members[n].owed) {
            if self.has(Defence::OwedIsReported) {
                self.set(n, job);
            }
            self.is_used_up = true;
        }
        let (memory, now_ms) = (self.memory, self.now_ms);
        let member = &mut self.members[n];
        if member.known.is_none_or(|(known, _)| known != memory) {
            member.known = Some((memory, now_ms));
        }
        member.connected = member.known;
    }
}

fn guard() -> Arc<RemoteGuard> {
    Arc::new(RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS))
}

impl World for Farm {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (n, member) in self.members.iter().enumerate() {
            match member.connected {
                Some(_) => events.extend(
                    [Fate::Answered, Fate::QuestionLost, Fate::AnswerLost]
                        .map(|and| Event::Arrives { member: n, and }),
                ),
                None => events.extend([
                    Event::Arrives { member: n, and: Fate::QuestionLost },
                    Event::Connects { member: n },
                ]),
            }
            events.push(Event::Killed { member: n });
        }
        events.extend([1000, 10_000, 49_000, 60_000].map(Event::Milliseconds));
        events.push(Event::StoreRestarts);
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrives { member, and } => self.arrives(member, and)?,
            Event::Connects { member } => self.connects(member),
            Event::Milliseconds(ms) => self.now_ms += ms,
            Event::Killed { member: n } => {
                let owes = !std::mem::take(&mut self.members[n].owed).is_empty();
                self.is_used_up |= owes;
                if self.has(Defence::NewMemoryAfterKill) {
                    // The mark alone changes: what the store remembers stays.
                    self.memory += 1;
                }
                let member = &mut self.members[n];
                (member.guard, member.connected, member.known) = (guard(), None, None);
                member.policy = policy(Arc::clone(&member.guard) as Arc<dyn ReplayGuard>);
                if self.off == Some(Defence::NewMemoryAfterKill) {
                    // It takes the memory for one that it has always known.
                    member.known = Some((self.memory, 0));
                }
                self.connects(n);
            }
            Event::StoreRestarts => {
                self.until_ms = [None; 2];
                self.memory += 1;
            }
        }
        Ok(())
    }

    fn state(&self, to: &mut Digest) {
        to.add(&(self.now_ms, self.until_ms, self.ran, self.is_used_up));
        for member in &self.members {
            let since = |of: Option<(u64, u64)>| of.map(|(memory, since)| (memory == self.memory, since));
            to.add(&(since(member.connected), since(member.known), &member.owed, &member.guard));
        }
    }
}

/// When the request is made (milliseconds, by its client's clock), and how far the members' clocks are from the store's: within
/// what is allowed, and beyond.
const WORLDS: [(i64, [i64; 2]); 5] =
    [(0, [0, 0]), (0, [0, -1000]), (10_000, [1000, -1000]), (-59_000, [-1000, 1000]), (0, [-30_000, 0])];

#[test]
fn no_request_runs_twice_at_a_farm() {
    holds("farm", WORLDS.len(), 5, |n| Farm::new(None, WORLDS[n]));
}

#[test]
fn each_defence_is_needed() {
    use Defence::*;
    for defence in [
        OneStore,
        KeptForAllClocks,
        ClocksCompared,
        FloorAtStart,
        MemoryNoticed,
        OwedIsReported,
        NewMemoryAfterKill,
        SeenIsSaidFirst,
    ] {
        needs(defence, WORLDS.len(), 7, |n| Farm::new(Some(defence), WORLDS[n]));
    }
}
