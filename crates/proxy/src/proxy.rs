//! The proxy: its listeners, its connections, and its end.

use crate::body::Body;
use crate::client_end::Near;
use crate::conn::{Conn, ForHyper};
use crate::connector::FailureTold;
use crate::event::Protocol;
use crate::forward::{Forwarder, Visitor, connect_target, refusal, told};
use crate::outcomes::Tally;
use crate::pages;
use crate::pool::Pool;
use crate::settings::{ADDRESS, Limits, ProxyBuilder};
use crate::shared::{ConnectionPermit, Rules, Shared, Stopping};
use crate::socks;
use crate::tunnel::{self, Tunnel};
use bytes::Bytes;
use firstflight::{Authority, Client};
use firstflight_http::patience;
use firstflight_http::target::{self, RequestedHost, Target};
use firstflight_http::{fields, framing};
use http::header::{HOST, HeaderMap};
use http::{Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
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
    site: Arc<ProxyContext>,
    drain: Duration,
    places: Arc<Semaphore>,
    stopping: watch::Sender<Stopping>,
}

/// What connections need.
struct ProxyContext {
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

/// Changes settings of a [`Proxy`] while it runs.
#[derive(Clone)]
pub struct ProxyRules(Arc<Shared>);

impl std::fmt::Debug for ProxyRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyRules").finish_non_exhaustive()
    }
}

