use super::*;

#[test]
fn hosts_and_ports() {
    for (text, shown) in [
        ("www.Example.com:443", "www.example.com:443"),
        ("www.example.com.:80", "www.example.com:80"),
        ("localhost:1", "localhost:1"),
        ("a_b.example:65535", "a_b.example:65535"),
        ("192.0.2.1:80", "192.0.2.1:80"),
        ("[2001:DB8::1]:80", "[2001:db8::1]:80"),
    ] {
        assert_eq!(text.parse::<Authority>().unwrap().to_string(), shown);
    }
    assert_eq!(Authority::new("::1", 5).unwrap().to_string(), "[::1]:5");
}

#[test]
fn a_link_local_address_keeps_its_zone() {
    let at = "[fe80::1%7]:80".parse::<Authority>().unwrap();
    assert_eq!(at.address(), Some(SocketAddrV6::new("fe80::1".parse().unwrap(), 80, 0, 7).into()));
    // What is shown is read again.
    assert_eq!(at.to_string(), "[fe80::1%7]:80");
    assert_eq!(Authority::from(at.address().unwrap()), at);
    assert_eq!(Authority::new("fe80::1%7", 80).unwrap(), at);
    assert_ne!("[fe80::1%8]:80".parse::<Authority>().unwrap(), at);
    // The name of the loopback device differs by system.
    for interface in ["lo", "lo0"] {
        if let Some(number) = firstflight_kernel::interface(interface) {
            let named = Authority::new(&format!("[fe80::1%{interface}]"), 80).unwrap();
            assert_eq!(named, Authority::new(&format!("fe80::1%{number}"), 80).unwrap());
        }
    }
    for wrong in ["[fe80::1%]:80", "[fe80::1%no-such-device]:80", "[fe80::1%0]:80", "[2001:db8::1%1]:80"] {
        let error = wrong.parse::<Authority>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{wrong:?} has a zone")), "{error}");
    }
    assert!("[192.0.2.1%1]:80".parse::<Authority>().is_err());
}

#[test]
fn a_server_in_every_form() {
    let at = "192.0.2.1:80".parse::<Authority>().unwrap();
    let ip = Ipv4Addr::new(192, 0, 2, 1);
    let v4 = SocketAddrV4::new(ip, 80);
    let forms: [&dyn ToAuthority; 9] = [
        &"192.0.2.1:80",
        &"192.0.2.1:80".to_owned(),
        &("192.0.2.1", 80),
        &("192.0.2.1".to_owned(), 80),
        &v4,
        &SocketAddr::from(v4),
        &(ip, 80),
        &(IpAddr::from(ip), 80),
        &at,
    ];
    for form in forms {
        assert_eq!(form.to_authority().as_ref(), Ok(&at));
    }
    let v6 = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 0, 0);
    assert_eq!(v6.to_authority(), "[::1]:80".to_authority());
    assert_eq!((Ipv6Addr::LOCALHOST, 80).to_authority(), ("::1", 80).to_authority());
    let error = SocketAddr::from((ip, 0)).to_authority().unwrap_err().to_string();
    assert!(error.starts_with("\"192.0.2.1:0\" is not a host and a port"), "{error}");
    assert!(("www.example.com", 0).to_authority().is_err());
}

#[test]
fn what_is_no_host_and_port() {
    for text in [
        "",
        ":",
        ":80",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:+1",
        "2001:db8::1:80",
        "[::1]",
        "10.1:80",
        "a b:80",
        "http://host:80",
        "ho/st:80",
        "256.1.1.1:80",
        "me@host:80",
        "0x7f000001:80",
        "127.0.0x1:80",
    ] {
        assert!(text.parse::<Authority>().is_err(), "{text}");
    }
}
