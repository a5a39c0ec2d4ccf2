//! A running gateway.

use crate::backend::{Service, health};
use crate::budget;
use crate::config::{self, Config};
use crate::counted::ListenerCounts;
use crate::device;
use crate::error::GatewayError;
use crate::farm::{self, Farm, Sealing};
use crate::limits::Limit;
use crate::listening::{Bound, Listening, current_keys, read_files};
use crate::log::{self, Last, Log};
use crate::metrics::{self, BackendPublisher};
use crate::names::{self, Names};
use crate::site::{Services, Site};
use crate::verifying::Verifiers;
use firstflight::link::xdp::{XdpError, XdpStatus, give_up_privileges};
use firstflight::verifier::{self, CounterHandle};
use firstflight::{Endpoint, OwnVerifier, Workers};
use firstflight_daemon::Admin;
use firstflight_dns::metrics::{Publisher, RelayPublisher};
use firstflight_dns::service::{FrontHandle, RelayCounts};
use firstflight_tls::metrics::CertificatePublisher;
use firstflight_tls::{Acceptor, ConfigError, NewCertificates, ServedCertificate, ServerCertificates};
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use toml::Spanned;

/// How often connections to backends that nobody uses are closed.
const TIDY: Duration = Duration::from_secs(5);

/// What the admin address shows.
#[derive(Debug, Clone, Default)]
pub(crate) struct AdminPages(Arc<Mutex<View>>);

#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) services: Vec<Arc<Service>>,
    pub(crate) backends: BackendPublisher,
    pub(crate) certificates: Vec<ServerCertificates>,
    pub(crate) ends: CertificatePublisher,
    pub(crate) publishers: Vec<(String, firstflight::metrics::Publisher)>,
    pub(crate) cards: Vec<(String, firstflight::metrics::CardPublisher)>,
    pub(crate) names: Option<Publisher>,
    pub(crate) relayed: Option<(RelayCounts, RelayPublisher)>,
    pub(crate) verifiers: Vec<(OwnVerifier, verifier::metrics::Publisher)>,
    pub(crate) stopping: bool,
}

impl AdminPages {
    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut View) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A running gateway. Dropping it stops to accept; connections go on as long as the runtime does.
pub struct Gateway {
    config: Config,
    services: Services,
    farm: Farm,
    names: Option<Names>,
    verifiers: Verifiers,
    workers: OnceLock<Workers>,
    listening: HashMap<String, Listening>,
    /// Listeners that a reload has taken out, until their connections have ended.
    ending: JoinSet<()>,
    checks: Vec<JoinSet<()>>,
    places: Arc<Limit>,
    log: Log,
    shown: AdminPages,
    admin: Option<Admin>,
    tidying: JoinHandle<()>,
    /// What counts, once the gateway ends.
    counted: Vec<ListenerCounts>,
    front: Option<FrontHandle>,
    /// Its network cards are attached or waited for, and it can attach no other one.
    has_given_up: bool,
}

/// A configuration whose files are read and whose ports are bound, but which is not in use yet.
struct Prepared {
    services: Services,
    kept: Vec<(String, Site, Option<NewCertificates>)>,
    new: Vec<(Bound, Site)>,
    /// At the start only.
    names: Option<names::Ready>,
    /// New keys of verifiers.
    verifiers: Vec<(OwnVerifier, verifier::Config)>,
}

