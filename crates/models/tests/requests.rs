//! Requests with certificates (ASAP) at a server with two shards: copies at any time, verification that takes time, a clock
//! that is set or uncertain, trust that changes, limits, restarts.
//!
//! A request whose copy was refused is used up, because its client sends the data again by an ordinary handshake. It must not
//! run early afterwards. And what ran early is refused as *replayed*, so that a client whose data must not run twice does not
//! send it again; only a restart may forget that. Not used up is one that is ahead of the server's clock (`docs/spec/asap.md` 10.9). After a restart
//! while the clock is behind, a request of later may run again (`docs/guide/known-limits.md`).

use super::asap::{BEGIN_MS, identity, payload, policy, syn, trust};
use super::{holds, needs};
use firstflight_credential::asap::{AsapPolicy, AsapShard, BudgetConfig, Candidate, Refused, Verified};
use firstflight_credential::replay::ReplayId;
use firstflight_credential::{
    Admission, Decision, FirstFlight, GuardKey, Guarded, Policies, Question, Refusal, ReplayGuard,
    ReplayTable, Window, Work, admit,
};
use firstflight_models::{Digest, World};
use firstflight_wire::asap::{BLOCK_LEN, Block, Status};
use firstflight_wire::{Clock, Instant};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defence {
    /// The guard remembers what was accepted.
    Memory,
    /// The shards share it.
    OneGuard,
    /// It begins with a floor.
    FloorAtStart,
    /// It has a time of its own, which does not go back, and closes when an uncertain clock becomes certain.
    OwnTime,
    /// It raises the floor of a verifier that is trusted again.
    FloorWhenTrusted,
    /// What a limit stops is used up.
    UsedUpAtLimits,
    /// It looks into the guard before it says another reason.
    SaysSeen,
}

/// A table that can be made to forget its duty.
#[derive(Debug)]
struct Guard {
    table: ReplayTable,
    off: Option<Defence>,
    /// A limit stops the first flight that is about to be told.
    at_limit: AtomicBool,
}

impl Guard {
    fn begin(off: Option<Defence>, now_ms: u64) -> Arc<Self> {
        let began = if off == Some(Defence::FloorAtStart) { 0 } else { now_ms };
        let table = ReplayTable::new(GuardKey::from_bytes([3; 16]), Window::REQUESTS, 0, began);
        Arc::new(Self { table, off, at_limit: AtomicBool::new(false) })
    }
}

