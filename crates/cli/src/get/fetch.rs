//! One fetch over one connection.

use super::ask::{Ask, Target, head_text};
use super::certificates::Told;
use super::report::{Begun, Report};
use crate::digest::Sum;
use crate::file_sink::FileSink;
use crate::observed::{Observed, Watch, observe};
use crate::output::{self, millis, seconds};
use bytes::Bytes;
use firstflight::carriage::HeldBack;
use firstflight::credential::{Outcome, Reason};
use firstflight::{Client, ClientError, ConnectionInfo, FirstFlight, ReplaySafety, Stream};
use firstflight_http::directory::FileBody;
use firstflight_tls::{ConnectError, MaybeTlsStream};
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What all fetches have in common.
#[derive(Clone)]
pub struct Errand {
    pub client: Client,
    /// Set if a URL needs it.
    pub tls: Option<firstflight_tls::Connector>,
    /// The options name the engine that carries everything.
    pub by_engine: bool,
    /// `Some` if only TCP in UDP is used, to this port or, if `None`, to the one that the server publishes, or that of the URL.
    /// A request that also travels inside a lookup may wait for the resolver, so then it is `None`.
    pub udp: Option<Option<u16>>,
    /// The method, the fields, and what becomes of the answer.
    pub ask: Ask,
    /// Whether the request may ride in a SYN and be executed twice.
    pub replay_safe: bool,
    pub output: Option<PathBuf>,
    pub upload: Option<PathBuf>,
    pub timeout: Duration,
    pub told: Arc<Told>,
}

/// A shorter lookup is not mentioned.
const NOTEWORTHY: Duration = Duration::from_millis(1);
/// After this a person is told that nothing comes back in UDP: three SYNs had no answer.
const SILENCE: Duration = Duration::from_secs(3);
/// How long the end of a fetch waits for a ticket.
const LEAVE: Duration = Duration::from_secs(1);
/// Bodies from this size on get a progress bar, bytes.
const LARGE: u64 = 1 << 20;

/// Why a fetch failed.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    /// An error of the connection or of the server's HTTP.
    #[error("{}", told(.0))]
    Http(#[from] hyper::Error),
    /// An error of the file of `-o`.
    #[error("cannot write {0}: {1}")]
    Output(PathBuf, io::Error),
    /// An error of the file of `--upload`.
    #[error("cannot read {0}: {1}")]
    Upload(PathBuf, io::Error),
    /// The request cannot be encoded.
    #[error("{0}")]
    Request(hyper::http::Error),
    /// It took too long.
    #[error("no whole response within {} (--timeout)", span(*.0))]
    Timeout(Duration),
    /// It took too long, and nothing at all came back in UDP.
    #[error("no answer within {time} (--timeout) {0}", time = span(*.1))]
    Silent(Silence, Duration),
}

fn span(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(time)
}

/// No answer in UDP from this port, and what to do.
#[derive(Debug, Clone, Copy)]
struct Silence(u16);

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "in UDP: check that the firewalls let UDP port {} pass, and that the server takes TCP in UDP \
             there (serve --udp), or leave --udp out",
            self.0
        )
    }
}

/// An error, and what led to it. hyper's own message says only where it was.
fn causes(error: &hyper::Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |&cause| {
        let inner = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        inner.map_or_else(|| cause.source(), |inner| Some(inner as _))
    })
}

/// What happened.
fn told(error: &hyper::Error) -> String {
    match causes(error).find_map(|cause| cause.downcast_ref::<ClientError>()) {
        Some(lookup @ ClientError::Lookup { .. }) => {
            format!("{lookup}; check the name, or write the server's address")
        }
        Some(error) => error.to_string(),
        None => causes(error).last().map_or_else(String::new, ToString::to_string),
    }
}

impl FetchError {
    /// Whether there was no connection, and the server may have executed the request. Over TLS the client's first data is
    /// a ClientHello.
    fn maybe_delivered(&self, tls: bool) -> bool {
        let Self::Http(error) = self else { return false };
        causes(error).any(|cause| {
            let plain = cause.downcast_ref::<ClientError>().is_some_and(ClientError::maybe_delivered);
            let of_tls = cause.downcast_ref::<ConnectError>().is_some_and(ConnectError::maybe_delivered);
            plain && !tls || of_tls
        })
    }
}

