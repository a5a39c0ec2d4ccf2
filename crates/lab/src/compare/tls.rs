//! TLS 1.3 over TCP with and without Fast Open: rustls over the engine.

use super::{Base, ModelFailed, Numbers, PATIENCE, REQUEST, RESPONSE, WATCHED};
use crate::attack::world::spoof;
use crate::exchange::session::Session;
use crate::exchange::{CLIENT, Exchange, MOVED, SERVER, Setting, VICTIM, keys};
use firstflight_credential::Flow;
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnId, ConnectConfig, Stack};
use firstflight_wire::Instant;
use firstflight_wire::tcp::{FastOpen, FastOpenForm, OptionsBuf};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SerialNumber};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig, ServerConnection};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Name of the server.
pub const NAME: &str = "www.example.com";
/// An Ed25519 key in PKCS #8 (RFC 8410, 7), in front of its 32 bytes.
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
/// Names in the certificate. The server's first flight stays within three times an Initial of QUIC (RFC 9000, 8.1), as with
/// short public chains; a longer one costs QUIC another exchange.
const NAMES: usize = 20;

/// Keys of constants, so that two runs have the same messages.
fn key(seed: u8) -> Vec<u8> {
    [&PKCS8[..], &[seed; 32]].concat()
}

/// A chain and its key, and the authority's certificate.
pub struct Files {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
    pub roots: RootCertStore,
}

fn wrong(what: &'static str) -> impl Fn(&dyn std::error::Error) -> ModelFailed {
    move |error| ModelFailed(what, error.to_string())
}

impl Files {
    pub fn new() -> Result<Self, ModelFailed> {
        let made = |error: rcgen::Error| wrong("a certificate")(&error);
        let mut authority = CertificateParams::new(Vec::new()).map_err(made)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.serial_number = Some(SerialNumber::from(1));
        let issuer_key = KeyPair::try_from(key(1)).map_err(made)?;
        let issuer = CertifiedIssuer::self_signed(authority, issuer_key).map_err(made)?;
        let more = (0..NAMES).map(|n| format!("long-name-of-a-virtual-host-{n:03}.example.com"));
        let names: Vec<String> = std::iter::once(NAME.to_owned()).chain(more).collect();
        let mut leaf = CertificateParams::new(names).map_err(made)?;
        leaf.serial_number = Some(SerialNumber::from(2));
        let leaf_key = KeyPair::try_from(key(2)).map_err(made)?;
        let leaf = leaf.signed_by(&leaf_key, &issuer).map_err(made)?;
        let mut roots = RootCertStore::empty();
        roots.add(issuer.der().clone()).map_err(|error| wrong("a root")(&error))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key(2)));
        Ok(Self { chain: vec![leaf.der().clone(), issuer.der().clone()], key, roots })
    }

    /// Settings of a server that takes early data of up to `early` bytes.
    pub fn server(&self, early: u32) -> Result<ServerConfig, ModelFailed> {
        let made = |error: rustls::Error| wrong("a TLS server")(&error);
        let builder = ServerConfig::builder_with_provider(Arc::new(provider()));
        let mut config = builder
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(made)?
            .with_no_client_auth()
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(made)?;
        config.max_early_data_size = early;
        // Enough for all visits: tickets of a resumed connection come behind the response, which the client does not
        // wait for.
        config.send_tls13_tickets = 8;
        // Early data is answered before the client's Finished.
        config.send_half_rtt_data = true;
        Ok(config)
    }

    /// Settings of a client, which sends early data.
    pub fn client(&self) -> Result<ClientConfig, ModelFailed> {
        let made = |error: rustls::Error| wrong("a TLS client")(&error);
        let builder = ClientConfig::builder_with_provider(Arc::new(provider()));
        let mut config = builder
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(made)?
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.enable_early_data = true;
        Ok(config)
    }
}

/// X25519 only: a hybrid key share fits no SYN.
pub fn provider() -> rustls::crypto::CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    provider
}

