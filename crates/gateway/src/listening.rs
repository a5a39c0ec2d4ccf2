//! A listener: its sockets, and the loop that accepts.

use crate::config::{Dns, Listener};
use crate::connection::{self, Phases};
use crate::device::{self, Device};
use crate::error::GatewayError;
use crate::farm::{Farm, Sealing};
use crate::limits::{Clients, Limit, LimitPermit};
use crate::site::Site;
use crate::verifying::{self, Verifiers};
use arc_swap::ArcSwap;
use firstflight::credential::Quarantine;
use firstflight::keys::{self, Form, KeyFile};
use firstflight::link::xdp::XdpStatus;
use firstflight::trust::{self, TrustFile};
use firstflight::{Card, Endpoint, ListenConfig, RelayTarget, Server, Stream, Way, Workers};

use firstflight_credential::{ClockError, Current, Schedule, Scheme};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Pause after a failed accept, which may be caused by a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How often connections that wait are accepted again at the end, if the system refuses: file descriptors may become free.
const ATTEMPTS: usize = 50;
/// A client from which nothing has come for this long is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// How long connections in UDP may take to close in order, after everything else has ended.
const LAST: Duration = Duration::from_secs(2);

/// Sockets that are bound, and do not accept yet.
pub(crate) struct Bound {
    server: Server,
    /// The engines on a device, and their threads.
    device: Option<Device>,
    workers: Option<Workers>,
    key_file: Option<KeyFile>,
    trust_file: Option<TrustFile>,
}

/// A listener that accepts.
pub(crate) struct Listening {
    pub(crate) site: Arc<ArcSwap<Site>>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) udp_port: Option<u16>,
    pub(crate) grants_cookies: bool,
    /// The engines: in UDP, and on a device.
    pub(crate) endpoints: Vec<Endpoint>,
    /// The network card, and its engine.
    pub(crate) card: Option<(Endpoint, XdpStatus)>,
    pub(crate) by_kernel: Arc<ByKernel>,
    accepting: watch::Sender<bool>,
    killed: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What was accepted on the kernel's TCP.
#[derive(Debug, Default)]
pub(crate) struct ByKernel {
    pub(crate) connections: AtomicU64,
    /// Those whose first flight was accepted.
    pub(crate) accepted: AtomicU64,
}

impl ByKernel {
    fn count(&self, stream: &Stream) {
        if stream.way() == Way::Kernel {
            self.connections.fetch_add(1, Ordering::Relaxed);
            self.accepted.fetch_add(stream.outcome().is_accepted().into(), Ordering::Relaxed);
        }
    }
}

/// Reads the files that a listener's sockets need.
/// Errors: when one of them is not right.
pub(crate) async fn read_files(
    config: &Listener,
) -> Result<(Option<KeyFile>, Option<TrustFile>), GatewayError> {
    let name = config.name.get_ref();
    let fail = |error: &dyn std::fmt::Display| GatewayError::Files(name.clone(), error.to_string());
    let schedule = Form::Schedule { period: config.key_period.0, lead: Schedule::DEFAULT_LEAD };
    let keys = config.key_file.as_ref().map(|path| (path, Form::Keys));
    let key_file = match keys.or(config.key_schedule.as_ref().map(|path| (path, schedule))) {
        Some((path, form)) => {
            let opened = KeyFile::open(path, form, Scheme::Linux).await;
            Some(opened.map_err(|error| fail(&format_args!("the key file {} {error}", path.display())))?)
        }
        None => None,
    };
    let trust_file = match &config.trust {
        Some(path) => {
            let opened = TrustFile::open(path).await;
            Some(opened.map_err(|error| fail(&format_args!("the trust file {}: {error}", path.display())))?)
        }
        None => None,
    };
    verifying::read(config)?;
    Ok((key_file, trust_file))
}

