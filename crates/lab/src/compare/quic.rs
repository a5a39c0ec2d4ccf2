//! QUIC: quinn's protocol in virtual time. Its clock is the system's, but only differences of times reach it.

use super::memory::{FLIGHTS, live};
use super::tls::{Files, NAME};
use super::{Base, ModelFailed, Numbers, PATIENCE, REQUEST, RESPONSE, WATCHED};
use bytes::BytesMut;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionEvent, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, Incoming, ServerConfig, StreamEvent, StreamId, TokenLog, TokenReuseError,
    Transmit, TransportConfig, ValidationTokenConfig,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 4000);
const MOVED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)), 4000);
const VICTIM: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(192, 0, 2, 99)), 4000);
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(198, 51, 100, 80)), 443);
/// IPv4 and UDP headers.
const HEADERS: usize = 28;
const ALPN: &[u8] = b"hq";
/// Packets that quinn may join into one transmit.
const TOGETHER: usize = 1;

/// A row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The client sends its request as early data when it has a ticket.
    pub early: bool,
    /// The server answers only addresses that are proved: by Retry, or by a token of an earlier connection.
    pub proved: bool,
}

/// The tokens that a server has taken: each is good once.
#[derive(Default)]
struct Tokens(Mutex<BTreeSet<u128>>);

impl TokenLog for Tokens {
    fn check_and_insert(&self, nonce: u128, _: SystemTime, _: Duration) -> Result<(), TokenReuseError> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.insert(nonce) { Ok(()) } else { Err(TokenReuseError) }
    }
}

struct QuicEnd {
    endpoint: Endpoint,
    connections: BTreeMap<usize, (ConnectionHandle, Connection)>,
    incoming: VecDeque<Incoming>,
}

/// Both ends and the path.
struct World {
    kind: Kind,
    base: Base,
    client: QuicEnd,
    server: QuicEnd,
    config: ClientConfig,
    now: Instant,
    /// When it arrives, whether at the server, the client's address, and the datagram.
    wire: VecDeque<(Instant, bool, SocketAddr, Vec<u8>)>,
    /// The address that the client sends from.
    from: SocketAddr,
    executed: u32,
    /// Request bytes received on each stream, and bytes of the response not yet written.
    streams: BTreeMap<(usize, StreamId), (usize, usize)>,
    reflected: usize,
    overheard: Option<Vec<Vec<u8>>>,
    /// The client is silent: what the server sends to it is not delivered.
    silent: bool,
}

fn wrong(error: &dyn std::fmt::Debug) -> ModelFailed {
    ModelFailed("QUIC", format!("{error:?}"))
}

