//! Response bodies. The end of a body is the end of its request in the log.

use super::log::Entry;
use super::request_body::RequestBody;
use bytes::Bytes;
use firstflight_http::directory::FilesBody;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The content of a response body.
pub enum Content {
    /// Nothing more.
    Empty,
    /// A short text.
    Text(String),
    /// What the directory answers.
    File(FilesBody),
    /// The request's own body.
    Echo(RequestBody<Incoming>),
}

/// A response body. Dropping it writes the request's log line.
pub struct LoggedBody {
    content: Content,
    entry: Entry,
}

impl LoggedBody {
    /// `content` as the answer to the request of `entry`.
    pub fn new(content: Content, entry: Entry) -> Self {
        Self { content, entry }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Body for LoggedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        let frame = match &mut this.content {
            Content::Empty => None,
            Content::Text(text) => {
                let bytes = Bytes::from(std::mem::take(text));
                this.content = Content::Empty;
                Some(Ok(Frame::data(bytes)))
            }
            Content::File(file) => {
                ready!(Pin::new(file).poll_frame(cx)).map(|frame| frame.map_err(Into::into))
            }
            Content::Echo(body) => {
                ready!(Pin::new(body).poll_frame(cx)).map(|frame| frame.map_err(Into::into))
            }
        };
        if let Some(Ok(frame)) = &frame {
            this.entry.sent(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty => true,
            Content::Text(_) => false,
            Content::File(file) => file.is_end_stream(),
            Content::Echo(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty => SizeHint::with_exact(0),
            Content::Text(text) => SizeHint::with_exact(text.len() as u64),
            Content::File(file) => file.size_hint(),
            Content::Echo(body) => body.size_hint(),
        }
    }
}