/// The progress of the fetch.
struct Progress {
    status: Option<u16>,
    location: Option<String>,
    sum: Sum,
}

/// Fetches `target`; a failure is part of the report.
///
/// A request that the server finds too early is sent again, once, after an ordinary handshake
/// (RFC 8470 §5.2).
pub async fn fetch(errand: &Errand, target: &Target, begun: Begun) -> Report {
    let connecting = Instant::now();
    let mut visit = visit(errand, target, true, begun.at).await;
    let retry = is_retried(true, visit.progress.status);
    // That of the first request, if another one follows.
    let first_syn = visit.watch.look(first_syn);
    if retry {
        visit = self::visit(errand, target, false, begun.at).await;
    }
    let report = report(target, visit, begun, first_syn.unwrap_or(connecting), retry);
    // Of an engine's ways a person has named one.
    let told = !errand.by_engine || !matches!(report.way, Some("ip" | "udp"));
    Report { way_told: told, ..report }
}

/// When the first SYN left, if the client knows.
fn first_syn(stream: &MaybeTlsStream) -> Option<Instant> {
    stream.stream().and_then(Stream::times).map(|times| times.first_syn)
}

/// Whether a request with this status is sent again.
fn is_retried(first: bool, status: Option<u16>) -> bool {
    first && status == Some(StatusCode::TOO_EARLY.as_u16())
}

/// One connection with one request.
struct Visit {
    watch: Watch<MaybeTlsStream>,
    progress: Progress,
    /// Of the first flight.
    outcome: Outcome,
    result: Result<(), FetchError>,
    ended: Instant,
}

async fn visit(errand: &Errand, target: &Target, first: bool, began: Instant) -> Visit {
    let mut progress = Progress { status: None, location: None, sum: Sum::new() };
    // After 425 nothing may run before the end of the handshake, not as early data and not sealed (RFC 8470 §5.2).
    let client = if first { errand.client.clone() } else { errand.client.ordinary() };
    let replay_safe = errand.replay_safe && (first || !target.url.is_tls());
    let safety = if replay_safe { ReplaySafety::Safe } else { ReplaySafety::Unsafe };
    let server = target.url.server();
    let stream: MaybeTlsStream = match errand.tls.as_ref().filter(|_| target.url.is_tls()) {
        Some(tls) => tls.connect_lazy(&client, server.clone(), safety).into(),
        None => client.connect(server, FirstFlight::empty()).lazy(safety).into(),
    };
    let (stream, watch) = observe(stream);
    let left = errand.timeout.saturating_sub(began.elapsed());
    let exchange = exchange(errand, target, first, TokioIo::new(stream), &mut progress);
    let silence = || errand.silence(target).filter(|_| watch.look(|stream| stream.stream().is_none()));
    let result = match tokio::time::timeout(left, errand.with_a_word(target, silence, exchange)).await {
        Ok(result) => result,
        Err(_) => Err(match silence() {
            Some(silence) => FetchError::Silent(silence, errand.timeout),
            None => FetchError::Timeout(errand.timeout),
        }),
    };
    let ended = Instant::now();
    if result.is_ok() && target.url.is_tls() {
        let leaving = watch.poll(MaybeTlsStream::poll_leave);
        // Only the next visit is slower without.
        let _ = tokio::time::timeout(LEAVE, leaving).await;
    }
    let unclear = result.as_ref().is_err_and(|error| error.maybe_delivered(target.url.is_tls()));
    let outcome = match unclear {
        true => Outcome::Handshake(Reason::Unknown),
        false => watch.look(|seen| seen.stream().map_or(Outcome::Undecided, Stream::outcome)),
    };
    errand.told.note(&errand.client, &target.url, outcome);
    Visit { watch, progress, outcome, result, ended }
}

