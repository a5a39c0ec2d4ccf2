//! Writes one line for each request to stdout, as text or as JSON.

use super::{counters, names};
use crate::conn::Conn;
use crate::observed::Served;
use crate::output;
use firstflight::{Counters, StoreCounters, Stream, Way};
use firstflight_http::text::Safe;
use hyper::{Method, Request, StatusCode};
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Instant, SystemTime};

/// The format of the log.
#[derive(Clone, Copy)]
pub struct Log {
    json: bool,
    /// Whether requests have lines.
    requests: bool,
    /// Of the URLs that are served.
    scheme: &'static str,
}

/// One line of JSON.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Event<'a> {
    Listening {
        message: String,
    },
    Zone {
        message: String,
    },
    Names(names::Report),
    Request(Line<'a>),
    /// A sealed request that was stopped: it has run, or may have. There is no line of a request.
    Stopped(Stopped),
    Counters(counters::Report),
    /// What was accepted on the kernel's TCP. [`Event::Counters`] is then about UDP.
    Tcp(Tcp),
    Store(counters::Store),
}

/// What was accepted on the kernel's TCP.
#[derive(Clone, Copy, Default, Serialize)]
pub struct Tcp {
    connections: u64,
    /// Those whose first flight was accepted.
    accepted: u64,
}

impl Tcp {
    /// Counts a connection, if it is of the kernel.
    pub fn count(&mut self, stream: &Stream) {
        if stream.way() == Way::Kernel {
            self.connections += 1;
            self.accepted += u64::from(stream.outcome().is_accepted());
        }
    }
}

/// A sealed request that was not given to the server.
#[derive(Serialize)]
struct Stopped {
    peer: SocketAddr,
    seal: &'static str,
    seal_reason: &'static str,
}

/// The log line of a request.
#[derive(Serialize)]
struct Line<'a> {
    peer: SocketAddr,
    method: &'a str,
    path: &'a str,
    /// `null` if the request ended without an answer.
    status: Option<u16>,
    /// Bytes of the body that were sent.
    bytes: u64,
    outcome: &'static str,
    reason: Option<&'static str>,
    /// Bytes of the connection's stream that arrived before its handshake was complete.
    early_bytes: u32,
    /// What became of the sealed flight that the connection began with, and why. `null` if it began in clear.
    seal: Option<&'static str>,
    seal_reason: Option<&'static str>,
    duration_ms: f64,
}

impl Log {
    /// Writes JSON if `json` is set, text otherwise; with a line for each request, if `requests` is set.
    pub fn new(json: bool, requests: bool) -> Self {
        Self { json, requests, scheme: "http" }
    }

    /// The same log, of a server with TLS.
    pub const fn with_tls(mut self, tls: bool) -> Self {
        if tls {
            self.scheme = "https";
        }
        self
    }

    /// Logs that the server is ready.
    pub fn listening(self, at: SocketAddr) {
        self.ready(format!("listening on {}://{at}", self.scheme));
    }

    /// Logs that the server is ready on the kernel's TCP, and perhaps in UDP.
    pub fn listening_by_system(self, at: SocketAddr, grants_cookies: bool, udp: Option<u16>) {
        let fast_open = if grants_cookies { "with" } else { "without" };
        let udp = udp.map_or("no UDP".to_owned(), |port| format!("UDP port {port}"));
        self.ready(format!("listening on {}://{at} (TCP {fast_open} Fast Open, {udp})", self.scheme));
    }

    fn ready(self, message: String) {
        if self.json {
            output::event(SystemTime::now(), &Event::Listening { message });
        } else {
            output::line(&message);
        }
    }

    /// Logs that the name server in this server is ready.
    pub fn naming(self, says: Vec<String>) {
        for message in says {
            if self.json {
                output::event(SystemTime::now(), &Event::Listening { message });
            } else {
                output::line(&message);
            }
        }
    }

    /// Logs that a zone of the name server was read again.
    pub fn zone(self, message: String) {
        if self.json {
            output::event(SystemTime::now(), &Event::Zone { message });
        } else {
            output::line(&message);
        }
    }

