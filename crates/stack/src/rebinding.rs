//! A client's UDP port changes because an address translator has forgotten its mapping. The server checks the new
//! path, and the connection moves to it (`docs/carrier.md`).
//!
//! This concerns only connections that clients opened in UDP. A segment of a known flow does not run this code.

use crate::event::Drop;
use crate::flow::FlowKey;
use crate::output::Reply;
use crate::slot::Slot;
use crate::stack::Stack;
use crate::time_wait::TimeWaitTable;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_tcp::{StateName, TimeWaitAction};
use firstflight_wire::Instant;
use firstflight_wire::carrier::{Control, PathProof};
use firstflight_wire::tcp::{Flags, Segment};
use hashbrown::HashTable;

/// Number of connections that may differ in the client's UDP port only and are still told apart.
const ALIKE: usize = 8;
/// After this number of segments with wrong numbers from other UDP ports, within this time, all such segments are
/// dropped silently: answers must not show which numbers are right.
const MISSES: u16 = 64;
const MISSED: Duration = Duration::from_secs(60);
/// Least time between challenges for one connection; a round-trip time, if that is longer.
const GAP: Duration = Duration::from_millis(100);
/// A port is given up after at least this number of challenges without a response, and at least this time since the
/// first.
const CHALLENGES: u8 = 4;
const PATIENCE: Duration = Duration::from_secs(15);
/// A check that has not ended after this time is forgotten.
const FORGET: Duration = Duration::from_secs(60);
/// For this long after a move, the former port can take the connection back. This is longer than the interval of an
/// idle client's keep-alives, which show that the client is still there.
const RETURN: Duration = Duration::from_secs(30);
/// Number of former ports that can take a connection back: a client's port may change several times in a row.
const FORMER: usize = 3;
/// Times after a move at which the oldest of them is asked again: a challenge may be lost.
const AGAIN: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(12),
    Duration::from_secs(25),
];
/// For this long after its own port has answered, a connection checks no other.
const SETTLE: Duration = Duration::from_secs(10);
/// When one connection between two ports has moved, the others between them are challenged in turns: connections in
/// one turn, time between turns, number of rounds (the time between rounds doubles each time), and number of pairs
/// of ports that may wait for turns.
const TURN: usize = 16;
const TURNS_APART: Duration = Duration::from_millis(250);
const ROUNDS: u8 = 10;
const WAITING: usize = 1024;

/// Finds connections in UDP if their client's UDP port is not the known one, and holds the checks of new ports.
#[derive(Debug)]
pub(crate) struct Paths {
    groups: HashTable<Group>,
    /// By connection (index), at most one for each.
    checks: BTreeMap<u32, Check>,
    turns: VecDeque<Turns>,
    again: VecDeque<Again>,
    /// Connections in TIME-WAIT, found without the client's UDP port.
    closed: TimeWaitTable,
}

/// Connections (index) that differ only in the client's UDP port.
#[derive(Debug)]
struct Group {
    /// Hash of the key without that port.
    hash: u64,
    first: u32,
    others: Vec<u32>,
    /// Number of segments with wrong numbers since `since`.
    misses: u16,
    since: Instant,
}

impl Group {
    fn new(hash: u64, first: u32) -> Self {
        Self { hash, first, others: Vec::new(), misses: 0, since: Instant::ZERO }
    }

    fn members(&self) -> impl Iterator<Item = u32> + '_ {
        core::iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// The check of one connection's path.
#[derive(Debug)]
struct Check {
    /// The bits in the challenges to the connection's own port.
    own: u64,
    /// The port that is checked, and the bits in its challenges.
    asked: Option<(u16, u64)>,
    /// When that check began.
    began: Instant,
    /// When a challenge was last sent, and how many were sent that count.
    sent: Option<Instant>,
    count: u8,
    /// Ports that the connection had lately, the newest last.
    former: Vec<Former>,
    /// Its own port has answered: no other is checked before.
    stays: Option<Instant>,
}

/// A port that a connection had, and the bits that it was sent: until then it can take the connection back. `sent` is
/// when it was last asked because it spoke. Each port has its own time, so that no port uses up another one's.
#[derive(Debug, Clone, Copy)]
struct Former {
    port: u16,
    bits: u64,
    until: Instant,
    sent: Option<Instant>,
}

impl Check {
    fn new(own: u64, now: Instant) -> Self {
        let (asked, sent, stays) = (None, None, None);
        Self { own, asked, began: now, sent, count: 0, former: Vec::new(), stays }
    }

