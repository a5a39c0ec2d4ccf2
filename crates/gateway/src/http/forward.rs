//! One request: where it goes, when it goes, and what comes back.

use super::body::{Fault, Progress, Upload};
use super::early::{self, EarlyVerdict};
use super::reply::{Coming, Reply, patience};
use super::send::{BackendAnswer, after, send};
use super::trial::{self, Trial};
use super::{BoxError, Busy, Context, tunnel};
use crate::backend::Service;
use crate::config::{BackendProtocol, Early, Traceparent};
use crate::limits::ClientPermit;
use crate::log::{Entry, Event};
use crate::metrics;
use crate::site::Site;
use firstflight_http::body::RequestBody;
use firstflight_http::conn::Left;
use firstflight_http::directory::FilesBody;
use firstflight_http::fields::{self, EARLY_DATA};
use firstflight_http::forwarded::{self, set_forwarded};
use firstflight_http::label::TargetName;
use firstflight_http::patience::timeout;
use firstflight_http::target::{RequestedHost, Target};
use firstflight_http::trace::{self, TRACEPARENT, TRACESTATE, TraceId};
use firstflight_http::{framing, login, proxy_header};
use hyper::body::Body;
use hyper::ext::ReasonPhrase;
use hyper::header::{
    CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING,
};
use hyper::http::request::Parts;
use hyper::http::uri::{Authority, Scheme};
use hyper::{Request, Response, StatusCode, Uri, Version};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How long a backend is connected to for a client that has closed its sending direction.
const HALF_CLOSED: Duration = Duration::from_secs(1);

/// A request under way.
pub(super) struct Ask {
    pub(super) parts: Parts,
    pub(super) body: Option<RequestBody>,
    pub(super) has_body: bool,
    pub(super) service: Arc<Service>,
    pub(super) site: Arc<Site>,
    pub(super) target: Target,
    pub(super) verdict: EarlyVerdict,
    /// The client's request said that it is early.
    pub(super) marked: bool,
    /// The client asks for another protocol, and becomes one end of a tunnel.
    pub(super) tunnel: Option<(HeaderValue, hyper::upgrade::OnUpgrade)>,
    pub(super) progress: Progress,
    /// Its place among those of its client.
    pub(super) place: Option<Arc<ClientPermit>>,
}

/// What a request gets.
enum Given {
    /// The response of a backend.
    Backend(Box<Ask>, BackendAnswer),
    /// A file of a directory that the gateway serves.
    Files(Response<FilesBody>),
    /// The answer of a service for trials.
    Trial(Response<Trial>),
}

/// Why there is no response of a backend.
pub(super) enum Failure {
    /// The client gets this status.
    Status(StatusCode),
    /// The client's connection is over.
    Gone(BoxError),
}

impl From<StatusCode> for Failure {
    fn from(status: StatusCode) -> Self {
        Self::Status(status)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::TooLong => StatusCode::PAYLOAD_TOO_LARGE.into(),
            Fault::TooSlow => StatusCode::REQUEST_TIMEOUT.into(),
            Fault::Client => Self::Gone(fault.into()),
        }
    }
}

/// What is known of a request at the moment at which it has come.
#[derive(Clone, Copy)]
struct RequestFacts {
    /// It may be a copy of another connection's first flight.
    is_early: bool,
    /// It can be known later that it is none.
    can_be_confirmed: bool,
    /// Its target is a short label of nothing.
    is_unknown: bool,
}

/// Answers a request.
/// Errors: when the client's connection has ended.
pub(super) fn handle(
    request: Request<RequestBody>,
    context: Arc<Context>,
) -> impl Future<Output = Result<Response<Reply>, BoxError>> + Send + 'static {
    // Now: later, the connection has read more.
    let watch = &context.watch;
    let seen = RequestFacts {
        is_early: watch.is_early(),
        can_be_confirmed: watch.can_be_confirmed(),
        is_unknown: false,
    };
    handle_seen(request, context, seen)
}

