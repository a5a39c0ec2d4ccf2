//! Requests of HTTP/1.1 and HTTP/2.

mod body;
mod conn;
mod early;
mod forward;
mod login;
mod reply;
mod send;
mod trial;
mod tunnel;

pub(crate) use body::Upload;

use crate::client::{Client, ClientFacts};
use crate::config::Listener;
use crate::connection::Guards;
use crate::limits::{ClientPermit, Clients};
use crate::log::{Entry, Event};
use crate::site::Site;
use arc_swap::ArcSwap;
use conn::{Fresh, Io, Watch};
use firstflight_http::body::RequestBody;
use firstflight_http::{forwarded, framing, http2};
use firstflight_tls::{H2, ServedSeal};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::fmt::Display;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// How long a connection that is to end may take for it, where nothing else says so.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long a connection of HTTP/1.1 without a request stays open when the listener ends. A request may be on its way, or wait
/// unread, and its client could not know whether it ran.
const LAST_CALL: Duration = Duration::from_secs(2);
/// How soon a connection that may be idle is looked at again.
const AGAIN: Duration = Duration::from_secs(1);
/// The gateway's own limit is shorter than any idle time that makes sense.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What the requests of one connection share.
pub(crate) struct Context {
    site: Arc<ArcSwap<Site>>,
    about: ClientFacts,
    /// The name that TLS asked for.
    sni: Option<String>,
    tls: bool,
    watch: Watch,
    activity: Activity,
    shared: Shared,
    draining: watch::Receiver<bool>,
    /// Connections to backends that belong to this client.
    logins: login::Logins,
    /// It speaks HTTP/2.
    is_http2: bool,
}

/// What the connection shares with others, or with a tunnel that it becomes.
pub(crate) struct Shared {
    pub(crate) guards: Arc<Guards>,
    pub(crate) clients: Clients,
}

impl Context {
    /// The address of the client whose request has these fields. A trusted proxy may speak for it.
    fn client(&self, headers: &HeaderMap, config: &Listener) -> IpAddr {
        forwarded::client(headers, config.forwarded, self.about.peer.ip(), |address| config.trusts(address))
    }

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
        Busy { activity: self.clone(), place: None }
    }

    /// Since when there is no request. `None` if there is one.
    fn idle_since(&self) -> Option<Instant> {
        let since = *self.0.1.lock().unwrap_or_else(PoisonError::into_inner);
        (self.0.0.load(Ordering::Relaxed) == 0).then_some(since)
    }
}

