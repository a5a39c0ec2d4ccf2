//! `serve` on the system's sockets: the kernel's TCP and UDP.

use super::{Args, ServeError, Site, describe, end, files, log, publish, serve, until_the_end};
use crate::error::Error;
use crate::network::{NetworkError, engine_config};
use firstflight::{Endpoint, ListenConfig, Server, Stream};
use firstflight_daemon::{Signals, open_files};
use firstflight_redis::RedisStore;
use firstflight_tls::Acceptor;
use hyper_util::server::graceful::GracefulShutdown;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The port, if none is given.
const PORT: u16 = 8080;
/// A client from which nothing has come for this long is asked whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Pause after a failed accept, which may be caused by a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Runs the command until a signal arrives.
pub async fn run(mut args: Args) -> Result<ExitCode, Error> {
    if args.network.records() {
        return Err(NetworkError::NothingToRecord.into());
    }
    // Each of the kernel's connections needs a descriptor.
    open_files::raise_to_most();
    let listen_at = addresses(&args.listen)?;
    let _trial = args.tls.begin_trial(&listen_at)?;
    let mut fast_open = args.fast_open.prepare().await?;
    let sealing = args.is_sealing();
    args.replays.prepare(fast_open.policy.as_mut(), sealing).map_err(ServeError::Replays)?;
    let ips: Vec<IpAddr> = listen_at.iter().map(SocketAddr::ip).collect();
    let port = listen_at.first().map_or(PORT, SocketAddr::port);
    let (seal, tls) = (args.sealing(port)?, args.tls.acceptor(None)?);
    let sealed = seal.iter().flat_map(super::seal::Prepared::identities).collect();
    if args.certificates.verifies() && args.udp_port == Some(0) {
        return Err(ServeError::VerifierUdp.into());
    }
    let policy = fast_open.policy.as_ref();
    let mut asap = args.certificates.prepare((&ips, port), (None, &[]), policy, sealed).await?;
    let files = Arc::new(files(&args).await?);
    let mut signals = Signals::new().map_err(Error::Runtime)?;
    let life = args.metrics.start(describe).await;
    if asap.verifier.is_some() {
        firstflight_verifier::metrics::describe();
    }
    let store = match fast_open.policy.is_some() || sealing {
        true => args.replays.store().await.map_err(ServeError::Replays)?,
        false => None,
    };
    let server = match bind(&args, &listen_at, &fast_open, &asap, store.clone()) {
        Ok(server) => server,
        Err(error) => {
            // The store got no questions, so the server owes it nothing.
            if let Some(store) = store {
                store.close().await;
            }
            return Err(error);
        }
    };
    let (tls, followed) = args.tls.sealing(tls, seal, store.as_ref())?;
    let endpoint = server.endpoint().cloned();
    let log = log::Log::new(args.json_log, !args.no_log);
    let (log, certificates) = (log.with_tls(tls.is_some()), tls.as_ref().map(Acceptor::certificates));
    let _followed = certificates.clone().map(super::tls::follow).transpose()?;
    let (addresses, grants_cookies, udp_port) =
        (server.local_addrs(), server.grants_cookies(), server.udp_port());
    fast_open.follow(server.keys());
    asap.follow(server.trust());
    let graceful = Arc::new(GracefulShutdown::new());
    let (stop, stopping) = watch::channel(());
    let body_timeout = args.readers.body_timeout();
    let site = Site { files, early_unsafe: args.early_unsafe, body_timeout, log, tls };
    let mut listening = JoinSet::new();
    let tcp = Arc::new(Mutex::new(log::Tcp::default()));
    let door = Door { site, graceful: Arc::clone(&graceful), tcp: Arc::clone(&tcp) };
    listening.spawn(accept(server, door, stopping));
    life.serving(publish(endpoint.as_ref(), asap.verifier.as_ref(), None, None, certificates));
    // A program that reads these lines can use everything from now on.
    for at in addresses {
        log.listening_by_system(at, grants_cookies, udp_port);
    }
    log.naming(asap.verifier.iter().map(super::verifier::says).collect());

    let failed = until_the_end(&mut signals, &mut listening).await;
    life.stopping();
    drop(stop);
    drop(followed);
    let asks = store.is_some();
    tokio::select! {
        () = end(listening, None, graceful, endpoint.as_ref(), store) => {}
        // A second signal stops the server at once.
        () = signals.end() => {}
    }
    drop(life);
    if let Some(endpoint) = endpoint.as_ref().filter(|_| asks) {
        log.store(&endpoint.store_counters());
    }
    let udp = endpoint.map(|endpoint| (endpoint.counters(), endpoint.connections()));
    let tcp = *tcp.lock().unwrap_or_else(PoisonError::into_inner);
    log.by_system(tcp, udp.as_ref().map(|(counters, cut_off)| (counters, *cut_off)));
    if failed { Err(ServeError::Stopped.into()) } else { Ok(ExitCode::SUCCESS) }
}

