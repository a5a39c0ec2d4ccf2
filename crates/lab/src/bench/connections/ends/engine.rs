//! Our engine in UDP.

use super::{Client, FlightEnd, Visit, Visiting, answer, ask, invalid, report, request, said};
use crate::bench::connections::process::Cable;
use crate::bench::connections::way::ConnectWay;
use crate::certified;
use firstflight::credential::asap::{BudgetConfig, ClientCertificate};
use firstflight::credential::{
    CookieKey, FastOpenPolicy, KeyRing, Outcome, PendingLimit, Reason, ReplayTable, Scheme, Window,
};
use firstflight::link::xdp::{Allow, Joined, XdpConfig};
use firstflight::link::{BusyPoll, UdpLink};
use firstflight::{Card, Config, ConnectConfig, Endpoint, FirstFlight, ListenConfig, Listener, Stream};
use firstflight_credential::GuardKey;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Value, json};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const SERVER: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The TCP port of connections that are closed again.
const PORT: u16 = 80;
/// The number of TCP ports behind [`PORT`] for connections that stay open. A client has some 28,000 ports for each.
const STAY_PORTS: u16 = 16;
/// Connections that stay open, for each of these ports.
const EACH: usize = 16_000;
/// Requests with certificates that the guard has room for, a second.
const RATE: u64 = 100_000;

/// The UDP port on cards.
const CARD_PORT: u16 = 4433;

/// Starts the server.
pub fn serve(way: ConnectWay, work: Duration, busy_poll: Duration) -> io::Result<Value> {
    let link = UdpLink::bind((SERVER, 0).into())?;
    let port = link.port();
    let mut config = firstflight::config(Vec::new())?;
    // The subject is what a request costs, not the limit of signatures.
    config.limits.asap = BudgetConfig::default().per_second(1_000_000_000);
    listen(&start(config, link, busy_poll), way, SERVER, work)?;
    Ok(json!({ "port": port }))
}

/// Starts the server on a network card.
pub fn serve_on_card(cable: Cable, work: Duration, busy_poll: Duration) -> io::Result<Value> {
    let endpoint = start_on_card(cable, &[cable.server().into()], busy_poll)?;
    listen(&endpoint, ConnectWay::UdpCard, cable.server(), work)?;
    Ok(json!({ "port": CARD_PORT }))
}

fn listen(endpoint: &Endpoint, way: ConnectWay, ip: Ipv4Addr, work: Duration) -> io::Result<()> {
    let pending = Arc::new(PendingLimit::with_clients(1 << 16, u32::MAX));
    let keys = Arc::new(KeyRing::new(Scheme::Linux, CookieKey::from_bytes([7; 16])));
    let guard = {
        let window = Window::REQUESTS;
        let bytes = if way == ConnectWay::Asap { ReplayTable::bytes_for(RATE, &window) } else { 0 };
        // As if it had started ten minutes ago.
        let since = firstflight::unix_ms().saturating_sub(600_000);
        Arc::new(ReplayTable::new(GuardKey::from_bytes([3; 16]), window, bytes, since))
    };
    for port in PORT..=PORT + STAY_PORTS {
        let mut config = ListenConfig::new((ip, port).into());
        match way {
            ConnectWay::FastOpen => {
                config.fast_open = Some(FastOpenPolicy::new(Arc::clone(&keys), Arc::clone(&pending)));
            }
            ConnectWay::Asap => {
                let guard = Arc::clone(&guard) as _;
                let policy = certified::policy(true, guard, &pending);
                config.asap = Some(policy.ok_or_else(|| invalid("no policy for certificates"))?);
            }
            _ => {}
        }
        let listener = endpoint.listen(config).map_err(io::Error::other)?;
        tokio::spawn(accept(listener, work));
    }
    Ok(())
}

/// Starts an engine.
fn start(mut config: Config, link: UdpLink, busy_poll: Duration) -> Endpoint {
    if busy_poll.is_zero() {
        return Endpoint::over_udp(config, link);
    }
    Endpoint::prepare_udp(&mut config, &link);
    Endpoint::new(config, BusyPoll::new(link, busy_poll))
}

/// Starts an engine in UDP on the card of this namespace.
fn start_on_card(cable: Cable, addresses: &[IpAddr], busy_poll: Duration) -> io::Result<Endpoint> {
    let card = Card::in_udp(XdpConfig::new(&cable.device(), Allow::Any), addresses, CARD_PORT);
    let card = card.map_err(io::Error::other)?;
    let mut config = firstflight::config(addresses.to_vec())?;
    card.prepare(&mut config);
    let queues = card.attach().map_err(io::Error::other)?;
    let link = Joined::open(queues).map_err(io::Error::other)?;
    Ok(Endpoint::new(config, BusyPoll::new(link, busy_poll)))
}

async fn accept(listener: Listener, work: Duration) {
    while let Ok(stream) = listener.accept().await {
        tokio::spawn(async move { report(answer::<Stream>(stream, work).await) });
    }
}