impl Gateway {
    /// Starts a gateway. Its access log goes to `log`.
    ///
    /// # Errors
    /// When an address, a certificate or a file cannot be used.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn start(config: Config, log: impl Write + Send + 'static) -> Result<Self, GatewayError> {
        // Before the first counter.
        metrics::recorder();
        let shown = AdminPages::default();
        let admin = match config.gateway.admin {
            Some(at) => Some(Admin::start(at, config.gateway.admin_hosts.clone(), shown.clone()).await),
            None => None,
        };
        let log = Log::new(config.gateway.log, log).map_err(GatewayError::Log)?;
        let places = budget::divide(config.gateway.max_connections.get());
        let mut gateway = Self {
            config: config.clone(),
            services: Services::new(),
            farm: Farm::open(&config).await?,
            names: None,
            verifiers: Verifiers::default(),
            workers: OnceLock::new(),
            listening: HashMap::new(),
            ending: JoinSet::new(),
            checks: Vec::new(),
            places: Limit::new(places),
            log,
            tidying: tokio::spawn(tidy(shown.clone())),
            counted: Vec::new(),
            front: None,
            has_given_up: false,
            shown,
            admin,
        };
        match gateway.prepare(&config, true).await {
            Ok(prepared) => {
                gateway.commit(config, prepared);
                Ok(gateway)
            }
            Err(error) => {
                // The store got no questions, so this member owes it nothing.
                std::mem::take(&mut gateway.farm).close().await;
                Err(error)
            }
        }
    }

    /// Replaces the configuration. On an error nothing changes.
    ///
    /// Requests under way end as they began; the next one on the same connection follows the new configuration.
    /// Connections of TCP modes go on as they began. Listeners that are gone let their connections end.
    ///
    /// # Errors
    /// When an address, a certificate or a file cannot be used, or a setting needs a restart.
    pub async fn reload(&mut self, config: Config) -> Result<(), GatewayError> {
        let (old, new) = (&self.config.gateway, &config.gateway);
        let restart = |key: &str| Err(GatewayError::NeedsRestart(format!("gateway.{key}")));
        if old.admin != new.admin {
            return restart("admin");
        }
        if old.admin_hosts != new.admin_hosts {
            return restart("admin_hosts");
        }
        if old.user != new.user {
            return restart("user");
        }
        if old.log != new.log {
            return restart("log");
        }
        if old.threads != new.threads {
            return restart("threads");
        }
        if old.max_connections != new.max_connections {
            return restart("max_connections");
        }
        if self.config.store.as_ref().map(Spanned::get_ref) != config.store.as_ref().map(Spanned::get_ref) {
            return Err(GatewayError::NeedsRestart("store".to_owned()));
        }
        let cookies = |config: &Config| config.one_time.as_ref().map(|one_time| one_time.get_ref().clone());
        if cookies(&self.config) != cookies(&config) {
            return Err(GatewayError::NeedsRestart("one_time".to_owned()));
        }
        let names = match (self.config.dns(), config.dns()) {
            (Some((old, _)), Some((new, _))) => old.fixed_difference(new).map(|key| format!("dns.{key}")),
            (None, None) => None,
            _ => Some("dns".to_owned()),
        };
        if let Some(names) = names {
            return Err(GatewayError::NeedsRestart(names));
        }
        if let Some(error) = names::check(&config).await.into_iter().next() {
            return Err(error);
        }
        let prepared = self.prepare(&config, false).await?;
        self.commit(config, prepared);
        Ok(())
    }

    async fn prepare(&self, config: &Config, first_start: bool) -> Result<Prepared, GatewayError> {
        let services = services(config, &self.services).await?;
        if let Some(error) = farm::check_seals(config).into_iter().next() {
            return Err(error);
        }
        // A reload does not change them.
        let mut names = if first_start { names::Bound::bind(config).await? } else { None };
        let (mut kept, mut new, mut verifiers, mut ready) = (Vec::new(), Vec::new(), Vec::new(), None);
        for listener in &config.listeners {
            let name = listener.name.get_ref().clone();
            let former = self.listening.get(&name).map(|listening| listening.site.load_full());
            let site = |former: Option<&Site>, sealing: Option<Arc<Sealing>>| {
                let made = Site::new(listener, &services, &self.log, former, sealing);
                made.map_err(|error| GatewayError::Tls(format!("listener {name}"), error))
            };
            verifiers.extend(self.verifiers.read_again(listener)?);
            let changed = former.as_ref().and_then(|former| former.config.needs_restart(listener));
            match former {
                Some(_) if let Some(keys) = changed => {
                    return Err(GatewayError::NeedsRestart(format!("listener {name}: {keys}")));
                }
                Some(former) => {
                    // They are followed; here they are only looked at.
                    read_files(listener).await?;
                    let (site, certificates) = site(Some(&former), former.sealing.clone())?;
                    kept.push((name.clone(), site, certificates));
                }
                None if listener.xdp.is_some() && self.has_given_up => {
                    return Err(GatewayError::NeedsRestart(format!("listener {name}: xdp")));
                }
                None => {
                    let dns =
                        config.dns().filter(|(dns, _)| *dns.listener.get_ref() == name).map(|(dns, _)| dns);
                    let (bound, sealing) =
                        Bound::bind(listener, &self.farm, dns, &self.verifiers, first_start, || {
                            self.workers()
                        })
                        .await?;
                    if let Some((target, endpoint)) = bound.for_names()
                        && let Some(names) = names.take()
                    {
                        ready = Some(names.over(target, endpoint)?);
                    }
                    new.push((bound, site(None, sealing)?.0));
                }
            }
        }
        for (bound, site) in &mut new {
            bound.take_over(site.name())?;
        }
        Ok(Prepared { services, kept, new, names: ready, verifiers })
    }

    /// The threads of engines on devices. With one, the gateway's own is meant.
    fn workers(&self) -> io::Result<Workers> {
        if let Some(workers) = self.workers.get() {
            return Ok(workers.clone());
        }
        let wanted = self.config.gateway.threads.map_or_else(Workers::processors, NonZeroUsize::get);
        let made = match wanted.min(Workers::MOST) {
            1 => Workers::on(vec![Handle::current()]).ok_or(io::ErrorKind::InvalidInput)?,
            // The machine may have other work, and a connection must not wait for one processor while another is idle.
            count => Workers::start_unpinned(count)?,
        };
        Ok(self.workers.get_or_init(|| made).clone())
    }

    /// Nothing here can fail.
    fn commit(&mut self, config: Config, prepared: Prepared) {
        let Prepared { services, kept, new, names, verifiers } = prepared;
        for (verifier, keys) in verifiers {
            let before = verifier.key();
            // It was checked. What the listeners trust may have changed since.
            if let Err(error) = verifier.set_config(keys) {
                tracing::warn!("the key of verifier {} stays as it is: {error}", before.id());
            }
            let key = verifier.key();
            if key != before {
                self.log.status(&format!(
                    "verifier {} is verifier {} from now on, key {key}",
                    before.id(),
                    key.id()
                ));
            }
        }
        services.values().for_each(|service| service.begin());
        for (name, site, certificates) in kept {
            certificates.into_iter().for_each(NewCertificates::commit);
            site.sealing.iter().for_each(|sealing| sealing.followed.read_again());
            if let Some(listening) = self.listening.get(&name) {
                site.begin();
                listening.site.store(Arc::new(site));
            }
        }
        let stays = |name: &String| config.listeners.iter().any(|listener| listener.name.get_ref() == name);
        while self.ending.try_join_next().is_some() {}
        let gone: Vec<_> = self.listening.keys().filter(|name| !stays(name)).cloned().collect();
        for name in gone {
            if let Some(listening) = self.listening.remove(&name) {
                self.shown.with(|view| {
                    view.publishers.retain(|(of, _)| *of != name);
                    view.cards.retain(|(of, _)| *of != name);
                });
                self.log.status(&format!("listener {name} has ended"));
                self.ending.spawn(listening.end(config.gateway.drain.0));
            }
        }
        self.verifiers.keep(&config.listeners);
        let mut begun = Vec::new();
        for (bound, site) in new {
            let name = site.name().to_owned();
            begun.push(name.clone());
            let listening = bound.accept(site, Arc::clone(&self.places));
            for endpoint in listening.endpoints.iter().cloned() {
                let publisher = firstflight::metrics::Publisher::new(endpoint);
                self.shown.with(|view| view.publishers.push((name.clone(), publisher)));
            }
            if let Some((_, card)) = listening.card.clone() {
                let publisher = firstflight::metrics::CardPublisher::new(card);
                self.shown.with(|view| view.cards.push((name.clone(), publisher)));
            }
            self.listening.insert(name, listening);
        }
        self.checks = services.values().map(health::watch).collect();
        let sites = self.listening.values().map(|listening| listening.site.load());
        let certificates: Vec<_> =
            sites.filter_map(|site| site.acceptor.as_ref().map(Acceptor::certificates)).collect();
        self.shown.with(|view| {
            view.services = services.values().cloned().collect();
            publish_verifiers(&mut view.verifiers, self.verifiers.all());
            view.certificates = certificates;
        });
        if let Some(names) = &self.names {
            names.read_again(&config);
        }
        let mut says = Vec::new();
        if let Some(names) = names {
            let (running, lines) = self.shown.with(|view| names.run(&self.log, view));
            (self.names, says) = (Some(running), lines);
        }
        (self.services, self.config) = (services, config);
        metrics::configured();
        // A program that reads these lines can use everything from now on, the metrics included.
        for name in &begun {
            if let Some(listening) = self.listening.get(name) {
                self.say_listening(name, listening);
            }
        }
        says.iter().for_each(|line| self.log.status(line));
    }

    /// Who used a network card of this one when it began to wait for that, if it still waits.
    pub(crate) fn waits_for_card(&self) -> Option<String> {
        self.cards().find_map(XdpStatus::waits_for)
    }

    /// Why a network card could not be taken at the last attempt, if another process's use is not the reason.
    pub(crate) fn card_waits_because(&self) -> Option<String> {
        self.cards().find_map(XdpStatus::waits_because)
    }

    fn cards(&self) -> impl Iterator<Item = &XdpStatus> {
        self.listening.values().filter_map(|listening| listening.card.as_ref()).map(|(_, card)| card)
    }

    /// Gives up the privileges that only attaching a network card needs, if there is one.
    pub(crate) fn give_up_privileges(&mut self) -> Result<(), XdpError> {
        if self.has_given_up || self.cards().next().is_none() {
            return Ok(());
        }
        give_up_privileges()?;
        self.has_given_up = true;
        Ok(())
    }

    /// Whether a part of a listener has stopped for good.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.listening.values().flat_map(|listening| &listening.endpoints).any(Endpoint::has_stopped)
    }

    fn say_listening(&self, name: &str, listening: &Listening) {
        let fast_open = if listening.grants_cookies { "with" } else { "without" };
        let udp = listening.udp_port.map_or("no UDP".to_owned(), |port| format!("UDP port {port}"));
        let site = listening.site.load();
        if let Ok(Some(verifier)) = self.verifiers.of(&site.config) {
            let key = verifier.key();
            self.log.status(&format!("{name} is verifier {}, key {key}", key.id()));
        }
        for address in &listening.addresses {
            self.log.status(&format!("listening on {address} for {name} (TCP {fast_open} Fast Open, {udp})"));
        }
        if let Some(tun) = site.config.tun.as_ref().map(Spanned::get_ref) {
            for address in site.config.engine_addresses() {
                self.log.status(&format!("listening on {address} for {name} (an engine on {})", tun.device));
            }
        }
    }

    /// The addresses of a listener on the kernel's TCP.
    #[must_use]
    pub fn addresses(&self, listener: &str) -> Vec<SocketAddr> {
        self.listening.get(listener).map(|listening| listening.addresses.clone()).unwrap_or_default()
    }

    /// The address of metrics and health. `None` without one, and if it cannot be used yet.
    #[must_use]
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(Admin::address)
    }

    /// Writes a line into the access log.
    pub(crate) fn say(&self, message: &str) {
        self.log.status(message);
    }

    /// Says at `/readyz` that no new connections should come, and takes hold of what counts for [`Gateway::conclude`], which may
    /// follow at once.
    pub(crate) fn stopping(&mut self) {
        self.shown.with(|view| view.stopping = true);
        let has_store = self.farm.store().is_some();
        let counted = self.listening.iter().map(|(name, one)| ListenerCounts::of(name, one, has_store));
        self.counted = counted.collect();
        self.front = self.names.as_ref().and_then(Names::front).cloned();
    }

    /// What is wrong with certificates in use.
    pub(crate) fn certificate_problems(&self) -> Vec<String> {
        let servers = self.listening.values().flat_map(|listening| listening.site.load().problems());
        servers.chain(self.config.services.iter().filter_map(client_certificate_problem)).collect()
    }

    pub(crate) const fn config(&self) -> &Config {
        &self.config
    }

    /// Stops to accept, lets connections end, and ends those that are left after the time that the configuration gives
    /// them. Connections of HTTP/1.1 close after the request under way, those of HTTP/2 get GOAWAY twice (RFC 9113 §6.8).
    pub async fn drain(mut self) {
        self.end().await;
        self.conclude().await;
    }

    /// Lets connections end: see [`Gateway::drain`].
    pub(crate) async fn end(&mut self) {
        self.stopping();
        let within = self.config.gateway.drain.0;
        // What a reload has taken out asks the store as well, until it has ended.
        let mut ending = std::mem::take(&mut self.ending);
        for (_, listening) in self.listening.drain() {
            ending.spawn(listening.end(within));
        }
        if let Some(names) = self.names.take() {
            ending.spawn(names.end());
        }
        while ending.join_next().await.is_some() {}
        self.shown.with(|view| {
            view.publishers.clear();
            view.cards.clear();
        });
        // From here on no first flight is refused, so no further debt to the store can arise.
        std::mem::take(&mut self.farm).close().await;
    }

    /// Writes the last lines of the log: what was counted until the end.
    pub(crate) async fn conclude(self) {
        self.counted.iter().for_each(|counted| counted.say(&self.log));
        if let Some(front) = &self.front {
            self.log.last(&Last::Names { time: log::now(), counts: log::Names::new(front) });
        }
        self.log.flush().await;
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.tidying.abort();
        self.ending.detach_all();
    }
}

