//! `firstflight serve`: a file server over HTTP/1.1 whose first response needs one round trip.

mod answer;
mod body;
mod by_system;
mod card;
mod certificates;
mod connections;
mod counters;
pub(crate) mod early;
mod error;
mod fast_open;
pub(crate) mod log;
mod names;
mod readers;
mod relay;
pub(crate) mod replays;
mod request_body;
mod seal;
mod tls;
mod verifier;

#[cfg(test)]
pub(crate) use connections::io;
pub(crate) use connections::{Site, serve};
pub use error::ServeError;

use crate::at::{self, At};
use crate::error::Error;
use crate::life::Metrics;
use crate::network::{Capture, Network};
use crate::span;
use clap::ArgGroup;
use connections::accept;
use fast_open::FastOpen;
use firstflight::credential::asap::AsapPolicy;
use firstflight::link::xdp::XdpStatus;
use firstflight::metrics::CardPublisher;
use firstflight::{
    Card, Config, Endpoint, ListenConfig, OwnVerifier, RelayTarget, Sharding, SharedStore, Workers,
};
use firstflight_daemon::Signals;
use firstflight_dns::service::{FrontHandle, RelayCounts, RelaySocket};
use firstflight_http::directory::{Files, RootError};
use firstflight_redis::RedisStore;
use firstflight_tls::{Acceptor, ServerCertificates};
use hyper_util::server::graceful::GracefulShutdown;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// Serve a directory over HTTP, with TCP Fast Open and ASAP
///
/// Serves one port on the kernel's TCP and in UDP (--listen), and needs no privileges. Clients with Fast Open need bit 2
/// of net.ipv4.tcp_fastopen; clients with certificates (--trust) come in UDP. Besides files it answers POST /echo (the
/// body comes back) and PUT /sink (length and SHA-256). SIGINT and SIGTERM end it: idle connections close at once, and
/// requests under way have five seconds.
///
/// With --tun or --udp a TCP engine serves alone: on a TUN device (needs root or CAP_NET_ADMIN; the kernel has --host-ip
/// on it, the server has --ip), or in UDP datagrams. With --xdp it serves one port of the host's own addresses on a network
/// card, and the kernel everything else.
#[derive(clap::Args)]
#[command(group = ArgGroup::new("link").args(["tun", "udp", "xdp"]))]
#[command(group = ArgGroup::new("certified").args(["trust", "verifier"]).multiple(true))]
#[command(group = ArgGroup::new("once").args(["trust", "verifier", "seal"]).multiple(true))]
#[command(group = ArgGroup::new("fronts").args(["relay_listen", "dns_listen"]).multiple(true))]
#[command(after_help = "\
Examples:
  firstflight serve --root ./site
  firstflight serve --root ./site --listen 0.0.0.0:443 --listen '[::]:443' --udp-port 4433
  firstflight serve --tun ff0 --host-ip 10.9.0.1/24 --ip 10.9.0.2 --port 80 --root ./site
  firstflight serve --tun ff0 --host-ip 10.9.0.1/24 --ip 10.9.0.2 \\
      --host-ip fd09::1/64 --ip fd09::2 --port 80 --root ./site --json-log
  curl --tcp-fastopen http://10.9.0.2/
  firstflight serve --xdp eth0 --port 80 --xdp-allow any --root ./site
  firstflight serve --root ./site --listen 0.0.0.0:443 --tls-cert chain.pem --tls-key key.pem
  firstflight serve --root ./site --listen 0.0.0.0:443 --tls-cert chain.pem --tls-key key.pem --seal seal.key
  firstflight serve --udp 0.0.0.0:8080 --root ./site --trust trust.toml --identity www.example.com
  firstflight serve --root ./site --listen 0.0.0.0:443 --verifier verifier.key --identity www.example.com
  firstflight serve --udp 192.0.2.80:443 --root ./site --trust trust.toml --identity www.example.com \\
      --dns-listen 192.0.2.80:53 --carriage-zone f.example.com --carriage-key carriage.key

