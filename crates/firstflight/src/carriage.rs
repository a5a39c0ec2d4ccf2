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
mod transport;

pub use crate::memory::lookups::LookupMemory;
pub use exchange::Exchange;
pub use firstflight_dns::{Cause, Manners, Restraint, Stop};
pub use proof::Proof;
pub use report::{HeldBack, Report, Way};

use crate::client::transport::engine::EngineTcp;
use crate::client::transport::{self as race, Lost};
use crate::endpoint::Endpoint;
use crate::first_flight::{FirstFlight, Flights};
use crate::stream::Stream;
use crate::time::Time;
use armed::Armed;
use firstflight_credential::NetworkId;
use firstflight_dns::{ConnectionInfo, FlightId, FragmentQuery};
use firstflight_stack::{Certified, ConnId, ConnectConfig};
use firstflight_wire::Instant as Moment;
#[cfg(feature = "asap")]
use firstflight_wire::asap::Carriage;
use firstflight_wire::asap::{UdpService, Zone};
use losses::{Fate, Losses, Parameter};
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{oneshot, watch};
use transport::InLookup;

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
    network: Mutex<NetworkId>,
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

    /// The proof that strangers can answer, if this data fits with this certificate.
    fn admits(&self, first: FirstFlight<'_>, certified: &Certified) -> Result<Proof, HeldBack> {
        let proof = self.proof().ok_or(HeldBack::NotProved)?;
        let address = certified.certificate.address();
        if proof.seen.ip().to_canonical() != address {
            return Err(HeldBack::OtherAddress);
        }
        if first.data().len() > ConnectionInfo::max_data(address) {
            return Err(HeldBack::TooLong);
        }
        Ok(proof)
    }

    fn network(&self) -> NetworkId {
        *self.network.lock().unwrap_or_else(PoisonError::into_inner)
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
            network: Mutex::new(network),
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
        lookup: impl Fn() -> F + Sync,
        first: FirstFlight<'_>,
        config: &ConnectConfig,
    ) -> io::Result<(Stream, Report)>
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send,
    {
        let tcp = EngineTcp::new(&self.0.endpoint, config.clone(), Flights::Given(first));
        let transports = InLookup::new(self, server, tcp);
        let addresses = async {
            let found = self.or_ask_again(lookup().await, &lookup).await?;
            Ok(found.into_iter().map(|ip| SocketAddr::new(ip, server.port)).collect())
        };
        let result = Box::pin(race::run(&transports, addresses)).await;
        let report = transports.into_report();
        match result {
            Ok(finish) => Ok((finish.stream, report)),
            Err(Lost { lookup: Some(error), .. }) => Err(error),
            Err(Lost { error, .. }) => Err(error.into()),
        }
    }

    /// The host is on another network now: what was proved and learnt on the former one is not used here. Returns whether it
    /// is another one.
    pub fn move_to(&self, network: NetworkId) -> bool {
        let inner = &self.0;
        let mut here = inner.network.lock().unwrap_or_else(PoisonError::into_inner);
        if *here == network {
            return false;
        }
        *here = network;
        inner.forget_proof();
        true
    }

    /// Strangers cannot answer here.
    #[cfg(feature = "asap")]
    pub(crate) fn disprove(&self) {
        self.0.forget_proof();
    }

    /// Whether first flights of `zone` are paused for this resolver on this network.
    #[must_use]
    pub fn is_stopped(&self, zone: Zone<'_>) -> bool {
        let inner = &*self.0;
        inner.manners().is_stopped(zone, inner.network(), inner.resolver.ip(), inner.now())
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

    /// Whether there is a reason against a first flight in names with this certificate, as far as it can be known before one
    /// is made.
    #[cfg(feature = "asap")]
    pub(crate) fn check(
        &self,
        carriage: &Carriage<'_>,
        flights: &Flights<'_>,
        certified: &Certified,
    ) -> Result<(), HeldBack> {
        let inner = &self.0;
        let first = Self::given(flights)?;
        inner.admits(first, certified)?;
        if inner.losses().is_paused(&carriage.into(), inner.time.now()) {
            return Err(HeldBack::Lost);
        }
        if self.is_stopped(carriage.zone) {
            return Err(HeldBack::Manners(Restraint::Stopped));
        }
        Ok(())
    }

    /// The data that is given for all attempts alike.
    fn given<'f>(flights: &Flights<'f>) -> Result<FirstFlight<'f>, HeldBack> {
        match flights {
            // What is made for an attempt is bound to its way.
            Flights::Made(_) => Err(HeldBack::Made),
            Flights::Given(first) if !first.is_replayable() || first.data().is_empty() => {
                Err(HeldBack::NotReplayable)
            }
            Flights::Given(first) => Ok(*first),
        }
    }

    /// What carries a race whose first attempt may begin inside the lookup.
    #[cfg(feature = "asap")]
    pub(crate) fn transport<'a>(&'a self, server: Server<'a>, tcp: EngineTcp<'a>) -> InLookup<'a> {
        InLookup::new(self, server, tcp)
    }

    /// Prepares a first flight in names, unless there is a reason against it. Sends nothing.
    fn prepare(
        &self,
        server: Server<'_>,
        flights: &Flights<'_>,
        config: &ConnectConfig,
    ) -> Result<Ready, HeldBack> {
        let inner = &self.0;
        let service = server.service.ok_or(HeldBack::NoCarriage)?;
        let carriage = service.carriage.ok_or(HeldBack::NoCarriage)?;
        let first = Self::given(flights)?;
        let certified = config.asap.as_ref().ok_or(HeldBack::NoCertificate)?;
        let proof = inner.admits(first, certified)?;
        let carrier = Some(config.carrier.unwrap_or(service.port.get()));
        let config = config.clone().carrier(carrier);
        if inner.losses().is_paused(&(&carriage).into(), inner.time.now()) {
            return Err(HeldBack::Lost);
        }
        let now = inner.time.certificate_clock().map_err(HeldBack::Io)?;
        // This counts the flight, so it comes after all other checks.
        let flight = inner.manners().take(carriage.zone, inner.network(), inner.resolver.ip(), now)?;
        let sealed = || {
            let armed = Armed::new(&inner.endpoint, proof.verifier, server.port, first.data(), &config)?;
            let queries = armed.seal(proof.seen, &carriage, inner.parity)?;
            Ok(Ready { armed, sealed: Sealed { flight, queries, of: (&carriage).into() } })
        };
        sealed().inspect_err(|_| inner.manners().handle_failure(flight))
    }

    /// Sends the names of a first flight, when the question for the address has left: see [`DnsPath::lead`]. The error is of
    /// this host.
    async fn depart(
        &self,
        sealed: Sealed,
        found: impl Future<Output = ()>,
        sending: &AtomicBool,
    ) -> io::Result<oneshot::Sender<Fate>> {
        self.lead(found).await;
        sending.store(true, Ordering::Relaxed);
        let inner = &self.0;
        let Sealed { flight, queries, of } = sealed;
        let asked = match ask::send(inner.resolver, inner.exchange.as_ref(), &queries).await {
            Ok(asked) => asked,
            Err(error) => {
                inner.manners().handle_failure(flight);
                return Err(error);
            }
        };
        inner.manners().handle_departure(flight, queries.len(), usize::from(inner.parity), inner.now());
        let answered = tokio::spawn(ask::listen(self.clone(), asked, queries, flight));
        Ok(self.follow(of, answered))
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
pub(crate) struct Ready {
    armed: Armed,
    sealed: Sealed,
}

/// The names of a first flight.
struct Sealed {
    flight: FlightId,
    queries: Vec<FragmentQuery>,
    /// The parameter that it is sealed to.
    of: Parameter,
}
