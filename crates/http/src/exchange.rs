//! One request over a connection of its own.

use crate::url::HttpUrl;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST};
use hyper::http::request::Builder;
use hyper::rt::{Read, Write};
use hyper::{Method, Request, Response};
use std::error::Error;
use std::fmt::Write as _;
use std::pin::pin;

/// Begins a request for `url` that has a connection of its own: `Host`, and `Connection: close`.
pub fn request(method: Method, url: &HttpUrl) -> Builder {
    let request = Request::builder().method(method).uri(url.path());
    request.header(HOST, url.host_field()).header(CONNECTION, "close")
}

/// Sends `request` over `io` by HTTP/1.1, and hands the response to `receive`, whose result this returns. The request is the
/// first data that is written, so it can ride in the first flight of a stream that connects with its first write.
///
/// Everything runs in the caller's task, so that no other task has to be woken for each piece of the response. `io` is
/// dropped at the end.
///
/// # Errors
/// hyper's, or those of `receive`.
pub async fn exchange<I, B, R, T, E>(
    io: I,
    request: Request<B>,
    receive: impl FnOnce(Response<Incoming>) -> R,
) -> Result<T, E>
where
    I: Read + Write + Unpin,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
    R: Future<Output = Result<T, E>>,
    E: From<hyper::Error>,
{
    let (mut sender, connection) = http1::handshake(io).await?;
    // It is queued before the connection runs.
    let response = sender.send_request(request);
    let received = async { receive(response.await?).await };
    let (mut received, connection) = (pin!(received), pin!(connection));
    tokio::select! {
        result = &mut received => result,
        // The connection's errors are also reported by the response and the body.
        _ = connection => received.await,
    }
}

/// The status line and the fields of a response, each on a line, for people.
pub fn head_text<B>(response: &Response<B>) -> String {
    let mut text = format!("{:?} {}\n", response.version(), response.status());
    for (name, value) in response.headers() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    text
}

#[cfg(test)]
mod tests;
