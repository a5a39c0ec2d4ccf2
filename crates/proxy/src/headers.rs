//! Fields that a proxy adds, and what it does about those of the next hop (RFC 9110 §7.6).

use firstflight_http::fields::{clean_request, strip_hop_by_hop};
use http::header::{CONNECTION, HOST, HeaderMap, HeaderValue, MAX_FORWARDS, TE, VIA};
use http::{Method, Version};

/// The most requests that may pass further proxies is not known to most clients. 0 means that this proxy answers.
const LAST: HeaderValue = HeaderValue::from_static("0");

/// Makes the fields of a request those of the next hop. `host` is the authority of its URI, which counts, whatever its `Host`
/// says (RFC 9112 §3.2.2).
pub(crate) fn forward_request(headers: &mut HeaderMap, host: HeaderValue, version: Version) {
    // The client has got its answer to an expectation from this proxy.
    clean_request(headers);
    if headers.contains_key(TE) {
        headers.insert(CONNECTION, HeaderValue::from_static("te"));
    }
    headers.insert(HOST, host);
    via(headers, version);
}

/// Makes the fields of a response those of the client's connection.
pub(crate) fn forward_response(headers: &mut HeaderMap, version: Version) {
    strip_hop_by_hop(headers);
    via(headers, version);
}

fn via(headers: &mut HeaderMap, version: Version) {
    let via = if version == Version::HTTP_10 { "1.0 firstflight" } else { "1.1 firstflight" };
    headers.append(VIA, HeaderValue::from_static(via));
}

/// Whether a request ends here, because it may pass no further proxy (RFC 9110 §7.6.2). Counts others down.
pub(crate) fn is_last(method: &Method, headers: &mut HeaderMap) -> bool {
    let Some(left) = headers.get(MAX_FORWARDS).filter(|_| *method == Method::OPTIONS) else { return false };
    if *left == LAST {
        return true;
    }
    let less =
        left.to_str().ok().and_then(|text| text.parse::<u32>().ok()).and_then(|left| left.checked_sub(1));
    match less {
        Some(less) => drop(headers.insert(MAX_FORWARDS, less.into())),
        None => drop(headers.remove(MAX_FORWARDS)),
    }
    false
}

#[cfg(test)]
mod tests;
