use super::*;

fn check(policy: &Policy, ip: &str) -> Result<(), Forbidden> {
    policy.check_with(SocketAddr::new(ip.parse().unwrap(), 443), |_| false)
}

#[test]
fn only_the_public_internet_is_reached_by_default() {
    use Forbidden::{LinkLocal, Loopback, Metadata, NoHost, Private};
    let policy = Policy::default();
    for (ip, expected) in [
        ("127.0.0.1", Loopback),
        ("127.255.255.254", Loopback),
        ("0.0.0.0", Loopback),
        ("0.1.2.3", Loopback),
        ("::", Loopback),
        ("::1", Loopback),
        ("::ffff:127.0.0.1", Loopback),
        ("::127.0.0.1", Loopback),
        ("::ffff:0.0.0.0", Loopback),
        ("64:ff9b::7f00:1", Loopback),
        ("2002:7f00:1::", Loopback),
        // Teredo, with the client's address inverted.
        ("2001:0:1::80ff:fffe", Loopback),
        ("169.254.169.254", LinkLocal),
        ("::ffff:169.254.169.254", LinkLocal),
        ("64:ff9b::a9fe:a9fe", LinkLocal),
        ("fe80::1", LinkLocal),
        ("febf::1", LinkLocal),
        ("100.100.100.200", Metadata),
        ("168.63.129.16", Metadata),
        ("192.0.0.192", Metadata),
        ("fd00:ec2::254", Metadata),
        ("10.0.0.1", Private),
        ("172.16.0.1", Private),
        ("172.31.255.255", Private),
        ("192.168.1.1", Private),
        ("100.64.0.1", Private),
        ("198.18.0.1", Private),
        ("fd12::1", Private),
        ("fec0::1", Private),
        ("64:ff9b:1::a00:1", Private),
        ("64:ff9b::10.0.0.1", Private),
        ("::ffff:192.168.1.1", Private),
        ("224.0.0.1", NoHost),
        ("240.0.0.1", NoHost),
        ("255.255.255.255", NoHost),
        ("192.0.0.1", NoHost),
        ("ff02::1", NoHost),
        ("100::1", NoHost),
        ("4000::1", NoHost),
    ] {
        assert_eq!(check(&policy, ip), Err(expected), "{ip}");
    }
    for ip in ["192.0.2.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2001:db8::1", "64:ff9b::808:808"] {
        assert_eq!(check(&policy, ip), Ok(()), "{ip}");
    }
}

#[test]
fn private_networks_are_an_option_and_nothing_else_is() {
    assert!(Forbidden::Private.as_str().contains("--allow-private"), "it names what helps");
    let policy = Policy { private: true, ..Policy::default() };
    for ip in ["10.0.0.1", "192.168.1.1", "fd12::1", "::ffff:10.0.0.1"] {
        assert_eq!(check(&policy, ip), Ok(()), "{ip}");
    }
    for ip in ["127.0.0.1", "169.254.169.254", "100.100.100.200", "fd00:ec2::254", "fe80::1", "0.0.0.0"] {
        assert!(check(&policy, ip).is_err(), "{ip}");
    }
}

#[test]
fn an_address_is_refused_for_each_ipv4_address_that_it_may_stand_for() {
    use Forbidden::{Itself, LinkLocal, Loopback, Metadata, NoHost, Private};
    let policy = Policy { private: true, ..Policy::default() };
    for (ip, expected) in [
        // 169.254.169.254 behind prefixes of 48, 56, 64 and 96 bits.
        ("64:ff9b:1:a9fe:a9:fe00::", LinkLocal),
        ("64:ff9b:1:a9:fe:a9fe::", LinkLocal),
        ("64:ff9b:1:0:a9:fea9:fe00:0", LinkLocal),
        ("64:ff9b:1::a9fe:a9fe", LinkLocal),
        ("64:ff9b:1:7f00:0:100::", Loopback),
        ("64:ff9b:1:7f:0:1::", Loopback),
        ("64:ff9b:1:0:7f:0:100:0", Loopback),
        ("64:ff9b:1::7f00:1", Loopback),
        ("64:ff9b:1:ab:cd:ef01:7f00:1", Loopback),
        ("64:ff9b:1::6464:64c8", Metadata),
        ("64:ff9b:1::a83f:8110", Metadata),
        ("64:ff9b:1::e000:1", NoHost),
        // ISATAP.
        ("2001:db8::5efe:7f00:1", Loopback),
        ("2001:db8::200:5efe:a9fe:a9fe", LinkLocal),
        ("fd00::5efe:7f00:1", Loopback),
    ] {
        assert_eq!(check(&policy, ip), Err(expected), "{ip}");
    }
    for ip in [
        "64:ff9b:1::a00:1",
        "64:ff9b:1::808:808",
        "64:ff9b:1:808:8:800::",
        "2001:db8::5efe:a00:1",
        "2001:db8::5efe:808:808",
    ] {
        assert_eq!(check(&policy, ip), Ok(()), "{ip}");
    }
    let default = Policy::default();
    for ip in ["64:ff9b:1::808:808", "64:ff9b:1::a00:1", "2001:db8::5efe:a00:1"] {
        assert_eq!(check(&default, ip), Err(Private), "{ip}");
    }
    let local = |policy: &Policy, ip: &str| {
        let is_local = |ip: IpAddr| ip.to_string() == "192.0.2.1";
        policy.check_with(SocketAddr::new(ip.parse().unwrap(), 443), is_local)
    };
    assert_eq!(local(&policy, "64:ff9b:1::c000:201"), Err(Loopback));
    let own = Policy { own: vec!["192.0.2.1:443".parse().unwrap()], ..policy };
    assert_eq!(check(&own, "64:ff9b:1::c000:201"), Err(Itself));
    let allowed = Policy { allowed: vec!["64:ff9b:1::/48".parse().unwrap()], ..Policy::default() };
    assert_eq!(check(&allowed, "64:ff9b:1::7f00:1"), Ok(()));
}

