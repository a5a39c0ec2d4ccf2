//! The rule of `docs/farm-masters.md` in virtual time: servers that stop, links that hold messages back, replicas that are told to
//! follow anyone or nobody at any time, and members that are told any master. No first flight is accepted twice.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "tests")]

use super::{BEAT, LEASE, Quorum};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Milliseconds of a step, of a simulation, within which copies of a flight arrive, and of an answer's time limit.
const STEP: u64 = 10;
const ENDS: u64 = 60_000;
const REACH: u64 = 500;
const WITHIN: u64 = 300;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }
}

#[derive(Clone)]
enum Message {
    /// A replica begins to follow, confirms an offset of a line, and leaves.
    Join(usize),
    Confirm(usize, u64, u64),
    Leave(usize),
    /// The data of a line up to an offset, or one more id.
    Copy(u64, u64, HashSet<u32>),
    Write(u64, u64, Option<u32>),
    /// A question, and its answer: line, joins, INFO, and whether the id was new.
    Ask {
        member: usize,
        number: u64,
        id: Option<u32>,
    },
    Answer {
        number: u64,
        line: u64,
        joins: u64,
        info: String,
        new: bool,
    },
}

struct Server {
    /// The line of replication, and who leads it.
    line: u64,
    follows: Option<usize>,
    offset: u64,
    joins: u64,
    ids: HashSet<u32>,
    /// The offset that each replica has confirmed.
    replicas: HashMap<usize, u64>,
    paused_until: u64,
}

struct Member {
    master: usize,
    /// The memory: line and joins, and since when it is known.
    met: Option<(u64, u64, u64)>,
    /// The connection, which ends when an answer is late.
    quorum: Option<Quorum>,
    open: HashMap<u64, (u64, Option<u32>)>,
}

struct Farm {
    random: Random,
    start: Instant,
    now: u64,
    next: u64,
    needed: u64,
    /// Steps between two changes of a master, on average.
    rare: usize,
    servers: Vec<Server>,
    members: Vec<Member>,
    /// From, to: messages in their order, and when they arrive at the earliest.
    links: HashMap<(usize, usize), VecDeque<(u64, Message)>>,
    down: HashMap<(usize, usize), u64>,
    accepted: HashMap<u32, u32>,
}

