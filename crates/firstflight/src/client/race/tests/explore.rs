//! Every order of events of a race, at up to three addresses, with every set of transports.
//!
//! A server answers plain attempts at an address, or none ever. An answer takes less than two seconds, also to what
//! a path drops at first: the kernel sends an ordinary SYN after one. Everything else can happen to an attempt at any time: it
//! is refused, it fails, it never ends. What is made and what begins may take any time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use super::*;
use foldhash::quality::FixedState;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash};

/// What does not change during a run.
#[derive(Debug, Clone, PartialEq, Eq)]
struct World {
    setup: Setup,
    offer: Option<AttemptOffer>,
    /// The server's addresses: whether plain attempts are answered, and whether the round-trip time is known.
    addresses: Vec<(bool, bool)>,
    /// How many of them come first.
    at_first: usize,
    /// The host moves to another network at some time, and sleeps at some time.
    is_mobile: bool,
    /// What is made, and what begins, takes time, in which other things happen.
    is_slow: bool,
}

fn address(n: usize) -> SocketAddr {
    // The second one is of another family.
    match n {
        1 => "[2001:db8::1]:80".parse().unwrap(),
        n => SocketAddr::from(([192, 0, 2, n as u8], 80)),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ExploreStage {
    Making,
    Made,
    Beginning,
    Running,
    Ended,
}

/// An attempt as it really is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Real {
    number: Number,
    candidate: Candidate,
    stage: ExploreStage,
    began: Instant,
    /// Data left with it.
    left: bool,
    asked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    race: Race,
    now: Instant,
    real: Vec<Real>,
    /// How many addresses have come.
    given: usize,
    /// No more addresses will come.
    has_all: bool,
    has_moved: bool,
    has_slept: bool,
    /// The last event was a failure.
    failed: bool,
    /// All attempts so far could not begin, for a reason of this host's own.
    nothing_was_sent: bool,
    over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Made(Number),
    NotMade(Number),
    Begun(Number, bool, bool),
    Failed(Number, Failure),
    DirectRefused(Number),
    Established(Number),
    Addresses,
    Moved,
    Cancelled,
    Timeout,
    Gap,
}

impl State {
    /// Two states with equal hashes go on alike: times count from now, and of what has ended only what may have run counts.
    fn hash(&self) -> u64 {
        let mut same = self.clone();
        let ago = |at: Instant| Instant::ZERO + self.now.saturating_since(at).min(GAP);
        let due = |at: Instant| Instant::ZERO + at.saturating_since(self.now);
        same.now = Instant::ZERO;
        same.race.next_at = due(same.race.next_at);
        same.race.live.iter_mut().for_each(|one| one.began = ago(one.began));
        same.race.first = same.race.first.map(|first| FirstAttempt { began: None, ..first });
        for one in &mut same.real {
            one.began = ago(one.began);
            if one.stage == ExploreStage::Ended {
                (one.began, one.asked) = (Instant::ZERO, false);
            }
        }
        FixedState::default().hash_one(&same)
    }

    fn real(&mut self, number: Number) -> &mut Real {
        self.real.iter_mut().find(|one| one.number == number).unwrap()
    }
}

/// What is wrong, and with which rule it has to do.
type Wrong = &'static str;

struct Explorer<'a> {
    world: &'a World,
    /// The hashes of the states. That two of them are equal is as likely as a fault of the memory.
    seen: HashSet<u64, FixedState>,
}

impl World {
    fn plain_works(&self, remote: Option<SocketAddr>) -> bool {
        (0..self.addresses.len()).any(|n| remote == Some(address(n)) && self.addresses[n].0)
    }

    fn known(&self, given: usize) -> Vec<Address> {
        let delay = |known: bool| known.then_some(Duration::from_millis(80));
        (0..given).map(|n| Address { remote: address(n), delay: delay(self.addresses[n].1) }).collect()
    }

    fn is_once(&self, candidate: Candidate) -> bool {
        match candidate.transport {
            Transport::Tcp => self.setup.tcp_once,
            Transport::Udp => self.setup.udp_once,
        }
    }

