//! Records what was executed, and checks what the specification promises.
//!
//! A request is executed when all of it is delivered to the application: *early*, by an accepted first flight, or *by a
//! handshake*. For each guard the specification promises (`docs/spec/asap.md` 7.4, 7.5, 10.2;
//! `docs/spec/dns-path.md` 9):
//!
//! 1. At most one early execution.
//! 2. No early execution after a copy of the first flight reached a server and was not accepted: its data comes by the
//!    handshake, so the refusal used the request up. The specification excepts these copies:
//!    - one that a front handed over (it is dropped without a trace, since the direct copy carries the same request);
//!    - one with other data (8, 10.14), from another source address, or ahead of the server's clock: statuses 7, 6, 9 (10.9);
//!    - one at a server that cannot reach the store, until it has reported it (`known-limits.md`);
//!    - at other members of a farm, one that was too late by the clock of the server that it reached (10.14).
//! 3. In UDP no execution by a handshake after an early one, if the client did not allow a second one (6.5). The
//!    specification excepts (10.9):
//!    - an early one of an altered copy that arrived at the same moment,
//!    - a guard that began without a memory in between,
//!    - a copy with other data, whose status 8 the client takes for its own (10.14),
//!    - a member of a farm that refused the block without an answer of the store.
//! 4. No execution by a handshake after an early one on the same four-tuple and initial sequence number, unless the
//!    server restarted, as long as the child, or what is remembered of it, answers its client's SYN (60 s, 7.3).
//! 5. By handshakes alone at most one execution, unless the client allowed a second one.
//!
//! It does not promise these things, so they are not checked:
//!
//! - Otherwise, an early execution beside one by a handshake on another four-tuple, at another server, or after a restart
//!   (10.9: nothing ties a lost or refused first flight to the same data after the handshake; `docs/spec/dns-path.md`
//!   2.1: the client completes the handshake and decides).
//! - Requests accepted by a guard that began while the clock was set back before the request's time
//!   (`known-limits.md`).
//! - Two handshakes, one of them by a SYN cookie: a late copy of the client's ACK makes such a connection again after
//!   it was reset (RFC 4987).

use super::packets::Flow;
use firstflight_wire::{Instant, SeqNum};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time until the outcome of a copy that reached a server is certain: deferred SYN and store.
const DECIDED: Duration = Duration::from_millis(60);
/// How long a child answers its client's SYN.
const LINGERS: Duration = Duration::from_secs(60);

/// One execution.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    pub guard: usize,
    /// The server, and the number of its start.
    pub server: (usize, u32),
    pub flow: Flow,
    pub early: bool,
    /// When the connection was made, and its client's initial sequence number; `None` if a SYN cookie made it.
    pub made: Instant,
    pub isn: Option<SeqNum>,
    /// It is by a handshake, at a member of a farm that refused the block of its SYN before it asked the store, or without an
    /// answer of it.
    pub unasked: bool,
}

/// A copy that reached a server and has to be considered.
#[derive(Debug, Clone, Copy)]
pub struct Reached {
    pub guard: usize,
    /// The only server for which it counts, because it was too late by this server's clock and the farm's guard does
    /// not learn of it.
    pub only: Option<usize>,
    pub at: Instant,
}

/// A request, and what happened to it.
#[derive(Debug)]
pub struct Request {
    /// Whether the client said that it must not run twice.
    pub once: bool,
    pub request_id: Option<[u8; 8]>,
    /// Its time (t_req), Unix milliseconds.
    pub stamp_ms: u64,
    /// The copies that count.
    reached: Vec<Reached>,
    done: Vec<Done>,
    /// The store accepted it while a server owed it to the store.
    pub owed: bool,
    /// A copy with other data reached a server.
    forged: bool,
}

/// All requests.
#[derive(Debug, Default)]
pub struct Ledger {
    requests: BTreeMap<u32, Request>,
    by_id: BTreeMap<[u8; 8], u32>,
    /// Guards that started without a memory: their number, the time, and their floor.
    births: Vec<(usize, Instant, u64)>,
    /// How many executions were early, and how many came by a handshake.
    pub early: u32,
    pub ordinary: u32,
}

impl Ledger {
    pub fn begin(&mut self, number: u32, once: bool) {
        let request = Request {
            once,
            request_id: None,
            stamp_ms: 0,
            reached: Vec::new(),
            done: Vec::new(),
            owed: false,
            forged: false,
        };
        self.requests.insert(number, request);
    }

