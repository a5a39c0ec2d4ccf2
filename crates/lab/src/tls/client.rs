//! The client at one end of the wire: reads what to visit, and says what became of it.

use super::visit::{Credential, PacketWay, Seal, Visit};
use super::{Failure, PORT, PORTS, QUIC, REFUSES, VERIFIER, at, authority, quic, server};
use crate::certified::{self, LASTS, verifier};
use clap::Args;
use firstflight::credential::NetworkId;
use firstflight::credential::asap::ClientCertificate;
use firstflight::link::{Tun, TunConfig, UdpLink};
use firstflight::record::{Names, Published};
use firstflight::verifier::{IssuerAddress, PoolConfig};
use firstflight::{Authority, Client, ClientBuilder, Endpoint, FirstFlight, Stream};
use firstflight_tls::seal::{KeySet, KeySource, Outcome, Record, SealKey};
use firstflight_tls::{ConnectError, Connector, ConnectorBuilder, Early, SealClient, TlsStream};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const NETWORK: NetworkId = NetworkId([1; 16]);
/// Bytes that the server takes in a SYN on IP, as its record would say.
const MSS: u16 = 1460;
/// The largest datagram.
const DATAGRAM: u16 = 1200;

/// Where everything is.
#[derive(Debug, Args)]
pub struct TlsEnds {
    /// The directory of `files`; `serve` must have begun
    #[arg(long)]
    files: PathBuf,
    /// The address of the kernel's servers
    #[arg(long)]
    server: IpAddr,
    /// The address of the engine's servers
    #[arg(long)]
    tun_server: IpAddr,
    /// The kernel's address on the TUN device, in a network of 24 bits
    #[arg(long)]
    tun_host: IpAddr,
    /// The engine's address there
    #[arg(long)]
    tun_ip: IpAddr,
    /// The resolver that knows the server's name
    #[arg(long)]
    dns: SocketAddr,
}

/// Reads and makes visits until standard input ends.
pub fn run(ends: &TlsEnds) -> Result<String, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut visitor = runtime.block_on(async { Visitor::new(ends) })?;
    crate::output::line(&"ready")?;
    for line in std::io::stdin().lock().lines() {
        let visit = Visit::read(&serde_json::from_str(&line?)?)?;
        let told = runtime.block_on(async {
            match visit.way {
                PacketWay::Quic => quic::visit(&ends.files, at(ends.server, QUIC), visit.ticket).await,
                _ => visitor.visit(&visit).await,
            }
        })?;
        writeln!(std::io::stdout(), "{told}")?;
    }
    Ok(String::new())
}

/// What the client keeps between visits: cookies, and nothing else.
struct Visitor<'a> {
    ends: &'a TlsEnds,
    tun: Endpoint,
    udp: Endpoint,
    /// The keys of the cookie that each way has, named by a port.
    held: [Option<u16>; 3],
    random: ChaCha20Rng,
}

/// What opens connections: a client, and where the server is, if the client does not look it up.
struct Dial(Client, Option<SocketAddr>);

impl Dial {
    async fn connect(
        &self,
        connector: &Connector,
        server: &Authority,
        first: FirstFlight<'_>,
    ) -> Result<TlsStream<Stream>, ConnectError> {
        let Self(client, at) = self;
        match at {
            Some(at) => connector.connect_at(client, server, &[*at], first).await,
            None => connector.connect_to(client, server, first).await,
        }
    }
}

/// Which servers have the same cookie keys.
const fn keys_of(port: u16) -> u16 {
    if matches!(port, super::WRONG_CERTIFICATE | super::FOREIGN) { PORT } else { port }
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", super::NAME)
}

impl<'a> Visitor<'a> {
    fn new(ends: &'a TlsEnds) -> Result<Self, Failure> {
        let engine = |addresses| {
            let mut config = firstflight::config(addresses)?;
            config.tcp.set_nodelay(true);
            config.network = NETWORK;
            std::io::Result::Ok(config)
        };
        let tun = TunConfig::default().name("ff0".to_owned()).host(vec![(ends.tun_host, 24)]);
        let tun = Endpoint::new(engine(vec![ends.tun_ip])?, Tun::create(tun)?);
        let udp = Endpoint::over_udp(engine(Vec::new())?, UdpLink::client(&[])?);
        let mut seed = [0; 32];
        firstflight::random_bytes(&mut seed)?;
        Ok(Self { ends, tun, udp, held: [None; 3], random: ChaCha20Rng::from_seed(seed) })
    }

