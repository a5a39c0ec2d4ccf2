//! What the head of a response says about its body, and what an intermediary does about it (RFC 9112 §6.1, §6.3, RFC 9110
//! §8.6, §15).
//!
//! hyper decodes only `chunked`. It takes a response with two lengths, or with a coding in front of `chunked`, and leaves the
//! fields as they were. A client behind the intermediary would read them otherwise.

use hyper::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use hyper::{HeaderMap, Method, StatusCode, Version};

/// Why a response cannot be passed on. Its server is wrong, so a gateway answers 502.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadResponse {
    /// A coding other than `chunked`, which would be lost (RFC 9112 §7), or `chunked` twice.
    #[error("a transfer coding that is not chunked")]
    Coding,
    /// `Transfer-Encoding` in HTTP/1.0 or HTTP/2 (RFC 9112 §6.1, RFC 9113 §8.2.2).
    #[error("a transfer coding in a version that has none")]
    CodingInVersion,
    /// Lengths that are no numbers, or that differ (RFC 9112 §6.3).
    #[error("a length that is no number, or several different ones")]
    Length,
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is no body, whatever the head announces.
    None,
    /// By its length, bytes.
    Length(u64),
    /// By its last chunk.
    Chunked,
    /// By the end of the connection; in HTTP/2 by the end of the stream.
    Open,
}

/// What is known of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// How the end of its body is found.
    pub framing: Framing,
    /// Whether its connection (HTTP/1) may have another request. False if the server may send bytes behind the message that
    /// the next client would take for its own response.
    pub keeps: bool,
}

/// Makes the fields of a response's head say one thing about its body: at most one of `Content-Length` and
/// `Transfer-Encoding`, in one line and one spelling. `method` is that of the request, `version` that of the server.
///
/// # Errors
/// When the head says nothing that can be passed on.
pub fn settle(
    method: &Method,
    status: StatusCode,
    version: Version,
    headers: &mut HeaderMap,
) -> Result<Settled, BadResponse> {
    let is_http1 = version < Version::HTTP_2;
    let length = length(headers)?;
    let coded = headers.contains_key(TRANSFER_ENCODING);
    if coded {
        if version != Version::HTTP_11 {
            return Err(BadResponse::CodingInVersion);
        }
        check_coding(headers)?;
        // RFC 9112 §6.3: the coding wins, and the length goes.
        headers.remove(CONTENT_LENGTH);
    } else if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    let announces = coded || length.is_some_and(|length| length > 0);
    // RFC 9110 §8.6, RFC 9112 §6.1: these have neither.
    if status.is_informational() || status == StatusCode::NO_CONTENT {
        headers.remove(CONTENT_LENGTH);
        headers.remove(TRANSFER_ENCODING);
        return Ok(Settled { framing: Framing::None, keeps: !announces });
    }
    // What they say is what a GET would have had. A server that is wrong sends a body, perhaps later, so only one that
    // says that there is none may have another request.
    if *method == Method::HEAD {
        return Ok(Settled { framing: Framing::None, keeps: !is_http1 || length == Some(0) && !coded });
    }
    if status == StatusCode::NOT_MODIFIED {
        return Ok(Settled { framing: Framing::None, keeps: !is_http1 || !announces });
    }
    // A 205 has a body of no bytes, framed as any other (RFC 9110 §15.3.6).
    Ok(match (coded, length) {
        // Two lengths may be an attempt to split a response (RFC 9112 §6.3).
        (true, length) => Settled { framing: Framing::Chunked, keeps: length.is_none() },
        (false, Some(length)) => Settled { framing: Framing::Length(length), keeps: true },
        (false, None) => Settled { framing: Framing::Open, keeps: !is_http1 },
    })
}

/// The length, if there is one.
fn length(headers: &HeaderMap) -> Result<Option<u64>, BadResponse> {
    let mut length = None;
    for value in headers.get_all(CONTENT_LENGTH) {
        let text = value.to_str().map_err(|_| BadResponse::Length)?;
        for one in text.split(',') {
            let one = one.trim_matches([' ', '\t']);
            let digits = !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_digit());
            let number = one.parse().ok().filter(|_| digits).ok_or(BadResponse::Length)?;
            if *length.get_or_insert(number) != number {
                return Err(BadResponse::Length);
            }
        }
    }
    Ok(length)
}

/// Only `chunked`, once.
fn check_coding(headers: &mut HeaderMap) -> Result<(), BadResponse> {
    let mut chunked = 0;
    for value in headers.get_all(TRANSFER_ENCODING) {
        let text = value.to_str().map_err(|_| BadResponse::Coding)?;
        // An empty element of a list is none (RFC 9110 §5.6.1).
        for coding in text.split(',').map(|one| one.trim_matches([' ', '\t'])).filter(|one| !one.is_empty()) {
            if !coding.eq_ignore_ascii_case("chunked") {
                return Err(BadResponse::Coding);
            }
            chunked += 1;
        }
    }
    if chunked != 1 {
        return Err(BadResponse::Coding);
    }
    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    Ok(())
}

#[cfg(test)]
mod tests;
