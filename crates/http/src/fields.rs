//! Fields that concern one hop only (RFC 9110 §7.6.1).

use crate::{forwarded, framing};
use hyper::HeaderMap;
use hyper::header::{
    self, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

/// `Early-Data` (RFC 8470 §5.1).
pub const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");

/// The options of the `Connection` header.
fn options(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(CONNECTION).iter();
    values.flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(<[u8]>::trim_ascii)
}

/// Whether the `Connection` header names this option.
#[must_use]
pub fn connection_has(headers: &HeaderMap, option: &str) -> bool {
    options(headers).any(|one| one.eq_ignore_ascii_case(option.as_bytes()))
}

/// The protocol to which a request or response switches. Never HTTP/2: its requests would pass unseen (RFC 9113 §3.1 has no
/// such switch any more).
pub fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_http = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        name.starts_with("h2") || name.starts_with("http")
    };
    let protocol = headers.get(UPGRADE).filter(|_| connection_has(headers, "upgrade"))?;
    let names = protocol.to_str().ok()?;
    let several = headers.get_all(UPGRADE).iter().count() > 1;
    (!several && !names.split(',').any(is_http)).then(|| protocol.clone())
}

/// The protocol to which a server has switched: it names it, and the client has asked for it (RFC 9110 §7.8). `asked` is what
/// [`upgrade`] said of the request.
#[must_use]
pub fn switched(asked: &HeaderValue, response: &HeaderMap) -> Option<HeaderValue> {
    let protocol = upgrade(response)?;
    let names = |list: &HeaderValue| {
        let names = list.to_str().unwrap_or_default().split(',').map(|name| name.trim().to_ascii_lowercase());
        names.filter(|name| !name.is_empty()).collect::<Vec<_>>()
    };
    let (asked, chosen) = (names(asked), names(&protocol));
    (!chosen.is_empty() && chosen.iter().all(|name| asked.contains(name))).then_some(protocol)
}

/// Fields that a program sets itself for its connection and its body.
const NOT_GIVEN: [HeaderName; 7] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, TE, header::TRAILER, TRANSFER_ENCODING, UPGRADE];

/// Why a field that a person writes for a request is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GivenError {
    /// It is not a name, a colon and a value (RFC 9110 §5).
    #[error("write a name, a colon and a value: 'Accept: text/html'")]
    Form,
    /// The program sets it.
    #[error("{0} belongs to the connection, and is set by this program")]
    Ours(HeaderName),
}

/// Reads a field that a person writes for a request, as `Accept: text/html`.
///
/// # Errors
/// See [`GivenError`].
pub fn given(text: &str) -> Result<(HeaderName, HeaderValue), GivenError> {
    let (name, value) = text.split_once(':').ok_or(GivenError::Form)?;
    let name: HeaderName = name.parse().map_err(|_| GivenError::Form)?;
    if NOT_GIVEN.contains(&name) {
        return Err(GivenError::Ours(name));
    }
    let value = HeaderValue::from_str(value.trim()).map_err(|_| GivenError::Form)?;
    Ok((name, value))
}

/// Fields of one connection. `Transfer-Encoding` is among them: each side has framing of its own, made from the body.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Removes what concerns this hop only: the fields that always do, and those that `Connection` names. `te: trailers` stays,
/// because gRPC needs it.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let has_options = headers.contains_key(CONNECTION);
    // Nobody can make this program forget what it says itself.
    let is_named = |name: &HeaderName| connection_has(headers, name.as_str()) && !is_ours(name);
    let found: Vec<_> = headers
        .keys()
        .filter(|&name| is_of_one_hop(name) || has_options && is_named(name))
        .cloned()
        .collect();
    if found.is_empty() {
        return;
    }
    let takes_trailers = |te: &HeaderValue| {
        te.as_bytes()
            .split(|&byte| byte == b',')
            .any(|one| one.trim_ascii().eq_ignore_ascii_case(b"trailers"))
    };
    let trailers = headers.get_all(TE).iter().any(takes_trailers);
    for name in found {
        headers.remove(name);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

fn is_of_one_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name) || framing::INTERNAL.contains(name)
}

