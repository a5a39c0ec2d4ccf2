//! One visit, with the times of its parts.

use super::connect::{Connected, connect};
use bytes::Bytes;
use firstflight::Host;
use firstflight::record::Names;
use firstflight_http::exchange::{exchange, request};
use firstflight_http::observed::observe;
use firstflight_http::redirect;
use firstflight_http::url::{HttpUrl, is_one_host};
use http_body_util::{BodyExt, Empty};
use hyper::Method;
use hyper::header::{ACCEPT, USER_AGENT};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};

/// Makes visits. Each is a new connection of the kernel's ordinary TCP, without first flights, tickets and kept connections.
#[derive(Debug)]
pub struct Visitor {
    names: Option<Names>,
    tls: Option<firstflight_tls::Connector>,
    timeout: Duration,
}

impl Default for Visitor {
    fn default() -> Self {
        Self { names: None, tls: None, timeout: Self::TIMEOUT }
    }
}

/// The parts of a visit's time, as curl has them, but each without those before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Parts {
    /// Of the name. `None` if the URL has an address.
    pub lookup: Option<Duration>,
    /// TCP's handshake.
    pub handshake: Duration,
    /// TLS's handshake. `None` without TLS.
    pub tls: Option<Duration>,
    /// From the request to the first byte of the response.
    pub request: Duration,
    /// From there to the last byte.
    pub transfer: Duration,
}

impl Parts {
    /// All of the time.
    #[must_use]
    pub fn total(&self) -> Duration {
        let optional = self.lookup.unwrap_or_default() + self.tls.unwrap_or_default();
        optional + self.handshake + self.request + self.transfer
    }
}

/// A visit that was answered.
#[derive(Debug, Clone)]
pub struct Visit {
    /// How long its parts took.
    pub parts: Parts,
    /// How long the handshake of the address that answered took: less than the part if another address was tried first.
    pub round_trip: Duration,
    /// The address that answered.
    pub remote: SocketAddr,
    /// The response's status.
    pub status: u16,
    /// Bytes of its body.
    pub bytes: u64,
    /// Its field `Location`.
    pub location: Option<String>,
}

impl Visit {
    /// Where a redirect leads to, as the server wrote it.
    #[must_use]
    pub fn redirect(&self) -> Option<String> {
        self.location.clone().filter(|_| redirect::is_redirect(self.status))
    }
}

/// The part of a visit that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisitStage {
    /// The lookup of the name.
    Lookup,
    /// TCP's handshake.
    Handshake,
    /// TLS's handshake.
    Tls,
    /// The wait for the response.
    Request,
    /// The rest of the response.
    Transfer,
}

impl VisitStage {
    /// A label in kebab-case.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Handshake => "handshake",
            Self::Tls => "tls",
            Self::Request => "request",
            Self::Transfer => "transfer",
        }
    }
}

impl fmt::Display for VisitStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lookup => "no address of the name",
            Self::Handshake => "no answer to the SYN",
            Self::Tls => "no end of TLS's handshake",
            Self::Request => "no response",
            Self::Transfer => "no end of the response",
        })
    }
}

/// Why a visit has no times.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VisitError {
    /// The resolver is at fault, or the name.
    #[error("cannot look up {0}: {1}")]
    Lookup(String, io::Error),
    /// The server or the path is at fault.
    #[error("cannot connect to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// The caller is at fault: [`Visitor::tls`] was not called.
    #[error("TLS: there is no connector for it")]
    NoConnector,
    /// The server is at fault: it may not speak TLS 1.3, the only version here.
    #[error("TLS: {0}")]
    Tls(firstflight_tls::ConnectError),
    /// The server's certificate. It has nothing to do with versions.
    #[error("TLS: {0}")]
    Certificate(firstflight_tls::ConnectError),
    /// The URL cannot be in a request.
    #[error("{0}")]
    Request(hyper::http::Error),
    /// The server or the path is at fault.
    #[error("HTTP: {}", firstflight::causes(.0).last().unwrap_or(.0))]
    Http(#[from] hyper::Error),
    /// It took too long.
    #[error("{} within {}", .0, humantime::format_duration(*.1))]
    Timeout(VisitStage, Duration),
}

impl VisitError {
    /// The part that failed.
    #[must_use]
    pub const fn stage(&self) -> VisitStage {
        match self {
            Self::Timeout(stage, _) => *stage,
            Self::Lookup(..) => VisitStage::Lookup,
            Self::Connect(..) => VisitStage::Handshake,
            Self::NoConnector | Self::Tls(_) | Self::Certificate(_) => VisitStage::Tls,
            Self::Request(_) => VisitStage::Request,
            Self::Http(_) => VisitStage::Transfer,
        }
    }
}

impl Visitor {
    /// How long a visit may take, unless [`timeout`](Self::timeout) says otherwise.
    pub const TIMEOUT: Duration = Duration::from_secs(30);

    /// For URLs without TLS, with the system's resolver.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks this resolver for names.
    #[must_use]
    pub fn names(mut self, names: Names) -> Self {
        self.names = Some(names);
        self
    }

