//! Connects for hyper-util's client, to addresses that are allowed.

use crate::event::Protocol;
use crate::failure::Failure;
use crate::reach::Place;
use crate::shared::Shared;
use firstflight::{Authority, LazyStream, ReplaySafety};
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

/// Connects with the first request of a connection, which is the first flight if it may be.
#[derive(Clone)]
pub(crate) struct Connector {
    pub shared: Arc<Shared>,
    /// A GET may ride; or nothing.
    pub safety: ReplaySafety,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<ServerStream>;
    type Error = io::Error;
    type Future = Ready<Result<Self::Response, io::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let server = Authority::new(uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(80));
        let Self { shared, safety } = self.clone();
        ready(server.map_err(io::Error::other).map(|server| {
            let stream = LazyStream::new(move |first: Vec<u8>| async move {
                let connecting = async {
                    let place = Place::find(&shared, &server, Protocol::Http).await?;
                    place.request(safety.flight(&first)).await
                };
                connecting.await.map_err(|failure: Failure| io::Error::other(failure))
            });
            TokioIo::new(ServerStream(stream))
        }))
    }
}

/// Why a request got no response.
pub(crate) fn failure(error: &(dyn std::error::Error + 'static)) -> Told {
    let mut cause = Some(error);
    let mut last = error.to_string();
    while let Some(error) = cause {
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(failure) = inner.and_then(|inner| inner.downcast_ref::<Failure>()) {
            return Told::of(failure);
        }
        last = error.to_string();
        cause = error.source();
    }
    Told::of(&Failure::Response(last))
}

/// What a client is told of a failure.
pub(crate) struct Told {
    pub status: http::StatusCode,
    pub error_type: &'static str,
    pub text: String,
}

impl Told {
    pub(crate) fn of(failure: &Failure) -> Self {
        Self { status: failure.status(), error_type: failure.error_type(), text: failure.to_string() }
    }
}

/// A connection to a server.
pub(crate) struct ServerStream(LazyStream);

impl Connection for ServerStream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
