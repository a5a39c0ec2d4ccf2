//! Finds connections in UDP whose client's UDP port is not the known one, and holds the checks of new ports.

use crate::flows::time_wait::TimeWaitTable;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;
use hashbrown::HashTable;

/// Number of connections that may differ in the client's UDP port only and are still told apart.
const ALIKE: usize = 8;
/// After this number of segments with wrong numbers from other UDP ports, within this time, all such segments are
/// dropped silently: answers must not show which numbers are right.
const MISSES: u16 = 64;
const MISSED: Duration = Duration::from_secs(60);
/// Least time between challenges for one connection; a round-trip time, if that is longer.
pub(crate) const GAP: Duration = Duration::from_millis(100);
/// A port is given up after at least this number of challenges without a response, and at least this time since the
/// first.
const CHALLENGES: u8 = 4;
const PATIENCE: Duration = Duration::from_secs(15);
/// A check that has not ended after this time is forgotten.
const FORGET: Duration = Duration::from_secs(60);
/// For this long after a move, the previous port can take the connection back. This is longer than the interval of an
/// idle client's keep-alives, which show that the client is still there.
pub(crate) const RETURN: Duration = Duration::from_secs(30);
/// Number of previous ports that can take a connection back: a client's port may change several times in a row.
pub(crate) const PREVIOUS_PORTS: usize = 3;
/// Times after a move at which the oldest of them is asked again: a challenge may be lost.
pub(crate) const AGAIN: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(12),
    Duration::from_secs(25),
];
/// For this long after its own port has answered, a connection checks no other.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);
/// When one connection between two ports has moved, the others between them are challenged in turns: connections in
/// one turn, time between turns, number of rounds (the time between rounds doubles each time), and number of pairs
/// of ports that may wait for turns.
pub(crate) const TURN: usize = 16;
pub(crate) const TURNS_APART: Duration = Duration::from_millis(250);
pub(crate) const ROUNDS: u8 = 10;
const WAITING: usize = 1024;

/// Finds connections in UDP if their client's UDP port is not the known one, and holds the checks of new ports.
#[derive(Debug)]
pub(crate) struct Paths {
    pub groups: HashTable<Group>,
    /// By connection (index), at most one for each.
    pub checks: BTreeMap<u32, Check>,
    pub turns: VecDeque<Turns>,
    pub again: VecDeque<AskAgain>,
    /// Connections in TIME-WAIT, found without the client's UDP port.
    pub closed: TimeWaitTable,
}

/// Connections (index) that differ only in the client's UDP port.
#[derive(Debug)]
pub(crate) struct Group {
    /// Hash of the key without that port.
    pub hash: u64,
    pub first: u32,
    pub others: Vec<u32>,
    /// Number of segments with wrong numbers since `since`.
    pub misses: u16,
    pub since: Instant,
}

impl Group {
    pub(crate) fn new(hash: u64, first: u32) -> Self {
        Self { hash, first, others: Vec::new(), misses: 0, since: Instant::ZERO }
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = u32> + '_ {
        core::iter::once(self.first).chain(self.others.iter().copied())
    }
}

/// The check of one connection's path.
#[derive(Debug)]
pub(crate) struct Check {
    /// The bits in the challenges to the connection's own port.
    pub own: u64,
    /// The port that is checked, and the bits in its challenges.
    pub asked: Option<(u16, u64)>,
    /// When that check began.
    pub began: Instant,
    /// When a challenge was last sent, and how many were sent that count.
    pub sent: Option<Instant>,
    pub count: u8,
    /// Ports that the connection had lately, the newest last.
    pub previous: Vec<PreviousPort>,
    /// Its own port has answered: no other is checked before.
    pub stays: Option<Instant>,
}

/// A port that a connection had, and the bits that it was sent: until then it can take the connection back. `sent` is
/// when it was last asked because it spoke. Each port has its own time, so that no port uses up another one's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PreviousPort {
    pub port: u16,
    pub bits: u64,
    pub until: Instant,
    pub sent: Option<Instant>,
}

impl Check {
    pub(crate) fn new(own: u64, now: Instant) -> Self {
        let (asked, sent, stays) = (None, None, None);
        Self { own, asked, began: now, sent, count: 0, previous: Vec::new(), stays }
    }

