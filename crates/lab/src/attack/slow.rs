//! Slow readers: clients that request much data and read nothing, but answer every probe of their closed window, so
//! that the server's TCP would wait for them without limit (RFC 9293 §3.8.6.1, RFC 6429).

use super::world::{PORT, address, packet};
use crate::table::Table;
use firstflight_stack::{Config, ConnId, Event, ListenConfig, ListenerId, Readiness, Stack};
use firstflight_wire::ip::Packet;
use firstflight_wire::tcp::{Flags, Header, Segment};
use firstflight_wire::{Instant, SeqNum};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Bytes of a response.
const RESPONSE: usize = 200_000;

/// The settings of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// The library's defaults.
    Library,
    /// The settings of `firstflight serve`, the gateway's defaults.
    Serve,
}

impl Settings {
    fn config(self) -> Config {
        let mut config = Config::new(vec![address(1)], [7; 32]);
        if self == Self::Serve {
            config.tcp.set_user_timeout(Some(Duration::from_secs(60)));
            config.tcp.set_first_send_buffer(64 << 10);
            config.limits.connections_per_client = Some(512);
        }
        config
    }
}

/// What the server holds at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldResources {
    pub connections: usize,
    /// Bytes in send and receive buffers.
    pub bytes: usize,
}

/// A server and clients that read nothing.
pub struct World {
    stack: Stack,
    listener: ListenerId,
    now: Instant,
    /// The server's next sequence number on each connection. It stays at the first byte, because the clients accept
    /// nothing.
    next: BTreeMap<(IpAddr, u16), SeqNum>,
    out: Vec<u8>,
}

impl World {
    /// A world without clients.
    pub fn new(settings: Settings) -> Option<Self> {
        let now = Instant::from_secs(1000);
        let mut stack = Stack::new(settings.config(), now);
        let listener = stack.listen(ListenConfig::new(SocketAddr::new(address(1), PORT))).ok()?;
        Some(Self { stack, listener, now, next: BTreeMap::new(), out: vec![0; 2048] })
    }

    /// The client at `ip` connects from `port` and sends a request.
    pub fn asks(&mut self, ip: IpAddr, port: u16) {
        self.send(ip, port, 1, None, Flags::SYN, &[]);
        self.work();
    }

    fn send(&mut self, ip: IpAddr, port: u16, seq: u32, ack: Option<SeqNum>, flags: Flags, data: &[u8]) {
        let flags = if ack.is_some() { flags.union(Flags::ACK) } else { flags };
        let header = Header {
            src_port: port,
            dst_port: PORT,
            seq: SeqNum::new(seq),
            ack: ack.unwrap_or(SeqNum::new(0)),
            flags,
            window: 0,
            urgent: 0,
        };
        let packet = packet(ip, address(1), &header, &[], data);
        self.stack.handle_packet(self.now, &packet);
    }

    /// Runs until nothing is left to do now: the server answers, and the clients acknowledge with a closed window.
    fn work(&mut self) {
        loop {
            while let Some(event) = self.stack.poll_event() {
                match event {
                    Event::Acceptable(_) => {
                        while let Some(id) = self.stack.accept(self.listener) {
                            self.attend(id);
                        }
                    }
                    Event::Ready(id, ready) if ready.contains(Readiness::CLOSED) => {
                        self.stack.release(id, self.now);
                    }
                    Event::Ready(id, _) => self.attend(id),
                }
            }
            let Some(len) = self.stack.poll_transmit(self.now, &mut self.out) else { return };
            let packet = self.out[..len].to_vec();
            let Ok(ip) = Packet::parse(&packet) else { continue };
            let Ok(segment) = Segment::parse(ip.payload) else { continue };
            let (client, port) = (ip.dst, segment.dst_port);
            if segment.flags.contains(Flags::RST) {
                continue;
            }
            if segment.flags.contains(Flags::SYN) {
                self.next.insert((client, port), segment.seq + 1);
                self.send(client, port, 2, Some(segment.seq + 1), Flags::default(), b"GET /");
            } else if self.next.get(&(client, port)) == Some(&(segment.seq + 1)) {
                // This is a window probe.
                self.send(client, port, 7, Some(segment.seq + 1), Flags::default(), &[]);
            }
        }
    }

    /// Reads the request, and writes as much of the response as fits.
    fn attend(&mut self, id: ConnId) {
        let mut request = [0; 16];
        if matches!(self.stack.read(id, &mut request, self.now), Ok(1..)) {
            let _ = self.stack.write(id, &[b'r'; RESPONSE], self.now);
        }
    }

    /// Lets time pass, and returns what the server then holds.
    pub fn after(&mut self, seconds: u64) -> HeldResources {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(next) = self.stack.poll_timeout().filter(|next| *next <= end) {
            self.now = next.max(self.now);
            self.stack.handle_timeout(self.now);
            self.work();
        }
        self.now = end;
        HeldResources { connections: self.stack.connections(), bytes: self.stack.buffer_bytes() }
    }
}

/// `count` connections of `clients` clients.
fn run(settings: Settings, count: u32, clients: u32) -> Option<[HeldResources; 3]> {
    let mut world = World::new(settings)?;
    for n in 0..count {
        world.asks(address(16 + n % clients), (10_000 + n / clients) as u16);
    }
    Some([world.after(1), world.after(69), world.after(310)])
}

const ROWS: [(&str, Settings, u32); 4] = [
    ("library's defaults, one client", Settings::Library, 1),
    ("as serve, one client", Settings::Serve, 1),
    ("library's defaults, 100 clients", Settings::Library, 100),
    ("as serve, 100 clients", Settings::Serve, 100),
];
/// Number of connections of all clients.
const COUNT: u32 = 2_000;

/// The rows of `attack slow-readers`.
pub fn table() -> Table {
    let title = format!("{COUNT} requests for {RESPONSE} B by clients that keep their windows closed");
    let columns = ["server", "after 1 s", "MB", "after 70 s", "MB (70 s)", "after 380 s", "MB (380 s)"];
    let mut table = Table::new(title, &columns);
    for (name, settings, clients) in ROWS {
        let Some([first, second, third]) = run(settings, COUNT, clients) else { continue };
        let mb = |held: HeldResources| held.bytes as f64 / 1e6;
        table.row([
            name.into(),
            first.connections.into(),
            mb(first).into(),
            second.connections.into(),
            mb(second).into(),
            third.connections.into(),
            mb(third).into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
