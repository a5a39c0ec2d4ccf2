//! Connections per second between two smoltcp stacks, driven as fast as the API allows, or as smoltcp's documentation
//! and examples do.
//!
//! - As fast as possible: packets are handled one after the other, then the application acts, then one pass over the
//!   sockets sends. So an acknowledgement is sent with the answer. `poll_delay` is not called.
//! - As documented, in its examples and its own `benchmark.rs`: `poll`, the application, `poll_delay`, repeated until
//!   that is not zero. Acknowledgements are sent before the application acts: nine packets per connection instead of
//!   six.
//! - Sockets and their buffers are created once and reused. A socket in TIME-WAIT listens again at once, so no
//!   connection waits for one.
//! - The active sockets are placed before the idle ones, where the search finds them first.
//! - No timestamps and no congestion control: these are smoltcp's defaults, and its fastest settings.

use super::wire::Batch;
use super::{BenchError, EXCHANGE_US, IN_FLIGHT, REQUEST, RESPONSE, World};
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

const CLIENT: IpAddress = IpAddress::v4(10, 0, 0, 1);
const SERVER: IpAddress = IpAddress::v4(10, 0, 0, 2);
const PORT: u16 = 80;
/// Linux's range of ephemeral ports.
const PORTS: std::ops::RangeInclusive<u16> = 32_768..=60_999;

/// A device over two batches.
pub struct Port {
    rx: Batch,
    tx: Batch,
}

/// A packet that was received.
pub struct SmoltcpPacket<'a>(&'a [u8]);
/// Space for a packet.
pub struct PacketRoom<'a>(&'a mut Batch);

impl phy::RxToken for SmoltcpPacket<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl phy::TxToken for PacketRoom<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Some(buffer) = self.0.free() else { unreachable!("a token is made when there is room") };
        let result = f(&mut buffer[..len]);
        self.0.push(len);
        result
    }
}

impl Device for Port {
    type RxToken<'a> = SmoltcpPacket<'a>;
    type TxToken<'a> = PacketRoom<'a>;

    fn receive(&mut self, _: Instant) -> Option<(SmoltcpPacket<'_>, PacketRoom<'_>)> {
        // There is space for an answer to each packet: both batches have the same size, and tx was empty.
        self.tx.free()?;
        Some((SmoltcpPacket(self.rx.take()?), PacketRoom(&mut self.tx)))
    }

    fn transmit(&mut self, _: Instant) -> Option<PacketRoom<'_>> {
        self.tx.free()?;
        Some(PacketRoom(&mut self.tx))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        // Checksums are computed and verified, which is the default.
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

pub struct SmoltcpEnd {
    pub interface: Interface,
    pub sockets: SocketSet<'static>,
    device: Port,
}

impl SmoltcpEnd {
    fn new(address: IpAddress, seed: u64) -> Self {
        let mut device = Port { rx: Batch::new(), tx: Batch::new() };
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            // The list is empty and has capacity for two.
            let _ = addresses.push(IpCidr::new(address, 24));
        });
        Self { interface, sockets: SocketSet::new(Vec::new()), device }
    }

    /// Adds a socket with buffers of `bytes`.
    pub fn socket(&mut self, bytes: usize) -> SocketHandle {
        let buffer = || SocketBuffer::new(vec![0; bytes]);
        self.sockets.add(Socket::new(buffer(), buffer()))
    }

    /// Handles all packets that arrived.
    pub fn arrive(&mut self, now: Instant) {
        let (device, sockets) = (&mut self.device, &mut self.sockets);
        while self.interface.poll_ingress_single(now, device, sockets) != PollIngressSingleResult::None {}
        self.device.rx.clear();
    }

    /// The call that the documentation makes in each turn of an application's loop.
    fn poll(&mut self, now: Instant) {
        let (device, sockets) = (&mut self.device, &mut self.sockets);
        self.interface.poll(now, device, sockets);
        self.device.rx.clear();
    }

    /// True if the documentation's loop would now sleep until a packet arrives or a timer is due.
    fn sleeps(&mut self, now: Instant) -> bool {
        self.interface.poll_delay(now, &self.sockets) != Some(smoltcp::time::Duration::ZERO)
    }

    /// One pass over the sockets. Returns true if something was sent and there is space for more.
    pub fn depart(&mut self, now: Instant) -> bool {
        let (device, sockets) = (&mut self.device, &mut self.sockets);
        let before = device.tx.carried();
        self.interface.poll_egress(now, device, sockets);
        device.tx.carried() > before && device.tx.free().is_some()
    }
}

