//! Connections to servers, for requests of plain HTTP.

use crate::body::Upload;
use crate::failure::Failure;
use crate::reach::AllowedServer;
use crate::shared::Shared;
use firstflight::{Authority, LazyStream, ReplaySafety};
use firstflight_http::heard::{CountedStream, Heard};
use firstflight_http::idle::Kept;
use firstflight_http::resend::{AttemptFate, Before};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::AbortHandle;

/// A connection to a server. It is closed when it is dropped.
pub(crate) struct Link {
    pub server: Authority,
    shared: Arc<Shared>,
    sender: SendRequest<Upload>,
    heard: Heard,
    /// Bytes sent and received that the page shows.
    shown: (u64, u64),
    /// Why it was not connected. hyper may ask a stream that has failed once more, and tells the last error only.
    failed: Arc<Mutex<Option<Failure>>>,
    driver: AbortHandle,
    /// It had a request before.
    pub is_kept: bool,
    /// A login has begun on it (NTLM, Negotiate), so it serves one client only.
    pub is_owned: bool,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
        self.show_traffic();
    }
}

impl Kept for Link {
    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }
}

/// A request that got no response.
pub(crate) struct Unanswered {
    pub fate: AttemptFate,
    pub told: FailureTold,
}

impl Link {
    /// A connection that begins with its first request, which is the first flight if it may be. `is_connected` says when there
    /// is one.
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        server: &Authority,
        safety: ReplaySafety,
        is_connected: &Arc<AtomicBool>,
    ) -> Result<Self, FailureTold> {
        let (connects, to, told) = (Arc::clone(shared), server.clone(), Arc::clone(is_connected));
        let failed = Arc::<Mutex<Option<Failure>>>::default();
        let fails = Arc::clone(&failed);
        let lazy = LazyStream::new(move |first: Vec<u8>| async move {
            let connecting = async {
                let stream = AllowedServer::request(&connects, &to, safety.flight(&first)).await?;
                told.store(true, Ordering::Relaxed);
                Ok(stream)
            };
            connecting.await.map_err(|failure: Failure| {
                *fails.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                io::Error::other("not connected")
            })
        });
        let (io, heard) = CountedStream::new(lazy);
        let mut builder = Builder::new();
        builder.max_buf_size(shared.limits.head.max(8192)).max_headers(shared.limits.fields);
        let (sender, connection) =
            builder.handshake(TokioIo::new(io)).await.map_err(|error| no_response(&error))?;
        let driver = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a server's connection has ended");
            }
        });
        let (server, driver) = (server.clone(), driver.abort_handle());
        let shared = Arc::clone(shared);
        Ok(Self {
            server,
            shared,
            sender,
            heard,
            shown: (0, 0),
            failed,
            driver,
            is_kept: false,
            is_owned: false,
        })
    }

    /// Adds what it carried to the page.
    pub(crate) fn show_traffic(&mut self) {
        let (sent, received) = (self.heard.written(), self.heard.read());
        let (sent_before, received_before) = std::mem::replace(&mut self.shown, (sent, received));
        if (sent, received) != (sent_before, received_before) {
            let more = (sent - sent_before, received - received_before);
            self.shared.board.carried(&self.server, more.0, more.1, firstflight::unix_ms());
        }
    }

    pub(crate) async fn send(&mut self, request: Request<Upload>) -> Result<Response<Incoming>, Unanswered> {
        let before = Before::now(&self.heard);
        self.sender.try_send_request(request).await.map_err(|mut error| {
            let unsent = error.take_message().is_some();
            let error = error.into_error();
            let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
            let told = failed.map_or_else(|| no_response(&error), |failure| FailureTold::of(&failure));
            Unanswered { fate: before.fate(&self.heard, unsent, &error), told }
        })
    }
}

/// Why a request got no response: the innermost cause.
fn no_response(error: &hyper::Error) -> FailureTold {
    let last = firstflight::causes(error).last();
    FailureTold::of(&Failure::Response(last.map_or_else(String::new, ToString::to_string)))
}

/// What a client is told of a failure.
pub(crate) struct FailureTold {
    pub status: http::StatusCode,
    pub error_type: &'static str,
    pub text: String,
}

impl FailureTold {
    pub(crate) fn of(failure: &Failure) -> Self {
        Self { status: failure.status(), error_type: failure.error_type(), text: failure.to_string() }
    }
}
