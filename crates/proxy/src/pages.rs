//! The proxy's own pages: the status, and the PAC file.
//!
//! A web page that the user visits can make the browser send requests to any port of this machine, and its name may
//! resolve to this machine (DNS rebinding). So each request must name this proxy's address as its host, and come from no
//! other site. The status needs a token, too, because other users of the machine could ask for it.

use crate::body::{Body, BodyError, full};
use crate::forward::refusal;
use crate::pac;
use crate::shared::{Shared, Stopping};
use bytes::Bytes;
use firstflight::credential::Reason;
use firstflight_http::own_pages::{self, NotOwn};
use futures_util::stream;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::json;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{sleep, timeout};

/// Pages that are open get a change at most this often, and a sign of life at least this often.
const OFTEN: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(15);

/// Nothing of other sites, no frames, no scripts in the page itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Answers a request for one of the proxy's own pages. `local` is the address at which the client reached the proxy.
pub(crate) fn answer<B>(shared: &Arc<Shared>, request: &Request<B>, local: SocketAddr) -> Response<Body> {
    let response = match check(request.method(), request.headers(), local) {
        Ok(()) => page(shared, request, local),
        Err((status, text)) => {
            shared.refused(text);
            refusal(status, text)
        }
    };
    guarded(response)
}

type Refusal = (StatusCode, &'static str);

fn check(method: &Method, headers: &HeaderMap, local: SocketAddr) -> Result<(), Refusal> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD"));
    }
    let is_own = |host: &str| {
        let name = format!("localhost:{}", local.port());
        host == local.to_string() || (local.ip().is_loopback() && host.eq_ignore_ascii_case(&name))
    };
    const NOT_OURS: Refusal = (StatusCode::MISDIRECTED_REQUEST, "the Host is not this proxy's address");
    if !headers.contains_key(header::HOST) {
        return Err(NOT_OURS);
    }
    own_pages::check(headers, is_own).map_err(|why| match why {
        NotOwn::Host => NOT_OURS,
        NotOwn::Site => (StatusCode::FORBIDDEN, "the request comes from another site"),
    })
}

fn page<B>(shared: &Arc<Shared>, request: &Request<B>, local: SocketAddr) -> Response<Body> {
    let text = |kind, text: &'static str| typed(kind, full(text));
    let needs_token = |answer: &dyn Fn() -> Response<Body>| match may_look(shared, request) {
        true => answer(),
        false => {
            refusal(StatusCode::UNAUTHORIZED, "take the address with the token from the proxy's first lines")
        }
    };
    match request.uri().path() {
        "/status.js" => text("text/javascript; charset=utf-8", include_str!("page/status.js")),
        "/status.css" => text("text/css; charset=utf-8", include_str!("page/status.css")),
        "/help" => typed("text/html; charset=utf-8", full(help())),
        "/status" => needs_token(&|| text("text/html; charset=utf-8", include_str!("page/status.html"))),
        "/status.json" => needs_token(&|| typed("application/json", full(snapshot(shared)))),
        "/status/events" => needs_token(&|| events(shared)),
        "/proxy.pac" if shared.rules().pac => {
            let hosts = shared.rules().hosts.union(&shared.board.speakers()).cloned().collect();
            typed("application/x-ns-proxy-autoconfig", full(pac::file(local, &hosts)))
        }
        "/proxy.pac" => refusal(StatusCode::NOT_FOUND, "start it with --pac to have this file"),
        "/" => text(
            "text/plain; charset=utf-8",
            "This is firstflight proxy: set it as the proxy of a program.\n",
        ),
        _ => refusal(StatusCode::NOT_FOUND, "no such page; a request through the proxy has a whole URI"),
    }
}

/// The page that explains the words.
fn help() -> String {
    let mut reasons = String::new();
    for reason in Reason::ALL {
        // Writing to a string does not fail. Neither text has anything of HTML.
        let _ = writeln!(reasons, "<dt><code>{}</code><dd>{reason}.", reason.as_str());
    }
    include_str!("page/help.html").replace("<!--reasons-->", &reasons)
}

/// Whether a request has the token: as a parameter, because an `EventSource` sends no fields, or as a field.
fn may_look<B>(shared: &Shared, request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let parameter = query.split('&').find_map(|part| part.strip_prefix("token="));
    let field = request.headers().get(header::AUTHORIZATION);
    let field = field.and_then(|field| field.to_str().ok()).and_then(|field| field.strip_prefix("Bearer "));
    let given = parameter.or(field).unwrap_or_default();
    given.as_bytes().ct_eq(shared.token.as_bytes()).into()
}

/// What the page shows.
fn snapshot(shared: &Shared) -> String {
    let places = shared.limits.watchers.saturating_sub(shared.watchers.available_permits());
    let servers = shared.board.servers().unwrap_or_default();
    let value = json!({
        "version": 1,
        "now": firstflight::unix_ms(),
        "started": shared.started,
        "watchers": places,
        "total": shared.board.total(),
        "servers": servers,
        "verifiers": verifiers(shared),
    });
    value.to_string()
}

/// The verifiers that sites named (docs/spec/asap.md, section 9.1).
fn verifiers(shared: &Shared) -> Vec<serde_json::Value> {
    let found = shared.client.found_verifiers();
    let show = |one: firstflight::verifier::LearntVerifier| {
        json!({
            "at": one.at,
            "id": one.key.id().to_string(),
            "site": one.site,
            "named_by": one.named_by,
            "age_s": one.since.as_secs(),
            "authentic": one.authentic,
            "certificates": one.certificates,
        })
    };
    found.into_iter().map(show).collect()
}

/// The snapshot at each change, as a stream of events.
fn events(shared: &Arc<Shared>) -> Response<Body> {
    let Ok(place) = Arc::clone(&shared.watchers).try_acquire_owned() else {
        return refusal(StatusCode::SERVICE_UNAVAILABLE, "too many status pages are open");
    };
    let watch =
        Watch { shared: Arc::clone(shared), changes: shared.board.watch(), first: true, _place: place };
    let events = stream::unfold(watch, Watch::next);
    let body = StreamBody::new(events).boxed_unsync();
    typed("text/event-stream", body)
}

struct Watch {
    shared: Arc<Shared>,
    changes: tokio::sync::watch::Receiver<u64>,
    first: bool,
    _place: OwnedSemaphorePermit,
}

impl Watch {
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, BodyError>, Self)> {
        let changed = async {
            if !std::mem::take(&mut self.first) {
                sleep(OFTEN).await;
                return timeout(SELDOM, self.changes.changed()).await.is_ok();
            }
            true
        };
        let changed = tokio::select! {
            changed = changed => changed,
            () = self.shared.stopping(Stopping::Draining) => return None,
        };
        let event = match changed {
            true => format!("data: {}\n\n", snapshot(&self.shared)),
            // A comment. A page that is gone is noticed by it.
            false => ":\n\n".to_owned(),
        };
        Some((Ok(Frame::data(event.into())), self))
    }
}

fn typed(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Adds what keeps other sites, and what is stored, away from a page.
fn guarded(mut response: Response<Body>) -> Response<Body> {
    let fields = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fields {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests;
