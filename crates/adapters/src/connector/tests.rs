use super::*;

fn server(connector: &Connector, uri: &'static str) -> String {
    match connector.authority(&Uri::from_static(uri)) {
        Ok(server) => server.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn uris_give_host_and_port() {
    let connector = Connector::new(Client::new());
    for (uri, expected) in [
        ("http://www.example.com/path", "www.example.com:80"),
        ("http://www.example.com:8080", "www.example.com:8080"),
        ("http://user@192.0.2.1:81/", "192.0.2.1:81"),
        ("http://[2001:db8::1]/", "[2001:db8::1]:80"),
        ("ftp://host/", "the scheme of ftp://host/ is neither http nor https"),
        ("/path", "the scheme of /path is neither http nor https"),
    ] {
        assert_eq!(server(&connector, uri), expected);
    }
    assert!(server(&connector, "https://host/").contains("this connector has no TLS"));
    assert!(server(&connector, "http://10.1/").contains("is not a host and a port"));
    let inner = connector.enforce_http(false);
    assert_eq!(server(&inner, "https://host/"), "host:443");
    assert_eq!(server(&inner, "http://host/"), "host:80");
}

#[test]
fn nothing_is_known_before_the_first_request() {
    let mut connector = Connector::new(Client::new());
    let stream = connector.call(Uri::from_static("http://host/")).into_inner().unwrap();
    let info = stream.inner().info();
    assert_eq!((info.outcome(), info.way(), info.peer_addr()), (Outcome::Undecided, None, None));
    drop(stream);
    assert_eq!((info.outcome(), info.times(), info.race()), (Outcome::Undecided, None, None));
}