/// The services of a configuration. What is known of backends is kept from `former`.
async fn services(config: &Config, former: &Services) -> Result<Services, GatewayError> {
    let mut services = Services::new();
    for service in &config.services {
        let name = service.name.get_ref();
        let made = open(service, former.get(name).map(|former| &**former)).await?;
        services.insert(name.clone(), Arc::new(made));
    }
    Ok(services)
}

async fn open(service: &config::Service, former: Option<&Service>) -> Result<Service, GatewayError> {
    let made = Service::new(service, former).map_err(|error| of_service(service, error))?;
    let root = || service.root.clone().unwrap_or_default();
    let opened = made.open_root(former).await;
    opened.map_err(|error| GatewayError::Root(service.name.get_ref().clone(), root(), error))
}

/// An error of the TLS of a service, with what to do about it.
fn of_service(service: &config::Service, error: ConfigError) -> GatewayError {
    let name = service.name.get_ref();
    let authorities = service.tls.as_ref().is_some_and(|tls| tls.get_ref().ca.is_none());
    match error {
        ConfigError::NoPlatformRoots if authorities => GatewayError::NoAuthorities(name.clone()),
        error => GatewayError::Tls(format!("service {name}"), error),
    }
}

/// What is wrong with the dates of the certificate that a service shows to its backends.
fn client_certificate_problem(service: &config::Service) -> Option<String> {
    let chain = service.tls.as_ref()?.get_ref().chain.as_ref()?;
    // Errors of reading are told elsewhere.
    let problem = ServedCertificate::read(chain).ok()?.problem(SystemTime::now())?;
    Some(format!("service {}: {problem}", service.name.get_ref()))
}

