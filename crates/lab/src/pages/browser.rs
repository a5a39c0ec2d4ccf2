//! The model of a browser: what it requests when, over which connections, and when the page has loaded.
//!
//! The document is scanned as it arrives. A script makes known what it names when it was processed. One main thread
//! processes scripts and style sheets; a script waits for those in front of it, and the parser for the script. The page is
//! laid out when its head is complete: this makes known the images that styles name. `schedule` says which requests go to
//! their hosts' connections. At most six connections to a host; requests that find none wait.

mod backup;
mod connection;
mod document;
mod lookups;
mod main_thread;
mod schedule;

use super::inside::Sealer;
use super::page::{Kind, Page};
use super::server::{PART, Question};
use super::trace::Trace;
use super::way::{LoadWay, PacketOpening, sizes};
use crate::pair::Pair;
use connection::{Arrived, Connection};
use firstflight_stack::ConnectConfig;
use firstflight_wire::Instant;
use lookups::Lookup;
use main_thread::MainThread;
use schedule::Schedule;
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::time::Duration;

/// Connections to one host.
const CONNECTIONS: usize = 6;
/// The number of an answer to a ClientHello, and of the client's Finished.
const HELLO: u32 = u32::MAX;
/// How long a server takes for its part of a TLS handshake.
const SIGNS: Duration = Duration::from_millis(1);

/// How far a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ResourceStage {
    /// Nothing has named it.
    Hidden,
    /// Something has named it.
    Known,
    /// It has passed the first gate of the schedule.
    Queued,
    /// It has passed both, and waits for a connection.
    Started,
    /// It is requested, on a connection that exists.
    Asked,
    /// All of it is there, and waits for the main thread.
    Loaded,
    /// Processed.
    Done,
}

/// What differs from run to run: how long servers think, and how long the main thread works.
#[derive(Debug)]
pub struct Jitter {
    /// For each resource.
    pub think: Vec<Duration>,
    /// For each resource.
    pub work: Vec<Duration>,
    /// For each resource, among images that are laid out at once.
    pub places: Vec<u32>,
    /// For each host, from 0 to 1: a guess that it is needed is right if this is below the share of hits.
    pub guess: Vec<f64>,
}

/// What a load costs beside the page: bytes, and the browser's own time.
#[derive(Debug, Clone, Copy)]
pub struct Overhead {
    /// A request, bytes.
    pub request: usize,
    /// What is in front of a response's body, bytes.
    pub fields: usize,
    /// Until the first packet.
    pub setup: Duration,
    /// From the document's first byte until the browser scans it.
    pub commit: Duration,
}

/// What a page took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub connections: usize,
    /// Of these, second connections where the first was slow.
    pub backups: usize,
    pub requests: usize,
    pub lookups: usize,
}

/// A browser that loads one page.
pub struct Browser<'a> {
    page: &'a Page,
    way: LoadWay,
    jitter: &'a Jitter,
    overhead: Overhead,
    /// When the document may be looked up, and scanned.
    ready: [Option<Instant>; 2],
    addresses: &'a [SocketAddr],
    connect: Box<dyn Fn(Instant) -> ConnectConfig + 'a>,
    /// For first flights inside lookups.
    sealer: Option<Sealer>,
    stages: Vec<ResourceStage>,
    /// Body bytes that have arrived.
    received: Vec<usize>,
    schedule: Schedule,
    /// The head is complete, and the page laid out.
    laid_out: bool,
    lookups: Vec<Lookup>,
    /// Hosts to which a connection is opened before a request.
    guessed: Vec<bool>,
    connections: Vec<Connection>,
    /// For each host, when another connection is opened if the first is not open by then.
    backups: Vec<Option<Instant>>,
    main: MainThread,
    pub counts: Counts,
    pub trace: Trace,
}

impl<'a> Browser<'a> {
    /// A load that begins at `began`. `connect` makes the settings of connections; `addresses` are the hosts'.
    pub fn new(
        page: &'a Page,
        way: LoadWay,
        jitter: &'a Jitter,
        overhead: Overhead,
        began: Instant,
        addresses: &'a [SocketAddr],
        connect: impl Fn(Instant) -> ConnectConfig + 'a,
    ) -> Self {
        let count = page.resources.len();
        let mut stages = vec![ResourceStage::Hidden; count];
        let trace = Trace::new(page.hosts, count);
        if let Some(document) = stages.first_mut() {
            *document = ResourceStage::Known;
        }
        Self {
            page,
            way,
            jitter,
            overhead,
            ready: [Some(began + overhead.setup), None],
            addresses,
            connect: Box::new(connect),
            sealer: None,
            stages,
            received: vec![0; count],
            schedule: Schedule::new(page),
            laid_out: false,
            lookups: vec![Lookup::None; addresses.len()],
            guessed: vec![false; addresses.len()],
            connections: Vec::new(),
            backups: vec![None; page.hosts],
            main: MainThread::default(),
            counts: Counts::default(),
            trace,
        }
    }

