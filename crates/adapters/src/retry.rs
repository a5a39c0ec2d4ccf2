//! Clients and the status 425 (Too Early, RFC 8470).

use http::{Request, Response, StatusCode};
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// Sends a request that was answered with 425 once more, by another client. That client must send nothing early (RFC 8470
/// §5.2): its connector has [`ReplaySafety::Unsafe`](firstflight::ReplaySafety::Unsafe). The body must be `Clone`, such as
/// `http_body_util::Full`.
///
/// ```
/// # #[cfg(feature = "hyper-util")]
/// # {
/// # use bytes::Bytes;
/// # use http_body_util::Full;
/// use firstflight::{Client, ReplaySafety};
/// use firstflight_adapters::{Connector, RetryTooEarlyLayer};
/// use hyper_util::{client::legacy, rt::TokioExecutor};
/// use tower_layer::Layer;
/// let connector = Connector::new(Client::new());
/// let late = connector.clone().replay_safety(ReplaySafety::Unsafe);
/// let client = |connector| legacy::Client::builder(TokioExecutor::new()).build::<_, Full<Bytes>>(connector);
/// let client = RetryTooEarlyLayer::new(client(late)).layer(client(connector));
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RetryTooEarlyLayer<R>(R);

impl<R> RetryTooEarlyLayer<R> {
    /// Sends again by `late`, which must send nothing early.
    pub const fn new(late: R) -> Self {
        Self(late)
    }
}

impl<S, R: Clone> Layer<S> for RetryTooEarlyLayer<R> {
    type Service = RetryTooEarly<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        RetryTooEarly { inner, late: self.0.clone() }
    }
}

/// The service of [`RetryTooEarlyLayer`].
#[derive(Debug, Clone)]
pub struct RetryTooEarly<S, R> {
    inner: S,
    late: R,
}

impl<S, R, B, T> Service<Request<B>> for RetryTooEarly<S, R>
where
    S: Service<Request<B>, Response = Response<T>>,
    S::Future: Send + 'static,
    R: Service<Request<B>, Response = Response<T>, Error = S::Error> + Clone + Send + 'static,
    R::Future: Send,
    B: Clone + Send + 'static,
    T: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<T>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let again = request.clone();
        let first = self.inner.call(request);
        let mut late = self.late.clone();
        Box::pin(async move {
            let response = first.await?;
            if response.status() != StatusCode::TOO_EARLY {
                return Ok(response);
            }
            poll_fn(|cx| late.poll_ready(cx)).await?;
            late.call(again).await
        })
    }
}
