//! Certificates and UDP: what a client needs to be certified at servers that it has never contacted.

mod health;
mod records;

use super::Authority;
use super::authority::Host;
use crate::cache::CredentialCache;
use crate::endpoint::Endpoint;
use crate::first_flight::FirstFlight;
use crate::history::{History, Way};
use crate::kernel::carried::Carried;
use crate::kernel::race::Finish;
use crate::race::ConnectAnyError;
use crate::record::{Names, Published};
use crate::time::Time;
use firstflight_credential::asap::{ClientCertificate, Identity};
use firstflight_credential::{NetworkId, Reason};
use firstflight_link::UdpLink;
use firstflight_stack::{Certified, ConnectConfig};
use firstflight_verifier::{CertificatePool, IssuerAddress, Patience, PoolConfig, Site};
use health::Health;
use records::{Asked, Records};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How long the end of a program waits for its connections to close in order.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(super) struct Settings {
    pub issuers: Vec<IssuerAddress>,
    pub pool: PoolConfig,
    pub file: Option<PathBuf>,
    /// The cache of the client's memory of servers.
    pub cache: Option<PathBuf>,
    /// No resolver is asked what servers publish.
    pub no_records: bool,
    pub records: Vec<(Authority, Published)>,
    pub once: bool,
}

/// What a client needs for ASAP.
#[derive(Debug)]
pub(super) struct Asap {
    settings: Settings,
    /// Cookies are used in UDP, too.
    cookies: bool,
    records: Records,
    /// The network, if the caller named it.
    fixed: Option<NetworkId>,
    /// Started on the first network that is known.
    engine: OnceLock<Option<Engine>>,
    paths: Mutex<Paths>,
}

#[derive(Debug)]
struct Engine {
    endpoint: Endpoint,
    pool: CertificatePool,
}

/// What is known of UDP on the present network.
#[derive(Debug)]
struct Paths {
    network: NetworkId,
    health: Health,
    history: History,
    time: Time,
}

/// A connect in UDP that can be made.
#[derive(Debug)]
pub(super) struct Offer<'a> {
    endpoint: &'a Endpoint,
    remote: SocketAddr,
    config: ConnectConfig,
    certificate: Arc<ClientCertificate>,
}

impl Offer<'_> {
    pub(super) fn carried(&self) -> Carried<'_> {
        Carried { endpoint: self.endpoint, remote: self.remote, config: self.config.clone() }
    }
}

impl Asap {
    /// `names` are the caller's resolver, if it named one.
    pub(super) fn new(
        mut settings: Settings,
        names: Option<Arc<Names>>,
        fixed: Option<NetworkId>,
        cookies: bool,
    ) -> Self {
        let names = match (settings.no_records, names) {
            (true, _) => None,
            (false, Some(names)) => Some(names),
            (false, None) => match Names::system() {
                Ok(names) => Some(Arc::new(names)),
                Err(error) => {
                    tracing::warn!("cannot ask what servers publish: {error}");
                    None
                }
            },
        };
        let records = Records::new(names, std::mem::take(&mut settings.records));
        let network = fixed.unwrap_or(NetworkId::UNKNOWN);
        let paths =
            Paths { network, health: Health::default(), history: History::default(), time: Time::system() };
        Self { settings, cookies, records, fixed, engine: OnceLock::new(), paths: Mutex::new(paths) }
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `server` publishes this, as was found with its addresses.
    pub(super) fn found(&self, server: &Authority, published: Option<Published>) {
        self.begin_fixed();
        self.records.found_beside(server, published);
    }

    /// Starts to ask what `server` publishes, if that is not known.
    pub(super) fn ask(&self, server: &Authority) -> Asked {
        self.begin_fixed();
        self.records.ask(server)
    }

    /// Starts on the network that the caller named, if it named one.
    pub(super) fn begin_fixed(&self) {
        if let Some(network) = self.fixed {
            self.start(network);
        }
    }

    /// The engine and the pool, which start now if they have not yet. `None` if they cannot.
    fn start(&self, network: NetworkId) -> Option<&Engine> {
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
        let (Settings { issuers, pool, file, .. }, patience) = (&self.settings, Patience::default());
        let pool = match file {
            Some(path) => {
                CertificatePool::start_with_file(*pool, issuers.clone(), network, patience, path.clone())
                    .map_err(io::Error::other)?
            }
            None => CertificatePool::start(*pool, issuers.clone(), network, patience)?,
        };
        let mut config = crate::config(Vec::new())?;
        config.network = network;
        let endpoint = Endpoint::over_udp(config, UdpLink::client(&[])?);
        if let Some(path) = &self.settings.cache {
            endpoint.use_cache(CredentialCache::open(path).map_err(io::Error::other)?);
        }
        Ok(Engine { endpoint, pool })
    }

    /// A connect in UDP for the first flight `first`, if the server takes certificates there, there is one for it, and
    /// UDP works on this network as far as is known.
    pub(super) fn offer(
        &self,
        server: &Authority,
        addresses: &[SocketAddr],
        first: FirstFlight<'_>,
    ) -> Option<Offer<'_>> {
        // Without data in the SYN, the kernel's TCP is as fast.
        let may_ride = !first.data().is_empty() && (first.is_replayable() || self.settings.once);
        let published = self.records.known(server).filter(|_| may_ride)?;
        let (port, engine) = (published.udp_port?, self.engine.get()?.as_ref()?);
        let site = Site::new(&server.host().to_string());
        let (remote, certificate) = {
            let paths = self.paths();
            if !paths.health.allows(first.is_replayable(), paths.time.now()) {
                return None;
            }
            let mut usable = addresses.iter().filter(|remote| !paths.is_slow(**remote, port));
            usable.find_map(|remote| {
                let certificate = engine.pool.certificate_for(&site, remote.ip(), &published.verifiers)?;
                Some((*remote, certificate))
            })?
        };
        let identity = match server.host() {
            Host::Ip(ip) => Identity::address(*ip, server.port()),
            Host::Name(name) => Identity::name(name, server.port()),
        };
        let certified = Certified {
            now: certificate.obtained(),
            certificate: Arc::clone(&certificate),
            identity,
            known: true,
            once: self.settings.once,
            mss: Some(published.mss),
        };
        let config =
            ConnectConfig::default().fast_open(self.cookies).asap(Some(certified)).carrier(Some(port));
        Some(Offer { endpoint: &engine.endpoint, remote, config, certificate })
    }

