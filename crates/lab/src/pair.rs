//! Two stacks that a path joins, in virtual time.
//!
//! Messages that are not TCP (a lookup, say) share the path's rate and buffers with the segments.

use firstflight_link::path::Path;
use firstflight_stack::Stack;
use firstflight_wire::Instant;

/// First byte of a message beside TCP. No IP packet begins with it.
const BESIDE: u8 = 0;
/// The longest packet, bytes.
const LONGEST: usize = 2048;

/// An end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Client,
    Server,
}

/// What stands between the stacks and the path. It may change packets, and decides whether they go on.
pub trait Between {
    /// An end sends this packet.
    fn leaves(&mut self, _from: End, _packet: &mut Vec<u8>) -> bool {
        true
    }

    /// This packet has come to an end.
    fn arrives(&mut self, _at: End, _packet: &mut Vec<u8>) -> bool {
        true
    }
}

/// Nothing.
impl Between for () {}

/// The stacks, the path between them, and the clock.
pub struct Pair<B = ()> {
    /// Virtual time.
    pub now: Instant,
    pub client: Stack,
    pub server: Stack,
    /// From the client.
    pub up: Path,
    /// To the client.
    pub down: Path,
    pub between: B,
    /// Messages beside TCP that have arrived.
    arrived: Vec<(End, Vec<u8>)>,
    buffer: Vec<u8>,
}

impl<B: Between> Pair<B> {
    /// Joins two stacks at `now`, by the path from the client and the path to it.
    pub fn new(now: Instant, (client, server): (Stack, Stack), (up, down): (Path, Path), between: B) -> Self {
        Self { now, client, server, up, down, between, arrived: Vec::new(), buffer: vec![0; LONGEST] }
    }

    /// Sends a message beside TCP from one end, as a packet of `len` bytes.
    pub fn tell(&mut self, from: End, message: &[u8], len: usize) {
        let mut packet = vec![BESIDE];
        packet.extend_from_slice(message);
        packet.resize(len.max(packet.len()), 0);
        let now = self.now;
        self.path(from).send(now, &packet);
    }

    /// The next message beside TCP that has arrived, and where.
    pub fn told(&mut self) -> Option<(End, Vec<u8>)> {
        (!self.arrived.is_empty()).then(|| self.arrived.remove(0))
    }

    /// Sends what waits, and moves to the next event, or to `wake` if that is earlier. False if nothing will ever
    /// happen.
    pub fn step(&mut self, wake: Option<Instant>) -> bool {
        self.flush();
        let Some(next) = self.next().into_iter().chain(wake).min() else { return false };
        self.advance(next);
        // A kernel acknowledges before the program runs that the packet wakes.
        self.flush();
        true
    }

    /// When the next packet arrives or a timer is due.
    pub fn next(&self) -> Option<Instant> {
        let timers = [self.client.poll_timeout(), self.server.poll_timeout()];
        timers.into_iter().chain([self.up.next_arrival(), self.down.next_arrival()]).flatten().min()
    }

    /// Moves to the next event up to `end`. False if there is none.
    pub fn advance_until(&mut self, end: Instant) -> bool {
        let next = self.next().filter(|next| *next <= end);
        next.is_some_and(|next| {
            self.advance(next);
            true
        })
    }

    /// Moves to `to`: packets arrive, and timers run out.
    pub fn advance(&mut self, to: Instant) {
        self.now = self.now.max(to);
        let now = self.now;
        for (at, from) in [(End::Server, End::Client), (End::Client, End::Server)] {
            while let Some(mut packet) = self.path(from).poll_deliver(now) {
                if packet.first() == Some(&BESIDE) {
                    self.arrived.push((at, packet[1..].to_vec()));
                } else if self.between.arrives(at, &mut packet) {
                    self.stack(at).handle_packet(now, &packet);
                }
                self.path(from).recycle(packet);
            }
        }
        self.client.handle_timeout(now);
        self.server.handle_timeout(now);
    }

    /// Sends what waits.
    pub fn flush(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let now = self.now;
        for end in [End::Client, End::Server] {
            while let Some(len) = self.stack(end).poll_transmit(now, &mut buffer) {
                let mut packet = self.path(end).buffer();
                packet.extend_from_slice(buffer.get(..len).unwrap_or_default());
                if self.between.leaves(end, &mut packet) {
                    self.path(end).send_buffer(now, packet);
                } else {
                    self.path(end).recycle(packet);
                }
            }
        }
        self.buffer = buffer;
    }

    fn stack(&mut self, end: End) -> &mut Stack {
        match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }

    /// The path that begins at `from`.
    fn path(&mut self, from: End) -> &mut Path {
        match from {
            End::Client => &mut self.up,
            End::Server => &mut self.down,
        }
    }
}