impl ProxyRules {
    /// Takes over, for requests and connections from now on, what these settings say in
    /// [`allow_private`](ProxyBuilder::allow_private), [`allow_net`](ProxyBuilder::allow_net),
    /// [`allow_host`](ProxyBuilder::allow_host) and [`pac`](ProxyBuilder::pac). All else needs another proxy.
    pub fn set(&self, settings: ProxyBuilder) {
        let (mut policy, hosts, pac) = (settings.policy, settings.hosts, settings.pac);
        let mut rules = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        policy.own.clone_from(&rules.policy.own);
        *rules = Arc::new(Rules { policy, hosts, pac });
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
            rules: RwLock::new(Arc::new(Rules {
                policy: settings.policy,
                hosts: settings.hosts,
                pac: settings.pac,
            })),
            limits: settings.limits,
            early_data: settings.early_data,
            board: crate::outcomes::Board::default(),
            listener: settings.listener,
            token: token.iter().map(|byte| format!("{byte:02x}")).collect(),
            watchers: Arc::new(Semaphore::new(settings.limits.watchers.min(Semaphore::MAX_PERMITS))),
            started: firstflight::unix_ms(),
            stopping: watched,
        });
        let forwarder = Forwarder::new(&shared);
        let places = Arc::new(Semaphore::new(settings.limits.connections.clamp(1, Semaphore::MAX_PERMITS)));
        let site = Arc::new(ProxyContext { shared, forwarder });
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

    /// What it does, in numbers, for as long as the caller keeps this.
    #[must_use]
    pub fn tally(&self) -> Tally {
        Tally(Arc::clone(&self.site.shared))
    }

    /// A handle that changes settings while the proxy runs.
    #[must_use]
    pub fn rules(&self) -> ProxyRules {
        ProxyRules(Arc::clone(&self.site.shared))
    }

    /// The address of the PAC file, if it is served.
    #[must_use]
    pub fn pac_url(&self) -> Option<String> {
        self.site.shared.rules().pac.then(|| self.own_url("/proxy.pac"))
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
) -> (TcpStream, ConnectionPermit) {
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
            Ok((tcp, _)) => return (tcp, ConnectionPermit { _permit: permit, _alive: alive.clone() }),
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Serves a connection. The first byte says which protocol it is.
async fn serve(site: Arc<ProxyContext>, tcp: TcpStream, held: Arc<ConnectionPermit>) {
    let mut near = Near::new(tcp);
    let mut first = [0];
    let peeked = tokio::select! {
        biased;
        peeked = patience::timeout(site.shared.limits.head_timeout, near.tcp().peek(&mut first)) => peeked,
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

async fn serve_http(site: Arc<ProxyContext>, near: Near, held: Arc<ConnectionPermit>) {
    let Ok(local) = near.tcp().local_addr() else { return };
    let limits = site.shared.limits;
    let conn = Conn::new(near, &limits);
    let visitor = Visitor { conn: conn.clone(), owned: Pool::default() };
    let answering = Arc::clone(&site);
    let service = service_fn(move |request: Request<Incoming>| {
        let (site, held, visitor) = (Arc::clone(&answering), Arc::clone(&held), visitor.clone());
        async move { site.answer(request, local, &visitor, held).await }
    });
    // The framing has limits and times of its own. What it passes on may be longer: bytes that a URI cannot hold are encoded.
    let room = limits.head.saturating_mul(3).saturating_add(1024).max(8192);
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(room)
        .max_headers(limits.fields.saturating_add(2))
        // Requests watch for the end of the client's direction.
        .half_close(true)
        .serve_connection(TokioIo::new(ForHyper(conn.clone())), service)
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
            () = site.shared.stopping(Stopping::Now) => return conn.near().reset(),
        }
    };
    match ended {
        Err(error) => {
            tracing::debug!(%error, "a client's connection has ended");
            if is_timeout(&error) {
                // What it has not taken must not look whole.
                conn.near().reset();
            }
        }
        Ok(()) => tokio::select! {
            () = conn.close() => {}
            () = site.shared.stopping(Stopping::Now) => {}
        },
    }
}

/// Whether a client took nothing for too long.
fn is_timeout(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

impl ProxyContext {
    /// # Errors
    /// When the client has left.
    async fn answer(
        &self,
        request: Request<Incoming>,
        local: SocketAddr,
        visitor: &Visitor,
        held: Arc<ConnectionPermit>,
    ) -> io::Result<Response<Body>> {
        let (parts, body) = request.into_parts();
        let refuse = |status: StatusCode, text: &str| {
            self.shared.refused(text);
            Ok(refusal(status, text))
        };
        if let Some(status) = framing::refusal(&parts) {
            let why = status.canonical_reason().unwrap_or("refused").to_ascii_lowercase();
            return refuse(status, &format!("the request is not forwarded: {why}"));
        }
        if !fields::expects_only_100(&parts.headers) {
            return refuse(StatusCode::EXPECTATION_FAILED, "the expectation is not known");
        }
        if parts.method == Method::CONNECT {
            let request = Request::from_parts(parts, body);
            return tokio::select! {
                answer = self.connect(request, &visitor.conn, held) => Ok(answer),
                () = visitor.conn.left() => Err(io::ErrorKind::ConnectionReset.into()),
            };
        }
        let Ok(target) = Target::of(&parts, RequestedHost::Clear) else {
            return refuse(StatusCode::BAD_REQUEST, "the URI or the Host is not one host and port");
        };
        let request = Request::from_parts(parts, body);
        match request.uri().authority() {
            Some(_) => self.forwarder.forward(visitor, &target, request).await,
            None => Ok(pages::answer(&self.shared, &request, local)),
        }
    }

    async fn connect(
        &self,
        mut request: Request<Incoming>,
        conn: &Conn,
        held: Arc<ConnectionPermit>,
    ) -> Response<Body> {
        let wrong = match connect_target(request.uri()) {
            None => "CONNECT needs a host and a port, and nothing else",
            Some(_) if !request.body().is_end_stream() => "CONNECT has no body",
            Some(_) if !has_good_host(request.headers()) => "the Host is not one host and port",
            Some(server) => return self.open(&mut request, server, conn, held).await,
        };
        self.shared.refused(wrong);
        refusal(StatusCode::BAD_REQUEST, wrong)
    }

    async fn open(
        &self,
        request: &mut Request<Incoming>,
        server: Authority,
        conn: &Conn,
        held: Arc<ConnectionPermit>,
    ) -> Response<Body> {
        let upgrade = hyper::upgrade::on(request);
        match Tunnel::open(&self.shared, server, Protocol::Connect).await {
            Err(failure) => told(&FailureTold::of(&failure)),
            Ok(tunnel) => {
                conn.switch();
                let (conn, limits) = (conn.clone(), self.shared.limits);
                tokio::spawn(async move {
                    // Otherwise the client has gone.
                    if let Ok(upgraded) = upgrade.await {
                        tunnel.run(taken(upgraded, &conn, &limits)).await;
                    }
                    drop(held);
                });
                Response::new(crate::body::full(""))
            }
        }
    }
}

/// At most one `Host`, and a valid one (RFC 9112 §3.2). CONNECT does not need it.
fn has_good_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => true,
        (Some(host), None) => host.to_str().is_ok_and(|host| target::host(host).is_some()),
        (Some(_), Some(_)) => false,
    }
}

/// The connection of an upgrade: what hyper has read of it, and then what waits in front of hyper.
fn taken(upgraded: Upgraded, conn: &Conn, limits: &Limits) -> tunnel::ConfirmedClient {
    let hypers = upgraded.downcast::<TokioIo<ForHyper>>().map(|parts| parts.read_buf).unwrap_or_default();
    let (near, waits) = conn.take(limits);
    tunnel::ConfirmedClient { near, read: [&hypers[..], &waits].concat().into() }
}

async fn serve_socks(shared: &Arc<Shared>, mut near: Near, _held: &ConnectionPermit) {
    let asked = tokio::select! {
        biased;
        asked = patience::timeout(shared.limits.head_timeout, ask(&mut near)) => asked,
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
        tunnel.run(tunnel::ConfirmedClient { near, read }).await;
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