    /// Starts to check another port, with these bits.
    fn ask(&mut self, port: u16, bits: u64, now: Instant) {
        (self.asked, self.began, self.count) = (Some((port, bits)), now, 0);
    }

    fn has_given_up(&self, now: Instant) -> bool {
        self.count >= CHALLENGES && now - self.began >= PATIENCE
    }

    /// Forgets what has expired.
    fn expire(&mut self, now: Instant) {
        self.former.retain(|former| now < former.until);
        if self.asked.is_some() && now - self.began >= FORGET {
            self.asked = None;
        }
    }

    fn former(&self, port: u16) -> Option<Former> {
        self.former.iter().find(|former| former.port == port).copied()
    }

    /// What a response with `bits` from `port` shows about a connection whose port is `current`.
    fn judge(&self, port: u16, bits: u64, current: u16) -> Option<Answer> {
        if (port, bits) == (current, self.own) {
            return Some(Answer::Stays);
        }
        let before = self.former.iter().position(|former| (former.port, former.bits) == (port, bits));
        let asked = self.asked == Some((port, bits));
        before.map(Answer::Returns).or(asked.then_some(Answer::Moves))
    }
}

/// What a response means.
enum Answer {
    /// The connection's own port works, so what came from another port was not the client's.
    Stays,
    /// A former port works (its index): the move was wrong, or the client is back.
    Returns(usize),
    /// The checked port works, and nothing contradicts it.
    Moves,
}

/// A connection (index) that has moved: the oldest port that it had lately is asked again.
#[derive(Debug)]
struct Again {
    index: u32,
    moved: Instant,
    at: Instant,
    round: usize,
}

/// Connections between two ports of which one has moved: the others are challenged in turn.
#[derive(Debug)]
struct Turns {
    /// The former pair of ports (index and generation).
    pair: (u32, u32),
    /// The client's address and new port.
    client: IpAddr,
    port: u16,
    at: Instant,
    /// The connection (index) to continue with.
    next: u32,
    /// Rounds that are complete.
    round: u8,
}

impl Paths {
    pub fn new(time_waits: usize) -> Self {
        Self {
            groups: HashTable::new(),
            checks: BTreeMap::new(),
            turns: VecDeque::new(),
            again: VecDeque::new(),
            closed: TimeWaitTable::new(time_waits),
        }
    }

    /// Adds connection `index`. `alike` tells whether another connection differs only in the client's UDP port. If
    /// there are too many of these, connection `index` replaces one for which `gives_way` is true, or is not added.
    pub fn add(
        &mut self,
        hash: u64,
        index: u32,
        alike: impl Fn(u32) -> bool,
        gives_way: impl Fn(u32) -> bool,
    ) {
        match self.groups.find_mut(hash, |group| group.hash == hash && alike(group.first)) {
            Some(group) if group.members().any(|one| one == index) => {}
            Some(group) if group.others.len() + 1 < ALIKE => group.others.push(index),
            Some(group) => {
                let mut members = core::iter::once(&mut group.first).chain(&mut group.others);
                if let Some(place) = members.find(|one| gives_way(**one)) {
                    *place = index;
                }
            }
            None => {
                self.groups.insert_unique(hash, Group::new(hash, index), |group| group.hash);
            }
        }
    }

    /// Whether an attacker searches for the numbers of connection `index`, which is in a group with this hash.
    /// `misses` counts one more segment with wrong numbers.
    fn is_searched(&mut self, hash: u64, index: u32, misses: bool, now: Instant) -> bool {
        let its = |group: &Group| group.hash == hash && group.members().any(|one| one == index);
        let Some(group) = self.groups.find_mut(hash, its) else { return false };
        if now - group.since >= MISSED {
            (group.misses, group.since) = (0, now);
        }
        let searched = group.misses >= MISSES;
        group.misses = group.misses.saturating_add(u16::from(misses));
        searched
    }