    /// Visits `https://` with this connector, which must offer HTTP/1.1 only, and send no early data. It forgets its tickets
    /// before each visit.
    #[must_use]
    pub fn tls(mut self, connector: firstflight_tls::Connector) -> Self {
        self.tls = Some(connector);
        self
    }

    /// How long a visit may take.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Fetches the document at `url`, and throws its body away. Follows no redirects.
    ///
    /// # Errors
    /// See [`VisitError`].
    pub async fn visit(&self, url: &HttpUrl) -> Result<Visit, VisitError> {
        let mut stage = VisitStage::Lookup;
        let done = tokio::time::timeout(self.timeout, attempt(self, url, &mut stage)).await;
        done.unwrap_or(Err(VisitError::Timeout(stage, self.timeout)))
    }
}

async fn attempt(visitor: &Visitor, url: &HttpUrl, stage: &mut VisitStage) -> Result<Visit, VisitError> {
    let began = Instant::now();
    let addresses = look_up(visitor, url).await?;
    let found = Instant::now();
    *stage = VisitStage::Handshake;
    let connected = connect(&addresses).await;
    let Connected { stream, took } = connected.map_err(|(at, error)| VisitError::Connect(at, error))?;
    let opened = Instant::now();
    let remote =
        stream.peer_addr().map_err(|error| VisitError::Connect(SocketAddr::from(([0; 4], 0)), error))?;
    // The request goes at once, whatever was sent before. A failure only makes it later.
    let _ = stream.set_nodelay(true);
    let times =
        |tls| VisitStart { lookup: is_named(url).then(|| found - began), handshake: opened - found, tls };
    if url.is_tls() {
        *stage = VisitStage::Tls;
        let connector = visitor.tls.as_ref().ok_or(VisitError::NoConnector)?;
        // As a stranger: a ticket of the visit before would shorten the handshake.
        connector.forget();
        let stream = connector.connect_over(stream, url.server(), firstflight::FirstFlight::empty()).await;
        let stream = stream.map_err(|error| match error {
            firstflight_tls::ConnectError::Certificate(_) => VisitError::Certificate(error),
            error => VisitError::Tls(error),
        })?;
        let tls = Some(opened.elapsed());
        return ask(url, stream, stage).await.map(|seen| seen.visit(times(tls), took, remote));
    }
    ask(url, stream, stage).await.map(|seen| seen.visit(times(None), took, remote))
}

fn is_named(url: &HttpUrl) -> bool {
    matches!(url.server().host(), Host::Name(_))
}

async fn look_up(visitor: &Visitor, url: &HttpUrl) -> Result<Vec<SocketAddr>, VisitError> {
    let name = match url.server().host() {
        Host::Ip(_) => return Ok(url.server().address().into_iter().collect()),
        Host::Name(name) => name,
    };
    let fail = |error| VisitError::Lookup(name.clone(), error);
    let found: Vec<IpAddr> = match &visitor.names {
        Some(names) => names.all_addresses(name, true).await.map_err(fail)?,
        None => {
            let found = tokio::net::lookup_host((name.as_str(), url.server().port())).await.map_err(fail)?;
            found.map(|address| address.ip()).collect()
        }
    };
    let usable = found.into_iter().filter(|ip| is_one_host(*ip));
    let addresses: Vec<_> = usable.map(|ip| SocketAddr::new(ip, url.server().port())).collect();
    if addresses.is_empty() { Err(fail(io::Error::other("it has no address"))) } else { Ok(addresses) }
}

/// The parts before the request.
struct VisitStart {
    lookup: Option<Duration>,
    handshake: Duration,
    tls: Option<Duration>,
}

/// What became of the request.
struct RequestResult {
    request: Duration,
    transfer: Duration,
    status: u16,
    bytes: u64,
    location: Option<String>,
}

impl RequestResult {
    fn visit(self, begun: VisitStart, round_trip: Duration, remote: SocketAddr) -> Visit {
        let VisitStart { lookup, handshake, tls } = begun;
        let Self { request, transfer, status, bytes, location } = self;
        let parts = Parts { lookup, handshake, tls, request, transfer };
        Visit { parts, round_trip, remote, status, bytes, location }
    }
}

/// Sends the request and reads the response.
async fn ask<S>(url: &HttpUrl, stream: S, stage: &mut VisitStage) -> Result<RequestResult, VisitError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    *stage = VisitStage::Request;
    let request = request(Method::GET, url)
        .header(USER_AGENT, concat!("firstflight/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "*/*")
        .body(Empty::<Bytes>::new())
        .map_err(VisitError::Request)?;
    let (observed, watch) = observe(stream);
    let asked = Instant::now();
    exchange(TokioIo::new(observed), request, async |mut response| {
        *stage = VisitStage::Transfer;
        let location = redirect::location(response.headers());
        let mut bytes = 0;
        while let Some(frame) = response.body_mut().frame().await {
            bytes += frame?.data_ref().map_or(0, Bytes::len) as u64;
        }
        let ended = Instant::now();
        let first = watch.first_byte().unwrap_or(ended);
        let (request, transfer) = (first - asked, ended - first);
        Ok(RequestResult { request, transfer, status: response.status().as_u16(), bytes, location })
    })
    .await
}
