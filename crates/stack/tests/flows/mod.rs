//! Bulk flows that share an emulated bottleneck, each with its own algorithm, and their results.
#![allow(dead_code, reason = "each test file uses its part")]

use crate::pair::Pair;
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnId, ConnectConfig, ListenerId};
use firstflight_tcp::congestion::Algorithm;
use std::sync::Arc;
use std::time::Duration;

/// How often the applications run and the queue is measured.
const SLICE: Duration = Duration::from_millis(5);

/// A bottleneck of 10 Mbit/s with a round-trip time of 40 ms; its buffer in quarters of the bandwidth-delay product.
pub(crate) fn bottleneck(quarters: usize) -> PathConfig {
    PathConfig::default()
        .delay(Duration::from_millis(20))
        .rate_bits_per_s(Some(10_000_000))
        .queue_bytes(50_000 * quarters / 4)
}

/// One flow from the client to the server.
pub(crate) struct Flow {
    pub algorithm: Algorithm,
    client: ConnId,
    server: Option<ConnId>,
    /// Bytes that the server has read.
    pub read: u64,
}

/// Flows over one bottleneck.
pub(crate) struct Flows {
    pub pair: Pair,
    listener: ListenerId,
    pub flows: Vec<Flow>,
    /// Sum and number of the queueing delays seen.
    queue: (Duration, u32),
}

/// The measurements of a period of time.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Mbit/s of payload, flow by flow.
    pub rates: Vec<f64>,
    /// Mean queueing delay at the bottleneck.
    pub queue: Duration,
}

impl Seen {
    pub(crate) fn total(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// Jain's index.
    pub(crate) fn fairness(&self) -> f64 {
        let squares: f64 = self.rates.iter().map(|r| r * r).sum();
        self.total().powi(2) / (self.rates.len() as f64 * squares)
    }
}

impl Flows {
    pub(crate) fn new(path: PathConfig, seed: u64, pacing: bool) -> Self {
        Self::with(path, seed, |tcp| tcp.set_pacing(pacing))
    }

    /// Flows with these settings for all connections.
    pub(crate) fn with(path: PathConfig, seed: u64, tune: impl Fn(&mut firstflight_tcp::Config)) -> Self {
        let back = path.clone().loss(0.0).queue_bytes(1 << 20);
        let mut pair = Pair::new(path, seed, false, |config, _| tune(&mut config.tcp));
        *pair.wire.b_to_a.config_mut() = back;
        let listener = pair.listen(None);
        Self { pair, listener, flows: Vec::new(), queue: (Duration::ZERO, 0) }
    }

    /// Starts one more flow.
    pub(crate) fn start(&mut self, algorithm: Algorithm) {
        let mut tcp = self.pair.client.config().tcp.clone();
        tcp.set_congestion(algorithm);
        let config = ConnectConfig::default().tcp(Some(Arc::new(tcp)));
        let (address, now) = (self.pair.server_addr(), self.pair.now);
        let (client, _) = self.pair.client.connect(address, b"", &config, now).unwrap();
        self.flows.push(Flow { algorithm, client, server: None, read: 0 });
    }

    /// Runs for `time` and returns the measurements.
    pub(crate) fn run(&mut self, time: Duration) -> Seen {
        let (begun, end) = (self.pair.now, self.pair.now + time);
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.read).collect();
        self.queue = (Duration::ZERO, 0);
        while self.pair.now < end {
            self.write();
            self.pair.idle(SLICE);
            self.queue.0 += self.pair.wire.a_to_b.queueing_delay(self.pair.now);
            self.queue.1 += 1;
            self.read();
        }
        let seconds = (self.pair.now - begun).as_secs_f64();
        let moved = self.flows.iter().zip(before).map(|(flow, before)| flow.read - before);
        let rates = moved.map(|bytes| bytes as f64 * 8.0 / seconds / 1e6).collect();
        Seen { rates, queue: self.queue.0 / self.queue.1.max(1) }
    }

    /// Retransmitted segments so far, flow by flow.
    pub(crate) fn retransmits(&self) -> Vec<u32> {
        self.flows
            .iter()
            .map(|f| self.pair.client.info(f.client).map_or(0, |i| i.totals.retransmits))
            .collect()
    }

    /// Congestion window of a flow.
    pub(crate) fn cwnd(&self, flow: usize) -> u32 {
        self.pair.client.info(self.flows[flow].client).map_or(0, |i| i.cwnd)
    }

    fn write(&mut self) {
        let now = self.pair.now;
        for flow in &self.flows {
            while self.pair.client.write(flow.client, &[7; 16_384], now).is_ok() {}
        }
    }

    fn read(&mut self) {
        let now = self.pair.now;
        while let Some(id) = self.pair.server.accept(self.listener) {
            let remote = self.pair.server.info(id).map(|i| i.remote);
            let local = |f: &&mut Flow| self.pair.client.info(f.client).map(|i| i.local) == remote;
            if let Some(flow) = self.flows.iter_mut().find(local) {
                flow.server = Some(id);
            }
        }
        let mut buf = [0; 65_536];
        for flow in &mut self.flows {
            while let Some(n @ 1..) = flow.server.and_then(|id| self.pair.server.read(id, &mut buf, now).ok())
            {
                flow.read += n as u64;
            }
        }
    }
}