fn end(server: Option<ServerConfig>, seed: u64, number: u8) -> QuicEnd {
    let mut config = EndpointConfig::default();
    let mut bytes = [number; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    config.rng_seed(Some(bytes));
    let endpoint = Endpoint::new(Arc::new(config), server.map(Arc::new), false, None);
    QuicEnd { endpoint, connections: BTreeMap::new(), incoming: VecDeque::new() }
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport.mtu_discovery_config(None);
    Arc::new(transport)
}

impl World {
    fn new(kind: Kind, files: &Files, base: Base) -> Result<Self, ModelFailed> {
        // QUIC knows no other number (RFC 9001 §4.6.1).
        let mut tls = files.server(u32::MAX)?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let crypto = QuicServerConfig::try_from(tls).map_err(|error| wrong(&error))?;
        let mut server = ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(transport());
        let mut tokens = ValidationTokenConfig::default();
        tokens.sent(u32::from(kind.proved) * 2).log(Arc::new(Tokens::default()));
        server.validation_token_config(tokens);
        let mut tls = files.client()?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        tls.enable_early_data = kind.early;
        let crypto = QuicClientConfig::try_from(tls).map_err(|error| wrong(&error))?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport());
        Ok(Self {
            kind,
            base,
            client: end(None, base.seed, 1),
            server: end(Some(server), base.seed, 2),
            config,
            now: Instant::now(),
            wire: VecDeque::new(),
            from: CLIENT,
            executed: 0,
            streams: BTreeMap::new(),
            reflected: 0,
            overheard: None,
            silent: false,
        })
    }

    /// Opens a connection, and a stream with the request if it can be early data.
    fn connect(&mut self) -> Result<usize, ModelFailed> {
        let made = self.client.endpoint.connect(self.now, self.config.clone(), SERVER, NAME);
        let (handle, mut connection) = made.map_err(|error| wrong(&error))?;
        if self.kind.early && connection.has_0rtt() {
            ask(&mut connection);
        }
        self.client.connections.insert(handle.0, (handle, connection));
        Ok(handle.0)
    }

    /// Round trips until the first byte of the response on a new connection.
    fn visit(&mut self) -> Result<f64, ModelFailed> {
        let began = self.now;
        let id = self.connect()?;
        let first = self.wait(id)?;
        let took = self.base.trips(first - began);
        // Tickets and tokens come behind the handshake; then the connection ends.
        self.run(self.base.rtt * 5);
        if let Some((_, connection)) = self.client.connections.get_mut(&id) {
            connection.close(self.now, 0u8.into(), bytes::Bytes::new());
        }
        self.run(Duration::from_secs(5));
        Ok(took)
    }

    /// When the first byte of a response arrives on `id`.
    fn wait(&mut self, id: usize) -> Result<Instant, ModelFailed> {
        let end = self.now + PATIENCE;
        loop {
            self.act();
            if self.first_byte(id) {
                return Ok(self.now);
            }
            // The application may have written.
            self.act();
            if !self.step(end) {
                return Err(ModelFailed("QUIC", format!("{:?}: no response", self.kind)));
            }
        }
    }

    /// Lets the client's application act on a connection. True if a byte of a response has arrived.
    fn first_byte(&mut self, id: usize) -> bool {
        let Some((_, connection)) = self.client.connections.get_mut(&id) else { return false };
        let mut readable = Vec::new();
        while let Some(event) = connection.poll() {
            match event {
                Event::Connected if !self.kind.early || !connection.accepted_0rtt() => ask(connection),
                Event::Stream(StreamEvent::Readable { id }) => readable.push(id),
                _ => {}
            }
        }
        let mut any = false;
        for stream in readable {
            let mut receive = connection.recv_stream(stream);
            if let Ok(mut chunks) = receive.read(true) {
                while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                    any |= !chunk.bytes.is_empty();
                }
                let _ = chunks.finalize();
            }
        }
        any
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.act();
            let ids: Vec<usize> = self.client.connections.keys().copied().collect();
            for id in ids {
                self.first_byte(id);
            }
            self.act();
            if !self.step(end) {
                self.now = end;
                return;
            }
        }
    }

    /// Both ends send what they have.
    fn act(&mut self) {
        while let Some(incoming) = self.server.incoming.pop_front() {
            self.admit(incoming);
        }
        self.serve();
        let mut buffer = Vec::new();
        for to_server in [true, false] {
            let end = if to_server { &mut self.client } else { &mut self.server };
            let mut sent = Vec::new();
            for (_, connection) in end.connections.values_mut() {
                while let Some(transmit) = connection.poll_transmit(self.now, TOGETHER, &mut buffer) {
                    sent.push((
                        transmit.destination,
                        buffer.get(..transmit.size).unwrap_or_default().to_vec(),
                    ));
                    buffer.clear();
                }
            }
            for (destination, datagram) in sent {
                self.launch(to_server, destination, datagram);
            }
        }
        self.exchange_events();
    }

    fn launch(&mut self, to_server: bool, destination: SocketAddr, datagram: Vec<u8>) {
        if to_server {
            if let Some(overheard) = &mut self.overheard {
                overheard.push(datagram.clone());
            }
            self.wire.push_back((self.now + self.base.rtt / 2, true, self.from, datagram));
        } else if destination == VICTIM {
            self.reflected += HEADERS + datagram.len();
        } else if !self.silent {
            self.wire.push_back((self.now + self.base.rtt / 2, false, destination, datagram));
        } else {
            self.reflected += HEADERS + datagram.len();
        }
    }

    fn exchange_events(&mut self) {
        for end in [&mut self.client, &mut self.server] {
            let mut over = Vec::new();
            for (id, (handle, connection)) in &mut end.connections {
                while let Some(event) = connection.poll_endpoint_events() {
                    if let Some(event) = end.endpoint.handle_event(*handle, event) {
                        connection.handle_event(event);
                    }
                }
                if connection.is_drained() {
                    over.push(*id);
                }
            }
            for id in over {
                end.connections.remove(&id);
            }
        }
    }

    /// The server's decision about a new connection.
    fn admit(&mut self, incoming: Incoming) {
        let mut buffer = Vec::new();
        let to = incoming.remote_address();
        let answer: Option<Transmit> = if self.kind.proved && !incoming.remote_address_validated() {
            self.server.endpoint.retry(incoming, &mut buffer).ok()
        } else {
            match self.server.endpoint.accept(incoming, self.now, &mut buffer, None) {
                Ok((handle, connection)) => {
                    self.server.connections.insert(handle.0, (handle, connection));
                    None
                }
                Err(error) => error.response,
            }
        };
        if let Some(transmit) = answer {
            let datagram = buffer.get(..transmit.size).unwrap_or_default().to_vec();
            self.launch(false, to, datagram);
        }
    }

    /// The server's applications.
    fn serve(&mut self) {
        for (id, (_, connection)) in &mut self.server.connections {
            while connection.poll().is_some() {}
            while let Some(stream) = connection.streams().accept(Dir::Bi) {
                self.streams.insert((*id, stream), (0, 0));
            }
            for ((of, stream), (received, left)) in &mut self.streams {
                if of != id {
                    continue;
                }
                if *received < REQUEST.len() {
                    let mut receive = connection.recv_stream(*stream);
                    if let Ok(mut chunks) = receive.read(true) {
                        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                            *received += chunk.bytes.len();
                        }
                        let _ = chunks.finalize();
                    }
                    if *received >= REQUEST.len() {
                        self.executed += 1;
                        *left = RESPONSE;
                    }
                }
                let part = [b'r'; 4096];
                while *left > 0 {
                    let part = part.get(..(*left).min(part.len())).unwrap_or_default();
                    match connection.send_stream(*stream).write(part) {
                        Ok(len @ 1..) => *left -= len,
                        _ => break,
                    }
                }
            }
        }
    }

    /// Goes to the next event before `end`. False if there is none.
    fn step(&mut self, end: Instant) -> bool {
        let timers = [&mut self.client, &mut self.server].into_iter().filter_map(|end| {
            end.connections.values_mut().filter_map(|(_, connection)| connection.poll_timeout()).min()
        });
        let arrival = self.wire.iter().map(|(at, ..)| *at).min();
        let Some(next) = timers.chain(arrival).min().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        while let Some(at) = self.wire.iter().position(|(at, ..)| *at <= self.now) {
            if let Some((_, to_server, client, datagram)) = self.wire.remove(at) {
                self.deliver(to_server, client, &datagram);
            }
        }
        for end in [&mut self.client, &mut self.server] {
            for (_, connection) in end.connections.values_mut() {
                if connection.poll_timeout().is_some_and(|at| at <= self.now) {
                    connection.handle_timeout(self.now);
                }
            }
        }
        true
    }

    /// `from` is the client's address, as the server sees it.
    fn deliver(&mut self, to_server: bool, client: SocketAddr, datagram: &[u8]) {
        let (end, from) = if to_server { (&mut self.server, client) } else { (&mut self.client, SERVER) };
        let mut buffer = Vec::new();
        let event = end.endpoint.handle(self.now, from, None, None, BytesMut::from(datagram), &mut buffer);
        let answer = match event {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let event: ConnectionEvent = event;
                if let Some((_, connection)) = end.connections.get_mut(&handle.0) {
                    connection.handle_event(event);
                }
                None
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                end.incoming.push_back(incoming);
                None
            }
            Some(DatagramEvent::Response(transmit)) => Some(transmit),
            None => None,
        };
        if let Some(transmit) = answer {
            let datagram = buffer.get(..transmit.size).unwrap_or_default().to_vec();
            self.launch(!to_server, client, datagram);
        }
    }
}

