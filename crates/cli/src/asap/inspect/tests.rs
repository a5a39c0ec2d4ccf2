use super::*;

#[test]
fn hexadecimal_in_its_usual_forms() {
    for text in ["fd08", "FD08", "fd 08\n", "fd:08", " f d\t08 "] {
        assert_eq!(hex(text.as_bytes()), Some(vec![0xfd, 8]), "{text:?}");
    }
    for text in ["", " ", "f", "fd0", "fg", "fd-08", "0xfd"] {
        assert_eq!(hex(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn identities_are_names_or_addresses_with_a_port() {
    let named = Identity::name("www.example.com", 443);
    assert_eq!(identity("WWW.example.com.:443"), Ok(named));
    let six: IpAddr = "2001:db8::1".parse().unwrap();
    assert_eq!(identity("[2001:db8::1]:80"), Ok(Identity::address(six, 80)));
    assert_eq!(identity("192.0.2.1:80"), Ok(Identity::address("192.0.2.1".parse().unwrap(), 80)));
    for text in ["www.example.com", "www.example.com:99999", ":443", "bücher.example:443", "2001:db8::1:80:x"]
    {
        assert!(identity(text).is_err(), "{text}");
    }
}
