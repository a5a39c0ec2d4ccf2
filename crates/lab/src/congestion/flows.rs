//! Bulk flows from one stack to another over an emulated bottleneck.

use crate::pair::Pair;
use firstflight_link::path::{Duplex, PathConfig, PathError};
use firstflight_stack::{
    Config, ConnId, ConnectConfig, ConnectError, ListenConfig, ListenError, ListenerId, Stack,
};
use firstflight_tcp::congestion::Algorithm;
use firstflight_wire::Instant;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const SENDER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const RECEIVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 80);
/// How often the applications run and the queue is measured.
const SLICE: Duration = Duration::from_millis(5);

/// Errors before the measurement.
#[derive(Debug, thiserror::Error)]
pub enum MeasureFailed {
    /// The path's settings are not valid.
    #[error("{0}")]
    Path(PathError),
    /// The receiver cannot listen.
    #[error("{0}")]
    Listen(ListenError),
    /// The sender cannot connect.
    #[error("{0}")]
    Connect(ConnectError),
}

/// The measurements of a time span.
#[derive(Debug)]
pub struct SpanMeasurements {
    /// Mbit/s of payload for each flow.
    pub rates: Vec<f64>,
    /// Mean queueing delay at the bottleneck.
    pub queue: Duration,
    /// The share of retransmitted segments, over all flows.
    pub again: f64,
}

impl SpanMeasurements {
    /// Jain's index of fairness.
    pub fn fairness(&self) -> f64 {
        let (sum, squares) = self.rates.iter().fold((0.0, 0.0), |(s, q), r| (s + r, q + r * r));
        if squares == 0.0 { 0.0 } else { sum * sum / (self.rates.len() as f64 * squares) }
    }
}

struct Flow {
    sender: ConnId,
    receiver: Option<ConnId>,
    /// Bytes that the receiver has read.
    read: u64,
}

/// Flows over one bottleneck.
pub struct Flows {
    /// The client sends, the server receives.
    pair: Pair,
    listener: ListenerId,
    flows: Vec<Flow>,
}

impl Flows {
    /// Starts without flows. The return path is not limited.
    pub fn new(path: PathConfig, seed: u64, pacing: bool) -> Result<Self, MeasureFailed> {
        let back = path.clone().rate_bits_per_s(None).loss(0.0);
        let stack = |ip: IpAddr, end: u8| {
            let mut secret = [end; 32];
            secret[..8].copy_from_slice(&seed.to_le_bytes());
            let mut config = Config::new(vec![ip], secret);
            config.tcp.set_pacing(pacing);
            Stack::new(config, Instant::ZERO)
        };
        let (sender, mut receiver) = (stack(SENDER, 1), stack(RECEIVER.ip(), 2));
        let listener = receiver.listen(ListenConfig::new(RECEIVER)).map_err(MeasureFailed::Listen)?;
        let wire = Duplex::new(path, back, seed).map_err(MeasureFailed::Path)?;
        let pair = Pair::new(Instant::ZERO, (sender, receiver), (wire.a_to_b, wire.b_to_a), ());
        Ok(Self { pair, listener, flows: Vec::new() })
    }

    /// Starts one more flow.
    pub fn start(&mut self, algorithm: Algorithm) -> Result<(), MeasureFailed> {
        let mut tcp = self.pair.client.config().tcp.clone();
        tcp.set_congestion(algorithm);
        let config = ConnectConfig::default().tcp(Some(Arc::new(tcp)));
        let (sender, _) = self
            .pair
            .client
            .connect(RECEIVER, b"", &config, self.pair.now)
            .map_err(MeasureFailed::Connect)?;
        self.flows.push(Flow { sender, receiver: None, read: 0 });
        Ok(())
    }

    /// Runs for `time`. Returns the measurements.
    pub fn run(&mut self, time: Duration) -> SpanMeasurements {
        let (begun, end) = (self.pair.now, self.pair.now + time);
        let read: Vec<u64> = self.flows.iter().map(|flow| flow.read).collect();
        let (again, packets) = (self.again(), self.pair.up.counters().sent);
        let (mut queue, mut looks) = (Duration::ZERO, 0);
        while self.pair.now < end {
            self.write();
            self.pass(self.pair.now + SLICE);
            self.read();
            queue += self.pair.up.queueing_delay(self.pair.now);
            looks += 1;
        }
        let seconds = (self.pair.now - begun).as_secs_f64();
        let moved = self.flows.iter().zip(read).map(|(flow, before)| flow.read - before);
        let packets = (self.pair.up.counters().sent - packets).max(1);
        SpanMeasurements {
            rates: moved.map(|bytes| bytes as f64 * 8.0 / seconds / 1e6).collect(),
            queue: queue / looks.max(1),
            again: (self.again() - again) as f64 / packets as f64,
        }
    }

    /// Number of segments retransmitted so far.
    fn again(&self) -> u64 {
        let info = self.flows.iter().filter_map(|flow| self.pair.client.info(flow.sender));
        info.map(|info| u64::from(info.totals.retransmits)).sum()
    }

    fn write(&mut self) {
        for flow in &self.flows {
            while self.pair.client.write(flow.sender, &[7; 16_384], self.pair.now).is_ok() {}
        }
    }

    fn read(&mut self) {
        while let Some(id) = self.pair.server.accept(self.listener) {
            let from = self.pair.server.info(id).map(|info| info.remote);
            let sends = |flow: &&mut Flow| self.pair.client.info(flow.sender).map(|info| info.local) == from;
            if let Some(flow) = self.flows.iter_mut().find(sends) {
                flow.receiver = Some(id);
            }
        }
        let mut buf = [0; 65_536];
        for flow in &mut self.flows {
            let Some(id) = flow.receiver else { continue };
            while let Ok(n @ 1..) = self.pair.server.read(id, &mut buf, self.pair.now) {
                flow.read += n as u64;
            }
        }
    }

    /// Delivers packets until `end`.
    fn pass(&mut self, end: Instant) {
        self.pair.flush();
        while self.pair.advance_until(end) {
            while self.pair.client.poll_event().is_some() {}
            while self.pair.server.poll_event().is_some() {}
            self.pair.flush();
        }
        self.pair.advance(end);
    }
}