fn is_ours(name: &HeaderName) -> bool {
    forwarded::is_about_client(name) || [&EARLY_DATA, &HOST, &CONTENT_LENGTH].contains(&name)
}

/// Fields that mean something only in the head of a message (RFC 9110 §6.5.1): of one hop, of framing, of routing, of the
/// request's meaning, of authentication, and of the content's form.
const NO_TRAILERS: [HeaderName; 42] = [
    header::AGE,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    header::CONTENT_LOCATION,
    header::CONTENT_RANGE,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    COOKIE,
    header::DATE,
    EXPECT,
    header::EXPIRES,
    HOST,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::LOCATION,
    header::MAX_FORWARDS,
    header::ORIGIN,
    header::PRAGMA,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    header::RANGE,
    header::REFERER,
    header::RETRY_AFTER,
    header::SET_COOKIE,
    header::STRICT_TRANSPORT_SECURITY,
    TE,
    header::TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    header::VARY,
    header::VIA,
    header::WWW_AUTHENTICATE,
    EARLY_DATA,
    HeaderName::from_static("proxy"),
    HeaderName::from_static("x-http-method-override"),
];

/// Removes from trailers what means something only in a head, and what concerns one hop only. A peer that would merge
/// trailers into the head would otherwise take lengths, hosts and addresses from a place that nobody has checked.
pub fn clean_trailers(trailers: &mut HeaderMap) {
    strip_hop_by_hop(trailers);
    remove(trailers, |name| {
        is_of_heads(name) || as_variables_have_it(name).as_ref().is_some_and(is_of_heads)
    });
}

fn is_of_heads(name: &HeaderName) -> bool {
    NO_TRAILERS.contains(name) || forwarded::is_about_client(name)
}

/// The name that CGI, WSGI and their like cannot tell from this one: see [`drop_odd_names`].
fn as_variables_have_it(name: &HeaderName) -> Option<HeaderName> {
    let is_odd = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    name.as_str().contains(is_odd).then(|| name.as_str().replace(is_odd, "-").parse().ok())?
}

/// Removes fields whose names have other characters than letters, digits and hyphens. CGI, WSGI and their like make
/// variables of names, and `X_Real_IP` becomes the same one as `X-Real-IP`, which nobody else may set.
pub fn drop_odd_names(headers: &mut HeaderMap) {
    let is_odd =
        |name: &HeaderName| !name.as_str().bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    remove(headers, is_odd);
}

/// Removes the fields with these names.
pub(crate) fn remove(headers: &mut HeaderMap, named: impl Fn(&HeaderName) -> bool) {
    let found: Vec<_> = headers.keys().filter(|name| named(name)).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Whether nothing else is expected than `100-continue`, which a server that does not know an expectation must refuse (417,
/// RFC 9110 §10.1.1).
#[must_use]
pub fn expects_only_100(headers: &HeaderMap) -> bool {
    headers.get_all(EXPECT).iter().all(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Prepares a client's request for a backend.
pub fn clean_request(headers: &mut HeaderMap) {
    strip_hop_by_hop(headers);
    // The gateway has said "100 Continue" itself.
    headers.remove(EXPECT);
    // CGI programs take it for a setting (httpoxy).
    headers.remove("proxy");
    debug_assert!(!headers.contains_key(TRANSFER_ENCODING));
}

/// Makes one line of the cookies that HTTP/2 may split, for a backend with HTTP/1.1 (RFC 9113 §8.2.3).
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut all = Vec::new();
    for (n, cookie) in headers.get_all(COOKIE).iter().enumerate() {
        if n > 0 {
            all.extend_from_slice(b"; ");
        }
        all.extend_from_slice(cookie.as_bytes());
    }
    if let (false, Ok(value)) = (all.is_empty(), HeaderValue::from_bytes(&all)) {
        headers.insert(COOKIE, value);
    }
}

#[cfg(test)]
mod tests;