    /// Removes connection `index`, if it is there.
    pub fn remove(&mut self, hash: u64, index: u32) {
        let its = |group: &Group| group.hash == hash && group.members().any(|one| one == index);
        let Ok(mut entry) = self.groups.find_entry(hash, its) else { return };
        let group = entry.get_mut();
        if group.first != index {
            group.others.retain(|one| *one != index);
        } else if let Some(other) = group.others.pop() {
            group.first = other;
        } else {
            entry.remove();
        }
    }

    /// The connections of this hash; the caller compares the keys.
    fn alike(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        self.groups.iter_hash(hash).filter(move |group| group.hash == hash).flat_map(Group::members)
    }

    /// Connection `index` is over: forgets its check.
    pub fn forget(&mut self, index: u32) {
        self.checks.remove(&index);
    }

    pub fn expire(&mut self, now: Instant) {
        self.closed.expire(now);
    }

    pub fn next_deadline(&self) -> Option<Instant> {
        let turn = self.turns.iter().map(|turns| turns.at).min();
        let again = self.again.iter().map(|again| again.at).min();
        [turn, again, self.closed.next_deadline()].into_iter().flatten().min()
    }
}

impl Stack {
    /// The common hash of all connections that differ only in the client's UDP port.
    pub(crate) fn hash_anywhere(&self, key: &FlowKey) -> u64 {
        self.hasher.hash(&key.anywhere())
    }

    /// Whether a segment in UDP of no flow belongs to a connection whose client had another UDP port. If so, the
    /// segment is dropped, and the new port is checked.
    #[cold]
    pub(crate) fn comes_from_new_port(&mut self, key: &FlowKey, segment: &Segment<'_>, now: Instant) -> bool {
        let others = Flags::SYN.union(Flags::RST);
        if !segment.flags.contains(Flags::ACK) || segment.flags.intersects(others) {
            return false;
        }
        let fits = |slot: &Slot| slot.conn.fits(segment, now);
        let nearest = self.alike(key).map(|(i, slot)| (fits(slot).ok_or(()), i));
        // A connection that the segment does not fit comes last.
        let Some((distance, index)) = nearest.min_by_key(|(fit, _)| fit.unwrap_or(u32::MAX)) else {
            return self.repeats_last_ack(key, segment, now);
        };
        let misses = distance.is_err();
        if misses && self.belongs_elsewhere(key, segment, now) {
            return false;
        }
        let (hash, port) = (self.hash_anywhere(key), key.outer_remote());
        let searched = self.carrier.as_mut().is_some_and(|carrier| {
            // Who had the connection a moment ago knows the numbers, and may want it back.
            let knows = carrier.paths.checks.get_mut(&index).is_some_and(|check| {
                check.expire(now);
                check.former(port).is_some()
            });
            carrier.paths.is_searched(hash, index, misses, now) && !knows
        });
        if !searched && misses {
            return self.repeats_last_ack(key, segment, now);
        }
        let taken = searched || self.check_port(index, key.outer_remote(), true, now);
        if taken {
            self.journal.drop_packet(Drop::UncheckedPath);
        }
        taken
    }

    /// Whether a segment belongs to a connection between its own ports: one in TIME-WAIT, or one that it opens
    /// because it acknowledges a SYN cookie. Such a segment is not part of a search for numbers.
    fn belongs_elsewhere(&self, key: &FlowKey, segment: &Segment<'_>, now: Instant) -> bool {
        let hash = self.hasher.hash(key);
        let opens = |listener| self.cookie_of(listener, key, hash, segment, now).is_some();
        self.remembered(hash).is_some() || self.listeners.find(key).is_some_and(opens)
    }

    /// The connections that a segment with this key may belong to, if its client's UDP port has changed.
    fn alike(&self, key: &FlowKey) -> impl Iterator<Item = (u32, &Slot)> {
        let (hash, key) = (self.hash_anywhere(key), key.anywhere());
        let indices = self.carrier.iter().flat_map(move |carrier| carrier.paths.alike(hash));
        indices.filter_map(move |index| {
            let slot = self.slots.get(index)?;
            (slot.key.anywhere() == key).then_some((index, slot))
        })
    }

