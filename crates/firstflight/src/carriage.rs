//! First flights inside the lookup of the server's address (Zhou's thesis, chapter 5; `docs/spec/dns-carriage.md`).
//!
//! A request to a server whose address is not at hand waits for the lookup first. Here it travels along: sealed, in
//! names that the resolver asks the server's own name server for, which hands it to the server, which answers the
//! client before that one knows its address. When the address comes, the request goes the direct way as well; the
//! server executes one of the two.
//!
//! It works where a server that was never contacted can answer at all: [`Proof`]. Everywhere else, and whenever
//! something speaks against it ([`HeldBack`]), the connection is opened as ever, and no time is lost.
//!
//! ```
//! use firstflight::carriage::{DnsPath, Server};
//! use firstflight::wire::asap::ServiceParam;
//! use firstflight::{ConnectConfig, FirstFlight, Stream};
//!
//! /// `parameter` is what an earlier visit found in the server's HTTPS record, `config` has a certificate.
//! async fn ask(path: &DnsPath, parameter: &[u8], config: &ConnectConfig) -> std::io::Result<Stream> {
//!     let service = ServiceParam::parse(parameter).ok().and_then(|param| param.udp().copied());
//!     let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
//!     // Any resolver library will do. It may be asked twice.
//!     let lookup = async || {
//!         let found = tokio::net::lookup_host(("www.example.com", 80)).await?;
//!         Ok(found.map(|address| address.ip()).collect())
//!     };
//!     let (stream, report) = path.connect(Server { port: 80, service }, lookup, request, config).await?;
//!     println!("{}, {}", report.way.as_str(), stream.outcome());
//!     Ok(stream)
//! }
//! ```

mod armed;
mod ask;
mod exchange;
mod lookup;
mod losses;
mod proof;
mod report;

pub use exchange::Exchange;
pub use firstflight_dns::{Cause, Manners, Restraint, Stop};
pub use proof::Proof;
pub use report::{HeldBack, Report, Way};

use crate::endpoint::Endpoint;
use crate::first_flight::FirstFlight;
use crate::race::ConnectAnyConfig;
use crate::stream::Stream;
use crate::time::Time;
use armed::Armed;
use firstflight_credential::{NetworkId, Reason};
use firstflight_dns::{ConnectionInfo, FlightId, FragmentQuery};
use firstflight_stack::{ConnId, ConnectConfig};
use firstflight_wire::Instant as Moment;
use firstflight_wire::asap::{UdpService, Zone};
use futures_util::FutureExt;
use losses::{Fate, Losses, Parameter};
use std::future::{Future, pending};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// How long the first address is waited for before others are tried beside it (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// One client's way by lookups: an endpoint on UDP, a resolver, and what is known of both. Clones are handles to the
/// same one.
#[derive(Debug, Clone)]
pub struct DnsPath(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    time: Time,
    resolver: SocketAddr,
    /// The way to the resolver; without one it is a UDP socket.
    exchange: Option<Exchange>,
    network: NetworkId,
    /// The proof and when it expires, in the endpoint's time.
    proof: Mutex<Option<(Proof, Moment)>>,
    /// One more name, so that any one of them may be lost.
    parity: bool,
    manners: Mutex<Manners>,
    losses: Mutex<Losses>,
    /// First flights inside lookups of which it is not yet known what became of them.
    flying: watch::Sender<usize>,
}

impl Inner {
    fn manners(&self) -> MutexGuard<'_, Manners> {
        self.manners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock of manners.
    fn now(&self) -> Moment {
        self.time.certificate_clock().unwrap_or_default()
    }
}

/// The server to connect to.
#[derive(Debug, Clone, Copy)]
pub struct Server<'a> {
    /// The TCP port.
    pub port: u16,
    /// What it publishes ([`ServiceParam`](firstflight_wire::asap::ServiceParam)): known from an earlier visit or by
    /// configuration. Nothing is sent to find out.
    pub service: Option<UdpService<'a>>,
}

