//! A server with a seal key, and flights that no connector makes.
#![allow(clippy::unwrap_used, dead_code, reason = "tests")]

use super::{Ca, NAME, REQUEST, Recorded, site};
use firstflight::Time;
use firstflight_tls::rustls::{self, ClientConfig, ClientConnection, ServerConfig, ServerConnection};
use firstflight_tls::seal::{
    Bind, Draft, Flags, Flight, FlightRoom, HostName, Inner, KeySet, KeySource, Record, Rid, SealKey, Target,
    seal,
};
use firstflight_tls::{Acceptor, AcceptorBuilder, Connector, SealClient, SealServer, SealServerBuilder};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::num::NonZeroU8;
use std::sync::{Arc, LazyLock};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) const PROTOCOL: &[u8] = b"http/1.1";
pub(crate) const SAFE: Flags = Flags { replayable: true, complete: true };
pub(crate) const ONCE: Flags = Flags { replayable: false, complete: true };

pub(crate) fn rng(seed: u8) -> ChaCha20Rng {
    ChaCha20Rng::from_seed([seed; 32])
}

/// The time at which the test began: not_after is a part of the seal, so both ends need the same one.
pub(crate) fn unix() -> u64 {
    static BEGAN: LazyLock<u64> = LazyLock::new(|| Time::system().unix().as_secs());
    *BEGAN
}

pub(crate) fn name(text: &str) -> HostName {
    text.parse().unwrap()
}

/// One key, with this number, for a day from `now`.
pub(crate) fn keys_at(id: u8, byte: u8, now: u64) -> KeySet {
    keys_of(NAME, id, byte, now)
}

/// The same with another public name.
pub(crate) fn keys_of(public: &str, id: u8, byte: u8, now: u64) -> KeySet {
    let mut keys = KeySet::new(name(public));
    let key = SealKey::from_bytes(&[byte; 32]).unwrap();
    keys.add(NonZeroU8::new(id).unwrap(), key, (now + 86_400) as u32, now).unwrap();
    keys
}

pub(crate) fn keys(id: u8, byte: u8) -> KeySet {
    keys_at(id, byte, unix())
}

/// What the client believes: the key 7.
pub(crate) fn record() -> Record {
    keys(7, 5).record(unix()).unwrap()
}

pub(crate) fn seal_server() -> SealServerBuilder {
    SealServer::builder(keys(7, 5), 443).first_start(true)
}

pub(crate) fn seal_client() -> SealClient {
    SealClient::new().record(site(), record(), KeySource::Configuration)
}

pub(crate) fn acceptor(ca: &Ca, seal: SealServer) -> AcceptorBuilder {
    ca.acceptor().alpn([PROTOCOL]).seal(seal)
}

/// Both ends, with the key.
pub(crate) struct Sealed {
    pub(crate) ca: Ca,
    pub(crate) connector: Connector,
    pub(crate) acceptor: Acceptor,
}

impl Sealed {
    pub(crate) fn new() -> Self {
        Self::with(seal_server().build().unwrap())
    }

    pub(crate) fn with(seal: SealServer) -> Self {
        let ca = Ca::new();
        let connector = ca.connector().http1().seal(seal_client()).build().unwrap();
        let acceptor = acceptor(&ca, seal).build().unwrap();
        Self { ca, connector, acceptor }
    }

    pub(crate) fn config(&self) -> ClientConfig {
        ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_root_certificates(self.ca.roots())
            .with_no_client_auth()
    }

    /// A server of rustls alone, with these ALPN names.
    pub(crate) fn stock(&self, alpn: &[&[u8]]) -> ServerConfig {
        let made = self.ca.certify(NAME);
        let mut config = ServerConfig::builder_with_protocol_versions(&[&rustls::version::TLS13])
            .with_no_client_auth()
            .with_single_cert(made.chain(), made.key())
            .unwrap();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        config
    }

    pub(crate) fn raw(&self, flags: Flags) -> Raw {
        Parts::new(self.config(), flags).seal()
    }
}

/// A flight, and the state of TLS behind it.
pub(crate) struct Raw {
    pub(crate) bytes: Vec<u8>,
    /// Its ClientHello.
    pub(crate) hello: Vec<u8>,
    pub(crate) client: ClientConnection,
}

pub(crate) struct Parts {
    pub(crate) config: ClientConfig,
    pub(crate) flags: Flags,
    pub(crate) server: &'static str,
    pub(crate) protocol: &'static [u8],
    pub(crate) port: u16,
    pub(crate) rid: u8,
    pub(crate) bind: Bind,
    pub(crate) t_ms: u64,
}