async fn handle_seen(
    mut request: Request<RequestBody>,
    context: Arc<Context>,
    mut seen: RequestFacts,
) -> Result<Response<Reply>, BoxError> {
    let site = context.site.load_full();
    let mut busy = context.activity.begin();
    // Before anything else looks at the target.
    let label = resolve(&mut request, &site, context.tls);
    seen.is_unknown = label.is_err();
    let kind = request.headers().get(CONTENT_TYPE);
    let grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let mut entry = begin(&site, &context, &request);
    let progress = Progress::default();
    if request.body().is_end_stream() {
        progress.complete();
    }
    let answering = answer(request, &context, seen, site, progress.clone(), (&mut entry, &mut busy));
    let answered = match context.is_http2 {
        true => answering.await,
        // hyper reads nothing meanwhile, so nobody else would notice.
        false => tokio::select! {
            biased;
            answered = answering => answered,
            failure = left(&context, &progress) => Err(failure),
        },
    };
    // The answer of a trial reads the body while it is sent.
    let is_trial = matches!(answered, Ok(Given::Trial(_)));
    let (mut response, mut ends) = match answered {
        Ok(Given::Backend(ask, response)) => (finish(*ask, response, &context, entry, busy)?, false),
        Ok(Given::Files(response)) => (Reply::of_files(response, entry, progress.clone(), busy), false),
        Ok(Given::Trial(response)) => (Reply::of_trial(response, entry, progress.clone(), busy), false),
        Err(Failure::Status(status)) => {
            if let Some((kind, backend)) = progress.failure() {
                entry.end = Some(kind);
                entry.backend.clone_from(backend);
            }
            (Reply::of_status(status, grpc, entry, busy), ends_connection(status))
        }
        Err(Failure::Gone(error)) => {
            entry.end = Some("client-left");
            return Err(error);
        }
    };
    if let Ok(Some(path)) = label {
        response.headers_mut().insert(CONTENT_LOCATION, path);
    }
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    // hyper closes behind a body that was not read to its end, and the client must know.
    ends |= context.is_ending() || !(is_trial || progress.is_complete());
    if !context.is_http2 && !switches && ends {
        response.headers_mut().insert(hyper::header::CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// Waits until the client of a connection of HTTP/1.1 has left.
async fn left(context: &Context, progress: &Progress) -> Failure {
    if context.watch.left().await == Left::Closed {
        // It may still read, and gets its answer. But nobody connects for long to a backend for a client that has perhaps
        // left.
        tokio::select! {
            () = context.watch.failed() => {}
            () = sleep(HALF_CLOSED) => {
                if progress.is_sent() {
                    context.watch.failed().await;
                }
            }
        }
    }
    Failure::Gone(io::Error::from(io::ErrorKind::ConnectionAborted).into())
}

/// Whether nothing behind a request that got this status is read: other servers may read it otherwise, and behind CONNECT
/// there may be a tunnel's bytes.
fn ends_connection(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::PAYLOAD_TOO_LARGE
    )
}

/// Begins the line of the log.
fn begin(site: &Arc<Site>, context: &Context, request: &Request<RequestBody>) -> Entry {
    let mut entry = Entry::new(site, Event::Request, context.about);
    entry.early_bytes = context.watch.early_bytes();
    entry.seal = context.watch.seal();
    entry.method = Some(request.method().clone());
    entry.path = request.uri().path_and_query().cloned();
    entry.protocol = Some(match request.version() {
        Version::HTTP_2 => "h2",
        Version::HTTP_10 => "http/1.0",
        _ => "http/1.1",
    });
    entry
}

async fn answer(
    request: Request<RequestBody>,
    context: &Context,
    seen: RequestFacts,
    site: Arc<Site>,
    progress: Progress,
    (entry, busy): (&mut Entry, &mut Busy),
) -> Result<Given, Failure> {
    let mut ask = admit(request, context, seen, site, progress, entry)?;
    busy.place = place(&ask, context).await?.map(Arc::new);
    ask.place.clone_from(&busy.place);
    let header = connection_header(&ask, context)?;
    if ask.verdict == EarlyVerdict::Wait {
        confirmed(&ask, context).await?;
    }
    if ask.service.config.trial
        && let Some(response) = trial::answer(&mut ask).await?
    {
        return Ok(Given::Trial(response));
    }
    if let Some(files) = ask.service.files() {
        let response = files.respond(&ask.parts.method, &ask.parts.uri, &ask.parts.headers).await;
        ask.service.responded(entry.elapsed());
        return Ok(Given::Files(response));
    }
    let mut add_early = ask.verdict == EarlyVerdict::Forward && !ask.marked;
    loop {
        // In a box: requests that wait for their turn, which may be many, have none of its state.
        let answer = Box::pin(send(&mut ask, header.as_deref(), add_early, context)).await?;
        let too_early = answer.response.status() == StatusCode::TOO_EARLY;
        // The backend says that it is too early. Only a request that the client did not mark itself, and that has no body, is
        // sent again (RFC 8470 §5.2).
        if too_early && add_early && ask.body.is_none() && seen.can_be_confirmed {
            let BackendAnswer { response, opened, keeps, login } = answer;
            let keeps = keeps && response.body().is_end_stream();
            let (lease, after) = after(&ask, context, opened, keeps, login);
            after.release(&lease);
            metrics::retried(ask.service.name(), "too-early");
            entry.early = Some("waited");
            confirmed(&ask, context).await?;
            add_early = false;
            continue;
        }
        entry.status = Some(answer.response.status().as_u16());
        entry.backend = Some(Arc::clone(answer.opened.lease.backend()));
        ask.service.responded(entry.elapsed());
        return Ok(Given::Backend(Box::new(ask), answer));
    }
}

/// Waits for a place among the requests of the client.
async fn place(ask: &Ask, context: &Context) -> Result<Option<ClientPermit>, Failure> {
    let config = &ask.site.config;
    let most = config.max_requests_per_client;
    if most == 0 {
        return Ok(None);
    }
    let client = context.client(&ask.parts.headers, config);
    match timeout(config.header_timeout.0, context.shared.clients.request(client, most)).await {
        Ok(place) => Ok(place),
        Err(_) => {
            metrics::refused(ask.site.name(), "client-requests");
            Err(StatusCode::SERVICE_UNAVAILABLE.into())
        }
    }
}

/// Waits until the client is confirmed.
async fn confirmed(ask: &Ask, context: &Context) -> Result<(), Failure> {
    let by_task = ask.parts.version != Version::HTTP_2;
    let mut watch = context.watch.clone();
    match timeout(ask.site.config.header_timeout.0, watch.confirmed(by_task)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::Gone(error.into())),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT.into()),
    }
}

