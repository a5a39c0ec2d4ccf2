//! Requests inside the lookup of the server's address.

use super::remembered::Remembered;
use super::{Engine, Trial};
use crate::attempts::FailedAttempt;
use crate::client::connect::Filter;
use crate::client::transport::engine::EngineTcp;
use crate::client::transport::kernel::KernelTcp;
use crate::client::transport::udp_beside_tcp::Beside;
use crate::client::transport::{self, Finish, RaceLost};
use crate::client::{Authority, Client, ClientBuilder, ClientError, Host, maybe_delivered};
use crate::dns_path::{DnsPath, Exchange, Form, HeldBack, Proof, Report, Server};
use crate::endpoint::Endpoint;
use crate::first_flight::Flights;
use crate::record::{Names, Published, dns_path, udp_service};
use crate::stream::{ConnectTimes, Stream};
use firstflight_credential::{NetworkId, Outcome};
use firstflight_link::udp::Channel;
use firstflight_link::{UdpLink, source_for};
use firstflight_stack::ConnectConfig;
use firstflight_verifier::client::Datagrams;
use firstflight_verifier::{Patience, is_pair, reach};
use firstflight_wire::asap::message::MESSAGE_MAGIC;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Addresses that stand for any remote address (RFC 5737, RFC 3849).
const ELSEWHERE_V4: [u8; 4] = [192, 0, 2, 1];
const ELSEWHERE_V6: [u16; 8] = [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1];
/// How long a result of the verifiers is used. A proof is good for an hour.
const PROVED_FOR: Duration = Duration::from_secs(55 * 60);
/// The first pause after verifiers gave no answer, and the longest.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// After this a verifier that was contacted is a stranger again: translators hold mappings for two minutes or more (RFC 4787
/// §4.3), and commonly at most five.
const STRANGER_AGAIN: Duration = Duration::from_secs(600);

/// How long to wait at the end for the last answers about names, whose result is remembered.
const LAST_ANSWERS: Duration = Duration::from_millis(200);

/// Requests that travel inside the lookup of the server's address, too ([`ClientBuilder::inside_lookups`];
/// `docs/spec/dns-path.md`).
#[derive(Debug)]
pub struct InsideLookups {
    resolver: SocketAddr,
    questions: Questions,
    reached: Reached,
    form: Form,
    /// Taken when the engine starts.
    messages: Mutex<Option<Channel>>,
}

/// How the resolver is asked.
#[derive(Debug, Clone)]
enum Questions {
    /// Over UDP.
    Udp(Arc<Names>),
    /// By the program: names of requests, and addresses.
    Program(Exchange, Finder),
}

/// How it is known that servers which this host never contacted can answer it.
#[derive(Debug, Clone, Copy)]
enum Reached {
    Ask([SocketAddr; 2]),
    /// The program has found out.
    Known(Proof),
}

/// The addresses of a name.
type Addresses = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// The program's own lookup.
#[derive(Clone)]
struct Finder(Arc<dyn Fn(String) -> Addresses + Send + Sync>);

impl fmt::Debug for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Finder")
    }
}

impl InsideLookups {
    /// By the resolver at this address, over UDP. It sees the names of requests, so it is one that the program's user named,
    /// or the system's at a loopback address: the system may ask any other over TLS. The two verifiers, at different addresses
    /// of one family, find out whether a server that this host never contacted can answer it.
    ///
    /// # Errors
    /// When the verifiers have one address, or addresses of two families, or the resolver cannot be used.
    pub fn new(resolver: SocketAddr, verifiers: [SocketAddr; 2]) -> io::Result<Self> {
        if !is_pair(verifiers) {
            let text = "the two verifiers need different addresses of one family";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let questions = Questions::Udp(Arc::new(Names::at(resolver)?));
        Ok(Self::by(resolver, questions, Reached::Ask(verifiers)))
    }

    /// For a program that asks its resolver itself, and that has found out by itself whether strangers can answer. The address
    /// of `resolver` only tells it from others. `exchange` carries the names of requests to it, and `find` looks up the
    /// addresses of a name, best one first; it is called once more if it fails.
    pub fn by_program<F>(
        resolver: SocketAddr,
        exchange: Exchange,
        find: impl Fn(String) -> F + Send + Sync + 'static,
        proof: Proof,
    ) -> Self
    where
        F: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        let find = Finder(Arc::new(move |name| Box::pin(find(name))));
        Self::by(resolver, Questions::Program(exchange, find), Reached::Known(proof))
    }

