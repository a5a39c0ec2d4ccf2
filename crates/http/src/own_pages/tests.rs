use super::*;

fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut all = HeaderMap::new();
    for (name, value) in pairs {
        all.append(*name, HeaderValue::from_static(value));
    }
    all
}

#[test]
fn hosts_that_nobody_else_can_have() {
    for host in [
        "127.0.0.1:7413",
        "192.0.2.1",
        "[::1]:7413",
        "[2001:db8::1]",
        "localhost:7413",
        "LOCALHOST.",
        "metrics",
    ] {
        assert!(is_private(host), "{host}");
    }
    for host in ["pod.ns.svc.cluster.local:7413", "box.home.arpa", "a.internal:80", "x.localhost"] {
        assert!(is_private(host), "{host}");
    }
    for host in [
        "rebound.example:7413",
        "127.0.0.1.example",
        "www.example.com.",
        "local.example",
        "",
        ":80",
        "[x]",
        "[::1",
    ] {
        assert!(!is_private(host), "{host}");
    }
    assert!(is_name("Metrics.Example.com.:7413", "metrics.example.com"));
    assert!(!is_name("metrics.example.com.evil.example", "metrics.example.com"));
}

#[test]
fn pages_of_other_sites_get_nothing() {
    let own = |host: &str| host == "127.0.0.1:7413";
    let verdict = |pairs: &[_]| check(&fields(pairs), own);
    let host = ("host", "127.0.0.1:7413");
    assert_eq!(verdict(&[host]), Ok(()));
    assert_eq!(verdict(&[]), Ok(()), "HTTP/1.0");
    assert_eq!(verdict(&[("host", "rebound.example:7413")]), Err(NotOwn::Host));
    assert_eq!(verdict(&[host, host]), Err(NotOwn::Host));
    assert_eq!(verdict(&[host, ("origin", "http://127.0.0.1:7413")]), Ok(()));
    assert_eq!(verdict(&[host, ("origin", "http://evil.example")]), Err(NotOwn::Site));
    assert_eq!(verdict(&[host, ("origin", "null")]), Err(NotOwn::Site));
    assert_eq!(verdict(&[("origin", "http://")]), Err(NotOwn::Site));
    assert_eq!(verdict(&[host, ("sec-fetch-site", "same-origin")]), Ok(()));
    assert_eq!(verdict(&[host, ("sec-fetch-site", "cross-site")]), Err(NotOwn::Site));
}