    /// With `sealer`, a host's first request travels inside the lookup, if the way says so.
    pub fn seal(&mut self, sealer: Sealer) {
        self.sealer = (self.way.opening == PacketOpening::AsapInside).then_some(sealer);
    }

    /// The `load` event: everything is there and processed.
    pub fn has_loaded(&self) -> bool {
        self.stages.iter().all(|stage| *stage == ResourceStage::Done)
    }

    /// When [`Browser::run`] must be called.
    pub fn wake(&self) -> Option<Instant> {
        let lookups = self.lookups.iter().filter_map(|lookup| match lookup {
            Lookup::Asked { again, .. } => Some(*again),
            _ => None,
        });
        let backups = self.backups.iter().flatten().copied();
        lookups.chain(self.main.busy_until()).chain(backups).chain(self.ready.into_iter().flatten()).min()
    }

    /// An address has arrived.
    pub fn resolved(&mut self, host: usize, net: &mut Pair) {
        let Some(lookup) = self.lookups.get_mut(host) else { return };
        if !matches!(std::mem::replace(lookup, Lookup::Known), Lookup::Known) {
            self.trace.resolved(host, net.now);
            let of_host = self.connections.iter().filter(|connection| connection.host == host);
            of_host.for_each(|connection| connection.resolved(self.addresses[host].ip(), net));
            if self.guessed[host] {
                self.open_idle(host, net);
            }
        }
    }

    /// Reads, processes, and requests.
    pub fn run(&mut self, net: &mut Pair) {
        let now = net.now;
        let later = |at: Option<Instant>| at.filter(|at| *at > now);
        self.ready[0] = later(self.ready[0]);
        if self.ready[0].is_some() {
            return;
        }
        self.read(net);
        if self.ready[1].is_some() {
            self.ready[1] = later(self.ready[1]);
            self.scan(0, now);
        }
        self.process(net.now);
        self.request(net);
        self.look_up_again(net);
    }

    // --- what arrives ------------------------------------------------------------------------------

    fn read(&mut self, net: &mut Pair) {
        let mut connections = std::mem::take(&mut self.connections);
        let now = net.now;
        connections.retain_mut(|connection| {
            let gone = connection.poll(net, self.way, |arrived| self.arrived(arrived, now));
            if connection.is_open() {
                self.trace.open(connection.number, now);
            }
            if gone {
                self.trace.close(connection.number, now);
                for number in connection.asked.drain(..) {
                    if let Some(stage) =
                        self.stages.get_mut(number).filter(|stage| **stage == ResourceStage::Asked)
                    {
                        *stage = ResourceStage::Started;
                    }
                    if let Some(received) = self.received.get_mut(number) {
                        *received = 0;
                    }
                }
            }
            !gone
        });
        self.connections = connections;
    }

    /// Takes a piece of a body. Returns whether that was all of it.
    fn arrived(&mut self, arrived: Arrived, now: Instant) -> bool {
        let Arrived { number, bytes } = arrived;
        let Some(resource) = self.page.resources.get(number) else { return false };
        self.received[number] += bytes;
        self.trace.note(number, |request| _ = request.first.get_or_insert(now));
        if number == 0 && self.received[0] == bytes {
            self.ready[1] = Some(now + self.overhead.commit);
        }
        if resource.kind == Kind::Html {
            self.scan(number, now);
        }
        if self.received[number] < resource.size {
            return false;
        }
        self.trace.note(number, |request| request.loaded = Some(now));
        if resource.kind == Kind::Image {
            self.done(number, now);
        } else {
            self.stages[number] = ResourceStage::Loaded;
        }
        true
    }

    /// Nothing is left to do for a resource.
    fn done(&mut self, number: usize, now: Instant) {
        self.stages[number] = ResourceStage::Done;
        self.trace.note(number, |request| request.done = Some(now));
        self.reveal(number, 1.0, now);
    }

    fn process(&mut self, now: Instant) {
        loop {
            while let Some(number) = self.main.finished(now) {
                self.done(number, now);
            }
            if self.main.busy_until().is_some() {
                return;
            }
            let Some(next) = (0..self.stages.len()).find(|number| self.may_run(*number)) else { return };
            self.main.begin(next, now + self.jitter.work[next]);
            self.trace.note(next, |request| request.work = Some(now));
        }
    }

    // --- what is requested --------------------------------------------------------------------------

    fn request(&mut self, net: &mut Pair) {
        // The network has a free connection's next request before the main thread does more.
        self.give(net);
        if self.lay_out(net.now) {
            self.give(net);
        }
    }

    /// Gives requests to connections.
    fn give(&mut self, net: &mut Pair) {
        // In HTTP/2 nothing is held back: the server has the order.
        if self.way.multiplexed {
            let known = self.schedule.queue(&self.stages, ResourceStage::Known);
            known.into_iter().for_each(|number| self.stages[number] = ResourceStage::Started);
        }
        let body = self.has_body();
        self.schedule.pass(&mut self.stages, body);
        self.schedule.start(self.page, &mut self.stages);
        let mut waiting = vec![0; self.page.hosts];
        for number in self.schedule.queue(&self.stages, ResourceStage::Started) {
            // A multiplexed connection may have taken it along.
            if self.stages[number] == ResourceStage::Started {
                let host = self.page.resources[number].host;
                // One that takes a free connection does not wait for another.
                waiting[host] += usize::from(!self.place(number, host, waiting[host] + 1, net));
            }
        }
        self.back_up(&waiting, net);
    }