/// A request under way.
struct Busy {
    activity: Activity,
    /// Its place among those of its client.
    place: Option<Arc<ClientPermit>>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        let (count, since) = &*self.activity.0;
        *since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection to its end. `draining` changes when it is to end after the requests under way.
pub(crate) async fn serve(
    client: Client,
    site: &Arc<ArcSwap<Site>>,
    draining: watch::Receiver<bool>,
    shared: Shared,
) {
    let now = site.load_full();
    let (about, from) = (client.about(), client.arrival());
    let io = match &now.acceptor {
        None => Io::Plain(Box::new(client)),
        Some(acceptor) => match acceptor.accept_from(client, from).await {
            Ok(stream) => Io::Tls(Box::new(stream)),
            Err(error) => {
                tracing::debug!(listener = now.name(), peer = %about.peer, %error, "no TLS");
                crate::metrics::refused(now.name(), "tls");
                // There is no other line about it. Of a sealed flight, the request has run, or may have.
                let mut entry = Entry::new(&now, Event::Connection, about);
                entry.end = Some("no-tls");
                if let Some(seal) = ServedSeal::failed(&error) {
                    entry.seal = Some((seal.outcome.name(), seal.reason));
                    entry.end = Some("stopped");
                }
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
    let mut fresh = Fresh::new(io, about.marked, &now.config);
    let is_http2 = match protocol.as_deref() {
        Some(H2) => {
            fresh.switch();
            true
        }
        _ if tls => false,
        // Without TLS it is the client's first bytes that tell.
        _ => {
            let mut draining = draining.clone();
            let last_call = async {
                drained(&mut draining).await;
                sleep(LAST_CALL).await;
            };
            let speaks = tokio::select! {
                speaks = fresh.speaks_http2() => speaks,
                () = sleep(now.config.idle()) => None,
                () = last_call => None,
            };
            if let Some((method, target)) = fresh.begun() {
                prepare(&now, method, target);
            }
            match speaks {
                Some(speaks) => speaks,
                None => return,
            }
        }
    };
    let (io, watch) = fresh.share();
    let (site, activity) = (Arc::clone(site), Activity::new());
    let logins = login::Logins::default();
    let draining_too = draining.clone();
    let context =
        Context { site, about, sni, tls, watch, activity, shared, draining: draining_too, logins, is_http2 };
    let (context, idle) = (Arc::new(context), now.config.idle());
    let serving = Arc::clone(&context);
    if is_http2 {
        let service = move |request: Request<RequestBody>| forward::handle(request, Arc::clone(&serving));
        let (wanted, client) = (window_of_all(&now.config), context.about.peer.ip());
        let most = now.config.max_buffered_per_client;
        // As long as the connection.
        let reserved = context.shared.clients.reserve(client, wanted.into(), SMALLEST_WINDOW.into(), most);
        let window =
            reserved.as_ref().and_then(|place| u32::try_from(place.bytes()).ok()).unwrap_or(SMALLEST_WINDOW);
        let connection = http2::serve(io, &http2_settings(&now.config, window), service);
        drive(connection, (|mut it| it.graceful_shutdown(), |_| false), &context, draining, idle).await;
    } else {
        let service = service_fn(move |request: Request<Incoming>| {
            forward::handle(request.map(RequestBody::Http1), Arc::clone(&serving))
        });
        let connection = http1_builder(&now).serve_connection(TokioIo::new(io), service).with_upgrades();
        // What was sent of a response that has failed must not look whole to a client that waits for the end.
        let is_cut = |error: &hyper::Error| error.is_user();
        drive(connection, (|it| it.graceful_shutdown(), is_cut), &context, draining, idle).await;
    }
}

/// A request of which only the first line has come: has a connection ready where it will probably go.
fn prepare(site: &Site, method: &str, target: &str) {
    let path = target.split('?').next().unwrap_or(target);
    let service = site.service_for_request(None, path, method).map(|(service, _)| Arc::clone(service));
    if let Some(service) = service.filter(|service| service.has_connections()) {
        tokio::spawn(async move { service.prepare().await });
    }
}

/// The connection reads heads itself, with its own limits, and passes them on with lengths in another form.
fn http1_builder(site: &Site) -> http1::Builder {
    let config = &site.config;
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .half_close(true)
        .max_buf_size(head_room(*config.max_header_bytes.get_ref()));
    // What is passed on has no more fields than what came. With a number of its own hyper fills a list of them for each request.
    if config.max_headers > HEADERS {
        builder.max_headers(config.max_headers);
    }
    builder
}

/// How many fields hyper takes by itself.
const HEADERS: usize = 100;

fn http2_settings(config: &Listener, connection_window: u32) -> http2::Settings {
    http2::Settings {
        streams: config.max_streams.get(),
        head: *config.max_header_bytes.get_ref(),
        stream_window: *config.stream_window.get_ref(),
        connection_window,
        patience: config.body_timeout.0,
    }
}

/// hyper needs 8 KiB, and more than a head that is passed on to it.
fn head_room(most: u32) -> usize {
    (most as usize).saturating_add(2 * framing::MORE).max(8192)
}

/// RFC 9113 §6.9.2 allows no smaller window of a connection.
const SMALLEST_WINDOW: u32 = 65_535;

/// The window of a connection: what may wait for slow backends, and no more than its streams can use.
fn window_of_all(config: &Listener) -> u32 {
    let used = config.stream_window.get_ref().saturating_mul(config.max_streams.get());
    used.min(*config.connection_window.get_ref()).max(SMALLEST_WINDOW)
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
    (end, is_cut): (impl Fn(Pin<&mut C>), impl Fn(&E) -> bool),
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
    // Such a connection is not idle. The head has its own time.
    let head_has_begun = || !context.is_http2 && !context.watch.is_between();
    loop {
        let next = match phase {
            Phase::Open if head_has_begun() => Instant::now() + AGAIN,
            Phase::Open => activity.idle_since().unwrap_or_else(Instant::now) + idle,
            Phase::LastCall(until) | Phase::Ending(until) => until,
        };
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%peer, %error, "a connection ended");
                    if is_cut(&error) {
                        return context.watch.abort();
                    }
                }
                break;
            }
            () = drained(&mut draining), if phase == Phase::Open => {
                // HTTP/2 says which requests it takes. HTTP/1.1 says with its next response that it ends.
                phase = match context.is_http2 {
                    true => {
                        end(connection.as_mut());
                        Phase::Ending(Instant::now() + FOR_EVER)
                    }
                    false => Phase::LastCall(Instant::now() + LAST_CALL),
                };
            }
            () = sleep_until(next) => match phase {
                Phase::Ending(_) => return,
                Phase::LastCall(_) => {
                    end(connection.as_mut());
                    phase = Phase::Ending(Instant::now() + FOR_EVER);
                }
                Phase::Open if !head_has_begun() && activity.idle_since().is_some_and(|since| since.elapsed() >= idle) => {
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