/// Sends the request on a new stream.
fn ask(connection: &mut Connection) {
    if let Some(stream) = connection.streams().open(Dir::Bi) {
        let mut send = connection.send_stream(stream);
        let _ = send.write(&REQUEST);
        let _ = send.finish();
    }
}

/// All numbers of a row.
pub fn numbers(kind: Kind, base: Base) -> Result<Numbers, ModelFailed> {
    let files = Files::new()?;
    let mut world = World::new(kind, &files, base)?;
    let (first, later) = (world.visit()?, world.visit()?);
    world.overheard = Some(Vec::new());
    let id = world.connect()?;
    world.act();
    let flight = world.overheard.take().unwrap_or_default();
    world.wait(id)?;
    world.run(Duration::from_secs(5));
    let before = world.executed;
    for wait in [1, 100] {
        world.run(Duration::from_secs(wait));
        let at = world.now + base.rtt / 2;
        world.wire.extend(flight.iter().map(|datagram| (at, true, CLIENT, datagram.clone())));
    }
    world.run(Duration::from_secs(100));
    let replayed = world.executed - before;
    world.from = MOVED;
    let moved = world.visit()?;
    Ok(Numbers {
        first: Some(first),
        later: Some(later),
        blind: Some(reflected(kind, &files, base, 0)?),
        stolen: if kind.proved { Some(reflected(kind, &files, base, 2)?) } else { None },
        memory: Some(memory(kind, &files, base)?),
        replayed: Some(replayed),
        moved: Some(moved),
    })
}

