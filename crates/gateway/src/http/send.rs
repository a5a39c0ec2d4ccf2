//! Sends a request to a backend, and again if that is allowed (see [`firstflight_http::again`]).

use super::Context;
use super::body::{Progress, Source};
use super::forward::{Ask, Failure, outgoing};
use super::reply::After;
use crate::backend::{AnsweredBody, Backend, DialError, Lease, PoolOpen, RequestConnection};
use crate::metrics;
use firstflight_http::patience::timeout;
use firstflight_http::resend::{Again, AttemptFate, again};
use firstflight_http::{login, response};
use hyper::{Response, StatusCode, Version};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// A backend's response, with its connection.
pub(super) struct BackendAnswer {
    pub(super) response: Response<AnsweredBody>,
    pub(super) opened: RequestConnection,
    /// Whether the connection may have another request, as far as this response says.
    pub(super) keeps: bool,
    /// The connection belongs to the client, which logs in on it.
    pub(super) login: bool,
}

/// What becomes of a connection after a response.
pub(super) fn after(
    ask: &Ask,
    context: &Context,
    opened: RequestConnection,
    keeps: bool,
    login: bool,
) -> (Lease, After) {
    let RequestConnection { sender, lease, .. } = opened;
    // One with a PROXY header belongs to this client, and one that was to switch protocols did not.
    let keeps = keeps && !ask.service.config.proxy_protocol && ask.tunnel.is_none();
    let after = match (keeps, login) {
        (false, _) => After::Close,
        (true, false) => After::Pool(sender, ask.service.config.pool),
        // HTTP/2 has no such logins: its requests are not in one order, and may be of many.
        (true, true) if ask.parts.version == Version::HTTP_2 || sender.is_shared() => After::Close,
        (true, true) => After::Client(sender, context.logins.clone()),
    };
    (lease, after)
}

/// Sends the request, and again if that is allowed: see [`again`].
pub(super) async fn send(
    ask: &mut Ask,
    header: Option<&[u8]>,
    early: bool,
    context: &Context,
) -> Result<BackendAnswer, Failure> {
    let config = &ask.site.config;
    let source = |body| Source::new(body, config.body_timeout.0, config.max_body, ask.progress.clone());
    let source = ask.body.take().map(source);
    let sent = try_send(ask, header, early, context, source.as_ref()).await;
    let (response, opened, mine) = sent?;
    let (mut parts, body) = response.into_parts();
    match response::settle(&ask.parts.method, parts.status, parts.version, &mut parts.headers) {
        Ok(settled) => {
            opened.lease.backend().state.succeeded();
            if let Some(source) = &source {
                source.answered();
            }
            let begins = login::request_begins(&ask.parts.headers) || login::response_begins(&parts.headers);
            let response = Response::from_parts(parts, body);
            Ok(BackendAnswer { response, opened, keeps: settled.keeps, login: mine || begins })
        }
        Err(error) => {
            tracing::debug!(backend = opened.lease.backend().label, %error, "a response is wrong");
            failed_at(ask, &opened, "response");
            Err(StatusCode::BAD_GATEWAY.into())
        }
    }
}

/// The response, its connection, and whether that is the client's own.
async fn try_send(
    ask: &Ask,
    header: Option<&[u8]>,
    early: bool,
    context: &Context,
    source: Option<&Source>,
) -> Result<(Response<AnsweredBody>, RequestConnection, bool), Failure> {
    let mut tries = Tries::default();
    loop {
        let mut request = outgoing(ask, early, context)?;
        let (mut opened, mine) = open(ask, header, context, &tries, source.is_some()).await?;
        if let Some(source) = source {
            *request.body_mut() = source.begin();
        }
        ask.progress.sent();
        opened.sender.hold(ask.place.clone().map(|place| place as _));
        let sending = opened.sender.send(request);
        let failed = match patiently(ask.service.config.response_timeout.0, &ask.progress, sending).await {
            Some(Ok(response)) => return Ok((response, opened, mine)),
            Some(Err(failed)) => failed,
            None => {
                failed_at(ask, &opened, "response-timeout");
                return Err(StatusCode::GATEWAY_TIMEOUT.into());
            }
        };
        if let Some(fault) = ask.progress.fault() {
            return Err(fault.into());
        }
        tracing::debug!(backend = opened.lease.backend().label, error = %failed.error, "a request failed");
        let whole = source.is_none_or(Source::can_begin_again);
        if !(whole && tries.may_go_again(failed.fate, &opened, ask)) {
            failed_at(ask, &opened, "request");
            return Err(StatusCode::BAD_GATEWAY.into());
        }
        metrics::retried(ask.service.name(), "closed-connection");
    }
}

