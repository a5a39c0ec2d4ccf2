//! The admin address: `/metrics`, `/healthz` and `/readyz`.

use bytes::Bytes;
use firstflight_http::conn::ServerIo;
use firstflight_http::framing::refusal;
use firstflight_http::own_pages::{self, NotOwn};
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// Connections at the same time. A further one takes the place of another.
const CONNECTIONS: usize = 64;
/// How long a client may take for its question, and not go on with the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);
/// Pause before the address is tried again, if listening failed.
const AGAIN: Duration = Duration::from_secs(2);

/// What a service shows at its admin address.
pub trait Shows: Send + Sync + 'static {
    /// The present counters in Prometheus' text format. `None` if they are not this program's to show.
    fn metrics(&self) -> Option<String>;

    /// Whether new connections should come.
    fn ready(&self) -> Ready;
}

/// Whether new connections should come to a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ready {
    /// Whether they should.
    pub is_ready: bool,
    /// What people may know about it: lines.
    pub text: String,
}

/// Answers at the admin address until it is dropped.
///
/// - It stops no service: while the address cannot be used, it is tried again, and a warning says so once.
/// - Connections without a question, or with a slow one, delay no others: a new one takes their place.
/// - A web page of another site gets no answers ([`own_pages`](firstflight_http::own_pages)).
#[derive(Debug)]
pub struct Admin {
    address: Option<SocketAddr>,
    task: JoinHandle<()>,
}

impl Admin {
    /// Answers at `at` with what `shows` says. The host of a question is an IP address, a name that nobody else can have, or
    /// one of `hosts`.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn start(at: SocketAddr, hosts: Vec<String>, shows: impl Shows) -> Self {
        let source = Arc::new(Source { shows, hosts, patience: PATIENCE });
        match listen(at).await {
            Ok((listener, address)) => {
                Self { address: Some(address), task: tokio::spawn(run(listener, source)) }
            }
            Err(error) => {
                tracing::warn!(
                    "{at} cannot be used for metrics: {error}; trying again every {} s",
                    AGAIN.as_secs()
                );
                Self { address: None, task: tokio::spawn(later(at, source)) }
            }
        }
    }

    /// The address, with the port that was chosen for port 0. `None` if listening failed at first.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Source<S> {
    shows: S,
    hosts: Vec<String>,
    patience: Duration,
}

async fn listen(at: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(at).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Listens as soon as the address can be used.
async fn later<S: Shows>(at: SocketAddr, source: Arc<Source<S>>) {
    loop {
        tokio::time::sleep(AGAIN).await;
        if let Ok((listener, address)) = listen(at).await {
            tracing::warn!("{address} can be used for metrics now");
            return run(listener, source).await;
        }
    }
}

/// A connection, oldest first.
struct AdminConnection {
    task: AbortHandle,
    /// It has asked its question.
    has_asked: Arc<AtomicBool>,
}

async fn run<S: Shows>(listener: TcpListener, source: Arc<Source<S>>) {
    let (mut tasks, mut open) = (JoinSet::new(), VecDeque::new());
    loop {
        let stream = tokio::select! {
            // Connections that have ended make no other one end.
            biased;
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "a question was not accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        open.retain(|open: &AdminConnection| !open.task.is_finished());
        if open.len() >= CONNECTIONS {
            let silent = open.iter().position(|open| !open.has_asked.load(Ordering::Relaxed));
            if let Some(oldest) = open.remove(silent.unwrap_or(0)) {
                oldest.task.abort();
            }
        }
        let (source, has_asked) = (Arc::clone(&source), Arc::new(AtomicBool::new(false)));
        let asked = Arc::clone(&has_asked);
        let task = tasks.spawn(async move {
            let _ = tokio::time::timeout(3 * source.patience, answer(stream, &source, &asked)).await;
        });
        open.push_back(AdminConnection { task, has_asked });
    }
}

async fn answer<S: Shows>(stream: TcpStream, source: &Source<S>, has_asked: &AtomicBool) {
    let service = service_fn(|request| {
        has_asked.store(true, Ordering::Relaxed);
        let (parts, _) = Request::into_parts(request);
        let response = respond(source, &parts);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .half_close(true)
        // One question for each connection.
        .keep_alive(false)
        .serve_connection(TokioIo::new(ServerIo::for_question(stream, source.patience)), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a question ended");
    }
}

fn respond<S: Shows>(source: &Source<S>, request: &Parts) -> Response<Full<Bytes>> {
    let plain = "text/plain; charset=utf-8";
    if let Some(status) = refusal(request) {
        let mut response = Response::new(Full::new(Bytes::from(format!("{status}\n"))));
        *response.status_mut() = status;
        return response;
    }
    let is_own = |host: &str| {
        own_pages::is_private(host) || source.hosts.iter().any(|name| own_pages::is_name(host, name))
    };
    if let Err(why) = own_pages::check(&request.headers, is_own) {
        let (status, text) = match why {
            NotOwn::Host => (
                StatusCode::MISDIRECTED_REQUEST,
                "the Host is a name that is not known here: ask at the IP address, or name it where this address is set\n",
            ),
            NotOwn::Site => (StatusCode::FORBIDDEN, "the request comes from another site\n"),
        };
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        return response;
    }
    let shows = &source.shows;
    let (status, kind, text) = match (&request.method, request.uri.path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => match shows.metrics() {
            Some(text) => (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text),
            None => (StatusCode::NOT_FOUND, plain, "this program has a recorder of its own\n".to_owned()),
        },
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, plain, "alive\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => {
            let Ready { is_ready, text } = shows.ready();
            let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            (status, plain, text)
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, plain, "there are /metrics, /healthz and /readyz\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, plain, "GET only\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests;
