//! The body of a response on its way to the client, with what lasts until its end.

use super::body::{Patience, Progress};
use super::login::Logins;
use super::trial::Trial;
use super::{BoxError, Busy};
use crate::backend::{AnsweredBody, Lease, Sender};
use crate::log::Entry;
use crate::metrics;
use bytes::Bytes;
use firstflight_http::directory::FilesBody;
use firstflight_http::fields;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The body of a response. The access log has its line when it ends.
pub(crate) struct Reply {
    body: Kind,
    entry: Entry,
    progress: Progress,
    _busy: Busy,
}

enum Kind {
    /// Of the gateway's own.
    Text(Option<Bytes>),
    Backend(Box<Coming>),
    /// Of a directory that the gateway serves.
    Files(FilesBody),
    Trial(Trial),
}

/// What becomes of a connection when its response is complete.
pub(super) enum After {
    /// It ends.
    Close,
    /// It has the requests of all clients, and so many are kept.
    Pool(Sender, usize),
    /// It has those of one client.
    Client(Sender, Logins),
}

impl After {
    pub(super) fn release(self, lease: &Lease) {
        match self {
            Self::Close => {}
            Self::Pool(sender, most) => sender.keep(lease.backend(), most),
            Self::Client(sender, logins) => logins.put(sender, lease.backend()),
        }
    }
}

/// A backend's body.
pub(super) struct Coming {
    pub(super) body: AnsweredBody,
    pub(super) lease: Lease,
    pub(super) after: After,
    pub(super) patience: Patience,
}

impl Coming {
    /// The body is complete, so the connection can have another request.
    fn finish(&mut self) {
        std::mem::replace(&mut self.after, After::Close).release(&self.lease);
    }
}

impl Reply {
    /// A response of the gateway's own. `grpc` says that the client takes statuses of gRPC.
    pub(super) fn of_status(status: StatusCode, grpc: bool, mut entry: Entry, busy: Busy) -> Response<Self> {
        entry.status = Some(status.as_u16());
        let text = format!("{} {}\n", status.as_u16(), status.canonical_reason().unwrap_or_default());
        let text = if grpc { Bytes::new() } else { Bytes::from(text) };
        let length = text.len();
        let body = Kind::Text(Some(text));
        let mut response = Response::new(Self { body, entry, progress: Progress::default(), _busy: busy });
        let headers = response.headers_mut();
        if grpc {
            // A client of gRPC expects its own status, in the only headers that there are.
            let code = match status {
                StatusCode::GATEWAY_TIMEOUT => "4",
                StatusCode::NOT_FOUND => "12",
                status if status.is_server_error() || status == StatusCode::TOO_EARLY => "14",
                _ => "13",
            };
            headers.insert("grpc-status", HeaderValue::from_static(code));
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            return response;
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(CONTENT_LENGTH, length.into());
        *response.status_mut() = status;
        response
    }

    /// A backend's body.
    pub(super) fn of_backend(coming: Coming, entry: Entry, progress: Progress, busy: Busy) -> Self {
        Self { body: Kind::Backend(Box::new(coming)), entry, progress, _busy: busy }
    }

    /// A file, or why there is none.
    pub(super) fn of_files(
        response: Response<FilesBody>,
        mut entry: Entry,
        progress: Progress,
        busy: Busy,
    ) -> Response<Self> {
        entry.status = Some(response.status().as_u16());
        response.map(|body| Self { body: Kind::Files(body), entry, progress, _busy: busy })
    }

    /// What a service for trials answers.
    pub(super) fn of_trial(
        response: Response<Trial>,
        mut entry: Entry,
        progress: Progress,
        busy: Busy,
    ) -> Response<Self> {
        entry.status = Some(response.status().as_u16());
        response.map(|body| Self { body: Kind::Trial(body), entry, progress, _busy: busy })
    }

    /// No body, after a switch of protocols. The line of the log is the tunnel's.
    pub(super) fn none(entry: Entry, busy: Busy) -> Self {
        Self { body: Kind::Text(None), entry, progress: Progress::default(), _busy: busy }
    }
}

/// How long a backend may pause in a body.
pub(super) const fn patience(most: Duration) -> Patience {
    Patience::new(most)
}

impl Body for Reply {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let frame = match &mut this.body {
            Kind::Text(text) => {
                return match text.take().filter(|text| !text.is_empty()) {
                    Some(text) => {
                        this.entry.bytes_out += text.len() as u64;
                        Poll::Ready(Some(Ok(Frame::data(text))))
                    }
                    None => Poll::Ready(None),
                };
            }
            Kind::Files(body) => match std::task::ready!(Pin::new(body).poll_frame(cx)) {
                None => {
                    this.entry.end = Some("closed");
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    this.entry.end = Some("file-error");
                    return Poll::Ready(Some(Err(error.into())));
                }
                Some(Ok(frame)) => frame,
            },
            Kind::Trial(body) => match std::task::ready!(Pin::new(body).poll_frame(cx)) {
                None => {
                    this.entry.end = Some("closed");
                    return Poll::Ready(None);
                }
                Some(Err(error)) => {
                    this.entry.end = Some("client-left");
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame)) => frame,
            },
            Kind::Backend(coming) => match Pin::new(&mut coming.body).poll_frame(cx) {
                Poll::Pending => {
                    std::task::ready!(coming.patience.poll_over(cx));
                    metrics::backend_failed(coming.lease.backend(), "body-timeout");
                    this.entry.end = Some("body-timeout");
                    return Poll::Ready(Some(Err("the backend paused for too long".into())));
                }
                Poll::Ready(None) => {
                    coming.finish();
                    this.entry.end = Some("closed");
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Err(error))) => {
                    metrics::backend_failed(coming.lease.backend(), "body");
                    this.entry.end = Some("backend-error");
                    // The backend's code of HTTP/2 is not for the client: NO_ERROR could be taken for the end.
                    return Poll::Ready(Some(Err(error.to_string().into())));
                }
                Poll::Ready(Some(Ok(frame))) => {
                    coming.patience.reset();
                    let frame = match frame.into_trailers() {
                        Ok(mut trailers) => {
                            fields::clean_trailers(&mut trailers);
                            Frame::trailers(trailers)
                        }
                        Err(frame) => frame,
                    };
                    if coming.body.is_end_stream() {
                        coming.finish();
                    }
                    frame
                }
            },
        };
        if let Some(data) = frame.data_ref() {
            this.entry.bytes_out += data.len() as u64;
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Kind::Text(text) => text.as_ref().is_none_or(Bytes::is_empty),
            Kind::Backend(coming) => coming.body.is_end_stream(),
            Kind::Files(body) => body.is_end_stream(),
            Kind::Trial(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Kind::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Kind::Backend(coming) => coming.body.size_hint(),
            Kind::Files(body) => body.size_hint(),
            Kind::Trial(body) => body.size_hint(),
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.entry.bytes_in = self.progress.bytes();
        if let Kind::Backend(coming) = &mut self.body {
            let complete = coming.body.is_end_stream();
            if complete {
                coming.finish();
            }
            let end = if complete { "closed" } else { "client-left" };
            self.entry.end.get_or_insert(end);
        }
        let is_complete = match &self.body {
            Kind::Files(body) => body.is_end_stream(),
            Kind::Trial(body) => body.is_end_stream(),
            Kind::Text(_) | Kind::Backend(_) => return,
        };
        self.entry.end.get_or_insert(if is_complete { "closed" } else { "client-left" });
    }
}
