#![allow(clippy::unwrap_used, reason = "tests")]

use crate::config::Config;

const GOOD: &str = r#"
[gateway]
admin = "127.0.0.1:9180"

[dns]
listener = "web"
listen = ["192.0.2.80:53"]
dns_path_zone = "f.Example.com"
dns_path_key = "dns-path.key"
[[dns.zone]]
file = "example.zone"
origin = "example.com."
[dns.forward]
listen = "192.0.2.80:4455"
to = ["198.51.100.80:4455"]
key = "fronts.key"
front_id = 7
state = "boot"
[dns.relay]
listen = "192.0.2.80:4454"
key = "relay.key"

[[listener]]
name = "web"
address = ["192.0.2.80:443"]
mode = "tcp"
service = "app"
trust = "trust.toml"
identity = ["www.example.com"]

[[service]]
name = "app"
backend = ["127.0.0.1:8080"]
"#;

/// What is said of `GOOD` with these changes.
fn changed(changes: &[(&str, &str)]) -> String {
    let mut text = GOOD.to_owned();
    for (old, new) in changes {
        assert_eq!(text.matches(old).count(), 1, "{old}");
        text = text.replace(old, new);
    }
    Config::parse(&text).unwrap_err().to_string()
}

#[test]
fn a_good_table_is_read() {
    let config = Config::parse(GOOD).unwrap();
    let (dns, listener) = config.dns().unwrap();
    let front = dns.front(listener).unwrap();
    assert_eq!(front.zones.len(), 1);
    assert_eq!(front.zones[0].1.to_string(), "example.com.");
    let dns_path = front.dns_path.unwrap();
    assert_eq!(dns_path.zone.to_string(), "f.example.com.");
    assert_eq!((dns_path.front_id, dns_path.state), (7, Some("boot".into())));
    // The listener's own address.
    assert_eq!(dns_path.addresses, ["192.0.2.80".parse::<std::net::Ipv4Addr>().unwrap()]);
    assert_eq!(dns_path.others.unwrap().others, ["198.51.100.80:4455".parse().unwrap()]);

    // The socket for other name servers alone.
    let (head, rest) = GOOD.split_once("listen = [").unwrap();
    let (_, rest) = rest.split_once("[dns.relay]").unwrap();
    let config = Config::parse(&format!("{head}[dns.relay]{rest}")).unwrap();
    let (dns, listener) = config.dns().unwrap();
    assert!(dns.front(listener).is_none() && dns.relay.is_some());
}

#[test]
fn a_mistake_names_line_and_key() {
    for (changes, expected) in [
        (
            &[("listener = \"web\"", "listener = \"wob\"")][..],
            "line 6, listener: there is no listener \"wob\"",
        ),
        (&[("trust = \"trust.toml\"", "")], "line 6, listener: the listener \"web\" needs trust: "),
        (
            &[("trust =", "udp_port = 0\ntrust =")],
            "line 6, listener: the listener \"web\" needs UDP (udp_port)",
        ),
        (&[("trust =", "reuse_port = true\ntrust =")], "the listener \"web\" needs UDP (udp_port)"),
        (
            &[("[\"192.0.2.80:443\"]", "[\"192.0.2.80:443\", \"192.0.2.81:443\"]")],
            "needs one address of a family",
        ),
        (&[("trust =", "per_site = true\ntrust =")], "may reach two of them"),
        (&[("trust =", "fast_open = false\ntrust =")], "the listener \"web\" needs fast_open and pending"),
        (&[("\"f.Example.com\"", "\"f..com\"")], "line 8, dns_path_zone: \"f..com\" is no domain name"),
        (&[("origin = \"example.com.\"", "origin = \"\u{e4}\"")], "line 12, origin: "),
        (
            &[("dns_path_key = \"dns-path.key\"\n", "")],
            "line 5, [dns]: a name server needs dns_path_zone and dns_path_key",
        ),
        (
            &[("listen = [\"192.0.2.80:53\"]\n", "")],
            "line 5, [dns]: needs listen, the addresses of the name server, as",
        ),
        (&[("192.0.2.80:443", "[2001:db8::80]:443")], "line 5, [dns]: needs dns_path_address: "),
        (&[("192.0.2.80:443", "0.0.0.0:443")], "line 5, [dns]: seen_as: 0.0.0.0:443 is all addresses"),
        (
            &[("listener = \"web\"", "listener = \"web\"\nseen_as = [\"[2001:db8::80]:443\"]")],
            "line 5, [dns]: seen_as: clients cannot see the server as [2001:db8::80]:443",
        ),
        (
            &[(
                "listener = \"web\"",
                "listener = \"web\"\ndns_path_address = [\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\", \
               \"192.0.2.4\", \"192.0.2.5\", \"192.0.2.6\", \"192.0.2.7\", \"192.0.2.8\", \"192.0.2.9\"]",
            )],
            "dns_path_address has more than 8 addresses",
        ),
        (
            &[("[dns.forward]", "[[dns.zone]]\nfile = \"x\"\norigin = \"Example.com\"\n[dns.forward]")],
            "line 13, [[dns.zone]]: another zone begins at example.com., too",
        ),
        (&[("to = [\"198.51.100.80:4455\"]", "to = []")], "line 13, [dns.forward]: needs to"),
        (
            &[("198.51.100.80:4455", "192.0.2.80:4455")],
            "line 13, [dns.forward]: 192.0.2.80:4455 cannot be reached from",
        ),
        (&[("192.0.2.80:53", "0.0.0.0:443")], "line 5, [dns]: listen: 192.0.2.80:443 is in use"),
        (&[("192.0.2.80:53", "127.0.0.1:9180")], "line 5, [dns]: listen: 127.0.0.1:9180 is in use"),
        (&[("192.0.2.80:4454", "192.0.2.80:443")], "line 5, [dns]: relay.listen: 192.0.2.80:443 is in use"),
        (&[("192.0.2.80:4454", "192.0.2.80:4455")], "line 5, [dns]: relay.listen: 192.0.2.80:4455 is in use"),
        (&[("front_id = 7", "front_id = 65536")], "line 17, front_id: "),
    ] {
        let said = changed(changes);
        assert!(said.contains(expected), "{changes:?}: {said}");
    }
    // Neither a name server nor a socket for others.
    let (head, rest) = GOOD.split_once("listen = [").unwrap();
    let (_, rest) = rest.split_once("[[listener]]").unwrap();
    let said = Config::parse(&format!("{head}[[listener]]{rest}")).unwrap_err().to_string();
    assert!(said.contains("needs listen, the addresses of the name server, or [dns.relay]"), "{said}");
}

#[test]
fn a_reload_changes_only_the_zones() {
    let config = Config::parse(GOOD).unwrap();
    let difference = |old: &str, new: &str| {
        let other = Config::parse(&GOOD.replace(old, new)).unwrap();
        config.dns().unwrap().0.fixed_difference(other.dns().unwrap().0)
    };
    assert_eq!(difference("example.zone", "other.zone"), None);
    assert_eq!(difference("[dns]", "\n\n[dns]"), None);
    assert_eq!(difference("192.0.2.80:53", "192.0.2.81:53"), Some("listen"));
    assert_eq!(difference("dns-path.key", "other.key"), Some("dns_path_key"));
    assert_eq!(difference("front_id = 7", "front_id = 8"), Some("forward"));
    assert_eq!(difference("relay.key", "other.key"), Some("relay"));
}
