//! The head of a request (RFC 9112 §3, §5, §6).

use super::{Limits, REFUSED, WHOLE};
use hyper::{StatusCode, Uri};

/// hyper takes no longer target.
const LONGEST_TARGET: usize = u16::MAX as usize - 2;
/// As for chunks.
const LARGEST: u64 = i64::MAX as u64;

/// What follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    None,
    Length(u64),
    Chunks,
}

/// A head that is not passed on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    /// The request line of the refusal, for the log.
    pub(super) line: String,
}

/// How far a head was looked through for its end.
#[derive(Debug, Default)]
pub(super) struct Scan {
    at: usize,
    line: usize,
    lines: usize,
}

impl Scan {
    /// Lines of fields, behind the end of a head.
    pub(super) const fn lines(&self) -> usize {
        self.lines.saturating_sub(1)
    }

    /// What was looked through.
    pub(super) fn seen<'a>(&self, input: &'a [u8]) -> &'a [u8] {
        input.get(..self.at).unwrap_or_default()
    }

    /// The end of the head. Empty lines in front of it are removed. A bare LF ends a line, too (RFC 9112 §2.2): what is
    /// passed on has CRLF.
    /// Errors: the status for a head that is too long, or cannot become one.
    pub(super) fn find_end(
        &mut self,
        input: &mut Vec<u8>,
        limits: Limits,
    ) -> Result<Option<usize>, StatusCode> {
        while let Some(&byte) = input.get(self.at) {
            let behind_cr = self.at > self.line && input.get(self.at - 1) == Some(&b'\r');
            match byte {
                b'\n' => {
                    let line = input.get(self.line..self.at).unwrap_or_default();
                    let line = line.strip_suffix(b"\r").unwrap_or(line);
                    match (line.is_empty(), self.lines) {
                        (true, 0) => {
                            input.drain(..=self.at);
                            *self = Self::default();
                            continue;
                        }
                        (true, _) => return Ok(Some(self.at + 1)),
                        (false, 0) => first_line(line)?,
                        (false, lines) if lines > limits.fields => {
                            return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
                        }
                        (false, _) => {}
                    }
                    self.lines += 1;
                    self.line = self.at + 1;
                }
                0 => return Err(StatusCode::BAD_REQUEST),
                // To some readers a bare CR ends a line.
                _ if behind_cr => return Err(StatusCode::BAD_REQUEST),
                // What is not a method is no request: a ClientHello, for example.
                _ if self.at == 0 && byte != b'\r' && !is_token(byte) => return Err(StatusCode::BAD_REQUEST),
                _ => {}
            }
            self.at += 1;
            if self.at > limits.bytes {
                return Err(match self.lines {
                    0 => StatusCode::URI_TOO_LONG,
                    _ => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                });
            }
        }
        Ok(None)
    }
}

/// The first line, without its end.
fn line_of(head: &[u8]) -> &[u8] {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The parts of a request line, which one space separates.
fn parts(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut parts = line.split(|&byte| byte == b' ');
    let found = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(found)
}

/// Whether a first line can be that of a request.
fn first_line(line: &[u8]) -> Result<(), StatusCode> {
    let (method, target, version) = parts(line).ok_or(StatusCode::BAD_REQUEST)?;
    let is_method = !method.is_empty() && method.iter().all(|&byte| is_token(byte));
    let is_version = matches!(version, b"HTTP/1.1" | b"HTTP/1.0");
    if is_method && is_version && !target.is_empty() { Ok(()) } else { Err(StatusCode::BAD_REQUEST) }
}

/// RFC 9110 §5.6.2.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
}

/// The request line of a refusal: the client's, as far as it can be used, without what it means.
pub(super) fn line_for_refusal(input: &[u8]) -> String {
    let named = parts(line_of(input)).and_then(|(method, target, _)| {
        let is_method = !method.is_empty() && method.len() < 32 && method.iter().all(|&byte| is_token(byte));
        let is_path = target.first() == Some(&b'/') && target.len() < 1024 && !target.contains(&b'#');
        let target = encoded(target);
        let usable = is_method && is_path && is_uri(&target) && method != b"CONNECT" && method != b"PRI";
        usable.then(|| (String::from_utf8_lossy(method).into_owned(), target))
    });
    let (method, target) = named.unwrap_or_else(|| ("GET".to_owned(), b"/".to_vec()));
    format!("{method} {} HTTP/1.1", String::from_utf8_lossy(&target))
}

/// Reads a whole head with so many lines of fields, and writes it as it is passed on, in at most `most` bytes.
/// Errors: how it is refused.
pub(super) fn read(head: &[u8], lines: usize, most: usize, out: &mut Vec<u8>) -> Result<Body, Refused> {
    let read = read_into(head, lines, out).and_then(|body| match out.len() <= most {
        true => Ok(body),
        // Its target had many bytes that were encoded.
        false => Err(StatusCode::URI_TOO_LONG),
    });
    read.map_err(|status| {
        out.clear();
        Refused { status, line: line_for_refusal(head) }
    })
}

