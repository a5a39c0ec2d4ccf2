//! Servers and the status 425 (Too Early, RFC 8470).

use crate::incoming::Peer;
use futures_util::future::Either;
use http::{Extensions, Request, Response, StatusCode};
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// The header field of a gateway that forwards a request before its client's handshake is complete (RFC 8470 §5.1).
const EARLY_DATA: &str = "early-data";

/// Keeps requests from being executed twice: one whose method is not safe (RFC 9110 §9.2.1) is not executed while the
/// handshake of its connection is incomplete. RFC 8470 has the rules; it is about TLS, and holds for data in a SYN too.
///
/// | the request | [`TooEarlyLayer::new`] | [`TooEarlyLayer::waiting`] |
/// |---|---|---|
/// | has a safe method: GET, HEAD, OPTIONS, TRACE | is executed | is executed |
/// | arrived after the handshake | is executed | is executed |
/// | is early | gets 425 | waits for the handshake |
/// | has the field `Early-Data`: it was early at a gateway | gets 425 | gets 425 |
/// | has no [`Peer`] | gets 500, logged | gets 500, logged |
///
/// A client that does not know 425 sees an error. Use [`TooEarlyLayer::waiting`] unless all clients are known to repeat
/// the request ([`RetryTooEarly`](crate::RetryTooEarly)), and for gRPC, whose requests are all POST.
///
/// With axum:
///
/// ```no_run
/// # #[cfg(feature = "axum")]
/// # async fn serve() -> std::io::Result<()> {
/// use axum::{Router, routing::post};
/// use firstflight_adapters::{Incoming, Peer, TooEarlyLayer};
/// let app = Router::new().route("/orders", post(|| async { "done" })).layer(TooEarlyLayer::waiting());
/// let server = firstflight::Server::bind("0.0.0.0:8080").await?;
/// axum::serve(Incoming::new(server), app.into_make_service_with_connect_info::<Peer>()).await
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TooEarlyLayer {
    waits: bool,
    passes_unknown: bool,
}

impl TooEarlyLayer {
    /// Answers 425.
    #[must_use]
    pub const fn new() -> Self {
        Self { waits: false, passes_unknown: false }
    }

    /// Waits for the handshake. If the connection ends before that, the request is not executed.
    #[must_use]
    pub const fn waiting() -> Self {
        Self { waits: true, passes_unknown: false }
    }

    /// Also executes requests that have no [`Peer`]. Set it if the service also gets requests from listeners that take
    /// nothing early.
    #[must_use]
    pub const fn pass_unknown(mut self, pass: bool) -> Self {
        self.passes_unknown = pass;
        self
    }
}

impl<S> Layer<S> for TooEarlyLayer {
    type Service = TooEarly<S>;

    fn layer(&self, inner: S) -> TooEarly<S> {
        TooEarly { inner, config: *self }
    }
}

/// The service of [`TooEarlyLayer`].
#[derive(Debug, Clone)]
pub struct TooEarly<S> {
    inner: S,
    config: TooEarlyLayer,
}

/// What is done with a request.
enum RequestVerdict {
    Execute,
    Wait(Peer),
    Answer(StatusCode),
}

impl TooEarlyLayer {
    fn judge<B>(self, request: &Request<B>) -> RequestVerdict {
        if request.method().is_safe() {
            return RequestVerdict::Execute;
        }
        // Any value means 1, and waiting here would not wait for the gateway's client.
        if request.headers().contains_key(EARLY_DATA) {
            return RequestVerdict::Answer(StatusCode::TOO_EARLY);
        }
        match peer(request.extensions()) {
            Some(peer) if !peer.is_early() => RequestVerdict::Execute,
            Some(peer) if self.waits => RequestVerdict::Wait(peer.clone()),
            Some(_) => RequestVerdict::Answer(StatusCode::TOO_EARLY),
            None if self.passes_unknown => RequestVerdict::Execute,
            None => {
                tracing::error!(
                    "this program's mistake: a request without a Peer reached TooEarly; serve with \
                     into_make_service_with_connect_info::<Peer>(), or insert ServerStream::peer"
                );
                RequestVerdict::Answer(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }
}

fn peer(extensions: &Extensions) -> Option<&Peer> {
    let direct = extensions.get::<Peer>();
    #[cfg(feature = "axum")]
    let direct = direct.or_else(|| Some(&extensions.get::<axum::extract::ConnectInfo<Peer>>()?.0));
    direct
}

fn answer<B: Default>(status: StatusCode) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = status;
    response
}

type Slow<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl<S, B, R> Service<Request<B>> for TooEarly<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Either<S::Future, Slow<Response<R>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.config.judge(&request) {
            RequestVerdict::Execute => Either::Left(self.inner.call(request)),
            RequestVerdict::Answer(status) => Either::Right(Box::pin(async move { Ok(answer(status)) })),
            RequestVerdict::Wait(peer) => {
                // The one that is ready.
                let clone = self.inner.clone();
                let mut inner = std::mem::replace(&mut self.inner, clone);
                Either::Right(Box::pin(async move {
                    match peer.confirmed().await {
                        Ok(()) => inner.call(request).await,
                        // Nobody gets it.
                        Err(_) => Ok(answer(StatusCode::TOO_EARLY)),
                    }
                }))
            }
        }
    }
}