    fn by(resolver: SocketAddr, questions: Questions, reached: Reached) -> Self {
        Self { resolver, questions, reached, form: Form::default(), messages: Mutex::default() }
    }

    /// Whether one more name is asked for each request, so that any one of them may be lost.
    #[must_use]
    pub const fn parity(mut self, parity: bool) -> Self {
        self.form.parity = parity;
        self
    }

    /// Whether the first line of a safe request of HTTP/1 travels so if the whole request does not fit: as
    /// [`FirstFlight::beginning`](crate::FirstFlight::beginning), for requests that libraries write. Servers that do nothing
    /// before they have the whole request, which is most, answer no sooner.
    #[must_use]
    pub const fn first_lines(mut self, first_lines: bool) -> Self {
        self.form.first_lines = first_lines;
        self
    }

    /// For a client by an engine in UDP that the program gave ([`ClientBuilder::engine_in_udp`]): the verifiers are asked
    /// through the engine's own socket. Call it before the link is given to the engine.
    #[must_use]
    pub fn through(self, link: &mut UdpLink) -> Self {
        Self { messages: Mutex::new(Some(messages(link))), ..self }
    }

    /// Starts on a network.
    pub(super) fn begin(
        &self,
        endpoint: &Endpoint,
        network: NetworkId,
        messages: Option<Channel>,
        remembered: Remembered,
    ) -> Inside {
        let manners = remembered.manners();
        let exchange = match &self.questions {
            Questions::Udp(_) => None,
            Questions::Program(exchange, _) => Some(exchange.clone()),
        };
        let (endpoint, known) = (endpoint.clone(), self.reached.known());
        let path = DnsPath::new(endpoint, self.resolver, exchange, network, known, manners, self.form);
        remembered.recall_losses(&path);
        let remembered = Arc::new(remembered);
        let own = self.messages.lock().unwrap_or_else(PoisonError::into_inner).take();
        let moved = Arc::new(Notify::new());
        let asked = own.or(messages).and_then(|messages| Some((messages, self.reached.asks()?)));
        let verified = Arc::new(AtomicBool::new(asked.is_none()));
        let epoch = Arc::new(AtomicU64::new(0));
        let prover = asked.map(|(messages, verifiers)| {
            let prover = Prover {
                path: path.clone(),
                messages: Messages(messages),
                remembered: Arc::clone(&remembered),
                verifiers,
                epoch: Arc::clone(&epoch),
                moved: Arc::clone(&moved),
                verified: Arc::clone(&verified),
            };
            tokio::spawn(prover.run()).abort_handle()
        });
        // Documentation addresses. Nothing is sent to them.
        let v4 = self.reached.is_by_v4();
        let other = if v4 { IpAddr::from(ELSEWHERE_V6) } else { IpAddr::from(ELSEWHERE_V4) };
        let both = source_for(SocketAddr::new(other, 80)).is_ok();
        Inside {
            path,
            remembered,
            questions: self.questions.clone(),
            v4,
            both,
            used: AtomicBool::new(false),
            verified,
            epoch,
            moved,
            prover,
        }
    }
}

impl Reached {
    const fn known(self) -> Option<Proof> {
        match self {
            Self::Ask(_) => None,
            Self::Known(proof) => Some(proof),
        }
    }

    const fn asks(self) -> Option<[SocketAddr; 2]> {
        match self {
            Self::Ask(verifiers) => Some(verifiers),
            Self::Known(_) => None,
        }
    }

