use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn texts_that_are_none() {
    for (text, error) in [
        ("10.0.0.1", "add the length of the prefix, as in 10.9.0.1/24"),
        ("10.0.0/8", "no IP address in front of the '/'; an example is 10.9.0.1/24"),
        ("10.0.0.1/33", "behind the '/' belongs a number from 0 to 32"),
        ("fd09::1/129", "behind the '/' belongs a number from 0 to 128"),
        ("fd09::1/", "behind the '/' belongs a number from 0 to 128"),
    ] {
        assert_eq!(subnet(text), Err(error.to_owned()), "{text}");
    }
}

#[test]
fn the_address_itself_is_kept() {
    let net = subnet("10.9.1.1/23").unwrap();
    assert_eq!((net.addr(), net.prefix_len()), (ip("10.9.1.1"), 23));
}

#[test]
fn reserved_addresses() {
    let is_reserved = |net, address| is_reserved(&subnet(net).unwrap(), ip(address));
    assert!(is_reserved("10.9.1.1/23", "10.9.0.0") && is_reserved("10.9.1.1/23", "10.9.1.255"));
    assert!(!is_reserved("10.9.1.1/23", "10.9.0.255") && !is_reserved("10.9.1.1/23", "10.9.3.255"));
    assert!(!is_reserved("10.9.0.0/31", "10.9.0.1"));
    assert!(is_reserved("fd09::1/64", "fd09::"));
    assert!(!is_reserved("fd09::1/64", "fd09::2"));
}