    /// Makes a visit, after what it needs.
    async fn visit(&mut self, visit: &Visit) -> Result<Value, Failure> {
        let port = if visit.credential == Credential::Refused { REFUSES } else { visit.port };
        self.prepare(visit, port).await?;
        let connector = self.connector(visit, port)?;
        if visit.ticket {
            // Its tickets are of the network of these connects.
            let dial = self.dial(visit, port).await?;
            let mut stream = self.get(&dial, &connector, port, "/ticket").await?;
            stream.leave().await?;
            self.held[visit.way as usize] = Some(keys_of(port));
            if visit.credential == Credential::Certificate {
                // A client with a cookie shows that.
                self.forget(visit.way)?;
            }
        }
        let dial = self.dial(visit, port).await?;
        let (began, start, server) = (unix(), Instant::now(), authority(port)?);
        let text = request(&visit.path);
        let first = match visit.once {
            true => FirstFlight::at_most_once(text.as_bytes()),
            false => FirstFlight::safely_replayable(text.as_bytes()),
        };
        let connected =
            tokio::time::timeout(server::PATIENCE, dial.connect(&connector, &server, first)).await;
        let told = match connected.map_err(|_| "a visit takes too long")? {
            Err(error) => json!({ "ms": ms(start.elapsed()), "error": error.to_string() }),
            Ok(mut stream) => {
                let mut piece = [0; 2048];
                let count = stream.read(&mut piece).await?;
                let first_byte = start.elapsed();
                let mut answer = piece[..count].to_vec();
                // Servers that close without a close_notify have answered all the same.
                let _ = stream.read_to_end(&mut answer).await;
                let _ = stream.shutdown().await;
                let lookup = stream.io().times().map_or(Duration::ZERO, |times| times.lookup);
                told(&stream, first_byte - lookup, &answer)
            }
        };
        if visit.way != PacketWay::Quic && visit.credential != Credential::Certificate {
            // A server without the cookie's key gives one of its own.
            self.held[visit.way as usize] = Some(keys_of(port));
        }
        // What the server still sends to the connection belongs to this visit.
        tokio::time::sleep(Duration::from_millis(visit.settle_ms)).await;
        let Value::Object(mut told) = told else { return Err("no object".into()) };
        told.insert("began".into(), began.into());
        told.insert("ended".into(), unix().into());
        Ok(Value::Object(told))
    }

    /// Forgets credentials, or gets those that the visit needs.
    async fn prepare(&mut self, visit: &Visit, port: u16) -> Result<(), Failure> {
        let need = match visit.credential {
            Credential::None => None,
            Credential::Certificate => return self.forget(visit.way),
            Credential::Refused if visit.way == PacketWay::Udp => return self.forget(visit.way),
            Credential::Refused => Some(PORT),
            Credential::Cookie => Some(keys_of(port)),
        };
        if need.is_none() || self.held[visit.way as usize] != need {
            self.forget(visit.way)?;
        }
        if let Some(port) = need
            && self.held[visit.way as usize].is_none()
        {
            let plain = Visit { credential: Credential::Cookie, seal: Seal::Off, ..visit.clone() };
            let connector = self.connector(&plain, port)?;
            let dial = self.dial(&plain, port).await?;
            self.get(&dial, &connector, port, "/cookie").await?;
            self.held[visit.way as usize] = Some(port);
        }
        Ok(())
    }

    fn forget(&mut self, way: PacketWay) -> Result<(), Failure> {
        match way {
            PacketWay::Ip => self.tun.forget_credentials(),
            PacketWay::Udp => self.udp.forget_credentials(),
            PacketWay::Kernel => {
                let done = Command::new("ip").args(["tcp_metrics", "flush", "all"]).status()?;
                if !done.success() {
                    return Err("`ip tcp_metrics flush all` fails".into());
                }
            }
            PacketWay::Quic => {}
        }
        self.held[way as usize] = None;
        Ok(())
    }

    /// A visit that is not measured.
    async fn get(
        &self,
        dial: &Dial,
        connector: &Connector,
        port: u16,
        path: &str,
    ) -> Result<TlsStream<Stream>, Failure> {
        let (text, server) = (request(path), authority(port)?);
        let first = FirstFlight::safely_replayable(text.as_bytes());
        let mut stream = dial.connect(connector, &server, first).await?;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        if answer.is_empty() {
            return Err(format!("no answer to {path}").into());
        }
        let _ = stream.shutdown().await;
        Ok(stream)
    }

    fn builder(&self) -> Result<ConnectorBuilder, Failure> {
        Ok(Connector::builder().ca_file(self.ends.files.join("ca.pem"))?.http1())
    }

    fn connector(&self, visit: &Visit, port: u16) -> Result<Connector, Failure> {
        let builder = self.builder()?;
        let record = match visit.seal {
            Seal::Off => return Ok(builder.build()?),
            Seal::NoKey => None,
            Seal::Right => Some(Record::parse(&std::fs::read(self.ends.files.join(server::RECORD))?)?),
            Seal::Stale => Some(other_record()?),
        };
        let mut seal = SealClient::new();
        if let Some(record) = record {
            seal = seal.record(authority(port)?, record, KeySource::Configuration);
        }
        Ok(builder.seal(seal).build()?)
    }

