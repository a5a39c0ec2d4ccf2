#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        headers.append(*name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn about<'a>(client: &str, host: Option<&'a str>) -> ForwardedClient<'a> {
    ForwardedClient { client: client.parse().unwrap(), tls: false, host }
}

#[test]
fn only_a_trusted_client_speaks_for_others() {
    let sent =
        [("x-forwarded-for", "203.0.113.5"), ("x-forwarded-proto", "https"), ("x-real-ip", "203.0.113.5")];
    let mut headers = map(&sent);
    set_forwarded(&mut headers, Forwarded::Both, false, &about("2001:db8::1", Some("a.example:80")));
    assert_eq!(headers.get(FOR).unwrap(), "2001:db8::1");
    assert_eq!(headers.get(PROTO).unwrap(), "http");
    assert_eq!(headers.get(HOST).unwrap(), "a.example:80");
    assert_eq!(headers.get(FORWARDED).unwrap(), "for=\"[2001:db8::1]\";proto=http;host=\"a.example:80\"");
    assert!(!headers.contains_key("x-real-ip"));
    let mut headers = map(&sent);
    set_forwarded(&mut headers, Forwarded::XForwarded, true, &about("192.0.2.1", None));
    assert_eq!(headers.get(FOR).unwrap(), "203.0.113.5, 192.0.2.1");
    assert_eq!(headers.get(PROTO).unwrap(), "https");
    assert!(!headers.contains_key(FORWARDED) && headers.contains_key("x-real-ip"));
}

#[test]
fn nobody_else_speaks_for_a_client_under_any_name() {
    assert!(OTHERS.is_sorted());
    let names = [
        "forwarded",
        "x-forwarded-ssl",
        "x-forwarded-server",
        "x-forwarded-prefix",
        "x-forwarded-port",
        "x-forwarded-client-cert",
        "x-forwarded-what-comes-next",
        "x-forwarded",
        "front-end-https",
        "x-client-ip",
        "true-client-ip",
        "client-ip",
        "x-original-url",
        "x-rewrite-url",
        "x-real-ip",
        "client-cert",
    ];
    let sent: Vec<_> =
        names.iter().map(|name| (*name, "1")).chain([("x-mine", "1"), ("x-forward", "1")]).collect();
    let left = |how, trusted| {
        let mut headers = map(&sent);
        set_forwarded(&mut headers, how, trusted, &about("192.0.2.1", None));
        let names = headers.keys().filter(|name| headers.get(*name).unwrap() == "1");
        let mut names: Vec<_> = names.map(|name| name.as_str().to_owned()).collect();
        names.sort();
        names
    };
    for how in [Forwarded::XForwarded, Forwarded::Forwarded, Forwarded::Both, Forwarded::None] {
        assert_eq!(left(how, false), ["x-forward", "x-mine"], "{how:?}");
        assert!(left(how, true).contains(&"true-client-ip".to_owned()), "{how:?}");
    }
}

#[test]
fn a_trusted_proxy_speaks_in_the_fields_that_are_configured() {
    let sent =
        [("x-forwarded-for", "203.0.113.5"), ("x-forwarded-ssl", "on"), ("forwarded", "for=203.0.113.6")];
    let read = |how| {
        let mut headers = map(&sent);
        set_forwarded(&mut headers, how, true, &about("10.0.0.1", None));
        let read = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        (read("x-forwarded-for"), read("x-forwarded-ssl"), read("forwarded"))
    };
    let (list, on) = (Some("203.0.113.5, 10.0.0.1".to_owned()), Some("on".to_owned()));
    let forwarded = Some("for=203.0.113.6, for=10.0.0.1;proto=http".to_owned());
    assert_eq!(read(Forwarded::XForwarded), (list.clone(), on.clone(), None));
    assert_eq!(read(Forwarded::Forwarded), (None, None, forwarded.clone()));
    assert_eq!(read(Forwarded::Both), (list, on, forwarded));
    assert_eq!(read(Forwarded::None), (None, None, None));
    let client = |how| {
        let trusts = |address: IpAddr| address.to_string() == "10.0.0.1";
        client(&map(&sent), how, "10.0.0.1".parse().unwrap(), trusts).to_string()
    };
    let all = [Forwarded::XForwarded, Forwarded::Forwarded, Forwarded::Both, Forwarded::None];
    assert_eq!(all.map(client), ["203.0.113.5", "203.0.113.6", "203.0.113.5", "203.0.113.5"]);
}

#[test]
fn a_client_is_who_no_trusted_one_speaks_for() {
    let trusts = |address: IpAddr| ["10.0.0.1", "10.0.0.2"].contains(&address.to_string().as_str());
    let of = |peer: &str, pairs: &[(&'static str, &str)]| {
        client(&map(pairs), Forwarded::Both, peer.parse().unwrap(), trusts).to_string()
    };
    let named = |list| of("10.0.0.1", &[("x-forwarded-for", list)]);
    assert_eq!(of("192.0.2.1", &[("x-forwarded-for", "203.0.113.5")]), "192.0.2.1", "nobody trusts it");
    assert_eq!(of("10.0.0.1", &[]), "10.0.0.1");
    assert_eq!(named("203.0.113.5"), "203.0.113.5");
    assert_eq!(
        named("198.51.100.9, 203.0.113.5"),
        "203.0.113.5",
        "what the client says itself does not count"
    );
    assert_eq!(named("203.0.113.5, 10.0.0.2"), "203.0.113.5");
    assert_eq!(named("203.0.113.5:4711, 10.0.0.2"), "203.0.113.5");
    assert_eq!(named("[2001:db8::1]:4711"), "2001:db8::1");
    assert_eq!(named("unknown, 10.0.0.2"), "10.0.0.2");
    let lines = [("x-forwarded-for", "203.0.113.5"), ("x-forwarded-for", "10.0.0.2")];
    assert_eq!(of("10.0.0.1", &lines), "203.0.113.5");
    let forwarded = "for=198.51.100.9, for=\"[2001:db8::7]:80\";proto=https, FOR=10.0.0.2";
    assert_eq!(of("10.0.0.1", &[("forwarded", forwarded)]), "2001:db8::7");
    assert_eq!(of("::ffff:10.0.0.1", &[("x-forwarded-for", "203.0.113.5")]), "203.0.113.5");
}