    /// Challenges connection `index` at another UDP port of its client, and at the ports that can contradict that
    /// port: the connection's own port, and the former one if the connection has just moved. False if challenges
    /// were unanswered for long enough. `answers`: the challenge answers a segment from that port. Other challenges
    /// do not count, because the client may not have sent anything yet.
    fn check_port(&mut self, index: u32, port: u16, answers: bool, now: Instant) -> bool {
        let bits = [self.random.next_u64(), self.random.next_u64()];
        let (Some(slot), Some(carrier)) = (self.slots.get(index), &mut self.carrier) else { return true };
        let (key, current) = (slot.key, slot.key.outer_remote());
        let gap = slot.conn.rtt().map_or(GAP, |(srtt, _)| srtt.max(GAP));
        let check = carrier.paths.checks.entry(index).or_insert_with(|| Check::new(bits[0], now));
        check.expire(now);
        if let Some(former) = check.former.iter_mut().find(|former| former.port == port) {
            // Its answer counts, whatever the port says that the connection has.
            if former.sent.is_none_or(|sent| now - sent >= gap) {
                former.sent = Some(now);
                let former = *former;
                self.journal.counters.carrier_paths_checked += 1;
                self.challenge_at(&key, port, former.bits);
            }
            return true;
        }
        if check.stays.is_some_and(|until| now < until) {
            return true;
        }
        if check.asked.is_some_and(|(asked, _)| asked == port) && check.has_given_up(now) {
            return false;
        }
        let room = self.outbox.has_room(3);
        if check.sent.is_some_and(|sent| now - sent < gap) || !room {
            // Not without those that contradict it.
            return true;
        }
        if check.asked.is_none_or(|(asked, _)| asked != port) {
            check.ask(port, bits[1], now);
        }
        check.sent = Some(now);
        if answers {
            if check.count == 0 {
                check.began = now;
            }
            check.count = check.count.saturating_add(1);
        }
        let oldest = check.former.first().map(|former| (former.port, former.bits));
        let to = [check.asked, Some((current, check.own)), oldest];
        self.journal.counters.carrier_paths_checked += 1;
        for (port, bits) in to.into_iter().flatten() {
            self.challenge_at(&key, port, bits);
        }
        true
    }

    /// Sends a challenge for the connection of `key` to this UDP port of its client.
    /// Whether connection `index` has this port, or is being checked for it. A neighbour with the same inner ports may have
    /// got a port that another connection had, and would answer for its own connection.
    fn may_have(&self, index: u32, slot: &Slot, port: u16) -> bool {
        let check = self.carrier.as_ref().and_then(|carrier| carrier.paths.checks.get(&index));
        let asked = check.and_then(|check| check.asked);
        slot.key.outer_remote() == port || asked.is_some_and(|(asked, _)| asked == port)
    }

    fn challenge_at(&mut self, key: &FlowKey, port: u16, bits: u64) {
        let to = key.carried(key.outer_local(), port);
        self.outbox.reply(Reply::Control(to, Control::PathChallenge(proof(key, bits))), &mut self.journal);
    }

    /// Asks the ports again that connections had before they moved.
    fn ask_former(&mut self, now: Instant) {
        loop {
            let Some(paths) = self.carrier.as_mut().map(|carrier| &mut carrier.paths) else { return };
            let Some(at) = paths.again.iter().position(|again| again.at <= now) else { return };
            let Some(mut again) = paths.again.remove(at) else { return };
            let Some(check) = paths.checks.get_mut(&again.index) else { continue };
            check.expire(now);
            let Some(oldest) = check.former.first().copied() else { continue };
            again.round += 1;
            let index = again.index;
            if let Some(after) = AGAIN.get(again.round) {
                again.at = again.moved + *after;
                paths.again.push_back(again);
            }
            let Some(key) = self.slots.get(index).map(|slot| slot.key) else { continue };
            if !self
                .alike(&key)
                .any(|(other, slot)| other != index && self.may_have(other, slot, oldest.port))
            {
                self.challenge_at(&key, oldest.port, oldest.bits);
            }
        }
    }

