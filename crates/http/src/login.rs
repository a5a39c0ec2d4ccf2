//! Logins that belong to a connection: NTLM and Negotiate authenticate the connection, and all requests on it, whoever sends
//! them (RFC 4559 §6, MS-NTHT).
//!
//! A connection on which such a login has begun belongs to one client until it ends. An intermediary never puts it back
//! into a pool.

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE};

/// Schemes that authenticate connections, in lower case.
const SCHEMES: [&str; 4] = ["ntlm", "negotiate", "kerberos", "nego2"];

/// Whether a request's credentials are for its connection.
#[must_use]
pub fn request_begins(headers: &HeaderMap) -> bool {
    let credentials = headers.get_all(AUTHORIZATION).iter().chain(headers.get_all(PROXY_AUTHORIZATION));
    credentials.into_iter().any(|value| names_scheme(value.as_bytes()))
}

/// Whether a response belongs to a login of its connection: a challenge, with any status, or a field that says that the
/// connection is authenticated.
#[must_use]
pub fn response_begins(headers: &HeaderMap) -> bool {
    let challenges = headers.get_all(WWW_AUTHENTICATE).iter().chain(headers.get_all(PROXY_AUTHENTICATE));
    if challenges.into_iter().any(|value| names_scheme(value.as_bytes())) {
        return true;
    }
    let says = |name: &str, expected: &[u8]| {
        let values = headers.get_all(name).iter();
        values.into_iter().any(|value| {
            value
                .as_bytes()
                .split(|byte| *byte == b',')
                .any(|one| one.trim_ascii().eq_ignore_ascii_case(expected))
        })
    };
    // MS-NTHT §2.2.2, and what proxies say that keep such connections apart.
    says("persistent-auth", b"true") || says("proxy-support", b"session-based-authentication")
}

/// Removes challenges of such schemes, line by line, and says whether another challenge is left. HTTP/2 has no such
/// logins: its connections have many requests at one time.
pub fn remove_challenges(headers: &mut HeaderMap) -> bool {
    for name in [WWW_AUTHENTICATE, PROXY_AUTHENTICATE] {
        let all: Vec<_> = headers.get_all(&name).iter().cloned().collect();
        headers.remove(&name);
        for value in all.into_iter().filter(|value| !names_scheme(value.as_bytes())) {
            headers.append(&name, value);
        }
    }
    headers.contains_key(WWW_AUTHENTICATE) || headers.contains_key(PROXY_AUTHENTICATE)
}

/// Whether an element of a list of challenges or credentials begins with one of the schemes. Text within quotes is no element.
/// If the quotes do not match, all text counts: rather a connection too many for one client than one for two.
fn names_scheme(value: &[u8]) -> bool {
    let mut quoted = false;
    let mut escaped = false;
    let mut outside = Vec::with_capacity(value.len());
    for byte in value {
        match (quoted, escaped, byte) {
            (true, true, _) => escaped = false,
            (true, false, b'\\') => escaped = true,
            (_, false, b'"') => quoted = !quoted,
            (true, false, _) => {}
            (false, ..) => outside.push(*byte),
        }
    }
    let text = if quoted { value } else { &outside };
    let elements = text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii_start);
    elements.into_iter().any(|element| {
        let word = element.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        SCHEMES.iter().any(|scheme| word.eq_ignore_ascii_case(scheme.as_bytes()))
    })
}

#[cfg(test)]
mod tests;
