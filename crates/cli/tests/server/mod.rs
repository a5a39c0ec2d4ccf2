//! Servers of a directory with settings that `serve` has no options for, as files of the gateway.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests: they fail by panicking")]
#![allow(dead_code, reason = "each test file uses its part")]

use crate::dir::Dir;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

/// How the values of an option are written in the file.
#[derive(Clone, Copy)]
enum How {
    Text,
    /// A list, whose option can be repeated.
    Texts,
    Number,
    /// An option without a value.
    Is(&'static str),
}

use How::{Is, Number, Text, Texts};

/// The options: the table, the key, and how it is written.
const OPTIONS: &[(&str, &str, &str, How)] = &[
    ("--json-log", "gateway", "log", Is("\"json\"")),
    ("--metrics", "gateway", "admin", Text),
    ("--threads", "gateway", "threads", Number),
    ("--listen", "listener", "address", Texts),
    ("--udp-port", "listener", "udp_port", Number),
    ("--key-file", "listener", "key_file", Text),
    ("--key-schedule", "listener", "key_schedule", Text),
    ("--replays", "listener", "replays", Text),
    ("--one-time", "listener", "one_time", Is("true")),
    ("--trust", "listener", "trust", Text),
    ("--identity", "listener", "identity", Texts),
    ("--first-start", "listener", "first_start", Is("true")),
    ("--tls-cert", "listener.tls", "certificate", Texts),
    ("--seal", "listener.seal", "keys", Texts),
    ("--seal-name", "listener.seal", "names", Texts),
    ("--seal-port", "listener.seal", "port", Number),
    ("--seal-openings", "listener.seal", "openings", Number),
    ("--verifier", "listener.verifier", "key", Text),
    ("--verifier-allow", "listener.verifier", "allow", Texts),
    ("--tun", "listener.tun", "device", Text),
    ("--host-ip", "listener.tun", "host", Texts),
    ("--ip", "listener.tun", "address", Texts),
    ("--port", "listener.tun", "port", Number),
    ("--root", "service", "root", Text),
    ("--one-time-state", "one_time", "state", Text),
    ("--issuer", "one_time", "issuer", Number),
    ("--store", "store", "redis", Text),
    ("--store-keys", "store", "keys", Text),
    ("--store-state", "store", "state", Text),
    ("--dns-listen", "dns", "listen", Texts),
    ("--relay-seen-as", "dns", "seen_as", Texts),
    ("--dns-path-zone", "dns", "dns_path_zone", Text),
    ("--dns-path-key", "dns", "dns_path_key", Text),
    ("--dns-zone", "dns.zone", "file", Text),
    ("--dns-origin", "dns.zone", "origin", Text),
    ("--relay-listen", "dns.relay", "listen", Text),
    ("--relay-key", "dns.relay", "key", Text),
    ("--forward-listen", "dns.forward", "listen", Text),
    ("--forward-to", "dns.forward", "to", Texts),
    ("--forward-key", "dns.forward", "key", Text),
    ("--front-id", "dns.forward", "front_id", Number),
    ("--dns-state", "dns.forward", "state", Text),
];

/// In the order of the file. A table of `[[listener]]` belongs to the one before it.
const TABLES: &[&str] = &[
    "gateway",
    "listener",
    "listener.tls",
    "listener.seal",
    "listener.verifier",
    "listener.tun",
    "service",
    "one_time",
    "store",
    "dns",
    "dns.zone",
    "dns.relay",
    "dns.forward",
];

/// Writes a new file of the gateway with one listener `web` and one service `app` for trials. `options` are in the words of
/// a former `serve`; `--udp` is an address of the kernel's TCP with a UDP port, and the key of a `--tls-cert` ends with `.key`.
pub(crate) fn file(dir: &Dir, options: &[&str]) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    dir.file(&format!("gateway-{number}.toml"), &text(options))
}

/// The keys of each table, with their values.
#[derive(Default)]
struct Tables(BTreeMap<&'static str, BTreeMap<&'static str, Vec<String>>>);

impl Tables {
    fn push(&mut self, table: &'static str, key: &'static str, value: String) {
        self.0.entry(table).or_default().entry(key).or_default().push(value);
    }
}

fn text(options: &[&str]) -> String {
    let mut tables = Tables::default();
    for (key, value) in [("name", "web"), ("mode", "http"), ("service", "app")] {
        tables.push("listener", key, quoted(value));
    }
    tables.push("service", "name", quoted("app"));
    tables.push("service", "trial", "true".to_owned());
    let mut words = options.iter();
    while let Some(&option) = words.next() {
        let mut value = || *words.next().unwrap();
        if option == "--udp" {
            let at = value();
            tables.push("listener", "address", quoted(at));
            tables.push("listener", "udp_port", at.rsplit(':').next().unwrap().to_owned());
            continue;
        }
        let found = OPTIONS.iter().find(|(name, ..)| *name == option);
        let &(_, table, key, how) =
            found.unwrap_or_else(|| panic!("no key of the gateway's file for {option}"));
        let value = match how {
            Is(value) => value.to_owned(),
            Number => value().to_owned(),
            Text | Texts if table == "listener.tls" => certificate(value()),
            Text | Texts => quoted(value()),
        };
        tables.push(table, key, value);
    }
    if tables.0.keys().any(|name| name.starts_with("dns")) {
        tables.push("dns", "listener", quoted("web"));
    }
    let written = TABLES.iter().filter_map(|name| tables.0.get_key_value(name));
    written.map(|(name, keys)| table(name, keys)).collect()
}

fn table(name: &str, keys: &BTreeMap<&'static str, Vec<String>>) -> String {
    let title = match name {
        "listener" | "service" | "dns.zone" => format!("[[{name}]]"),
        _ => format!("[{name}]"),
    };
    let is_list = |key: &str| {
        OPTIONS.iter().any(|(_, of, one, how)| (*of, *one) == (name, key) && matches!(how, Texts))
    };
    let line = |(key, values): (&&'static str, &Vec<String>)| match is_list(key) {
        true => format!("{key} = [{}]\n", values.join(", ")),
        false => format!("{key} = {}\n", values.last().unwrap()),
    };
    let lines: String = keys.iter().map(line).collect();
    format!("{title}\n{lines}\n")
}

/// The paths and names of tests have no other characters than ASCII's.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

fn certificate(chain: &str) -> String {
    let key = chain.strip_suffix(".pem").unwrap_or(chain).to_owned() + ".key";
    format!("{{ chain = {chain:?}, key = {key:?} }}")
}