    /// A challenge: answered if it names a connection that we opened. What the server has not taken, because it came from
    /// an unknown port, goes again behind the response.
    pub(crate) fn path_challenged(&mut self, key: &FlowKey, bits: u64, now: Instant) {
        let Some(index) = self.find(key) else { return };
        let Some(slot) = self.slots.get_mut(index) else { return };
        if !slot.client || slot.conn.state() == StateName::SynSent {
            return;
        }
        slot.conn.unheard(now);
        let response = Control::PathResponse(proof(key, bits));
        self.outbox.reply(Reply::Control(key.outer(), response), &mut self.journal);
        self.touched(index, now);
    }

    /// Handles a response from the UDP port of `key`.
    pub(crate) fn path_answered(&mut self, key: &FlowKey, bits: u64, now: Instant) {
        let port = key.outer_remote();
        let alike: Vec<_> = self.alike(key).map(|(index, slot)| (index, slot.key.outer_remote())).collect();
        let Some(carrier) = &mut self.carrier else { return };
        let judged = alike.into_iter().find_map(|(index, current)| {
            let check = carrier.paths.checks.get_mut(&index)?;
            check.expire(now);
            Some((index, current, check.judge(port, bits, current)?))
        });
        let Some((index, current, answer)) = judged else { return };
        // Another connection has this four-tuple already.
        if port != current && self.find(key).is_some() {
            return;
        }
        // The bits are valid once.
        let spent = self.random.next_u64();
        let Some(check) = self.carrier.as_mut().and_then(|c| c.paths.checks.get_mut(&index)) else { return };
        match answer {
            // Former ports are still believed: the connection's own port may be an attacker's.
            Answer::Stays => (check.asked, check.stays) = (None, Some(now + SETTLE)),
            Answer::Returns(before) => {
                (check.asked, check.stays) = (None, Some(now + SETTLE));
                check.former.truncate(before);
            }
            Answer::Moves => {
                // The older ones stay: the newer may all be a thief's.
                check.former.truncate(FORMER - 1);
                check.former.push(Former { port: current, bits: check.own, until: now + RETURN, sent: None });
                (check.asked, check.stays) = (None, None);
            }
        }
        check.own = spent;
        if port != current {
            let returns = matches!(answer, Answer::Returns(_));
            self.move_connection(index, key, returns, now);
        }
    }

    /// The client of connection `index` is at the UDP port of `key`.
    fn move_connection(&mut self, index: u32, key: &FlowKey, returns: bool, now: Instant) {
        let before = self.slots.get(index).and_then(|slot| slot.pair);
        let left_port = self.slots.get(index).map_or(0, |slot| slot.key.outer_remote());
        let left = before.and_then(|pair| self.carrier.as_ref()?.has_accepted_others(pair, index));
        self.rekey(index, key, false, now);
        self.journal.counters.carrier_paths_moved += 1;
        if let Some(slot) = self.slots.get_mut(index) {
            slot.conn.moved(now);
        }
        self.touched(index, now);
        let Some(carrier) = &mut self.carrier else { return };
        let (client, port) = (key.remote_ip(), key.outer_remote());
        if returns {
            // What was told the others of the port that is left was wrong, too.
            carrier.paths.turns.retain(|turns| (turns.client, turns.port) != (client, left_port));
        } else {
            carrier.paths.redirect(client, left_port, port, now);
            carrier.paths.ask_again(index, now);
        }
        if let Some(pair) = left {
            carrier.paths.take_turns(pair, client, port, now);
        }
    }

    /// Challenges the connections whose turn it is.
    #[cold]
    pub(crate) fn take_turns(&mut self, now: Instant) {
        self.ask_former(now);
        loop {
            let Some(carrier) = &mut self.carrier else { return };
            let Some(at) = carrier.paths.turns.iter().position(|turns| turns.at <= now) else { return };
            let Some(mut turns) = carrier.paths.turns.remove(at) else { return };
            let Some(accepted) = carrier.accepted(turns.pair) else { continue };
            let members: Vec<u32> = accepted.range(turns.next..).take(TURN).copied().collect();
            turns.at = now + TURNS_APART;
            match members.last() {
                Some(last) if members.len() == TURN => turns.next = last + 1,
                _ => {
                    turns.at = now + TURNS_APART * (1 << turns.round);
                    (turns.next, turns.round) = (0, turns.round + 1);
                }
            }
            let port = turns.port;
            if turns.round < ROUNDS {
                carrier.paths.turns.push_back(turns);
            }
            for index in members {
                self.check_port(index, port, false, now);
            }
        }
    }

