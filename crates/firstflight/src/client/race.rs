//! The racer: which attempt begins when, what its SYN may be, and which attempt wins (RFC 8305). It does no I/O. Of a
//! transport it knows only what the transport offers.
//!
//! [`Rule`] is the table of what it does. The tests go through every order of events at up to three addresses, and find a
//! run that goes wrong when any one of the rules is dropped.
//!
//! The caller carries out each action of [`Race::poll_action`] until there is none. It reports what happens, and calls
//! [`Race::handle_timeout`] at the time of [`Race::poll_timeout`].

#[cfg(test)]
#[path = "race/tests/explore.rs"]
mod explore;
mod terms;

pub use terms::{
    ATTEMPT_DELAY, Action, Address, AttemptOffer, Candidate, Failure, Finish, FirstAttempt, Number, Rule,
    Setup, Syn, Transport,
};

use firstflight_credential::Reason;
use firstflight_wire::Instant;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// The longest wait for an attempt that began by an offer, as for the kernel's first SYN.
pub const MOST_DELAY: Duration = Duration::from_secs(1);
/// How long the older of two attempts keeps its place before a third one takes it. The kernel sends a lost SYN again after
/// one second, and the answer to that takes a round trip.
const KEEPS_PLACE: Duration = Duration::from_secs(2);
/// Attempts under way at one time.
const AT_ONCE: usize = 2;
/// A timeout that comes later than this finds nothing as it was: the machine slept, for example.
const GAP: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// What it carries is being made.
    Making,
    /// It waits for its beginning.
    Ready,
    /// Its SYN is being sent.
    Beginning,
    /// It waits for an answer.
    Running,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Attempt {
    number: Number,
    candidate: Candidate,
    phase: Phase,
    /// When its SYN left, or since when it has its place.
    began: Instant,
    asks: bool,
    left: bool,
    /// The family in which a request inside a lookup goes on.
    v4: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AttemptEnd {
    Won(Number),
    Lost,
    /// It was said.
    Over,
}

/// A race.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Race {
    setup: Setup,
    offer: Option<AttemptOffer>,
    /// In the order in which they are tried.
    addresses: Vec<Address>,
    /// More addresses may come.
    expects: bool,
    waiting: VecDeque<Candidate>,
    /// Attempts under way, oldest first.
    live: Vec<Attempt>,
    /// Attempts to be closed.
    ending: VecDeque<Number>,
    /// Attempts whose SYN has left.
    tried: Vec<(Number, Candidate)>,
    /// Addresses to which no SYN could be sent before any had left.
    unreachable: Vec<SocketAddr>,
    first: Option<FirstAttempt>,
    /// Data that must not run twice may be at the server of an attempt that has ended.
    once_left: bool,
    next_number: Number,
    /// When the next attempt may begin.
    next_at: Instant,
    /// What the attempt that begins next is given before another one begins.
    wait: Duration,
    same_network: bool,
    end: Option<AttemptEnd>,
    #[cfg(test)]
    dropped: Option<Rule>,
}

impl Race {
    /// A race that begins when addresses come, or an offer that needs none.
    #[must_use]
    pub const fn new(setup: Setup, now: Instant) -> Self {
        Self {
            setup,
            offer: None,
            addresses: Vec::new(),
            expects: true,
            waiting: VecDeque::new(),
            live: Vec::new(),
            ending: VecDeque::new(),
            tried: Vec::new(),
            unreachable: Vec::new(),
            first: None,
            once_left: false,
            next_number: 0,
            next_at: now,
            wait: setup.attempt_delay,
            same_network: true,
            end: None,
            #[cfg(test)]
            dropped: None,
        }
    }

    /// Whether a rule holds. Tests drop one at a time.
    #[cfg_attr(not(test), allow(clippy::unused_self, reason = "tests drop rules"))]
    fn holds(&self, rule: Rule) -> bool {
        #[cfg(test)]
        return self.dropped != Some(rule);
        #[cfg(not(test))]
        {
            let _ = rule;
            true
        }
    }

