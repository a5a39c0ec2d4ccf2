//! One client's access line in virtual time: a stack at each end, a rate, a delay and a buffer in each direction.
//!
//! Messages that are not TCP (a lookup, say) share the line's rate and buffers with the segments.

use firstflight_link::path::{Path, PathConfig, PathError};
use firstflight_stack::Stack;
use firstflight_wire::Instant;
use std::time::Duration;

/// First byte of a message beside TCP. No IP packet begins with it.
const BESIDE: u8 = 0;

/// The settings of a line.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// Round-trip time without queues.
    pub rtt: Duration,
    /// Rate to the client, bit/s.
    pub down: u64,
    /// Rate from the client, bit/s.
    pub up: u64,
    /// Bytes that may wait in each direction.
    pub buffer: usize,
    /// Largest packet, bytes.
    pub mtu: usize,
    /// Share of the packets that are lost in each direction, from 0 to 1.
    pub loss: f64,
}

impl Line {
    fn paths(&self, seed: u64) -> Result<(Path, Path), PathError> {
        let path = |rate: u64| {
            PathConfig::with_delay(self.rtt / 2)
                .rate_bits_per_s(Some(rate))
                .queue_bytes(self.buffer)
                .mtu(self.mtu)
                .loss(self.loss)
        };
        Ok((Path::new(path(self.up), seed)?, Path::new(path(self.down), !seed)?))
    }
}

/// An end of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnd {
    /// The client's.
    Client,
    /// The servers'.
    Server,
}

/// The line with its stacks, and the clock.
pub struct Net {
    /// Virtual time.
    pub now: Instant,
    /// The client's stack.
    pub client: Stack,
    /// The stack of all servers.
    pub server: Stack,
    /// From the client.
    pub up: Path,
    /// To the client.
    pub down: Path,
    /// Messages beside TCP that have arrived.
    arrived: Vec<(LineEnd, Vec<u8>)>,
    packet: Vec<u8>,
}

impl Net {
    /// Joins two stacks by a line. `seed` decides random events, if the line has any.
    ///
    /// # Errors
    /// A setting of the line is invalid.
    pub fn new(line: &Line, seed: u64, client: Stack, server: Stack) -> Result<Self, PathError> {
        let (up, down) = line.paths(seed)?;
        let packet = vec![0; line.mtu.max(2048)];
        Ok(Self { now: Instant::ZERO, client, server, up, down, arrived: Vec::new(), packet })
    }

    /// Sends a message beside TCP from one end, as a packet of `len` bytes.
    pub fn tell(&mut self, from: LineEnd, message: &[u8], len: usize) {
        let mut packet = vec![BESIDE];
        packet.extend_from_slice(message);
        packet.resize(len.max(packet.len()), 0);
        match from {
            LineEnd::Client => self.up.send(self.now, &packet),
            LineEnd::Server => self.down.send(self.now, &packet),
        }
    }

    /// The next message beside TCP that has arrived, and where.
    pub fn told(&mut self) -> Option<(LineEnd, Vec<u8>)> {
        (!self.arrived.is_empty()).then(|| self.arrived.remove(0))
    }

    /// Sends what waits, and moves to the next event, or to `wake` if that is earlier. False if nothing will ever
    /// happen.
    pub fn step(&mut self, wake: Option<Instant>) -> bool {
        self.flush();
        let timers = [self.client.poll_timeout(), self.server.poll_timeout()];
        let arrivals = [self.up.next_arrival(), self.down.next_arrival()];
        let Some(next) = timers.into_iter().chain(arrivals).chain([wake]).flatten().min() else {
            return false;
        };
        self.now = self.now.max(next);
        while let Some(packet) = self.up.poll_deliver(self.now) {
            if packet.first() == Some(&BESIDE) {
                self.arrived.push((LineEnd::Server, packet[1..].to_vec()));
            } else {
                self.server.handle_packet(self.now, &packet);
            }
            self.up.recycle(packet);
        }
        while let Some(packet) = self.down.poll_deliver(self.now) {
            if packet.first() == Some(&BESIDE) {
                self.arrived.push((LineEnd::Client, packet[1..].to_vec()));
            } else {
                self.client.handle_packet(self.now, &packet);
            }
            self.down.recycle(packet);
        }
        self.client.handle_timeout(self.now);
        self.server.handle_timeout(self.now);
        // A kernel acknowledges before the program runs that the packet wakes.
        self.flush();
        true
    }

    fn flush(&mut self) {
        while let Some(len) = self.client.poll_transmit(self.now, &mut self.packet) {
            self.up.send(self.now, self.packet.get(..len).unwrap_or_default());
        }
        while let Some(len) = self.server.poll_transmit(self.now, &mut self.packet) {
            self.down.send(self.now, self.packet.get(..len).unwrap_or_default());
        }
    }
}
