//! How a request gets a connection to a backend: one that is kept, a place on one that is shared, or a new one.

use super::body::Incoming2;
use super::h2::{BackendHold, Link, Slot};
use super::shared::{Dial, Shared};
use super::{Backend, BackendIo, DialError, Lease, Service};
use crate::config::BackendProtocol;
use crate::http::{BoxError, Upload};
use bytes::Bytes;
use firstflight_http::heard::{CountedStream, Heard};
use firstflight_http::idle::Idle;
use firstflight_http::resend::{AttemptFate, Before};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;

/// Buffers of one connection to a backend, bytes. The head of a response must fit. What waits for a slow reader is in them.
const BUFFER: usize = 32 * 1024;

/// The open connections of one backend.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Idle<Http1>,
    shared: Arc<Shared>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Pool {
    /// Closes connections that nobody has used for this long.
    pub(crate) fn close_idle(&self, within: Duration) {
        self.idle.close_idle(within);
        self.shared.close_idle(within);
    }

    /// Closes one that nobody uses. Returns false if there is none.
    pub(super) fn close_one(&self) -> bool {
        self.idle.close_one() || self.shared.close_one()
    }
}

/// A connection of HTTP/1.
pub(crate) struct Http1 {
    sender: http1::SendRequest<Upload>,
    heard: Heard,
}

impl firstflight_http::idle::Kept for Http1 {
    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }
}

/// Sends a request to a backend.
pub(crate) enum Sender {
    Http1(Http1),
    /// `None` when the request is sent.
    Http2(Option<Slot>),
}

/// The body of a response.
pub(crate) enum AnsweredBody {
    Http1(Incoming),
    Http2(Incoming2),
}

/// Why a request got no response.
pub(crate) struct SendError {
    /// Whether it was executed.
    pub(crate) fate: AttemptFate,
    pub(crate) error: BoxError,
}

impl Sender {
    /// Sends a request.
    /// Errors: when there is no response.
    pub(crate) async fn send(
        &mut self,
        request: Request<Upload>,
    ) -> Result<Response<AnsweredBody>, SendError> {
        match self {
            Self::Http1(Http1 { sender, heard }) => {
                let before = Before::now(heard);
                let sent = sender.try_send_request(request).await;
                sent.map(|response| response.map(AnsweredBody::Http1)).map_err(|mut error| {
                    let unsent = error.take_message().is_some();
                    let error = error.into_error();
                    SendError { fate: before.fate(heard, unsent, &error), error: error.into() }
                })
            }
            Self::Http2(slot) => match slot.take() {
                Some(slot) => slot.send(request).await,
                None => Err(SendError { fate: AttemptFate::Answered, error: "the place was used".into() }),
            },
        }
    }

    /// Keeps the connection for further requests. It has them when it is ready, which may take a moment.
    pub(crate) fn keep(self, backend: &Backend, most: usize) {
        if let Self::Http1(connection) = self {
            backend.pool.idle.put(connection, most);
        }
    }

    /// Holds this until the request is over at the backend. A client that has left may still have it.
    pub(crate) fn hold(&mut self, held: Option<BackendHold>) {
        if let Self::Http2(Some(slot)) = self {
            slot.hold(held);
        }
    }

    /// Waits until the connection can have another request. False if it has ended, or is one that is shared.
    pub(crate) async fn is_ready(&mut self) -> bool {
        match self {
            Self::Http1(Http1 { sender, .. }) => sender.ready().await.is_ok(),
            Self::Http2(_) => false,
        }
    }

    /// Whether requests of several clients may share the connection.
    pub(crate) const fn is_shared(&self) -> bool {
        matches!(self, Self::Http2(_))
    }
}

