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

/// Whether every server understands the path as routes do. `/static/../pay` is not under `/static/`.
fn is_plain(path: &str) -> bool {
    let encoded = |code: &str| path.to_ascii_lowercase().contains(code);
    let dots = |part: &str| matches!(part, "." | "..");
    let suspicious = path.contains(['\\', ';']) || path.contains("//") || path.split('/').any(dots);
    !suspicious && (!path.contains('%') || !["%2e", "%2f", "%5c", "%3b", "%00"].into_iter().any(encoded))
}

/// Whether the client says itself that the request is early: a proxy in front of this gateway took it so.
pub(super) fn is_marked(headers: &HeaderMap) -> bool {
    headers.get_all(EARLY_DATA).iter().any(|value| value.as_bytes().trim_ascii() == b"1")
}

#[cfg(test)]
mod tests;