    /// The number of states, or what goes wrong in one.
    fn explore(&self, dropped: Option<Rule>) -> Result<usize, (Wrong, Vec<Event>)> {
        let now = Instant::from_secs(100);
        let mut race = Race::new(self.setup, now);
        race.dropped = dropped;
        if let Some(offer) = self.offer {
            race.handle_offer(offer);
        }
        let given = self.at_first;
        let has_all = given > 0 && given == self.addresses.len();
        if given > 0 {
            race.handle_addresses(&self.known(given), !has_all, now);
        }
        let state = State {
            race,
            now,
            real: Vec::new(),
            given,
            has_all,
            has_moved: false,
            has_slept: false,
            failed: false,
            nothing_was_sent: true,
            over: false,
        };
        let mut explorer = Explorer { world: self, seen: HashSet::default() };
        let mut open = vec![(state, Vec::new())];
        while let Some((mut state, trail)) = open.pop() {
            explorer.settle(&mut state).map_err(|wrong| (wrong, trail.clone()))?;
            if !explorer.seen.insert(state.hash()) {
                continue;
            }
            // The longest run of a right race has about forty events.
            if trail.len() > 100 {
                return Err(("there is no end", trail));
            }
            if state.over {
                continue;
            }
            explorer.late_events_change_nothing(&state).map_err(|wrong| (wrong, trail.clone()))?;
            for event in explorer.events(&state).map_err(|wrong| (wrong, trail.clone()))? {
                let (mut next, mut trail) = (state.clone(), trail.clone());
                explorer.happen(&mut next, event);
                trail.push(event);
                open.push((next, trail));
            }
        }
        Ok(explorer.seen.len())
    }
}

