use super::*;

#[test]
fn only_global_addresses_are_global() {
    for address in ["1.1.1.1", "9.255.255.255", "11.0.0.0", "172.32.0.1", "223.255.255.255", "100.128.0.1"]
        .into_iter()
        .chain(["2001:200::1", "2606:4700::1111", "2a00:1450::1", "3ffe::1"])
    {
        assert!(is_global(address.parse().unwrap()), "{address}");
    }
    for address in ["0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.1.1", "172.31.255.255"]
        .into_iter()
        .chain(["192.0.2.1", "192.168.1.1", "198.19.255.255", "224.0.0.1", "255.255.255.255"])
        .chain(["::", "::1", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "2001:db8::1", "2002::1"])
        .chain(["::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2001::1", "4000::1", "3fff:fff::1"])
    {
        assert!(!is_global(address.parse().unwrap()), "{address}");
    }
}

#[test]
fn what_is_allowed_is_certified() {
    let allowed = ["10.9.0.0/16".parse().unwrap(), "fd09::/16".parse().unwrap()];
    for (address, expected) in
        [("10.9.1.1", true), ("10.8.1.1", false), ("fd09:1::1", true), ("fd0a::1", false), ("8.8.8.8", true)]
    {
        assert_eq!(may_certify(address.parse().unwrap(), &allowed), expected, "{address}");
    }
}
