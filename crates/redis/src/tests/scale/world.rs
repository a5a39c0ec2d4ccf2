//! The members and servers of the simulated farm, the first flights, and what becomes of them.

use super::cluster::Event;
use super::member::{Does, Member};
use super::server::{Ask, Cell, CellAnswer, Server};
use super::{BEAT_WITHIN, Flight, OpenQuestion, Random, Refused, UNIX_MS, WITHIN, Which, at};
use crate::cells::CELLS;
use crate::node::process;
use firstflight::credential::{GuardKey, RemoteGuard, Window};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Microseconds of CPU for a question in Redis: 149,025 a second (`docs/farm-store.md`).
const SERVICE: f64 = 1_000_000.0 / 149_025.0;
/// When first flights begin: the memories are open by then.
const BEGINS: u64 = 30_000_000;
/// One of this many first flights is copied at once, and one later.
const COPIED: usize = 20;

#[derive(Debug)]
pub(super) struct Scale {
    pub members: usize,
    pub masters: usize,
    /// First flights a second.
    pub rate: usize,
    pub seconds: usize,
    /// Microseconds of a step.
    pub tick: u64,
    pub seed: u64,
}

#[derive(Default)]
pub(super) struct Counts {
    pub shown: u64,
    pub accepted: u64,
    pub refused: [u64; 4],
    pub copies: u64,
    pub in_place: u64,
    pub twice: u64,
    pub after_handshake: u64,
    pub keys: usize,
    pub busy: f64,
    times: BTreeMap<u64, u64>,
    by_second: BTreeMap<u64, (u64, u64)>,
}

impl Counts {
    /// The time, in microseconds, that this many thousandths of the questions did not exceed.
    pub(super) fn latency(&self, thousandths: u64) -> u64 {
        let mut left = self.times.values().sum::<u64>() * thousandths / 1000;
        for (time, count) in &self.times {
            if *count >= left {
                return *time;
            }
            left -= count;
        }
        0
    }

    pub(super) fn seconds(&self) -> Vec<u64> {
        self.by_second
            .values()
            .map(|(shown, accepted)| (100 * accepted + shown / 2) / shown.max(&1))
            .collect()
    }
}

pub(super) struct Farm {
    pub now: u64,
    pub random: Random,
    pub servers: Vec<Server>,
    /// The master of each shard, and the shard of each cell.
    pub leader: Vec<usize>,
    pub owner: Vec<usize>,
    runs: u64,
    numbers: u64,
    members: Vec<Member>,
    /// By time and number.
    events: BTreeMap<(u64, u64), Event>,
    open: HashSet<(usize, u64)>,
    waits: [VecDeque<OpenQuestion>; 2],
    copies: BTreeMap<(u64, u64), Flight>,
    /// How often each first flight was accepted, and whether its original was not.
    fates: Vec<(u8, bool)>,
    counts: Counts,
    rate: usize,
    tick: u64,
    ends: u64,
    latest_copy: usize,
}

impl Farm {
    pub(super) fn new(scale: &Scale) -> Self {
        let Scale { members, masters, rate, seconds, tick, seed } = *scale;
        let mut random = Random(seed.wrapping_mul(2) + 1);
        let off = |random: &mut Random| random.below(1_000) as i64 - 500;
        let servers = (0..3 * masters)
            .map(|n| {
                Server::new(n as u64 + 1, (n >= masters).then_some(n % masters), off(&mut random), SERVICE)
            })
            .collect();
        let key = GuardKey::from_bytes([7; 16]);
        let guard = Arc::new(RemoteGuard::new(key, Window::REQUESTS));
        let members = (0..members).map(|n| Member::new(n, off(&mut random), Arc::clone(&guard))).collect();
        let mut farm = Self {
            now: 0,
            random,
            servers,
            leader: (0..masters).collect(),
            owner: (0..CELLS).map(|cell| cell * masters / CELLS).collect(),
            runs: 3 * masters as u64,
            numbers: 0,
            members,
            events: BTreeMap::new(),
            open: HashSet::new(),
            waits: [VecDeque::new(), VecDeque::new()],
            copies: BTreeMap::new(),
            fates: Vec::new(),
            counts: Counts::default(),
            rate,
            tick,
            ends: BEGINS + seconds as u64 * 1_000_000,
            latest_copy: if seconds > 5 { 12_000_000 } else { 400_000 },
        };
        farm.begin();
        farm
    }