impl Explorer<'_> {
    /// Carries out what is to be done, and looks at it.
    fn settle(&self, state: &mut State) -> Result<(), Wrong> {
        while let Some(action) = state.race.poll_action(state.now) {
            if state.over {
                return Err("something is done after the end");
            }
            self.act(state, action)?;
            if state.real.iter().filter(|one| one.stage != ExploreStage::Ended).count() > AT_ONCE {
                return Err("more than two attempts at one time");
            }
        }
        self.rest(state)
    }

    fn act(&self, state: &mut State, action: Action) -> Result<(), Wrong> {
        let now = state.now;
        match action {
            Action::Make(number, candidate) | Action::Begin(number, candidate) => {
                let begins = matches!(action, Action::Begin(..));
                // Something begins in its place.
                state.failed = false;
                let stage = if begins { ExploreStage::Beginning } else { ExploreStage::Making };
                if let Some(one) = state.real.iter_mut().find(|one| one.number == number) {
                    if one.stage != ExploreStage::Made || !begins {
                        return Err("an attempt begins twice");
                    }
                    one.stage = stage;
                } else {
                    let alone = state.real.iter().all(|one| one.stage == ExploreStage::Ended);
                    if alone && state.nothing_was_sent && candidate.syn != Syn::First {
                        return Err("nothing has left, and the next attempt is an ordinary one");
                    }
                    if candidate.transport == Transport::Udp && candidate.syn != Syn::First {
                        return Err("an ordinary attempt in UDP");
                    }
                    state.real.push(Real { number, candidate, stage, began: now, left: false, asked: false });
                }
                let others = state.real.iter().filter(|one| one.number != number);
                let once_left = |one: &Real| one.left && self.world.is_once(one.candidate);
                if others.clone().any(once_left) {
                    return Err("another attempt begins although data that must not run twice has left");
                }
                let carries = candidate.syn == Syn::First;
                if begins && carries && others.clone().any(|one| one.left) {
                    return Err("two attempts carry data");
                }
                let others_live = others.clone().any(|one| one.stage != ExploreStage::Ended);
                if begins && carries && self.world.is_once(candidate) && others_live {
                    return Err("data that must not run twice leaves beside another attempt");
                }
            }
            Action::Direct(number, remote) => {
                let one = state.real.iter_mut().find(|one| one.number == number).unwrap();
                if one.stage == ExploreStage::Ended {
                    return Err("a copy of what has ended");
                }
                one.candidate.remote = Some(remote);
            }
            Action::Abort(number) => {
                let one = state.real.iter_mut().find(|one| one.number == number).unwrap();
                let won = state.race.end == Some(AttemptEnd::Won(number));
                if won {
                    return Err("the winner is closed");
                }
                let answers = one.stage == ExploreStage::Running
                    && one.candidate.transport == Transport::Tcp
                    && self.world.plain_works(one.candidate.remote);
                let plain_beside =
                    state.race.live.iter().any(|other| other.candidate.remote == one.candidate.remote);
                if state.race.end.is_none() && one.stage == ExploreStage::Made {
                    state.nothing_was_sent = false;
                }
                if state.race.end.is_none() && answers && !state.has_slept && !plain_beside {
                    return Err("an attempt is closed before its server could answer");
                }
                one.stage = ExploreStage::Ended;
            }
            Action::Won(finish) => {
                state.over = true;
                for one in &state.real {
                    if one.number == finish.number {
                        if one.stage != ExploreStage::Running {
                            return Err("the winner has ended, or has not begun");
                        }
                        continue;
                    }
                    if one.stage != ExploreStage::Ended {
                        return Err("another attempt is open when data goes to the winner");
                    }
                    if one.left && self.world.is_once(one.candidate) {
                        return Err("data that must not run twice leaves twice");
                    }
                }
                if finish.same_network && state.has_moved {
                    return Err("something is learnt about a network that the host has left");
                }
            }
            Action::Lost { once } => {
                state.over = true;
                let left = state.real.iter().any(|one| one.left && self.world.is_once(one.candidate));
                if left && !once {
                    return Err("it is not said that data that must not run twice may have run");
                }
                let works = self.world.addresses.iter().any(|(works, _)| *works);
                if works && !once {
                    return Err("a plain connect would have succeeded");
                }
                if !state.has_all && !once {
                    return Err("it is lost before all addresses are known");
                }
            }
        }
        Ok(())
    }

    /// Nothing is to be done.
    fn rest(&self, state: &State) -> Result<(), Wrong> {
        if state.over {
            return Ok(());
        }
        let live: Vec<_> = state.real.iter().filter(|one| one.stage != ExploreStage::Ended).collect();
        let once_left =
            live.iter().any(|one| one.left && self.world.is_once(one.candidate)) || state.race.once_left;
        let beginning =
            live.iter().any(|one| one.stage == ExploreStage::Beginning && self.world.is_once(one.candidate));
        let waits = !state.race.waiting.is_empty();
        if waits && live.is_empty() {
            return Err("it waits although nothing is under way");
        }
        if waits && state.failed && live.len() < AT_ONCE && !once_left && !beginning {
            return Err("the next attempt does not begin when one fails");
        }
        let inside =
            live.iter().find(|one| one.candidate.remote.is_none() && one.stage == ExploreStage::Running);
        if let (Some(_), Some(AttemptOffer::InLookup { v4 })) = (inside, self.world.offer)
            && (0..state.given).any(|n| address(n).is_ipv4() == v4)
        {
            return Err("the address is known, and no copy goes there");
        }
        if state.has_slept && live.iter().any(|one| one.began + GAP <= state.now) {
            return Err("an attempt of before the gap is under way");
        }
        Ok(())
    }

    /// What can happen next.
    fn events(&self, state: &State) -> Result<Vec<Event>, Wrong> {
        let mut events = Vec::new();
        let begins = |one: &&Real| matches!(one.stage, ExploreStage::Making | ExploreStage::Beginning);
        if let Some(one) = state.real.iter().find(begins).filter(|_| !self.world.is_slow) {
            self.events_of(state, one, &mut events);
            return Ok(events);
        }
        for one in &state.real {
            self.events_of(state, one, &mut events);
        }
        if !state.has_all {
            events.push(Event::Addresses);
        }
        if !state.has_moved && self.world.is_mobile {
            events.push(Event::Moved);
        }
        if let Some(due) = state.race.poll_timeout() {
            if due <= state.now {
                return Err("a timeout is due and does nothing");
            }
            // By then these would be complete.
            let answered = |one: &Real| {
                one.stage == ExploreStage::Running
                    && one.candidate.transport == Transport::Tcp
                    && self.world.plain_works(one.candidate.remote)
                    && due >= one.began + KEEPS_PLACE
            };
            if !state.real.iter().any(answered) {
                events.push(Event::Timeout);
            }
            if !state.has_slept && self.world.is_mobile {
                events.push(Event::Gap);
            }
        }
        if events.is_empty() {
            return Err("the race never ends");
        }
        events.push(Event::Cancelled);
        Ok(events)
    }

    fn events_of(&self, state: &State, one: &Real, events: &mut Vec<Event>) {
        let number = one.number;
        let first = one.candidate.syn == Syn::First;
        let tcp = one.candidate.transport == Transport::Tcp;
        let works = tcp && self.world.plain_works(one.candidate.remote);
        match one.stage {
            ExploreStage::Making => events.extend([Event::Made(number), Event::NotMade(number)]),
            ExploreStage::Made | ExploreStage::Ended => {}
            ExploreStage::Beginning => {
                events.push(Event::Begun(number, false, false));
                if first {
                    events.extend([Event::Begun(number, true, false), Event::Begun(number, true, true)]);
                    let refused = Failure { asked: true, refused: true, may_have_run: false };
                    events.push(Event::Failed(number, refused));
                }
                if !works {
                    events.push(Event::Failed(number, Failure { asked: first, ..Failure::default() }));
                }
            }
            ExploreStage::Running => {
                if works || (first && !tcp) {
                    events.push(Event::Established(number));
                }
                let refused = Failure { asked: one.asked, refused: true, may_have_run: one.left };
                if !works || one.asked {
                    events.push(Event::Failed(number, refused));
                }
                if !works {
                    let late = Failure { refused: false, ..refused };
                    events.push(Event::Failed(number, late));
                    if one.left && one.candidate.transport == Transport::Udp {
                        // The socket says that nothing left.
                        events.push(Event::Failed(number, Failure { may_have_run: false, ..late }));
                    }
                }
                let inside = matches!(self.world.offer, Some(AttemptOffer::InLookup { .. }));
                let direct = !tcp && inside && one.candidate.remote.is_some();
                let refused_before = state.race.first.is_some_and(|first| first.refused);
                if direct && !refused_before {
                    events.push(Event::DirectRefused(number));
                }
            }
        }
    }

    fn happen(&self, state: &mut State, event: Event) {
        state.failed = false;
        let now = state.now;
        match event {
            Event::Made(number) => {
                state.real(number).stage = ExploreStage::Made;
                state.race.handle_made(number);
            }
            Event::NotMade(number) => {
                let udp = state.real(number).candidate.transport == Transport::Udp;
                state.nothing_was_sent &= udp;
                state.real(number).stage = ExploreStage::Ended;
                state.failed = true;
                state.race.handle_not_made(number, now);
            }
            Event::Begun(number, asks, left) => {
                state.nothing_was_sent = false;
                let one = state.real(number);
                (one.stage, one.began, one.left, one.asked) = (ExploreStage::Running, now, left, asks);
                state.race.handle_begun(number, asks, left, now);
            }
            Event::Failed(number, failure) => {
                state.nothing_was_sent &= !failure.refused;
                let one = state.real(number);
                (one.stage, one.left) = (ExploreStage::Ended, one.left && failure.may_have_run);
                state.failed = true;
                state.race.handle_failed(number, failure, now);
            }
            Event::DirectRefused(number) => state.race.handle_direct_refused(number, now),
            Event::Established(number) => state.race.handle_established(number),
            Event::Addresses => {
                (state.given, state.has_all) = (self.world.addresses.len(), true);
                state.race.handle_addresses(&self.world.known(state.given), false, now);
            }
            Event::Moved => {
                state.has_moved = true;
                state.race.handle_network_changed();
            }
            Event::Cancelled => {
                state.race.handle_cancelled();
                // Nothing but ends may follow.
                while let Some(action) = state.race.poll_action(now) {
                    assert!(matches!(action, Action::Abort(_)), "{action:?} although nobody waits");
                }
                assert_eq!(state.race.poll_timeout(), None);
                state.over = true;
            }
            Event::Timeout => {
                state.now = state.race.poll_timeout().unwrap();
                state.race.handle_timeout(state.now);
            }
            Event::Gap => {
                state.now = state.race.poll_timeout().unwrap() + GAP;
                (state.has_slept, state.nothing_was_sent) = (true, false);
                state.race.handle_timeout(state.now);
            }
        }
    }

    /// What is told of attempts that have ended.
    fn late_events_change_nothing(&self, state: &State) -> Result<(), Wrong> {
        let now = state.now;
        for one in state.real.iter().filter(|one| one.stage == ExploreStage::Ended) {
            let mut race = state.race.clone();
            race.handle_established(one.number);
            race.handle_made(one.number);
            race.handle_begun(one.number, true, true, now);
            race.handle_direct_refused(one.number, now);
            let failure = Failure { asked: true, refused: true, may_have_run: one.left };
            race.handle_failed(one.number, failure, now);
            race.handle_not_made(one.number, now);
            if race != state.race {
                return Err("an event of an attempt that has ended changes the race");
            }
        }
        Ok(())
    }
}

