//! Requests of plain HTTP, with the URI in its absolute form (RFC 9112 §3.2.2).

use crate::body::{Body, full, passing};
use crate::connector::{Connector, Told, failure};
use crate::event::Protocol;
use crate::failure::Failure;
use crate::headers;
use crate::shared::Shared;
use firstflight::ReplaySafety;
use http::header::{CONNECTION, CONTENT_TYPE, TRANSFER_ENCODING};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a connection to a server waits for its next request, and how many wait for each server.
const KEPT: Duration = Duration::from_secs(30);
const KEPT_FOR_EACH: usize = 8;

/// Ports of other services, to which no browser sends HTTP: a request could be read as a command there
/// (<https://fetch.spec.whatwg.org/#port-blocking>).
const OTHER_SERVICES: [u16; 83] = [
    1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104,
    109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515,
    526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049,
    3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080, 0,
];

type Client = legacy::Client<Connector, Body>;

/// Forwards requests, on connections that are used again.
pub(crate) struct Forwarder {
    shared: Arc<Shared>,
    /// Requests that may run twice ride in the first flight.
    early: Client,
    /// None do (RFC 8470 §5.2).
    late: Client,
}

impl Forwarder {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let client = |safety| {
            let connector = Connector { shared: Arc::clone(shared), safety };
            legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(KEPT)
                .pool_max_idle_per_host(KEPT_FOR_EACH)
                .http1_max_buf_size(shared.limits.head)
                .http1_max_headers(shared.limits.fields)
                .build(connector)
        };
        let (early, late) = (client(ReplaySafety::ByMethod), client(ReplaySafety::Unsafe));
        Self { shared: Arc::clone(shared), early, late }
    }

    /// Answers a request with the server's response, or says why there is none.
    pub(crate) async fn forward(&self, request: Request<Incoming>) -> Response<Body> {
        let server = match self.check(&request) {
            Ok(server) => server,
            Err((status, text)) => {
                self.shared.refused(text);
                return refusal(status, text);
            }
        };
        if OTHER_SERVICES.contains(&server.port_u16().unwrap_or(80)) {
            let failure = Failure::Port(server.port_u16().unwrap_or(80));
            self.shared.refused(failure.to_string());
            return told(&Told::of(&failure));
        }
        let (mut head, body) = request.into_parts();
        if headers::is_last(&head.method, &mut head.headers) {
            return Response::new(full(""));
        }
        let was_early = head.headers.contains_key("early-data");
        // hyper drops a length beside chunks, as it should, and does not say so (RFC 9112 §6.1: the connection must end).
        let chunked = head.headers.contains_key(TRANSFER_ENCODING);
        headers::forward_request(&mut head.headers, &server, head.version);
        head.version = Version::HTTP_11;
        head.extensions.clear();
        let waiting = named(&server).map(|server| self.shared.waiting(Protocol::Http, &server));
        let again = (body.is_end_stream() && !was_early).then(|| head.clone());
        let body = passing(body, self.shared.limits.idle_timeout);
        let mut result = self.send(&self.early, Request::from_parts(head, body)).await;
        if let (Ok(response), Some(head)) = (&result, again)
            && response.status() == StatusCode::TOO_EARLY
        {
            // The server saw the request before it knew the client. Now it does.
            result = self.send(&self.late, Request::from_parts(head, full(""))).await;
        }
        if let Some(waiting) = waiting {
            waiting.over();
        }
        let mut response = match result {
            Ok(response) => self.pass(response),
            Err(reason) => told(&reason),
        };
        if chunked {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The authority of a request's URI.
    fn check(&self, request: &Request<Incoming>) -> Result<Authority, (StatusCode, &'static str)> {
        let bad = |text| (StatusCode::BAD_REQUEST, text);
        let uri = request.uri();
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(bad("this proxy forwards http only: for https use CONNECT"));
        }
        let authority = uri.authority().ok_or_else(|| bad("the URI has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("the URI has a user's name, which is not sent to servers"));
        }
        if named(authority).is_none() {
            return Err(bad("the URI has no valid host and port"));
        }
        if headers::is_ambiguous(request.headers()) {
            return Err(bad("the length of the request, or its host, is there twice"));
        }
        match *request.method() {
            // It would show the client's own fields, and those of proxies.
            Method::TRACE => Err((StatusCode::METHOD_NOT_ALLOWED, "this proxy forwards no TRACE")),
            _ => Ok(authority.clone()),
        }
    }

    async fn send(&self, client: &Client, request: Request<Body>) -> Result<Response<Incoming>, Told> {
        let limit = self.shared.limits.connect_timeout + self.shared.limits.response_timeout;
        match timeout(limit, client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(failure(&error)),
            Err(_) => Err(Told::of(&Failure::ResponseTimedOut)),
        }
    }

    fn pass(&self, response: Response<Incoming>) -> Response<Body> {
        let (mut head, body) = response.into_parts();
        if head.status.is_informational() {
            return told(&Told::of(&Failure::Response("the server changed the protocol".into())));
        }
        headers::forward_response(&mut head.headers, head.version);
        head.version = Version::HTTP_11;
        head.extensions.clear();
        Response::from_parts(head, passing(body, self.shared.limits.idle_timeout))
    }
}

/// The server that the authority of a URI names.
fn named(authority: &Authority) -> Option<firstflight::Authority> {
    firstflight::Authority::new(authority.host(), authority.port_u16().unwrap_or(80)).ok()
}

/// The server that a CONNECT names.
pub(crate) fn connect_target(uri: &Uri) -> Option<firstflight::Authority> {
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    firstflight::Authority::new(authority.host(), authority.port_u16()?).ok()
}

/// Says why there is no response, or no tunnel.
pub(crate) fn told(reason: &Told) -> Response<Body> {
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
mod tests {
    use super::*;

    #[test]
    fn a_connect_names_a_host_and_a_port() {
        let target = |text: &str| text.parse::<Uri>().ok().and_then(|uri| connect_target(&uri));
        let shown = |text: &str| target(text).map(|server| server.to_string());
        assert_eq!(shown("www.Example.com:443").as_deref(), Some("www.example.com:443"));
        assert_eq!(shown("[2001:db8::1]:443").as_deref(), Some("[2001:db8::1]:443"));
        for wrong in
            ["www.example.com", "me@www.example.com:443", "www.example.com:0", "0x7f.1:443", "10.1:443"]
        {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_ports_of_the_web_are_no_other_services() {
        for port in [80, 443, 3000, 5000, 8000, 8080, 8443, 9090] {
            assert!(!OTHER_SERVICES.contains(&port), "{port}");
        }
        assert!([22, 25, 6667].iter().all(|port| OTHER_SERVICES.contains(port)));
    }
}
