//! Certificates and UDP: what a client needs to be certified at servers that it has never contacted.

mod calls;
mod certificates;
mod named;
mod private_addresses;
mod records;
mod remembered;
mod requests_in_lookups;
mod settings;
mod site_verifiers;

use super::Authority;
use super::authority::Host;
use super::by_engine::{ByEngine, EngineEncapsulation};
use super::race::{self, Transport};
use super::transport::engine::EngineTcp;
use super::transport::kernel::KernelTcp;
use super::transport::udp_beside_tcp::Beside;
use super::transport::{Finish, RaceLost};
use crate::cache::CredentialCache;
use crate::endpoint::Endpoint;
use crate::first_flight::{FirstFlight, Flights};
use crate::kernel::Kernel;
use crate::record::{Names, Published};
use crate::stream::{Stream, Way};
pub use calls::Uncertified;
use certificates::{Certificates, Own};
use firstflight_credential::asap::Identity;
use firstflight_credential::{NetworkId, Reason};
use firstflight_link::UdpLink;
use firstflight_stack::{Certified, ConnectConfig};
use firstflight_verifier::client::{Dial, Dialled, Duplex, Route};
use firstflight_verifier::{CertificatePool, KeptCertificate, Patience, PoolSite};
pub use named::NamedVerifier;
use records::{Question, RecordQuestion, Records};
use remembered::Remembered;
use requests_in_lookups::Inside;
pub use requests_in_lookups::InsideLookups;
pub(super) use settings::{Resolver, Settings};
pub use site_verifiers::FoundVerifiers;
use site_verifiers::RecordVerifiers;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long the end of a program waits for its connections to close in order, and for a renewal that has begun.
const GRACE: Duration = Duration::from_secs(2);

/// What a client needs for ASAP.
#[derive(Debug)]
pub(super) struct Asap {
    settings: Settings,
    /// Cookies are used in UDP, too.
    cookies: bool,
    records: Records,
    /// Verifiers that sites name.
    found: Option<Arc<RecordVerifiers>>,
    /// The network, if the caller named it.
    fixed: Option<NetworkId>,
    /// The engine that the caller gave.
    given: Option<ByEngine>,
    /// Started on the first network that is known.
    engine: OnceLock<Option<Engine>>,
    /// It has the memory of all ways.
    kernel: Kernel,
    /// The network that was last told.
    network: Mutex<NetworkId>,
}

#[derive(Debug)]
struct Engine {
    endpoint: Endpoint,
    pool: Certificates,
    /// The renewal of a certificate in a file, which no other program uses meanwhile.
    renewal: Mutex<Option<JoinHandle<KeptCertificate>>>,
    /// Requests inside lookups.
    inside: Option<Inside>,
}

/// A connect in UDP that can be made.
#[derive(Debug)]
pub(super) struct CertifiedOffer<'a> {
    endpoint: &'a Endpoint,
    remote: SocketAddr,
    config: ConnectConfig,
    shown: SiteCertificate,
    /// The network on which the connect begins.
    network: NetworkId,
}

#[derive(Debug)]
struct SiteCertificate {
    certified: Certified,
    site: PoolSite,
}

/// A connect in UDP under way. If it is dropped, the caller has given up.
pub(super) struct Trial<'a>(Option<&'a Asap>);

impl Trial<'_> {
    /// It has ended by itself.
    pub(super) fn over(mut self) {
        self.0 = None;
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if let Some(asap) = self.0 {
            asap.kernel.memory().udp_silent();
        }
    }
}

impl Engine {
    fn move_to(&self, network: NetworkId) {
        self.endpoint.move_to(network);
        self.move_certificates(network);
    }

    fn move_certificates(&self, network: NetworkId) {
        self.pool.set_network(network);
        self.inside.iter().for_each(|inside| inside.move_to(network));
    }

    /// Heeds what a server said of a certificate.
    fn heed(&self, shown: &SiteCertificate, stream: &Stream) {
        let certificate = &shown.certified.certificate;
        match stream.outcome().reason() {
            Some(Reason::AddressMismatch) => self.pool.mismatched(&shown.site, certificate),
            Some(Reason::Expired | Reason::BadSignature | Reason::UntrustedVerifier) => {
                self.pool.forget(certificate);
            }
            _ => {}
        }
    }
}

/// Verifiers that are reached from an engine's own address.
struct Through(Endpoint);

