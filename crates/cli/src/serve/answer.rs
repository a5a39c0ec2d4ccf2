//! Makes the response to a request.

use super::Site;
use super::body::{Content, LoggedBody};
use super::log::Entry;
use super::request_body::{BodyError, RequestBody};
use crate::conn::Conn;
use crate::digest::Sum;
use crate::observed::Served;
use firstflight_http::directory::Files;
use firstflight_http::framing::refusal;
use firstflight_http::target::{Asked, Target};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use std::error::Error;
use std::io;
use std::net::SocketAddr;

/// Why there is no answer: the client ended the connection.
type BoxError = Box<dyn Error + Send + Sync>;

/// The answer of `site` to `request`. If it fails, the log line says that there was no answer.
///
/// # Errors
/// When the client ends the connection before its body or its handshake is complete.
pub async fn answer(
    site: Site,
    request: Request<Incoming>,
    peer: SocketAddr,
    watch: Served,
) -> Result<Response<LoggedBody>, BoxError> {
    let entry = site.log.begin(peer, watch.clone(), &request);
    let (parts, body) = request.into_parts();
    match refused(&parts) {
        Some(StatusCode::METHOD_NOT_ALLOWED) => return Ok(wrong_method(parts.uri.path(), entry)),
        Some(status) => return Ok(last(status, entry)),
        None => {}
    }
    if names_another(&parts, &watch) {
        return Ok(brief(StatusCode::MISDIRECTED_REQUEST, entry));
    }
    if !site.early_unsafe.admits(&parts.method, &watch).await? {
        return Ok(brief(StatusCode::TOO_EARLY, entry));
    }
    match (&parts.method, parts.uri.path()) {
        (&Method::POST, "/echo") => {
            let mut body = RequestBody::new(body, site.body_timeout);
            // hyper says "100 Continue" when the body is asked for, but not behind the head of the response.
            if parts.headers.contains_key(EXPECT)
                && let Err(error) = body.begin().await
            {
                return broken(error, entry);
            }
            Ok(respond(StatusCode::OK, "application/octet-stream", Content::Echo(body), entry))
        }
        (&Method::PUT, "/sink") => match swallow(RequestBody::new(body, site.body_timeout)).await {
            Ok(text) => Ok(respond(StatusCode::OK, "application/json", Content::Text(text), entry)),
            Err(error) => broken(error, entry),
        },
        (&Method::GET | &Method::HEAD, _) => Ok(file(&site.files, &parts, entry).await),
        (_, path) => Ok(wrong_method(path, entry)),
    }
}

/// The status for a request that is not answered: its head was malformed, it is for no host, or it expects what nobody
/// does.
fn refused(parts: &Parts) -> Option<StatusCode> {
    if let Some(status) = refusal(parts).or_else(|| Target::of(parts, Asked::Clear).err()) {
        return Some(status);
    }
    // RFC 9110 §10.1.1.
    let mut expected = parts.headers.get_all(EXPECT).iter();
    let another = expected.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    (another && parts.version == Version::HTTP_11).then_some(StatusCode::EXPECTATION_FAILED)
}

/// The response to a request whose body did not come whole.
///
/// # Errors
/// When the client has gone.
fn broken(error: BodyError<hyper::Error>, entry: Entry) -> Result<Response<LoggedBody>, BoxError> {
    match error {
        // RFC 9110 §15.5.9.
        BodyError::TooSlow => Ok(last(StatusCode::REQUEST_TIMEOUT, entry)),
        BodyError::Broken(error) if is_malformed(&error) => Ok(last(StatusCode::BAD_REQUEST, entry)),
        error @ BodyError::Broken(_) => Err(error.into()),
    }
}

/// Whether the framing of a body cannot be read.
fn is_malformed(error: &hyper::Error) -> bool {
    let of = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    of.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// Whether a request on a connection that began with a sealed flight names another server than the flight did
/// (`docs/spec/sealed.md` 6.8).
fn names_another(request: &Parts, watch: &Served) -> bool {
    let Some(name) = watch.conn(Conn::sealed_name) else { return false };
    let field = request.headers.get(HOST).map(|value| value.to_str().unwrap_or_default());
    let named = request.uri.host().or(field);
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

/// A response that contains only the status, after which the connection closes.
fn last(status: StatusCode, entry: Entry) -> Response<LoggedBody> {
    let mut response = brief(status, entry);
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