/// Finds the service, and decides what may happen now.
fn admit(
    mut request: Request<RequestBody>,
    context: &Context,
    seen: RequestFacts,
    site: Arc<Site>,
    progress: Progress,
    entry: &mut Entry,
) -> Result<Ask, Failure> {
    let on_upgrade =
        (request.version() == Version::HTTP_11).then(|| fields::upgrade(request.headers())).flatten();
    let tunnel = on_upgrade.map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
    let (mut parts, body) = request.into_parts();
    if let Some(status) = framing::refusal(&parts) {
        return Err(status.into());
    }
    if !fields::expects_only_100(&parts.headers) {
        return Err(StatusCode::EXPECTATION_FAILED.into());
    }
    let is_shown = |name: &str| site.acceptor.as_ref().is_some_and(|tls| tls.shows_by_default(name));
    let asked = match (&context.sni, context.tls) {
        (Some(sni), _) => RequestedHost::Name(sni),
        (None, true) => RequestedHost::Nobody(&is_shown),
        (None, false) => RequestedHost::Clear,
    };
    let target = Target::of(&parts, asked)?;
    entry.host.clone_from(&target.host);
    if seen.is_unknown {
        return Err(StatusCode::NOT_FOUND.into());
    }
    let path = parts.uri.path();
    let found = site.service_for_request(target.host.as_deref(), path, parts.method.as_str());
    let (service, policy) = found.ok_or(StatusCode::NOT_FOUND)?;
    let policy = match policy {
        // Nothing happens when a file is read, however often.
        Early::Safe | Early::Query if service.files().is_some() => Early::Any,
        policy => policy,
    };
    let service = Arc::clone(service);
    entry.service = Some(Arc::clone(&service));
    entry.trace = match service.files() {
        // Nobody would go on with one.
        Some(_) => TraceId::of(&parts.headers),
        None => trace(&mut parts.headers, site.config.traceparent),
    };
    // Only HTTP/1.1 switches protocols.
    let tunnel = tunnel.filter(|_| service.config.protocol == BackendProtocol::Http1);
    let has_body = !body.is_end_stream();
    if let (Some(most), Some(length)) = (site.config.max_body, length(&parts))
        && length > most
    {
        return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
    }
    let asked =
        early::Request { method: &parts.method, uri: &parts.uri, has_body, upgrades: tunnel.is_some() };
    // Nobody confirms here what a proxy in front took early.
    let marked = early::is_marked(&parts.headers);
    let verdict = early::decide(seen.is_early || marked, seen.can_be_confirmed && !marked, policy, &asked);
    match verdict {
        EarlyVerdict::Confirmed => {}
        EarlyVerdict::Forward => entry.early = Some("forwarded"),
        EarlyVerdict::Wait => entry.early = Some("waited"),
        EarlyVerdict::Refuse => {
            entry.early = Some("refused");
            return Err(StatusCode::TOO_EARLY.into());
        }
    }
    let body = has_body.then_some(body);
    Ok(Ask { parts, body, has_body, service, site, target, verdict, marked, tunnel, progress, place: None })
}

