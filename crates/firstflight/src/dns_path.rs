//! First flights inside the lookup of the server's address (Zhou's thesis, chapter 5; `docs/spec/dns-path.md`).
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
//! A client sends them so if [`ClientBuilder::inside_lookups`](crate::ClientBuilder::inside_lookups) says so, and
//! [`Stream::inside_lookup`](crate::Stream::inside_lookup) says what became of each.

mod ask;
mod cut;
mod exchange;
mod in_lookup;
mod lookup;
mod losses;
mod proof;
pub(crate) mod report;
mod stream;
mod transport;

pub use exchange::Exchange;
pub use firstflight_dns::Restraint;
pub use proof::Proof;
pub use report::{HeldBack, LookupWay, Report};

use crate::client::transport::engine::EngineTcp;
use crate::endpoint::Endpoint;
use crate::first_flight::{FirstFlight, Flights};
use crate::time::Time;
use firstflight_credential::NetworkId;
use firstflight_dns::{ConnectionInfo, FlightId, FragmentQuery, Manners, Stop};
use firstflight_stack::{Certified, ConnId, ConnectConfig, FirstData};
use firstflight_wire::Instant as Moment;
use firstflight_wire::asap::DnsPathParam;
use firstflight_wire::asap::{UdpService, Zone};
use in_lookup::InLookupConnect;
use losses::{LookupFate, Losses, Parameter};
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
pub(crate) struct DnsPath(Arc<Inner>);

/// How first flights are cut.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Form {
    /// One additional name is sent, so that any one name may be lost.
    pub(crate) parity: bool,
    /// Of requests of HTTP/1 that do not fit, the first line travels.
    pub(crate) first_lines: bool,
}

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
    form: Form,
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

    /// The proof that strangers can answer, and how much of this data travels inside with this certificate.
    fn admits(&self, first: FirstFlight<'_>, certified: &Certified) -> Result<(Proof, usize), HeldBack> {
        let proof = self.proof().ok_or(HeldBack::NotProved)?;
        let address = certified.certificate.address();
        if proof.seen.ip().to_canonical() != address {
            return Err(HeldBack::OtherAddress);
        }
        let room = ConnectionInfo::max_data(address);
        let carried = cut::carried(first, self.form.first_lines, room).ok_or(HeldBack::TooLong)?;
        Ok((proof, carried))
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
pub(crate) struct Server<'a> {
    /// The TCP port.
    pub(crate) port: u16,
    /// The parameter that the server publishes ([`ServiceParam`](firstflight_wire::asap::ServiceParam)), known from
    /// an earlier visit or from configuration. Nothing is sent to find it out.
    pub(crate) service: Option<UdpService<'a>>,
}

impl DnsPath {
    /// See [`DnsPath::lost_in_a_row`].
    pub(crate) const ASK_AGAIN_AFTER: u32 = 2;

    /// Sends first flights of `endpoint`, which carries TCP in UDP, through `resolver`, by UDP or, if there is one, by the
    /// program's `exchange`. `network` is the local network. Without a `proof`, first flights are held back until
    /// [`DnsPath::prove`] gives one. `manners` is the state that earlier runs left.
    ///
    /// Must be called within a tokio runtime: while there is a proof, keep-alives are sent.
    pub(crate) fn new(
        endpoint: Endpoint,
        resolver: SocketAddr,
        exchange: Option<Exchange>,
        network: NetworkId,
        proof: Option<Proof>,
        manners: Manners,
        form: Form,
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
            form,
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

    #[cfg(test)]
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    /// The host is on another network now: what was proved and learnt on the former one is not used here. Returns whether it
    /// is another one.
    pub(crate) fn move_to(&self, network: NetworkId) -> bool {
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
    pub(crate) fn disprove(&self) {
        self.0.forget_proof();
    }

    /// Whether first flights of `zone` are paused for this resolver on this network.
    pub(crate) fn is_stopped(&self, zone: Zone<'_>) -> bool {
        let inner = &*self.0;
        inner.manners().is_stopped(zone, inner.network(), inner.resolver.ip(), inner.now())
    }

    /// The zones and resolvers for which first flights are paused, or soon might be. Save them for
    /// [`Manners::restore`].
    pub(crate) fn stops(&self) -> Vec<Stop> {
        self.0.manners().stops(self.0.now()).cloned().collect()
    }

    /// Judges first flights whose names are still unanswered by the answers received so far. A program that is about
    /// to end calls this before [`DnsPath::stops`].
    pub(crate) fn conclude(&self) {
        self.0.manners().conclude(self.0.now());
    }

    /// Whether there is a reason against a first flight in names with this certificate, as far as it can be known before one
    /// is made.
    pub(crate) fn check(
        &self,
        dns_path: &DnsPathParam<'_>,
        flights: &Flights<'_>,
        certified: &Certified,
    ) -> Result<(), HeldBack> {
        let inner = &self.0;
        let first = Self::given(flights)?;
        inner.admits(first, certified)?;
        if inner.losses().is_paused(&dns_path.into(), inner.time.now()) {
            return Err(HeldBack::Lost);
        }
        if self.is_stopped(dns_path.zone) {
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
        let service = server.service.ok_or(HeldBack::NoDnsPath)?;
        let dns_path = service.dns_path.ok_or(HeldBack::NoDnsPath)?;
        let first = Self::given(flights)?;
        let certified = config.asap.as_ref().ok_or(HeldBack::NoCertificate)?;
        let (proof, carried) = inner.admits(first, certified)?;
        let encapsulation = Some(config.encapsulation.unwrap_or(service.port.get()));
        let config = config.clone().encapsulation(encapsulation);
        if inner.losses().is_paused(&(&dns_path).into(), inner.time.now()) {
            return Err(HeldBack::Lost);
        }
        let now = inner.time.certificate_clock().map_err(HeldBack::Io)?;
        // This counts the flight, so it comes after all other checks.
        let flight = inner.manners().take(dns_path.zone, inner.network(), inner.resolver.ip(), now)?;
        let sealed = || {
            let data = FirstData::part(first.data(), carried);
            let in_lookup =
                InLookupConnect::new(&inner.endpoint, proof.verifier, server.port, data, &config)?;
            if in_lookup.taken < first.data().len() {
                return Err(HeldBack::TooLong);
            }
            let queries = in_lookup.seal(proof.seen, &dns_path, inner.form.parity)?;
            Ok(Ready { in_lookup, sealed: Sealed { flight, queries, carried, of: (&dns_path).into() } })
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
    ) -> io::Result<oneshot::Sender<LookupFate>> {
        self.lead(found).await;
        sending.store(true, Ordering::Relaxed);
        let inner = &self.0;
        let Sealed { flight, queries, of, .. } = sealed;
        let asked = match ask::send(inner.resolver, inner.exchange.as_ref(), &queries).await {
            Ok(asked) => asked,
            Err(error) => {
                inner.manners().handle_failure(flight);
                return Err(error);
            }
        };
        inner.manners().handle_departure(flight, queries.len(), usize::from(inner.form.parity), inner.now());
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
    in_lookup: InLookupConnect,
    sealed: Sealed,
}

/// The names of a first flight.
struct Sealed {
    flight: FlightId,
    queries: Vec<FragmentQuery>,
    /// Bytes of the data in them.
    carried: usize,
    of: Parameter,
}
