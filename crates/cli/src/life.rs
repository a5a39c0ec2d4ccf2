//! `--metrics`: counters in Prometheus' text format, over the operating system's own TCP.

use crate::error::Error;
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
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Maximum number of scrapes at the same time. Further ones wait.
const SCRAPES: usize = 16;
/// Pause after a failed accept, which may be caused by a lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Describes the series of a server.
pub fn describe() {
    firstflight::metrics::describe();
    #[cfg(feature = "tls")]
    firstflight_tls::metrics::describe();
}

/// Answers scrapes.
pub struct Exporter {
    listener: TcpListener,
    handle: PrometheusHandle,
}

impl Exporter {
    /// Listens at `at`, and installs the recorder of this process. `describe` gives the recorder the descriptions of
    /// the series.
    pub async fn bind(at: SocketAddr, describe: fn()) -> Result<Self, Error> {
        let fail = |error| Error::Metrics(at, error);
        let listener = TcpListener::bind(at).await.map_err(fail)?;
        let recorder = PrometheusBuilder::new().install_recorder();
        let handle = recorder.map_err(|error| fail(std::io::Error::other(error)))?;
        describe();
        Ok(Self { listener, handle })
    }

    /// Answers until it is dropped. `publish` updates the recorder with the present counters.
    pub async fn run(self, publish: impl FnMut() + Send + 'static) {
        let source = Arc::new(Source { publish: Mutex::new(Box::new(publish)), handle: self.handle });
        let mut scrapes = JoinSet::new();
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => scrapes.spawn(answer(stream, Arc::clone(&source))),
                Err(error) => {
                    tracing::debug!(%error, "a scrape was not accepted");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            while scrapes.len() >= SCRAPES && scrapes.join_next().await.is_some() {}
            while scrapes.try_join_next().is_some() {}
        }
    }
}

struct Source {
    publish: Mutex<Box<dyn FnMut() + Send>>,
    handle: PrometheusHandle,
}

impl Source {
    /// The present counters.
    fn render(&self) -> String {
        self.publish.lock().unwrap_or_else(PoisonError::into_inner)();
        self.handle.render()
    }
}

async fn answer(stream: TcpStream, source: Arc<Source>) {
    let stream = ServerIo::for_question(stream);
    let service = service_fn(move |request| {
        let (parts, _) = Request::into_parts(request);
        let response = respond(&source, &parts);
        async { Ok::<_, Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .half_close(true)
        // One scrape per connection: a connection that stays open would keep its place.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a scrape ended");
    }
}

fn respond(source: &Source, request: &Parts) -> Response<Full<Bytes>> {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    if let Some(status) = refusal(request) {
        let mut response = Response::new(Full::new(Bytes::from(format!("{status}\n"))));
        *response.status_mut() = status;
        return response;
    }
    let (status, kind, text) = match (&request.method, request.uri.path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
            (StatusCode::OK, kind, source.render())
        }
        (&Method::GET | &Method::HEAD, _) => {
            (StatusCode::NOT_FOUND, plain, "the counts are at /metrics\n".to_owned())
        }
        _ => (StatusCode::METHOD_NOT_ALLOWED, plain, "GET /metrics\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstflight::Endpoint;
    use firstflight::link::{PathConfig, real_time_pair};
    use firstflight::metrics::{Publisher, describe};
    use firstflight::{ConnectConfig, FirstFlight, ListenConfig};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn ask(at: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_scrape_shows_what_happened_just_before() {
        let path = PathConfig::default();
        let (a, b) = real_time_pair(path.clone(), path, 1).unwrap();
        let client = Endpoint::new(firstflight::config(vec!["10.0.0.1".parse().unwrap()]).unwrap(), a);
        let server = Endpoint::new(firstflight::config(vec!["10.0.0.2".parse().unwrap()]).unwrap(), b);
        let port = SocketAddr::from(([10, 0, 0, 2], 80));
        let listener = server.listen(ListenConfig::new(port)).unwrap();
        let exporter = Exporter::bind(SocketAddr::from(([127, 0, 0, 1], 0)), describe).await.unwrap();
        let at = exporter.listener.local_addr().unwrap();
        let mut publisher = Publisher::new(server.clone());
        let running = tokio::spawn(exporter.run(move || publisher.publish()));

        let fast = ConnectConfig::default().fast_open(true);
        for expected in 1..=3 {
            let first = FirstFlight::empty();
            let (ours, theirs) = tokio::join!(client.connect(port, first, &fast), listener.accept());
            let _held = (ours.unwrap(), theirs.unwrap());
            let text = ask(at, "/metrics").await;
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            let line = format!(
                "firstflight_first_flights_total{{side=\"server\",outcome=\"handshake\",reason=\"policy\"}} {expected}\n"
            );
            assert!(text.contains(&line), "{text}");
        }
        assert!(ask(at, "/").await.starts_with("HTTP/1.1 404 "));
        running.abort();
    }

    /// The scraper still sends when the answer comes.
    #[tokio::test]
    async fn a_refused_upload_is_answered() {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let at = listener.local_addr().unwrap();
        let handle = PrometheusBuilder::new().build_recorder().handle();
        let source = Arc::new(Source { publish: Mutex::new(Box::new(|| {})), handle });
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, Arc::clone(&source)));
            }
        });
        let upload = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 3 << 20);
        let upload = [upload.into_bytes(), vec![b'x'; 3 << 20]].concat();
        let long =
            format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(120_000)).into_bytes();
        for (request, status) in [(upload, "405"), (long, "431")] {
            let mut stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(&request).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
        }
    }
}