    /// Notes that a client signed a request.
    pub fn signed(&mut self, number: u32, request_id: [u8; 8], stamp_ms: u64) {
        if let Some(request) = self.requests.get_mut(&number)
            && request.request_id.is_none()
        {
            (request.request_id, request.stamp_ms) = (Some(request_id), stamp_ms);
            self.by_id.insert(request_id, number);
        }
    }

    pub fn find(&mut self, request_id: &[u8; 8]) -> Option<&mut Request> {
        self.requests.get_mut(self.by_id.get(request_id)?)
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut Request> {
        self.requests.values_mut()
    }

    /// Notes that a guard began without a memory and refuses everything up to `floor_ms`.
    pub fn born(&mut self, guard: usize, at: Instant, floor_ms: u64) {
        self.births.push((guard, at, floor_ms));
    }

    /// Notes that a copy reached a server.
    pub fn reached(&mut self, request_id: &[u8; 8], reached: Reached) {
        if let Some(request) = self.find(request_id) {
            request.reached.push(reached);
        }
    }

    /// Notes that a copy with other data reached a server.
    pub fn forged(&mut self, request_id: &[u8; 8]) {
        if let Some(request) = self.find(request_id) {
            request.forged = true;
        }
    }

    /// Notes an execution, and checks the promises.
    pub fn executed(&mut self, number: u32, done: Done) {
        *(if done.early { &mut self.early } else { &mut self.ordinary }) += 1;
        let births = &self.births;
        let request = self.requests.get_mut(&number).expect("data that no client sent");
        assert!(
            !request.used_up(&done, births),
            "request {number} was used up: {done:?}, {request:?}, {births:?}"
        );
        for before in &request.done {
            let broken = request.broken(before, &done, births);
            assert!(!broken, "request {number} twice: {before:?}, then {done:?}: {request:?}, {births:?}");
        }
        request.done.push(done);
    }
}

impl Request {
    /// Whether `one` and `other` together break a promise.
    fn broken(&self, one: &Done, other: &Done, births: &[(usize, Instant, u64)]) -> bool {
        match (one.early, other.early) {
            (true, true) => {
                one.guard == other.guard && !self.forgotten(one.guard, one.made.min(other.made), births)
            }
            (false, false) => self.once && one.isn.is_some() && other.isn.is_some(),
            (true, false) => self.unbound(one, other, births),
            (false, true) => self.unbound(other, one, births),
        }
    }

    /// Whether an early execution and one by a handshake should have excluded each other.
    fn unbound(&self, early: &Done, ordinary: &Done, births: &[(usize, Instant, u64)]) -> bool {
        let in_udp = early.flow.outer.is_some() && ordinary.flow.outer.is_some();
        // The fate of an altered copy has to be decided when the client's own SYN comes (10.9).
        let own = (early.flow, early.isn) == (ordinary.flow, ordinary.isn);
        let decided = early.made + if own { Duration::ZERO } else { DECIDED };
        let after = early.guard == ordinary.guard && decided <= ordinary.made;
        let reborn = births
            .iter()
            .any(|&(guard, at, _)| guard == early.guard && at >= early.made && at <= ordinary.made);
        let knows = !ordinary.unasked && !reborn;
        (self.once && in_udp && after && knows && !self.forged) || Self::answered(early, ordinary)
    }

    /// Whether the early connection should have answered the SYN that made the ordinary one.
    fn answered(early: &Done, ordinary: &Done) -> bool {
        let same = (early.flow, early.isn, early.server) == (ordinary.flow, ordinary.isn, ordinary.server);
        same && early.made <= ordinary.made && ordinary.made - early.made < LINGERS
    }

    /// Whether the guard began anew after `since`, with a floor below the request's time.
    fn forgotten(&self, guard: usize, since: Instant, births: &[(usize, Instant, u64)]) -> bool {
        births.iter().any(|&(of, at, floor)| of == guard && at >= since && floor < self.stamp_ms)
    }

    /// Whether a first flight was accepted that an earlier copy had used up.
    fn used_up(&self, done: &Done, births: &[(usize, Instant, u64)]) -> bool {
        let noticed = |reached: &&Reached| {
            let there = reached.only.is_none_or(|server| server == done.server.0);
            there && reached.guard == done.guard && reached.at + DECIDED <= done.made
        };
        let mut noticed = self.reached.iter().filter(noticed);
        done.early && !self.owed && noticed.any(|reached| !self.forgotten(done.guard, reached.at, births))
    }
}
