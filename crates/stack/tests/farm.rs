//! A server farm behind one address. Its members derive their keys from one secret and their own clocks.

use crate::pair::{Pair, policy};
use firstflight_credential::{
    FarmSecret, FarmSecrets, KeyRing, KeySource, Outcome, Reason, Schedule, Scheme,
};
use firstflight_link::path::PathConfig;
use firstflight_stack::{ListenConfig, ListenerId, Stack, StateName};
use firstflight_wire::{Clock, Instant};
use std::sync::Arc;
use std::time::Duration;

/// A change of daily keys, Unix time in milliseconds.
const TURN: u64 = 20_834 * 86_400_000;

/// One server of the farm. The server that a visit goes to is in the pair, the others are here.
struct Member {
    stack: Stack,
    listener: ListenerId,
    /// How far its clock is from UTC, milliseconds.
    skew: i64,
    source: Schedule,
    next_change: u64,
}

impl Member {
    fn clock(&self, mono: Instant, unix_ms: u64) -> Clock {
        let unix_ms = unix_ms.checked_add_signed(self.skew).unwrap();
        Clock { mono, unix_ms, uncertainty: Duration::ZERO }
    }

    /// What a driver does every second: the clock for the stack, and keys when they have changed.
    fn follow(&mut self, mono: Instant, unix_ms: u64) {
        let clock = self.clock(mono, unix_ms);
        self.stack.handle_clock(clock);
        if clock.unix_ms >= self.next_change {
            let current = self.source.keys_at(&clock).unwrap();
            self.next_change = current.next_change.unwrap();
            assert!(self.stack.set_keys(self.listener, current.ring));
        }
    }
}

/// A client, and a farm whose address belongs to another member at each visit.
struct Farm {
    pair: Pair,
    members: Vec<Member>,
    /// Unix time in milliseconds when the pair's monotonic time is zero.
    origin: u64,
}

impl Farm {
    fn new(skews: &[i64], lead: Duration, origin: u64) -> Self {
        let pair = Pair::new(PathConfig::with_delay(Duration::from_millis(20)), 1, false, |_, _| {});
        let at = pair.server_addr();
        let members = skews.iter().map(|&skew| {
            let mut stack = Stack::new(pair.server.config().clone(), pair.now);
            let mut config = ListenConfig::new(at);
            config.fast_open = Some(policy(crate::pair::key(0), 16));
            let listener = stack.listen(config).unwrap();
            let secrets = FarmSecrets::new(FarmSecret::new("farm", &[7; 32]).unwrap());
            let source = Schedule::new(secrets, Scheme::Linux, Schedule::DEFAULT_PERIOD, lead).unwrap();
            Member { stack, listener, skew, source, next_change: 0 }
        });
        let members = members.collect();
        Self { pair, members, origin }
    }

    fn unix_ms(&self) -> u64 {
        self.origin + self.pair.now.as_millis()
    }

    /// One request and its answer by member `index`. Returns the outcome of the first flight at the client.
    fn visit(&mut self, index: usize, request: &[u8]) -> Outcome {
        let (now, unix_ms) = (self.pair.now, self.unix_ms());
        self.members.iter_mut().for_each(|member| member.follow(now, unix_ms));
        let listener = self.members[index].listener;
        std::mem::swap(&mut self.pair.server, &mut self.members[index].stack);

        let p = &mut self.pair;
        let client = p.connect(request, true);
        let server = p.accept(listener);
        let mut got = Vec::new();
        p.run(Duration::from_secs(10), |p| {
            got.extend(p.server_reads(server));
            got.len() >= request.len()
        });
        assert_eq!(got, request);
        let now = p.now;
        p.server.write(server, b"answer", now).unwrap();
        p.server.shutdown(server, now).unwrap();
        let mut answer = Vec::new();
        p.run(Duration::from_secs(10), |p| {
            answer.extend(p.client_reads(client));
            answer.len() >= 6
        });
        assert_eq!(answer, b"answer");
        let outcome = p.client.info(client).unwrap().outcome;
        let now = p.now;
        p.client.shutdown(client, now).unwrap();
        // Run until both ends have closed: what remains at a member would be lost with the swap.
        let over = |stack: &Stack, id| {
            let state = stack.info(id).map_or(StateName::Closed, |info| info.state);
            matches!(state, StateName::Closed | StateName::TimeWait)
        };
        p.run(Duration::from_secs(10), |p| over(&p.client, client) && over(&p.server, server));
        p.client.release(client, p.now);
        p.server.release(server, p.now);
        p.flush();
        std::mem::swap(&mut self.pair.server, &mut self.members[index].stack);
        outcome
    }

