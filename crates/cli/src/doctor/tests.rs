use super::*;

#[test]
fn a_server_is_one_host_and_a_port() {
    assert_eq!(server("192.0.2.1:80"), Ok(HostPort::Address(SocketAddr::from(([192, 0, 2, 1], 80)))));
    assert_eq!(server("www.example.com:443"), Ok(HostPort::Name("www.example.com".into(), 443)));
    assert_eq!(server("https://www.example.com/a?b"), Ok(HostPort::Name("www.example.com".into(), 443)));
    assert_eq!(server("http://[::1]:81/"), Ok(HostPort::Address("[::1]:81".parse().unwrap())));
    for wrong in [
        "192.0.2.1",
        "https://",
        "ftp://a/",
        "http://0.0.0.0/",
        "0.0.0.0:80",
        "[ff02::1]:80",
        "255.255.255.255:80",
        "192.0.2.1:0",
        "a:0",
        ":80",
    ] {
        assert!(server(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn data_may_have_ends_of_lines() {
    assert_eq!(text("PING\\r\\n").as_deref(), Ok("PING\r\n"));
    assert!(text("").is_err());
}