/// What is found in the files that a configuration names.
#[derive(Debug, Default)]
pub(crate) struct ConfiguredFiles {
    /// Why a gateway would not start.
    pub(crate) errors: Vec<GatewayError>,
    /// What is wrong with certificates that it would use.
    pub(crate) certificates: Vec<String>,
}

/// Reads everything that a configuration names, without binding a port.
pub(crate) async fn read_all(config: &Config) -> ConfiguredFiles {
    let mut found = ConfiguredFiles { errors: farm::check(config).await, ..ConfiguredFiles::default() };
    found.errors.extend(names::check(config).await);
    for service in &config.services {
        found.errors.extend(open(service, None).await.err());
        found.certificates.extend(client_certificate_problem(service));
    }
    let log = match Log::new(config.gateway.log, io::sink()) {
        Ok(log) => log,
        Err(error) => {
            found.errors.push(GatewayError::Log(error));
            return found;
        }
    };
    for listener in &config.listeners {
        let name = format!("listener {}", listener.name.get_ref());
        match Site::new(listener, &Services::new(), &log, None, None) {
            Ok((site, _)) => found.certificates.extend(site.problems()),
            Err(error) => found.errors.push(GatewayError::Tls(name, error)),
        }
        found.errors.extend(device::check(listener).err());
        match read_files(listener).await {
            Ok((keys, _)) => found.errors.extend(current_keys(listener, keys.as_ref()).err()),
            Err(error) => found.errors.push(error),
        }
    }
    found
}

