//! One fetch over one connection.

use super::Args;
use super::ask::Ask;
use super::certificates::ToldOnce;
use super::report::{FetchStart, Report};
use crate::digest::Sum;
use crate::file_sink::FileSink;
use crate::output::{self, millis, seconds};
use bytes::Bytes;
use firstflight::{Client, ClientError, FirstFlight, ReplaySafety, Stream};
use firstflight_http::directory::FileBody;
use firstflight_http::exchange;
use firstflight_http::label::{is_for, short_path};
use firstflight_http::observed::{Observed, Watch, observe};
use firstflight_http::redirect::{self, RedirectHop};
use firstflight_tls::MaybeTlsStream;
use http_body_util::{BodyExt, Either, Empty};
use hyper::body::{Body, Incoming};
use hyper::header::USER_AGENT;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// What all fetches have in common.
#[derive(Clone)]
pub struct Errand {
    pub args: Arc<Args>,
    pub client: Client,
    /// Set if a URL needs it.
    pub tls: Option<firstflight_tls::Connector>,
    /// The method, the fields, and what becomes of the answer: those of the options, or what a redirect made of them.
    pub ask: Ask,
    /// Whether the request may ride in a SYN and be executed twice.
    pub replay_safe: bool,
    pub told: Arc<ToldOnce>,
    /// It was said that nothing comes back in UDP.
    pub silence: Arc<AtomicBool>,
}

/// A shorter lookup is not mentioned.
const NOTEWORTHY: Duration = Duration::from_millis(1);
/// After this a person is told that nothing comes back in UDP: three SYNs had no answer.
const SILENCE: Duration = Duration::from_secs(3);
/// How long the end of a fetch waits for a ticket.
const LEAVE: Duration = Duration::from_secs(1);
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
    /// It took too long, and nothing at all came back in UDP. With what to do.
    #[error("no answer within {time} (--timeout) {0}", time = span(*.1))]
    Silent(String, Duration),
}

fn span(time: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(time)
}

/// What happened. hyper's own message says only where it was.
fn told(error: &hyper::Error) -> String {
    match ClientError::of(error) {
        Some(lookup @ ClientError::Lookup { .. }) => {
            format!("{lookup}; check the name, or write the server's address")
        }
        Some(error) => error.to_string(),
        None => firstflight::causes(error).last().map_or_else(String::new, ToString::to_string),
    }
}

/// The progress of the fetch.
struct Progress {
    status: Option<u16>,
    /// The answer names the URL.
    is_named: bool,
    location: Option<String>,
    sum: Sum,
}

/// Why a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    /// The server found the first one too early.
    AfterTooEarly,
    /// The server did not know the short label.
    InFull,
}

/// Fetches `target`; a failure is part of the report.
///
/// A request that the server finds too early is sent again, once, after an ordinary handshake
/// (RFC 8470 §5.2). So is one with a short label, in full, if the answer does not name the URL.
pub async fn fetch(errand: &Errand, target: &RedirectHop, begun: FetchStart) -> Report {
    let connecting = Instant::now();
    let (mut report, first_syn) = visit(errand, target, Attempt::First, begun).await;
    if let Some(next) = errand.next_attempt(Attempt::First, report.status, report.is_named) {
        report = visit(errand, target, next, begun).await.0;
        report.retried_after_425 = next == Attempt::AfterTooEarly;
        report.retried_in_full = next == Attempt::InFull;
    }
    // That of the first request, if another one followed.
    let departed = first_syn.unwrap_or(connecting);
    Report { waited_ms: millis(departed.saturating_duration_since(begun.asked)), ..report }
}