/// The present keys of cookies, if there is a file.
/// Errors: when the clock is not right.
pub(crate) fn current_keys(
    config: &Listener,
    file: Option<&KeyFile>,
) -> Result<Option<Current>, GatewayError> {
    let fail = |error: ClockError| GatewayError::Files(config.name.get_ref().clone(), error.to_string());
    file.map(keys::current).transpose().map_err(fail)
}

impl Bound {
    /// Binds the sockets of a listener. With `dns` it gets first flights from name servers. `first_start` says that the process has just begun, so that nothing ran here before, if
    /// the file says so.
    /// Errors: when an address cannot be used, or a file is not right.
    pub(crate) async fn bind(
        config: &Listener,
        farm: &Farm,
        dns: Option<&Dns>,
        verifiers: &Verifiers,
        first_start: bool,
        threads: impl FnOnce() -> io::Result<Workers>,
    ) -> Result<(Self, Option<Arc<Sealing>>), GatewayError> {
        let name = config.name.get_ref();
        let (key_file, trust_file) = read_files(config).await?;
        let pending = if config.fast_open { config.pending } else { 0 };
        let mut builder = Server::builder()
            .keep_alive(KEEP_ALIVE)
            .send_timeout(config.patience())
            .pending(pending)
            .share_port(config.reuse_port)
            .in_stages(false)
            .engine(device::engine(config, Vec::new())?);
        let settings = config.engine();
        let mut listen = ListenConfig::new(SocketAddr::from(([0, 0, 0, 0], 0)));
        settings.configure_listener(&mut listen);
        builder = builder.listen(listen);
        if let Some(most) = settings.pending_per_client {
            builder = builder.pending_per_client(most);
        }
        if settings.strict_quarantine {
            builder = builder.quarantine(Quarantine::Every);
        }
        for address in config.address.get_ref() {
            builder = builder.address(*address);
        }
        if let Some(keys) = current_keys(config, key_file.as_ref())? {
            builder = builder.keys(keys.ring);
        }
        builder = match config.udp_port {
            // The card's engine has the port.
            _ if config.xdp.is_some() => builder.tcp_only(),
            Some(0) => builder.tcp_only(),
            Some(port) => builder.udp_port(port),
            None => builder,
        };
        builder = builder.replays(farm.replays(config)?);
        if let Some(cookies) = farm.cookies(config) {
            builder = builder.one_time(cookies);
        }
        if let Some(store) = farm.store().filter(|_| config.asks_store()) {
            builder = builder.store(Arc::clone(store) as _);
        }
        if let Some(dns) = dns {
            builder = builder.from_fronts(dns.seen_as.iter().copied());
        }
        let mut workers = None;
        let mut device = device::start(config, farm, || Ok(workers.insert(threads()?).clone()))?;
        let mut engines = Vec::new();
        if let Some(device) = &mut device {
            for &address in &device.addresses {
                builder = builder.engine_at(&device.endpoint, address);
            }
            for socket in std::mem::take(&mut device.beside) {
                builder = builder.beside(socket);
            }
            engines.clone_from(&device.addresses);
        }
        let addresses = config.address.get_ref().iter().chain(&engines);
        let port = addresses.clone().next().map_or(0, SocketAddr::port);
        let (sealing, sealed) = Sealing::open(config, port, farm, first_start)?.unzip();
        if let Some(verifier) = verifiers.of(config)? {
            builder = builder.verifier(&verifier);
        }
        if let Some(file) = &trust_file {
            builder = builder.trust(file.store());
        }
        if config.takes_certificates() {
            builder = builder.per_site(config.per_site).first_start(first_start && config.first_start);
            if let Some(guard) = farm.request_guard(config) {
                builder = builder.request_guard(guard);
            }
            let mut identities = config.identity.clone();
            if identities.is_empty() {
                let own = addresses.filter(|at| !at.ip().is_unspecified());
                identities.extend(own.map(|at| at.ip().to_string()));
            }
            identities.extend(sealed.into_iter().flatten());
            for identity in identities {
                builder = builder.identity(identity);
            }
        }
        let server = builder.bind().map_err(|error| GatewayError::Bind(name.clone(), error))?;
        Ok((Self { server, device, workers, key_file, trust_file }, sealing.map(Arc::new)))
    }