/// Closes connections to backends that nobody uses.
async fn tidy(shown: AdminPages) {
    loop {
        tokio::time::sleep(TIDY).await;
        for service in shown.with(|view| view.services.clone()) {
            for backend in service.backends() {
                backend.pool.close_idle(service.config.pool_idle.0);
            }
        }
    }
}

/// Makes publishers for the verifiers that have none, and drops those of verifiers that are gone.
fn publish_verifiers(known: &mut Vec<(OwnVerifier, verifier::metrics::Publisher)>, all: Vec<OwnVerifier>) {
    known.retain(|(verifier, _)| all.iter().any(|one| one.is(verifier)));
    for verifier in all {
        if !known.iter().any(|(one, _)| one.is(&verifier)) {
            let counted = verifier.clone();
            let counters = CounterHandle::new(move || counted.counters());
            known.push((verifier, verifier::metrics::Publisher::new(counters)));
        }
    }
}

/// The present values of everything that is not counted as it happens.
pub(crate) fn publish(shown: &AdminPages) {
    shown.with(|view| {
        view.cards.iter().for_each(|(_, card)| card.publish());
        for (_, publisher) in &mut view.publishers {
            publisher.publish();
        }
        for (_, publisher) in &mut view.verifiers {
            publisher.publish();
        }
        let View { certificates, ends, names, relayed, services, backends, .. } = view;
        ends.publish(&*certificates);
        names::publish(names, relayed);
        let all =
            services.iter().flat_map(|service| service.backends().iter().map(move |one| (service, one)));
        backends.publish(all.map(|(service, backend)| (&**backend, service.known(backend))));
    });
}

#[cfg(test)]
mod tests;