    /// Visits every few hundred milliseconds until `end` (Unix time, ms), each to the next member. Returns the
    /// outcomes.
    fn visits_until(&mut self, end: u64) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        while self.unix_ms() < end {
            let turn = outcomes.len();
            let request = format!("request {turn}");
            outcomes.push(self.visit(turn % self.members.len(), request.as_bytes()));
            self.pair.idle(Duration::from_millis(150 + 37 * (turn as u64 % 5)));
        }
        outcomes
    }
}

fn rejected(outcomes: &[Outcome]) -> usize {
    let stale = Outcome::Handshake(Reason::StaleOrWrongCredential);
    outcomes.iter().filter(|&&outcome| outcome == stale).count()
}

/// The Fast Open paper §4.2: any server behind the address validates the cookies of all. The farm has four members,
/// their clocks 1 s apart. The visits cover the time when the coming key is accepted, the change, and after it.
#[test]
fn no_visit_through_a_turn_is_refused() {
    let lead = Duration::from_secs(10);
    let mut farm = Farm::new(&[-1500, -500, 500, 1500], lead, TURN - 20_000);
    let outcomes = farm.visits_until(TURN + 20_000);
    assert!(outcomes.len() > 80, "{}", outcomes.len());
    assert_eq!(outcomes[0], Outcome::Handshake(Reason::NoCredential));
    assert!(outcomes[1..].iter().all(|&outcome| outcome == Outcome::Accepted), "{outcomes:?}");
}

/// The rule at its limit: clocks 3 s apart and a lead of 3 s.
#[test]
fn a_lead_as_long_as_the_clocks_differ_is_enough() {
    let mut farm = Farm::new(&[-1500, -500, 500, 1500], Duration::from_secs(3), TURN - 10_000);
    let outcomes = farm.visits_until(TURN + 10_000);
    assert!(outcomes[1..].iter().all(|&outcome| outcome == Outcome::Accepted), "{outcomes:?}");
}

/// The purpose of the lead: without one, members that have not changed keys refuse the cookies of those that have.
/// No request is lost even then.
#[test]
fn without_a_lead_a_turn_costs_round_trips_and_no_request() {
    let mut farm = Farm::new(&[-1500, -500, 500, 1500], Duration::ZERO, TURN - 10_000);
    let outcomes = farm.visits_until(TURN + 10_000);
    assert!(rejected(&outcomes) > 0, "{outcomes:?}");
}

/// Keys may also be replaced by hand. An unknown listener, or one without Fast Open, takes none.
#[test]
fn keys_are_for_listeners_with_fast_open() {
    let mut p = Pair::perfect(Duration::from_millis(5));
    let ring = || Arc::new(KeyRing::new(Scheme::Linux, crate::pair::key(9)));
    let plain = p.listen(None);
    assert!(!p.server.set_keys(plain, ring()));
    p.server.unlisten(plain, p.now);
    let fast = p.listen(Some(policy(crate::pair::key(1), 4)));
    assert!(p.server.set_keys(fast, ring()));
    assert!(!p.server.set_keys(plain, ring()));
    p.server.unlisten(fast, p.now);
    assert!(!p.server.set_keys(fast, ring()));
}

/// A first flight that was accepted under the old keys is answered and confirmed under the new ones; its
/// cookie is refused from then on.
#[test]
fn new_keys_leave_an_accepted_first_flight_alone() {
    let mut p = Pair::perfect(Duration::from_millis(5));
    let fast_open = policy(crate::pair::key(1), 4);
    let pending = Arc::clone(&fast_open.pending);
    let listener = p.listen(Some(fast_open));
    let first = p.connect(b"", true);
    p.connected(first);

    let early = p.connect(b"early", true);
    p.accept(listener);
    let child = p.accept(listener);
    assert_eq!((pending.pending(), p.server_reads(child).as_slice()), (1, &b"early"[..]));
    assert!(p.server.set_keys(listener, Arc::new(KeyRing::new(Scheme::Linux, crate::pair::key(2)))));
    p.connected(early);
    p.idle(Duration::from_millis(50));
    assert_eq!(p.client.info(early).unwrap().outcome, Outcome::Accepted);
    assert_eq!((pending.pending(), p.server.info(child).unwrap().outcome), (0, Outcome::Accepted));

    let late = p.connect(b"late", true);
    p.connected(late);
    let refused = Outcome::Handshake(Reason::StaleOrWrongCredential);
    let child = p.accept(listener);
    assert_eq!(p.server.info(child).unwrap().outcome, refused);
}