    /// A transport offers an attempt. It is used if it comes before any other attempt.
    pub fn handle_offer(&mut self, offer: AttemptOffer) {
        if self.next_number == 0 && self.end.is_none() {
            self.offer = Some(offer);
            self.plan();
        }
    }

    /// The server's addresses in the order in which they are to be tried, those that came before included. `more`: others may
    /// come.
    pub fn handle_addresses(&mut self, addresses: &[Address], more: bool, now: Instant) {
        if self.end.is_some() {
            return;
        }
        self.addresses = addresses.to_vec();
        self.expects = more;
        if self.next_number == 0 {
            self.plan();
            return;
        }
        let taken = |remote| {
            let same = |one: &Candidate| one.remote == Some(remote) && one.transport == Transport::Tcp;
            self.waiting.iter().any(same) || self.tried.iter().any(|(_, one)| same(one))
        };
        let new: Vec<_> = addresses.iter().map(|one| one.remote).filter(|remote| !taken(*remote)).collect();
        let may_carry = self.tried.is_empty() && self.live.is_empty() && !self.once_is_out();
        self.waiting.extend(new.into_iter().map(|remote| plain(remote, Reason::NotFirstAddress)));
        if may_carry && self.first.is_none() {
            self.plan();
        }
        let in_lookup = self.live.iter().find(|attempt| attempt.candidate.remote.is_none());
        if in_lookup.is_some_and(|attempt| self.fitting(attempt).is_none()) {
            // The request inside the lookup cannot go on at any of them.
            self.next_at = now;
        }
    }

    /// The attempts in their order, as long as none has begun.
    fn plan(&mut self) {
        self.waiting.clear();
        self.wait = self.setup.attempt_delay;
        let unreachable = &self.unreachable;
        let order: Vec<Address> =
            self.addresses.iter().filter(|one| !unreachable.contains(&one.remote)).copied().collect();
        if let Some(offer) = self.offer {
            let remote = match offer {
                AttemptOffer::At(remote) => Some(remote),
                AttemptOffer::InLookup { .. } => None,
            };
            self.waiting.push_back(Candidate { transport: Transport::Udp, remote, syn: Syn::First });
            // What is not known takes no longer than the kernel's own second SYN.
            let known = order.iter().find(|one| Some(one.remote) == remote).and_then(|one| one.delay);
            self.wait = known.unwrap_or(MOST_DELAY);
            self.waiting.extend(order.iter().map(|one| {
                let same = Some(one.remote) == remote;
                plain(one.remote, if same { Reason::SynTimedOut } else { Reason::NotFirstAddress })
            }));
            return;
        }
        for (n, one) in order.iter().enumerate() {
            if n > 0 {
                self.waiting.push_back(plain(one.remote, Reason::NotFirstAddress));
                continue;
            }
            let first = Candidate { transport: Transport::Tcp, remote: Some(one.remote), syn: Syn::First };
            self.waiting.push_back(first);
            // Where the round-trip time is not known, the kernel sends its second SYN after a second.
            if let Some(delay) = one.delay.filter(|_| !self.setup.repeats_itself) {
                self.wait = delay;
                self.waiting.push_back(plain(one.remote, Reason::SynTimedOut));
            }
        }
    }

    /// The data of an attempt is made.
    pub fn handle_made(&mut self, number: Number) {
        if let Some(attempt) = self.under_way(number, Phase::Making) {
            attempt.phase = Phase::Ready;
        }
    }

    /// The data of an attempt could not be made. That ends the attempt and not the race: others make data of their own.
    pub fn handle_not_made(&mut self, number: Number, now: Instant) {
        let made = self.under_way(number, Phase::Making).map(|attempt| attempt.candidate);
        let Some(Candidate { transport: Transport::Tcp, remote: Some(remote), .. }) = made else {
            return self.handle_failed(number, Failure::default(), now);
        };
        self.live.retain(|attempt| attempt.number != number);
        self.plain_first(remote, Reason::NoData);
        self.next_at = now;
    }