    /// Opens a connection without a request.
    fn open_idle(&mut self, host: usize, net: &mut Pair) {
        let hello = self.way.hello().map(|len| self.hello(len)).unwrap_or_default();
        let (config, remote) = ((self.connect)(net.now), self.addresses[host]);
        let opened = Connection::open(net, (host, remote), &config, self.way, hello, &[]);
        if let Some(mut connection) = opened {
            connection.number = self.trace.connect(host, net.now);
            self.counts.connections += 1;
            self.connections.push(connection);
        }
    }

    /// Gives the request to a connection that is free, or opens one. `waiting` requests of the host have none,
    /// including this one. Returns whether it took a free one.
    fn place(&mut self, number: usize, host: usize, waiting: usize, net: &mut Pair) -> bool {
        self.watch(host, net.now);
        if !self.is_resolved(host) {
            self.look_up(number, host, net);
            return false;
        }
        let multiplexed = self.way.multiplexed;
        let free = |(_, c): &(usize, &Connection)| {
            c.host == host && c.is_open() && (multiplexed || c.asked.is_empty())
        };
        // The one that was used last; else the oldest.
        let free = self.connections.iter().enumerate().filter(free);
        let chosen = free.max_by_key(|(at, connection)| (connection.served, Reverse(*at)));
        if let Some((at, _)) = chosen {
            let question = self.question(number, usize::MAX);
            if let Some(connection) = self.connections.get_mut(at) {
                connection.ask(number, &question, net);
                self.trace.ask(number, connection.number, net.now);
                self.stages[number] = ResourceStage::Asked;
            }
            return true;
        }
        let of_host = self.connections.iter().filter(|connection| connection.host == host);
        let (all, opening) =
            of_host.fold((0, 0), |(all, opening), c| (all + 1, opening + usize::from(!c.is_open())));
        if all < if multiplexed { 1 } else { CONNECTIONS } && opening < waiting {
            self.open(number, host, net);
        }
        false
    }

    fn open(&mut self, number: usize, host: usize, net: &mut Pair) {
        let binds = self.way.binds_early() && !self.way.waits_for_flight();
        let mut requests = Vec::new();
        if binds {
            requests.push(number);
            if self.way.multiplexed {
                let known = (0..self.stages.len())
                    .filter(|n| *n != number && self.stages[*n] == ResourceStage::Started);
                requests.extend(known.filter(|n| self.page.resources[*n].host == host));
            }
        }
        let questions: Vec<Vec<u8>> =
            requests.iter().map(|number| self.question(*number, usize::MAX)).collect();
        let hello = self.way.hello().map(|len| self.hello(len)).unwrap_or_default();
        let config = (self.connect)(net.now);
        let remote = self.addresses[host];
        let opened = Connection::open(net, (host, remote), &config, self.way, hello, &questions);
        // Without a port or memory the request waits for another connection.
        let Some(mut connection) = opened else { return };
        connection.number = self.trace.connect(host, net.now);
        for number in &requests {
            self.stages[*number] = ResourceStage::Asked;
            self.trace.ask(*number, connection.number, net.now);
        }
        connection.asked = requests;
        self.counts.connections += 1;
        self.connections.push(connection);
    }

    /// The bytes of a request. The server acts on the first `enough`.
    fn question(&mut self, number: usize, enough: usize) -> Vec<u8> {
        let resource = &self.page.resources[number];
        let record = if self.way.hello().is_some() { sizes::RECORD } else { 0 };
        // HPACK's table holds the fields after the first request.
        let compressed = self.way.multiplexed && number > 0;
        let (len, fields) = if compressed {
            (sizes::COMPRESSED, sizes::COMPRESSED_FIELDS)
        } else {
            (self.overhead.request, self.overhead.fields)
        };
        self.counts.requests += 1;
        let question = Question {
            len: len + record,
            number: number as u32,
            body: Some(resource.size),
            // The head of the answer's first part is among them.
            fields: fields + record - PART,
            think: self.jitter.think[number],
            urgency: self.schedule.priority(number) as u8,
            enough: enough.min(len + record),
        };
        question.bytes()
    }

    fn hello(&self, len: usize) -> Vec<u8> {
        let body = Some(self.way.flight());
        Question { len, number: HELLO, body, fields: 0, think: SIGNS, urgency: 0, enough: len }.bytes()
    }
}

/// The client's Finished, which nothing answers.
fn finished() -> Vec<u8> {
    let (len, think) = (sizes::FINISHED, Duration::ZERO);
    Question { len, number: HELLO, body: None, fields: 0, think, urgency: 0, enough: len }.bytes()
}

/// Whether a connection of this way carries data before it is open.
const fn carries_data(way: LoadWay) -> bool {
    !matches!(way.opening, PacketOpening::Handshake)
}