/// One connection with one request, and when its first SYN left, if the client knows.
async fn visit(
    errand: &Errand,
    target: &RedirectHop,
    attempt: Attempt,
    begun: FetchStart,
) -> (Report, Option<Instant>) {
    let mut progress = Progress { status: None, is_named: false, location: None, sum: Sum::new() };
    // After 425 nothing may run before the end of the handshake, not as early data and not sealed (RFC 8470 §5.2).
    let is_late = attempt == Attempt::AfterTooEarly;
    let client = if is_late { errand.client.ordinary() } else { errand.client.clone() };
    let replay_safe = errand.replay_safe && !(is_late && target.url.is_tls());
    let safety = if replay_safe { ReplaySafety::Safe } else { ReplaySafety::Unsafe };
    let server = target.url.server();
    let stream: MaybeTlsStream = match errand.tls.as_ref().filter(|_| target.url.is_tls()) {
        Some(tls) => tls.connect_lazy(&client, server.clone(), safety).into(),
        None => client.connect(server, FirstFlight::empty()).lazy(safety).into(),
    };
    let (stream, watch) = observe(stream);
    let asked = ask(errand, target, attempt, TokioIo::new(stream), &mut progress);
    let result = errand.wait(target, begun.at, &watch, asked).await;
    let ended = Instant::now();
    if result.is_ok() && target.url.is_tls() {
        // Only the next visit is slower without.
        let _ = timeout(LEAVE, watch.poll(MaybeTlsStream::poll_leave)).await;
    }
    let (first_byte, error) = (watch.first_byte(), result.err());
    let (report, first_syn) = watch.look(|seen| {
        let stream = seen.stream();
        let (info, times) = (stream.and_then(Stream::info), stream.and_then(Stream::times));
        let outcome = seen.outcome(error.as_ref().map(|error| error as _));
        errand.told.note(&errand.client, &target.url, outcome);
        let summary = seen.summary();
        let report = Report {
            url: target.url.to_string(),
            remote: stream.and_then(|stream| stream.peer_addr().ok()),
            status: progress.status,
            location: progress.location,
            bytes: progress.sum.bytes(),
            sha256: error.is_none().then(|| progress.sum.hex()),
            outcome: outcome.as_str(),
            reason: outcome.reason().map(|reason| reason.as_str()),
            first_byte_ms: first_byte.map(|at| millis(at - begun.asked)),
            total_ms: millis(ended - begun.asked),
            waited_ms: 0.0,
            waited: begun.waited || times.is_some_and(|times| times.lookup >= NOTEWORTHY),
            rtt_ms: stream.and_then(Stream::rtt).map(millis),
            syn_retransmits: info.map(|info| info.handshake_retransmits),
            cookie_age_s: info.and_then(|info| info.cookie_age).map(seconds),
            retried_after_425: false,
            retried_in_full: false,
            is_named: progress.is_named,
            summary,
            // Of an engine's ways a person has named one.
            way_told: !errand.args.by_engine() || !matches!(summary.way, Some("ip" | "udp")),
            error: error.map(|error| error.to_string()),
        };
        (report, times.map(|times| times.first_syn))
    });
    (report, first_syn)
}

impl Errand {
    /// The attempt that follows this one after an answer with this status, if one does.
    /// `is_named` says that the answer names the URL.
    fn next_attempt(&self, attempt: Attempt, status: Option<u16>, is_named: bool) -> Option<Attempt> {
        match (attempt, StatusCode::from_u16(status?).ok()?) {
            (Attempt::First, StatusCode::TOO_EARLY) => Some(Attempt::AfterTooEarly),
            (Attempt::First, _) if self.ask.short && !is_named => Some(Attempt::InFull),
            _ => None,
        }
    }

    /// The errand after a redirect with this status.
    pub fn after(&self, status: Option<u16>) -> Self {
        let ask = status.map_or_else(|| self.ask.clone(), |status| self.ask.after(status));
        // Safe by its method, if it was not before.
        let replay_safe = self.replay_safe || ask.is_safe(false);
        Self { ask, replay_safe, ..self.clone() }
    }

