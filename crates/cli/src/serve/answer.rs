//! Makes the response to a request.

use super::Site;
use super::body::{Content, LoggedBody};
use super::log::Entry;
use super::request_body::{BodyError, RequestBody};
use crate::conn::Conn;
use crate::digest::Sum;
use crate::observed::Watch;
use firstflight_http::directory::Files;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode};
use std::net::SocketAddr;

/// Why there is no answer: the client ended the connection.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The answer of `site` to `request`. If it fails, the log line says that there was no answer.
///
/// # Errors
/// When the client ends the connection before its body or its handshake is complete.
pub async fn answer(
    site: Site,
    request: Request<Incoming>,
    peer: SocketAddr,
    watch: Watch<Conn>,
) -> Result<Response<LoggedBody>, BoxError> {
    let entry = site.log.begin(peer, watch.clone(), &request);
    if names_another(&request, &watch) {
        return Ok(brief(StatusCode::MISDIRECTED_REQUEST, entry));
    }
    if !site.early_unsafe.admits(request.method(), &watch).await? {
        return Ok(brief(StatusCode::TOO_EARLY, entry));
    }
    let (status, kind, content) = match (request.method(), request.uri().path()) {
        (&Method::POST, "/echo") => {
            let body = RequestBody::new(request.into_body(), site.body_timeout);
            (StatusCode::OK, "application/octet-stream", Content::Echo(body))
        }
        (&Method::PUT, "/sink") => {
            match swallow(RequestBody::new(request.into_body(), site.body_timeout)).await {
                Ok(text) => (StatusCode::OK, "application/json", Content::Text(text)),
                Err(BodyError::TooSlow) => return Ok(too_slow(entry)),
                Err(broken) => return Err(broken.into()),
            }
        }
        (&Method::GET | &Method::HEAD, _) => {
            let (parts, _) = request.into_parts();
            return Ok(file(&site.files, &parts, entry).await);
        }
        (_, path) => return Ok(wrong_method(path, entry)),
    };
    Ok(respond(status, kind, content, entry))
}

/// Whether a request on a connection that began with a sealed flight names another server than the flight did
/// (`docs/spec/sealed.md` 6.8).
fn names_another<B>(request: &Request<B>, watch: &Watch<Conn>) -> bool {
    let Some(name) = watch.look(Conn::sealed_name) else { return false };
    let field = request.headers().get(HOST).map(|value| value.to_str().unwrap_or_default());
    let named = request.uri().host().or(field);
    let Some(named) = named else { return false };
    let port = |(_, port): &(&str, &str)| port.bytes().all(|byte| byte.is_ascii_digit());
    let host = named.rsplit_once(':').filter(port).map_or(named, |(host, _)| host);
    !host.trim_end_matches('.').eq_ignore_ascii_case(&name)
}

async fn file(files: &Files, request: &Parts, mut entry: Entry) -> Response<LoggedBody> {
    let response = files.respond(&request.method, &request.uri, &request.headers).await;
    entry.answered(response.status());
    response.map(|body| LoggedBody::new(Content::File(body), entry))
}

fn wrong_method(path: &str, entry: Entry) -> Response<LoggedBody> {
    let allowed = match path {
        "/echo" => "GET, HEAD, POST",
        "/sink" => "GET, HEAD, PUT",
        _ => "GET, HEAD",
    };
    let mut response = brief(StatusCode::METHOD_NOT_ALLOWED, entry);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Status 408, after which the server should close the connection (RFC 9110 §15.5.9).
fn too_slow(entry: Entry) -> Response<LoggedBody> {
    let mut response = brief(StatusCode::REQUEST_TIMEOUT, entry);
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Reads a body; returns its length and its hash.
async fn swallow(mut body: RequestBody<Incoming>) -> Result<String, BodyError<hyper::Error>> {
    let mut sum = Sum::new();
    while let Some(frame) = body.frame().await {
        if let Some(data) = frame?.data_ref() {
            sum.update(data);
        }
    }
    Ok(format!("{{\"bytes\":{},\"sha256\":\"{}\"}}\n", sum.bytes(), sum.hex()))
}

/// A response that contains only the status.
fn brief(status: StatusCode, entry: Entry) -> Response<LoggedBody> {
    respond(status, "text/plain; charset=utf-8", reason(status), entry)
}

fn reason(status: StatusCode) -> Content {
    Content::Text(format!("{status}\n"))
}

fn respond(
    status: StatusCode,
    kind: &'static str,
    content: Content,
    mut entry: Entry,
) -> Response<LoggedBody> {
    entry.answered(status);
    let mut response = Response::new(LoggedBody::new(content, entry));
    *response.status_mut() = status;
    let length = response.body().size_hint().exact();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    response
}
