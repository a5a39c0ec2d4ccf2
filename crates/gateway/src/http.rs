//! Requests of HTTP/1.1 and HTTP/2.

mod body;
mod conn;
mod early;
mod forward;
mod framing;
mod headers;
mod reply;
mod target;
mod tunnel;

pub(crate) use body::Upload;

use crate::client::{About, Client};
use crate::connection::Guards;
use crate::site::Site;
use arc_swap::ArcSwap;
use conn::{ForHyper, Io, Watch};
use firstflight_tls::{H2, HTTP_1_1};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Bytes of responses that wait in memory for each stream of a client that reads slowly.
const SEND_BUFFER: usize = 64 * 1024;
/// How long a connection that is to end may take for it, where nothing else says so.
const FAREWELL: Duration = Duration::from_secs(10);

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the requests of one connection share.
pub(crate) struct Context {
    site: Arc<ArcSwap<Site>>,
    about: About,
    /// The name that TLS asked for.
    sni: Option<String>,
    tls: bool,
    watch: Watch,
    activity: Activity,
    guards: Arc<Guards>,
}

/// How many requests are under way, and when the last one ended.
#[derive(Clone)]
struct Activity(Arc<(AtomicUsize, Mutex<Instant>)>);

impl Activity {
    fn new() -> Self {
        Self(Arc::new((AtomicUsize::new(0), Mutex::new(Instant::now()))))
    }

    /// A request begins. It ends when the result is dropped.
    fn begin(&self) -> Busy {
        self.0.0.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Since when there is no request. `None` if there is one.
    fn idle_since(&self) -> Option<Instant> {
        let since = *self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        (self.0.0.load(Ordering::Relaxed) == 0).then_some(since)
    }
}

/// A request under way.
struct Busy(Activity);

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.0.1.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection to its end. `draining` changes when it is to end after the requests under way.
pub(crate) async fn serve(
    client: Client,
    site: &Arc<ArcSwap<Site>>,
    draining: watch::Receiver<bool>,
    guards: Arc<Guards>,
) {
    let now = site.load_full();
    let about = client.about();
    let io = match &now.acceptor {
        None => Io::Plain(Box::new(client)),
        Some(acceptor) => match acceptor.accept_behind(client, Vec::new()).await {
            Ok(stream) => Io::Tls(Box::new(stream)),
            Err(error) => {
                tracing::debug!(listener = now.name(), peer = %about.peer, %error, "no TLS");
                crate::metrics::refused(now.name(), "tls");
                return;
            }
        },
    };
    let (tls, sni, protocol) = match &io {
        Io::Plain(_) => (false, None, None),
        Io::Tls(stream) => {
            let name = stream.server_name().map(str::to_ascii_lowercase);
            (true, name, stream.alpn().map(<[u8]>::to_vec))
        }
    };
    let (io, watch) = conn::share(io, about.marked, now.config.body_timeout.0);
    let context =
        Context { site: Arc::clone(site), about, sni, tls, watch, activity: Activity::new(), guards };
    let builder = match protocol.as_deref() {
        Some(H2) => builder(&now).http2_only(),
        Some(HTTP_1_1) => builder(&now).http1_only(),
        _ if tls => builder(&now).http1_only(),
        _ => builder(&now),
    };
    drive(builder, io, context, draining, now.config.idle()).await;
}

fn builder(site: &Site) -> auto::Builder<TokioExecutor> {
    let config = &site.config;
    let head = *config.max_header_bytes.get_ref();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout.0)
        .half_close(true)
        .max_headers(config.max_headers)
        // hyper needs 8 KiB.
        .max_buf_size((head as usize).max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.max_streams)
        .max_header_list_size(head)
        .max_send_buf_size(SEND_BUFFER)
        // The connection's window has room for the windows of all streams: a stream whose request waits stops no other.
        .initial_stream_window_size(config.stream_window)
        .initial_connection_window_size(window_of_all(config.stream_window, config.max_streams));
    builder
}

fn window_of_all(stream: u32, streams: u32) -> u32 {
    stream.saturating_mul(streams.max(1)).clamp(65_535, (1 << 31) - 1)
}

async fn drained(draining: &mut watch::Receiver<bool>) {
    // The sender is gone when the listener is.
    let _ = draining.wait_for(|draining| *draining).await;
}

async fn drive(
    builder: auto::Builder<TokioExecutor>,
    io: ForHyper,
    context: Context,
    mut draining: watch::Receiver<bool>,
    idle: Duration,
) {
    let (activity, peer) = (context.activity.clone(), context.about.peer);
    let context = Arc::new(context);
    let service = service_fn(move |request| forward::handle(request, Arc::clone(&context)));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    let mut ending = None;
    loop {
        let next = ending.unwrap_or_else(|| activity.idle_since().unwrap_or_else(Instant::now) + idle);
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%peer, %error, "a connection ended");
                }
                return;
            }
            () = drained(&mut draining), if ending.is_none() => {
                connection.as_mut().graceful_shutdown();
                // The gateway's own limit is shorter than any idle time that makes sense.
                ending = Some(Instant::now() + Duration::from_secs(24 * 3600));
            }
            () = sleep_until(next) => match ending {
                Some(_) => return,
                None if activity.idle_since().is_some_and(|since| since.elapsed() >= idle) => {
                    connection.as_mut().graceful_shutdown();
                    ending = Some(Instant::now() + FAREWELL);
                }
                None => {}
            },
        }
    }
}

#[cfg(test)]
mod tests;
