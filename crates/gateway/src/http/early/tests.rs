use super::*;

fn verdict(method: Method, uri: &str, has_body: bool, policy: Early) -> EarlyVerdict {
    let uri: Uri = uri.parse().unwrap_or_default();
    decide(true, true, policy, &Request { method: &method, uri: &uri, has_body, upgrades: false })
}

#[test]
fn by_default_get_and_head_without_body_and_query_are_early() {
    use EarlyVerdict::{Forward, Wait};
    for (method, uri, body, policy, expected) in [
        (Method::GET, "/", false, Early::Safe, Forward),
        (Method::HEAD, "/a/b.css", false, Early::Safe, Forward),
        (Method::GET, "/?a=1", false, Early::Safe, Wait),
        (Method::GET, "/", true, Early::Safe, Wait),
        (Method::POST, "/", false, Early::Safe, Wait),
        (Method::OPTIONS, "/", false, Early::Safe, Wait),
        (Method::GET, "/?a=1", false, Early::Query, Forward),
        (Method::POST, "/", false, Early::Query, Wait),
        (Method::POST, "/", false, Early::Any, Forward),
        (Method::POST, "/", true, Early::Any, Wait),
        (Method::GET, "/", false, Early::Never, Wait),
    ] {
        assert_eq!(verdict(method.clone(), uri, body, policy), expected, "{method} {uri} {body} {policy:?}");
    }
}

#[test]
fn a_path_that_servers_may_read_in_two_ways_waits() {
    for path in
        ["/static/../pay", "/static/%2e%2E/pay", "/a/./b", "/a//b", "/a%2Fb", "/a%5cb", "/a;/../b", "/.."]
            .into_iter()
            // The same path as routes know by another name, and what is no encoding.
            .chain(["/%70ay", "/a%7Eb", "/a%40b", "/%c3%a4", "/a%5Cb", "/a%00b", "/a%", "/a%4", "/a%zz"])
    {
        assert_eq!(verdict(Method::GET, path, false, Early::Any), EarlyVerdict::Wait, "{path}");
    }
    for path in ["/a.b/..c/d..", "/%C3%A4", "/a%20b"] {
        assert_eq!(verdict(Method::GET, path, false, Early::Safe), EarlyVerdict::Forward, "{path}");
    }
}

#[test]
fn what_can_never_be_confirmed_is_refused_and_what_is_confirmed_passes() {
    let (get, post, uri) = (Method::GET, Method::POST, Uri::from_static("/"));
    let request = |method, upgrades| Request { method, uri: &uri, has_body: false, upgrades };
    assert_eq!(decide(true, false, Early::Safe, &request(&post, false)), EarlyVerdict::Refuse);
    assert_eq!(decide(true, false, Early::Safe, &request(&get, false)), EarlyVerdict::Forward);
    assert_eq!(decide(true, true, Early::Any, &request(&get, true)), EarlyVerdict::Wait);
    assert_eq!(decide(false, false, Early::Never, &request(&post, false)), EarlyVerdict::Confirmed);
}
