//! Request bodies that fail when the client sends them too slowly.

use bytes::Bytes;
use firstflight_http::patience::poll_over;
use hyper::body::{Body, Frame, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes that count as progress: a full segment, as for `--send-timeout`.
const PROGRESS: usize = 1460;

/// Why a body did not arrive whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyError<E> {
    /// The client sent too little for too long.
    #[error("the client sends its request too slowly")]
    TooSlow,
    /// The connection ended early, or the body was malformed.
    #[error("{0}")]
    Broken(E),
}

/// A request's body. It fails with [`BodyError::TooSlow`] when less than a full segment arrives within the patience.
///
/// Only the time in which the server waits for the client counts, not the time in which the server reads nothing.
pub struct RequestBody<B> {
    body: B,
    pace: Option<Pace>,
    /// What [`RequestBody::begin`] has read.
    first: Option<Frame<Bytes>>,
}

struct Pace {
    patience: Duration,
    /// What is left of the patience for the next [`PROGRESS`] bytes.
    left: Duration,
    /// How many of these bytes have arrived.
    came: usize,
    /// When the current wait for the client began; `None` while the server does not wait.
    since: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl<B> RequestBody<B> {
    /// `body` with this patience; `None` means no limit.
    pub fn new(body: B, patience: Option<Duration>) -> Self {
        let pace =
            patience.map(|patience| Pace { patience, left: patience, came: 0, since: None, sleep: None });
        Self { body, pace, first: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> RequestBody<B> {
    /// Waits for the first part.
    ///
    /// # Errors
    /// When it does not come.
    pub async fn begin(&mut self) -> Result<(), BodyError<B::Error>> {
        let first = poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await;
        self.first = first.transpose()?;
        Ok(())
    }
}

impl Pace {
    /// Counts a part of the body that arrived.
    fn progress(&mut self, bytes: usize) {
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        self.came += bytes;
        if self.came >= PROGRESS {
            (self.came, self.left) = (0, self.patience);
        }
    }

    /// Called when nothing has arrived. Ready when the patience is used up.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let begins = self.since.is_none();
        let until = *self.since.get_or_insert_with(Instant::now) + self.left;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if begins {
            sleep.as_mut().reset(until);
        }
        poll_over(sleep.as_mut(), cx)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = BodyError<B::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        let Some(pace) = &mut this.pace else {
            return frame.map(|frame| frame.map(|frame| frame.map_err(BodyError::Broken)));
        };
        match frame {
            Poll::Ready(frame) => {
                if let Some(Ok(frame)) = &frame {
                    pace.progress(frame.data_ref().map_or(0, Bytes::len));
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Broken)))
            }
            Poll::Pending => pace.poll_over(cx).map(|()| Some(Err(BodyError::TooSlow))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, first) = (self.body.size_hint(), self.first.as_ref().and_then(Frame::data_ref));
        let first = first.map_or(0, |data| data.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(first));
        }
        hint.set_lower(hint.lower().saturating_add(first));
        hint
    }
}