    /// What opens the connections of a visit.
    async fn dial(&mut self, visit: &Visit, port: u16) -> Result<Dial, Failure> {
        Ok(match (visit.way, visit.credential) {
            (PacketWay::Udp, Credential::Certificate | Credential::Refused) => {
                Dial(self.certified_client(visit.once).await?, None)
            }
            (PacketWay::Udp, _) => {
                let client = Client::builder().engine_in_udp(self.udp.clone(), Some(port)).build()?;
                Dial(client, Some(at(self.ends.server, port)))
            }
            (PacketWay::Ip, credential) => {
                let mut builder = Client::builder().engine(self.tun.clone());
                if credential == Credential::Certificate {
                    let certificate = self.certificate()?;
                    let record = Published::on_ip(MSS, &[certificate.verifier().id()]).ok_or("a record")?;
                    builder = builder.no_resolver().servers_run_once(true);
                    builder = builder.certificate(certificate).record(authority(port)?, record);
                }
                Dial(builder.build()?, Some(at(self.ends.tun_server, port)))
            }
            (PacketWay::Kernel | PacketWay::Quic, _) => Dial(self.client()?.build()?, None),
        })
    }

    fn client(&self) -> Result<ClientBuilder, Failure> {
        Ok(Client::builder().network(NETWORK).resolver(Names::at(self.ends.dns)?).no_resolver())
    }

    /// A client with a certificate, and nothing else. If its request must not run twice, it has seen that UDP works here:
    /// before that a client sends no such request in UDP.
    async fn certified_client(&self, once: bool) -> Result<Client, Failure> {
        let issuer = IssuerAddress::new(at(self.ends.server, VERIFIER), verifier().public());
        let pool = PoolConfig { fresh: 1, ..PoolConfig::default() };
        let id = issuer.id();
        let mut builder = self.client()?.verifier(issuer).certificates(pool).servers_run_once(true);
        for port in PORTS {
            let record = Published::in_udp(port, DATAGRAM, &[id]).ok_or("a record")?;
            builder = builder.record(authority(port)?, record);
        }
        let client = builder.build()?;
        if !client.prepare(Duration::from_secs(10)).await {
            return Err("the verifier gives no certificate".into());
        }
        if once {
            let plain = self.builder()?.build()?;
            self.get(&Dial(client.clone(), None), &plain, PORT, "/udp-works").await?;
        }
        Ok(client)
    }

    /// A certificate for the engine's address on IP.
    fn certificate(&mut self) -> Result<Arc<ClientCertificate>, Failure> {
        let (now, unix) = (firstflight::certificate_clock()?, firstflight::unix_ms() / 1000);
        let key = certified::key(&mut self.random);
        let made = certified::certificate(key, self.ends.tun_ip, (now, unix), (LASTS, 1));
        Ok(Arc::new(made.ok_or("a certificate")?))
    }
}

/// What the client knows about a visit, with what the server said.
fn told(stream: &TlsStream<Stream>, first_byte: Duration, answer: &[u8]) -> Value {
    let (handshake, outcome) = (stream.handshake(), stream.io().outcome());
    let text = String::from_utf8_lossy(answer);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let tls = match (handshake.retried, handshake.resumed) {
        (true, _) => "retried",
        (false, true) => "resumed",
        (false, false) => "full",
    };
    let early = match handshake.early {
        Early::Accepted => "accepted",
        Early::Refused => "refused",
        _ => "none",
    };
    json!({
        "ms": ms(first_byte),
        "status": text.split(' ').nth(1),
        "by": stream.io().way().as_str(),
        "outcome": outcome.as_str(),
        "reason": outcome.reason().map(|reason| reason.as_str()),
        "raced": stream.io().race().is_some(),
        "tls": tls,
        "hybrid": handshake.hybrid,
        "early_data": early,
        "seal": stream.seal_outcome().map(seal_word),
        "server": serde_json::from_str::<Value>(body).ok(),
    })
}

/// As `docs/spec/sealed.md` 7.7 says it.
const fn seal_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::OneRoundTrip => "one-round-trip",
        Outcome::StaleKey => "stale-key",
        Outcome::NoKey => "no-key",
        Outcome::Declined => "declined",
        Outcome::TransportRefused => "transport-refused",
        _ => "unknown",
    }
}

/// A key that the server does not have.
fn other_record() -> Result<Record, Failure> {
    let now = firstflight::unix_ms() / 1000;
    let mut keys = KeySet::new(super::NAME.parse()?);
    let (key, id) = (SealKey::from_bytes(&[9; 32]), NonZeroU8::new(9));
    let (key, id) = key.zip(id).ok_or("a key")?;
    keys.add(id, key, u32::try_from(now + 86_400)?, now)?;
    keys.record(now).ok_or_else(|| "no record".into())
}

pub fn unix() -> f64 {
    firstflight::Time::system().unix().as_secs_f64()
}

pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
