//! The response to a request for a file.

use super::body::FileBody;
use super::conditions::{ConditionVerdict, judge, only, range_applies};
use super::range::{RangeRequest, asked};
use super::{FileFacts, Files, PathContent};
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{
    ACCEPT_RANGES, ALLOW, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName,
    HeaderValue, LAST_MODIFIED, LOCATION, RANGE, RETRY_AFTER,
};
use hyper::{Method, Response, StatusCode, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::collections::VecDeque;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
/// Seconds after which a client may ask again when the server had no descriptor or no memory for a file.
const SOON: HeaderValue = HeaderValue::from_static("1");
/// What does not stand in a path or a query of a URL (RFC 3986 §3.3, §3.4), apart from `%`.
const FOREIGN: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The body of a response from [`Files`].
pub struct FilesBody(Kind);

enum Kind {
    Empty,
    Text(Bytes),
    File(FileBody),
    Parts(Parts),
}

/// Several parts of a file, as `multipart/byteranges` (RFC 9110 §14.6).
struct Parts {
    file: Arc<File>,
    /// Each with the lines in front of it.
    parts: VecDeque<(Bytes, Range<u64>)>,
    now: Option<FileBody>,
    end: Bytes,
    /// Bytes that are left.
    left: u64,
}

impl Files {
    /// The response to a request for `uri`.
    ///
    /// | status | when |
    /// |---|---|
    /// | 200, 206 | with `ETag` and `Last-Modified`; 206 for `Range`, one part or several |
    /// | 301 | the directory's name has no slash behind it |
    /// | 304, 412 | the conditions say so (RFC 9110 §13.2.2) |
    /// | 403 | outside the root, no permission, or no regular file |
    /// | 404 | no such file, a hidden one, or a directory without `index.html` |
    /// | 405 | neither GET nor HEAD |
    /// | 416 | the file has nothing of the range |
    /// | 500 | the disk fails |
    /// | 503 | no descriptor or no memory for the file: the client may ask again |
    ///
    /// Directories are not listed. Reads at once what the system has in memory of a short file, so that it can ride in one
    /// segment with the head of its response.
    pub async fn respond(&self, method: &Method, uri: &Uri, fields: &HeaderMap) -> Response<FilesBody> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return with(brief(StatusCode::METHOD_NOT_ALLOWED), ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        let mut response = self.answer(method, uri, fields).await.unwrap_or_else(brief);
        if response.status() == StatusCode::SERVICE_UNAVAILABLE {
            response = with(response, RETRY_AFTER, SOON);
        }
        if *method == Method::HEAD {
            // Keep the length of the body that a GET would return (RFC 9110 §9.3.2).
            response.body_mut().0 = Kind::Empty;
        }
        response
    }

    async fn answer(
        &self,
        method: &Method,
        uri: &Uri,
        fields: &HeaderMap,
    ) -> Result<Response<FilesBody>, StatusCode> {
        let (file, about, len) = match self.find(uri.path()).await? {
            PathContent::File(known, len) => (known.file, known.about, len),
            PathContent::Directory => return Ok(to_the_directory(uri)),
        };
        let now = SystemTime::now();
        match judge(fields, &about.validators, now) {
            ConditionVerdict::Send => {}
            ConditionVerdict::NotModified => {
                return Ok(described(StatusCode::NOT_MODIFIED, Kind::Empty, &about));
            }
            ConditionVerdict::Failed => return Err(StatusCode::PRECONDITION_FAILED),
        }
        let is_get = *method == Method::GET;
        // Only GET has ranges (RFC 9110 §14.2).
        let range = only(fields, RANGE).filter(|_| is_get && range_applies(fields, &about.validators, now));
        let asked = range.map_or(RangeRequest::Whole, |range| asked(range.as_bytes(), len));
        let mut response = match asked {
            RangeRequest::Whole => whole(file, len, &about),
            RangeRequest::Nothing => return Ok(nothing_of(len)),
            RangeRequest::Parts(parts) => match <[_; 1]>::try_from(parts) {
                Ok([part]) => one_part(file, part, len, &about),
                Err(parts) => several_parts(file, parts, len, &about),
            },
        };
        if let Kind::File(body) = &mut response.body_mut().0
            && is_get
        {
            body.begin().await.map_err(|error| super::status_of(&error))?;
        }
        Ok(response)
    }
}

fn with(mut response: Response<FilesBody>, name: HeaderName, value: HeaderValue) -> Response<FilesBody> {
    response.headers_mut().insert(name, value);
    response
}

/// A response that says its status only.
fn brief(status: StatusCode) -> Response<FilesBody> {
    let text = Bytes::from(format!("{status}\n"));
    let length = text.len();
    let mut response = Response::new(FilesBody(Kind::Text(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    with(response, CONTENT_LENGTH, length.into())
}

/// A response with the fields about the file.
fn described(status: StatusCode, body: Kind, about: &FileFacts) -> Response<FilesBody> {
    let mut response = Response::new(FilesBody(body));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(ETAG, about.validators.tag(SystemTime::now()).clone());
    if let Some(modified) = about.validators.modified() {
        fields.insert(LAST_MODIFIED, modified.clone());
    }
    response
}

/// A response with content of the file.
fn filled(status: StatusCode, body: Kind, kind: HeaderValue, about: &FileFacts) -> Response<FilesBody> {
    let mut response = described(status, body, about);
    let length = response.body().left();
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, kind);
    fields.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    fields.insert(CONTENT_LENGTH, length.into());
    response
}

fn whole(file: Arc<File>, len: u64, about: &FileFacts) -> Response<FilesBody> {
    let body = Kind::File(FileBody::new(file, 0..len));
    filled(StatusCode::OK, body, HeaderValue::from_static(about.kind), about)
}

fn one_part(file: Arc<File>, part: Range<u64>, len: u64, about: &FileFacts) -> Response<FilesBody> {
    let place = content_range(&part, len);
    let body = Kind::File(FileBody::new(file, part));
    let response = filled(StatusCode::PARTIAL_CONTENT, body, HeaderValue::from_static(about.kind), about);
    match HeaderValue::from_str(&place) {
        Ok(place) => with(response, CONTENT_RANGE, place),
        // It is plain ASCII.
        Err(_) => response,
    }
}

fn several_parts(
    file: Arc<File>,
    parts: Vec<Range<u64>>,
    len: u64,
    about: &FileFacts,
) -> Response<FilesBody> {
    // It should not stand in the file, so nobody who writes the file may know it.
    let boundary = format!("{:016x}", RandomState::new().hash_one(len));
    let head = |part: Range<u64>| {
        let place = content_range(&part, len);
        let head =
            format!("\r\n--{boundary}\r\nContent-Type: {}\r\nContent-Range: {place}\r\n\r\n", about.kind);
        (Bytes::from(head), part)
    };
    let parts: VecDeque<_> = parts.into_iter().map(head).collect();
    let end = Bytes::from(format!("\r\n--{boundary}--\r\n"));
    let left = parts.iter().map(|(head, part)| head.len() as u64 + (part.end - part.start)).sum::<u64>();
    let left = left + end.len() as u64;
    let body = Kind::Parts(Parts { file, parts, now: None, end, left });
    let kind = HeaderValue::from_str(&format!("multipart/byteranges; boundary={boundary}"));
    filled(StatusCode::PARTIAL_CONTENT, body, kind.unwrap_or(TEXT), about)
}

fn content_range(part: &Range<u64>, len: u64) -> String {
    // A part is never empty.
    format!("bytes {}-{}/{len}", part.start, part.end.saturating_sub(1))
}

/// Status 416.
fn nothing_of(len: u64) -> Response<FilesBody> {
    let response = brief(StatusCode::RANGE_NOT_SATISFIABLE);
    match HeaderValue::from_str(&format!("bytes */{len}")) {
        Ok(length) => with(response, CONTENT_RANGE, length),
        Err(_) => response,
    }
}

/// Sends the client from `/a/directory` to `/a/directory/`, so that relative links in its index lead into it.
///
/// The location is relative to the last name of the path. It works behind a server that serves the directory below another
/// path, and cannot lead to another host, as the path `//example.com` of a directory of that name could.
fn to_the_directory(uri: &Uri) -> Response<FilesBody> {
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    let mut location = format!("./{}/", utf8_percent_encode(name, FOREIGN));
    if let Some(query) = uri.query() {
        location.push('?');
        location.extend(utf8_percent_encode(query, FOREIGN));
    }
    match HeaderValue::from_str(&location) {
        Ok(location) => with(brief(StatusCode::MOVED_PERMANENTLY), LOCATION, location),
        Err(_) => brief(StatusCode::NOT_FOUND),
    }
}

impl FilesBody {
    /// Bytes that are left.
    fn left(&self) -> u64 {
        match &self.0 {
            Kind::Empty => 0,
            Kind::Text(text) => text.len() as u64,
            Kind::File(file) => file.left(),
            Kind::Parts(parts) => parts.left,
        }
    }
}

impl Parts {
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(part) = &mut self.now {
            if let Some(frame) = ready!(Pin::new(part).poll_frame(cx)) {
                let piece = frame.map(|frame| frame.into_data().unwrap_or_default());
                return Poll::Ready(Some(piece));
            }
            self.now = None;
        }
        let piece = match self.parts.pop_front() {
            Some((head, part)) => {
                self.now = Some(FileBody::new(Arc::clone(&self.file), part));
                head
            }
            None => std::mem::take(&mut self.end),
        };
        Poll::Ready(if piece.is_empty() { None } else { Some(Ok(piece)) })
    }
}

impl Body for FilesBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        match &mut this.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::Text(text) => {
                let text = std::mem::take(text);
                this.0 = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(text))))
            }
            Kind::File(file) => Pin::new(file).poll_frame(cx),
            Kind::Parts(parts) => {
                let piece = ready!(parts.poll_piece(cx));
                if let Some(Ok(piece)) = &piece {
                    parts.left = parts.left.saturating_sub(piece.len() as u64);
                }
                Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}
