//! A farm whose members share a store: a copy of a SYN with a cookie reaches one member before the SYN reaches its own. The SYN
//! is refused there as a repeat, and its client, which got no other answer, would send the data again after the handshake.
//!
//! The members' policies, one-time cookies and `RemoteGuard` are the project's. The store is written after the rules of
//! `SharedStore`. What a member does with a connection, and the client, are modelled: `crates/stack/tests/repeats.rs` tests the
//! engine. Every question is answered in time, and no member reaches a limit after another one has accepted the data: it would
//! not wait for the store then (`docs/guide/known-limits.md`). Another first flight of the client shows the same cookie, as Linux
//! does when it connects twice at a time.
//!
//! The data of each first flight runs at most once, early or after the handshake.

use super::asap::permits;
use super::{holds, needs};
use firstflight_credential::asap::{AsapShard, BudgetConfig};
use firstflight_credential::{
    Admission, Claim, CookieKey, Farm, FastOpenPolicy, FirstFlight, FlightId, Flow, GuardKey, JobRequest,
    JobResult, KeyRing, Offered, OneTimeCookies, OneTimeKeys, Policies, Presented, Question, Reason,
    RemoteGuard, Replays, Scheme, Serial, SerialTable, Window, Work, admit, invalidate,
};
use firstflight_models::{Digest, World};
use firstflight_wire::tcp::{FastOpen, FastOpenForm};
use firstflight_wire::{Clock, Instant, SeqNum};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defence {
    /// The members ask one store.
    OneStore,
    /// A repeat is reset when its handshake is complete.
    RepeatIsReset,
    /// The store keeps the first flight that used a cookie when another one shows the cookie.
    NameIsKept,
    /// A member that may not trust the store's memory yet learns from it what was seen.
    SeenBelowFloor,
}

const FLOW: Flow = Flow {
    client: std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    server: std::net::IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 1)),
};
const MEMBERS: usize = 2;
/// Connects of the client, from different ports, with one cookie.
const CONNECTS: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A SYN arrives, from its client or as a copy.
    Arrives { connect: usize, member: usize },
    /// The member has reached a limit when it arrives.
    ArrivesAtLimit { connect: usize, member: usize },
    /// The client gets the SYN-ACK of a member before any other one, and what it sends then reaches that member.
    Answers { connect: usize, member: usize },
    /// A member forgets a connection: its application closed it, or nothing came.
    Ends { connect: usize, member: usize },
    /// A member starts again, and does not know how old the store's memory is.
    Restarts { member: usize },
}

/// A connection at a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Child {
    Early,
    Plain,
    Repeat,
}

#[derive(Debug, Clone, Copy, Default)]
struct Connect {
    children: [Option<Child>; MEMBERS],
    /// The client has got a SYN-ACK.
    open: bool,
    ran: u32,
}

/// The answers that the rules of `SharedStore` demand.
#[derive(Debug, Default)]
struct Store {
    ids: BTreeSet<[u8; 16]>,
    active: BTreeSet<Serial>,
    used: BTreeMap<Serial, Option<FlightId>>,
}

impl Store {
    fn answer(&mut self, job: JobRequest, keeps_name: bool) -> JobResult {
        match job {
            JobRequest::GuardSet { key, .. } if self.ids.insert(key) => JobResult::Accept,
            JobRequest::GuardSet { .. } => JobResult::Repeat,
            JobRequest::Redeem { serial, flight } => {
                let before = self.used.get(&serial).copied();
                if self.active.remove(&serial) {
                    self.used.insert(serial, flight);
                    return JobResult::Accept;
                }
                if !keeps_name {
                    self.used.insert(serial, flight);
                }
                match before.flatten() {
                    Some(by) if flight == Some(by) => JobResult::Repeat,
                    _ => JobResult::Refuse(Reason::Replay),
                }
            }
            _ => JobResult::Refuse(Reason::Policy),
        }
    }
}

struct Members {
    off: Option<Defence>,
    policy: FastOpenPolicy,
    option: FastOpen,
    stores: [Store; MEMBERS],
    connects: [Connect; CONNECTS],
    /// Which members have started again.
    below_floor: [bool; MEMBERS],
}

impl Members {
    fn new(off: Option<Defence>, one_time: bool) -> Self {
        let keys = Arc::new(KeyRing::new(Scheme::Linux, CookieKey::from_bytes([1; 16])));
        let mut policy = FastOpenPolicy::new(Arc::clone(&keys), permits());
        let mut stores: [Store; MEMBERS] = Default::default();
        let cookie = if one_time {
            let table = SerialTable::own(1, 1, 100);
            table.extend(100);
            let keys = OneTimeKeys::from_bytes([5; 32]);
            let serial = table.issue().unwrap();
            let cookie = keys.make(&FLOW, serial);
            let cookies = OneTimeCookies::new(keys, Arc::new(table)).with_farm(Farm::Shared);
            policy.verifier = Some(Arc::new(cookies));
            policy.replays = Replays::AtMostOnce;
            policy.validate().unwrap();
            // The client has acknowledged the handshake in which it got the cookie.
            stores.iter_mut().for_each(|store| store.active.extend([serial]));
            cookie
        } else {
            let guard = RemoteGuard::new(GuardKey::from_bytes([3; 16]), Window::NETWORK);
            policy.replays = Replays::NoDuplicates(Arc::new(guard));
            keys.grant(&FLOW)
        };
        let option = FastOpen::Cookie(FastOpenForm::Standard, cookie);
        Self { off, policy, option, stores, connects: Default::default(), below_floor: Default::default() }
    }