    /// Waits for an exchange, as long as --timeout says. If nothing comes back in UDP, that is told after a while, once.
    async fn wait(
        &self,
        target: &RedirectHop,
        began: Instant,
        watch: &Watch<MaybeTlsStream>,
        exchange: impl Future<Output = Result<(), FetchError>>,
    ) -> Result<(), FetchError> {
        let mut exchange = pin!(exchange);
        let left = || self.args.timeout.saturating_sub(began.elapsed());
        let silence = || self.silence(target).filter(|_| watch.look(|stream| stream.stream().is_none()));
        if let Ok(result) = timeout(SILENCE.min(left()), &mut exchange).await {
            return result;
        }
        if let Some(silence) = silence().filter(|_| !left().is_zero())
            && !self.silence.swap(true, Ordering::Relaxed)
        {
            output::complain(&format_args!("{}: still no answer {silence}", target.url));
        }
        timeout(left(), exchange).await.unwrap_or_else(|_| {
            Err(match silence() {
                Some(silence) => FetchError::Silent(silence, self.args.timeout),
                None => FetchError::Timeout(self.args.timeout),
            })
        })
    }

    /// What to say if a server has not answered: only UDP could be the cause.
    fn silence(&self, target: &RedirectHop) -> Option<String> {
        let published = || self.client.published(target.url.server())?.udp_port;
        let port = self.args.only_udp()?.or_else(published).unwrap_or(target.url.server().port());
        Some(format!(
            "in UDP: check that the firewalls let UDP port {port} pass, and that the server takes TCP in UDP \
             there, or leave --udp out"
        ))
    }
}

async fn ask(
    errand: &Errand,
    target: &RedirectHop,
    attempt: Attempt,
    io: TokioIo<Observed<MaybeTlsStream>>,
    progress: &mut Progress,
) -> Result<(), FetchError> {
    let request = request(errand, target, attempt).await?;
    exchange::exchange(io, request, async |mut response| {
        let status = response.status().as_u16();
        progress.status = Some(status);
        progress.location = redirect::location(response.headers());
        progress.is_named = is_for(response.headers(), &target.url);
        // The body of a response that leads to another attempt is not written to the file.
        let leads_on = errand.ask.follow && redirect::is_redirect(status) && progress.location.is_some();
        let retried = errand.next_attempt(attempt, progress.status, progress.is_named).is_some();
        if errand.ask.head && !retried {
            output::line(&exchange::head_text(&response));
        }
        let output = errand.args.output.as_deref().filter(|_| !retried && !leads_on);
        receive(output, &mut response, progress).await
    })
    .await
}

async fn request(
    errand: &Errand,
    target: &RedirectHop,
    attempt: Attempt,
) -> Result<Request<Either<FileBody, Empty<Bytes>>>, FetchError> {
    let body = match &errand.args.upload {
        Some(path) => {
            let file = FileBody::open(path).await.map_err(|error| FetchError::Upload(path.clone(), error))?;
            Either::Left(file)
        }
        None => Either::Right(Empty::new()),
    };
    let mut request = exchange::request(errand.ask.method(errand.args.upload.is_some()), &target.url)
        .header(USER_AGENT, concat!("firstflight/", env!("CARGO_PKG_VERSION")))
        .body(body)
        .map_err(FetchError::Request)?;
    errand.ask.put_fields(request.headers_mut(), target);
    if errand.ask.short && attempt == Attempt::First {
        // It is ASCII, and begins with a slash.
        *request.uri_mut() = short_path(request.method(), &target.url).parse().unwrap_or_default();
    }
    Ok(request)
}

/// Reads the body, into `output` if it is given.
async fn receive(
    output: Option<&Path>,
    response: &mut Response<Incoming>,
    progress: &mut Progress,
) -> Result<(), FetchError> {
    let fail = |error| FetchError::Output(output.unwrap_or(Path::new("")).to_owned(), error);
    let length = response.body().size_hint().exact();
    let mut file = output.map(|path| FileSink::new(path).progress(length));
    while let Some(frame) = response.body_mut().frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        progress.sum.update(data);
        if let Some(file) = &mut file {
            file.write(data).map_err(fail)?;
        }
    }
    file.map_or(Ok(()), FileSink::finish).map_err(fail)
}