    /// The memories begin, and all members meet them.
    fn begin(&mut self) {
        let masters = self.leader.len();
        for n in 0..self.servers.len() {
            if let Some(master) = self.servers[n].follows {
                self.servers[master].replicas.insert(n, 0);
            }
        }
        for cell in 0..CELLS {
            let server = &mut self.servers[self.owner[cell]];
            let mark = format!("{}/{cell:x}", process(&server.info(0), true).unwrap()).into();
            server.cells.insert(cell, (true, Cell { mark, ids: HashMap::new() }));
        }
        let all: Vec<usize> = (0..self.servers.len()).collect();
        self.spread(&all);
        self.learn();
        for n in 0..self.members.len() {
            let masters: Vec<usize> = (0..masters).collect();
            self.members[n].mend(&mut self.servers, &masters, 0, &mut self.random);
        }
    }

    pub(super) fn new_run(&mut self) -> u64 {
        self.runs += 1;
        self.runs
    }

    pub(super) fn later(&mut self, after: u64, event: Event) {
        self.numbers += 1;
        self.events.insert((self.now + after, self.numbers), event);
    }

    /// What goes wrong: seconds 5 to 30 of the flights.
    fn plan(&mut self) {
        let masters = self.leader.len();
        let tenth = masters.div_ceil(10);
        self.now = BEGINS;
        for shard in 0..tenth {
            self.later(5_000_000, Event::Kill(shard));
            self.later(12_000_000, Event::Stop(masters - 1 - shard, 8_000_000));
        }
        for n in 0..100 {
            self.later(25_000_000 + n * 50_000, Event::Move(CELLS / 2 - 50 + n as usize));
        }
    }

