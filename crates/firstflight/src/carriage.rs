//! First flights inside the lookup of the server's address (Zhou's thesis, chapter 5; `docs/spec/dns-carriage.md`).
//!
//! A request to a server whose address is not known normally waits for the lookup. Here the first flight travels
//! inside the lookup: it is sealed and split into names that the resolver queries at the server's own name server.
//! That name server hands the flight to the server, and the server answers the client before the client knows the
//! server's address. When the address arrives, the request is also sent directly. The server executes only one of the
//! two copies.
//!
//! This works only where a server that the client never contacted can answer it: see [`Proof`]. In all other cases,
//! and whenever there is a reason against it ([`HeldBack`]), the connection is opened in the ordinary way and no time
//! is lost.
//!
//! ```
//! use firstflight::carriage::{DnsPath, Server};
//! use firstflight::wire::asap::ServiceParam;
//! use firstflight::{ConnectConfig, FirstFlight, Stream};
//!
//! /// `parameter` is from the server's HTTPS record, found in an earlier visit. `config` has a certificate.
//! async fn ask(path: &DnsPath, parameter: &[u8], config: &ConnectConfig) -> std::io::Result<Stream> {
//!     let service = ServiceParam::parse(parameter).ok().and_then(|param| param.udp().copied());
//!     let request = FirstFlight::safely_replayable(b"GET / HTTP/1.0\r\n\r\n");
//!     // Any resolver library will do. The closure may be called twice.
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

pub use crate::memory::lookups::LookupMemory;
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

/// How long to wait for the first address before other addresses are tried in parallel (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// A client's path through lookups: an endpoint on UDP, a resolver, and the state of both. Clones are handles to one
/// path.
#[derive(Debug, Clone)]
pub struct DnsPath(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    time: Time,
    resolver: SocketAddr,
    /// How questions reach the resolver. Without an exchange, a UDP socket is used.
    exchange: Option<Exchange>,
    network: NetworkId,
    /// The proof and when it expires, in the endpoint's time.
    proof: Mutex<Option<(Proof, Moment)>>,
    /// Whether one additional name is sent, so that any one name may be lost.
    parity: bool,
    manners: Mutex<Manners>,
    losses: Mutex<Losses>,
    /// Number of first flights inside lookups whose outcome is not known yet.
    flying: watch::Sender<usize>,
}

impl Inner {
    fn manners(&self) -> MutexGuard<'_, Manners> {
        self.manners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clock that `manners` uses.
    fn now(&self) -> Moment {
        self.time.certificate_clock().unwrap_or_default()
    }
}

/// The server to connect to.
#[derive(Debug, Clone, Copy)]
pub struct Server<'a> {
    /// The TCP port.
    pub port: u16,
    /// The parameter that the server publishes ([`ServiceParam`](firstflight_wire::asap::ServiceParam)), known from
    /// an earlier visit or from configuration. Nothing is sent to find it out.
    pub service: Option<UdpService<'a>>,
}

impl DnsPath {
    /// See [`DnsPath::lost_in_a_row`].
    pub const ASK_AGAIN_AFTER: u32 = 2;

    /// Sends first flights of `endpoint`, which carries TCP in UDP, through `resolver`. The resolver is one that the
    /// user named, or the system's resolver at a loopback address. If the system asks over TLS or HTTPS, never use
    /// another host's port 53, because that would expose names that the system keeps private. `network` is the local
    /// network ([`crate::network_id`]). Without a `proof`, first flights are held back until [`DnsPath::prove`] gives
    /// one. `manners` is the state that earlier runs left. With `parity`, each first flight has one additional name,
    /// so that any one name may be lost.
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

    /// Like [`DnsPath::new`], but the application carries the questions to the resolver with `exchange`, for example
    /// over its own connection or in memory.
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