    fn first(&self, connect: usize) -> FirstFlight<'_> {
        FirstFlight {
            flow: FLOW,
            ports: (40_000 + connect as u16, 80),
            isn: SeqNum::new(7),
            presented: Presented::FastOpen(&self.option),
            claim: Claim::None,
            offered: Offered::Nothing,
            payload: b"POST /order HTTP/1.1\r\n\r\n",
            relayed: false,
            syn_cookie_pressure: false,
        }
    }

    fn asks(&mut self, member: usize, job: JobRequest) -> JobResult {
        let store = if self.off == Some(Defence::OneStore) { member } else { 0 };
        match self.stores[store].answer(job, self.off != Some(Defence::NameIsKept)) {
            JobResult::Repeat if self.off != Some(Defence::SeenBelowFloor) => JobResult::Repeat,
            _ if self.below_floor[member] => JobResult::Refuse(Reason::GuardFloor),
            answer => answer,
        }
    }

    /// What becomes of a SYN of no connection.
    fn child(&mut self, connect: usize, member: usize, limit: bool) -> Child {
        let clock = Clock { mono: Instant::from_secs(10_000), unix_ms: 0, uncertainty: Duration::ZERO };
        if limit {
            let job = invalidate(Policies::from(&self.policy), &self.first(connect), &clock, false)
                .unwrap()
                .unwrap();
            self.asks(member, job);
            return Child::Plain;
        }
        let mut budget = AsapShard::new(BudgetConfig::default());
        let admission = admit((&self.policy).into(), &self.first(connect), &mut budget, &clock);
        let Admission::Ask(Question { work: Work::Ask(job), .. }) = admission else {
            panic!("the store is not asked: {admission:?}");
        };
        match self.asks(member, job) {
            JobResult::Accept => Child::Early,
            JobResult::Repeat if self.off != Some(Defence::RepeatIsReset) => Child::Repeat,
            JobResult::Repeat | JobResult::Refuse(_) => Child::Plain,
        }
    }

    fn runs(&mut self, connect: usize) -> Result<(), String> {
        let connect = &mut self.connects[connect];
        connect.ran += 1;
        if connect.ran > 1 { Err("the data of a first flight runs twice".to_owned()) } else { Ok(()) }
    }
}

impl World for Members {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (connect, now) in self.connects.iter().enumerate() {
            for member in 0..MEMBERS {
                match now.children[member] {
                    // Its connection answers a copy.
                    Some(_) => {
                        events.push(Event::Ends { connect, member });
                        if !now.open {
                            events.push(Event::Answers { connect, member });
                        }
                    }
                    None => {
                        events.push(Event::Arrives { connect, member });
                        if now.ran == 0 {
                            events.push(Event::ArrivesAtLimit { connect, member });
                        }
                    }
                }
            }
        }
        // Cookies that are good once have no floor.
        if self.policy.verifier.is_none() {
            let up = (0..MEMBERS).filter(|member| !self.below_floor[*member]);
            events.extend(up.map(|member| Event::Restarts { member }));
        }
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrives { connect, member } | Event::ArrivesAtLimit { connect, member } => {
                let limit = matches!(event, Event::ArrivesAtLimit { .. });
                let child = self.child(connect, member, limit);
                self.connects[connect].children[member] = Some(child);
                if child == Child::Early {
                    self.runs(connect)?;
                }
            }
            Event::Answers { connect, member } => {
                self.connects[connect].open = true;
                match self.connects[connect].children[member] {
                    // The SYN-ACK acknowledges the data.
                    Some(Child::Early) | None => {}
                    Some(Child::Plain) => self.runs(connect)?,
                    Some(Child::Repeat) => self.connects[connect].children[member] = None,
                }
            }
            Event::Ends { connect, member } => self.connects[connect].children[member] = None,
            Event::Restarts { member } => {
                self.below_floor[member] = true;
                self.connects.iter_mut().for_each(|connect| connect.children[member] = None);
            }
        }
        Ok(())
    }

    fn state(&self, to: &mut Digest) {
        to.add(&self.connects);
        to.add(&self.stores);
        to.add(&self.below_floor);
    }
}

#[test]
fn no_data_runs_twice_where_a_copy_comes_first() {
    holds("a copy comes first", 2, 10, |n| Members::new(None, n == 0));
}

#[test]
fn each_defence_is_needed() {
    use Defence::*;
    for defence in [OneStore, RepeatIsReset] {
        needs(defence, 1, 8, |_| Members::new(Some(defence), true));
        needs(defence, 1, 8, |_| Members::new(Some(defence), false));
    }
    needs(NameIsKept, 1, 8, |_| Members::new(Some(NameIsKept), true));
    needs(SeenBelowFloor, 1, 8, |_| Members::new(Some(SeenBelowFloor), false));
}