impl Farm {
    fn new(seed: u64, replicas: usize, members: usize) -> Self {
        let server = |n: usize| Server {
            line: 1,
            follows: (n > 0).then_some(0),
            offset: 0,
            joins: replicas as u64,
            ids: HashSet::new(),
            replicas: if n == 0 {
                (1..=replicas).map(|replica| (replica, 0)).collect()
            } else {
                HashMap::new()
            },
            paused_until: 0,
        };
        let member = |_| Member { master: 0, met: None, quorum: None, open: HashMap::new() };
        Self {
            random: Random(seed * 2 + 1),
            start: Instant::now(),
            now: 0,
            next: 2,
            needed: replicas.div_ceil(2).max(1) as u64,
            rare: if seed.is_multiple_of(2) { 800 } else { 100 },
            servers: (0..=replicas).map(server).collect(),
            members: (0..members).map(member).collect(),
            links: HashMap::new(),
            down: HashMap::new(),
            accepted: HashMap::new(),
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        let arrives = self.now + self.random.below(3) as u64 * STEP;
        self.links.entry((from, to)).or_default().push_back((arrives, message));
    }

    /// The number of a member among all that send.
    fn host(&self, member: usize) -> usize {
        self.servers.len() + member
    }

    fn lead(&mut self, server: usize) {
        self.leave(server);
        let line = self.next;
        self.next += 1;
        let server = &mut self.servers[server];
        (server.line, server.follows) = (line, None);
        server.replicas.clear();
    }

    fn leave(&mut self, server: usize) {
        if let Some(master) = self.servers[server].follows.take() {
            self.send(server, master, Message::Leave(server));
        }
    }

    fn follow(&mut self, server: usize, master: usize) {
        self.leave(server);
        // It has no line until it has the data of its master's.
        (self.servers[server].line, self.servers[server].follows) = (0, Some(master));
        self.servers[server].replicas.clear();
        self.send(server, master, Message::Join(server));
    }

    /// A server leads. Some of the others are told to follow it, and some members to ask it.
    fn fail_over(&mut self, server: usize) {
        self.lead(server);
        for other in 0..self.servers.len() {
            if other != server && self.random.one_in(2) {
                self.follow(other, server);
            }
        }
        for member in 0..self.members.len() {
            if self.random.one_in(2) {
                self.members[member].master = server;
                self.members[member].quorum = None;
            }
        }
    }

    /// What goes wrong, and what the sentinels do about it, wisely or not.
    fn trouble(&mut self) {
        let (count, members) = (self.servers.len(), self.members.len());
        if self.random.one_in(400) {
            let server = self.random.below(count);
            self.servers[server].paused_until = self.now + self.random.below(8000) as u64;
        }
        if self.random.one_in(150) {
            let (one, two) = (self.random.below(count + members), self.random.below(count));
            let until = self.now + self.random.below(8000) as u64;
            self.down.insert((one, two), until);
            self.down.insert((two, one), until);
        }
        if self.random.one_in(self.rare) {
            let (server, other) = (self.random.below(count), self.random.below(count));
            if server == other || self.random.one_in(2) {
                self.fail_over(server)
            } else {
                self.follow(server, other)
            }
        }
        if self.random.one_in(200) {
            let (member, master) = (self.random.below(members), self.random.below(count));
            self.members[member].master = master;
            self.members[member].quorum = None;
        }
    }

    fn write(&mut self, server: usize, id: Option<u32>) {
        self.servers[server].offset += 1;
        let (line, offset) = (self.servers[server].line, self.servers[server].offset);
        for replica in self.servers[server].replicas.keys().copied().collect::<Vec<_>>() {
            self.send(server, replica, Message::Write(line, offset, id));
        }
    }

    fn serve(&mut self, server: usize, message: Message) {
        match message {
            Message::Join(replica) if self.servers[server].follows.is_none() => {
                let Server { line, offset, ids, .. } = &self.servers[server];
                let copy = Message::Copy(*line, *offset, ids.clone());
                self.servers[server].joins += 1;
                self.servers[server].replicas.insert(replica, 0);
                self.send(server, replica, copy);
            }
            Message::Confirm(replica, line, offset) if self.servers[server].line == line => {
                if let Some(confirmed) = self.servers[server].replicas.get_mut(&replica) {
                    *confirmed = offset;
                }
            }
            Message::Leave(replica) => drop(self.servers[server].replicas.remove(&replica)),
            Message::Copy(line, offset, ids) if self.servers[server].follows.is_some() => {
                let server = &mut self.servers[server];
                (server.line, server.offset, server.ids) = (line, offset, ids);
            }
            Message::Write(line, offset, id)
                if self.servers[server].line == line && self.servers[server].follows.is_some() =>
            {
                self.servers[server].offset = offset;
                self.servers[server].ids.extend(id);
            }
            Message::Ask { member, number, id } if self.servers[server].follows.is_none() => {
                let Server { line, joins, offset, replicas, .. } = &self.servers[server];
                let mut info = format!("master_repl_offset:{offset}\r\n");
                for (replica, confirmed) in replicas {
                    info += &format!("slave{replica}:state=online,offset={confirmed}\r\n");
                }
                let (line, joins) = (*line, *joins);
                let new = id.is_some_and(|id| self.servers[server].ids.insert(id));
                self.write(server, id);
                let to = self.host(member);
                self.send(server, to, Message::Answer { number, line, joins, info, new });
            }
            _ => {}
        }
    }

    fn ask(&mut self, member: usize, id: Option<u32>) {
        let (from, master, number) = (self.host(member), self.members[member].master, self.next);
        self.next += 1;
        if self.members[member].quorum.is_none() {
            self.members[member].open.clear();
            self.members[member].quorum = Quorum::new(self.needed, 10, self.servers.len() - 1).ok();
        }
        self.members[member].open.insert(number, (self.now, id));
        self.send(from, master, Message::Ask { member, number, id });
    }

    fn answered(&mut self, member: usize, message: Message) {
        let Message::Answer { number, line, joins, info, new } = message else { return };
        let (now, at) = (self.now, |ms| self.start + Duration::from_millis(ms));
        let member = &mut self.members[member];
        let Some((sent, id)) = member.open.remove(&number) else { return };
        if now - sent > WITHIN {
            (member.quorum, member.open) = (None, HashMap::new());
            return;
        }
        let since = match member.met {
            Some((met, followed, since)) if (met, followed) == (line, joins) => since,
            _ => {
                member.met = Some((line, joins, now));
                now
            }
        };
        let Some(quorum) = &mut member.quorum else { return };
        let proved = quorum.heard(&info, at(sent), at(now)).is_ok();
        let above = sent.saturating_sub(since) > REACH + LEASE.as_millis() as u64;
        if proved && above && new {
            *self.accepted.entry(id.unwrap()).or_default() += 1;
        }
    }

    fn deliver(&mut self) {
        let mut all: Vec<_> = self.links.keys().copied().collect();
        all.sort_unstable();
        for (from, to) in all {
            let held = self.down.get(&(from, to)).is_some_and(|until| self.now < *until);
            let paused = self.servers.get(to).is_some_and(|server| self.now < server.paused_until);
            let now = self.now;
            while !held
                && !paused
                && let Some((_, message)) =
                    self.links.get_mut(&(from, to)).and_then(|link| link.pop_front_if(|(at, _)| *at <= now))
            {
                match to.checked_sub(self.servers.len()) {
                    Some(member) => self.answered(member, message),
                    None => self.serve(to, message),
                }
            }
        }
    }

    fn run(&mut self) {
        let mut copies: VecDeque<(u64, u32)> = VecDeque::new();
        let mut flight = 0;
        while self.now < ENDS {
            self.trouble();
            self.deliver();
            for server in 0..self.servers.len() {
                let Server { follows, line, offset, paused_until, .. } = self.servers[server];
                if let (Some(master), true) =
                    (follows, self.now.is_multiple_of(1000) && self.now >= paused_until)
                {
                    self.send(server, master, Message::Confirm(server, line, offset));
                }
            }
            for member in 0..self.members.len() {
                if self.now.is_multiple_of(BEAT.as_millis() as u64) {
                    self.ask(member, None);
                }
            }
            // A flight at one member or two at once, and a copy later, at any members.
            if self.random.one_in(3) {
                flight += 1;
                copies.push_back((self.now + self.random.below(REACH as usize - 100) as u64, flight));
                for _ in 0..2 {
                    let member = self.random.below(self.members.len());
                    self.ask(member, Some(flight));
                }
            }
            let now = self.now;
            while let Some((_, flight)) = copies.pop_front_if(|(at, _)| *at <= now) {
                let member = self.random.below(self.members.len());
                self.ask(member, Some(flight));
            }
            self.now += STEP;
        }
    }
}

/// 60 simulations of a minute; `FIRSTFLIGHT_SEEDS` says how many.
#[test]
fn no_first_flight_is_accepted_twice_whatever_the_sentinels_say() {
    let seeds = std::env::var("FIRSTFLIGHT_SEEDS").map_or(60, |seeds| seeds.parse().unwrap());
    let mut all = 0;
    for seed in 0..seeds {
        let mut farm = Farm::new(seed, 1 + seed as usize % 4, 4);
        farm.run();
        all += farm.accepted.len();
        let twice: Vec<_> = farm.accepted.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "seed {seed}: {twice:?}");
    }
    println!("{seeds} seeds, {all} first flights accepted, each once");
    assert!(all > seeds as usize * 10, "{all}: hardly anything was accepted");
}
