//! The sums over a capture.

use super::data::Kind;
use super::flow::{Contact, Exchange, Flow, Times};
use super::histogram::Histogram;
use crate::frame::FrameEnd;
use crate::table::FlowEnds;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Most servers that are counted one by one. The others are counted together.
const SERVERS: usize = 1024;

/// The connections of a capture.
#[derive(Debug, Clone, Default)]
pub(super) struct Connections {
    /// All.
    pub all: u64,
    /// The capture shows the whole handshake.
    pub opened: u64,
    /// The capture shows the beginning and no answer that completed it.
    pub not_opened: u64,
    /// The capture has only later segments.
    pub begun_before: u64,
    /// The SYN was sent more than once.
    pub syn_repeated: u64,
    /// The capture lacks data in the middle.
    pub with_gaps: u64,
    /// Over IPv6.
    pub v6: u64,
    /// In UDP.
    pub in_udp: u64,
    /// How long clients waited before they sent their last SYN.
    pub syn_wait: Duration,
}

/// The requests of a capture.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    /// First ones of connections.
    pub cold: u64,
    /// Later ones.
    pub warm: u64,
    /// The first ones that the capture shows of connections that began before it.
    pub unknown: u64,
    /// In HTTP in clear, by TLS, and in other protocols.
    pub kinds: [u64; 3],
    /// Those of the cold ones that were in an accepted SYN.
    pub in_syn: u64,
    /// Without an answer in the capture.
    pub unanswered: u64,
    /// Sent before the answer to the request before.
    pub pipelined: u64,
}

/// Sums of times.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    /// Cold requests with a time.
    pub cold: u64,
    /// All requests with a time.
    pub all: u64,
    /// TCP's handshakes that requests waited for.
    pub handshake: Duration,
    /// TLS's handshakes that requests waited for.
    pub tls: Duration,
    /// Cold requests with their handshakes.
    pub cold_time: Duration,
    /// All requests with their handshakes.
    pub all_time: Duration,
}

impl Sums {
    fn add(&mut self, contact: Contact, times: &Times) {
        let whole = times.handshake + times.tls + times.exchange;
        self.all += 1;
        self.all_time += whole;
        if contact == Contact::New {
            self.cold += 1;
            self.cold_time += whole;
            self.handshake += times.handshake;
            self.tls += times.tls;
        }
    }

    /// The handshakes' share of the time of cold requests.
    pub(super) fn cold_share(&self) -> Option<f64> {
        share(self.handshake, self.cold_time)
    }

    /// The handshakes' share of the time of all requests.
    pub(super) fn amortised_share(&self) -> Option<f64> {
        share(self.handshake, self.all_time)
    }
}

fn share(part: Duration, whole: Duration) -> Option<f64> {
    (!whole.is_zero()).then(|| part.div_duration_f64(whole))
}

/// The numbers of one server.
#[derive(Debug, Clone, Default)]
pub(super) struct Server {
    /// Requests on new connections, and on others.
    pub cold: u64,
    /// Requests on connections that had one before.
    pub warm: u64,
    /// Sums of times.
    pub sums: Sums,
}

/// Everything that is counted of a capture. `Display` gives tables and a plot for people, beside the Fast Open paper's numbers.
#[derive(Debug)]
pub struct Tally {
    pub(super) frames: u64,
    /// TCP segments among them.
    pub(super) segments: u64,
    pub(super) connections: Connections,
    pub(super) requests: Requests,
    /// Sums of times.
    pub(super) sums: Sums,
    /// Cold requests' times.
    pub(super) cold: Histogram,
    /// Cold requests' times without TCP's handshake.
    pub(super) without: Histogram,
    /// All requests' times.
    pub(super) all: Histogram,
    servers: HashMap<Option<SocketAddr>, Server>,
}

