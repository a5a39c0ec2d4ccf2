//! The proxy: its listeners, its connections, and its end.

use crate::body::Body;
use crate::connector::Told;
use crate::event::Protocol;
use crate::forward::{Forwarder, connect_target, refusal, told};
use crate::near::Near;
use crate::pages;
use crate::settings::{ADDRESS, ProxyBuilder};
use crate::shared::{Held, Shared, Stopping};
use crate::socks;
use crate::tunnel::{self, Tunnel};
use bytes::Bytes;
use firstflight::{Authority, Client, Lingering};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};

/// The pause after the system could not accept, for example because the process has too many files open.
const PAUSE: Duration = Duration::from_millis(100);
/// How long connections that are reset at the end have for it.
const GRACE: Duration = Duration::from_secs(1);

/// A proxy for unmodified programs. It speaks HTTP (CONNECT, and absolute URIs) and SOCKS5 on the same port.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use firstflight_proxy::Proxy;
/// let proxy = Proxy::builder(firstflight::Client::new()).bind().await?;
/// println!("http_proxy=http://{} and {}", proxy.local_addrs()[0], proxy.status_url());
/// proxy.run(std::future::pending()).await;
/// # Ok(())
/// # }
/// ```
pub struct Proxy {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    site: Arc<Site>,
    drain: Duration,
    places: Arc<Semaphore>,
    stopping: watch::Sender<Stopping>,
}

/// What connections need.
struct Site {
    shared: Arc<Shared>,
    forwarder: Forwarder,
}

/// Why a proxy does not begin to listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// Other machines reach the address.
    #[error("{0} is no loopback address, and everybody who reaches this proxy could use it")]
    NotLoopback(SocketAddr),
    /// The address cannot be used.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, #[source] io::Error),
    /// There are no random numbers for the token.
    #[error("the system gives no random numbers: {0}")]
    Random(#[source] io::Error),
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Settings of a proxy that connects by `client`.
    pub fn builder(client: Client) -> ProxyBuilder {
        ProxyBuilder::new(client)
    }

    pub(crate) async fn bind(mut settings: ProxyBuilder) -> Result<Self, BindError> {
        if settings.listen.is_empty() {
            settings.listen.push(ADDRESS);
        }
        if let Some(at) = settings.listen.iter().find(|at| !at.ip().is_loopback() && !settings.remote) {
            return Err(BindError::NotLoopback(*at));
        }
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for at in &settings.listen {
            let fail = |error| BindError::Listen(*at, error);
            let listener = TcpListener::bind(at).await.map_err(fail)?;
            addresses.push(listener.local_addr().map_err(fail)?);
            listeners.push(listener);
        }
        let mut token = [0; 16];
        firstflight::random_bytes(&mut token).map_err(BindError::Random)?;
        let (stopping, watched) = watch::channel(Stopping::No);
        settings.policy.own.clone_from(&addresses);
        let shared = Arc::new(Shared {
            client: settings.client,
            policy: settings.policy,
            limits: settings.limits,
            early_data: settings.early_data,
            hosts: settings.hosts,
            pac: settings.pac,
            board: crate::board::Board::default(),
            listener: settings.listener,
            token: token.iter().map(|byte| format!("{byte:02x}")).collect(),
            watchers: Arc::new(Semaphore::new(settings.limits.watchers)),
            started: firstflight::unix_ms(),
            stopping: watched,
        });
        let forwarder = Forwarder::new(&shared);
        let places = Arc::new(Semaphore::new(settings.limits.connections));
        let site = Arc::new(Site { shared, forwarder });
        Ok(Self { listeners, addresses, site, drain: settings.drain, places, stopping })
    }

    /// The addresses on which it listens.
    #[must_use]
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of the status page, with the token that it needs. The token is another one at each start.
    #[must_use]
    pub fn status_url(&self) -> String {
        self.own_url(&format!("/status?token={}", self.site.shared.token))
    }

    /// The address of the PAC file, if it is served.
    #[must_use]
    pub fn pac_url(&self) -> Option<String> {
        self.site.shared.pac.then(|| self.own_url("/proxy.pac"))
    }

    fn own_url(&self, path: &str) -> String {
        let at = self.addresses.first().copied().unwrap_or(ADDRESS);
        format!("http://{at}{path}")
    }

    /// Serves until `stop` is ready. Then no more connections are accepted, and those that there are may end in order for
    /// some time ([`ProxyBuilder::drain`]).
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { listeners, site, drain, places, stopping, .. } = self;
        let (alive, mut all_gone) = mpsc::channel(1);
        tokio::pin!(stop);
        loop {
            let next = accept(&listeners, &places, &alive);
            let (tcp, held) = tokio::select! {
                next = next => next,
                () = &mut stop => break,
            };
            tokio::spawn(serve(Arc::clone(&site), tcp, Arc::new(held)));
        }
        // Connections that wait to be accepted have sent their requests, perhaps.
        while let Ok((tcp, held)) = timeout(Duration::ZERO, accept(&listeners, &places, &alive)).await {
            tokio::spawn(serve(Arc::clone(&site), tcp, Arc::new(held)));
        }
        drop((listeners, alive));
        stopping.send_replace(Stopping::Draining);
        if timeout(drain, all_gone.recv()).await.is_err() {
            stopping.send_replace(Stopping::Now);
            let _ = timeout(GRACE, all_gone.recv()).await;
        }
    }
}