Each first flight once: add --replays at-most-once --one-time --one-time-state FILE
One key for a farm: (umask 077; sysctl -n net.ipv4.tcp_fastopen_key > key), then --key-file key on every member.
Key files have the mode 0600, or root owns them and they have 0640.
Keys that follow the clock: firstflight keys new --secret -o secret, then --key-schedule secret.

Environment: FIRSTFLIGHT_KEY has the keys if no option names any.")]
pub struct Args {
    #[command(flatten)]
    network: Network,
    /// Serve the kernel's TCP and UDP at this address and port; once more for further addresses [default: port 8080 at
    /// all addresses]
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "link", value_parser = at::address)]
    listen: Vec<SocketAddr>,
    /// UDP port beside the kernel's TCP; 0 serves TCP only [default: the TCP port, if it is free]
    #[arg(long, value_name = "N", conflicts_with = "link")]
    udp_port: Option<u16>,
    /// Speak only TCP in UDP datagrams, on this address and port of the operating system's. Instead of the address it
    /// may be a name, which is looked up
    #[arg(long, value_name = "ADDR:PORT")]
    udp: Option<At>,
    /// With --xdp: take connections from this prefix, as 192.0.2.0/24; can be repeated; any takes everybody's. The packet
    /// filter of this host does not see them
    #[arg(long, value_name = "PREFIX", requires = "xdp", value_parser = crate::card::source)]
    xdp_allow: Vec<crate::card::Source>,
    /// TCP port of the engine to listen on [default: 80, with --udp its port]
    #[arg(long, value_name = "N", requires = "link", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Directory to serve: GET and HEAD, index.html for a directory, parts of files (Range), ETag and Last-Modified. There
    /// are no listings, and links that lead out of it are refused
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Serve names that begin with a dot, as .git or .env, too. Without it only /.well-known/ is
    #[arg(long)]
    hidden: bool,
    #[command(flatten)]
    fast_open: FastOpen,
    #[command(flatten)]
    replays: replays::Replays,
    #[command(flatten)]
    certificates: certificates::Certificates,
    #[command(flatten)]
    relay: relay::Relay,
    #[command(flatten)]
    readers: readers::Readers,
    #[command(flatten)]
    tls: tls::Tls,
    #[command(flatten)]
    seal: seal::Seal,
    /// What to do with a request other than GET, HEAD, OPTIONS or TRACE that arrived in a SYN, before the handshake, or as
    /// TLS early data
    #[arg(long, value_enum, value_name = "HOW", default_value_t = early::EarlyUnsafe::Wait)]
    early_unsafe: early::EarlyUnsafe,
    #[command(flatten)]
    metrics: Metrics,
    /// Log one JSON object a line
    #[arg(long)]
    json_log: bool,
    /// Leave out the line for each request
    #[arg(long)]
    no_log: bool,
    /// Threads, at most 256; with --tun and --udp each has an engine of its own [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=Workers::MOST as i64))]
    threads: Option<u16>,
    /// Keep each engine's thread awake for this long after a packet, as 50us. It helps clients on this machine, and those that
    /// answer within this time. Each packet, from anybody, can cost this much CPU time. Use fewer --threads than there are
    /// processors
    #[arg(long, value_name = "TIME", requires = "link", value_parser = busy_poll)]
    busy_poll: Option<Duration>,
    // The heading of `Names` applies to all options that follow it, so it is the last field.
    #[command(flatten)]
    names: names::Names,
}

/// For how long a thread may stay awake.
fn busy_poll(text: &str) -> Result<Duration, &'static str> {
    let window = span::within(Duration::from_micros(1)..=Duration::from_secs(1))(text);
    window.map_err(|_| "write a time between 1us and 1s, as 50us")
}

/// How long requests under way may take after a signal, and then again the ends of their connections. Together this
/// is less than the ten seconds after which service managers kill a process.
const GRACE: Duration = Duration::from_secs(5);

/// Runs the command until a signal arrives.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    match args.has_engine() {
        true => run_engine(args).await,
        false => by_system::run(args).await,
    }
}

