//! What becomes of a request that may be a copy of another connection's first flight (RFC 8470).

use crate::config::Early;
use firstflight_http::fields::EARLY_DATA;
use hyper::{HeaderMap, Method, Uri};

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlyVerdict {
    /// It is no copy.
    Confirmed,
    /// It goes on at once, and its header says that it is early.
    Forward,
    /// It waits until the client is confirmed.
    Wait,
    /// It gets 425, because nobody here can ever say that it is no copy.
    Refuse,
}

/// What matters of a request.
pub(super) struct Request<'a> {
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) has_body: bool,
    pub(super) upgrades: bool,
}

/// Decides about a request. `early` says that it may be a copy, `can_be_confirmed` that this will be known later.
pub(super) fn decide(
    early: bool,
    can_be_confirmed: bool,
    policy: Early,
    request: &Request<'_>,
) -> EarlyVerdict {
    match (early, request.may_run_twice(policy), can_be_confirmed) {
        (false, ..) => EarlyVerdict::Confirmed,
        (true, true, _) => EarlyVerdict::Forward,
        (true, false, true) => EarlyVerdict::Wait,
        (true, false, false) => EarlyVerdict::Refuse,
    }
}

impl Request<'_> {
    fn may_run_twice(&self, policy: Early) -> bool {
        if self.has_body || self.upgrades || !is_plain(self.uri.path()) {
            return false;
        }
        let safe = matches!(*self.method, Method::GET | Method::HEAD);
        match policy {
            Early::Never => false,
            Early::Safe => safe && self.uri.query().is_none(),
            Early::Query => safe,
            Early::Any => true,
        }
    }
}

/// Whether every server understands the path as routes do. `/static/../pay` is not under `/static/`, and `/%70ay` is `/pay`.
fn is_plain(path: &str) -> bool {
    let dots = |part: &str| matches!(part, "." | "..");
    let suspicious = path.contains(['\\', ';']) || path.contains("//") || path.split('/').any(dots);
    !suspicious && path.split('%').skip(1).all(|behind| is_needed(behind.as_bytes()))
}

/// Whether a path has to encode the byte whose two digits are at the beginning, and does it as RFC 3986 recommends (§6.2.2.1).
fn is_needed(digits: &[u8]) -> bool {
    let Some(&[high, low]) = digits.first_chunk() else { return false };
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    let byte = value(high).zip(value(low)).map(|(high, low)| high << 4 | low);
    // A slash or a backslash is not the same encoded, but many servers decode it first.
    byte.is_some_and(|byte| {
        byte != 0 && !byte.is_ascii_alphanumeric() && !b"-._~!$&'()*+,;=:@/\\".contains(&byte)
    })
}

/// Whether the client says itself that the request is early: a proxy in front of this gateway took it so. Any value counts as 1
/// (RFC 8470 §5.1).
pub(super) fn is_marked(headers: &HeaderMap) -> bool {
    headers.contains_key(EARLY_DATA)
}

#[cfg(test)]
mod tests;
