//! Requests of plain HTTP, with the URI in its absolute form (RFC 9112 §3.2.2).

use crate::body::{Body, Download, Passing, Upload, full};
use crate::conn::Conn;
use crate::connector::{FailureTold, Link, Unanswered};
use crate::event::Protocol;
use crate::failure::Failure;
use crate::headers;
use crate::pool::Pool;
use crate::shared::Shared;
use firstflight::{Authority, ReplaySafety};
use firstflight_http::conn::Left;
use firstflight_http::resend::{Again, AttemptFate, again};
use firstflight_http::target::{self, Target};
use firstflight_http::{login, response};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use hyper::ext::ReasonPhrase;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// How long a server is connected to for a client that has ended its direction. It may still read, or has left.
const HALF_CLOSED: Duration = Duration::from_secs(1);

/// Ports of other services, to which no browser sends HTTP: a request could be read as a command there
/// (<https://fetch.spec.whatwg.org/#port-blocking>).
const OTHER_SERVICES: [u16; 83] = [
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104,
    109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515,
    526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049,
    3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 0,
];

/// A client's connection, and the connections to servers that only it uses.
#[derive(Clone)]
pub(crate) struct Visitor {
    pub conn: Conn,
    pub owned: Pool,
}

/// Forwards requests, on connections that are used again.
pub(crate) struct Forwarder {
    shared: Arc<Shared>,
    pool: Pool,
}

/// A request under way.
struct Ask {
    server: Authority,
    head: Parts,
    upload: Upload,
    /// It belongs to a login of its connection.
    is_login: bool,
    /// It goes again if the server does not want it early.
    may_be_late: bool,
    /// There is a connection for it.
    is_connected: Arc<AtomicBool>,
}

impl Forwarder {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), pool: Pool::default() }
    }

    /// Answers a request with the server's response, or says why there is none.
    /// Errors: when the client has left.
    pub(crate) async fn forward(
        &self,
        visitor: &Visitor,
        target: &Target,
        request: Request<Incoming>,
    ) -> io::Result<Response<Body>> {
        let (mut head, body) = request.into_parts();
        let (server, path) = match check(&head, target) {
            Ok(checked) => checked,
            Err((status, text)) => {
                self.shared.refused(text);
                return Ok(refusal(status, text));
            }
        };
        if OTHER_SERVICES.contains(&server.port()) {
            let failure = Failure::Port(server.port());
            self.shared.refused(failure.to_string());
            return Ok(told(&FailureTold::of(&failure)));
        }
        if headers::is_last(&head.method, &mut head.headers) {
            return Ok(Response::new(full("")));
        }
        head.uri = path.into();
        let ask = self.ask(server, head, body, target);
        let waiting = self.shared.waiting(Protocol::Http, &ask.server);
        let exchanged = tokio::select! {
            exchanged = self.exchange(visitor, &ask) => exchanged,
            () = self.left(visitor, &ask) => return Err(io::ErrorKind::ConnectionReset.into()),
        };
        waiting.over();
        Ok(match exchanged.and_then(|(response, link)| self.pass(visitor, &ask, response, link)) {
            Ok(response) => response,
            Err(reason) => told(&reason),
        })
    }

    /// Makes a client's request one for the next hop.
    fn ask(&self, server: Authority, mut head: Parts, body: Incoming, target: &Target) -> Ask {
        let is_login = login::request_begins(&head.headers);
        let may_be_late = body.is_end_stream() && !head.headers.contains_key("early-data");
        let has_open_body = !body.is_end_stream() && !head.headers.contains_key(CONTENT_LENGTH);
        let host = target.authority.as_ref().map(|authority| authority.as_str());
        let host = host.map(|host| host.strip_suffix(':').unwrap_or(host)).unwrap_or_default();
        let host = HeaderValue::from_str(host).unwrap_or(HeaderValue::from_static(""));
        headers::forward_request(&mut head.headers, host, head.version);
        if has_open_body {
            // Otherwise hyper leaves out the body of a GET.
            head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        head.version = Version::HTTP_11;
        head.extensions.clear();
        let upload = Upload::new(Passing::new(body, self.shared.limits.body_timeout));
        Ask { server, head, upload, is_login, may_be_late, is_connected: Arc::default() }
    }

    /// Waits until the client has left, or has perhaps left and waited for long enough.
    async fn left(&self, visitor: &Visitor, ask: &Ask) {
        if visitor.conn.ended().await == Left::Failed {
            return;
        }
        let perhaps = async {
            sleep(HALF_CLOSED).await;
            if ask.is_connected.load(Ordering::Relaxed) {
                sleep(self.shared.limits.half_closed_timeout).await;
            }
        };
        tokio::select! {
            () = perhaps => {}
            () = visitor.conn.near().failed() => {}
        }
    }

    async fn exchange(
        &self,
        visitor: &Visitor,
        ask: &Ask,
    ) -> Result<(Response<Incoming>, Link), FailureTold> {
        let (response, link) = self.attempt(visitor, ask, ReplaySafety::ByMethod).await?;
        if response.status() == StatusCode::TOO_EARLY && ask.may_be_late {
            // The server saw the request before it knew the client. Now it does (RFC 8470 §5.2).
            drop((response, link));
            return self.attempt(visitor, ask, ReplaySafety::Unsafe).await;
        }
        Ok((response, link))
    }

    /// Sends a request on a connection that waits, or on a new one. `safety` says what may ride in the first flight.
    async fn attempt(
        &self,
        visitor: &Visitor,
        ask: &Ask,
        safety: ReplaySafety,
    ) -> Result<(Response<Incoming>, Link), FailureTold> {
        let mut only_new = false;
        loop {
            let kept = || visitor.owned.take(&ask.server).or_else(|| self.pool.take(&ask.server));
            let mut link = match (!only_new).then(kept).flatten() {
                Some(link) => {
                    ask.is_connected.store(true, Ordering::Relaxed);
                    link
                }
                None => Link::open(&self.shared, &ask.server, safety, &ask.is_connected).await?,
            };
            link.is_owned |= ask.is_login;
            let Unanswered { fate, told } = match self.send(&mut link, ask).await {
                Ok(response) => return Ok((response, link)),
                Err(unanswered) => unanswered,
            };
            let goes_again = match again(fate, link.is_kept, &ask.head.method) {
                // A new connection has tried all that there is.
                Again::Yes => link.is_kept,
                Again::Once => true,
                // It has no other server.
                Again::Elsewhere | Again::No => false,
            };
            if !goes_again || !ask.upload.is_whole() {
                return Err(told);
            }
            only_new = fate != AttemptFate::NotExecuted;
        }
    }

    async fn send(&self, link: &mut Link, ask: &Ask) -> Result<Response<Incoming>, Unanswered> {
        let limit = self.shared.limits.connect_timeout + self.shared.limits.response_timeout;
        let begun = Instant::now();
        let mut sending =
            std::pin::pin!(link.send(Request::from_parts(ask.head.clone(), ask.upload.clone())));
        loop {
            // A long upload is no silence.
            let last = ask.upload.last().max(begun);
            match timeout_at(last + limit, &mut sending).await {
                Ok(result) => return result,
                Err(_) if ask.upload.last() > last => {}
                Err(_) => {
                    let told = FailureTold::of(&Failure::ResponseTimedOut);
                    return Err(Unanswered { fate: AttemptFate::Answered, told });
                }
            }
        }
    }

    /// Makes a server's response one for the client.
    fn pass(
        &self,
        visitor: &Visitor,
        ask: &Ask,
        response: Response<Incoming>,
        mut link: Link,
    ) -> Result<Response<Body>, FailureTold> {
        let wrong = |text: String| FailureTold::of(&Failure::Response(text));
        let (mut head, body) = response.into_parts();
        if head.status.is_informational() {
            return Err(wrong("the server changed the protocol".into()));
        }
        let settled = response::settle(&ask.head.method, head.status, head.version, &mut head.headers)
            .map_err(|bad| wrong(bad.to_string()))?;
        link.is_owned |= login::response_begins(&head.headers);
        headers::forward_response(&mut head.headers, head.version);
        head.version = Version::HTTP_11;
        let reason = head.extensions.remove::<ReasonPhrase>();
        head.extensions.clear();
        if let Some(reason) = reason {
            head.extensions.insert(reason);
        }
        let home = if link.is_owned { &visitor.owned } else { &self.pool };
        let home = settled.keeps.then(|| home.clone());
        let limits = &self.shared.limits;
        let body = Passing::new(body, limits.idle_timeout);
        let body = Download::new(body, link, home, &visitor.conn, limits.half_closed_timeout);
        Ok(Response::from_parts(head, body.boxed_unsync()))
    }
}