impl DnsPath {
    /// See [`DnsPath::lost_in_a_row`].
    pub const ASK_AGAIN_AFTER: u32 = 2;

    /// First flights of `endpoint`, which speaks TCP in UDP, by `resolver`: one that the user named, or the system's
    /// at a loopback address. Never another host's port 53 where the system asks over TLS or HTTPS: what is kept
    /// private there would be public. `network` is the local one ([`crate::network_id`]). Without a `proof` all of
    /// them are held back, until there is one ([`DnsPath::prove`]). `manners` are those of earlier ones; with `parity`
    /// there is one name more in each, and any one may be lost.
    ///
    /// Must be called within a tokio runtime: while there is a proof, keep-alives are sent.
    #[must_use]
    pub fn new(
        endpoint: Endpoint,
        resolver: SocketAddr,
        network: NetworkId,
        proof: Option<Proof>,
        manners: Manners,
        parity: bool,
    ) -> Self {
        Self::start(endpoint, resolver, None, network, proof, manners, parity)
    }

    /// Like [`DnsPath::new`], but the application carries the questions to the resolver by `exchange`: over a
    /// connection of its own, or in memory.
    #[must_use]
    pub fn through(
        endpoint: Endpoint,
        resolver: SocketAddr,
        exchange: Exchange,
        network: NetworkId,
        proof: Option<Proof>,
        manners: Manners,
        parity: bool,
    ) -> Self {
        Self::start(endpoint, resolver, Some(exchange), network, proof, manners, parity)
    }

    fn start(
        endpoint: Endpoint,
        resolver: SocketAddr,
        exchange: Option<Exchange>,
        network: NetworkId,
        proof: Option<Proof>,
        manners: Manners,
        parity: bool,
    ) -> Self {
        let time = endpoint.time();
        let manners = Mutex::new(manners);
        let (losses, flying) = (Mutex::default(), watch::Sender::new(0));
        let held = Mutex::new(None);
        let inner = Inner {
            endpoint,
            time,
            resolver,
            exchange,
            network,
            proof: held,
            parity,
            manners,
            losses,
            flying,
        };
        let path = Self(Arc::new(inner));
        if let Some(proof) = proof {
            path.prove(proof);
        }
        path
    }