    /// The SYN of an attempt has left. `asks`: it was more than an ordinary one; `left`: with data.
    pub fn handle_begun(&mut self, number: Number, asks: bool, left: bool, now: Instant) {
        let Some(attempt) = self.under_way(number, Phase::Beginning) else { return };
        (attempt.phase, attempt.began, attempt.asks, attempt.left) = (Phase::Running, now, asks, left);
        let candidate = attempt.candidate;
        self.tried.push((number, candidate));
        if candidate.syn == Syn::First {
            if asks {
                self.first = Some(FirstAttempt { number, candidate, began: Some(now), left, refused: false });
            } else if candidate.transport == Transport::Tcp {
                // It is an ordinary one itself.
                self.waiting.retain(|other| other.remote != candidate.remote);
                self.wait = self.setup.attempt_delay;
            }
        }
        self.next_at = now + self.wait;
        self.wait = self.setup.attempt_delay;
    }

    /// An attempt has ended without a connection, or could not begin.
    pub fn handle_failed(&mut self, number: Number, failure: Failure, now: Instant) {
        let Some(at) = self.live.iter().position(|attempt| attempt.number == number) else { return };
        if self.end.is_some() {
            return;
        }
        let attempt = self.live.remove(at);
        self.once_left |= failure.may_have_run && self.is_once(attempt.candidate);
        self.after(attempt, failure);
        if self.holds(Rule::NextAtOnce) {
            self.next_at = now;
        }
    }

    /// What follows the failure of an attempt.
    fn after(&mut self, attempt: Attempt, failure: Failure) {
        let Candidate { transport, remote, syn } = attempt.candidate;
        let first = syn == Syn::First;
        if first && failure.asked && failure.refused {
            self.refused(attempt);
            let plain_before = |(_, one): &(Number, Candidate)| {
                one.remote == remote && one.transport == Transport::Tcp && one.syn != Syn::First
            };
            // One that began in the race is refused, too, or is still under way.
            if let Some(remote) = remote
                && transport == Transport::Tcp
                && !self.tried.iter().any(plain_before)
                && self.holds(Rule::PlainAfterRefusal)
            {
                self.plain_first(remote, Reason::SynRefused);
            }
        } else if self.tried.is_empty() && self.live.is_empty() && self.holds(Rule::BeginsAgain) {
            // Nothing has left, so what is left begins as without it.
            self.unreachable.extend(remote.filter(|_| transport == Transport::Tcp));
            (self.offer, self.first) = (None, None);
            self.plan();
        }
    }

    /// An ordinary attempt at `remote` comes next.
    fn plain_first(&mut self, remote: SocketAddr, reason: Reason) {
        self.waiting.retain(|other| other.remote != Some(remote));
        self.waiting.push_front(plain(remote, reason));
    }

    fn refused(&mut self, attempt: Attempt) {
        let Attempt { number, candidate, left, .. } = attempt;
        match &mut self.first {
            Some(first) if first.number == number => first.refused = true,
            first => *first = Some(FirstAttempt { number, candidate, began: None, left, refused: true }),
        }
    }

    /// The copy that went to the address directly was refused. What is inside the lookup may still be answered.
    pub fn handle_direct_refused(&mut self, number: Number, now: Instant) {
        let Some(attempt) = self.live.iter().find(|one| one.number == number).copied() else { return };
        if self.end.is_some() {
            return;
        }
        self.refused(attempt);
        if let Some(remote) = attempt.candidate.remote {
            self.plain_first(remote, Reason::SynRefused);
        }
        self.next_at = now;
    }

    /// The handshake of an attempt is complete.
    pub fn handle_established(&mut self, number: Number) {
        let known = self.live.iter().any(|one| one.number == number && one.phase == Phase::Running);
        let late = self.end.is_some() || !known;
        if late && self.holds(Rule::LateChangesNothing) {
            return;
        }
        self.end = Some(AttemptEnd::Won(number));
        if self.holds(Rule::OthersEndFirst) {
            self.close_all_but(Some(number));
        }
        self.waiting.clear();
    }

    /// The host is on another network.
    pub fn handle_network_changed(&mut self) {
        self.same_network = !self.holds(Rule::OneNetwork);
    }