impl Tally {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            frames: 0,
            segments: 0,
            connections: Connections::default(),
            requests: Requests::default(),
            sums: Sums::default(),
            cold: Histogram::new(),
            without: Histogram::new(),
            all: Histogram::new(),
            servers: HashMap::new(),
        }
    }

    /// The times of all requests.
    #[must_use]
    pub const fn times(&self) -> &Histogram {
        &self.all
    }

    /// Adds a request to this server.
    pub(super) fn request(&mut self, server: FrameEnd, exchange: &Exchange) {
        let requests = &mut self.requests;
        match exchange.contact {
            Contact::New => requests.cold += 1,
            Contact::Reused => requests.warm += 1,
            Contact::Unknown => requests.unknown += 1,
        }
        let [http, tls, other] = &mut requests.kinds;
        *match exchange.kind {
            Kind::Http => http,
            Kind::Tls => tls,
            Kind::Other => other,
        } += 1;
        requests.in_syn += u64::from(exchange.in_syn);
        requests.unanswered += u64::from(!exchange.answered && !exchange.pipelined);
        requests.pipelined += u64::from(exchange.pipelined);
        let known = self.servers.contains_key(&Some(server.address)) || self.servers.len() < SERVERS;
        let server = self.servers.entry(known.then_some(server.address)).or_default();
        match exchange.contact {
            Contact::New => server.cold += 1,
            Contact::Reused => server.warm += 1,
            Contact::Unknown => return,
        }
        let Some(times) = exchange.times else { return };
        server.sums.add(exchange.contact, &times);
        self.sums.add(exchange.contact, &times);
        let without = times.tls + times.exchange;
        self.all.add(without + times.handshake);
        if exchange.contact == Contact::New {
            self.cold.add(without + times.handshake);
            self.without.add(without);
        }
    }

    /// Adds a connection that is over.
    pub(super) fn connection(&mut self, ends: &FlowEnds, flow: &Flow) {
        let connections = &mut self.connections;
        connections.all += 1;
        connections.with_gaps += u64::from(flow.has_gaps());
        connections.in_udp += u64::from(ends.in_udp());
        let Some(client) = flow.client() else {
            connections.begun_before += 1;
            return;
        };
        connections.v6 += u64::from(ends.end(client).address.is_ipv6());
        match flow.opened() {
            Some(_) => connections.opened += 1,
            None => connections.not_opened += 1,
        }
        if let Some(syn) = flow.conversation().half(client).syn
            && syn.sent.again() > 0
        {
            connections.syn_repeated += 1;
            let first = syn.sent.earliest();
            let until = flow.opened().map(|opened| first + opened.took);
            let last = until.and_then(|until| syn.sent.latest_until(until));
            connections.syn_wait += last.map_or(Duration::ZERO, |last| last.saturating_since(first));
        }
    }

    /// The servers with the most requests first. `None` are those that are counted together.
    pub(super) fn servers(&self) -> Vec<(Option<SocketAddr>, &Server)> {
        let mut servers: Vec<_> = self.servers.iter().map(|(address, server)| (*address, server)).collect();
        servers.sort_by_key(|(address, server)| (std::cmp::Reverse(server.cold + server.warm), *address));
        servers
    }

    /// The share of the requests that were on new connections.
    pub(super) fn new_share(&self) -> Option<f64> {
        let Requests { cold, warm, .. } = self.requests;
        (cold + warm > 0).then(|| cold as f64 / (cold + warm) as f64)
    }

    /// The greatest share of the handshake between the 10th and the 90th percentile, and the percentile: how much
    /// shorter cold requests would be without it, percentile by percentile, as in the paper's Figure 2.
    pub(super) fn greatest(&self) -> Option<(f64, u32)> {
        let shares = (10..=90).filter_map(|percent| {
            let at = f64::from(percent) / 100.0;
            let (cold, without) = (self.cold.quantile(at)?, self.without.quantile(at)?);
            (cold > 0.0).then(|| ((1.0 - without / cold).max(0.0), percent))
        });
        shares.max_by(|a, b| a.0.total_cmp(&b.0))
    }
}
