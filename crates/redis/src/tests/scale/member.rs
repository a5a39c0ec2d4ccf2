//! A member of the simulated farm: the project's own machines, put together as [`crate::share`] and [`crate::cluster`] do.

use super::server::{Ask, CellAnswer, Server};
use super::{Flight, OpenQuestion, Random, Refused, UNIX_MS, at};
use crate::cells;
use crate::connection::Names;
use crate::local_replays::{self, LocalReplays};
use crate::map::Map;
use crate::memory::{Identity, Memories};
use crate::node::{Reply, check, process};
use crate::question::Question;
use crate::quorum::{LEASE, Quorum};
use crate::unreported::UnreportedQuestions;
use firstflight::credential::{Guarded, JobRequest, JobResult, Reason, RemoteGuard, ReplayGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The pauses of `share` and `cluster` before another attempt, microseconds.
const RETRY: u64 = 100_000;
const RETRY_NODE: u64 = 250_000;

/// A connection to a master.
struct Link {
    number: u64,
    process: String,
    quorum: Quorum,
}

/// A memory: what `share` knows of a cell.
struct CellMemory {
    memories: Memories,
    owed: UnreportedQuestions,
    known: LocalReplays,
    connection: Option<Connection>,
    retry_at: u64,
}

impl CellMemory {
    fn new() -> Self {
        Self {
            memories: Memories::default(),
            owed: UnreportedQuestions::of_many(),
            known: LocalReplays::with_room(local_replays::MOST_OF_MANY),
            connection: None,
            retry_at: 0,
        }
    }
}

#[derive(Clone)]
struct Connection {
    number: u64,
    server: usize,
    link: u64,
    names: Names,
    since: Instant,
}

pub(super) struct Member {
    pub number: usize,
    /// How far its clock is off.
    pub clock_ms: i64,
    pub guard: Arc<RemoteGuard>,
    pub map: Map,
    links: BTreeMap<usize, Link>,
    retry: BTreeMap<usize, u64>,
    /// By cell.
    places: Vec<CellMemory>,
    next: u64,
    /// Whether a cell may have no connection.
    pub broken: bool,
}

/// What a member does with a first flight.
#[allow(clippy::large_enum_variant, reason = "it is used at once")]
pub(super) enum Does {
    Asks(usize, Ask),
    Refuses(Refused),
}

impl Member {
    pub(super) fn new(number: usize, clock_ms: i64, guard: Arc<RemoteGuard>) -> Self {
        Self {
            number,
            clock_ms,
            guard,
            map: Map::default(),
            links: BTreeMap::new(),
            retry: BTreeMap::new(),
            places: (0..cells::CELLS).map(|_| CellMemory::new()).collect(),
            next: 1,
            broken: true,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The master of `cell`, if most masters say so and it can be asked.
    fn find(&self, cell: usize, now: u64) -> Option<usize> {
        let server = self.map.owner(cell, at(now))?.parse().unwrap();
        self.links.contains_key(&server).then_some(server)
    }

    /// A first flight, or a copy of one, arrives.
    pub(super) fn shown(&mut self, flight: Flight, now: u64) -> Does {
        let now_ms = (UNIX_MS + now / 1000).saturating_add_signed(self.clock_ms);
        let id = self.guard.id_of(flight.client(), &flight.number.to_be_bytes());
        let request = match self.guard.test_and_set(id, flight.stamp_ms, now_ms) {
            Guarded::Ask(request) => request,
            _ => return Does::Refuses(Refused::Floor),
        };
        let cell = cells::of_request(&request);
        let place = &mut self.places[cell];
        let Some(connection) = place.connection.clone() else {
            place.owed.add(request);
            return Does::Refuses(Refused::Lost);
        };
        if place.owed.holds(&request) || place.known.answer(connection.number, &request, at(now)).is_some() {
            return Does::Refuses(Refused::Replay);
        }
        let question = Question::new(request, &connection.names, Duration::ZERO);
        let (number, member) = (self.number(), self.number);
        let ask = Ask {
            number,
            member,
            cell,
            sent: now,
            question,
            flight: Some(Flight { request: Some(request), ..flight }),
            link: connection.link,
        };
        Does::Asks(connection.server, ask)
    }

    /// A write that keeps the lease.
    pub(super) fn beat(&mut self, server: usize, cell: usize, now: u64) -> Option<Ask> {
        let link = self.links.get(&server)?.number;
        let (number, member) = (self.number(), self.number);
        Some(Ask { number, member, cell, sent: now, question: None, flight: None, link })
    }

    pub(super) fn servers(&self) -> Vec<usize> {
        self.links.keys().copied().collect()
    }

    /// A master has answered, in time or not.
    pub(super) fn answered(&mut self, server: usize, answered: CellAnswer, now: u64) -> Result<(), Refused> {
        let CellAnswer { ask, info, reply } = answered;
        let request = ask.flight.and_then(|flight| flight.request);
        let Some(link) = self.links.get_mut(&server).filter(|link| link.number == ask.link) else {
            return Err(self.failed(ask.cell, request, now));
        };
        let Some((value, mark)) = reply else {
            // MOVED: only this cell is lost.
            return Err(self.failed(ask.cell, request, now));
        };
        let checked = check(&info, &link.process, Some(&mut link.quorum), at(ask.sent), at(now));
        let Ok(store_ms) = checked else {
            self.lose(server, now);
            return Err(self.failed(ask.cell, request, now));
        };
        let (Some(request), Some(question)) = (request, ask.question) else { return Ok(()) };
        let is_of = self.find(ask.cell, now) == Some(server);
        let place = &mut self.places[ask.cell];
        let same = |connection: &&Connection| {
            connection.link == ask.link && connection.names.identity.mark() == &*mark
        };
        let Some(connection) = place.connection.as_ref().filter(same).filter(|_| is_of) else {
            return Err(self.failed(ask.cell, Some(request), now));
        };
        let reply = Reply { value, store_ms };
        if let Some(lasts) = question.is_used_up_for(&reply) {
            place.known.add(connection.number, &request, question.used_by(&reply), at(ask.sent), lasts);
        }
        match question.answer(&reply, at(ask.sent), connection.since) {
            Some(JobResult::Accept) => Ok(()),
            Some(JobResult::Refuse(Reason::GuardFloor)) => Err(Refused::Floor),
            Some(JobResult::Refuse(Reason::ClockSkew)) => Err(Refused::Skew),
            _ => Err(Refused::Replay),
        }
    }

    /// A question failed: it is owed, and the cell is lost.
    fn failed(&mut self, cell: usize, request: Option<JobRequest>, now: u64) -> Refused {
        if let Some(request) = request {
            let place = &mut self.places[cell];
            place.owed.add(request);
            if place.connection.take().is_some() {
                place.retry_at = now;
                self.broken = true;
            }
        }
        Refused::Lost
    }

    /// A question has had no answer for too long.
    pub(super) fn timed_out(&mut self, open: &OpenQuestion, now: u64) {
        if self.links.get(&open.server).is_some_and(|link| link.number == open.link) {
            self.lose(open.server, now);
        }
        self.failed(open.cell, open.flight.and_then(|flight| flight.request), now);
    }

    /// A master is lost, and with it all that it was asked about.
    pub(super) fn lose(&mut self, server: usize, now: u64) {
        let Some(link) = self.links.remove(&server) else { return };
        self.map.lost(&server.to_string().into(), at(now));
        self.retry.insert(server, now + RETRY_NODE);
        self.broken = true;
        for place in &mut self.places {
            if place.connection.as_ref().is_some_and(|connection| connection.link == link.number) {
                place.connection = None;
                place.retry_at = now;
            }
        }
    }

    /// Connects to the masters that the map names and that run, and meets the cells that have no connection.
    pub(super) fn mend(&mut self, servers: &mut [Server], masters: &[usize], now: u64, random: &mut Random) {
        for &server in masters {
            if !self.links.contains_key(&server) && self.retry.get(&server).is_none_or(|at| *at <= now) {
                self.retry.insert(server, now + RETRY_NODE);
                self.open(servers, server, now);
            }
        }
        self.broken = false;
        for cell in 0..cells::CELLS {
            let owner = self.find(cell, now);
            let place = &mut self.places[cell];
            if place.connection.as_ref().is_some_and(|connection| owner != Some(connection.server)) {
                place.connection = None;
                place.retry_at = now;
            }
            if place.connection.is_none() && place.retry_at <= now {
                place.retry_at = now + RETRY / 2 + random.below(RETRY as usize) as u64;
                if let Some(server) = owner {
                    self.meet(&mut servers[server], server, cell, now, random);
                }
            }
            self.broken |= self.places[cell].connection.is_none();
        }
    }

    /// As `Cluster::open`: the master proves that replicas follow it.
    fn open(&mut self, servers: &mut [Server], server: usize, now: u64) {
        let following: Vec<usize> = servers[server].replicas.keys().copied().collect();
        let master = &mut servers[server];
        if !master.runs(now) || master.follows.is_some() {
            return;
        }
        let Ok(process) = process(&master.info(now), true) else { return };
        let Ok(mut quorum) = Quorum::new(1, 10, 2) else { return };
        let _ = quorum.heard(&master.info(now), at(now), at(now));
        if let Some(&cell) = master.cells.keys().next() {
            master.execute(cell, None, now);
        }
        for replica in following {
            if servers[replica].runs(now) && servers[replica].follows == Some(server) {
                servers[server].confirmed_by(replica);
            }
        }
        let master = &servers[server];
        if quorum.heard(&master.info(now), at(now), at(now)).is_ok() {
            let number = self.number();
            self.links.insert(server, Link { number, process, quorum });
            self.map.heard(&server.to_string().into(), at(now), master.report.clone());
        }
    }

    /// As `Connection::meet` and `Share::attempt`.
    fn meet(&mut self, master: &mut Server, server: usize, cell: usize, now: u64, random: &mut Random) {
        let number = self.number();
        let (Some(link), place) = (self.links.get(&server), &mut self.places[cell]) else { return };
        if !master.runs(now) || process(&master.info(now), true).ok().as_ref() != Some(&link.process) {
            return;
        }
        let Some((true, keys)) = master.cells.get_mut(&cell) else { return };
        if place.owed.is_too_many() || !Identity::is_of(&keys.mark, &link.process) {
            keys.mark = format!("{}/{:016x}", link.process, random.next()).into();
        }
        let identity = Identity::new(keys.mark.to_string());
        let overlap = Duration::from_secs(3 * LEASE.as_secs());
        let names = Names { identity, overlap, scope: String::new() };
        let owed = place.owed.clone();
        for &request in owed.requests() {
            let question = Question::new(request, &names, Duration::ZERO).unwrap();
            master.execute(cell, Some(&question.command), now);
        }
        place.owed.settle(&owed);
        let since = place.memories.met(&names.identity, at(now));
        place.connection = Some(Connection { number, server, link: link.number, names, since });
    }
}