    /// Where name servers give first flights. `None` if the listener gets none.
    pub(crate) fn for_names(&self) -> Option<(RelayTarget, Endpoint)> {
        self.server.relay_target().cloned().zip(self.server.endpoint().cloned())
    }

    /// Takes what another gateway may have, when everything else of this one is ready.
    /// Errors: when the network card cannot be used.
    pub(crate) fn take_over(&mut self, name: &str) -> Result<(), GatewayError> {
        let Some(device) = &mut self.device else { return Ok(()) };
        if let Some(card) = device.later.take() {
            let begun = card.begin(&device.endpoint);
            device.card = Some(begun.map_err(|error| GatewayError::Card(name.to_owned(), error))?);
        }
        Ok(())
    }

    /// Begins to accept. `places` are those of the whole gateway.
    pub(crate) fn accept(self, site: Site, places: Arc<Limit>) -> Listening {
        let Self { server, device, workers, key_file, trust_file } = self;
        if let Some(file) = key_file {
            tokio::spawn(keys::follow_file(server.keys(), file));
        }
        if let Some(file) = trust_file {
            tokio::spawn(trust::follow(server.trust(), file));
        }
        let site = Arc::new(ArcSwap::from_pointee(site));
        let (accepting, stopped) = watch::channel(true);
        let (draining, drains) = watch::channel(false);
        let (killed, kills) = watch::channel(false);
        let (addresses, udp_port) = (server.local_addrs(), server.udp_port());
        let grants_cookies = server.grants_cookies();
        let udp_port = udp_port.or(device.as_ref().and_then(|device| device.udp_port));
        let (device, card) = device.map(|device| (device.endpoint, device.card)).unzip();
        let endpoints = server.endpoint().into_iter().chain(&device).cloned().collect();
        let card = device.clone().zip(card.flatten());
        let (alive, gone) = mpsc::channel(1);
        let by_kernel = Arc::new(ByKernel::default());
        let door = Arc::new(Door {
            site: Arc::clone(&site),
            clients: Clients::default(),
            places,
            alive,
            phases: Phases { draining: drains, killed: kills },
            by_kernel: Arc::clone(&by_kernel),
        });
        let mut servers = server.split().into_iter();
        let others = servers.next();
        let turn = if servers.len() == 0 { FirstOfTwo::PermitFirst } else { FirstOfTwo::ConnectionFirst };
        let accept = |server| accept(server, Arc::clone(&door), turn, draining.clone(), stopped.clone());
        let mut accepting_at = JoinSet::new();
        for (shard, server) in servers.enumerate() {
            // Each connection stays on the thread of its engine.
            let runtime = workers.as_ref().and_then(|workers| workers.runtime(shard)).cloned();
            accepting_at.spawn_on(accept(server), &runtime.unwrap_or_else(Handle::current));
        }
        if let Some(server) = others {
            accepting_at.spawn(accept(server));
        }
        let task = tokio::spawn(run(accepting_at, door, (device, workers), draining, gone));
        Listening {
            by_kernel,
            site,
            addresses,
            udp_port,
            grants_cookies,
            endpoints,
            card,
            accepting,
            killed,
            task,
        }
    }
}

impl Listening {
    /// Stops to accept, and lets connections end within this time.
    pub(crate) async fn end(self, within: Duration) {
        let Self { site, accepting, killed, mut task, card, .. } = self;
        if let Some((endpoint, card)) = card
            && let Err(error) = Card::hand_over(&endpoint, &card).await
        {
            let problem = "until its open connections have ended, SYNs in their clients' name reset these, and many SYNs those of \
                           the gateway that replaces it";
            tracing::warn!(listener = site.load().name(), %error, "{problem}");
        }
        accepting.send_replace(false);
        if tokio::time::timeout(within, &mut task).await.is_err() {
            killed.send_replace(true);
            let _ = task.await;
        }
    }
}

