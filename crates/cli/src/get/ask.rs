//! What `get` asks for: the method, the fields, and what becomes of the answer. The options are curl's.

use super::report::Report;
use firstflight_http::url::HttpUrl;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HeaderMap, HeaderName, HeaderValue, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::{Method, Response, StatusCode};
use std::fmt::Write as _;

/// The request's options.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Ask {
    /// Send this field with the request, as 'Accept: text/html'; can be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = field)]
    fields: Vec<(HeaderName, HeaderValue)>,
    /// The method [default: GET; PUT with --upload; HEAD with -I]. Only GET, HEAD, OPTIONS and TRACE are sent in the first
    /// packet without --replay-safe
    #[arg(short = 'X', long = "request", value_name = "METHOD", value_parser = method)]
    method: Option<Method>,
    /// Follow redirects, up to ten; each is a fetch with a report of its own
    #[arg(short = 'L', long = "location", conflicts_with = "upload")]
    follow: bool,
    /// Ask for the head of the response only (HEAD), and print it; the reports go to stderr
    #[arg(short = 'I', long = "head", conflicts_with_all = ["upload", "output"])]
    head: bool,
    /// Accept any certificate of TLS. An attacker on the path can then answer in the server's place
    #[arg(short = 'k', long = "insecure", conflicts_with = "ca_file")]
    insecure: bool,
}

/// What is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub url: HttpUrl,
    /// A redirect led here from another server, or out of TLS.
    pub foreign: bool,
}

impl From<HttpUrl> for Target {
    fn from(url: HttpUrl) -> Self {
        Self { url, foreign: false }
    }
}

/// Redirects followed for one fetch.
pub const REDIRECTS: usize = 10;
/// These are the connection's, and this command's own.
const NOT_YOURS: [HeaderName; 7] =
    [CONNECTION, CONTENT_LENGTH, EXPECT, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
/// These go to no other host than that of the URL.
const PRIVATE: [HeaderName; 2] = [AUTHORIZATION, COOKIE];

/// Parses a field.
fn field(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let says = || "write a name, a colon and a value: 'Accept: text/html'".to_owned();
    let (name, value) = text.split_once(':').ok_or_else(says)?;
    let name: HeaderName = name.parse().map_err(|_| says())?;
    if NOT_YOURS.contains(&name) {
        return Err(format!("{name} belongs to the connection, and is set by this command"));
    }
    let value = HeaderValue::from_str(value.trim()).map_err(|_| says())?;
    Ok((name, value))
}

/// Parses a method.
fn method(text: &str) -> Result<Method, &'static str> {
    match text.parse() {
        Ok(Method::CONNECT) => {
            Err("CONNECT asks for a tunnel, not for a response: firstflight proxy has tunnels")
        }
        Ok(method) => Ok(method),
        Err(_) => Err("write a method, as POST"),
    }
}

impl Ask {
    /// Whether the head of the response is printed.
    pub const fn head(&self) -> bool {
        self.head
    }

    /// Whether redirects are followed.
    pub const fn follows(&self) -> bool {
        self.follow
    }

    /// Whether any certificate is accepted.
    pub const fn insecure(&self) -> bool {
        self.insecure
    }

    /// The method.
    pub fn method(&self, upload: bool) -> Method {
        match &self.method {
            Some(method) => method.clone(),
            None if upload => Method::PUT,
            None if self.head => Method::HEAD,
            None => Method::GET,
        }
    }

    /// Whether the request may be executed twice without further ado: its method is safe (RFC 9110 §9.2.1, RFC 8470 §4).
    pub fn is_safe(&self, upload: bool) -> bool {
        self.method(upload).is_safe()
    }