/// A label is of no URL here.
struct UnknownLabel;

/// Puts the path in the place of a short label. Returns it, for the answer to name it.
fn resolve<B>(request: &mut Request<B>, site: &Site, tls: bool) -> Result<Option<HeaderValue>, UnknownLabel> {
    let path = match site.config.short.named(tls, request) {
        TargetName::Path => return Ok(None),
        TargetName::Label(path) => path.clone(),
        TargetName::Unknown => return Err(UnknownLabel),
    };
    let named = HeaderValue::from_str(path.as_str()).map_err(|_| UnknownLabel)?;
    let mut uri = request.uri().clone().into_parts();
    uri.path_and_query = Some(path);
    *request.uri_mut() = Uri::from_parts(uri).map_err(|_| UnknownLabel)?;
    Ok(Some(named))
}

/// The trace of a request. Attempts to send it have the same one.
fn trace(headers: &mut HeaderMap, how: Traceparent) -> Option<TraceId> {
    let trace = TraceId::of(headers);
    match how {
        Traceparent::Pass => trace,
        // A request without random numbers goes on without a trace.
        Traceparent::Make => trace.or_else(|| trace::begin(headers).ok()),
        Traceparent::Remove => {
            headers.remove(TRACEPARENT);
            headers.remove(TRACESTATE);
            None
        }
    }
}

fn length(parts: &Parts) -> Option<u64> {
    parts.headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The PROXY header for the connection to the backend, if the service wants one.
fn connection_header(ask: &Ask, context: &Context) -> Result<Option<Vec<u8>>, Failure> {
    if !ask.service.config.proxy_protocol {
        return Ok(None);
    }
    let about = &context.about;
    // What is early is said by the header of the request.
    let made = proxy_header::about(about.peer, about.local, context.sni.as_deref(), 0);
    made.map(Some).map_err(|_| StatusCode::BAD_GATEWAY.into())
}

/// Says how long the body is, in the form of the backend's protocol.
fn frame(out: &mut HeaderMap, ask: &Ask) {
    match length(&ask.parts) {
        // Some servers read 010 as eight.
        Some(length) => drop(out.insert(CONTENT_LENGTH, length.into())),
        // Without it hyper takes a GET or a HEAD for one without a body.
        None if ask.has_body && ask.service.config.protocol == BackendProtocol::Http1 => {
            out.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        None => {}
    }
}

/// The host of a request that names none.
const NOBODY: &str = "localhost";

/// The request for the backend, without its body.
pub(super) fn outgoing(ask: &Ask, early: bool, context: &Context) -> Result<Request<Upload>, Failure> {
    let mut request = Request::new(Upload::empty());
    *request.method_mut() = ask.parts.method.clone();
    let out = request.headers_mut();
    out.clone_from(&ask.parts.headers);
    fields::clean_request(out);
    if !ask.site.config.odd_field_names {
        fields::drop_odd_names(out);
    }
    frame(out, ask);
    if ask.service.config.protocol == BackendProtocol::Http1 {
        fields::join_cookies(out);
    }
    let authority = ask.target.authority.as_ref();
    let config = &ask.site.config;
    let trusted = config.trusts(context.about.peer.ip());
    let host = authority.map(Authority::as_str);
    let about = forwarded::ForwardedClient { client: context.about.peer.ip(), tls: context.tls, host };
    set_forwarded(out, config.forwarded, trusted, &about);
    if early && !ask.marked {
        out.insert(EARLY_DATA, HeaderValue::from_static("1"));
    }
    if let Some((protocol, _)) = &ask.tunnel {
        out.insert(hyper::header::CONNECTION, HeaderValue::from_static("upgrade"));
        out.insert(hyper::header::UPGRADE, protocol.clone());
    }
    let path = ask.target.path(&ask.parts)?;
    let mut uri = hyper::http::uri::Parts::default();
    uri.path_and_query = Some(path);
    match (ask.service.config.protocol, authority) {
        (BackendProtocol::Http1, Some(authority)) => {
            let host = HeaderValue::from_str(authority.as_str()).map_err(|_| StatusCode::BAD_REQUEST)?;
            out.insert(HOST, host);
        }
        // HTTP/1.0 needs no host, but goes on as HTTP/1.1, which does (RFC 9112 §3.2).
        (BackendProtocol::Http1, None) => drop(out.insert(HOST, HeaderValue::from_static(NOBODY))),
        (BackendProtocol::H2, authority) => {
            out.remove(HOST);
            uri.scheme = Some(if ask.service.config.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP });
            uri.authority = Some(authority.cloned().unwrap_or_else(|| Authority::from_static(NOBODY)));
            *request.version_mut() = Version::HTTP_2;
        }
    }
    *request.uri_mut() = Uri::from_parts(uri).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(request)
}

/// Whether a response asks for credentials.
fn is_challenge(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::PROXY_AUTHENTICATION_REQUIRED)
}