impl Errand {
    /// The errand after a redirect with this status.
    pub fn after(&self, status: Option<u16>) -> Self {
        let ask = status.map_or_else(|| self.ask.clone(), |status| self.ask.after(status));
        // Safe by its method, if it was not before.
        let replay_safe = self.replay_safe || ask.is_safe(false);
        Self { ask, replay_safe, ..self.clone() }
    }

    /// Does an exchange. If there is a silence after a while, it is told, once.
    async fn with_a_word<T>(
        &self,
        target: &Target,
        silence: impl Fn() -> Option<Silence>,
        exchange: impl Future<Output = T>,
    ) -> T {
        let mut exchange = pin!(exchange);
        if let Ok(done) = tokio::time::timeout(SILENCE, &mut exchange).await {
            return done;
        }
        if let Some(silence) = silence()
            && self.told.is_first_silence()
        {
            output::complain(&format_args!("{}: still no answer {silence}", target.url));
        }
        exchange.await
    }

    /// What to say if a server has not answered: only UDP could be the cause.
    fn silence(&self, target: &Target) -> Option<Silence> {
        let published = || self.client.published(target.url.server())?.udp_port;
        self.udp.map(|port| Silence(port.or_else(published).unwrap_or(target.url.server().port())))
    }
}

fn report(
    target: &Target,
    visit: Visit,
    begun: Begun,
    first_syn: Instant,
    retried_after_425: bool,
) -> Report {
    let Visit { watch, progress, outcome, result, ended } = visit;
    let total_ms = millis(ended - begun.asked);
    let seen = watch.look(Seen::of);
    let Seen { remote, rtt, info, way, held_back, lookup, data_left_twice, tls, early_data, seal } = seen;
    let whole = result.is_ok();
    Report {
        url: target.url.to_string(),
        remote,
        status: progress.status,
        location: progress.location,
        bytes: progress.sum.bytes(),
        sha256: whole.then(|| progress.sum.hex()),
        outcome: outcome.as_str(),
        reason: outcome.reason().map(|reason| reason.as_str()),
        first_byte_ms: watch.first_byte().map(|at| millis(at - begun.asked)),
        total_ms,
        waited_ms: millis(first_syn.saturating_duration_since(begun.asked)),
        waited: begun.waited || lookup.is_some_and(|lookup| lookup >= NOTEWORTHY),
        rtt_ms: rtt.map(millis),
        syn_retransmits: info.map(|info| info.handshake_retransmits),
        cookie_age_s: info.and_then(|info| info.cookie_age).map(seconds),
        retried_after_425,
        way,
        way_told: true,
        held_back,
        raced: data_left_twice.is_some(),
        data_left_twice: data_left_twice.unwrap_or_default(),
        tls,
        early_data,
        seal: seal.map(|(outcome, _)| outcome),
        seal_reason: seal.and_then(|(_, reason)| reason),
        error: result.err().map(|error| error.to_string()),
    }
}

/// What can be seen of the connection at the end.
struct Seen {
    remote: Option<SocketAddr>,
    rtt: Option<Duration>,
    info: Option<ConnectionInfo>,
    way: Option<&'static str>,
    held_back: Option<&'static str>,
    /// How long the lookup of the name took, if the client did it.
    lookup: Option<Duration>,
    /// After a race: whether the data left with both attempts.
    data_left_twice: Option<bool>,
    /// How the handshake of TLS went.
    tls: Option<&'static str>,
    early_data: Option<&'static str>,
    /// What became of the seal, and why.
    seal: Option<(&'static str, Option<&'static str>)>,
}