    /// Puts the fields into a request for `target`, in place of the command's own of that name. A server to which a redirect
    /// led gets no fields that are for the first one.
    pub fn put_fields(&self, fields: &mut HeaderMap, target: &Target) {
        let given: Vec<_> =
            self.fields.iter().filter(|(name, _)| !target.foreign || !PRIVATE.contains(name)).collect();
        for (name, _) in &given {
            fields.remove(name);
        }
        for (name, value) in given {
            fields.append(name, value.clone());
        }
    }

    /// What a fetch asks after a redirect. A 303, and a 301 or 302 after POST, leads to a GET (RFC 9110 §15.4).
    pub fn after(&self, status: u16) -> Self {
        let post = self.method == Some(Method::POST);
        let mut next = self.clone();
        if status == StatusCode::SEE_OTHER.as_u16() && !self.head || post && matches!(status, 301 | 302) {
            next.method = None;
        }
        next
    }
}

/// The status line and the fields of a response, each on a line.
pub fn head_text<B>(response: &Response<B>) -> String {
    let mut text = format!("{:?} {}\n", response.version(), response.status());
    for (name, value) in response.headers() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    text
}

/// The target of a redirect, if `report` is one.
///
/// # Errors
/// Why it cannot be followed.
pub fn next(from: &Target, report: &Report) -> Option<Result<Target, String>> {
    let (status, location) = (report.status?, report.location.as_deref()?);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) || report.error.is_some() {
        return None;
    }
    Some(resolve(from, location))
}

fn resolve(from: &Target, location: &str) -> Result<Target, String> {
    let joined = from.url.join(location);
    let url = joined.map_err(|why| format!("cannot follow the redirect to {location:?}: {why}"))?;
    let elsewhere = url.server() != from.url.server() || from.url.is_tls() && !url.is_tls();
    Ok(Target { url, foreign: from.foreign || elsewhere })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> Target {
        url.parse::<HttpUrl>().unwrap().into()
    }

    #[test]
    fn fields_have_a_name_and_a_value() {
        assert_eq!(field("Accept: text/html").unwrap().1, "text/html");
        assert_eq!(field("x-empty:").unwrap().1, "");
        for wrong in
            ["Accept", ": a", "a b: c", "Connection: keep-alive", "content-length: 5", "a: b\r\nc: d"]
        {
            assert!(field(wrong).is_err(), "{wrong:?}");
        }
        assert!(method("CONNECT").is_err() && method("A B").is_err());
    }

    #[test]
    fn a_field_replaces_the_commands_own_and_stays_at_its_host() {
        let ask = Ask {
            fields: vec![field("Host: other.example").unwrap(), field("Cookie: a=1").unwrap()],
            ..Ask::default()
        };
        let fields = |target: &Target| {
            let mut fields = HeaderMap::new();
            fields.insert("host", HeaderValue::from_static("www.example.com"));
            ask.put_fields(&mut fields, target);
            (fields.get_all("host").iter().count(), fields["host"].clone(), fields.contains_key("cookie"))
        };
        let first = target("https://www.example.com/");
        assert_eq!(fields(&first), (1, HeaderValue::from_static("other.example"), true));
        assert!(fields(&resolve(&first, "/next").unwrap()).2);
        for elsewhere in ["https://www.example.org/", "http://www.example.com/", "//www.example.com:8443/"] {
            let away = resolve(&first, elsewhere).unwrap();
            assert!(!fields(&away).2, "{elsewhere}");
            assert!(!fields(&resolve(&away, "https://www.example.com/").unwrap()).2, "{elsewhere}");
        }
    }

    #[test]
    fn methods_and_redirects() {
        let post = Ask { method: Some(Method::POST), ..Ask::default() };
        assert!(!post.is_safe(false) && Ask::default().is_safe(false) && !Ask::default().is_safe(true));
        for (status, method) in
            [(301, Method::GET), (303, Method::GET), (307, Method::POST), (308, Method::POST)]
        {
            assert_eq!(post.after(status).method(false), method);
        }
        let head = Ask { head: true, ..Ask::default() };
        assert_eq!(head.after(303).method(false), Method::HEAD);
    }
}