    /// Connects to `server` and sends `first`, both through the lookup and directly; only directly if there is a
    /// reason against the lookup.
    ///
    /// `lookup` queries the server's addresses, best one first, with any library. It is called at once. The names of
    /// the first flight are sent 1 ms later, or after other tasks had some turns if an [`Exchange`] carries them, so
    /// that a resolver with a rate limit answers the address question first. If the lookup fails, it is called once
    /// more half a second later. `config` is used for the direct connection. Resolves when a handshake is complete.
    ///
    /// # Errors
    /// When there are no addresses or no server answers at them, and no answer to the first flight in the lookup
    /// arrives within 5 s after it was sent.
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
                let stream = other.unwrap_or_else(|| armed.bound().into());
                let relayed = stream.info().is_some_and(|info| info.relayed);
                if relayed {
                    self.0.manners().handle_relayed(flight);
                }
                let way = if relayed { Way::Lookup } else { Way::Direct };
                if !elsewhere {
                    // If the SYN was sent again, it is not known which one arrived.
                    let once = stream.info().is_some_and(|info| info.handshake_retransmits == 0);
                    let sent = known.get().copied().filter(|_| once);
                    // The receiver is dropped only when the runtime ends.
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

    /// Whether first flights of `zone` are paused for this resolver on this network.
    #[must_use]
    pub fn is_stopped(&self, zone: Zone<'_>) -> bool {
        let Inner { network, resolver, .. } = &*self.0;
        self.0.manners().is_stopped(zone, *network, resolver.ip(), self.0.now())
    }

    /// The zones and resolvers for which first flights are paused, or soon might be. Save them for
    /// [`Manners::restore`].
    #[must_use]
    pub fn stops(&self) -> Vec<Stop> {
        self.0.manners().stops(self.0.now()).cloned().collect()
    }

    /// Judges first flights whose names are still unanswered by the answers received so far. A program that is about
    /// to end calls this before [`DnsPath::stops`].
    pub fn conclude(&self) {
        self.0.manners().conclude(self.0.now());
    }

    /// Connects without a lookup that carries the request.
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

    /// Prepares a first flight in names, unless there is a reason against it. Sends nothing.
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
        let config = config.clone().carrier(carrier);
        if inner.losses().is_paused(&(&carriage).into(), inner.time.now()) {
            return Err(HeldBack::Lost);
        }
        let now = inner.time.certificate_clock().map_err(HeldBack::Io)?;
        // This counts the flight, so it comes after all other checks.
        let flight = inner.manners().take(carriage.zone, inner.network, inner.resolver.ip(), now)?;
        let sealed = || {
            let armed = Armed::new(&inner.endpoint, proof.verifier, server.port, first.data(), &config)?;
            let queries = armed.seal(proof.seen, &carriage, inner.parity)?;
            Ok(Ready { armed, flight, queries, of: (&carriage).into() })
        };
        sealed().inspect_err(|_| inner.manners().handle_failure(flight))
    }

    /// Sends the names of the first flight.
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

    /// Waits for an answer. When the addresses arrive in the meantime, sends the direct copy. Returns another
    /// connection if it was faster than `armed`.
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
        // Send the direct copy at once, even if the copy in the lookup may have won: its arrival proves the client's
        // address to the server, which may then send the whole response.
        //
        // The certificate is valid for one address family only.
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
                    // Perhaps something on the path rejects the credential block but passes a plain SYN.
                    addresses.push(direct);
                    (plain.fast_open, plain.asap) = (false, None);
                    plain.held_back = Some(Reason::SynRefused);
                }
                () = next_address => {}
            }
        }
        // Try the other addresses in the ordinary way. The first answer wins.
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

/// A first flight that is ready to be sent.
struct Ready {
    armed: Armed,
    flight: FlightId,
    queries: Vec<FragmentQuery>,
    /// The parameter that it is sealed to.
    of: Parameter,
}

/// A first flight that was sent, with its number of names.
struct Departed {
    armed: Armed,
    flight: FlightId,
    names: usize,
    /// Receives the fate of the first flight.
    fate: oneshot::Sender<Fate>,
}
