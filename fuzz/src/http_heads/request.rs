//! Requests, from clients.

use super::{check_hops, fields};
use firstflight_http::forwarded::{Forwarded, ForwardedClient, client, is_about_client, set_forwarded};
use firstflight_http::target::{RequestedHost, Target, host};
use firstflight_http::{fields as rules, login, response};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, StatusCode, Uri, Version};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub fn run(choice: u8, data: &[u8]) {
    let end = data.iter().position(|&byte| byte == b'\n').unwrap_or(data.len());
    let (line, lines) = data.split_at(end);
    let headers = fields(lines);
    clean(&headers);
    trailers(&headers);
    names(&headers);
    cookies(&headers);
    settle(choice, &headers);
    let target = parts(choice, line, &headers).and_then(|parts| target(&parts));
    about_client(choice, &headers, target.as_ref());
    if let Ok(text) = std::str::from_utf8(line)
        && let Some(name) = host(text)
    {
        check_host(&name);
    }
}

fn parts(choice: u8, line: &[u8], headers: &HeaderMap) -> Option<Parts> {
    let mut words = line.split(|&byte| byte == b' ');
    let method = Method::from_bytes(words.next()?).ok()?;
    let uri = Uri::try_from(words.next()?).ok()?;
    let (mut parts, ()) = Request::new(()).into_parts();
    let version = [Version::HTTP_11, Version::HTTP_10, Version::HTTP_2][usize::from(choice >> 2) % 3];
    (parts.method, parts.uri, parts.version, parts.headers) = (method, uri, version, headers.clone());
    if parts.method != Method::OPTIONS {
        // Only the framing sets it. A client's own has gone.
        parts.headers.remove("x-firstflight-whole");
    }
    Some(parts)
}

/// One host, read in one way.
fn target(parts: &Parts) -> Option<Target> {
    let found = Target::of(parts, RequestedHost::Clear);
    let shown = |name: &str| name == "a.example";
    let of_nobody = Target::of(parts, RequestedHost::Nobody(&shown));
    let of_name = Target::of(parts, RequestedHost::Name("a.example"));
    let target = match found {
        Ok(target) => target,
        Err(status) => {
            assert_eq!((of_nobody, of_name), (Err(status), Err(status)));
            return None;
        }
    };
    assert_ne!(parts.method, Method::CONNECT);
    match (&target.authority, &target.host) {
        (Some(authority), Some(name)) => {
            assert_eq!(host(authority.as_str()).as_ref(), Some(name));
            check_host(name);
        }
        (None, None) => assert_eq!(parts.version, Version::HTTP_10),
        both => panic!("an authority without a host: {both:?}"),
    }
    assert!(parts.headers.get_all("host").iter().count() <= 1);
    let name = target.host.as_deref();
    if name.is_none_or(|name| name == "a.example") {
        assert_eq!((of_nobody.as_ref(), of_name.as_ref()), (Ok(&target), Ok(&target)));
    } else {
        assert_eq!(of_name, Err(StatusCode::MISDIRECTED_REQUEST));
        let is_address = name.is_some_and(|name| name.starts_with('[') || name.parse::<Ipv4Addr>().is_ok());
        assert_eq!(of_nobody.is_ok(), is_address);
    }
    let path = Uri::from(target.path(parts).unwrap()).to_string();
    assert!(path.starts_with('/') || (path == "*" && parts.method == Method::OPTIONS), "{path:?}");
    Some(target)
}

fn check_host(name: &str) {
    if let Some(address) = name.strip_prefix('[') {
        address.strip_suffix(']').unwrap().parse::<Ipv6Addr>().unwrap();
    } else {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        assert!(!name.is_empty() && name.len() <= 255 && name.bytes().all(allowed), "{name:?}");
        assert!(!name.starts_with('.') && !name.ends_with('.') && !name.contains(".."), "{name:?}");
    }
    assert_eq!(host(name).as_deref(), Some(name), "a host that is another one when it is read again");
}

/// As for the next hop.
fn clean(headers: &HeaderMap) {
    let mut out = headers.clone();
    rules::clean_request(&mut out);
    check_hops(headers, &out);
    assert!(!out.contains_key("expect") && !out.contains_key("proxy"));
    let mut again = out.clone();
    rules::clean_request(&mut again);
    assert_eq!(again, out);
    if let Some(protocol) = rules::upgrade(headers) {
        assert!(rules::connection_has(headers, "upgrade"));
        let protocol = protocol.to_str().unwrap().to_ascii_lowercase();
        assert!(!protocol.split(',').any(|one| one.trim().starts_with("h2")), "{protocol}");
        assert!(!protocol.split(',').any(|one| one.trim().starts_with("http")), "{protocol}");
    }
    let _ = rules::expects_only_100(headers);
}

