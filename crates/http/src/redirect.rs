//! Where a redirect leads, and what the next request may carry (RFC 9110 §15.4).

use crate::url::{HttpUrl, UrlError};
use hyper::header::{AUTHORIZATION, COOKIE, HeaderName, LOCATION};
use hyper::{HeaderMap, Method, StatusCode};

/// How many redirects to follow behind one URL.
pub const LIMIT: usize = 10;

/// These fields go to no other server than that of the first URL.
const PRIVATE: [HeaderName; 2] = [AUTHORIZATION, COOKIE];

/// The field `Location`, as the server writes it. Also other responses have it, as 201.
#[must_use]
pub fn location(fields: &HeaderMap) -> Option<String> {
    fields.get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned())
}

/// Whether a response with this status and a `Location` is a redirect that a client follows.
#[must_use]
pub const fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

/// Whether the next request is a GET without a body, in place of one with this method: after 303, and as browsers do it after
/// 301 and 302 to a POST (§15.4.2, §15.4.3, §15.4.4).
#[must_use]
pub fn becomes_get(status: u16, method: &Method) -> bool {
    let retrieves = matches!(*method, Method::GET | Method::HEAD);
    let see_other = status == StatusCode::SEE_OTHER.as_u16() && !retrieves;
    see_other || matches!(status, 301 | 302) && *method == Method::POST
}

/// A URL, and how it was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectHop {
    /// What to fetch.
    pub url: HttpUrl,
    /// A redirect led here from another server, or out of TLS.
    pub foreign: bool,
}

impl From<HttpUrl> for RedirectHop {
    /// The first one.
    fn from(url: HttpUrl) -> Self {
        Self { url, foreign: false }
    }
}

impl RedirectHop {
    /// Where a redirect of this URL leads that has this `Location`.
    ///
    /// # Errors
    /// As [`HttpUrl::join`].
    pub fn follow(&self, location: &str) -> Result<Self, UrlError> {
        let url = self.url.join(location)?;
        let elsewhere = url.server() != self.url.server() || self.url.is_tls() && !url.is_tls();
        Ok(Self { url, foreign: self.foreign || elsewhere })
    }

    /// Whether a request for this URL may have this field, which a person gave for the first one.
    #[must_use]
    pub fn may_get(&self, field: &HeaderName) -> bool {
        !self.foreign || !PRIVATE.contains(field)
    }
}

#[cfg(test)]
mod tests;