    /// Nobody waits for the race any more.
    pub fn handle_cancelled(&mut self) {
        if self.end.is_none() {
            self.close_all_but(None);
            self.waiting.clear();
            self.end = Some(AttemptEnd::Over);
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(due) = self.poll_timeout() else { return };
        if now.saturating_since(due) < GAP || !self.holds(Rule::GapBeginsAgain) {
            return;
        }
        // The other ends have given up by now, or know addresses that this host had.
        let once = self.once_is_out();
        self.close_all_but(None);
        self.once_left |= once;
        self.waiting = self.addresses.iter().map(|one| plain(one.remote, Reason::SynTimedOut)).collect();
        self.next_at = now;
        self.wait = self.setup.attempt_delay;
    }

    /// When [`Race::handle_timeout`] and [`Race::poll_action`] are to be called next, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waits = self.end.is_none() && !self.waiting.is_empty() && !self.once_is_out();
        waits.then(|| self.next_at.max(self.place_at()))
    }

    /// What is to be done now.
    pub fn poll_action(&mut self, now: Instant) -> Option<Action> {
        if let Some(number) = self.ending.pop_front() {
            return Some(Action::Abort(number));
        }
        match self.end {
            Some(AttemptEnd::Won(number)) => {
                self.end = Some(AttemptEnd::Over);
                return self.finish(number).map(Action::Won);
            }
            Some(AttemptEnd::Lost) => {
                self.end = Some(AttemptEnd::Over);
                return Some(Action::Lost { once: self.once_left });
            }
            Some(AttemptEnd::Over) => return None,
            None => {}
        }
        if let Some((number, remote)) = self.direct() {
            let delay = self.addresses.iter().find(|one| one.remote == remote).and_then(|one| one.delay);
            for attempt in self.live.iter_mut().filter(|attempt| attempt.number == number) {
                attempt.candidate.remote = Some(remote);
            }
            for (_, candidate) in self.tried.iter_mut().filter(|(tried, _)| *tried == number) {
                candidate.remote = Some(remote);
            }
            if let Some(first) = self.first.as_mut().filter(|first| first.number == number) {
                first.candidate.remote = Some(remote);
            }
            // An ordinary one to the same address comes last.
            let ordinary = self.waiting.iter().any(|one| one.remote == Some(remote));
            self.waiting.retain(|one| one.remote != Some(remote));
            let is_next = self.waiting.is_empty() && self.setup.repeats_itself;
            self.waiting.extend(ordinary.then(|| plain(remote, Reason::SynTimedOut)));
            let most = delay.unwrap_or(self.setup.attempt_delay);
            self.next_at = now + if is_next { MOST_DELAY } else { most };
            return Some(Action::Direct(number, remote));
        }
        if let Some(action) = self.begin_what_is_ready() {
            return Some(action);
        }
        if self.may_begin(now) {
            if self.live.len() >= AT_ONCE && self.holds(Rule::TwoAtOnce) {
                let oldest = self.live.remove(0);
                self.once_left |= self.is_once(oldest.candidate) && oldest.may_have_left();
                return Some(Action::Abort(oldest.number));
            }
            return self.start(now);
        }
        let nothing_comes = (self.waiting.is_empty() && !self.expects) || self.once_is_out();
        if self.live.is_empty() && nothing_comes {
            self.end = Some(AttemptEnd::Lost);
            return self.poll_action(now);
        }
        None
    }

    /// Gives the next attempt its place.
    fn start(&mut self, now: Instant) -> Option<Action> {
        let mut candidate = self.waiting.pop_front()?;
        let number = self.next_number;
        self.next_number += 1;
        if !self.holds(Rule::FirstAlone) {
            candidate.syn = Syn::First;
        }
        let v4 = match self.offer {
            Some(AttemptOffer::InLookup { v4 }) if candidate.remote.is_none() => Some(v4),
            _ => None,
        };
        let first = candidate.syn == Syn::First;
        let phase = if first { Phase::Making } else { Phase::Beginning };
        self.live.push(Attempt { number, candidate, phase, began: now, asks: false, left: false, v4 });
        // It may take long to make what it carries, and to begin.
        self.next_at = now + self.wait;
        Some(if first { Action::Make(number, candidate) } else { Action::Begin(number, candidate) })
    }