/// The addresses to listen at: all addresses if none are given.
fn addresses(given: &[SocketAddr]) -> Result<Vec<SocketAddr>, ServeError> {
    let Some(first) = given.first() else {
        let v6 = Path::new("/proc/net/if_inet6").exists();
        let all = [Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), v6.then_some(IpAddr::V6(Ipv6Addr::UNSPECIFIED))];
        return Ok(all.into_iter().flatten().map(|ip| SocketAddr::new(ip, PORT)).collect());
    };
    match given.iter().all(|at| at.port() == first.port()) {
        true => Ok(given.to_vec()),
        false => Err(ServeError::Ports),
    }
}

fn bind(
    args: &Args,
    addresses: &[SocketAddr],
    fast_open: &super::fast_open::Prepared,
    asap: &super::certificates::Prepared,
    store: Option<Arc<RedisStore>>,
) -> Result<Server, Error> {
    if !args.fast_open.fits_kernel() {
        return Err(ServeError::Scheme.into());
    }
    let mut engine = engine_config(Vec::new())?;
    args.network.tune(&mut engine);
    args.readers.configure(&mut engine);
    let mut listen = ListenConfig::new(SocketAddr::from(([0, 0, 0, 0], PORT)));
    args.fast_open.configure(&mut listen);
    listen.fast_open.clone_from(&fast_open.policy);
    listen.asap.clone_from(&asap.policy);
    // The kernel has no memory of first flights.
    let by_kernel = fast_open.policy.as_ref().filter(|_| args.replays.allows_copies());
    // Its connections close in stages themselves, and count until then.
    let mut builder = Server::builder()
        .in_stages(false)
        .keep_alive(KEEP_ALIVE)
        .pending(by_kernel.map_or(0, |_| args.fast_open.pending()))
        .engine(engine)
        .listen(listen);
    if let Some(policy) = by_kernel.filter(|_| args.fast_open.names_keys()) {
        builder = builder.keys(Arc::clone(&policy.keys));
    }
    if let Some(timeout) = args.readers.send_timeout() {
        builder = builder.send_timeout(timeout);
    }
    builder = match args.udp_port {
        Some(0) => builder.tcp_only(),
        Some(port) => builder.udp_port(port),
        None => builder,
    };
    for address in addresses {
        builder = builder.address(*address);
    }
    if let Some(store) = store {
        builder = builder.store(store);
    }
    if let Some(verifier) = &asap.verifier {
        builder = builder.verifier(verifier);
    }
    let server = builder.bind();
    let first = addresses.first().copied().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], PORT)));
    server.map_err(|error: io::Error| ServeError::Listen(first, error).into())
}

/// What becomes of a connection.
struct Door {
    site: Site,
    graceful: Arc<GracefulShutdown>,
    tcp: Arc<Mutex<log::Tcp>>,
}

impl Door {
    fn serve(&self, stream: Stream) {
        self.tcp.lock().unwrap_or_else(PoisonError::into_inner).count(&stream);
        // HTTP writes whole messages, and the end of one must not wait for an acknowledgement.
        // It fails only when the connection is over.
        let _ = stream.set_nodelay(true);
        serve(stream, self.site.clone(), &self.graceful);
    }
}

/// Accepts connections until `stopping` closes, and then those that wait.
async fn accept(mut server: Server, door: Door, mut stopping: watch::Receiver<()>) {
    loop {
        tokio::select! {
            accepted = server.accept() => match accepted {
                Ok(stream) => door.serve(stream),
                // UDP is gone for good.
                Err(_) if server.endpoint().is_some_and(Endpoint::has_stopped) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            _ = stopping.changed() => break,
        }
    }
    loop {
        let (waiting, rest) = server.drain();
        waiting.into_iter().for_each(|stream| door.serve(stream));
        match rest {
            Ok(()) => break,
            Err(error) => tracing::warn!(%error, "cannot accept"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