/// A client's and a server's end.
pub struct Pair {
    pub client: SmoltcpEnd,
    pub server: SmoltcpEnd,
    /// Virtual time.
    pub now: Instant,
    next_port: u16,
}

impl Pair {
    /// Two ends without sockets.
    pub fn new() -> Self {
        let (client, server) = (SmoltcpEnd::new(CLIENT, 1), SmoltcpEnd::new(SERVER, 2));
        Self { client, server, now: Instant::from_secs(1000), next_port: *PORTS.start() }
    }

    /// The server's socket listens (again).
    pub fn listen(&mut self, handle: SocketHandle) -> Result<(), BenchError> {
        let socket: &mut Socket<'_> = self.server.sockets.get_mut(handle);
        socket.listen(PORT).map_err(|e| BenchError::refused("smoltcp's listen", e))
    }

    /// The client's socket connects (again).
    pub fn connect(&mut self, handle: SocketHandle) -> Result<(), BenchError> {
        let port = self.next_port;
        self.next_port = if port == *PORTS.end() { *PORTS.start() } else { port + 1 };
        let socket: &mut Socket<'_> = self.client.sockets.get_mut(handle);
        socket
            .connect(self.client.interface.context(), (SERVER, PORT), port)
            .map_err(|e| BenchError::refused("smoltcp's connect", e))
    }

    /// The client's packets become the server's input.
    pub fn carry_up(&mut self) {
        std::mem::swap(&mut self.client.device.tx, &mut self.server.device.rx);
    }

    /// The server's packets become the client's input, which completes an exchange.
    pub fn carry_down(&mut self) {
        std::mem::swap(&mut self.server.device.tx, &mut self.client.device.rx);
        self.now += smoltcp::time::Duration::from_micros(EXCHANGE_US);
    }

    /// Packets carried.
    pub fn packets(&self) -> u64 {
        let of = |end: &SmoltcpEnd| end.device.rx.carried() + end.device.tx.carried();
        of(&self.client) + of(&self.server)
    }
}

/// How an end is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drive {
    /// As fast as possible: receive, run the application, send.
    Best,
    /// The loop in its documentation and its examples.
    Documented,
}

/// 64 connections in flight, each opened, used and closed.
pub struct Connections {
    pair: Pair,
    drive: Drive,
    clients: Vec<SocketHandle>,
    servers: Vec<SocketHandle>,
    asked: Vec<bool>,
    over: Vec<SocketHandle>,
    idle: usize,
    requests: u64,
    responses: u64,
    closed: [u64; 2],
    buffer: Box<[u8; 2048]>,
}

impl Connections {
    /// Both ends, with `idle` established connections in addition.
    pub fn new(drive: Drive, idle: usize) -> Result<Self, BenchError> {
        let mut pair = Pair::new();
        let clients: Vec<_> = (0..IN_FLIGHT).map(|_| pair.client.socket(2048)).collect();
        let servers: Vec<_> = (0..IN_FLIGHT).map(|_| pair.server.socket(2048)).collect();
        add_idle(&mut pair, idle)?;
        for handle in &servers {
            pair.listen(*handle)?;
        }
        for handle in &clients {
            pair.connect(*handle)?;
        }
        Ok(Self {
            pair,
            drive,
            clients,
            servers,
            asked: vec![false; IN_FLIGHT],
            over: Vec::with_capacity(IN_FLIGHT),
            idle,
            requests: 0,
            responses: 0,
            closed: [0; 2],
            buffer: Box::new([0; 2048]),
        })
    }

    fn best_turns(&mut self) -> Result<(), BenchError> {
        let now = self.pair.now;
        self.pair.client.arrive(now);
        self.client_acts()?;
        self.pair.client.depart(now);
        self.pair.carry_up();
        self.pair.server.arrive(now);
        self.server_acts()?;
        self.pair.server.depart(now);
        self.listen_again()
    }

    fn documented_turns(&mut self) -> Result<(), BenchError> {
        let now = self.pair.now;
        loop {
            self.pair.client.poll(now);
            self.client_acts()?;
            if self.pair.client.sleeps(now) {
                break;
            }
        }
        self.pair.carry_up();
        loop {
            self.pair.server.poll(now);
            // Connections that were over before have sent their last acknowledgement.
            self.listen_again()?;
            self.server_acts()?;
            if self.pair.server.sleeps(now) {
                return Ok(());
            }
        }
    }

