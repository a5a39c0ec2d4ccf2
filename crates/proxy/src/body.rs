//! Bodies of requests and responses.

use crate::conn::Conn;
use crate::connector::Link;
use crate::pool::Pool;
use bytes::Bytes;
use firstflight_http::conn::Left;
use firstflight_http::fields::clean_trailers;
use firstflight_http::patience::poll_over;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Why a body ended early.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body of any kind.
pub(crate) type Body = UnsyncBoxBody<Bytes, BodyError>;

/// A body that is at hand.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that comes from a peer. It fails if the peer pauses for longer than `idle`. Of its trailers only what may be in
/// trailers goes on.
pub(crate) struct Passing {
    body: Incoming,
    idle: Duration,
    until: Option<Pin<Box<Sleep>>>,
}

impl Passing {
    pub(crate) fn new(body: Incoming, idle: Duration) -> Self {
        Self { body, idle, until: None }
    }

    /// From now on the peer may pause for less.
    fn shorten(&mut self, idle: Duration) {
        if idle < self.idle {
            (self.idle, self.until) = (idle, None);
        }
    }
}

impl HttpBody for Passing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.until = None;
            return Poll::Ready(frame.map(|frame| {
                let mut frame = frame?;
                if let Some(trailers) = frame.trailers_mut() {
                    clean_trailers(trailers);
                }
                Ok(frame)
            }));
        }
        let idle = self.idle;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(idle)));
        match poll_over(until.as_mut(), cx) {
            Poll::Ready(()) => {
                until.as_mut().reset(Instant::now() + idle);
                Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a request. It is lent to a connection, and to another one if the first one has taken nothing of it.
#[derive(Clone)]
pub(crate) struct Upload(Arc<Mutex<Lent>>);

struct Lent {
    body: Passing,
    is_touched: bool,
    /// When something of it went on.
    last: Instant,
}

impl Upload {
    pub(crate) fn new(body: Passing) -> Self {
        Self(Arc::new(Mutex::new(Lent { body, is_touched: false, last: Instant::now() })))
    }

    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When something of it went on last, or it was made.
    pub(crate) fn last(&self) -> Instant {
        self.lent().last
    }

    /// Whether all of it can still be sent.
    pub(crate) fn is_whole(&self) -> bool {
        !self.lent().is_touched
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut lent = self.lent();
        let frame = std::task::ready!(Pin::new(&mut lent.body).poll_frame(cx));
        if frame.is_some() {
            (lent.is_touched, lent.last) = (true, Instant::now());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.lent().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lent().body.size_hint()
    }
}

/// The body of a response, and the connection that it comes on, which goes back to `home` at its end. If the client leaves, it
/// fails. If it fails, the client's connection is reset: what was cut must not look whole.
pub(crate) struct Download {
    body: Passing,
    link: Option<Link>,
    home: Option<Pool>,
    conn: Conn,
    ended: Pin<Box<dyn Future<Output = Left> + Send>>,
    half_closed: Duration,
}

impl Download {
    /// Without a `home` the connection is closed at the end of the body. Once the client has ended its direction, a pause may
    /// only be as long as `half_closed`.
    pub(crate) fn new(
        body: Passing,
        link: Link,
        home: Option<Pool>,
        conn: &Conn,
        half_closed: Duration,
    ) -> Self {
        let watched = conn.clone();
        let ended = Box::pin(async move { watched.ended().await });
        let mut this = Self { body, link: Some(link), home, conn: conn.clone(), ended, half_closed };
        if this.body.is_end_stream() {
            this.end();
        }
        this
    }

    /// All of it has come.
    fn end(&mut self) {
        if let (Some(link), Some(home)) = (self.link.take(), &self.home) {
            home.put(link);
        }
    }

    fn cut<T>(&mut self, error: BodyError) -> Poll<Option<Result<T, BodyError>>> {
        self.link = None;
        self.conn.near().reset();
        Poll::Ready(Some(Err(error)))
    }
}

impl HttpBody for Download {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while let Poll::Ready(left) = self.ended.as_mut().poll(cx) {
            if left == Left::Failed {
                return self.cut(io::Error::from(io::ErrorKind::ConnectionReset).into());
            }
            // It may still read.
            let (limit, near) = (self.half_closed, self.conn.near().clone());
            self.body.shorten(limit);
            self.ended = Box::pin(async move {
                near.failed().await;
                Left::Failed
            });
        }
        match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Err(error)) => self.cut(error),
            frame => {
                if frame.is_none() || self.body.is_end_stream() {
                    self.end();
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