/// Serves by an engine alone.
async fn run_engine(mut args: Args) -> Result<ExitCode, Error> {
    args.network.validate()?;
    let udp = match &args.udp {
        Some(at) => Some(at.own().await?),
        None => None,
    };
    let port = args.port.or(udp.map(|at| at.port())).unwrap_or(80);
    let card = args.network.serve_by_card(port, &args.xdp_allow)?;
    let listen_at: Vec<IpAddr> = match (udp, &card) {
        (Some(at), _) => vec![at.ip()],
        (None, Some(card)) => card.addresses().to_vec(),
        (None, None) => args.network.addresses().to_vec(),
    };
    let own: Vec<_> = listen_at.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
    let _trial = args.tls.begin_trial(&own)?;
    let beside = card.as_ref().map(card::Beside::of).transpose()?;
    let mut fast_open = args.fast_open.prepare().await?;
    let (seal, tls) = (args.sealing(port)?, args.tls.acceptor(None)?);
    let sealed = seal.iter().flat_map(seal::Prepared::identities).collect();
    let sealing = args.is_sealing();
    args.replays.prepare(fast_open.policy.as_mut(), sealing).map_err(ServeError::Replays)?;
    let others: Vec<_> =
        args.relay.address().into_iter().chain(args.names.addresses().iter().copied()).collect();
    let policy = fast_open.policy.as_ref();
    let mut asap = args.certificates.prepare((&listen_at, port), (udp, &others), policy, sealed).await?;
    let (fronts, names) = first_flights_by_dns(&args, udp, asap.policy.as_mut()).await?;
    let files = Arc::new(files(&args).await?);
    let mut signals = Signals::new().map_err(Error::Runtime)?;
    let life = args.metrics.start(describe).await;
    if names.is_some() {
        firstflight_dns::metrics::describe();
    }
    if asap.verifier.is_some() {
        firstflight_verifier::metrics::describe();
    }
    if fronts.is_some() {
        firstflight_dns::metrics::describe_relay();
    }
    // The machine may have other work, and a connection must not wait for one processor while another is idle.
    let workers = Workers::start_unpinned(args.threads()).map_err(Error::Runtime)?;
    let asks = fast_open.policy.is_some() || sealing;
    let Started { endpoint, capture, card, store } = start(&args, asks, udp, card, &workers).await?;
    let (tls, followed) = args.tls.sealing(tls, seal, store.as_ref())?;
    let asks = store.is_some();
    if let Some(verifier) = &asap.verifier {
        endpoint.verify(verifier).map_err(ServeError::OwnVerifier)?;
    }
    let names = names.map(|names| names.over(endpoint.clone())).transpose()?;
    let naming = names.as_ref().map(|names| names.handle.clone());
    let relayed = fronts.as_ref().map(|fronts| fronts.socket.counts());
    let log = log::Log::new(args.json_log, !args.no_log);
    let (log, certificates) = (log.with_tls(tls.is_some()), tls.as_ref().map(Acceptor::certificates));
    let _followed = certificates.clone().map(tls::follow).transpose()?;

    let graceful = Arc::new(GracefulShutdown::new());
    let mut listening = JoinSet::new();
    let (mut handles, mut trusting, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
    let (stop, stopping) = watch::channel(());
    for ip in listen_at {
        let at = SocketAddr::new(ip, port);
        let mut config = ListenConfig::new(at);
        args.fast_open.configure(&mut config);
        config.fast_open = fast_open.policy.clone();
        config.asap = asap.policy.clone();
        let listener = endpoint.listen(config).map_err(|error| Error::Listen(at, error))?;
        handles.push(listener.keys());
        trusting.extend(listener.trust());
        let body_timeout = args.readers.body_timeout();
        for (shard, listener) in listener.split().into_iter().enumerate() {
            let site = Site {
                files: Arc::clone(&files),
                early_unsafe: args.early_unsafe,
                body_timeout,
                log,
                tls: tls.clone(),
            };
            // Each connection stays on the thread of its engine.
            let accepting =
                workers.spawn(shard, accept(listener, site, Arc::clone(&graceful), stopping.clone()));
            listening.spawn(async move {
                let _ = accepting.await;
            });
        }
        addresses.push(at);
    }
    if let Some(beside) = beside {
        let site = Site {
            files: Arc::clone(&files),
            early_unsafe: args.early_unsafe,
            body_timeout: args.readers.body_timeout(),
            log,
            tls: tls.clone(),
        };
        beside.accept(&mut listening, &site, &graceful, &stopping)?;
    }
    let mut says: Vec<_> = asap.verifier.iter().map(verifier::says).collect();
    let names = names.map(|mut names| {
        says.append(&mut names.says);
        names.run(stopping.clone(), log)
    });
    drop(stopping);
    // The connections have it.
    drop(tls);
    fast_open.follow(handles);
    asap.follow(trusting);
    let relaying = fronts.map(|fronts| tokio::spawn(fronts.run(endpoint.clone())));
    let mut publish =
        publish(Some(&endpoint), asap.verifier.as_ref(), naming.as_ref(), relayed, certificates);
    let card = card.map(CardPublisher::new);
    life.serving(move || {
        publish();
        card.iter().for_each(CardPublisher::publish);
    });
    // A program that reads these lines can use everything from now on.
    addresses.into_iter().for_each(|at| log.listening(at));
    log.naming(says);

    let failed = until_the_end(&mut signals, &mut listening).await;
    life.stopping();
    drop(stop);
    drop(followed);
    if let Some(relaying) = relaying {
        relaying.abort();
    }
    tokio::select! {
        () = end(listening, names, graceful, Some(&endpoint), store) => {}
        // A second signal stops the server at once.
        () = signals.end() => {}
    }
    drop(life);
    if asks {
        log.store(&endpoint.store_counters());
    }
    if let Some(naming) = naming {
        log.names(names::Report::new(&naming));
    }
    log.counters(&endpoint.counters(), endpoint.connections());
    capture.finish()?;
    if failed { Err(ServeError::Stopped.into()) } else { Ok(ExitCode::SUCCESS) }
}

/// Waits for a signal, or for a listener that ends by itself: its engine has stopped for good. Returns whether one did.
async fn until_the_end(signals: &mut Signals, listening: &mut JoinSet<()>) -> bool {
    tokio::select! {
        () = signals.end() => false,
        Some(_) = listening.join_next() => true,
    }
}

/// The directory to serve.
async fn files(args: &Args) -> Result<Files, ServeError> {
    let files = Files::below(&args.root).await.map_err(|error| match error {
        RootError::Unreadable(error) => ServeError::Root(args.root.clone(), error),
        RootError::NotDirectory => ServeError::RootNotDirectory(args.root.clone()),
    });
    Ok(files?.hidden(args.hidden))
}

/// What was started.
struct Started {
    endpoint: Endpoint,
    capture: Capture,
    card: Option<XdpStatus>,
    store: Option<Arc<RedisStore>>,
}

/// Starts the engines, and connects to the shared store if there is one.
async fn start(
    args: &Args,
    asks: bool,
    udp: Option<SocketAddr>,
    card: Option<Card>,
    workers: &Workers,
) -> Result<Started, Error> {
    let store = match asks {
        true => args.replays.store().await.map_err(ServeError::Replays)?,
        false => None,
    };
    let asked = store.clone().map(|store| store as Arc<dyn SharedStore>);
    let tune = |config: &mut Config| args.readers.configure(config);
    let mut sharding = Sharding::new(workers);
    if let Some(asked) = asked {
        sharding = sharding.store(asked);
    }
    match args.network.start_shards(udp, card, &sharding, args.busy_poll.unwrap_or_default(), tune) {
        Ok((endpoint, capture, card)) => Ok(Started { endpoint, capture, card, store }),
        Err(error) => {
            // The store got no questions, so the server owes it nothing.
            if let Some(store) = store {
                store.close().await;
            }
            Err(error)
        }
    }
}

/// Waits until all listeners and all connections, including those of resolvers, have closed, or the time is over.
/// Idle connections close at once.
async fn end(
    mut listening: JoinSet<()>,
    names: Option<JoinHandle<()>>,
    graceful: Arc<GracefulShutdown>,
    endpoint: Option<&Endpoint>,
    store: Option<Arc<RedisStore>>,
) {
    let until = Instant::now() + GRACE;
    let connections = async {
        while listening.join_next().await.is_some() {}
        // Requests under way end first. Then their connections close in order.
        if let Some(graceful) = Arc::into_inner(graceful) {
            let _ = tokio::time::timeout_at(until, graceful.shutdown()).await;
        }
        if let Some(endpoint) = endpoint {
            endpoint.shutdown(until.saturating_duration_since(Instant::now())).await;
        }
    };
    let resolvers = async {
        if let Some(names) = names {
            let _ = names.await;
        }
    };
    tokio::join!(connections, resolvers);
    // From here on no first flight is refused, so no further debt to the store can arise.
    if let Some(store) = store {
        store.close().await;
    }
}

/// External fronts, and where their first flights go.
struct Fronts {
    socket: RelaySocket,
    target: RelayTarget,
}

impl Fronts {
    /// Gives `endpoint` what they send.
    async fn run(self, endpoint: Endpoint) {
        self.socket.run(|relayed| self.target.take(&endpoint, relayed)).await;
    }
}

/// The sources of first flights by DNS: external fronts, and the front in this server.
async fn first_flights_by_dns(
    args: &Args,
    udp: Option<SocketAddr>,
    asap: Option<&mut AsapPolicy>,
) -> Result<(Option<Fronts>, Option<names::Prepared>), Error> {
    let (Some(udp), Some(asap), true) = (udp, asap, args.relay.wanted() || args.names.wanted()) else {
        return Ok((None, None));
    };
    let target = args.relay.target(udp, asap)?;
    let fronts = args.relay.prepare().await?;
    let fronts = fronts.map(|socket| Fronts { socket, target: target.clone() });
    Ok((fronts, args.names.prepare(target).await?))
}

/// Describes the series of a server.
fn describe() {
    firstflight::metrics::describe();
    firstflight_tls::metrics::describe();
}

/// Publishes the counters of the engine, of the server's own verifier and the name server if there are such, and of first flights
/// from external fronts.
fn publish(
    endpoint: Option<&Endpoint>,
    verifier: Option<&OwnVerifier>,
    names: Option<&FrontHandle>,
    relayed: Option<RelayCounts>,
    certificates: Option<ServerCertificates>,
) -> impl FnMut() + Send + 'static {
    let mut ends = firstflight_tls::metrics::CertificatePublisher::default();
    let mut publisher = endpoint.cloned().map(firstflight::metrics::Publisher::new);
    let mut of_verifier = verifier.map(verifier::publisher);
    let mut of_names = names.cloned().map(firstflight_dns::metrics::Publisher::new);
    let mut of_relays = relayed.map(|counts| (counts, firstflight_dns::metrics::RelayPublisher::new()));
    move || {
        ends.publish(&certificates);
        if let Some(publisher) = &mut publisher {
            publisher.publish();
        }
        if let Some(of_verifier) = &mut of_verifier {
            of_verifier.publish();
        }
        if let Some(of_names) = &mut of_names {
            of_names.publish();
        }
        if let Some((counts, publisher)) = &mut of_relays {
            publisher.publish(&counts.now());
        }
    }
}

/// The number of threads of the runtime on which the command begins. Engines have threads of their own.
pub fn threads(args: &Args) -> Option<NonZeroUsize> {
    NonZeroUsize::new(if args.has_engine() { 1 } else { args.threads() })
}

impl Args {
    /// Whether an engine serves alone.
    const fn has_engine(&self) -> bool {
        self.network.has_device() || self.udp.is_some()
    }

    fn threads(&self) -> usize {
        self.threads.map_or_else(Workers::processors, usize::from)
    }

    /// Whether sealed first flights are taken.
    const fn is_sealing(&self) -> bool {
        self.seal.is_wanted()
    }

    /// The seal keys of a server at `port`.
    fn sealing(&self, port: u16) -> Result<Option<seal::Prepared>, Error> {
        let (first_start, per_site) = (self.certificates.is_first_start(), self.certificates.is_per_site());
        self.seal.prepare(port, seal::Memory { first_start, per_site })
    }
}

#[cfg(test)]
#[path = "serve/tests.rs"]
mod tests;
