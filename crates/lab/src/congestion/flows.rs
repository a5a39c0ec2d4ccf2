//! Bulk flows from one stack to another over an emulated bottleneck.

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
/// A packet of the largest size.
const PACKET: usize = 1500;

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
    sender: Stack,
    receiver: Stack,
    listener: ListenerId,
    wire: Duplex,
    now: Instant,
    flows: Vec<Flow>,
    packet: Vec<u8>,
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
        let packet = vec![0; PACKET];
        Ok(Self { sender, receiver, listener, wire, now: Instant::ZERO, flows: Vec::new(), packet })
    }

    /// Starts one more flow.
    pub fn start(&mut self, algorithm: Algorithm) -> Result<(), MeasureFailed> {
        let mut tcp = self.sender.config().tcp.clone();
        tcp.set_congestion(algorithm);
        let config = ConnectConfig::default().tcp(Some(Arc::new(tcp)));
        let (sender, _) =
            self.sender.connect(RECEIVER, b"", &config, self.now).map_err(MeasureFailed::Connect)?;
        self.flows.push(Flow { sender, receiver: None, read: 0 });
        Ok(())
    }

    /// Runs for `time`. Returns the measurements.
    pub fn run(&mut self, time: Duration) -> SpanMeasurements {
        let (begun, end) = (self.now, self.now + time);
        let read: Vec<u64> = self.flows.iter().map(|flow| flow.read).collect();
        let (again, packets) = (self.again(), self.wire.a_to_b.counters().sent);
        let (mut queue, mut looks) = (Duration::ZERO, 0);
        while self.now < end {
            self.write();
            self.pass(self.now + SLICE);
            self.read();
            queue += self.wire.a_to_b.queueing_delay(self.now);
            looks += 1;
        }
        let seconds = (self.now - begun).as_secs_f64();
        let moved = self.flows.iter().zip(read).map(|(flow, before)| flow.read - before);
        let packets = (self.wire.a_to_b.counters().sent - packets).max(1);
        SpanMeasurements {
            rates: moved.map(|bytes| bytes as f64 * 8.0 / seconds / 1e6).collect(),
            queue: queue / looks.max(1),
            again: (self.again() - again) as f64 / packets as f64,
        }
    }

    /// Number of segments retransmitted so far.
    fn again(&self) -> u64 {
        let info = self.flows.iter().filter_map(|flow| self.sender.info(flow.sender));
        info.map(|info| u64::from(info.totals.retransmits)).sum()
    }

    fn write(&mut self) {
        for flow in &self.flows {
            while self.sender.write(flow.sender, &[7; 16_384], self.now).is_ok() {}
        }
    }

    fn read(&mut self) {
        while let Some(id) = self.receiver.accept(self.listener) {
            let from = self.receiver.info(id).map(|info| info.remote);
            let sends = |flow: &&mut Flow| self.sender.info(flow.sender).map(|info| info.local) == from;
            if let Some(flow) = self.flows.iter_mut().find(sends) {
                flow.receiver = Some(id);
            }
        }
        let mut buf = [0; 65_536];
        for flow in &mut self.flows {
            let Some(id) = flow.receiver else { continue };
            while let Ok(n @ 1..) = self.receiver.read(id, &mut buf, self.now) {
                flow.read += n as u64;
            }
        }
    }

    /// Delivers packets until `end`.
    fn pass(&mut self, end: Instant) {
        loop {
            while let Some(len) = self.sender.poll_transmit(self.now, &mut self.packet) {
                self.wire.a_to_b.send(self.now, self.packet.get(..len).unwrap_or_default());
            }
            while let Some(len) = self.receiver.poll_transmit(self.now, &mut self.packet) {
                self.wire.b_to_a.send(self.now, self.packet.get(..len).unwrap_or_default());
            }
            let timers = [self.sender.poll_timeout(), self.receiver.poll_timeout(), self.wire.next_arrival()];
            let next = timers.into_iter().flatten().min().filter(|next| *next <= end);
            self.now = next.unwrap_or(end).max(self.now);
            while let Some(packet) = self.wire.a_to_b.poll_deliver(self.now) {
                self.receiver.handle_packet(self.now, &packet);
                self.wire.a_to_b.recycle(packet);
            }
            while let Some(packet) = self.wire.b_to_a.poll_deliver(self.now) {
                self.sender.handle_packet(self.now, &packet);
                self.wire.b_to_a.recycle(packet);
            }
            self.sender.handle_timeout(self.now);
            self.receiver.handle_timeout(self.now);
            while self.sender.poll_event().is_some() {}
            while self.receiver.poll_event().is_some() {}
            if next.is_none() {
                return;
            }
        }
    }
}