    pub(super) fn run(mut self, fails: bool) -> Counts {
        if fails {
            self.plan();
        }
        self.now = BEGINS - 2_000_000;
        let mut due = 0;
        while self.now < self.ends + 20_000 {
            while let Some(entry) = self.events.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let event = entry.remove();
                self.happens(event);
            }
            self.answers();
            self.time_out();
            for server in &mut self.servers {
                server.work(self.now);
            }
            if self.now.is_multiple_of(1_000) {
                self.millisecond();
            }
            if self.now == BEGINS {
                self.servers.iter_mut().for_each(|server| server.busy = 0.0);
            }
            if (BEGINS..self.ends).contains(&self.now) {
                due += self.rate as u64 * self.tick;
                while due >= 1_000_000 {
                    due -= 1_000_000;
                    self.visit();
                }
            }
            while let Some(entry) = self.copies.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let copy = entry.remove();
                self.counts.copies += 1;
                self.show(copy);
            }
            self.now += self.tick;
        }
        self.judge()
    }

    fn judge(mut self) -> Counts {
        for (accepted, waited) in &self.fates {
            self.counts.twice += u64::from(*accepted & 0x7f > 1);
            // A copy that came at the same time and was first: its original is refused as a replay, as it should be.
            self.counts.after_handshake += u64::from(*waited && *accepted & 0x80 != 0);
        }
        self.counts.keys = self.servers.iter().map(Server::keys).sum();
        let lasted = (self.ends - BEGINS) as f64;
        self.counts.busy =
            self.servers.iter().map(|server| server.busy).sum::<f64>() / lasted / self.leader.len() as f64;
        self.counts
    }

    /// A client sends a first flight. It is copied with some luck.
    fn visit(&mut self) {
        let (number, stamp) = (self.fates.len() as u64, UNIX_MS + self.now / 1000);
        self.fates.push((0, false));
        self.counts.shown += 1;
        self.counts.by_second.entry(self.now / 1_000_000).or_default().0 += 1;
        let original = Flight { number, stamp_ms: stamp, which: Which::Original, request: None };
        if self.random.below(COPIED) == 0 {
            let after = self.random.below(1_000) as u64;
            self.copies.insert((self.now + after, 2 * number), Flight { which: Which::AtOnce, ..original });
        }
        if self.random.below(COPIED) == 0 {
            let after = 20_000 + self.random.below(self.latest_copy) as u64;
            self.copies
                .insert((self.now + after, 2 * number + 1), Flight { which: Which::Later, ..original });
        }
        self.show(original);
    }

    fn show(&mut self, flight: Flight) {
        let member = self.random.below(self.members.len());
        match self.members[member].shown(flight, self.now) {
            Does::Asks(server, ask) => self.ask(server, ask, WITHIN),
            Does::Refuses(why) => self.decided(flight, Err(why)),
        }
    }

    fn ask(&mut self, server: usize, ask: Ask, within: u64) {
        let Ask { number, member, cell, link, flight, .. } = ask;
        self.open.insert((member, number));
        let open = OpenQuestion { until: self.now + within, member, number, server, cell, link, flight };
        self.waits[usize::from(within == WITHIN)].push_back(open);
        self.servers[server].asked(self.now, ask);
    }

    fn answers(&mut self) {
        for server in 0..self.servers.len() {
            while let Some((_, answered)) =
                self.servers[server].answers.pop_front_if(|(at, _)| *at <= self.now)
            {
                let Ask { member, number, sent, flight, .. } = answered.ask;
                // One that came too late counts no more.
                if self.open.remove(&(member, number)) {
                    self.answered(server, member, sent, flight, answered);
                }
            }
        }
    }

    fn answered(
        &mut self,
        server: usize,
        member: usize,
        sent: u64,
        flight: Option<Flight>,
        answered: CellAnswer,
    ) {
        let decision = self.members[member].answered(server, answered, self.now);
        if let Some(flight) = flight {
            *self.counts.times.entry(self.now - sent).or_default() += 1;
            self.decided(flight, decision);
        }
    }

    fn time_out(&mut self) {
        for kind in 0..2 {
            while let Some(open) = self.waits[kind].pop_front_if(|open| open.until <= self.now) {
                if self.open.remove(&(open.member, open.number)) {
                    self.members[open.member].timed_out(&open, self.now);
                    if let Some(flight) = open.flight {
                        self.decided(flight, Err(Refused::Lost));
                    }
                }
            }
        }
    }

    fn decided(&mut self, flight: Flight, decision: Result<(), Refused>) {
        let (accepted, waited) = &mut self.fates[flight.number as usize];
        match (decision, flight.which) {
            (Ok(()), Which::Original) => {
                *accepted += 1;
                self.counts.accepted += 1;
                let second = flight.stamp_ms.abs_diff(UNIX_MS) / 1000;
                self.counts.by_second.entry(second).or_default().1 += 1;
            }
            (Ok(()), which) => {
                *accepted += 1;
                self.counts.in_place += u64::from(which == Which::AtOnce);
                *accepted |= if which == Which::Later { 0x80 } else { 0 };
            }
            (Err(why), Which::Original) => {
                *waited = true;
                self.counts.refused[why as usize] += 1;
            }
            (Err(_), _) => {}
        }
    }

    /// Leases, maps and connections.
    fn millisecond(&mut self) {
        let now = self.now;
        self.learn();
        let step = (now / 1_000) as usize;
        for replica in 0..self.servers.len() {
            if (step + replica).is_multiple_of(1_000)
                && self.servers[replica].runs(now)
                && let Some(master) = self.servers[replica].follows
            {
                self.servers[master].confirmed_by(replica);
            }
        }
        for member in 0..self.members.len() {
            let beats = (step + member).is_multiple_of(250);
            if beats {
                for server in self.members[member].servers() {
                    self.beat(member, server, (step + member).is_multiple_of(1_000));
                }
            }
            if beats || self.members[member].broken && (step + member).is_multiple_of(50) {
                let mut masters: Vec<usize> =
                    self.members[member].map.masters().keys().map(|id| id.parse().unwrap()).collect();
                if masters.is_empty() {
                    masters = (0..self.servers.len()).collect();
                }
                masters.sort_unstable();
                self.members[member].mend(&mut self.servers, &masters, now, &mut self.random);
            }
        }
    }

    fn beat(&mut self, member: usize, server: usize, reports: bool) {
        let Some(&cell) = self.servers[server].cells.keys().next() else { return };
        if reports && self.servers[server].runs(self.now) {
            let report = self.servers[server].report.clone();
            self.members[member].map.heard(&server.to_string().into(), at(self.now), report);
        }
        if let Some(ask) = self.members[member].beat(server, cell, self.now) {
            self.ask(server, ask, BEAT_WITHIN);
        }
    }
}
