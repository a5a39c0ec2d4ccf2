use super::*;

fn of(listing: &str) -> Rules {
    let mut rules = Rules::default();
    rules.add(listing);
    rules
}

#[test]
fn rules_of_nft_are_told_from_names() {
    let chain = |rule: &str| {
        format!(
            "table ip n {{\n\tchain dnat {{\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\
             \t\t{rule}\n\t}}\n}}\n"
        )
    };
    let source = Rules { source: true, ..Rules::default() };
    let destination = Rules { destination: true, ..Rules::default() };
    for (rule, found) in [
        ("tcp dport 80 dnat to numgen inc mod 2 map { 0 : 10.0.0.1, 1 : 10.0.0.2 }", destination),
        ("tcp dport 81 redirect to :82", destination),
        ("oifname \"x\" counter packets 0 bytes 0 masquerade", source),
        ("ip saddr 1.2.3.4 snat to 5.6.7.8", source),
        ("counter packets 1 bytes 2 xt target \"MASQUERADE\"", source),
        (
            "tcp dport 99 ct state invalid,untracked synproxy mss 1460 wscale 7 timestamp sack-perm",
            Rules { synproxy: true, ..Rules::default() },
        ),
        ("jump dnat", Rules::default()),
        ("accept comment \"no snat and no dnat here\"", Rules::default()),
        ("accept comment \"no snat\" masquerade", source),
    ] {
        assert_eq!(of(&chain(rule)), found, "{rule}");
    }
}

#[test]
fn rules_of_iptables_are_read() {
    let listing = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT \
                   --to-destination 10.0.0.1\n-A POSTROUTING -o eth0 -j MASQUERADE\nCOMMIT\n";
    assert_eq!(of(listing), Rules { source: true, destination: true, synproxy: false });
    assert_eq!(of("-A INPUT -p tcp -j SYNPROXY --mss 1460\n"), Rules { synproxy: true, ..Rules::default() });
    assert_eq!(of("*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n"), Rules::default());
}

#[test]
fn both_directions_of_a_connection_show_its_translation() {
    let line = |answer: &str| {
        format!(
            "ipv4     2 tcp      6 431999 ESTABLISHED src=10.0.0.1 dst=10.0.0.2 sport=40000 dport=80 {answer} \
             [ASSURED] mark=0 zone=0 use=2\n"
        )
    };
    let count = |source, destination| Translated { source, destination };
    assert_eq!(translated(&line("src=10.0.0.2 dst=10.0.0.1 sport=80 dport=40000")), count(0, 0));
    assert_eq!(translated(&line("src=10.0.0.2 dst=192.0.2.1 sport=80 dport=40000")), count(1, 0));
    assert_eq!(translated(&line("src=10.1.0.9 dst=10.0.0.1 sport=80 dport=40000")), count(0, 1));
    assert_eq!(translated(&line("src=10.0.0.2 dst=10.0.0.1 sport=8080 dport=40000")), count(0, 1));
    assert_eq!(translated(&line("src=10.1.0.9 dst=192.0.2.1 sport=80 dport=1")), count(1, 1));
    assert_eq!(translated(&line("").replace(" tcp ", " udp ")), count(0, 0));
    assert_eq!(translated("nonsense tcp src=\n"), count(0, 0));
}
