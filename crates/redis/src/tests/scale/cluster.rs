//! What happens to the masters of the simulated cluster, and what they say of each other.

use super::server::{Cell, Server};
use super::world::Farm;
use crate::address::StorePlace;
use crate::cells::{self, CELLS};
use crate::map::Report;
use std::fmt::Write as _;

/// Slots of a cell.
const WIDTH: usize = cells::SLOTS as usize / CELLS;
/// Until the others have agreed that a master is down and have elected one of its replicas, microseconds.
const ELECTION: u64 = 3_000_000;
/// Until a map has reached all servers, and for how long a slot is on its way.
const GOSSIP: usize = 1_000_000;
const MOVES: u64 = 50_000;
/// What a replica lacks of its master's last writes when it takes over, microseconds: far more than usual.
const LAG: u64 = 1_000_000;

/// What happens next to a server or a cell.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Kill(usize),
    Stop(usize, u64),
    Promote(usize),
    /// A process starts again, empty.
    Return(usize),
    Move(usize),
    Moved(usize, usize),
}

impl Farm {
    /// The answer of a server to `CLUSTER NODES`. `moving` is a cell whose slot is on its way.
    fn report(&self, moving: Option<usize>) -> Report {
        let mut text = String::new();
        for (n, server) in self.servers.iter().enumerate() {
            let shard = self.shard(n);
            let master = self.leader[shard];
            let _ = write!(text, "{n} 10.0.{}.{}:6379@16379 ", n / 256, n % 256);
            if n != master {
                let _ = writeln!(
                    text,
                    "slave{} {master} 0 0 1 connected",
                    if server.dead { ",fail" } else { "" }
                );
                continue;
            }
            text += "master - 0 0 1 connected";
            let mut first = None;
            for cell in 0..=CELLS {
                let has = cell < CELLS && self.owner[cell] == shard;
                match (has, first) {
                    (true, None) => first = Some(cell),
                    (false, Some(from)) => {
                        let _ = write!(text, " {}-{}", from * WIDTH, cell * WIDTH - 1);
                        first = None;
                    }
                    _ => {}
                }
            }
            if let Some(cell) = moving
                && self.owner[cell] == shard
            {
                let _ = write!(text, " [{}->-0]", cells::slot(cell));
            }
            text += "\n";
        }
        Report::parse(&text, &StorePlace::Tcp("10.0.0.0".to_owned(), 6379)).unwrap()
    }

    fn shard(&self, server: usize) -> usize {
        server % self.leader.len()
    }

    /// All servers learn of the present map, some later than others. These know it at once.
    pub(super) fn spread(&mut self, at_once: &[usize]) {
        let report = self.report(None);
        for n in 0..self.servers.len() {
            let later = self.now.max(self.servers[n].paused_until) + self.random.below(GOSSIP) as u64;
            let earlier = self.servers[n].learns.take().map_or(later, |(at, _)| at.min(later));
            let when = if at_once.contains(&n) { self.now } else { earlier };
            self.servers[n].learns = Some((when, report.clone()));
        }
    }

    pub(super) fn learn(&mut self) {
        for n in 0..self.servers.len() {
            let Some((_, report)) = self.servers[n].learns.take_if(|(at, _)| *at <= self.now) else {
                continue;
            };
            if self.servers[n].dead {
                continue;
            }
            self.servers[n].report = report;
            let (shard, owner) = (self.shard(n), &self.owner);
            // Redis deletes the keys of a slot that it has lost.
            self.servers[n].cells.retain(|cell, _| owner[*cell] == shard);
            let leader = self.leader[shard];
            if n != leader && self.servers[n].follows.is_none() {
                self.follow(n, leader);
            }
        }
    }

    fn follow(&mut self, replica: usize, master: usize) {
        self.servers[replica].follows = Some(master);
        self.servers[replica].forget();
        for server in &mut self.servers {
            server.replicas.remove(&replica);
        }
        self.servers[master].joins += 1;
        self.servers[master].replicas.insert(replica, 0);
    }

    pub(super) fn happens(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Kill(shard) => {
                let master = self.leader[shard];
                self.servers[master].dead = true;
                self.later(ELECTION, Event::Promote(shard));
                self.later(10_000_000, Event::Return(master));
            }
            Event::Stop(shard, lasts) => {
                let master = self.leader[shard];
                self.servers[master].paused_until = now + lasts;
                self.later(ELECTION, Event::Promote(shard));
            }
            Event::Promote(shard) => self.promote(shard),
            Event::Return(server) => {
                let leader = self.leader[self.shard(server)];
                self.servers[server].dead = false;
                self.servers[server].run = self.new_run();
                self.follow(server, leader);
                self.servers[server].report = self.report(None);
            }
            Event::Move(cell) => {
                let (from, to) = (self.owner[cell], (self.owner[cell] + 1) % self.leader.len());
                let report = self.report(Some(cell));
                for shard in [from, to] {
                    self.servers[self.leader[shard]].report = report.clone();
                }
                if let Some((has, _)) = self.servers[self.leader[from]].cells.get_mut(&cell) {
                    *has = false;
                }
                self.later(MOVES, Event::Moved(cell, to));
            }
            Event::Moved(cell, to) => {
                let (source, target) = (self.leader[self.owner[cell]], self.leader[to]);
                self.owner[cell] = to;
                if let Some((_, keys)) = self.servers[source].cells.remove(&cell) {
                    self.servers[target].cells.insert(cell, (true, keys));
                }
                self.spread(&[source, target]);
            }
        }
    }

    /// A replica takes over with what it has. The old master, if it only stands still, knows nothing of that.
    fn promote(&mut self, shard: usize) {
        let (now, old) = (self.now, self.leader[shard]);
        let Some(new) = (0..self.servers.len())
            .find(|&n| self.shard(n) == shard && n != old && self.servers[n].runs(now))
        else {
            return;
        };
        let failed_at = now - ELECTION;
        let mut kept = self.servers[old].cells.clone();
        for (_, Cell { ids, .. }) in kept.values_mut() {
            ids.retain(|_, (_, set)| *set + LAG <= failed_at);
        }
        self.leader[shard] = new;
        let run = self.new_run();
        let Server { run: process, follows, cells, joins, .. } = &mut self.servers[new];
        (*process, *follows, *cells, *joins) = (run, None, kept, 0);
        if self.servers[old].dead {
            self.servers[old].forget();
        }
        for n in 0..self.servers.len() {
            if self.shard(n) == shard && n != new && n != old && !self.servers[n].dead {
                self.follow(n, new);
            }
        }
        self.spread(&[new]);
    }
}