/// The next connection, and its place.
async fn accept(
    listeners: &[TcpListener],
    places: &Arc<Semaphore>,
    alive: &mpsc::Sender<()>,
) -> (TcpStream, Held) {
    // The semaphore is never closed.
    let permit = loop {
        match Arc::clone(places).acquire_owned().await {
            Ok(permit) => break permit,
            Err(_) => std::future::pending().await,
        }
    };
    loop {
        let accepted = poll_fn(|cx| {
            let mut all = listeners.iter().map(|listener| listener.poll_accept(cx));
            all.find(Poll::is_ready).unwrap_or(Poll::Pending)
        });
        match accepted.await {
            Ok((tcp, _)) => return (tcp, Held { _permit: permit, _alive: alive.clone() }),
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Serves a connection. The first byte says which protocol it is.
async fn serve(site: Arc<Site>, tcp: TcpStream, held: Arc<Held>) {
    let mut near = Near::new(tcp);
    let mut first = [0];
    let peeked = tokio::select! {
        biased;
        peeked = timeout(site.shared.limits.head_timeout, near.tcp().peek(&mut first)) => peeked,
        () = site.shared.stopping(Stopping::Draining) => return,
    };
    match (peeked, first) {
        (Ok(Ok(1..)), [socks::VERSION]) => serve_socks(&site.shared, near, &held).await,
        (Ok(Ok(1..)), [socks::OLD_VERSION]) => {
            site.shared.refused("SOCKS4 is not spoken here: use SOCKS5");
            let _ = near.write_all(&socks::OLD_REFUSAL).await;
        }
        (Ok(Ok(1..)), _) => serve_http(site, near, held).await,
        _ => {}
    }
}

async fn serve_http(site: Arc<Site>, near: Near, held: Arc<Held>) {
    let Ok(local) = near.tcp().local_addr() else { return };
    let limits = site.shared.limits;
    let (answering, watched) = (Arc::clone(&site), near.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (site, held, near) = (Arc::clone(&answering), Arc::clone(&held), watched.clone());
        async move {
            // hyper sees the end of a client's direction. It does not see a reset behind bytes that it has not read.
            tokio::select! {
                answer = site.answer(request, local, held) => Ok(answer),
                () = near.failed() => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            }
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.head)
        .max_headers(limits.fields)
        // A client that ends its direction before it has its answer has left. Behind a CONNECT it has left only if it has
        // said nothing: what it says waits in hyper's buffer, and then hyper reads no further.
        .half_close(false)
        .serve_connection(TokioIo::new(Lingering::new(near)), service)
        .with_upgrades();
    tokio::pin!(connection);
    let mut draining = std::pin::pin!(site.shared.stopping(Stopping::Draining));
    let mut drained = false;
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break ended,
            () = &mut draining, if !drained => {
                drained = true;
                connection.as_mut().graceful_shutdown();
            }
            () = site.shared.stopping(Stopping::Now) => return,
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a client's connection has ended");
    }
}

impl Site {
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        local: SocketAddr,
        held: Arc<Held>,
    ) -> Response<Body> {
        if *request.method() == Method::CONNECT {
            return self.connect(request, held).await;
        }
        match request.uri().authority() {
            Some(_) => self.forwarder.forward(request).await,
            None => pages::answer(&self.shared, &request, local),
        }
    }

    async fn connect(&self, mut request: Request<Incoming>, held: Arc<Held>) -> Response<Body> {
        let Some(server) = connect_target(request.uri()) else {
            let text = "CONNECT needs a host and a port";
            self.shared.refused(text);
            return refusal(StatusCode::BAD_REQUEST, text);
        };
        let upgrade = hyper::upgrade::on(&mut request);
        match Tunnel::open(&self.shared, server, Protocol::Connect).await {
            Err(failure) => told(&Told::of(&failure)),
            Ok(tunnel) => {
                tokio::spawn(async move {
                    // Otherwise the client has gone.
                    if let Ok(Some(near)) = upgrade.await.map(taken) {
                        tunnel.run(near).await;
                    }
                    drop(held);
                });
                Response::new(crate::body::full(""))
            }
        }
    }
}

/// The connection of an upgrade.
fn taken(upgraded: Upgraded) -> Option<tunnel::Told> {
    let parts = upgraded.downcast::<TokioIo<Lingering<Near>>>().ok()?;
    Some(tunnel::Told { near: parts.io.into_inner().into_inner(), read: parts.read_buf })
}

async fn serve_socks(shared: &Arc<Shared>, mut near: Near, _held: &Held) {
    let asked = tokio::select! {
        biased;
        asked = timeout(shared.limits.head_timeout, ask(&mut near)) => asked,
        () = shared.stopping(Stopping::Draining) => return,
    };
    let (server, read) = match asked {
        Ok(Ok(Ok(asked))) => asked,
        Ok(Ok(Err(refused))) => {
            shared.refused(refused.to_string());
            if let Some(answer) = refused.answer() {
                let _ = near.write_all(answer).await;
            }
            return;
        }
        // It has gone, or does not go on.
        Ok(Err(_)) | Err(_) => return,
    };
    let opened = tokio::select! {
        opened = Tunnel::open(shared, server, Protocol::Socks5) => opened,
        () = near.left(!read.is_empty()) => return,
        () = shared.stopping(Stopping::Now) => return near.reset(),
    };
    let code = opened.as_ref().map_or_else(|failure| failure.code(), |_| socks::Code::Succeeded);
    let answered = near.write_all(&socks::reply(code)).await;
    if let (Ok(tunnel), Ok(())) = (opened, answered) {
        tunnel.run(tunnel::Told { near, read }).await;
    }
}

/// Reads a client's greeting and its request. Returns the server, and what was read behind it.
async fn ask(near: &mut Near) -> io::Result<Result<(Authority, Bytes), socks::SocksError>> {
    let mut read = Vec::with_capacity(socks::LONGEST);
    let len = match message(near, &mut read, socks::greeting).await? {
        Ok(len) => len,
        Err(refused) => return Ok(Err(refused)),
    };
    read.drain(..len);
    near.write_all(&socks::CHOSEN).await?;
    let (server, len) = match message(near, &mut read, socks::request).await? {
        Ok(asked) => asked,
        Err(refused) => return Ok(Err(refused)),
    };
    Ok(Ok((server, read.split_off(len).into())))
}

/// Reads until `parse` has a message. It has one, or refuses, before `LONGEST` bytes are there.
async fn message<T>(
    near: &mut Near,
    read: &mut Vec<u8>,
    parse: impl Fn(&[u8]) -> Result<Option<T>, socks::SocksError>,
) -> io::Result<Result<T, socks::SocksError>> {
    loop {
        match parse(read) {
            Ok(Some(message)) => return Ok(Ok(message)),
            Err(refused) => return Ok(Err(refused)),
            Ok(None) if near.read_buf(read).await? == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(None) => {}
        }
    }
}
