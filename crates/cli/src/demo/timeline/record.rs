//! The record of the packets of one visit.

use super::label::{Connection, LabelPart, read};
use firstflight::Time;
use firstflight_wire::Instant;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Packets recorded of one visit. Those of a first flight and its answer are fewer; a long response has more.
const MOST: usize = 1000;

/// Where a packet begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketPlace {
    Client,
    Resolver,
    NameServer,
    Server,
}

/// A packet between two places. Times are round trips since the visit began.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineHop {
    pub from: PacketPlace,
    pub to: PacketPlace,
    pub sent: f64,
    /// `None`: it was lost.
    pub arrived: Option<f64>,
    pub parts: Vec<LabelPart>,
}

/// Records packets. Clones record into the same list; the default records nothing.
#[derive(Clone, Default)]
pub struct Log(Option<Arc<Mutex<Record>>>);

struct Record {
    time: Time,
    /// Round-trip time between client and server.
    rtt: Duration,
    /// When the present visit began; `None` if its packets are not wanted.
    began: Option<Instant>,
    /// Number of visits so far.
    visits: usize,
    /// The visit to which each connection belongs. The last packets of a connection are sent during the next visit.
    connections: HashMap<Connection, usize>,
    hops: Vec<Recorded>,
    /// The packets on the path, each with its place in `hops`.
    travelling: Vec<(Vec<u8>, usize)>,
}

struct Recorded {
    from: PacketPlace,
    to: PacketPlace,
    sent: Instant,
    arrived: Option<Instant>,
    parts: Vec<LabelPart>,
}

impl Log {
    /// Records with the times of `time`. `rtt` is the round-trip time between client and server.
    pub fn new(time: Time, rtt: Duration) -> Self {
        Self(Some(Arc::new(Mutex::new(Record {
            time,
            rtt,
            began: None,
            visits: 0,
            connections: HashMap::new(),
            hops: Vec::new(),
            travelling: Vec::new(),
        }))))
    }

    fn lock(&self) -> Option<MutexGuard<'_, Record>> {
        self.0.as_ref().map(|record| record.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A visit begins. Its packets are recorded if `wanted`.
    pub fn begin(&self, wanted: bool) {
        if let Some(mut record) = self.lock() {
            record.visits += 1;
            record.began = wanted.then(|| record.time.now());
        }
    }

    /// The visit is over. Returns its packets without those that are still on their way.
    pub fn end(&self) -> Vec<TimelineHop> {
        let Some(mut record) = self.lock() else { return Vec::new() };
        record.travelling.clear();
        let hops = std::mem::take(&mut record.hops);
        let Some(began) = record.began.take() else { return Vec::new() };
        let (now, rtt) = (record.time.now(), record.rtt);
        let known = hops.into_iter().filter(|hop| hop.arrived.is_some() || now > hop.sent + rtt / 2);
        let at = |moment: Instant| (moment - began).div_duration_f64(rtt);
        known
            .map(|hop| TimelineHop {
                from: hop.from,
                to: hop.to,
                sent: at(hop.sent),
                arrived: hop.arrived.map(at),
                parts: hop.parts,
            })
            .collect()
    }

    /// A packet leaves the client or the server for the other one.
    pub fn sent(&self, from: PacketPlace, packet: &[u8]) {
        if let Some(mut record) = self.lock() {
            record.handle_sent(from, packet);
        }
    }

    /// A packet arrives at the client or the server.
    pub fn arrived(&self, packet: &[u8]) {
        if let Some(mut record) = self.lock() {
            record.handle_arrived(packet);
        }
    }

    /// A message leaves `from` now, and arrives after `takes`.
    pub fn travels(&self, from: PacketPlace, to: PacketPlace, takes: Duration, part: LabelPart) {
        if let Some(mut record) = self.lock() {
            let sent = record.time.now();
            record.push(Recorded { from, to, sent, arrived: Some(sent + takes), parts: vec![part] });
        }
    }
}

impl Record {
    fn handle_sent(&mut self, from: PacketPlace, packet: &[u8]) {
        let of_client = from == PacketPlace::Client;
        let Some((connection, parts)) = read(packet, of_client) else { return };
        let visits = self.visits;
        if *self.connections.entry(connection).or_insert(visits) != visits {
            return;
        }
        let (at, sent) = (self.hops.len(), self.time.now());
        let to = if of_client { PacketPlace::Server } else { PacketPlace::Client };
        if self.push(Recorded { from, to, sent, arrived: None, parts }) {
            self.travelling.push((packet.to_vec(), at));
        }
    }

    /// The path changes no packet, so the packet is known by its bytes. A lost one may have been sent again with the
    /// same bytes: what arrives is the last one that had the time to.
    fn handle_arrived(&mut self, packet: &[u8]) {
        let now = self.time.now();
        let due = |hop: usize| self.hops.get(hop).is_some_and(|hop| hop.sent + self.rtt / 2 <= now);
        let found = self.travelling.iter().rposition(|(bytes, hop)| bytes == packet && due(*hop));
        let Some(at) = found else { return };
        let (_, hop) = self.travelling.remove(at);
        if let Some(hop) = self.hops.get_mut(hop) {
            hop.arrived = Some(now);
        }
    }

    /// Records a packet, if it is wanted and there is room.
    fn push(&mut self, hop: Recorded) -> bool {
        let wanted = self.began.is_some() && self.hops.len() < MOST;
        if wanted {
            self.hops.push(hop);
        }
        wanted
    }
}