    /// Remembers how a connect with `offer` went.
    pub(super) fn learn(
        &self,
        server: &Authority,
        offer: &Offer<'_>,
        result: &Result<Finish, ConnectAnyError>,
    ) {
        // If nothing answers, the server may be down.
        let Ok(finish) = result else { return };
        let mut paths = self.paths();
        let (now, network) = (paths.time.now(), paths.network);
        let way = Way::new(network, offer.remote, &offer.config);
        if finish.carrier_lost {
            paths.health.lost(now);
            paths.history.lost(way, now);
            return;
        }
        if finish.stream.way() != crate::stream::Way::Udp {
            return;
        }
        paths.health.answered(now);
        paths.history.won(&way);
        drop(paths);
        let Some(engine) = self.engine.get().and_then(Option::as_ref) else { return };
        match finish.stream.outcome().reason() {
            Some(Reason::AddressMismatch) => {
                engine.pool.mismatched(&Site::new(&server.host().to_string()), &offer.certificate);
            }
            Some(Reason::Expired | Reason::BadSignature | Reason::UntrustedVerifier) => {
                engine.pool.forget(&offer.certificate);
            }
            _ => {}
        }
    }

    pub(super) fn move_to(&self, network: NetworkId) {
        let began = self.engine.get().is_some();
        if let Some(engine) = self.start(network).filter(|_| began) {
            engine.endpoint.move_to(network);
            engine.pool.set_network(network);
        }
        let mut paths = self.paths();
        if paths.network != network {
            paths.network = network;
            paths.health = Health::default();
            paths.history.leave(NetworkId::UNKNOWN);
        }
    }

    /// Whether there is a certificate that no site has seen.
    pub(super) fn is_ready(&self) -> bool {
        self.engine.get().and_then(Option::as_ref).is_some_and(|engine| engine.pool.fresh() > 0)
    }

    pub(super) fn forget(&self) {
        let mut paths = self.paths();
        paths.health = Health::default();
        paths.history.clear();
        drop(paths);
        self.records.forget();
        if let Some(Some(engine)) = self.engine.get() {
            engine.endpoint.forget_credentials();
        }
    }

    pub(super) async fn close(&self) {
        if let Some(Some(engine)) = self.engine.get() {
            engine.endpoint.shutdown(GRACE).await;
        }
    }
}

impl Paths {
    /// Whether UDP to this address lost a race lately.
    fn is_slow(&self, remote: SocketAddr, port: u16) -> bool {
        let config = ConnectConfig::default().carrier(Some(port));
        self.history.is_slow(&Way::new(self.network, remote, &config), self.time.now())
    }
}