#[test]
fn an_allowed_network_is_allowed_in_each_form() {
    let policy = Policy { allowed: vec!["127.0.0.0/8".parse().unwrap()], ..Policy::default() };
    assert_eq!(check(&policy, "127.0.0.1"), Ok(()));
    assert_eq!(check(&policy, "::ffff:127.0.0.1"), Ok(()));
    assert!(check(&policy, "::1").is_err() && check(&policy, "10.0.0.1").is_err());
}

#[test]
fn addresses_of_this_machines_interfaces_are_refused_unless_they_are_allowed() {
    let local =
        |ip: IpAddr| ["192.0.2.1", "10.0.0.1", "2001:db8::1"].iter().any(|own| ip.to_string() == *own);
    let check =
        |policy: &Policy, ip: &str| policy.check_with(SocketAddr::new(ip.parse().unwrap(), 443), local);
    let private = Policy { private: true, ..Policy::default() };
    for ip in
        ["192.0.2.1", "::ffff:192.0.2.1", "2002:c000:201::1", "64:ff9b::c000:201", "2001:db8::1", "10.0.0.1"]
    {
        assert_eq!(check(&private, ip), Err(Forbidden::Loopback), "{ip}");
    }
    for ip in ["192.0.2.2", "2001:db8::2", "10.0.0.2"] {
        assert_eq!(check(&private, ip), Ok(()), "{ip}");
    }
    let allowed = Policy { allowed: vec!["192.0.2.0/24".parse().unwrap()], ..Policy::default() };
    assert_eq!(check(&allowed, "192.0.2.1"), Ok(()));
    assert!(is_local("127.0.0.1".parse().unwrap()) && !is_local("192.0.2.77".parse().unwrap()));
}

#[test]
fn the_proxy_is_never_its_own_target() {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    let allowed = vec!["0.0.0.0/0".parse().unwrap()];
    let policy = Policy { allowed, own: vec![at("127.0.0.1:3128")], ..Policy::default() };
    assert_eq!(policy.check(at("127.0.0.1:3128")), Err(Forbidden::Itself));
    assert_eq!(policy.check(at("[::ffff:127.0.0.1]:3128")), Err(Forbidden::Itself));
    assert_eq!(policy.check(at("127.0.0.1:3129")), Ok(()));
    // On all addresses.
    let policy = Policy { private: true, own: vec![at("0.0.0.0:3128")], ..Policy::default() };
    assert_eq!(policy.check(at("10.0.0.1:3128")), Err(Forbidden::Itself));
    assert_eq!(policy.check(at("8.8.8.8:3128")), Ok(()));
}

#[test]
fn of_several_addresses_those_that_are_allowed_remain() {
    let policy = Policy::default();
    let all =
        |list: &[&str]| list.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 1)).collect::<Vec<_>>();
    assert_eq!(policy.filter(&all(&["127.0.0.1", "192.0.2.1", "::1"])), Ok(all(&["192.0.2.1"])));
    assert_eq!(policy.filter(&all(&["::1", "127.0.0.1"])), Err(Forbidden::Loopback));
    assert_eq!(policy.filter(&[]), Ok(Vec::new()));
}