/// The client: an engine for each address.
pub struct Engines {
    way: ConnectWay,
    server: Ipv4Addr,
    encapsulation: u16,
    engines: Vec<One>,
    visits: AtomicUsize,
}

struct One {
    ip: IpAddr,
    endpoint: Endpoint,
    /// One endpoint has several addresses.
    local: Option<SocketAddr>,
    config: Mutex<Arc<ConnectConfig>>,
}

impl Engines {
    pub fn new(way: ConnectWay, server: &Value, addresses: u8, busy_poll: Duration) -> io::Result<Self> {
        let mut engines = Vec::new();
        for n in 1..=addresses {
            let ip = Ipv4Addr::new(127, 0, 3, n);
            let link = UdpLink::bind((ip, 0).into())?;
            let endpoint = start(firstflight::config(Vec::new())?, link, busy_poll);
            engines.push(One { ip: ip.into(), endpoint, local: None, config: Mutex::default() });
        }
        Self::of(way, SERVER, server, engines)
    }

    pub fn on_card(cable: Cable, server: &Value, addresses: u8, busy_poll: Duration) -> io::Result<Self> {
        let ips: Vec<IpAddr> = (1..=addresses).map(|n| cable.client(n).into()).collect();
        let endpoint = start_on_card(cable, &ips, busy_poll)?;
        let one = |ip| One {
            ip,
            endpoint: endpoint.clone(),
            local: Some(SocketAddr::new(ip, 0)),
            config: Mutex::default(),
        };
        Self::of(ConnectWay::UdpCard, cable.server(), server, ips.into_iter().map(one).collect())
    }

    fn of(way: ConnectWay, ip: Ipv4Addr, server: &Value, engines: Vec<One>) -> io::Result<Self> {
        let encapsulation = said(server, "port")?;
        let all = Self { way, server: ip, encapsulation, engines, visits: AtomicUsize::new(0) };
        all.refresh()?;
        Ok(all)
    }
}

impl Client for Engines {
    fn visit(&self, _: usize, stays: Option<usize>) -> Visiting<'_> {
        Box::pin(async move {
            let turn = self.visits.fetch_add(1, Ordering::Relaxed);
            let one = self.engines.get(turn % self.engines.len().max(1)).ok_or(io::ErrorKind::NotFound)?;
            let config = Arc::clone(&one.config.lock().unwrap_or_else(PoisonError::into_inner));
            let port = match stays {
                None => PORT,
                Some(n) if n / EACH < usize::from(STAY_PORTS) => PORT + 1 + (n / EACH) as u16,
                Some(_) => return Err(invalid("too many connections stay open")),
            };
            let request = request(stays.is_some());
            let first = match self.way {
                ConnectWay::UdpHandshake | ConnectWay::UdpCard => FirstFlight::at_most_once(&request),
                _ => FirstFlight::safely_replayable(&request),
            };
            let since = Instant::now();
            let mut stream = one.endpoint.connect((self.server, port).into(), first, &config).await?;
            let fate = fate(&stream);
            let took = ask(&mut stream, stays.is_some(), since).await?;
            Ok(Visit { took, fate, held: stays.map(|_| Box::new(stream) as _) })
        })
    }

    /// A certificate lasts for half an hour.
    fn refresh(&self) -> io::Result<()> {
        for one in &self.engines {
            let config = match self.way {
                ConnectWay::Asap => {
                    certified::connect(&Arc::new(certificate(one.ip)?), firstflight::certificate_clock()?)
                }
                way => ConnectConfig::default().fast_open(way == ConnectWay::FastOpen),
            };
            let config = Arc::new(config.encapsulation(Some(self.encapsulation)).local(one.local));
            *one.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        }
        Ok(())
    }
}

fn certificate(ip: IpAddr) -> io::Result<ClientCertificate> {
    let mut seed = [0; 32];
    firstflight::random_bytes(&mut seed)?;
    let key = certified::key(&mut ChaCha20Rng::from_seed(seed));
    let now = (firstflight::certificate_clock()?, firstflight::unix_ms() / 1000);
    let made = certified::certificate(key, ip, now, (certified::LASTS, 1));
    made.ok_or_else(|| invalid("no certificate"))
}

/// What became of the first flight.
fn fate(stream: &Stream) -> FlightEnd {
    let outcome = stream.outcome();
    if outcome.is_accepted() {
        return FlightEnd::Accepted;
    }
    let reason = outcome.reason();
    let label = reason.map_or(outcome.as_str(), Reason::as_str);
    // Each reason for which a client sends no data. All others are answers, or the lack of one.
    match outcome {
        Outcome::Handshake(Reason::SynTimedOut | Reason::Unknown) => FlightEnd::Lost(label),
        Outcome::Handshake(
            Reason::FailureMemory
            | Reason::NoCredential
            | Reason::NotRequested
            | Reason::NotReplaySafe
            | Reason::Expired
            | Reason::MessageTooLarge
            | Reason::PeerWithoutFastOpen
            | Reason::CapabilityUnknown
            | Reason::SystemDisabled,
        ) => FlightEnd::KeptBack(label),
        _ => FlightEnd::Refused(label),
    }
}