impl ReplayGuard for Guard {
    fn test_and_set(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded {
        let deaf = self.off == Some(Defence::UsedUpAtLimits) && self.at_limit.load(Ordering::Relaxed);
        match self.off {
            Some(Defence::Memory) => Guarded::New,
            _ if deaf => Guarded::New,
            _ => self.table.test_and_set(id, stamp_ms, now_ms),
        }
    }

    fn look_up(&self, id: ReplayId, stamp_ms: u64, now_ms: u64) -> Guarded {
        self.table.look_up(id, stamp_ms, now_ms)
    }

    fn is_set(&self, id: ReplayId) -> bool {
        self.off != Some(Defence::SaysSeen) && self.table.is_set(id)
    }

    fn observe(&self, clock: &Clock) -> u64 {
        match self.off {
            Some(Defence::OwnTime) => clock.unix_ms,
            _ => self.table.observe(clock),
        }
    }

    fn raise_floor(&self, floor_ms: u64) {
        self.table.raise_floor(floor_ms);
    }

    fn id_of(&self, client: IpAddr, key: &[u8]) -> ReplayId {
        self.table.id_of(client, key)
    }

    fn id(&self, first: &FirstFlight<'_>) -> ReplayId {
        self.table.id(first)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A copy of the SYN arrives at a shard, which begins to verify it.
    Arrives {
        shard: usize,
    },
    /// The shard has verified it.
    Verified {
        shard: usize,
    },
    /// A copy arrives while the accept queue is full.
    ArrivesAtLimit,
    Seconds(u64),
    /// The wall clock is set.
    ClockBy {
        ms: i64,
    },
    ClockIsUncertain(bool),
    Trusts(bool),
    /// The process is killed, and starts again.
    Restart,
}

struct Server {
    off: Option<Defence>,
    payload: Vec<u8>,
    made_ms: u64,
    guards: Vec<Arc<Guard>>,
    shards: Vec<(AsapPolicy, AsapShard, Option<Box<Candidate>>)>,
    mono: Instant,
    unix_ms: u64,
    is_uncertain: bool,
    trusts: bool,
    /// The request ran early, or may not any more.
    ran: bool,
    is_used_up: bool,
    /// It ran early in this process.
    ran_here: bool,
    /// What has been told to what shows no state of its own.
    told: Vec<(Instant, u64, bool)>,
    /// The latest time that the clock has shown.
    latest_ms: u64,
}

impl Server {
    fn new(off: Option<Defence>, made_ms: i64) -> Self {
        let mut server = Self {
            off,
            payload: payload(made_ms),
            made_ms: BEGIN_MS.saturating_add_signed(made_ms),
            guards: Vec::new(),
            shards: Vec::new(),
            mono: Instant::from_secs(1000),
            unix_ms: BEGIN_MS,
            is_uncertain: false,
            trusts: true,
            ran: false,
            is_used_up: false,
            ran_here: false,
            told: Vec::new(),
            latest_ms: BEGIN_MS,
        };
        // It began long ago.
        server.start(BEGIN_MS - 600_000);
        server
    }

    fn start(&mut self, at_ms: u64) {
        let one = Guard::begin(self.off, at_ms);
        let other = match self.off {
            Some(Defence::OneGuard) => Guard::begin(self.off, at_ms),
            _ => Arc::clone(&one),
        };
        let guards = [one, other];
        self.shards = guards
            .iter()
            .map(|guard| {
                let mut policy = policy(Arc::clone(guard) as Arc<dyn ReplayGuard>);
                policy.trust = trust(self.trusts);
                (policy, AsapShard::new(BudgetConfig::default()), None)
            })
            .collect();
        self.guards = guards.into();
        self.told.clear();
    }

    fn clock(&self) -> Clock {
        let uncertainty = Duration::from_secs(if self.is_uncertain { 60 } else { 0 });
        Clock { mono: self.mono, unix_ms: self.unix_ms, uncertainty }
    }

    /// A copy was refused by a server whose clock showed no time before the request's.
    fn is_used_up_now(&mut self) {
        self.is_used_up |= self.made_ms <= self.unix_ms + 10_000;
    }

    /// A copy was refused, and its client learns this.
    fn is_refused(&mut self, refused: Option<Refused>) -> Result<(), String> {
        self.is_used_up_now();
        match refused {
            Some(Refused { status: Status::Replayed, .. }) => Ok(()),
            _ if self.ran_here => {
                Err("the request runs twice: early, and by the handshake after a copy was refused".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn runs(&mut self) -> Result<(), String> {
        if self.ran {
            return Err("the request runs early twice".to_owned());
        }
        if self.is_used_up {
            return Err(
                "the request runs twice: by the handshake after a copy was refused, and early".to_owned()
            );
        }
        (self.ran, self.ran_here) = (true, true);
        Ok(())
    }

    fn arrives(&mut self, shard: usize, syn_cookie_pressure: bool) -> Result<(), String> {
        let clock = self.clock();
        self.guards.iter().for_each(|guard| guard.at_limit.store(syn_cookie_pressure, Ordering::Relaxed));
        let (policy, budget, deferred) = &mut self.shards[shard];
        let first = FirstFlight { syn_cookie_pressure, ..syn(&self.payload) };
        let policies = Policies { fast_open: None, asap: Some(policy) };
        match admit(policies, &first, budget, &clock) {
            Admission::Ask(Question { work: Work::Verify(candidate), .. }) => *deferred = Some(candidate),
            Admission::Refuse(Refusal { refused, .. }) => return self.is_refused(refused),
            other => return Err(format!("{other:?} of a block")),
        }
        Ok(())
    }

    fn verified(&mut self, shard: usize) -> Result<(), String> {
        let clock = self.clock();
        self.guards.iter().for_each(|guard| guard.at_limit.store(false, Ordering::Relaxed));
        let (policy, budget, deferred) = &mut self.shards[shard];
        let candidate = deferred.take().unwrap();
        match policy.decide(&candidate, Verified::Good, budget, &clock) {
            Decision::Accept(()) => self.runs(),
            Decision::Refuse(refused) => {
                // As the stack does.
                let seen = policy.remembers(&syn(&self.payload));
                self.is_refused(Some(if seen { refused.seen() } else { refused }))
            }
            Decision::Ask(job) => Err(format!("a table asks {job:?}")),
        }
    }
}

impl World for Server {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (shard, (_, _, deferred)) in self.shards.iter().enumerate() {
            events.push(match deferred {
                Some(_) => Event::Verified { shard },
                None => Event::Arrives { shard },
            });
        }
        events.push(Event::ArrivesAtLimit);
        events.extend([1, 12, 61].map(Event::Seconds));
        events.extend([-900, -30_000, 30_000].map(|ms| Event::ClockBy { ms }));
        events.push(Event::ClockIsUncertain(!self.is_uncertain));
        events.push(Event::Trusts(!self.trusts));
        events.push(Event::Restart);
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrives { shard } => self.arrives(shard, false)?,
            Event::Verified { shard } => self.verified(shard)?,
            Event::ArrivesAtLimit => self.arrives(0, true)?,
            Event::Seconds(seconds) => {
                self.mono += Duration::from_secs(seconds);
                self.unix_ms += seconds * 1000;
            }
            Event::ClockBy { ms } => self.unix_ms = self.unix_ms.saturating_add_signed(ms),
            Event::ClockIsUncertain(yes) => self.is_uncertain = yes,
            Event::Trusts(yes) => {
                let clock = self.clock();
                self.trusts = yes;
                for (policy, budget, _) in &mut self.shards {
                    match self.off {
                        Some(Defence::FloorWhenTrusted) => policy.trust = trust(yes),
                        _ => policy.set_trust(trust(yes), &clock),
                    }
                    budget.trust_changed();
                }
                self.told.push((clock.mono, clock.unix_ms, self.is_uncertain));
            }
            Event::Restart => {
                // What was being verified is lost with the process.
                if self.shards.iter().any(|(_, _, deferred)| deferred.is_some()) {
                    self.is_used_up_now();
                }
                if self.made_ms > self.unix_ms + 10_000 {
                    (self.ran, self.is_used_up) = (false, false);
                }
                self.ran_here = false;
                self.start(self.unix_ms);
                self.latest_ms = self.unix_ms;
            }
        }
        self.latest_ms = self.latest_ms.max(self.unix_ms);
        Ok(())
    }

    fn state(&self, to: &mut Digest) {
        to.add(&(
            self.mono,
            self.unix_ms,
            self.is_uncertain,
            self.trusts,
            self.ran,
            self.is_used_up,
            self.ran_here,
        ));
        to.add(&self.told);
        // A candidate that was there before a change of trust is void.
        to.add(
            &self
                .shards
                .iter()
                .map(|(_, budget, deferred)| {
                    deferred.as_ref().map(|candidate| candidate.stands(budget, &self.clock()).is_ok())
                })
                .collect::<Vec<_>>(),
        );
        for guard in self.guards.iter().take(if self.off == Some(Defence::OneGuard) { 2 } else { 1 }) {
            to.add(&guard.table);
            // Whether the entry is there. The question changes the table, which is made again for each state.
            let block = Block::parse(&self.payload[..BLOCK_LEN]).unwrap();
            let key = [&block.certificate.client_key[..], &[7; 8], identity().digest()].concat();
            let id = guard.id_of(syn(&[]).flow.client, &key);
            to.add(&guard.table.look_up(id, self.made_ms, self.latest_ms.max(self.made_ms)));
        }
    }
}

/// When the request is made, by its client's clock, milliseconds: now, at both edges of the window.
const MADE: [i64; 3] = [0, 10_000, -59_000];

#[test]
fn no_request_runs_twice_at_one_server() {
    holds("requests", MADE.len(), 5, |n| Server::new(None, MADE[n]));
}

#[test]
fn each_defence_is_needed() {
    use Defence::*;
    for defence in [Memory, OneGuard, FloorAtStart, OwnTime, FloorWhenTrusted, UsedUpAtLimits, SaysSeen] {
        needs(defence, MADE.len(), 7, |n| Server::new(Some(defence), MADE[n]));
    }
}
