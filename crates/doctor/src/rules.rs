//! What the firewall's rules and the table of connections show: SYNPROXY, and translated addresses.

use super::command::{Ran, run};
use std::fs::File;
use std::io::Read;

/// Which kinds of rules there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// A rule answers SYNs in place of the server.
    pub synproxy: bool,
    /// A rule changes source addresses.
    pub source: bool,
    /// A rule changes destination addresses or ports.
    pub destination: bool,
}

/// Reads the rules of nftables and iptables. `None` without the privilege, or without a command that shows them.
pub(crate) fn read() -> Option<Rules> {
    let mut found = None;
    if let Ran::Output(listing) = run("nft", &["list", "ruleset"]) {
        found.get_or_insert_with(Rules::default).add(&listing);
    }
    // Legacy iptables keeps its tables apart. If there are none, do not make it load its modules.
    for (names, command) in [("ip_tables_names", "iptables-save"), ("ip6_tables_names", "ip6tables-save")] {
        let tables = std::fs::read_to_string(format!("/proc/net/{names}")).unwrap_or_default();
        if tables.trim().is_empty() {
            continue;
        }
        match run(command, &[]) {
            Ran::Output(listing) => found.get_or_insert_with(Rules::default).add(&listing),
            // There are rules that nobody shows.
            Ran::Missing | Ran::Failed(_) => return None,
        }
    }
    found
}

impl Rules {
    /// Adds what a listing of nft or of iptables-save has.
    fn add(&mut self, listing: &str) {
        for line in listing.lines().map(str::trim) {
            let first = line.split_whitespace().next().unwrap_or_default();
            // Everything else that begins a line of a listing contains names that the user chose.
            if ["table", "chain", "set", "map", "type", "comment", "#"].contains(&first) {
                continue;
            }
            let line = without_comments(line);
            let mut before = "";
            for word in line.split_whitespace() {
                let named = ["jump", "goto", "@"].contains(&before);
                let word = word.trim_matches('"');
                match word {
                    _ if named => {}
                    "synproxy" | "SYNPROXY" => self.synproxy = true,
                    "snat" | "masquerade" | "SNAT" | "MASQUERADE" | "NETMAP" => self.source = true,
                    "dnat" | "redirect" | "DNAT" | "REDIRECT" => self.destination = true,
                    _ => {}
                }
                before = word;
            }
        }
    }
}

/// A line without the text of its comments.
fn without_comments(line: &str) -> String {
    let mut rest = line;
    let mut kept = String::new();
    while let Some((before, after)) = rest.split_once("comment \"") {
        kept.push_str(before);
        rest = after.split_once('"').map_or("", |(_, behind)| behind);
    }
    kept + rest
}

/// Numbers of translated TCP connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Translated {
    pub source: usize,
    pub destination: usize,
}

/// How much of the table of connections is read, bytes.
const MOST: u64 = 16 << 20;

/// The translated connections in `/proc/net/nf_conntrack`, which root alone can read. A long table is read in part.
pub(crate) fn connections() -> Option<Translated> {
    let mut table = String::new();
    File::open("/proc/net/nf_conntrack").ok()?.take(MOST).read_to_string(&mut table).ok()?;
    Some(translated(&table))
}

/// The translated connections in the text of that table. Each line has the addresses of both directions.
fn translated(table: &str) -> Translated {
    let mut found = Translated::default();
    for line in table.lines().filter(|line| line.contains(" tcp ")) {
        let all = |name: &str| -> Vec<&str> {
            line.split_whitespace().filter_map(|word| word.strip_prefix(name)).collect()
        };
        let (from, to) = (all("src="), all("dst="));
        let (from_port, to_port) = (all("sport="), all("dport="));
        let (&[client, answering], &[server, answered]) = (from.as_slice(), to.as_slice()) else { continue };
        let ports = match (from_port.as_slice(), to_port.as_slice()) {
            (&[client, answering], &[server, answered]) => (client == answered, server == answering),
            _ => (true, true),
        };
        found.source += usize::from(client != answered || !ports.0);
        found.destination += usize::from(server != answering || !ports.1);
    }
    found
}

#[cfg(test)]
mod tests {
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
        assert_eq!(
            of("-A INPUT -p tcp -j SYNPROXY --mss 1460\n"),
            Rules { synproxy: true, ..Rules::default() }
        );
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
}