impl Seen {
    fn of(seen: &MaybeTlsStream) -> Self {
        let stream = seen.stream();
        let inside = stream.and_then(Stream::inside_lookup);
        let (tls, early_data) = seen.handshake().map(|seen| (label(seen), seen.early.as_str())).unzip();
        Self {
            remote: stream.and_then(|stream| stream.peer_addr().ok()),
            rtt: stream.and_then(Stream::rtt),
            info: stream.and_then(Stream::info),
            way: inside.map(|inside| inside.way.as_str()).or(stream.map(|stream| stream.way().as_str())),
            held_back: inside.and_then(|inside| inside.held_back.as_ref()).map(HeldBack::as_str),
            lookup: stream.and_then(Stream::times).map(|times| times.lookup),
            data_left_twice: stream.and_then(Stream::race).map(|race| race.data_left_twice()),
            tls,
            early_data,
            seal: seen
                .seal_report()
                .map(|seal| (seal.outcome.name(), seal.reason.map(|reason| reason.name()))),
        }
    }
}

/// How the handshake went.
const fn label(seen: firstflight_tls::Handshake) -> &'static str {
    match (seen.resumed, seen.retried) {
        (true, _) => "resumed",
        (false, true) => "retried",
        (false, false) => "full",
    }
}

type Io = TokioIo<Observed<MaybeTlsStream>>;

async fn exchange(
    errand: &Errand,
    target: &Target,
    first: bool,
    io: Io,
    progress: &mut Progress,
) -> Result<(), FetchError> {
    let request = request(errand, target).await?;
    let (mut sender, connection) = http1::handshake(io).await?;
    // The request is queued before the connection runs, so it is the first data that is written.
    let response = sender.send_request(request);
    let received = async {
        let mut response = response.await?;
        progress.status = Some(response.status().as_u16());
        let location = response.headers().get(LOCATION);
        progress.location = location.map(|at| String::from_utf8_lossy(at.as_bytes()).into_owned());
        // The body of a response that leads to another attempt is not written to the file.
        let leads_on =
            errand.ask.follows() && response.status().is_redirection() && progress.location.is_some();
        let retried = is_retried(first, progress.status);
        let wanted = !retried && !leads_on;
        if errand.ask.head() && !retried {
            output::line(&head_text(&response));
        }
        let output = errand.output.as_deref().filter(|_| wanted);
        receive(output, &mut response, progress).await
    };
    let (mut received, connection) = (pin!(received), pin!(connection));
    // Both run in this task. Another task would have to be woken for each piece of the response.
    tokio::select! {
        result = &mut received => result,
        // The connection's errors are also reported by the response and the body.
        _ = connection => received.await,
    }
}

async fn request(
    errand: &Errand,
    target: &Target,
) -> Result<Request<Either<FileBody, Empty<Bytes>>>, FetchError> {
    let body = match &errand.upload {
        Some(path) => {
            let file = FileBody::open(path).await.map_err(|error| FetchError::Upload(path.clone(), error))?;
            Either::Left(file)
        }
        None => Either::Right(Empty::new()),
    };
    let mut request = Request::builder()
        .method(errand.ask.method(errand.upload.is_some()))
        .uri(target.url.path())
        .header(HOST, target.url.host_field())
        .header(USER_AGENT, concat!("firstflight/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close")
        .body(body)
        .map_err(FetchError::Request)?;
    errand.ask.put_fields(request.headers_mut(), target);
    Ok(request)
}

/// Reads the body, into `output` if it is given.
async fn receive(
    output: Option<&Path>,
    response: &mut Response<Incoming>,
    progress: &mut Progress,
) -> Result<(), FetchError> {
    let fail = |error| FetchError::Output(output.unwrap_or(Path::new("")).to_owned(), error);
    let mut file = output.map(FileSink::new);
    let bar = file.as_ref().and_then(|_| response.body().size_hint().exact()).and_then(progress_bar);
    while let Some(frame) = response.body_mut().frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        progress.sum.update(data);
        if let Some(file) = &mut file {
            file.write(data).map_err(fail)?;
        }
        if let Some(bar) = &bar {
            bar.inc(data.len() as u64);
        }
    }
    if let Some(file) = file {
        file.finish().map_err(fail)?;
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    Ok(())
}

/// A progress bar for a large body. It is hidden if stderr is not a terminal.
fn progress_bar(length: u64) -> Option<ProgressBar> {
    let template = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template).ok()?;
    (length >= LARGE).then(|| ProgressBar::new(length).with_style(style))
}
