#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use hyper::Request;

fn target(version: Version, uri: &str, hosts: &[&str], sni: Option<&str>) -> Result<Option<String>, u16> {
    let mut request = Request::builder().version(version).uri(uri);
    for host in hosts {
        request = request.header(HOST, *host);
    }
    let (parts, ()) = request.body(()).unwrap().into_parts();
    Target::of(&parts, sni.map_or(RequestedHost::Clear, RequestedHost::Name))
        .map(|target| target.host)
        .map_err(|status| status.as_u16())
}

#[test]
fn a_request_is_for_one_host() {
    let (h1, h2, old) = (Version::HTTP_11, Version::HTTP_2, Version::HTTP_10);
    let named = |host: &str| Ok(Some(host.to_owned()));
    assert_eq!(target(h1, "/", &["WWW.Example.com:80"], None), named("www.example.com"));
    assert_eq!(target(h1, "/", &[], None), Err(400));
    assert_eq!(target(h1, "/", &["a", "a"], None), Err(400));
    assert_eq!(target(h1, "/", &["a b"], None), Err(400));
    assert_eq!(target(h1, "/", &["user@a"], None), Err(400));
    assert_eq!(target(h1, "http://b/", &["a"], None), named("b"));
    assert_eq!(target(old, "/", &[], None), Ok(None));
    assert_eq!(target(h1, "a:80", &["a"], None), Err(400));
    assert_eq!(target(h1, "*", &["a"], None), Err(400));
    assert_eq!(target(h2, "https://a/", &[], None), named("a"));
    assert_eq!(target(h2, "https://a/", &["a"], None), named("a"));
    assert_eq!(target(h2, "https://a/", &["b"], None), Err(400));
}

/// h2 makes such URIs of a `:path` that is or has a fragment, and hyper writes nothing for the first ones.
#[test]
fn a_target_begins_with_a_slash_or_is_an_asterisk() {
    let written = |method: Method, version: Version, uri: hyper::http::uri::Parts| {
        let request = Request::builder().method(method).version(version).header(HOST, "a");
        let (parts, ()) = request.uri(Uri::from_parts(uri).unwrap()).body(()).unwrap().into_parts();
        let target = Target { authority: None, host: None };
        let path = target.path(&parts).map(|path| Uri::from(path).to_string());
        assert!(path.is_ok() || Target::of(&parts, RequestedHost::Clear).is_err(), "{path:?}");
        path.map_err(|status| status.as_u16())
    };
    let uri = |path: &[u8], scheme: Option<Scheme>| {
        let mut uri = hyper::http::uri::Parts::default();
        uri.authority = scheme.as_ref().map(|_| Authority::from_static("a"));
        let path = bytes::Bytes::copy_from_slice(path);
        (uri.scheme, uri.path_and_query) = (scheme, Some(PathAndQuery::from_maybe_shared(path).unwrap()));
        uri
    };
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for path in [&b"#x"[..], b"?x", b"*"] {
            assert_eq!(written(Method::GET, version, uri(path, None)), Err(400), "{path:?}");
        }
        assert_eq!(written(Method::GET, version, uri(b"/a?b", None)), Ok("/a?b".into()));
        assert_eq!(written(Method::OPTIONS, version, uri(b"*", None)), Ok("*".into()));
        assert_eq!(written(Method::OPTIONS, version, uri(b"#", None)), Err(400));
    }
    let of_http = |path, version| written(Method::GET, version, uri(path, Some(Scheme::HTTP)));
    assert_eq!([of_http(b"#x", Version::HTTP_2), of_http(b"?x", Version::HTTP_2)], [Err(400), Err(400)]);
    assert_eq!(of_http(b"?x", Version::HTTP_11), Ok("/?x".into()));
    assert_eq!(of_http(b"#x", Version::HTTP_11), Ok("/".into()));
}

#[test]
fn a_host_that_tls_did_not_ask_for_is_misdirected() {
    let (h1, h2) = (Version::HTTP_11, Version::HTTP_2);
    assert_eq!(target(h1, "/", &["a.example:443"], Some("a.example")), Ok(Some("a.example".into())));
    assert_eq!(target(h1, "/", &["b.example"], Some("a.example")), Err(421));
    assert_eq!(target(h2, "https://b.example/", &[], Some("a.example")), Err(421));
    assert_eq!(target(h2, "https://b.example/", &[], None), Ok(Some("b.example".into())));
}

#[test]
fn a_host_is_read_in_one_way() {
    for good in [
        "a",
        "a.example",
        "A.example:80",
        "a_b.example",
        "xn--a.example:443",
        "192.0.2.1:80",
        "[::1]:80",
        "[2001:DB8::1]",
        "a:",
    ] {
        assert!(target(Version::HTTP_11, "/", &[good], None).is_ok(), "{good}");
    }
    for bad in [
        "a.example:abc",
        "a:99999",
        "a:0",
        "a:+1",
        "a,b",
        "*",
        "*.example",
        ":80",
        "",
        "a..b",
        ".a",
        ".",
        "a b/c",
        "a/b",
        "a%2eb",
        "user@a",
        "[::1",
        "[::g]",
        "[::1]x",
        "a:80:80",
        "a;b",
        "a'b",
        "::1",
    ] {
        assert_eq!(target(Version::HTTP_11, "/", &[bad], None), Err(400), "{bad}");
        assert_eq!(target(Version::HTTP_10, "/", &[bad], None), Err(400), "{bad}");
        assert_eq!(
            target(Version::HTTP_11, "http://a/", &[bad], None),
            Err(400),
            "a Host that does not count: {bad}"
        );
    }
    assert_eq!(target(Version::HTTP_11, "ftp://a/", &["a"], None), Err(400));
}

#[test]
fn a_name_with_a_dot_at_its_end_is_the_same_name() {
    let named = Ok(Some("b.example".to_owned()));
    for host in ["b.example", "b.example.", "B.Example.:443"] {
        assert_eq!(target(Version::HTTP_11, "/", &[host], Some("b.example")), named, "{host}");
        assert_eq!(target(Version::HTTP_11, "/", &[host], None), named, "{host}");
    }
    assert_eq!(target(Version::HTTP_2, "https://b.example./", &[], Some("b.example.")), named);
}

#[test]
fn a_client_that_asked_for_nobody_gets_what_its_certificate_is_for() {
    let asked = |host: &str| {
        let request = Request::builder().uri("/").header(HOST, host).body(()).unwrap();
        let is_shown = |name: &str| name == "a.example";
        Target::of(&request.into_parts().0, RequestedHost::Nobody(&is_shown))
            .map(drop)
            .map_err(|status| status.as_u16())
    };
    assert_eq!(
        [asked("a.example"), asked("A.example.:443"), asked("192.0.2.1"), asked("[::1]:443")],
        [Ok(()); 4]
    );
    assert_eq!([asked("b.example"), asked("b.example.")], [Err(421); 2]);
}