    /// Logs that a sealed request was stopped.
    pub fn stopped(self, peer: SocketAddr, seal: firstflight_tls::ServedSeal) {
        let (seal, seal_reason) = (seal.outcome.name(), seal.reason);
        if self.json {
            output::event(SystemTime::now(), &Event::Stopped(Stopped { peer, seal, seal_reason }));
        } else {
            output::line(&format_args!("{peer} sealed request stopped, {seal} ({seal_reason})"));
        }
    }

    /// Starts the entry of a request.
    pub fn begin<B>(self, peer: SocketAddr, watch: Served, request: &Request<B>) -> Entry {
        let line = || UnderWay {
            log: self,
            peer,
            watch,
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            status: None,
            bytes: 0,
            at: SystemTime::now(),
            began: Instant::now(),
        };
        Entry(self.requests.then(line))
    }

    /// Logs the results of the questions to the farm's store.
    pub fn store(self, counters: &StoreCounters) {
        let report = counters::Store::new(counters);
        if self.json {
            output::event(SystemTime::now(), &Event::Store(report));
        } else {
            output::line(&report);
        }
    }

    /// Logs the counters of the name server.
    pub fn names(self, report: names::Report) {
        if self.json {
            output::event(SystemTime::now(), &Event::Names(report));
        } else {
            output::line(&report);
        }
    }

    /// Logs what was accepted on the kernel's TCP, and the final counters of UDP, if there was any.
    pub fn by_system(self, tcp: Tcp, udp: Option<(&Counters, usize)>) {
        if self.json {
            output::event(SystemTime::now(), &Event::Tcp(tcp));
        } else {
            let Tcp { connections, accepted } = tcp;
            output::line(&format_args!("TCP: {connections} connections, {accepted} first flights accepted"));
        }
        if let Some((counters, cut_off)) = udp.filter(|(counters, _)| counters.packets_in > 0) {
            if !self.json {
                output::line(&"UDP:");
            }
            self.counters(counters, cut_off);
        }
    }

    /// Logs the final counters. `cut_off` connections had not closed in order.
    pub fn counters(self, counters: &Counters, cut_off: usize) {
        let report = counters::Report::new(counters, cut_off);
        if self.json {
            output::event(SystemTime::now(), &Event::Counters(report));
        } else {
            output::line(&report);
        }
    }
}

/// The entry of a request, which is empty if requests have no lines. Dropping it writes its line.
pub struct Entry(Option<UnderWay>);

struct UnderWay {
    log: Log,
    peer: SocketAddr,
    watch: Served,
    method: Method,
    path: String,
    status: Option<StatusCode>,
    bytes: u64,
    at: SystemTime,
    began: Instant,
}

impl Entry {
    /// Sets the status.
    pub fn answered(&mut self, status: StatusCode) {
        if let Self(Some(line)) = self {
            line.status = Some(status);
        }
    }

    /// Counts a part of the body that is sent.
    pub fn sent(&mut self, bytes: usize) {
        if let Self(Some(line)) = self {
            line.bytes += bytes as u64;
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let outcome = self.watch.outcome();
        let (seal, seal_reason) = self.watch.conn(Conn::seal).unzip();
        let line = Line {
            peer: self.peer,
            method: self.method.as_str(),
            path: &self.path,
            status: self.status.map(|status| status.as_u16()),
            bytes: self.bytes,
            outcome: outcome.as_str(),
            reason: outcome.reason().map(|reason| reason.as_str()),
            early_bytes: self.watch.conn(Conn::early_bytes),
            seal,
            seal_reason,
            duration_ms: output::millis(self.began.elapsed()),
        };
        if self.log.json {
            output::event(self.at, &Event::Request(line));
        } else {
            output::line(&line);
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.peer, Safe(Some(self.method)), Safe(Some(self.path)))?;
        match self.status {
            Some(status) => write!(f, "{status}")?,
            None => f.write_str("no answer")?,
        }
        write!(f, " {} B, {}", self.bytes, self.outcome)?;
        if let Some(reason) = self.reason {
            write!(f, " ({reason})")?;
        }
        write!(f, ", {} B early", self.early_bytes)?;
        if let (Some(seal), Some(reason)) = (self.seal, self.seal_reason) {
            write!(f, ", seal {seal} ({reason})")?;
        }
        write!(f, ", {:.1} ms", self.duration_ms)
    }
}
