//! What `get` asks for: the method, the fields, and what becomes of the answer. The options are curl's.

use super::report::Report;
use firstflight_http::fields::given;
use firstflight_http::redirect::{self, RedirectHop};
use hyper::Method;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// The request's options.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Ask {
    /// Send this field with the request, as 'Accept: text/html'; can be repeated
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = given)]
    fields: Vec<(HeaderName, HeaderValue)>,
    /// The method [default: GET; PUT with --upload; HEAD with -I]. Only GET, HEAD, OPTIONS and TRACE are sent in the first
    /// packet without --replay-safe
    #[arg(short = 'X', long = "request", value_name = "METHOD", value_parser = method)]
    method: Option<Method>,
    /// Follow redirects, up to ten; each is a fetch with a report of its own
    #[arg(short = 'L', long = "location", conflicts_with = "upload")]
    pub follow: bool,
    /// Ask for the head of the response only (HEAD), and print it; the reports go to stderr
    #[arg(short = 'I', long = "head", conflicts_with_all = ["upload", "output"])]
    pub head: bool,
    /// Ask by the short label of the URL (16 bytes in place of its path), and in full if the server does not know it
    #[arg(long, conflicts_with_all = ["upload", "head", "method"])]
    pub short: bool,
    /// Accept any certificate of TLS. An attacker on the path can then answer in the server's place
    #[arg(short = 'k', long = "insecure", conflicts_with = "ca_file")]
    pub insecure: bool,
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
    pub fn put_fields(&self, fields: &mut HeaderMap, target: &RedirectHop) {
        let given: Vec<_> = self.fields.iter().filter(|(name, _)| target.may_get(name)).collect();
        for (name, _) in &given {
            fields.remove(name);
        }
        for (name, value) in given {
            fields.append(name, value.clone());
        }
    }

    /// What a fetch asks after a redirect with this status.
    pub fn after(&self, status: u16) -> Self {
        let mut next = self.clone();
        if redirect::becomes_get(status, &self.method(false)) {
            next.method = None;
        }
        next
    }

    /// Where to go after this report of `from`, if redirects are followed and it is one.
    /// Errors: why it cannot be followed.
    pub fn next(&self, from: &RedirectHop, report: &Report) -> Option<Result<RedirectHop, String>> {
        let (status, location) = (report.status?, report.location.as_deref()?);
        let leads_on = self.follow && redirect::is_redirect(status) && report.error.is_none();
        let fail = |why| format!("cannot follow the redirect to {location:?}: {why}");
        leads_on.then(|| from.follow(location).map_err(fail))
    }
}

#[cfg(test)]
mod tests;