impl Dial for Through {
    fn dial(&self, to: SocketAddr) -> Dialled<'_> {
        Box::pin(async move {
            let stream = self.0.connect(to, FirstFlight::empty(), &ConnectConfig::default()).await?;
            Ok(Box::new(stream) as Box<dyn Duplex>)
        })
    }
}

impl ByEngine {
    /// Whether a server that publishes this takes certificates by this way.
    const fn is_taken(&self, published: &Published) -> bool {
        match self.encapsulation {
            EngineEncapsulation::Ip => published.on_ip,
            EngineEncapsulation::Udp(_) => published.udp_port.is_some(),
        }
    }
}

impl Asap {
    /// `names` are the caller's resolver, if it named one.
    pub(super) fn new(
        mut settings: Settings,
        names: Option<Arc<Names>>,
        fixed: Option<NetworkId>,
        cookies: bool,
        kernel: &Kernel,
        given: Option<ByEngine>,
    ) -> Self {
        let by_system = !settings.no_records;
        let names = names.filter(|_| by_system);
        let mut records = Records::new(kernel, names, by_system, std::mem::take(&mut settings.records));
        let found = (settings.found == FoundVerifiers::Site).then(|| {
            Arc::new(RecordVerifiers::new(fixed.unwrap_or(NetworkId::UNKNOWN), records.resolvers()))
        });
        found.iter().for_each(|found| records.tell(found));
        let network = Mutex::new(fixed.unwrap_or(NetworkId::UNKNOWN));
        let kernel = kernel.clone();
        Self { settings, cookies, records, found, fixed, given, engine: OnceLock::new(), kernel, network }
    }

    /// Whether it is worth asking what `server` publishes.
    pub(super) fn asks_about(&self, server: &Authority) -> bool {
        self.records.asks_about(server)
    }

    /// A question what `server` publishes, which is asked with its addresses.
    pub(super) fn question(&self, server: &Authority) -> Question {
        self.begin_fixed();
        self.records.question(server)
    }

    /// Starts to ask what `server` publishes, if that is not known.
    pub(super) fn ask(&self, server: &Authority) -> RecordQuestion {
        self.begin_fixed();
        let asked = self.records.ask(server);
        if self.may_certify() { asked } else { asked.in_background() }
    }

    /// The family of which alone there are certificates for `server`, in UDP: addresses of the other one need not be waited for.
    pub(super) fn only_family(&self, server: &Authority) -> Option<bool> {
        let published = self.records.known(server).filter(|published| published.udp_port.is_some())?;
        let engine = self.engine.get()?.as_ref()?;
        if !self.settings.verifiers().any(|ours| published.verifiers.contains(&ours)) {
            return None;
        }
        match [true, false].map(|v4| engine.pool.has(v4)) {
            [true, false] => Some(true),
            [false, true] => Some(false),
            _ => None,
        }
    }

    /// Whether there may be a certificate for the next connect. If not, nobody waits for what its server publishes.
    pub(super) fn may_certify(&self) -> bool {
        self.settings.has_any() || self.found.as_ref().is_some_and(|found| found.has_any())
    }

    /// Starts on the network that the caller named, if it named one, or for the first certificate of a verifier that was found.
    pub(super) fn begin_fixed(&self) {
        match self.fixed {
            Some(network) => drop(self.start(network)),
            None if self.engine.get().is_none() && !self.settings.has_any() => {
                let network = *self.network.lock().unwrap_or_else(PoisonError::into_inner);
                self.start(network);
            }
            None => {}
        }
    }

    /// `server` has answered by this stream. A visit to a name that is hidden behind another one leads to no question.
    pub(super) fn handle_visit(&self, server: &Authority, stream: &Stream, hidden: bool) {
        if let (Some(found), Ok(peer), false) = (&self.found, stream.peer_addr(), hidden) {
            found.handle_visit(server, peer.ip());
        }
    }

    /// The engine and the pool, which start now if they have not yet. `None` if they cannot.
    fn start(&self, network: NetworkId) -> Option<&Engine> {
        if self.engine.get().is_none() && !self.may_certify() {
            return None;
        }
        let engine = self.engine.get_or_init(|| match self.begin(network) {
            Ok(engine) => Some(engine),
            Err(error) => {
                tracing::warn!("first flights go without certificates: {error}");
                None
            }
        });
        engine.as_ref()
    }

