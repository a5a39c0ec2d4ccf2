//! Heads on their way through an intermediary: requests, trailers and what is said of clients, and the responses of a backend
//! that sends any bytes. What goes on has one framing, one host, and nothing that concerns another hop.
//!
//! The first byte of an input chooses methods, versions and pieces. The rest is lines `name: value` behind a request line, or
//! a backend's bytes.

mod request;
mod response;
#[path = "../http_wire.rs"]
mod wire;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// Fields of one hop, which go no further.
const ONE_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "transfer-encoding",
    "upgrade",
    "x-firstflight-refused",
    "x-firstflight-whole",
];

pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    request::run(choice, rest);
    response::run(choice, rest);
}

/// All fields that lines hold.
fn fields(lines: &[u8]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in lines.split(|&byte| byte == b'\n').take(200) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            map.append(name, value);
        }
    }
    map
}

/// The names that `Connection` lists, in lower case.
fn named(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all("connection").into_iter();
    let names = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let names = names.filter_map(|name| std::str::from_utf8(name.trim_ascii()).ok());
    names.map(str::to_ascii_lowercase).collect()
}

/// What concerned one hop has gone, and what is said by an intermediary itself has not.
fn check_hops(before: &HeaderMap, after: &HeaderMap) {
    for name in ONE_HOP {
        assert!(!after.contains_key(name), "{name} goes on");
    }
    assert!(after.get_all("te").iter().all(|te| te == "trailers"));
    let ours = |name: &str| {
        name.starts_with("x-forwarded-")
            || ["forwarded", "x-real-ip", "early-data", "host", "content-length", "te"].contains(&name)
    };
    for name in named(before) {
        assert!(ours(&name) || !after.contains_key(&name[..]), "{name} goes on, which Connection names");
    }
    for name in after.keys().filter(|name| *name != "te") {
        assert!(before.get_all(name).iter().eq(after.get_all(name)), "{name} has changed");
    }
}