    /// Sockets whose last acknowledgement was sent listen again.
    fn listen_again(&mut self) -> Result<(), BenchError> {
        while let Some(handle) = self.over.pop() {
            self.pair.listen(handle)?;
        }
        Ok(())
    }

    fn client_acts(&mut self) -> Result<(), BenchError> {
        for (index, handle) in self.clients.iter().enumerate() {
            let socket: &mut Socket<'_> = self.pair.client.sockets.get_mut(*handle);
            if !self.asked[index] && socket.may_send() {
                self.asked[index] = true;
                expect(socket.send_slice(&REQUEST), REQUEST.len(), "smoltcp's request")?;
            }
            if socket.can_recv() {
                let n = socket
                    .recv_slice(&mut self.buffer[..])
                    .map_err(|e| BenchError::refused("smoltcp's client's read", e))?;
                if self.buffer[..n] != RESPONSE {
                    return Err(BenchError::Wrong(format!("{n} bytes are not smoltcp's response")));
                }
                self.responses += 1;
            }
            match socket.state() {
                State::CloseWait => socket.close(),
                State::Closed => {
                    self.closed[0] += 1;
                    self.asked[index] = false;
                    self.pair.connect(*handle)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn server_acts(&mut self) -> Result<(), BenchError> {
        for handle in &self.servers {
            let socket: &mut Socket<'_> = self.pair.server.sockets.get_mut(*handle);
            if socket.can_recv() {
                let n = socket
                    .recv_slice(&mut self.buffer[..])
                    .map_err(|e| BenchError::refused("smoltcp's server's read", e))?;
                if self.buffer[..n] != REQUEST {
                    return Err(BenchError::Wrong(format!("{n} bytes are not smoltcp's request")));
                }
                self.requests += 1;
                expect(socket.send_slice(&RESPONSE), RESPONSE.len(), "smoltcp's response")?;
                socket.close();
            }
            if socket.state() == State::TimeWait {
                self.closed[1] += 1;
                self.over.push(*handle);
            }
        }
        Ok(())
    }
}

/// Adds established connections that do nothing, after the existing sockets.
fn add_idle(pair: &mut Pair, idle: usize) -> Result<(), BenchError> {
    let mut servers = Vec::with_capacity(idle);
    while servers.len() < idle {
        for _ in 0..IN_FLIGHT.min(idle - servers.len()) {
            let (client, server) = (pair.client.socket(64), pair.server.socket(64));
            pair.listen(server)?;
            pair.connect(client)?;
            servers.push(server);
        }
        for _ in 0..2 {
            pair.client.arrive(pair.now);
            pair.client.depart(pair.now);
            pair.carry_up();
            pair.server.arrive(pair.now);
            pair.server.depart(pair.now);
            pair.carry_down();
        }
    }
    let open =
        |handle: &SocketHandle| pair.server.sockets.get::<Socket<'_>>(*handle).state() == State::Established;
    if servers.iter().all(open) {
        return Ok(());
    }
    Err(BenchError::Wrong("smoltcp's idle connections are not established".into()))
}

fn expect<E: std::fmt::Debug>(
    sent: Result<usize, E>,
    all: usize,
    what: &'static str,
) -> Result<(), BenchError> {
    match sent {
        Ok(n) if n == all => Ok(()),
        other => Err(BenchError::refused(what, other)),
    }
}

impl World for Connections {
    fn name(&self) -> &'static str {
        match self.drive {
            Drive::Best => "smoltcp",
            Drive::Documented => "smoltcp, the loop of its documentation",
        }
    }

    fn exchange(&mut self) -> Result<(), BenchError> {
        match self.drive {
            Drive::Best => self.best_turns()?,
            Drive::Documented => self.documented_turns()?,
        }
        self.pair.carry_down();
        Ok(())
    }

    fn done(&self) -> u64 {
        self.closed[0].min(self.closed[1])
    }

    fn packets(&self) -> u64 {
        self.pair.packets()
    }

    fn check(&self) -> Result<(), BenchError> {
        let flying = IN_FLIGHT as u64;
        let whole = self.requests.abs_diff(self.responses) <= flying
            && self.responses.abs_diff(self.done()) <= flying
            && self.pair.server.sockets.iter().count() == self.idle + IN_FLIGHT;
        if whole {
            return Ok(());
        }
        Err(BenchError::Wrong(format!(
            "smoltcp: {} requests, {} responses, closed {:?}",
            self.requests, self.responses, self.closed
        )))
    }
}