    fn begin(&self, network: NetworkId) -> io::Result<Engine> {
        let own = match &self.settings.given {
            Some((given, site)) => Own::Given(Arc::clone(given), site.clone()),
            None => Own::Pool(self.begin_pool(network)?),
        };
        let pool = Certificates::new(own, self.found.clone());
        let (endpoint, messages) = match &self.given {
            Some(given) => (given.endpoint.clone(), None),
            None => {
                let mut config = crate::config(Vec::new())?;
                config.network = network;
                let mut link = UdpLink::client(&[])?;
                let messages =
                    self.settings.inside.is_some().then(|| requests_in_lookups::messages(&mut link));
                (Endpoint::over_udp(config, link), messages)
            }
        };
        if let (Some(path), None) = (&self.settings.cache, &self.given) {
            endpoint.use_cache(CredentialCache::open(path).map_err(io::Error::other)?);
        }
        let inside = self.settings.inside.as_ref().map(|wanted| {
            let remembered = Remembered::open(self.settings.cache.as_deref(), network, &self.kernel);
            wanted.begin(&endpoint, network, messages, remembered)
        });
        let kept = self.settings.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        let renewal = Mutex::new(kept.map(|kept| tokio::spawn(renew(kept))));
        Ok(Engine { endpoint, pool, renewal, inside })
    }

    fn begin_pool(&self, network: NetworkId) -> io::Result<CertificatePool> {
        let (Settings { issuers, pool, file, .. }, patience) = (&self.settings, Patience::default());
        let route = match &self.given {
            // The verifiers have to see the engine's own address.
            Some(given) if given.encapsulation == EngineEncapsulation::Ip => {
                Route::Streams(Arc::new(Through(given.endpoint.clone())))
            }
            _ => Route::System,
        };
        let mut issuers = issuers.clone();
        issuers.extend(self.settings.named.iter().flat_map(|named| named.issuers(self.settings.resolver())));
        let pool = match file {
            Some(path) => {
                CertificatePool::start_by_with_file(route, *pool, issuers, network, patience, path.clone())
                    .map_err(io::Error::other)?
            }
            None => CertificatePool::start_by(route, *pool, issuers, network, patience)?,
        };
        if self.fixed.is_none() && self.given.is_none() {
            pool.watch_network(crate::network_id);
        }
        Ok(pool)
    }

    /// The way by which a first flight that may run twice would leave now with a certificate.
    pub(super) fn has_credential(&self, server: &Authority, addresses: &[SocketAddr]) -> Option<Way> {
        let any = Flights::Given(FirstFlight::safely_replayable(b"data"));
        self.begin_fixed();
        let Some(given) = &self.given else {
            return self.offer(server, addresses, &any).map(|_| Way::Udp);
        };
        let engine = self.engine.get()?.as_ref()?;
        let published = self.records.known(server).filter(|one| given.is_taken(one))?;
        self.certify(engine, server, addresses.first()?.is_ipv4(), &any, Some(&published))?;
        Some(given.way())
    }