impl Parts {
    pub(crate) fn new(config: ClientConfig, flags: Flags) -> Self {
        Self {
            config,
            flags,
            server: NAME,
            protocol: PROTOCOL,
            port: 443,
            rid: 9,
            bind: Bind::NONE,
            t_ms: Time::system().unix().as_millis() as u64,
        }
    }

    pub(crate) fn seal(self) -> Raw {
        let Self { config, flags, server, protocol, port, rid, bind, t_ms } = self;
        let (record, public) = (record(), name(NAME));
        let to = Target { entry: &record.entries()[0], public_name: &public, port };
        let rid = Rid::from_bytes([rid; 16]);
        let draft = Draft::new(to, rid, bind, t_ms, flags, REQUEST, protocol).unwrap();
        let (client, hello) = hello(config, server, draft.alpn().to_vec());
        let plan = FlightRoom::on_connection().plan(hello.len(), REQUEST.len()).unwrap();
        // Without the checks of a draft.
        let inner = Inner { rid, bind, t_ms, flags, hello: &hello, request: REQUEST };
        let flight = seal(&inner, &to, plan.total, &mut rng(3)).unwrap();
        Raw { bytes: flight.as_bytes().to_vec(), hello, client }
    }
}

pub(crate) fn hello(
    config: ClientConfig,
    server: &'static str,
    alpn: Vec<Vec<u8>>,
) -> (ClientConnection, Vec<u8>) {
    let name = server.try_into().unwrap();
    let mut client = ClientConnection::new_with_alpn(Arc::new(config), name, alpn).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    (client, hello)
}

/// What somebody with the key reads in a flight: the ClientHello.
pub(crate) fn opened(flight: &[u8]) -> Vec<u8> {
    let flight = Flight::parse(flight).unwrap();
    keys(7, 5).open(&flight, 443, unix()).unwrap().inner().hello.to_vec()
}

/// Reads a whole flight.
pub(crate) async fn read_flight(io: &mut Recorded) -> Vec<u8> {
    let mut bytes = vec![0; 6];
    io.read_exact(&mut bytes).await.unwrap();
    let mut rest = vec![0; usize::from(u16::from_be_bytes([bytes[4], bytes[5]]))];
    io.read_exact(&mut rest).await.unwrap();
    [bytes, rest].concat()
}

/// Somebody with the client's key opens its flight, and gives the ClientHello to this server. Returns how the server sees
/// it, when the client has gone.
pub(crate) async fn forward(io: Recorded, config: ServerConfig) -> ServerConnection {
    forward_of(io, config, &keys(7, 5)).await
}

/// The same with other keys.
pub(crate) async fn forward_of(mut io: Recorded, config: ServerConfig, keys: &KeySet) -> ServerConnection {
    let flight = Flight::parse(&read_flight(&mut io).await).unwrap();
    let hello = keys.open(&flight, 443, unix()).unwrap().inner().hello.to_vec();
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    server.read_tls(&mut hello.as_slice()).unwrap();
    let _ = server.process_new_packets();
    let mut out = Vec::new();
    while server.wants_write() {
        server.write_tls(&mut out).unwrap();
    }
    io.write_all(&out).await.unwrap();
    let mut piece = vec![0; 4096];
    loop {
        match io.read(&mut piece).await.unwrap() {
            0 => return server,
            count => {
                server.read_tls(&mut &piece[..count]).unwrap();
                let _ = server.process_new_packets();
            }
        }
    }
}

/// Completes the handshake of a client of rustls alone, up to its own Finished, which is not sent.
pub(crate) async fn until_finished<IO>(io: &mut IO, client: &mut ClientConnection)
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    assert!(finishes(io, client).await, "the server has closed");
}

/// The same. Returns whether the server has not closed.
pub(crate) async fn finishes<IO>(io: &mut IO, client: &mut ClientConnection) -> bool
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut piece = vec![0; 4096];
    while client.is_handshaking() {
        let count = io.read(&mut piece).await.unwrap();
        if count == 0 {
            return false;
        }
        let mut rest = &piece[..count];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    true
}

/// Sends what a client of rustls alone has to send.
pub(crate) async fn send<IO: AsyncWrite + Unpin>(io: &mut IO, client: &mut ClientConnection) {
    let mut out = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut out).unwrap();
    }
    io.write_all(&out).await.unwrap();
}
