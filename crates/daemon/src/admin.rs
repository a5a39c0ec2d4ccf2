//! The admin address: `/metrics`, `/healthz` and `/readyz`.

use bytes::Bytes;
use firstflight_http::conn::ServerIo;
use firstflight_http::framing::refusal;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Questions at the same time. Further ones wait.
const QUESTIONS: usize = 16;
/// How long a question and its answer may take together.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

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
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Admin {
    /// Listens at `at`, and answers with what `shows` says.
    ///
    /// # Errors
    /// When listening fails.
    pub async fn bind(at: SocketAddr, shows: impl Shows) -> io::Result<Self> {
        let listener = TcpListener::bind(at).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: tokio::spawn(run(listener, Arc::new(shows))) })
    }

    /// The address, with the port that was chosen for port 0.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run<S: Shows>(listener: TcpListener, shows: Arc<S>) {
    let places = Arc::new(Semaphore::new(QUESTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shows = Arc::clone(&shows);
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(TIMEOUT, answer(stream, shows)).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a question was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn answer<S: Shows>(stream: TcpStream, shows: Arc<S>) {
    let service = service_fn(move |request| {
        let (parts, _) = Request::into_parts(request);
        let response = respond(&*shows, &parts);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .half_close(true)
        // One question for each connection: one that stays open would keep its place.
        .keep_alive(false)
        .serve_connection(TokioIo::new(ServerIo::for_question(stream)), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a question ended");
    }
}

fn respond(shows: &impl Shows, request: &Parts) -> Response<Full<Bytes>> {
    let plain = "text/plain; charset=utf-8";
    if let Some(status) = refusal(request) {
        let mut response = Response::new(Full::new(Bytes::from(format!("{status}\n"))));
        *response.status_mut() = status;
        return response;
    }
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