/// Addresses.
const MOST: usize = 3;

/// Every world: transports, what must not run twice, addresses that answer or not, early or late.
fn worlds(most: usize) -> Vec<World> {
    let mut worlds = Vec::new();
    let offers = [
        None,
        Some(AttemptOffer::At(address(0))),
        Some(AttemptOffer::InLookup { v4: true }),
        Some(AttemptOffer::InLookup { v4: false }),
    ];
    for offer in offers {
        for (tcp_once, udp_once, repeats_itself) in [
            (false, false, false),
            (false, false, true),
            (true, false, true),
            (true, true, false),
            (true, true, true),
            (false, true, false),
        ] {
            if offer.is_none() && udp_once {
                continue;
            }
            let setup = Setup { tcp_once, udp_once, repeats_itself, ..Setup::default() };
            for count in 0..=most {
                for works in 0..1 << count {
                    for known in [false, true] {
                        let addresses: Vec<_> =
                            (0..count).map(|n| (works >> n & 1 == 1, known && n == 0)).collect();
                        let mut firsts = vec![0, count.min(1), count];
                        firsts.dedup();
                        for at_first in firsts {
                            if count > 0 && matches!(offer, Some(AttemptOffer::At(_))) && at_first == 0 {
                                continue;
                            }
                            let addresses = addresses.clone();
                            // All of it together only with few addresses: each one multiplies the states.
                            let kinds: &[_] = match count {
                                0 | 1 => &[(true, true)],
                                2 => &[(true, false), (false, true)],
                                _ => &[(false, false)],
                            };
                            worlds.extend(kinds.iter().map(|&(is_mobile, is_slow)| World {
                                setup,
                                offer,
                                addresses: addresses.clone(),
                                at_first,
                                is_mobile,
                                is_slow,
                            }));
                        }
                    }
                }
            }
        }
    }
    worlds.sort_by_key(|world: &World| world.addresses.len());
    worlds
}

