use super::*;
use std::net::{SocketAddr, SocketAddrV6};

fn url(text: &str) -> HttpUrl {
    text.parse().unwrap()
}

#[test]
fn addresses_ports_and_paths() {
    for (text, server, host_field, path) in [
        ("http://10.9.0.2", "10.9.0.2:80", "10.9.0.2", "/"),
        ("http://10.9.0.2:/", "10.9.0.2:80", "10.9.0.2:", "/"),
        ("https://10.9.0.2", "10.9.0.2:443", "10.9.0.2", "/"),
        ("http://[fd09::2]:8080/a%20b?c=d", "[fd09::2]:8080", "[fd09::2]:8080", "/a%20b?c=d"),
        ("http://Example.org:81/x", "example.org:81", "Example.org:81", "/x"),
    ] {
        let url = url(text);
        assert_eq!(url.server().to_string(), server, "{text}");
        assert_eq!((url.host_field(), url.path()), (host_field, path), "{text}");
        assert_eq!((url.is_tls(), url.to_string().as_str()), (text.starts_with("https"), text));
    }
}

#[test]
fn references_lead_where_the_rfc_says() {
    let from = url("https://a.example:8443/b/c?d");
    for (reference, to) in [
        ("http://x.example/y#z", "http://x.example/y"),
        ("HTTPS://x.example/", "https://x.example/"),
        ("//x.example/y", "https://x.example/y"),
        ("/y?z", "https://a.example:8443/y?z"),
        ("y", "https://a.example:8443/b/y"),
        ("../y", "https://a.example:8443/y"),
        ("?q", "https://a.example:8443/b/c?q"),
    ] {
        assert_eq!(from.join(reference).unwrap().as_str(), to, "{reference}");
    }
    for (wrong, error) in [
        ("ftp://x.example/", UrlError::NotHttp),
        ("http://me@x/", UrlError::UserInfo),
        ("http://[/", UrlError::NotAUrl),
    ] {
        assert_eq!(from.join(wrong), Err(error), "{wrong}");
    }
}

#[test]
fn a_zone_is_kept_and_not_sent() {
    for (text, scope) in [
        ("http://[fe80::1%25lo]:81/a%25b", 1),
        ("http://[fe80::1%lo]:81/a%25b", 1),
        ("http://[fe80::1%257]:81/a%25b", 7),
        ("http://[fe80::1%7]:81/a%25b", 7),
        ("http://[fe80::1%25]:81/a%25b", 25),
    ] {
        let url = url(text);
        let address = SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), 81, 0, scope));
        assert_eq!(url.server().address(), Some(address), "{text}");
        assert_eq!((url.host_field(), url.path()), ("[fe80::1]:81", "/a%25b"));
    }
    for (text, error) in [
        ("http://[fe80::1%25no-such-device]/", UrlError::BadZone),
        ("http://[fd09::1%25lo]/", UrlError::BadZone),
        ("http://[fe80::1%]/", UrlError::BadHost),
    ] {
        assert_eq!(text.parse::<HttpUrl>(), Err(error), "{text}");
    }
}

#[test]
fn what_cannot_be_fetched() {
    for (text, error) in [
        ("nonsense", UrlError::NotAUrl),
        ("http://", UrlError::NotAUrl),
        ("http://10.9.0.2/a b", UrlError::NotAUrl),
        ("http://[fd09::2/", UrlError::NotAUrl),
        ("/path", UrlError::NotAUrl),
        ("ftp://10.9.0.2/", UrlError::NotHttp),
        ("http://10.9.0/", UrlError::BadHost),
        ("http://0x7f.1/", UrlError::BadHost),
        ("http://[fd09]/", UrlError::BadHost),
        ("http://10.9.0.256/", UrlError::BadHost),
        ("http://1/", UrlError::BadHost),
        ("http://me@10.9.0.2/", UrlError::UserInfo),
        ("http://10.9.0.2:0/", UrlError::NotReachable),
        ("http://10.9.0.2:65536/", UrlError::NotReachable),
        ("http://0.0.0.0/", UrlError::NotReachable),
        ("http://[ff02::1]/", UrlError::NotReachable),
        ("http://255.255.255.255/", UrlError::NotReachable),
    ] {
        assert_eq!(text.parse::<HttpUrl>(), Err(error), "{text}");
    }
}