/// Moves records between a connection of rustls and the stack.
fn pump(tls: &mut Connection, outgoing: &mut Vec<u8>, stack: &mut Stack, id: ConnId, now: Instant) -> bool {
    let mut buffer = [0; 16_384];
    let mut ended = false;
    loop {
        match stack.read(id, &mut buffer, now) {
            Ok(0) => {
                ended = true;
                break;
            }
            Ok(len) => {
                let mut bytes = buffer.get(..len).unwrap_or_default();
                while !bytes.is_empty() && tls.read_tls(&mut bytes).is_ok_and(|len| len > 0) {
                    if tls.process_new_packets().is_err() {
                        return true;
                    }
                }
            }
            Err(_) => break,
        }
    }
    send(tls, outgoing, stack, id, now);
    ended
}

fn send(tls: &mut Connection, outgoing: &mut Vec<u8>, stack: &mut Stack, id: ConnId, now: Instant) {
    while tls.wants_write() && tls.write_tls(outgoing).is_ok_and(|len| len > 0) {}
    if !outgoing.is_empty()
        && let Ok(written) = stack.write(id, outgoing, now)
    {
        outgoing.drain(..written);
    }
}

/// A client: its first records are in the connect.
struct Client {
    tls: Connection,
    outgoing: Vec<u8>,
    /// The request was in the first records.
    early: bool,
    /// The handshake is over, and the request was sent again if the server did not take it.
    settled: bool,
    first_byte: Option<Instant>,
    left: usize,
}

impl Session for Client {
    fn run(&mut self, stack: &mut Stack, id: ConnId, now: Instant) -> bool {
        pump(&mut self.tls, &mut self.outgoing, stack, id, now);
        if let Connection::Client(client) = &mut self.tls
            && !client.is_handshaking()
            && !std::mem::replace(&mut self.settled, true)
            && !(self.early && client.is_early_data_accepted())
        {
            let _ = client.writer().write_all(&REQUEST);
            send(&mut self.tls, &mut self.outgoing, stack, id, now);
        }
        let mut buffer = [0; 16_384];
        while let Ok(len @ 1..) = self.tls.reader().read(&mut buffer) {
            self.first_byte = self.first_byte.or(Some(now));
            self.left = self.left.saturating_sub(len);
        }
        self.left == 0
    }
}

struct Server {
    tls: Connection,
    outgoing: Vec<u8>,
    received: usize,
    left: usize,
    executed: Rc<Cell<u32>>,
}

impl Session for Server {
    fn run(&mut self, stack: &mut Stack, id: ConnId, now: Instant) -> bool {
        let ended = pump(&mut self.tls, &mut self.outgoing, stack, id, now);
        let mut buffer = [0; 1024];
        if let Connection::Server(server) = &mut self.tls
            && let Some(mut early) = server.early_data()
        {
            while let Ok(len @ 1..) = early.read(&mut buffer) {
                self.received += len;
            }
        }
        while let Ok(len @ 1..) = self.tls.reader().read(&mut buffer) {
            self.received += len;
        }
        while self.received >= REQUEST.len() {
            self.received -= REQUEST.len();
            self.left += RESPONSE;
            self.executed.set(self.executed.get() + 1);
        }
        while self.left > 0 {
            let part = [b'r'; 4096];
            let part = part.get(..self.left.min(part.len())).unwrap_or_default();
            match self.tls.writer().write(part) {
                Ok(len @ 1..) => self.left -= len,
                _ => break,
            }
            send(&mut self.tls, &mut self.outgoing, stack, id, now);
        }
        send(&mut self.tls, &mut self.outgoing, stack, id, now);
        ended
    }
}

struct Scene {
    world: Exchange,
    client: Arc<ClientConfig>,
    executed: Rc<Cell<u32>>,
    fast_open: bool,
    base: Base,
}

impl Scene {
    fn new(files: &Files, fast_open: bool, base: Base) -> Result<Self, ModelFailed> {
        let executed = Rc::new(Cell::new(0));
        let count = Rc::clone(&executed);
        let config = Arc::new(files.server(16_384)?);
        let service = move || -> Box<dyn Session> {
            let tls = ServerConnection::new(Arc::clone(&config));
            let tls = tls.unwrap_or_else(|_| unreachable!("settings that a connection has used before"));
            let (tls, executed) = (Connection::Server(tls), Rc::clone(&count));
            Box::new(Server { tls, outgoing: Vec::new(), received: 0, left: 0, executed })
        };
        let tcp = firstflight_tcp::Config::default().nodelay(true);
        let setting = Setting { path: PathConfig::with_delay(base.rtt / 2), tcp, seed: base.seed };
        let world = Exchange::new(&setting, Box::new(service));
        let world = world.map_err(|error| wrong("the path")(&error))?;
        Ok(Self { world, client: Arc::new(files.client()?), executed, fast_open, base })
    }