fn read_into(head: &[u8], lines: usize, out: &mut Vec<u8>) -> Result<Body, StatusCode> {
    let bad = StatusCode::BAD_REQUEST;
    let line = line_of(head);
    first_line(line)?;
    let (method, target, version) = parts(line).ok_or(bad)?;
    let behind =
        head.iter().position(|&byte| byte == b'\n').and_then(|end| head.get(end + 1..)).ok_or(bad)?;
    let mut fields = vec![httparse::EMPTY_HEADER; lines];
    let fields = match httparse::parse_headers(behind, &mut fields) {
        Ok(httparse::Status::Complete((_, fields))) => fields,
        _ => return Err(bad),
    };
    let is_old = version == b"HTTP/1.0";
    check_target(method, target)?;
    let body = body(fields, is_old)?;
    let target = encoded(target);
    if target.len() > LONGEST_TARGET {
        return Err(StatusCode::URI_TOO_LONG);
    }
    if !is_uri(&target) {
        return Err(bad);
    }
    out.reserve(head.len() + 64);
    for part in [method, b" ", &target, b" ", version, b"\r\n"] {
        out.extend_from_slice(part);
    }
    for field in fields.iter() {
        if ["content-length", "transfer-encoding", REFUSED, WHOLE]
            .iter()
            .any(|name| field.name.eq_ignore_ascii_case(name))
        {
            continue;
        }
        for part in [field.name.as_bytes(), b": ", field.value, b"\r\n"] {
            out.extend_from_slice(part);
        }
    }
    if method == b"OPTIONS" && is_whole_server(&target) {
        out.extend_from_slice(format!("{WHOLE}: 1\r\n").as_bytes());
    }
    match body {
        // Whether there was a length matters to those who count bodies.
        Body::None if has(fields, "content-length") => out.extend_from_slice(b"content-length: 0\r\n"),
        Body::None => {}
        Body::Length(length) => out.extend_from_slice(format!("content-length: {length}\r\n").as_bytes()),
        Body::Chunks => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    out.extend_from_slice(b"\r\n");
    Ok(body)
}

/// Whether hyper takes a target. It would answer another one by itself, and nobody would see the request.
fn is_uri(target: &[u8]) -> bool {
    Uri::try_from(target).is_ok()
}

/// Whether a target in the absolute form ends with its authority.
fn is_whole_server(target: &[u8]) -> bool {
    let scheme = target.iter().position(|&byte| byte == b':').and_then(|colon| target.get(colon..));
    let rest = scheme.and_then(|rest| rest.strip_prefix(b"://"));
    rest.is_some_and(|authority| !authority.iter().any(|byte| matches!(byte, b'/' | b'?')))
}

fn has(fields: &[httparse::Header<'_>], name: &str) -> bool {
    fields.iter().any(|field| field.name.eq_ignore_ascii_case(name))
}

/// Refuses targets that servers read in several ways: with a fragment, or of another form than the method has (RFC 9112
/// §3.2).
fn check_target(method: &[u8], target: &[u8]) -> Result<(), StatusCode> {
    let is_authority = || !target.iter().any(|byte| matches!(byte, b'/' | b'?' | b'@'));
    let wrong = method == b"PRI"
        || target.iter().any(|&byte| byte == b'#' || byte.is_ascii_control())
        || (method == b"CONNECT" && !is_authority());
    if wrong { Err(StatusCode::BAD_REQUEST) } else { Ok(()) }
}

/// What follows the head (RFC 9112 §6.3).
fn body(fields: &[httparse::Header<'_>], is_old: bool) -> Result<Body, StatusCode> {
    let bad = Err(StatusCode::BAD_REQUEST);
    let values = |name: &'static str| {
        fields.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    };
    let mut length = None;
    for value in values("content-length") {
        let digits = std::str::from_utf8(value.trim_ascii()).unwrap_or_default();
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse::<u64>() {
            Ok(number) if is_number && number <= LARGEST && length.is_none_or(|other| other == number) => {
                length = Some(number);
            }
            _ => return bad,
        }
    }
    if !has(fields, "transfer-encoding") {
        return Ok(match length {
            None | Some(0) => Body::None,
            Some(length) => Body::Length(length),
        });
    }
    // An intermediary that passes on one of the two lengths lets others read the other one (RFC 9112 §6.1).
    if length.is_some() || is_old {
        return bad;
    }
    let mut codings: Vec<&[u8]> = values("transfer-encoding")
        .flat_map(|value| value.split(|&byte| byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    match codings.pop() {
        Some(last) if is_chunked(last) => {}
        _ => return bad,
    }
    match codings.as_slice() {
        [] => Ok(Body::Chunks),
        others if others.iter().any(|coding| coding.is_empty() || is_chunked(coding)) => bad,
        // RFC 9112 §6.1: the coding is not understood.
        _ => Err(StatusCode::NOT_IMPLEMENTED),
    }
}

/// The target, with the bytes that a URI cannot hold percent-encoded, as clients should have done (RFC 3986 §2.1).
fn encoded(target: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(target.len());
    for &byte in target {
        match byte {
            b'<' | b'>' | b'`' | 0x80.. => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            byte => out.push(byte),
        }
    }
    out
}