/// What every connection needs.
struct Door {
    site: Arc<ArcSwap<Site>>,
    clients: Clients,
    places: Arc<Limit>,
    alive: mpsc::Sender<()>,
    phases: Phases,
    by_kernel: Arc<ByKernel>,
}

impl Door {
    /// Waits for a place in the gateway, and in the listener.
    async fn place(&self) -> Vec<LimitPermit> {
        let own = Arc::clone(&self.site.load().places);
        vec![Arc::clone(&self.places).place().await, own.place().await]
    }

    fn serve(&self, stream: Stream, permits: Vec<LimitPermit>) {
        self.by_kernel.count(&stream);
        let (site, clients) = (Arc::clone(&self.site), self.clients.clone());
        let serving =
            connection::serve(stream, site, clients, permits, self.alive.clone(), self.phases.clone());
        tokio::spawn(serving);
    }
}

/// Which of the two comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstOfTwo {
    /// A permit: what has none waits in the kernel's queue.
    PermitFirst,
    /// A connection: where several tasks accept, one that waits for connections must not keep the last permit.
    ConnectionFirst,
}

/// Accepts until it is to stop, and then what waits.
async fn accept(
    mut server: Server,
    door: Arc<Door>,
    turn: FirstOfTwo,
    draining: watch::Sender<bool>,
    mut accepting: watch::Receiver<bool>,
) -> Server {
    while server.is_listening() {
        let before = match turn {
            FirstOfTwo::PermitFirst => tokio::select! {
                biased;
                // It changes once.
                _ = accepting.changed() => break,
                permits = door.place() => Some(permits),
            },
            FirstOfTwo::ConnectionFirst => None,
        };
        let accepted = tokio::select! {
            biased;
            _ = accepting.changed() => break,
            accepted = server.accept() => accepted,
        };
        match (accepted, before) {
            (Ok(stream), Some(permits)) => door.serve(stream, permits),
            (Ok(stream), None) => tokio::select! {
                biased;
                permits = door.place() => door.serve(stream, permits),
                // It is one of those that wait.
                _ = accepting.changed() => {
                    door.serve(stream, Vec::new());
                    break;
                }
            },
            (Err(error), _) => {
                tracing::warn!(listener = door.site.load().name(), %error, "cannot accept");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    // Those that wait in the kernel's queue, whose data is acknowledged.
    for _ in 0..ATTEMPTS {
        let (waiting, rest) = server.drain();
        waiting.into_iter().for_each(|stream| door.serve(stream, Vec::new()));
        match rest {
            Ok(()) => break,
            Err(error) => tracing::warn!(%error, "cannot accept"),
        }
        // What ends makes room for what waits.
        draining.send_replace(true);
        tokio::time::sleep(PAUSE).await;
    }
    server
}

/// Waits until nobody accepts any more, and all connections have ended.
async fn run(
    mut accepting: JoinSet<Server>,
    door: Arc<Door>,
    (device, workers): (Option<Endpoint>, Option<Workers>),
    draining: watch::Sender<bool>,
    mut gone: mpsc::Receiver<()>,
) {
    let mut servers = Vec::new();
    while let Some(ended) = accepting.join_next().await {
        servers.extend(ended);
    }
    // Connections are told to end only when the sockets are closed: a client that opens another connection at once must not
    // come here again.
    draining.send_replace(true);
    drop(door);
    // It ends when the last sender is gone.
    let _ = gone.recv().await;
    for server in servers {
        server.shutdown(LAST).await;
    }
    if let Some(device) = device {
        device.shutdown(LAST).await;
    }
    // Their threads end with the last engine.
    drop(workers);
}