/// A connection for the request. True if it is the client's own.
async fn open(
    ask: &Ask,
    header: Option<&[u8]>,
    context: &Context,
    tries: &Tries,
    with_body: bool,
) -> Result<(RequestConnection, bool), Failure> {
    // A WebSocket of a client that has logged in begins on the connection on which it did.
    if tries.failed_at.is_empty()
        && let Some(opened) = context.logins.take(&ask.service).await
    {
        return Ok((opened, true));
    }
    let fresh = ask.tunnel.is_some() || !tries.failed_at.is_empty();
    // Credentials of a connection never reach one that others share.
    let alone = login::request_begins(&ask.parts.headers);
    let how = PoolOpen { header, fresh, alone, with_body, avoid: &tries.failed_at };
    let opened = ask.service.open(how).await.map_err(|error| unreachable(ask, &error))?;
    Ok((opened, false))
}

/// The backend failed, and the request is not sent again.
fn failed_at(ask: &Ask, opened: &RequestConnection, kind: &'static str) {
    metrics::backend_failed(opened.lease.backend(), kind);
    ask.progress.failed(kind, Some(opened.lease.backend()));
    ask.service.failed(opened.lease.backend());
}

/// How often a request that no backend executed may go again, at least: a backend may end several connections in a row.
const REFUSALS: u32 = 8;

/// Attempts at one request.
#[derive(Default)]
struct Tries {
    /// Where it failed.
    failed_at: Vec<Arc<Backend>>,
    /// It may have been executed by one of them.
    silent: bool,
    /// The same, of a request that is safe.
    elsewhere: bool,
    refusals: u32,
}

impl Tries {
    fn may_go_again(&mut self, fate: AttemptFate, opened: &RequestConnection, ask: &Ask) -> bool {
        match again(fate, opened.kept, &ask.parts.method) {
            _ if ask.tunnel.is_some() && fate != AttemptFate::NotExecuted => return false,
            Again::No => return false,
            Again::Once if self.silent => return false,
            Again::Once => self.silent = true,
            Again::Elsewhere if self.elsewhere || ask.service.backends().len() < 2 => return false,
            Again::Elsewhere => self.elsewhere = true,
            Again::Yes if self.refusals >= ask.service.config.retries.max(REFUSALS) => return false,
            Again::Yes => self.refusals += 1,
        }
        let backend = opened.lease.backend();
        if !self.failed_at.iter().any(|one| Arc::ptr_eq(one, backend)) {
            self.failed_at.push(Arc::clone(backend));
        }
        true
    }
}

/// Waits for a response. While the body is on its way, only a pause in it counts. `None` if it took too long.
async fn patiently<T>(most: Duration, progress: &Progress, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut sent = progress.bytes();
    loop {
        if let Ok(done) = timeout(most, work.as_mut()).await {
            return Some(done);
        }
        let now = progress.bytes();
        if now == std::mem::replace(&mut sent, now) {
            return None;
        }
    }
}

fn unreachable(ask: &Ask, error: &DialError) -> Failure {
    tracing::warn!(service = ask.service.name(), %error, "no backend was reached");
    let (status, kind) = match error {
        DialError::NoBackend => (StatusCode::SERVICE_UNAVAILABLE, "no-backend"),
        error if error.is_own() => (StatusCode::SERVICE_UNAVAILABLE, "no-resources"),
        DialError::TimedOut(_) => (StatusCode::GATEWAY_TIMEOUT, "connect-timeout"),
        _ => (StatusCode::BAD_GATEWAY, "connect"),
    };
    ask.progress.failed(kind, None);
    status.into()
}
