//! Short labels: names in place of long paths, so that requests fit into lookups (Zhou's thesis, section 5.1;
//! `docs/spec/dns-path.md` section 14.2).
//!
//! A label is made from the URL that it stands for, so client and server need no list in common, and a server takes a label
//! only for the URL that it was made from. Its answer names the URL in `Content-Location`; a client takes no other answer.
//!
//! ```
//! use firstflight_http::{label::{Labels, TargetName, is_for, short_path}, url::HttpUrl};
//! use hyper::{HeaderMap, Method, Request, header};
//!
//! let text = "http://www.example.com/reports/2026/november/overview.json?format=short";
//! let url: HttpUrl = text.parse()?;
//! let short = short_path(&Method::GET, &url);
//! assert_eq!(short, "/.ff/vyZXtQwAJdY");
//!
//! // At the server, without TLS.
//! let labels = Labels::new([text])?;
//! let request = Request::get(short.as_str()).header(header::HOST, "www.example.com").body(())?;
//! let TargetName::Label(path) = labels.named(false, &request) else { panic!() };
//! let answer = HeaderMap::from_iter([(header::CONTENT_LOCATION, path.as_str().parse()?)]);
//!
//! // At the client.
//! assert!(is_for(&answer, &url));
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use crate::url::{HttpUrl, UrlError};
use data_encoding::BASE64URL_NOPAD;
use hyper::header::{CONTENT_LOCATION, HOST};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method, Request};
use serde::de::{Deserialize, Deserializer, Error};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// The path of all labels.
const PREFIX: &str = "/.ff/";
/// Bytes of a label.
const LABEL: usize = 8;

type Label = [u8; LABEL];

/// The label of a request: the first 8 bytes of SHA-256 of the method, a space and the URL: scheme, `://`, the host in lower
/// case, with its port if that is not the scheme's, and the path with the query.
fn label(method: &Method, tls: bool, host: &str, path: &str) -> Label {
    let scheme = if tls { "https" } else { "http" };
    let text = format!("{method} {scheme}://{}{path}", host.to_ascii_lowercase());
    let mut label = [0; LABEL];
    label.iter_mut().zip(Sha256::digest(text)).for_each(|(to, byte)| *to = byte);
    label
}

/// The path to ask for in place of that of `url`. It has 16 bytes.
#[must_use]
pub fn short_path(method: &Method, url: &HttpUrl) -> String {
    let label = label(method, url.is_tls(), url.host_field(), url.path());
    format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&label))
}

/// Whether a response with these fields, to a request with the label of `url`, is for this URL. If not, whatever its status is,
/// the server does not know the label: it is asked in full.
#[must_use]
pub fn is_for(response: &HeaderMap, url: &HttpUrl) -> bool {
    let mut named = response.get_all(CONTENT_LOCATION).iter();
    named.next().is_some_and(|named| named.as_bytes() == url.path().as_bytes()) && named.next().is_none()
}

/// The URLs that a server can be asked for by their labels, with GET.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Labels(HashMap<Label, Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    tls: bool,
    host: String,
    path: PathAndQuery,
}

/// What the target of a request is.
#[derive(Debug, PartialEq, Eq)]
pub enum TargetName<'a> {
    /// No label.
    Path,
    /// The label of this path. The answer has it in `Content-Location`.
    Label(&'a PathAndQuery),
    /// No label of a URL of this host that is known, or not with this method.
    Unknown,
}

/// Why URLs cannot have labels.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// It is no URL of HTTP.
    #[error("{0:?}: {1}")]
    Url(String, UrlError),
    /// It is there twice, or another one has the same label.
    #[error("{0} has the label of another one, or is there twice: leave it out")]
    Same(String),
}

impl Labels {
    /// Those of these URLs.
    ///
    /// # Errors
    /// When one is no URL of HTTP, or two have one label.
    pub fn new<'a>(urls: impl IntoIterator<Item = &'a str>) -> Result<Self, LabelError> {
        let mut labels = HashMap::new();
        for text in urls {
            let wrong = |error| LabelError::Url(text.to_owned(), error);
            let url: HttpUrl = text.parse().map_err(wrong)?;
            let path = url.path().parse().map_err(|_| wrong(UrlError::NotAUrl))?;
            let entry = Entry { tls: url.is_tls(), host: url.host_field().to_ascii_lowercase(), path };
            if labels.insert(label(&Method::GET, entry.tls, &entry.host, url.path()), entry).is_some() {
                return Err(LabelError::Same(text.to_owned()));
            }
        }
        Ok(Self(labels))
    }

    /// Whether the target of a request is a label. `tls` says that the request came with TLS.
    ///
    /// Put the path in the label's place before anything else looks at the target. A label is never passed on.
    #[must_use]
    pub fn named<B>(&self, tls: bool, request: &Request<B>) -> TargetName<'_> {
        if self.0.is_empty() || !request.uri().path().starts_with(PREFIX) {
            return TargetName::Path;
        }
        self.find(tls, request).map_or(TargetName::Unknown, TargetName::Label)
    }

    fn find<B>(&self, tls: bool, request: &Request<B>) -> Option<&PathAndQuery> {
        // As a whole: nothing follows a label.
        let text = request.uri().path_and_query()?.as_str().strip_prefix(PREFIX)?;
        let asked: Label = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?.try_into().ok()?;
        let host = match request.uri().authority() {
            Some(authority) => authority.as_str(),
            None => request.headers().get(HOST)?.to_str().ok()?,
        };
        let entry = self.0.get(&asked)?;
        let is_same =
            *request.method() == Method::GET && entry.tls == tls && entry.host.eq_ignore_ascii_case(host);
        is_same.then_some(&entry.path)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let urls = Vec::<String>::deserialize(deserializer)?;
        Self::new(urls.iter().map(String::as_str)).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