    const fn is_by_v4(self) -> bool {
        let (Self::Ask([verifier, _]) | Self::Known(Proof { verifier, .. })) = self;
        verifier.is_ipv4()
    }
}

impl ClientBuilder {
    /// Sends requests inside the lookup of the server's address, too: to servers that publish that they take them, with a
    /// certificate, where servers that this host never contacted can answer it. Only data that may run twice
    /// ([`FirstFlight::safely_replayable`](crate::FirstFlight::safely_replayable)) travels so, and nothing waits for it:
    /// the same request goes directly when the address comes. [`Stream::inside_lookup`] says what became of it.
    ///
    /// Without a resolver of its own ([`ClientBuilder::resolver`]) the client asks the one of `inside`.
    pub fn inside_lookups(mut self, inside: InsideLookups) -> Self {
        if let (None, Questions::Udp(names)) = (&self.asap.names, &inside.questions) {
            self.asap.names = Some(Arc::clone(names));
        }
        self.asap.inside = Some(inside);
        self
    }
}

/// The state of requests inside lookups.
#[derive(Debug)]
pub(super) struct Inside {
    path: DnsPath,
    remembered: Arc<Remembered>,
    questions: Questions,
    /// The family of the verifiers, and therefore of certificates and of requests inside lookups.
    v4: bool,
    /// Whether this host also has routes of the other family.
    both: bool,
    /// A request has travelled so.
    used: AtomicBool,
    /// The verifiers have said whether strangers can answer, or cannot be asked.
    verified: Arc<AtomicBool>,
    /// Counts the networks.
    epoch: Arc<AtomicU64>,
    moved: Arc<Notify>,
    prover: Option<AbortHandle>,
}

impl Inside {
    pub(super) fn is_verified(&self) -> bool {
        self.verified.load(Ordering::Relaxed)
    }

    pub(super) fn move_to(&self, network: NetworkId) {
        if self.path.move_to(network) {
            self.remembered.move_to(network, &self.path);
            self.epoch.fetch_add(1, Ordering::Relaxed);
            self.moved.notify_one();
        }
    }

    /// Waits a short time for answers to the first flights that were sent, and writes what was learnt.
    pub(super) async fn remember(&self) {
        // Later answers are not counted.
        let _ = tokio::time::timeout(LAST_ANSWERS, self.path.settled()).await;
        let (remembered, path) = (Arc::clone(&self.remembered), self.path.clone());
        // It fails only when the runtime shuts down.
        let _ = tokio::task::spawn_blocking(move || remembered.save(&path)).await;
    }

    /// The addresses of a server. If requests travel inside lookups, only addresses of the verifiers' family are asked for, so
    /// that a resolver with a rate limit gets no further question.
    async fn addresses(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let all = self.both && !self.used.load(Ordering::Relaxed);
        let find = async || match &self.questions {
            Questions::Udp(names) if all => names.all_addresses(name, self.v4).await,
            Questions::Udp(names) => names.addresses_or(name, self.v4).await,
            Questions::Program(_, find) => (find.0)(name.to_owned()).await,
        };
        let found = self.path.or_ask_again(find().await, &find).await?;
        Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.prover.iter().for_each(AbortHandle::abort);
    }
}

/// Messages to and from verifiers through an engine's socket.
struct Messages(Channel);

/// The part of a link that carries the messages of verifiers.
pub(super) fn messages(link: &mut UdpLink) -> Channel {
    link.channel(MESSAGE_MAGIC.to_be_bytes())
}

impl Datagrams for &mut Messages {
    async fn send_to(&mut self, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
        self.0.send_to(datagram, to).await
    }

    async fn recv_from(&mut self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (datagram, from) = self.0.recv_from().await?;
        let len = datagram.len().min(buffer.len());
        for (to, byte) in buffer.iter_mut().zip(&datagram) {
            *to = *byte;
        }
        Ok((len, from))
    }
}

