//! A server of the simulated cluster: as much of Redis as the members see.

use super::{Flight, RTT_HALF, UNIX_MS};
use crate::map::Report;
use crate::question::Question;
use redis::{Arg, Cmd};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// The keys of a cell.
#[derive(Clone)]
pub(super) struct Cell {
    pub mark: Arc<str>,
    /// Until when each id is kept by the server's clock, milliseconds, and when it was set, microseconds.
    pub ids: HashMap<u128, (u64, u64)>,
}

pub(super) struct Server {
    /// The number of its process.
    pub run: u64,
    pub follows: Option<usize>,
    pub dead: bool,
    pub paused_until: u64,
    offset: u64,
    pub joins: u64,
    /// The offset that each replica has confirmed.
    pub replicas: BTreeMap<usize, u64>,
    /// The cells that it has by its own map. A cell that is being moved is `false`.
    pub cells: BTreeMap<usize, (bool, Cell)>,
    clock_ms: i64,
    /// Microseconds for one question.
    service: f64,
    queue: VecDeque<(u64, Ask)>,
    free_at: f64,
    pub answers: VecDeque<(u64, CellAnswer)>,
    pub report: Report,
    /// A new map that it learns of at this time.
    pub learns: Option<(u64, Report)>,
    pub busy: f64,
}

pub(super) struct Ask {
    pub number: u64,
    pub member: usize,
    pub cell: usize,
    pub sent: u64,
    /// `None` is a write that only keeps the lease.
    pub question: Option<Question>,
    pub flight: Option<Flight>,
    /// The link that it was asked on.
    pub link: u64,
}

pub(super) struct CellAnswer {
    pub ask: Ask,
    pub info: String,
    /// `None` if the server does not have the cell: MOVED or ASK.
    pub reply: Option<(Option<String>, Arc<str>)>,
}

impl Server {
    pub(super) fn new(run: u64, follows: Option<usize>, clock_ms: i64, service: f64) -> Self {
        Self {
            run,
            follows,
            dead: false,
            paused_until: 0,
            offset: 1,
            joins: 2,
            replicas: BTreeMap::new(),
            cells: BTreeMap::new(),
            clock_ms,
            service,
            queue: VecDeque::new(),
            free_at: 0.0,
            answers: VecDeque::new(),
            report: Report::default(),
            learns: None,
            busy: 0.0,
        }
    }

    pub(super) fn runs(&self, now: u64) -> bool {
        !self.dead && now >= self.paused_until
    }

    fn unix_ms(&self, now: u64) -> u64 {
        (UNIX_MS + now / 1000).saturating_add_signed(self.clock_ms)
    }

    /// What `INFO server replication stats` says.
    pub(super) fn info(&self, now: u64) -> String {
        use std::fmt::Write as _;
        let Self { run, offset, joins, .. } = self;
        let role = if self.follows.is_some() { "slave" } else { "master" };
        let time = self.unix_ms(now) * 1000;
        let mut text = format!(
            "run_id:{run:016x}\r\nserver_time_usec:{time}\r\nrole:{role}\r\nmaster_replid:{run:016x}\r\nevicted_keys:0\r\n\
             sync_full:{joins}\r\nsync_partial_ok:0\r\nmaster_repl_offset:{offset}\r\n"
        );
        for (n, confirmed) in self.replicas.values().enumerate() {
            let _ = write!(text, "slave{n}:ip=10.0.0.1,port=6379,state=online,offset={confirmed},lag=0\r\n");
        }
        text
    }

    /// The replicas that run confirm what they have, at most what was written.
    pub(super) fn confirmed_by(&mut self, replica: usize) {
        if let Some(confirmed) = self.replicas.get_mut(&replica) {
            *confirmed = self.offset;
        }
    }

    pub(super) fn asked(&mut self, now: u64, ask: Ask) {
        if !self.dead {
            self.queue.push_back((now + RTT_HALF, ask));
        }
    }

    /// Handles what has arrived, one question after the other.
    pub(super) fn work(&mut self, now: u64) {
        if !self.runs(now) {
            return;
        }
        while self.free_at <= now as f64
            && let Some((arrived, ask)) = self.queue.pop_front_if(|(arrived, _)| *arrived <= now)
        {
            self.free_at = self.free_at.max(arrived.max(self.paused_until) as f64) + self.service;
            self.busy += self.service;
            let done = self.free_at as u64;
            let command = ask.question.as_ref().map(|question| &question.command);
            let reply = self.execute(ask.cell, command, done);
            let info = self.info(done);
            self.answers.push_back((done + RTT_HALF, CellAnswer { ask, info, reply }));
        }
    }

    /// Executes a `SET` as Redis does. `None` if it is not this server's to execute.
    pub(super) fn execute(
        &mut self,
        cell: usize,
        command: Option<&Cmd>,
        now: u64,
    ) -> Option<(Option<String>, Arc<str>)> {
        if self.follows.is_some() {
            return None;
        }
        let clock = self.unix_ms(now);
        let (has, cell) = self.cells.get_mut(&cell)?;
        if !*has {
            return None;
        }
        self.offset += 1;
        let mark = Arc::clone(&cell.mark);
        let Some(command) = command else { return Some((None, mark)) };
        let word = |n| match command.args_iter().nth(n) {
            Some(Arg::Simple(bytes)) => std::str::from_utf8(bytes).unwrap(),
            _ => panic!("a word is missing"),
        };
        let (key, lasts): (&str, u64) = (word(1), word(4).parse().unwrap());
        let ends = if word(3) == "PXAT" { lasts } else { clock + lasts };
        assert_eq!((word(0), word(5)), ("SET", "NX"));
        let id = u128::from_str_radix(&key[key.len() - 32..], 16).unwrap();
        if cell.ids.get(&id).is_some_and(|(ends, _)| clock < *ends) {
            return Some((None, mark));
        }
        cell.ids.insert(id, (ends, now));
        Some((Some("OK".to_owned()), mark))
    }

    pub(super) fn keys(&self) -> usize {
        self.cells.values().map(|(_, cell)| cell.ids.len()).sum()
    }

    /// It ends, or becomes a replica: what was asked is lost.
    pub(super) fn forget(&mut self) {
        self.cells.clear();
        self.queue.clear();
        self.replicas.clear();
    }
}
