//! What happened when in one load: lookups, connections and requests.

use firstflight_wire::Instant;
use std::time::Duration;

/// The lookup of a host's address.
#[derive(Debug, Clone, Copy, Default)]
pub struct Lookup {
    pub sent: Option<Instant>,
    pub answered: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
pub struct OpenedConnection {
    pub host: usize,
    /// The first packet was sent.
    pub began: Instant,
    /// A request could leave.
    pub open: Option<Instant>,
    pub closed: Option<Instant>,
    /// Requests that it carried.
    pub requests: usize,
}

/// A request and its resource.
#[derive(Debug, Clone, Copy, Default)]
pub struct Request {
    /// The browser found its name.
    pub known: Option<Instant>,
    /// It was given to a connection.
    pub asked: Option<Instant>,
    /// The number of this connection.
    pub connection: Option<usize>,
    /// The first byte of the body arrived.
    pub first: Option<Instant>,
    /// The last byte arrived.
    pub loaded: Option<Instant>,
    /// The main thread began to process it.
    pub work: Option<Instant>,
    /// It was processed.
    pub done: Option<Instant>,
}

/// All of one load.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// When the load began.
    pub began: Instant,
    pub lookups: Vec<Lookup>,
    pub connections: Vec<OpenedConnection>,
    pub requests: Vec<Request>,
}

impl Trace {
    /// Nothing has happened yet.
    pub fn new(hosts: usize, resources: usize) -> Self {
        Self {
            began: Instant::ZERO,
            lookups: vec![Lookup::default(); hosts],
            connections: Vec::new(),
            requests: vec![Request::default(); resources],
        }
    }

    /// Sets when the load began. The document's address was known then.
    pub fn since(mut self, began: Instant) -> Self {
        self.note(0, |document| document.known = Some(began));
        Self { began, ..self }
    }

    /// Time of an event since the load began.
    pub fn at(&self, event: Instant) -> Duration {
        event - self.began
    }

    /// A lookup was sent, perhaps again.
    pub fn look_up(&mut self, host: usize, now: Instant) {
        if let Some(lookup) = self.lookups.get_mut(host) {
            lookup.sent.get_or_insert(now);
        }
    }

    /// An address arrived.
    pub fn resolved(&mut self, host: usize, now: Instant) {
        if let Some(lookup) = self.lookups.get_mut(host) {
            lookup.answered.get_or_insert(now);
        }
    }

    /// A connection begins. Returns its number.
    pub fn connect(&mut self, host: usize, now: Instant) -> usize {
        self.connections.push(OpenedConnection { host, began: now, open: None, closed: None, requests: 0 });
        self.connections.len() - 1
    }

    /// A connection can carry requests.
    pub fn open(&mut self, number: usize, now: Instant) {
        if let Some(connection) = self.connections.get_mut(number) {
            connection.open.get_or_insert(now);
        }
    }

    /// A connection is over.
    pub fn close(&mut self, number: usize, now: Instant) {
        if let Some(connection) = self.connections.get_mut(number) {
            connection.closed = Some(now);
        }
    }

    /// A request is given to a connection.
    pub fn ask(&mut self, request: usize, connection: usize, now: Instant) {
        if let Some(opened) = self.connections.get_mut(connection) {
            opened.requests += 1;
        }
        self.note(request, |request| {
            let known = request.known;
            *request =
                Request { known, asked: Some(now), connection: Some(connection), ..Request::default() };
        });
    }

    /// Changes what is known of a request.
    pub fn note(&mut self, request: usize, change: impl FnOnce(&mut Request)) {
        if let Some(request) = self.requests.get_mut(request) {
            change(request);
        }
    }
}