    /// Connects to `server` and sends `first`, by the lookup and directly, or only directly where something speaks
    /// against the lookup. `lookup` asks for the server's addresses, best one first, by whatever library; it is called
    /// at once. The names of the first flight leave 1 ms after that, or when other tasks have had some turns if an
    /// [`Exchange`] carries them: so a resolver with a limit answers the question for the address. If the lookup fails,
    /// it is called once more, half a second later. Resolves when a handshake is complete. `config` is that of a direct
    /// connection.
    ///
    /// # Errors
    /// When no server answers at the addresses, or there are none, and no answer to the first flight in the lookup comes
    /// within 5 s of its departure.
    pub async fn connect<F>(
        &self,
        server: Server<'_>,
        lookup: impl Fn() -> F,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<(Stream, Report)>
    where
        F: Future<Output = io::Result<Vec<IpAddr>>>,
    {
        let mut asked = pin!(lookup());
        let mut found = asked.as_mut().now_or_never();
        let departed = match self.prepare(server, first, config) {
            Ok(ready) => {
                if found.is_none() {
                    found = self.lead(asked.as_mut()).await;
                }
                self.depart(ready).await
            }
            Err(held_back) => Err(held_back),
        };
        let addresses = async {
            let found = match found {
                Some(found) => found,
                None => asked.await,
            };
            self.or_ask_again(found, &lookup).await
        };
        match departed {
            Ok(Departed { armed, flight, names, fate }) => {
                let (time, known) = (&self.0.time, OnceLock::new());
                let addresses = async {
                    let found = addresses.await;
                    known.get_or_init(|| time.now());
                    found
                };
                let other = self.arrive(server, &armed, addresses, first, config).await?;
                let elsewhere = other.is_some();
                let stream = other.unwrap_or_else(|| armed.bound());
                let relayed = stream.info().is_some_and(|info| info.relayed);
                if relayed {
                    self.0.manners().handle_relayed(flight);
                }
                let way = if relayed { Way::Lookup } else { Way::Direct };
                if !elsewhere {
                    // If the SYN was sent again, it is not known which one arrived.
                    let once = stream.info().is_some_and(|info| info.handshake_retransmits == 0);
                    let sent = known.get().copied().filter(|_| once);
                    // Its receiver ends with the runtime only.
                    let _ = fate.send(Fate::of(way, stream.outcome(), sent, time.now()));
                }
                Ok((stream, Report { way, held_back: None, names }))
            }
            Err(held_back) => {
                let stream = self.ordinary(server, &addresses.await?, first, config).await?;
                Ok((stream, Report { way: Way::Ordinary, held_back: Some(held_back), names: 0 }))
            }
        }
    }

    /// Whether first flights of `zone` pause with the resolver on this network.
    #[must_use]
    pub fn is_stopped(&self, zone: Zone<'_>) -> bool {
        let Inner { network, resolver, .. } = &*self.0;
        self.0.manners().is_stopped(zone, *network, resolver.ip(), self.0.now())
    }

    /// Where first flights pause, or soon might: to be remembered ([`Manners::restore`]).
    #[must_use]
    pub fn stops(&self) -> Vec<Stop> {
        self.0.manners().stops(self.0.now()).cloned().collect()
    }

    /// Judges first flights with late names by the answers that have come so far. For programs that end: call it before
    /// [`DnsPath::stops`].
    pub fn conclude(&self) {
        self.0.manners().conclude(self.0.now());
    }

    /// As ever.
    async fn ordinary(
        &self,
        server: Server<'_>,
        addresses: &[IpAddr],
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<Stream> {
        let addresses: Vec<SocketAddr> =
            addresses.iter().map(|ip| SocketAddr::new(*ip, server.port)).collect();
        let config = ConnectAnyConfig { connect: config.clone(), ..ConnectAnyConfig::default() };
        Ok(self.0.endpoint.connect_any(&addresses, first, &config).await?)
    }

    /// A first flight that is ready to leave, in names, if nothing speaks against it. Nothing is sent.
    fn prepare(
        &self,
        server: Server<'_>,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> Result<Ready, HeldBack> {
        let inner = &self.0;
        let service = server.service.ok_or(HeldBack::NoCarriage)?;
        let carriage = service.carriage.ok_or(HeldBack::NoCarriage)?;
        if !first.is_replayable() || first.data().is_empty() {
            return Err(HeldBack::NotReplayable);
        }
        let certified = config.asap.as_ref().ok_or(HeldBack::NoCertificate)?;
        let proof = inner.proof().ok_or(HeldBack::NotProved)?;
        let address = certified.certificate.address();
        if proof.seen.ip().to_canonical() != address {
            return Err(HeldBack::OtherAddress);
        }
        if first.data().len() > ConnectionInfo::max_data(address) {
            return Err(HeldBack::TooLong);
        }
        let carrier = Some(config.carrier.unwrap_or(service.port.get()));
        let config = ConnectConfig { carrier, ..config.clone() };
        if inner.losses().is_paused(&(&carriage).into(), inner.time.now()) {
            return Err(HeldBack::Lost);
        }
        let now = inner.time.certificate_clock().map_err(HeldBack::Io)?;
        // Counted when everything else is in order.
        let flight = inner.manners().take(carriage.zone, inner.network, inner.resolver.ip(), now)?;
        let sealed = || {
            let armed = Armed::new(&inner.endpoint, proof.verifier, server.port, first.data(), &config)?;
            let queries = armed.seal(proof.seen, &carriage, inner.parity)?;
            Ok(Ready { armed, flight, queries, of: (&carriage).into() })
        };
        sealed().inspect_err(|_| inner.manners().handle_failure(flight))
    }

    /// Sends the first flight off, in names.
    async fn depart(&self, ready: Ready) -> Result<Departed, HeldBack> {
        let inner = &self.0;
        let Ready { armed, flight, queries, of } = ready;
        let asked = match ask::send(inner.resolver, inner.exchange.as_ref(), &queries).await {
            Ok(asked) => asked,
            Err(error) => {
                inner.manners().handle_failure(flight);
                return Err(HeldBack::Io(error));
            }
        };
        let names = queries.len();
        inner.manners().handle_departure(flight, names, usize::from(inner.parity), inner.now());
        let answered = tokio::spawn(ask::listen(self.clone(), asked, queries, flight));
        Ok(Departed { armed, flight, names, fate: self.follow(of, answered) })
    }

    /// Waits for an answer; meanwhile the address comes, and the direct copy leaves. Gives another connection, if
    /// that one was faster than `armed`.
    async fn arrive(
        &self,
        server: Server<'_>,
        armed: &Armed,
        addresses: impl Future<Output = io::Result<Vec<IpAddr>>>,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<Option<Stream>> {
        let until = self.0.time.now() + ask::PATIENCE;
        let mut answered = pin!(armed.stream.connected().fuse());
        let found = tokio::select! {
            biased;
            result = &mut answered => return result.map(|()| None),
            found = addresses => match found {
                Ok(found) => found,
                Err(error) => return self.answer_or(error, answered, until).await,
            },
        };
        // The direct copy leaves at once, also where the other one may have won: its arrival proves the client's address
        // to the server, which from then on may send the whole response.
        //
        // The certificate is for one family.
        let (mut addresses, others): (Vec<IpAddr>, Vec<IpAddr>) =
            found.into_iter().partition(|ip| ip.is_ipv4() == armed.v4);
        let direct = addresses.first().copied().filter(|first| self.send_direct(armed.id, *first));
        if direct.is_some() {
            addresses.remove(0);
        }
        addresses.extend(others);
        let mut plain = config.clone();
        if let Some(direct) = direct {
            let next_address = async {
                match addresses.is_empty() {
                    true => pending().await,
                    false => self.0.time.sleep(ATTEMPT_DELAY).await,
                }
            };
            tokio::select! {
                biased;
                result = &mut answered => return match result {
                    Err(_) if !addresses.is_empty() => {
                        self.ordinary(server, &addresses, first, config).await.map(Some)
                    }
                    result => result.map(|()| None),
                },
                _ = armed.stream.direct_refused(armed.id) => {
                    // Perhaps something on the path refuses the block, and passes a plain SYN.
                    addresses.push(direct);
                    (plain.fast_open, plain.asap) = (false, None);
                    plain.held_back = Some(Reason::SynRefused);
                }
                () = next_address => {}
            }
        }
        // Another address, as ever; whichever answers first.
        tokio::select! {
            biased;
            Ok(()) = &mut answered => Ok(None),
            result = self.ordinary(server, &addresses, first, &plain) => match result {
                Ok(stream) => Ok(Some(stream)),
                Err(error) => self.answer_or(error, answered, until).await,
            },
        }
    }

    fn send_direct(&self, id: ConnId, server: IpAddr) -> bool {
        let mut inner = self.0.endpoint.shared.lock();
        let now = inner.now();
        let sent = inner.stack.send_direct(id, server, now).is_ok();
        inner.kick();
        sent
    }
}

/// A first flight that can leave.
struct Ready {
    armed: Armed,
    flight: FlightId,
    queries: Vec<FragmentQuery>,
    /// What it is sealed to.
    of: Parameter,
}

/// A first flight that has left, in this many names.
struct Departed {
    armed: Armed,
    flight: FlightId,
    names: usize,
    /// Takes what became of it.
    fate: oneshot::Sender<Fate>,
}