    /// Connection `index` in UDP is over. If it is in TIME-WAIT and a client opened it, its end is remembered.
    #[cold]
    pub(crate) fn note_closed(&mut self, index: u32, now: Instant) {
        let Some(slot) = self.slots.get(index) else { return };
        if slot.client || slot.conn.state() != StateName::TimeWait {
            return;
        }
        let (hash, record) = (self.hash_anywhere(&slot.key), slot.conn.time_wait());
        if let Some(carrier) = &mut self.carrier {
            carrier.paths.closed.insert(hash, record, now, self.tcp.time_wait);
        }
    }

    /// Handles a repetition of the FIN that brought a connection into TIME-WAIT. If its numbers are exactly right,
    /// it is acknowledged to the port that it came from. The offset of our timestamps belongs to the port with
    /// which the connection began, so the acknowledgement carries the newest timestamp that the client has seen.
    fn repeats_last_ack(&mut self, key: &FlowKey, segment: &Segment<'_>, now: Instant) -> bool {
        let hash = self.hash_anywhere(key);
        let Some(carrier) = &mut self.carrier else { return false };
        let Some(record) = carrier.paths.closed.find(hash) else { return false };
        if record.judge(segment) != (TimeWaitAction::Acknowledge { restart: true })
            || segment.ack != record.snd_nxt
        {
            return false;
        }
        let lasts = self.tcp.time_wait;
        carrier.paths.closed.restart(hash, now, lasts);
        self.time_wait.restart(self.hasher.hash(key), now, lasts);
        let echo = segment.options.timestamps.map(|ts| ts.echo);
        let value = echo.unwrap_or_else(|| self.isn.timestamp(key, now));
        self.outbox.reply(Reply::time_wait(*key, &record, value), &mut self.journal);
        true
    }
}

impl Paths {
    /// One connection between the ports `pair` has moved to `port`: the others are challenged there, in turn.
    fn take_turns(&mut self, pair: (u32, u32), client: IpAddr, port: u16, now: Instant) {
        let turns = Turns { pair, client, port, at: now, next: 0, round: 0 };
        if let Some(before) = self.turns.iter_mut().find(|turns| turns.pair == pair) {
            if before.port != port {
                *before = Turns { at: before.at, ..turns };
            }
            return;
        }
        if self.turns.len() < WAITING {
            return self.turns.push_back(turns);
        }
        // Those that have had the most turns give way.
        if let Some(last) = self.turns.iter_mut().max_by_key(|turns| turns.round) {
            *last = turns;
        }
    }

    /// The client has left the UDP port `from` for `to`: connections that are being challenged at `from` are there, too.
    fn redirect(&mut self, client: IpAddr, from: u16, to: u16, now: Instant) {
        for turns in self.turns.iter_mut().filter(|turns| (turns.client, turns.port) == (client, from)) {
            (turns.port, turns.next, turns.round) = (to, 0, 0);
            turns.at = turns.at.min(now + TURNS_APART);
        }
    }

    /// Connection `index` has moved: the oldest port that it had lately is asked again for a while.
    fn ask_again(&mut self, index: u32, now: Instant) {
        self.again.retain(|again| again.index != index);
        let again = Again { index, moved: now, at: now + AGAIN[0], round: 0 };
        if self.again.len() < WAITING {
            return self.again.push_back(again);
        }
        // Those that have asked most often give way.
        if let Some(last) = self.again.iter_mut().max_by_key(|again| again.round) {
            *last = again;
        }
    }
}

fn proof(key: &FlowKey, bits: u64) -> PathProof {
    PathProof { src_port: key.local_port(), dst_port: key.remote_port(), bits }
}