/// The response for the client.
fn finish(
    ask: Ask,
    answer: BackendAnswer,
    context: &Context,
    entry: Entry,
    busy: Busy,
) -> Result<Response<Reply>, BoxError> {
    let BackendAnswer { mut response, opened, keeps, login } = answer;
    if login && ask.parts.version == Version::HTTP_2 && is_challenge(response.status()) {
        // The client tries again with HTTP/1.1, where it can log in (RFC 9113 §7).
        if !login::remove_challenges(response.headers_mut()) {
            return Err(h2::Error::from(h2::Reason::HTTP_1_1_REQUIRED).into());
        }
    }
    let (lease, after) = after(&ask, context, opened, keeps, login);
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let switched = ask.tunnel.and_then(|(asked, on_client)| {
            let protocol = fields::switched(&asked, response.headers())?;
            Some((protocol, on_client))
        });
        let Some((protocol, on_client)) = switched else {
            metrics::backend_failed(lease.backend(), "unasked-upgrade");
            return Ok(Reply::of_status(StatusCode::BAD_GATEWAY, false, entry, busy));
        };
        context.watch.switches();
        let on_backend = hyper::upgrade::on(&mut response);
        let (mut parts, _) = response.into_parts();
        fields::strip_hop_by_hop(&mut parts.headers);
        parts.headers.insert(hyper::header::CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(hyper::header::UPGRADE, protocol);
        // The log has two lines: this one for the request, and the tunnel's.
        let mut line = Entry::new(&ask.site, Event::Connection, context.about);
        line.host.clone_from(&entry.host);
        line.service.clone_from(&entry.service);
        line.backend.clone_from(&entry.backend);
        let guards = Arc::clone(&context.shared.guards);
        let limits = ask.site.config.pump(ask.site.config.tunnel_timeout.0);
        tunnel::start(on_client, on_backend, limits, tunnel::TunnelGuard { lease, guards, entry: line });
        return Ok(Response::from_parts(parts, Reply::none(entry, busy)));
    }
    let (mut parts, body) = response.into_parts();
    fields::strip_hop_by_hop(&mut parts.headers);
    parts.version = Version::default();
    let reason = parts.extensions.remove::<ReasonPhrase>();
    parts.extensions.clear();
    // HTTP/2 has none.
    if let Some(reason) = reason {
        parts.extensions.insert(reason);
    }
    let patience = patience(ask.site.config.body_timeout.0);
    let coming = Coming { body, lease, after, patience };
    Ok(Response::from_parts(parts, Reply::of_backend(coming, entry, ask.progress, busy)))
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Gone(error.into())
    }
}