#[test]
fn no_order_of_events_breaks_a_rule() {
    let mut states = 0;
    for world in worlds(MOST) {
        match world.explore(None) {
            Ok(count) => states += count,
            Err((wrong, trail)) => panic!("{wrong} after {trail:?} in {world:?}"),
        }
    }
    println!("{} worlds, {states} states", worlds(MOST).len());
    assert!(states > 4_000_000, "{states} states only");
}

/// A rule that can be dropped without anything going wrong is no rule.
#[test]
fn every_rule_is_needed() {
    use Rule::*;
    let rules = [
        FirstAlone,
        BeginsAgain,
        OnceLeavesOnce,
        OnceBeginsAlone,
        TwoAtOnce,
        KeepsPlace,
        NextAtOnce,
        PlainAfterRefusal,
        DirectCopy,
        OthersEndFirst,
        LateChangesNothing,
        OneNetwork,
        GapBeginsAgain,
    ];
    for rule in rules {
        let found = worlds(MOST).iter().find_map(|world| world.explore(Some(rule)).err());
        let (wrong, _) = found.unwrap_or_else(|| panic!("nothing goes wrong without {rule:?}"));
        println!("without {rule:?}: {wrong}");
    }
}

/// The attempts of a race in which nobody answers, in their order: the address, and whether it is the first one; and how
/// long each is given.
fn attempts(known: bool, count: usize) -> Vec<(usize, bool, u64)> {
    let world = World {
        setup: Setup::default(),
        offer: None,
        addresses: (0..count).map(|n| (false, known && n == 0)).collect(),
        at_first: count,
        is_mobile: false,
        is_slow: false,
    };
    let (mut race, mut now) = (Race::new(world.setup, Instant::ZERO), Instant::ZERO);
    race.handle_addresses(&world.known(count), false, now);
    let mut attempts = Vec::new();
    loop {
        while let Some(action) = race.poll_action(now) {
            match action {
                Action::Make(number, _) => race.handle_made(number),
                Action::Begin(number, candidate) => {
                    let first = candidate.syn == Syn::First;
                    race.handle_begun(number, first, first, now);
                    let n = (0..count).find(|n| candidate.remote == Some(address(*n))).unwrap();
                    attempts.push((n, first, now.as_millis()));
                }
                Action::Abort(_) => {}
                Action::Lost { .. } => return attempts,
                other => panic!("{other:?}"),
            }
        }
        match race.poll_timeout() {
            Some(due) => now = due,
            None => return attempts,
        }
        race.handle_timeout(now);
    }
}

/// Times in milliseconds.
#[test]
fn the_first_server_gets_a_plain_syn_before_others_if_its_round_trip_time_is_known() {
    assert_eq!(attempts(true, 3), [(0, true, 0), (0, false, 80), (1, false, 330), (2, false, 2080)]);
    assert_eq!(attempts(false, 3), [(0, true, 0), (1, false, 250), (2, false, 2000)]);
    assert_eq!(attempts(true, 1), [(0, true, 0), (0, false, 80)]);
    assert_eq!(attempts(true, 0), []);
}