/// The server of a request's URI, and the target for it.
fn check(head: &Parts, target: &Target) -> Result<(Authority, PathAndQuery), (StatusCode, &'static str)> {
    let bad = |text| (StatusCode::BAD_REQUEST, text);
    if head.uri.scheme() != Some(&Scheme::HTTP) {
        return Err(bad("this proxy forwards http only: for https use CONNECT"));
    }
    let port = head.uri.port_u16().unwrap_or(80);
    let host = target.host.as_deref().unwrap_or_default();
    let server = Authority::new(host, port).map_err(|_| bad("the URI has no valid host and port"))?;
    match head.method {
        // It would show the client's own fields, and those of proxies.
        Method::TRACE => Err((StatusCode::METHOD_NOT_ALLOWED, "this proxy forwards no TRACE")),
        _ => target.path(head).map(|path| (server, path)).map_err(|_| bad("the URI has no valid path")),
    }
}

/// The server that a CONNECT names.
pub(crate) fn connect_target(uri: &Uri) -> Option<Authority> {
    let authority = uri.authority().filter(|_| uri.scheme().is_none())?;
    target::host(authority.as_str())?;
    Authority::new(authority.host(), authority.port_u16()?).ok()
}

/// Says why there is no response, or no tunnel.
pub(crate) fn told(reason: &FailureTold) -> Response<Body> {
    let mut response = refusal(reason.status, &reason.text);
    let status = format!("firstflight; error={}", reason.error_type);
    if let Ok(status) = HeaderValue::from_str(&status) {
        response.headers_mut().insert("proxy-status", status);
    }
    response
}

/// A response of the proxy's own. What the client has sent behind its request is not read any more.
pub(crate) fn refusal(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(full(format!("firstflight proxy: {text}\n")));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests;