/// As trailers.
fn trailers(headers: &HeaderMap) {
    let mut out = headers.clone();
    rules::clean_trailers(&mut out);
    check_hops(headers, &out);
    for name in ["content-length", "host", "te", "trailer", "authorization", "cookie", "set-cookie", "expect"]
        .iter()
        .chain(&["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "early-data"])
        .chain(&["content-encoding", "content-type", "content-range", "cache-control", "max-forwards"])
    {
        assert!(!out.contains_key(*name), "the trailer {name}");
    }
    let mut again = out.clone();
    rules::clean_trailers(&mut again);
    assert_eq!(again, out);
}

fn names(headers: &HeaderMap) {
    let mut out = headers.clone();
    rules::drop_odd_names(&mut out);
    let is_plain =
        |name: &str| name.bytes().all(|byte| byte == b'-' || (byte.is_ascii_alphanumeric() && byte != b'_'));
    assert!(out.keys().all(|name| is_plain(name.as_str())));
    let plain = headers.iter().filter(|(name, _)| is_plain(name.as_str())).count();
    assert_eq!(out.len(), plain);
}

fn cookies(headers: &HeaderMap) {
    let mut out = headers.clone();
    rules::join_cookies(&mut out);
    let all: Vec<_> = headers.get_all("cookie").iter().map(|value| value.as_bytes()).collect();
    let joined: Vec<_> = out.get_all("cookie").iter().map(|value| value.as_bytes()).collect();
    assert_eq!(joined.len(), all.len().min(1));
    assert_eq!(joined.concat(), all.join(&b"; "[..]));
    assert_eq!(out.len() - joined.len(), headers.len() - all.len());
}

/// What is said of a client is what the next hop reads, whatever the client says itself.
fn about_client(choice: u8, headers: &HeaderMap, target: Option<&Target>) {
    let peer = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let us = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let how = [Forwarded::XForwarded, Forwarded::Forwarded, Forwarded::Both, Forwarded::None];
    let (how, trusted) = (how[usize::from(choice) % 4], choice & 16 != 0);
    assert_eq!(client(headers, how, peer, |_| false), peer, "a client that is not trusted speaks for others");
    let _ = client(headers, how, peer, |_| true);
    let behind = client(headers, how, peer, |other| other == peer);
    let authority = target.and_then(|target| target.authority.as_ref());
    let told =
        ForwardedClient { client: behind, tls: choice & 32 != 0, host: authority.map(|host| host.as_str()) };
    let mut out = headers.clone();
    rules::clean_request(&mut out);
    set_forwarded(&mut out, how, trusted, &told);
    if !trusted {
        let ours = ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
        for name in out.keys().filter(|name| is_about_client(name)) {
            assert!(ours.contains(&name.as_str()), "{name} of a client");
            assert_eq!(out.get_all(name).iter().count(), 1, "{name} twice");
        }
    }
    let has = |start: &str| out.keys().any(|name| name.as_str().starts_with(start));
    // Names that only begin so are of others.
    let has_forwarded = out.contains_key("forwarded");
    assert!(matches!(how, Forwarded::Forwarded | Forwarded::Both) || !has_forwarded || trusted);
    assert!(matches!(how, Forwarded::XForwarded | Forwarded::Both) || !has("x-forwarded-"));
    let reads_ours = how != Forwarded::None;
    if reads_ours && behind != us {
        assert_eq!(client(&out, how, us, |other| other == us), behind, "{out:?}");
    }
}

/// The rules of responses on any fields.
fn settle(choice: u8, headers: &HeaderMap) {
    let methods = [Method::GET, Method::HEAD, Method::POST];
    let method = &methods[usize::from(choice) % 3];
    let status = StatusCode::from_u16([200, 204, 205, 206, 304, 404][usize::from(choice >> 2) % 6]).unwrap();
    for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
        let mut out = headers.clone();
        let Ok(settled) = response::settle(method, status, version, &mut out) else { continue };
        let (lengths, codings) = (out.get_all("content-length"), out.get_all("transfer-encoding"));
        let (lengths, codings) = (lengths.iter().count(), codings.iter().count());
        assert!(lengths + codings <= 1, "{lengths} lengths and {codings} codings");
        assert!(codings == 0 || (version == Version::HTTP_11 && out["transfer-encoding"] == "chunked"));
        let before = out.clone();
        let again = response::settle(method, status, version, &mut out).unwrap();
        assert_eq!((again.framing, &out), (settled.framing, &before));
        assert!(!settled.keeps || again.keeps);
    }
    let mut out = headers.clone();
    let left = login::remove_challenges(&mut out);
    assert_eq!(left, out.contains_key("www-authenticate") || out.contains_key("proxy-authenticate"));
    let _ = (login::request_begins(headers), login::response_begins(headers));
}