/// Bytes that come back for each byte of a first flight to which nobody answers. Its client has made this number of
/// visits before, so it may have a token.
fn reflected(kind: Kind, files: &Files, base: Base, visits: u32) -> Result<f64, ModelFailed> {
    let mut world = World::new(kind, files, base)?;
    for _ in 0..visits {
        world.visit()?;
    }
    world.overheard = Some(Vec::new());
    world.connect()?;
    world.act();
    let flight = world.overheard.take().unwrap_or_default();
    let sent: usize = flight.iter().map(|datagram| HEADERS + datagram.len()).sum();
    // The attacker does not go on, and the victim does not answer.
    (world.silent, world.reflected) = (true, 0);
    world.client.connections.clear();
    world.run(WATCHED);
    Ok(world.reflected as f64 / sent as f64)
}

/// Bytes that the server keeps for each of many first flights.
fn memory(kind: Kind, files: &Files, base: Base) -> Result<f64, ModelFailed> {
    let held = |flights: u16| -> Result<f64, ModelFailed> {
        let mut world = World::new(kind, files, base)?;
        let mut all = Vec::new();
        for _ in 0..flights {
            let made = world.client.endpoint.connect(world.now, world.config.clone(), SERVER, NAME);
            let (_, mut connection) = made.map_err(|error| wrong(&error))?;
            let mut buffer = Vec::new();
            if let Some(transmit) = connection.poll_transmit(world.now, TOGETHER, &mut buffer) {
                all.push(buffer.get(..transmit.size).unwrap_or_default().to_vec());
            }
        }
        world.client = end(None, base.seed, 1);
        let before = live();
        for (port, datagram) in (4000..).zip(&all) {
            world.deliver(true, SocketAddr::new(VICTIM.ip(), port), datagram);
            world.silent = true;
            world.act();
        }
        Ok(live() as f64 - before as f64)
    };
    let few = FLIGHTS / 8;
    Ok(((held(2 * few)? - held(few)?) / f64::from(few)).round())
}