impl Body for AnsweredBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Http1(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Http2(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

/// How a request gets its connection.
#[derive(Clone, Copy, Default)]
pub(crate) struct PoolOpen<'a> {
    /// The PROXY header of the connection, which is then for this request alone.
    pub(crate) header: Option<&'a [u8]>,
    /// A new connection only.
    pub(crate) fresh: bool,
    /// A connection that no other client's request shares.
    pub(crate) alone: bool,
    /// The request has a body.
    pub(crate) with_body: bool,
    /// Backends at which the request failed already. They are used only if there is no other one.
    pub(crate) avoid: &'a [Arc<Backend>],
}

pub(crate) struct RequestConnection {
    pub(crate) sender: Sender,
    pub(crate) lease: Lease,
    /// It had requests before, so the backend may be about to close it.
    pub(crate) kept: bool,
}

impl Service {
    /// A connection for a request, to any backend that can be reached.
    /// Errors: the last one.
    pub(crate) async fn open(self: &Arc<Self>, how: PoolOpen<'_>) -> Result<RequestConnection, DialError> {
        let (mut tried, mut last) = (how.avoid.to_vec(), DialError::NoBackend);
        let mut avoided = tried.len();
        for _ in 0..=self.config.retries {
            let lease = self.choose(&tried).or_else(|| {
                tried.drain(..std::mem::take(&mut avoided));
                self.choose(&tried)
            });
            let Some(lease) = lease else { break };
            match self.open_at(lease.backend(), how).await {
                Ok((sender, kept)) => return Ok(RequestConnection { sender, lease, kept }),
                Err(error) => last = error,
            }
            tried.push(Arc::clone(lease.backend()));
        }
        Err(last)
    }

    /// Whether its requests share connections that are kept.
    pub(crate) fn has_connections(&self) -> bool {
        let kept = self.config.pool > 0 || self.config.protocol == BackendProtocol::H2;
        kept && !self.config.proxy_protocol && !self.config.trial && self.files().is_none()
    }

    /// Has a connection ready for a request that is about to come, unless many are being made so. Nothing is sent on it. A
    /// backend that cannot be reached is found out by the request.
    pub(crate) async fn prepare(self: &Arc<Self>) {
        let Ok(_place) = self.preparing.try_acquire() else { return };
        if let Ok(RequestConnection { sender, lease, .. }) = self.open(PoolOpen::default()).await {
            sender.keep(lease.backend(), self.config.pool);
        }
    }

    async fn open_at(
        self: &Arc<Self>,
        backend: &Arc<Backend>,
        how: PoolOpen<'_>,
    ) -> Result<(Sender, bool), DialError> {
        match self.config.protocol {
            BackendProtocol::Http1 => {
                let pooled = how.header.is_none() && !how.fresh;
                let kept = pooled.then(|| backend.pool.idle.take(self.config.pool_idle.0)).flatten();
                match kept {
                    Some(connection) => Ok((Sender::Http1(connection), true)),
                    None => Ok((http1(self.dial(backend, how.header).await?).await?, false)),
                }
            }
            BackendProtocol::H2 if how.header.is_none() && !how.alone => {
                let (most, within) = (self.most_streams(), self.config.connect_timeout.0);
                let dial = |dial| self.dial_shared(backend, dial);
                let slot = backend.pool.shared.place(how.with_body, most, within, dial).await?;
                let kept = slot.kept;
                Ok((Sender::Http2(Some(slot)), kept))
            }
            BackendProtocol::H2 => {
                let link = self.link(self.dial(backend, how.header).await?, Arc::default()).await?;
                Ok((Sender::Http2(link.take()), false))
            }
        }
    }

    /// Makes a connection that requests share. It goes on if the request that began it ends.
    fn dial_shared(self: &Arc<Self>, backend: &Arc<Backend>, dial: Dial) {
        let (service, backend) = (Arc::clone(self), Arc::clone(backend));
        tokio::spawn(async move {
            let changed = backend.pool.shared.changed();
            let making = async { service.link(service.dial(&backend, None).await?, changed).await };
            dial.done(making.await);
        });
    }

    fn most_streams(&self) -> usize {
        self.config.max_streams as usize
    }

    async fn link(&self, io: BackendIo, freed: Arc<Notify>) -> Result<Arc<Link>, DialError> {
        let made = Link::over(io, *self.config.stream_window.get_ref(), self.most_streams(), freed).await;
        made.map_err(|error| io::Error::other(error).into())
    }
}

async fn http1(io: BackendIo) -> Result<Sender, DialError> {
    let mut builder = http1::Builder::new();
    builder.read_buf_exact_size(Some(BUFFER));
    let (io, heard) = CountedStream::new(io);
    let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(io::Error::other)?;
    tokio::spawn(connection.with_upgrades());
    Ok(Sender::Http1(Http1 { sender, heard }))
}