    /// A connect in UDP for one of `flights`, if the server takes certificates there, there is one for it, and
    /// UDP works on this network as far as is known.
    fn offer(
        &self,
        server: &Authority,
        addresses: &[SocketAddr],
        flights: &Flights<'_>,
    ) -> Option<CertifiedOffer<'_>> {
        // Without data in the SYN, the kernel's TCP is as fast.
        let replayable = flights.are_replayable(true);
        let may_ride = !flights.are_empty() && (replayable || self.settings.once);
        let published = self.records.known(server).filter(|_| may_ride)?;
        let (port, engine) = (published.udp_port?, self.engine.get()?.as_ref()?);
        let (remote, shown, network) = {
            let memory = self.kernel.memory();
            if !memory.allows_udp(replayable) {
                return None;
            }
            let mut usable = addresses.iter().filter(|remote| !memory.is_slow_in_udp(**remote, port));
            usable.find_map(|remote| {
                let shown = self.certify(engine, server, remote.is_ipv4(), flights, Some(&published))?;
                Some((*remote, shown, memory.network()))
            })?
        };
        let certified = Certified { known: true, ..shown.certified.clone() };
        let config =
            ConnectConfig::default().fast_open(self.cookies).asap(Some(certified)).encapsulation(Some(port));
        Some(CertifiedOffer { endpoint: &engine.endpoint, remote, config, shown, network })
    }

    /// A certificate for a first flight to `server`, at an address of this family.
    fn certify(
        &self,
        engine: &Engine,
        server: &Authority,
        v4: bool,
        flights: &Flights<'_>,
        published: Option<&Published>,
    ) -> Option<SiteCertificate> {
        let (site, identity) = names(server, flights);
        let trusted = published
            .map_or_else(|| self.settings.verifiers().collect(), |published| published.verifiers.clone());
        // A name that is hidden behind another one is not shown to a verifier's site.
        let host = flights.block_name().is_none().then(|| server.host());
        let certificate = engine.pool.certificate_for(&site, host, v4, &trusted)?;
        let certified = Certified {
            now: certificate.obtained(),
            certificate,
            identity,
            known: false,
            once: self.settings.once,
            mss: published.map(|published| published.mss),
            request_id: None,
        };
        Some(SiteCertificate { certified, site })
    }

    /// The UDP port that `server` publishes, as far as is known.
    pub(super) fn udp_port(&self, server: &Authority) -> Option<u16> {
        self.records.known(server)?.udp_port
    }

    /// Why a first flight goes without a certificate. `None` if none was wanted: the server publishes that it trusts none of
    /// the verifiers.
    fn why_none(
        &self,
        engine: Option<&Engine>,
        server: &Authority,
        flights: &Flights<'_>,
        published: Option<&Published>,
    ) -> Option<Reason> {
        let trusts =
            |one: &Published| self.settings.verifiers().any(|verifier| one.verifiers.contains(&verifier));
        if !published.is_none_or(trusts) {
            return None;
        }
        let (site, _) = names(server, flights);
        match engine.is_some_and(|engine| engine.pool.is_mismatched(&site)) {
            true => Some(Reason::AddressMismatch),
            false => Some(Reason::NoCredential),
        }
    }

    /// Runs a race of attempts by an engine that the caller gave.
    pub(super) async fn race_by_engine(
        &self,
        given: &ByEngine,
        server: &Authority,
        addresses: &[SocketAddr],
        flights: Flights<'_>,
        cookies: bool,
    ) -> Result<Finish, RaceLost> {
        self.begin_fixed();
        let published = self.records.known(server);
        let engine = self.engine.get().and_then(Option::as_ref);
        let v4 = addresses.first().is_none_or(SocketAddr::is_ipv4);
        let shown = engine.and_then(|engine| {
            let mut shown = self.certify(engine, server, v4, &flights, published.as_ref())?;
            shown.certified.known = published.as_ref().is_some_and(|one| given.is_taken(one));
            Some(shown)
        });
        let publishes = published.as_ref().and_then(|published| published.udp_port);
        let certified = shown.as_ref().map(|shown| shown.certified.clone());
        let certified = certified.ok_or_else(|| self.why_none(engine, server, &flights, published.as_ref()));
        let config = given.config(server, publishes, cookies, certified);
        let result = given.race(config, addresses, flights).await;
        if let (Some(engine), Some(shown), Ok(finish)) = (engine, &shown, &result)
            && finish.won.same_network
        {
            engine.heed(shown, &finish.stream);
        }
        result
    }

    /// Runs a race, with UDP beside the kernel's TCP if that can be had.
    pub(super) async fn race(
        &self,
        server: &Authority,
        addresses: &[SocketAddr],
        tcp: KernelTcp<'_>,
    ) -> Result<Finish, RaceLost> {
        self.begin_fixed();
        let kernel = tcp.kernel;
        let Some(offer) = self.offer(server, addresses, &tcp.flights) else {
            return kernel.race(&tcp, ready(Ok(addresses.to_vec()))).await;
        };
        let mut udp = EngineTcp::new(offer.endpoint, offer.config.clone(), tcp.flights);
        udp.offer = Some(race::AttemptOffer::At(offer.remote));
        let trial = Trial(Some(self));
        let result = kernel.race(&Beside { tcp, udp }, ready(Ok(addresses.to_vec()))).await;
        trial.over();
        self.learn(&offer, &result);
        result
    }

    /// Remembers how a connect with `offer` went.
    fn learn(&self, offer: &CertifiedOffer<'_>, result: &Result<Finish, RaceLost>) {
        self.learn_at(offer.network, Some(offer.remote), offer.config.encapsulation, &offer.shown, result);
    }

    /// Remembers how a connect went that began on `network`, with an attempt in UDP at `remote`, if its address became known.
    fn learn_at(
        &self,
        network: NetworkId,
        remote: Option<SocketAddr>,
        port: Option<u16>,
        shown: &SiteCertificate,
        result: &Result<Finish, RaceLost>,
    ) {
        let mut memory = self.kernel.memory();
        if memory.network() != network {
            return;
        }
        let Ok(finish) = result else {
            // The server may be down. But UDP is not trusted with what cannot be sent again, until it answers.
            memory.udp_silent();
            return;
        };
        if finish.won.first.is_some_and(|first| first.candidate.transport == Transport::Udp) {
            remote.into_iter().for_each(|remote| memory.udp_lost(remote, port));
            return;
        }
        if finish.stream.way() != Way::Udp {
            return;
        }
        remote.into_iter().for_each(|remote| memory.udp_answered(remote, port));
        drop(memory);
        if let Some(engine) = self.engine.get().and_then(Option::as_ref) {
            engine.heed(shown, &finish.stream);
        }
    }

    pub(super) fn move_to(&self, network: NetworkId) {
        self.found.iter().for_each(|found| found.set_network(network));
        let began = self.engine.get().is_some();
        if let Some(engine) = self.start(network).filter(|_| began) {
            engine.move_to(network);
        }
        let mut last = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *last, network) != network {
            self.records.moved();
        }
    }

    /// The caller says that the host has moved, perhaps to a network that cannot be told from the last one.
    pub(super) fn moved(&self) {
        self.records.moved();
    }

    /// Whether nobody needs to wait for a certificate: the verifiers gave no answer.
    pub(super) fn is_failing(&self) -> bool {
        self.engine.get().and_then(Option::as_ref).is_some_and(|engine| engine.pool.is_failing())
    }

    /// Whether there is a certificate that no site has seen, and it is known whether requests can travel inside lookups.
    pub(super) fn is_ready(&self) -> bool {
        let ready = |engine: &Engine| {
            engine.pool.is_ready() && engine.inside.as_ref().is_none_or(Inside::is_verified)
        };
        self.engine.get().and_then(Option::as_ref).is_some_and(ready)
    }

    /// The host has left its network, which has no id, for another one.
    pub(super) fn leave_unknown(&self) {
        for network in [NetworkId([1; 16]), NetworkId::UNKNOWN] {
            self.found.iter().for_each(|found| found.set_network(network));
        }
        if let Some(Some(engine)) = self.engine.get() {
            // Each forgets what it knows of an unknown network when it leaves it.
            for network in [NetworkId([1; 16]), NetworkId::UNKNOWN] {
                match &self.given {
                    // The engine is the caller's.
                    Some(_) => engine.move_certificates(network),
                    None => engine.move_to(network),
                }
            }
        }
    }

    pub(super) fn forget(&self) {
        self.records.forget();
        if let Some(Some(engine)) = self.engine.get() {
            engine.endpoint.forget_credentials();
        }
    }

    /// Writes what was learnt of requests inside lookups, or into the kernel's memory.
    pub(super) async fn remember(&self) {
        let engine = self.engine.get().and_then(Option::as_ref);
        if let Some(inside) = engine.and_then(|engine| engine.inside.as_ref()) {
            inside.remember().await;
        }
    }

    pub(super) async fn close(&self) {
        let Some(Some(engine)) = self.engine.get() else { return };
        // The caller closes its own engine.
        if self.given.is_none() {
            engine.endpoint.shutdown(GRACE).await;
        }
        let renewal = engine.renewal.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut renewal) = renewal
            && timeout(GRACE, &mut renewal).await.is_err()
        {
            // The next program asks again. Until then the certificate is good.
            renewal.abort();
        }
    }
}

/// Renews the certificate if that is due.
async fn renew(mut kept: KeptCertificate) -> KeptCertificate {
    if let Err(error) = kept.renew_if_due(&Patience::default()).await {
        tracing::warn!("the certificate was not renewed: {error}");
    }
    kept
}

/// Whether the server's name is hidden behind another one.
pub(super) fn is_hidden(flights: &Flights<'_>) -> bool {
    flights.block_name().is_some()
}

/// The site that sees a certificate, and the identity of its server.
fn names(server: &Authority, flights: &Flights<'_>) -> (PoolSite, Identity) {
    let (host, port) = (server.host().to_string(), server.port());
    match (flights.block_name(), server.host()) {
        (Some(name), _) => (PoolSite::behind(&host, name), Identity::name(name, port)),
        (None, Host::Ip(ip)) => (PoolSite::new(&host), Identity::address(*ip, port)),
        (None, Host::Name(name)) => (PoolSite::new(&host), Identity::name(name, port)),
    }
}

#[cfg(test)]
mod tests;
