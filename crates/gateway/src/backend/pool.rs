//! Connections to backends that are kept open for further requests.

use super::{Backend, BackendIo, DialError, Lease, Service};
use crate::config::BackendProtocol;
use crate::http::Upload;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Buffers of one connection to a backend, bytes. The head of a response must fit. What waits for a slow reader is in them.
const BUFFER: usize = 32 * 1024;
/// Header lines of a response.
const HEADERS: usize = 200;
/// A connection of HTTP/2 is asked this often whether it still works.
const PING: Duration = Duration::from_secs(20);

/// The open connections of one backend.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<(http1::SendRequest<Upload>, Instant)>>,
    /// One connection of HTTP/2 has all requests.
    shared: tokio::sync::Mutex<Option<http2::SendRequest<Upload>>>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// A connection that is ready for a request: the one that was used last.
    fn take(&self, within: Duration) -> Option<http1::SendRequest<Upload>> {
        let now = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = idle.len();
        while at > 0 {
            at -= 1;
            let (sender, since) = idle.get(at)?;
            if sender.is_closed() || now.saturating_duration_since(*since) >= within {
                idle.remove(at);
            } else if sender.is_ready() {
                return Some(idle.remove(at).0);
            }
        }
        None
    }

    fn put(&self, sender: http1::SendRequest<Upload>, most: usize) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= most && !idle.is_empty() {
            idle.remove(0);
        }
        if idle.len() < most {
            idle.push((sender, Instant::now()));
        }
    }

    /// Closes connections that nobody has used for this long.
    pub(crate) fn close_idle(&self, within: Duration) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(sender, since)| !sender.is_closed() && since.elapsed() < within);
    }
}

/// Sends requests to a backend.
pub(crate) enum Sender {
    Http1(http1::SendRequest<Upload>),
    Http2(http2::SendRequest<Upload>),
}

/// Why a request got no response.
pub(crate) struct SendError {
    /// The request, if it was not sent at all.
    pub(crate) unsent: Option<Request<Upload>>,
    pub(crate) error: hyper::Error,
}

impl From<TrySendError<Request<Upload>>> for SendError {
    fn from(mut error: TrySendError<Request<Upload>>) -> Self {
        Self { unsent: error.take_message(), error: error.into_error() }
    }
}

impl Sender {
    /// Sends a request.
    ///
    /// # Errors
    /// When the connection failed.
    pub(crate) async fn send(&mut self, request: Request<Upload>) -> Result<Response<Incoming>, SendError> {
        Ok(match self {
            Self::Http1(sender) => sender.try_send_request(request).await?,
            Self::Http2(sender) => sender.try_send_request(request).await?,
        })
    }

    /// Keeps the connection for further requests. It has them when it is ready, which may take a moment.
    pub(crate) fn keep(self, backend: &Backend, most: usize) {
        let Self::Http1(sender) = self else { return };
        if !sender.is_closed() {
            backend.pool.put(sender, most);
        }
    }
}

/// How a request gets its connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct Open<'a> {
    /// The PROXY header of the connection, which is then for this request alone.
    pub(crate) header: Option<&'a [u8]>,
    /// A new connection only.
    pub(crate) fresh: bool,
    /// Backends at which the request failed already. They are used only if there is no other one.
    pub(crate) avoid: &'a [Arc<Backend>],
}

/// A connection for a request.
pub(crate) struct Opened {
    pub(crate) sender: Sender,
    pub(crate) lease: Lease,
    /// It had requests before, so the backend may be about to close it.
    pub(crate) reused: bool,
}

impl Service {
    /// A connection for a request, to any backend that can be reached.
    ///
    /// # Errors
    /// The last one.
    pub(crate) async fn open(&self, how: Open<'_>) -> Result<Opened, DialError> {
        let (mut tried, mut last) = (how.avoid.to_vec(), DialError::NoBackend);
        let mut avoided = tried.len();
        for _ in 0..=self.config.retries {
            let lease = self.choose(&tried).or_else(|| {
                tried.drain(..std::mem::take(&mut avoided));
                self.choose(&tried)
            });
            let Some(lease) = lease else { break };
            match self.open_at(lease.backend(), how).await {
                Ok((sender, reused)) => return Ok(Opened { sender, lease, reused }),
                Err(error) => last = error,
            }
            tried.push(Arc::clone(lease.backend()));
        }
        Err(last)
    }

    async fn open_at(&self, backend: &Backend, how: Open<'_>) -> Result<(Sender, bool), DialError> {
        match (self.config.protocol, how.header) {
            (BackendProtocol::Http1, None) => {
                let kept = (!how.fresh).then(|| backend.pool.take(self.config.pool_idle.0)).flatten();
                match kept {
                    Some(sender) => Ok((Sender::Http1(sender), true)),
                    None => self.http1(self.dial(backend, None).await?).await.map(|sender| (sender, false)),
                }
            }
            (BackendProtocol::H2, None) => {
                let mut shared = backend.pool.shared.lock().await;
                if let Some(sender) = shared.as_ref().filter(|sender| !sender.is_closed() && !how.fresh) {
                    return Ok((Sender::Http2(sender.clone()), true));
                }
                let sender = http2_over(self.dial(backend, None).await?).await?;
                *shared = Some(sender.clone());
                Ok((Sender::Http2(sender), false))
            }
            (protocol, Some(header)) => {
                let io = self.dial(backend, Some(header)).await?;
                match protocol {
                    BackendProtocol::Http1 => self.http1(io).await.map(|sender| (sender, false)),
                    BackendProtocol::H2 => Ok((Sender::Http2(http2_over(io).await?), false)),
                }
            }
        }
    }

    async fn http1(&self, io: BackendIo) -> Result<Sender, DialError> {
        let mut builder = http1::Builder::new();
        builder.read_buf_exact_size(Some(BUFFER)).max_headers(HEADERS);
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(io::Error::other)?;
        tokio::spawn(connection.with_upgrades());
        Ok(Sender::Http1(sender))
    }
}

async fn http2_over(io: BackendIo) -> Result<http2::SendRequest<Upload>, DialError> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_send_buf_size(BUFFER)
        .max_header_list_size(BUFFER as u32)
        .keep_alive_interval(PING);
    let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}