/// Lets the verifiers find out whether servers that this host never contacted can answer it: at the start, on each new network,
/// and before the last proof ends.
struct Prover {
    path: DnsPath,
    remembered: Arc<Remembered>,
    messages: Messages,
    verifiers: [SocketAddr; 2],
    epoch: Arc<AtomicU64>,
    moved: Arc<Notify>,
    verified: Arc<AtomicBool>,
}

impl Prover {
    async fn run(mut self) {
        let [verifier, second] = self.verifiers;
        let mut pause = PAUSE;
        loop {
            if self.remembered.is_closed() {
                self.verified.store(true, Ordering::Relaxed);
                // It is looked up again, not asked.
                self.rest(STRANGER_AGAIN).await;
                continue;
            }
            let epoch = self.epoch.load(Ordering::Relaxed);
            let found = reach(&mut self.messages, self.verifiers, &Patience::default()).await;
            if self.epoch.load(Ordering::Relaxed) != epoch {
                // It is about the former network.
                continue;
            }
            let wait = match found {
                Ok(found) if found.is_open() => {
                    self.remembered.set_closed(false);
                    self.path.prove(Proof { seen: found.seen, verifier, at: Instant::now() });
                    PROVED_FOR
                }
                Ok(_) => {
                    tracing::warn!("strangers cannot answer on this network: no request inside a lookup");
                    self.remembered.set_closed(true);
                    self.path.disprove();
                    PROVED_FOR
                }
                Err((at, fault)) => {
                    tracing::warn!("verifier {at}: {fault}: no request inside a lookup");
                    let wait = pause;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    // Once it was contacted, the second one is no stranger until translators have forgotten it.
                    if at == second { wait.max(STRANGER_AGAIN) } else { wait }
                }
            };
            self.verified.store(true, Ordering::Relaxed);
            if self.rest(wait).await {
                pause = PAUSE;
            }
        }
    }

    /// Waits, and returns early, with true, if the host moves.
    async fn rest(&self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.moved.notified()).await.is_ok()
    }
}

/// What a request inside a lookup needs.
struct Ready<'a> {
    engine: &'a Engine,
    inside: &'a Inside,
    name: &'a str,
    published: Published,
    shown: super::SiteCertificate,
}

impl Client {
    /// Connects to a server whose address is not known: inside its lookup, if that can be had.
    pub(crate) async fn connect_by_name(
        &self,
        server: &Authority,
        flights: Flights<'_>,
        filter: Option<&Filter>,
    ) -> Result<(Stream, u32), ClientError> {
        let held_back = match self.ready(server, &flights).await {
            Some(Ok(ready)) => return self.connect_inside(ready, server, flights, filter).await,
            Some(Err(held_back)) => Some(held_back),
            None => None,
        };
        let (stream, number) = self.find_and_reach(server, flights, filter).await?;
        let report = held_back.map(Report::held_back);
        Ok((stream.reported(report), number))
    }

