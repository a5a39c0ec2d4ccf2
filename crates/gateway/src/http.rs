//! Requests of HTTP/1.1 and HTTP/2.

mod body;
mod conn;
mod early;
mod forward;
mod framing;
mod login;
mod reply;
mod resets;
mod tunnel;

pub(crate) use body::Upload;

use crate::client::{About, Client};
use crate::config::Listener;
use crate::connection::Guards;
use crate::site::Site;
use arc_swap::ArcSwap;
use conn::{Io, Watch};
use firstflight_tls::H2;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::fmt::Display;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Bytes of responses that wait in memory for each stream of a client that reads slowly.
const SEND_BUFFER: usize = 64 * 1024;
/// How long a connection that is to end may take for it, where nothing else says so.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long a connection of HTTP/1.1 without a request stays open when the listener ends. A request may be on its way, or wait
/// unread, and its client could not know whether it ran.
const LAST_CALL: Duration = Duration::from_secs(2);
/// How long the requests of a client that gave up too many others may still take.
const CALM: Duration = Duration::from_secs(1);
/// The gateway's own limit is shorter than any idle time that makes sense.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

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
    draining: watch::Receiver<bool>,
    /// Connections to backends that belong to this client.
    logins: login::Logins,
    /// Requests that it gave up.
    resets: resets::Resets,
    /// It speaks HTTP/2, as far as is known.
    h2: AtomicBool,
}

impl Context {
    /// Whether the connection is to end after the requests under way.
    fn is_ending(&self) -> bool {
        *self.draining.borrow()
    }
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
    let h2 = AtomicBool::new(protocol.as_deref() == Some(H2));
    let (site, activity, draining_too) = (Arc::clone(site), Activity::new(), draining.clone());
    let (logins, resets) = Default::default();
    let context = Context {
        site,
        about,
        sni,
        tls,
        watch,
        activity,
        guards,
        draining: draining_too,
        logins,
        resets,
        h2,
    };
    let (context, io, idle) = (Arc::new(context), TokioIo::new(io), now.config.idle());
    let service = {
        let context = Arc::clone(&context);
        service_fn(move |request| forward::handle(request, Arc::clone(&context)))
    };
    match protocol.as_deref() {
        // What TLS agreed on, and nothing else.
        Some(H2) => {
            let builder = builder(&now).http2_only();
            let connection = builder.serve_connection(io, service);
            drive(connection, |it| it.graceful_shutdown(), &context, draining, idle).await;
        }
        _ if tls => {
            let connection = http1_builder(&now).serve_connection(io, service).with_upgrades();
            drive(connection, |it| it.graceful_shutdown(), &context, draining, idle).await;
        }
        _ => {
            let builder = builder(&now);
            let connection = builder.serve_connection_with_upgrades(io, service);
            drive(connection, |it| it.graceful_shutdown(), &context, draining, idle).await;
        }
    }
}

/// HTTP/1.1 alone.
fn http1_builder(site: &Site) -> http1::Builder {
    let config = &site.config;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(config.header_timeout.0)
        .half_close(true)
        .max_headers(config.max_headers)
        .max_buf_size(head_room(*config.max_header_bytes.get_ref()));
    builder
}

/// hyper needs 8 KiB.
fn head_room(most: u32) -> usize {
    (most as usize).max(8192)
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
        .max_buf_size(head_room(head));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(config.max_streams)
        .max_header_list_size(head)
        .max_send_buf_size(SEND_BUFFER)
        // Not hyper's adaptive window: it gives a stream the window of the whole connection, so that one upload that
        // waits for its backend would stop all others.
        .initial_stream_window_size(*config.stream_window.get_ref())
        .initial_connection_window_size(window_of_all(config));
    builder
}

/// The window of a connection: what may wait for slow backends, and no more than its streams can use. RFC 9113 §6.9.2
/// allows no less than 65,535 bytes.
fn window_of_all(config: &Listener) -> u32 {
    let used = config.stream_window.get_ref().saturating_mul(config.max_streams.max(1));
    used.min(*config.connection_window.get_ref()).max(65_535)
}

async fn drained(draining: &mut watch::Receiver<bool>) {
    // The sender is gone when the listener is.
    let _ = draining.wait_for(|draining| *draining).await;
}

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The listener ends. A request that comes until then is answered.
    LastCall(Instant),
    /// It ends after the requests under way, and then at the latest.
    Ending(Instant),
}

async fn drive<C, E>(
    connection: C,
    end: impl Fn(Pin<&mut C>),
    context: &Context,
    mut draining: watch::Receiver<bool>,
    idle: Duration,
) where
    C: Future<Output = Result<(), E>>,
    E: Display,
{
    let (activity, peer) = (&context.activity, context.about.peer);
    let mut connection = pin!(connection);
    let mut phase = Phase::Open;
    loop {
        let next = match phase {
            Phase::Open => activity.idle_since().unwrap_or_else(Instant::now) + idle,
            Phase::LastCall(until) | Phase::Ending(until) => until,
        };
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%peer, %error, "a connection ended");
                }
                break;
            }
            () = drained(&mut draining), if phase == Phase::Open => {
                // HTTP/2 says which requests it takes. HTTP/1.1 says with its next response that it ends.
                phase = match context.h2.load(Ordering::Relaxed) {
                    true => {
                        end(connection.as_mut());
                        Phase::Ending(Instant::now() + FOR_EVER)
                    }
                    false => Phase::LastCall(Instant::now() + LAST_CALL),
                };
            }
            () = context.resets.too_many(), if phase == Phase::Open => {
                tracing::debug!(%peer, "a client gave up too many requests");
                crate::metrics::refused(context.site.load().name(), "resets");
                end(connection.as_mut());
                phase = Phase::Ending(Instant::now() + CALM);
            }
            () = sleep_until(next) => match phase {
                Phase::Ending(_) => return,
                Phase::LastCall(_) => {
                    end(connection.as_mut());
                    phase = Phase::Ending(Instant::now() + FOR_EVER);
                }
                Phase::Open if activity.idle_since().is_some_and(|since| since.elapsed() >= idle) => {
                    end(connection.as_mut());
                    phase = Phase::Ending(Instant::now() + FAREWELL);
                }
                Phase::Open => {}
            },
        }
    }
    context.watch.close().await;
}

#[cfg(test)]
mod tests;
