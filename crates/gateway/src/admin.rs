//! The admin address: `/metrics`, `/healthz` and `/readyz`.

use crate::backend::health::Known;
use crate::gateway::{Shown, publish};
use crate::metrics;
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
use std::fmt::Write;
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

/// Answers at the admin address until it is dropped.
pub(crate) struct Admin {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Admin {
    pub(crate) async fn bind(at: SocketAddr, shown: Shown) -> io::Result<Self> {
        let listener = TcpListener::bind(at).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: tokio::spawn(run(listener, shown)) })
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(listener: TcpListener, shown: Shown) {
    let places = Arc::new(Semaphore::new(QUESTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shown = shown.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(TIMEOUT, answer(stream, shown)).await;
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

async fn answer(stream: TcpStream, shown: Shown) {
    let service = service_fn(move |request| {
        let (parts, _) = Request::into_parts(request);
        let response = respond(&shown, &parts);
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

fn respond(shown: &Shown, request: &Parts) -> Response<Full<Bytes>> {
    let plain = "text/plain; charset=utf-8";
    if let Some(status) = refusal(request) {
        let mut response = Response::new(Full::new(Bytes::from(format!("{status}\n"))));
        *response.status_mut() = status;
        return response;
    }
    let (status, kind, text) = match (&request.method, request.uri.path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            publish(shown);
            match metrics::recorder() {
                Some(recorder) => {
                    (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", recorder.render())
                }
                None => (StatusCode::NOT_FOUND, plain, "this program has a recorder of its own\n".to_owned()),
            }
        }
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, plain, "alive\n".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => {
            let (status, text) = ready(shown);
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

/// Ready: it does not stop, and a service has a backend. One service that is down does not take the others away.
fn ready(shown: &Shown) -> (StatusCode, String) {
    let (stopping, services) = shown.with(|view| (view.stopping, view.services.clone()));
    let mut text = String::new();
    for service in &services {
        let all = service.backends();
        let count = |known| all.iter().filter(|backend| service.known(backend) == known).count();
        let (up, unknown) = (count(Known::Up), count(Known::Unknown));
        let unknown = if unknown == 0 { String::new() } else { format!(", {unknown} unknown") };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {up} of {} backends up{unknown}", service.name(), all.len());
    }
    let available = services.is_empty() || services.iter().any(|service| service.is_available());
    match (stopping, available) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, format!("stopping\n{text}")),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, format!("no backend is up\n{text}")),
        (false, true) => (StatusCode::OK, format!("ready\n{text}")),
    }
}
