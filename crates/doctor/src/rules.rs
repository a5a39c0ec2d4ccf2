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
mod tests;