    /// Begins an attempt whose data is made.
    fn begin_what_is_ready(&mut self) -> Option<Action> {
        let at = self.live.iter().position(|attempt| attempt.phase == Phase::Ready)?;
        let alone = self.live.len() == 1 && self.tried.is_empty();
        let attempt = *self.live.get(at)?;
        if self.is_once(attempt.candidate) && !alone && self.holds(Rule::OnceBeginsAlone) {
            self.live.remove(at);
            if let (Transport::Tcp, Some(remote)) = (attempt.candidate.transport, attempt.candidate.remote) {
                self.plain_first(remote, Reason::NotReplaySafe);
            }
            return Some(Action::Abort(attempt.number));
        }
        let attempt = self.live.get_mut(at)?;
        attempt.phase = Phase::Beginning;
        Some(Action::Begin(attempt.number, attempt.candidate))
    }

    fn may_begin(&self, now: Instant) -> bool {
        let free = self.live.is_empty() || now >= self.next_at.max(self.place_at());
        !self.waiting.is_empty() && free && !self.once_is_out()
    }

    /// When there is a place for another attempt.
    fn place_at(&self) -> Instant {
        match self.live.as_slice() {
            [oldest, other, ..]
                if oldest.candidate.remote != other.candidate.remote && self.holds(Rule::KeepsPlace) =>
            {
                oldest.began + KEEPS_PLACE
            }
            _ => Instant::ZERO,
        }
    }

    /// A request inside a lookup whose address has come, and the address.
    fn direct(&self) -> Option<(Number, SocketAddr)> {
        let attempt = self.live.iter().find(|one| one.candidate.remote.is_none())?;
        let running = attempt.phase == Phase::Running && self.holds(Rule::DirectCopy);
        Some((attempt.number, self.fitting(attempt).filter(|_| running)?))
    }

    /// The address at which a request inside a lookup goes on.
    fn fitting(&self, attempt: &Attempt) -> Option<SocketAddr> {
        let fits = |one: &&Address| Some(one.remote.is_ipv4()) == attempt.v4;
        self.addresses.iter().find(fits).map(|one| one.remote)
    }

    /// Whether data that must not run twice may have left.
    fn once_is_out(&self) -> bool {
        let out = |one: &Attempt| self.is_once(one.candidate) && one.may_have_left();
        (self.once_left || self.live.iter().any(out)) && self.holds(Rule::OnceLeavesOnce)
    }

    fn is_once(&self, candidate: Candidate) -> bool {
        let once = match candidate.transport {
            Transport::Tcp => self.setup.tcp_once,
            Transport::Udp => self.setup.udp_once,
        };
        once && candidate.syn == Syn::First
    }

    fn under_way(&mut self, number: Number, phase: Phase) -> Option<&mut Attempt> {
        self.live.iter_mut().find(|one| one.number == number && one.phase == phase)
    }

    fn close_all_but(&mut self, winner: Option<Number>) {
        let closed = self.live.iter().map(|one| one.number).filter(|one| Some(*one) != winner);
        self.ending.extend(closed);
        self.live.retain(|one| Some(one.number) == winner);
    }

    fn finish(&self, number: Number) -> Option<Finish> {
        let winner = self.live.iter().find(|one| one.number == number)?;
        // Those that began later have not lost.
        let earlier = self.tried.iter().take_while(|(tried, _)| *tried != number);
        let earlier = earlier.filter(|(_, one)| one.transport == Transport::Tcp);
        Some(Finish {
            number,
            candidate: winner.candidate,
            began: winner.began,
            asks: winner.asks,
            earlier: earlier.filter_map(|(_, one)| one.remote).collect(),
            first: self.first.filter(|first| first.number != number),
            same_network: self.same_network,
        })
    }
}

impl Attempt {
    /// Data may have left with it: from the moment when it begins, until it is known that none has.
    const fn may_have_left(&self) -> bool {
        match self.phase {
            Phase::Making | Phase::Ready => false,
            Phase::Beginning => true,
            Phase::Running => self.left,
        }
    }
}

const fn plain(remote: SocketAddr, reason: Reason) -> Candidate {
    Candidate { transport: Transport::Tcp, remote: Some(remote), syn: Syn::Plain(reason) }
}