    /// Starts to check another port, with these bits.
    pub(crate) fn ask(&mut self, port: u16, bits: u64, now: Instant) {
        (self.asked, self.began, self.count) = (Some((port, bits)), now, 0);
    }

    pub(crate) fn has_given_up(&self, now: Instant) -> bool {
        self.count >= CHALLENGES && now - self.began >= PATIENCE
    }

    /// Forgets what has expired.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.previous.retain(|previous| now < previous.until);
        if self.asked.is_some() && now - self.began >= FORGET {
            self.asked = None;
        }
    }

    pub(crate) fn previous(&self, port: u16) -> Option<PreviousPort> {
        self.previous.iter().find(|previous| previous.port == port).copied()
    }

    /// What a response with `bits` from `port` shows about a connection whose port is `current`.
    pub(crate) fn judge(&self, port: u16, bits: u64, current: u16) -> Option<PathAnswer> {
        if (port, bits) == (current, self.own) {
            return Some(PathAnswer::Stays);
        }
        let before = self.previous.iter().position(|previous| (previous.port, previous.bits) == (port, bits));
        let asked = self.asked == Some((port, bits));
        before.map(PathAnswer::Returns).or(asked.then_some(PathAnswer::Moves))
    }
}

/// What a response means.
pub(crate) enum PathAnswer {
    /// The connection's own port works, so what came from another port was not the client's.
    Stays,
    /// A previous port works (its index): the move was wrong, or the client is back.
    Returns(usize),
    /// The checked port works, and nothing contradicts it.
    Moves,
}

/// A connection (index) that has moved: the oldest port that it had lately is asked again.
#[derive(Debug)]
pub(crate) struct AskAgain {
    pub index: u32,
    pub moved: Instant,
    pub at: Instant,
    pub round: usize,
}

/// Connections between two ports of which one has moved: the others are challenged in turn.
#[derive(Debug)]
pub(crate) struct Turns {
    /// The previous pair of ports (index and generation).
    pub pair: (u32, u32),
    /// The client's address and new port.
    pub client: IpAddr,
    pub port: u16,
    pub at: Instant,
    /// The connection (index) to continue with.
    pub next: u32,
    /// Rounds that are complete.
    pub round: u8,
}

impl Paths {
    pub(crate) fn new(time_waits: usize) -> Self {
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
    pub(crate) fn add(
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
    pub(crate) fn is_searched(&mut self, hash: u64, index: u32, misses: bool, now: Instant) -> bool {
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
    pub(crate) fn remove(&mut self, hash: u64, index: u32) {
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
    pub(crate) fn alike(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        self.groups.iter_hash(hash).filter(move |group| group.hash == hash).flat_map(Group::members)
    }

    /// Connection `index` is over: forgets its check.
    pub(crate) fn forget(&mut self, index: u32) {
        self.checks.remove(&index);
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        self.closed.expire(now);
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let turn = self.turns.iter().map(|turns| turns.at).min();
        let again = self.again.iter().map(|again| again.at).min();
        [turn, again, self.closed.next_deadline()].into_iter().flatten().min()
    }
}

impl Paths {
    /// One connection between the ports `pair` has moved to `port`: the others are challenged there, in turn.
    pub(crate) fn take_turns(&mut self, pair: (u32, u32), client: IpAddr, port: u16, now: Instant) {
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
    pub(crate) fn redirect(&mut self, client: IpAddr, from: u16, to: u16, now: Instant) {
        for turns in self.turns.iter_mut().filter(|turns| (turns.client, turns.port) == (client, from)) {
            (turns.port, turns.next, turns.round) = (to, 0, 0);
            turns.at = turns.at.min(now + TURNS_APART);
        }
    }

    /// Connection `index` has moved: the oldest port that it had lately is asked again for a while.
    pub(crate) fn ask_again(&mut self, index: u32, now: Instant) {
        self.again.retain(|again| again.index != index);
        let again = AskAgain { index, moved: now, at: now + AGAIN[0], round: 0 };
        if self.again.len() < WAITING {
            return self.again.push_back(again);
        }
        // Those that have asked most often give way.
        if let Some(last) = self.again.iter_mut().max_by_key(|again| again.round) {
            *last = again;
        }
    }
}