    /// What is needed to send a request inside the lookup of `server`, or why it is not sent so. `None` if nobody wants that.
    async fn ready<'a>(
        &'a self,
        server: &'a Authority,
        flights: &Flights<'_>,
    ) -> Option<Result<Ready<'a>, HeldBack>> {
        let (asap, shared) = (self.asap()?, &self.shared);
        asap.settings.inside.as_ref()?;
        let Host::Name(name) = server.host() else { return None };
        shared.networks.refresh(shared).await;
        shared.follow_engine();
        asap.begin_fixed();
        let engine = asap.engine.get()?.as_ref()?;
        let inside = engine.inside.as_ref()?;
        let ready = || {
            let published = asap.records.known(server).ok_or(HeldBack::NoDnsPath)?;
            let dns_path = dns_path(&published.bytes).ok_or(HeldBack::NoDnsPath)?;
            // What does not work at all on this network does not work inside lookups.
            if shared.by_engine.is_none() && !shared.kernel.memory().allows_udp(true) {
                return Err(HeldBack::Udp);
            }
            let shown = asap
                .certify(engine, server, inside.v4, flights, Some(&published))
                .ok_or(HeldBack::NoCertificate)?;
            inside.path.check(&dns_path, flights, &shown.certified)?;
            Ok(Ready { engine, inside, name, published, shown })
        };
        Some(ready())
    }

    async fn connect_inside(
        &self,
        ready: Ready<'_>,
        server: &Authority,
        flights: Flights<'_>,
        filter: Option<&Filter>,
    ) -> Result<(Stream, u32), ClientError> {
        let (shared, began) = (&self.shared, Instant::now());
        let Ready { engine, inside, name, published, shown } = ready;
        let service = udp_service(&published.bytes);
        let port = service.map(|service| service.port.get());
        let certified = Some(firstflight_stack::Certified { known: true, ..shown.certified.clone() });
        let config = ConnectConfig::default().fast_open(self.fast_open()).asap(certified).encapsulation(port);
        let to = Server { port: server.port(), service };
        let hidden = super::is_hidden(&flights);
        let tcp = EngineTcp::new(&engine.endpoint, config, flights);
        let lookup = inside.path.transport(to, tcp).only_to(filter);
        let addresses = async {
            let found = inside.addresses(name, server.port()).await?;
            filter.map_or_else(|| Ok(found.clone()), |filter| filter(&found))
        };
        inside.used.store(true, Ordering::Relaxed);
        let network = shared.kernel.network();
        let asap = self.asap();
        let trial = asap.filter(|_| shared.by_engine.is_none()).map(|asap| Trial(Some(asap)));
        let (result, report) = match shared.by_engine {
            Some(_) => (Box::pin(transport::run(&lookup, addresses)).await, lookup.into_report()),
            None => {
                let tcp = KernelTcp::new(&shared.kernel, flights, self.fast_open());
                let both = Beside { tcp, udp: lookup };
                let result = shared.kernel.race(&both, addresses).await;
                (result, both.udp.into_report())
            }
        };
        trial.into_iter().for_each(Trial::over);
        shared.kernel.note_contact(network, server, result.is_ok());
        if let Some(asap) = asap {
            let direct = |finish: &Finish| match finish.won.first {
                Some(first) => first.candidate.remote,
                None => finish.won.candidate.remote,
            };
            asap.learn_at(network, result.as_ref().ok().and_then(direct), port, &shown, &result);
        }
        self.heed_losses(server, inside, &published);
        if let (Some(asap), Ok(finish)) = (asap, &result) {
            asap.handle_visit(server, &finish.stream, hidden);
        }
        let Finish { stream, won, departed } = result.map_err(|lost| lost.of(server))?;
        // Nothing has waited for the lookup.
        let times = ConnectTimes { lookup: Duration::ZERO, connect: began.elapsed(), first_syn: departed };
        Ok((stream.took(times).reported(Some(report)), won.number))
    }

    /// Asks again what a server publishes, if first flights to it are lost.
    fn heed_losses(&self, server: &Authority, inside: &Inside, published: &Published) {
        let lost = dns_path(&published.bytes).map_or(0, |of| inside.path.lost_in_a_row(&of));
        if let Some(asap) = self.asap().filter(|_| lost >= DnsPath::ASK_AGAIN_AFTER) {
            asap.records.ask_again(server);
        }
    }
}

impl RaceLost {
    /// The error of a connect to `server`.
    fn of(self, server: &Authority) -> ClientError {
        let Self { mut error, lookup, once } = self;
        match lookup {
            Some(lookup) if maybe_delivered(&error) => {
                let nowhere = SocketAddr::from(([0; 4], server.port()));
                let (remote, outcome) = (nowhere, Outcome::Undecided);
                error.attempts.push(FailedAttempt { remote, outcome, error: lookup, may_have_run: false });
                ClientError::Connect { at_most_once: once, error }
            }
            Some(error) => ClientError::Lookup { server: server.clone(), error },
            None => ClientError::Connect { at_most_once: once, error },
        }
    }
}