    /// A client with its first records: a ClientHello, and the request if there is a ticket.
    fn begin(&self) -> Result<(Client, Vec<u8>), ModelFailed> {
        let name = ServerName::try_from(NAME).map_err(|error| wrong("a name")(&error))?;
        let made = ClientConnection::new(Arc::clone(&self.client), name);
        let mut tls = made.map_err(|error| wrong("a TLS client")(&error))?;
        let early = tls.early_data().is_some_and(|mut early| early.write_all(&REQUEST).is_ok());
        let mut hello = Vec::new();
        while tls.wants_write() && tls.write_tls(&mut hello).is_ok_and(|len| len > 0) {}
        let tls = Connection::Client(tls);
        let client =
            Client { tls, outgoing: Vec::new(), early, settled: false, first_byte: None, left: RESPONSE };
        Ok((client, hello))
    }

    fn visit(&mut self, from: Option<std::net::IpAddr>) -> Result<f64, ModelFailed> {
        let (client, hello) = self.begin()?;
        let config = ConnectConfig::default().fast_open(self.fast_open).replay_safe(true);
        let config = config.local(from.map(|ip| SocketAddr::new(ip, 0)));
        let began = self.world.pair.now;
        let seen = self.world.visit(&hello, &config, client, PATIENCE);
        self.world.run(Duration::from_secs(2));
        let first = seen.first_byte.ok_or_else(|| ModelFailed("a visit by TLS", "no byte".into()))?;
        Ok(self.base.trips(first - began))
    }
}

/// All numbers of a row.
pub fn numbers(fast_open: bool, base: Base) -> Result<Numbers, ModelFailed> {
    let files = Files::new()?;
    let mut scene = Scene::new(&files, fast_open, base)?;
    let (first, later) = (scene.visit(None)?, scene.visit(None)?);
    scene.world.pair.between.overheard = Some(Vec::new());
    scene.visit(None)?;
    let packets = scene.world.pair.between.overheard.take().unwrap_or_default();
    let before = scene.executed.get();
    for wait in [1, 100] {
        scene.world.run(Duration::from_secs(wait));
        if let Some(syn) = packets.first() {
            scene.world.inject(syn);
        }
    }
    scene.world.run(Duration::from_secs(100));
    let replayed = scene.executed.get() - before;
    let moved = scene.visit(Some(MOVED))?;
    let spoofed = |stolen| reflected(&files, fast_open, stolen, base).map(Some);
    Ok(Numbers {
        first: Some(first),
        later: Some(later),
        blind: spoofed(false)?,
        stolen: if fast_open { spoofed(true)? } else { None },
        memory: None,
        replayed: Some(replayed),
        moved: Some(moved),
    })
}

/// A SYN with a ClientHello in the victim's name, with its cookie or another one.
fn reflected(files: &Files, fast_open: bool, stolen: bool, base: Base) -> Result<f64, ModelFailed> {
    let mut scene = Scene::new(files, fast_open, base)?;
    let (_, hello) = scene.begin()?;
    let mut options = OptionsBuf::new();
    let mut fits = options.mss(1460);
    let mut data: &[u8] = &[];
    if fast_open {
        let cookie = keys().grant(&Flow { client: if stolen { VICTIM } else { CLIENT }, server: SERVER });
        fits &= options.fast_open(&FastOpen::Cookie(FastOpenForm::Standard, cookie));
        data = &hello;
    }
    debug_assert!(fits);
    let syn = spoof(SocketAddr::new(VICTIM, 4000), SERVER, base.seed as u32, &mut options, data);
    scene.world.inject(&syn);
    scene.world.run(WATCHED);
    Ok(scene.world.pair.between.reflected as f64 / syn.len() as f64)
}
