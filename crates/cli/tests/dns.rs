//! `firstflight dns` as an operator uses it.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program;
use crate::program::{Running, fails, prints};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const ZONE: &str = "$TTL 60\n@ IN SOA ns hostmaster 1 3600 900 604800 60\n@ IN NS ns\nns IN A 192.0.2.53\n";

/// A front that is running.
struct Front {
    running: Running,
    address: String,
    dns_path: String,
}

impl Front {
    fn start(args: &[&str]) -> Self {
        let mut running = Running::start(&[&["dns", "--listen", "127.0.0.1:0"], args].concat());
        let (address, dns_path) = (running.address(), running.line());
        Self { running, address, dns_path }
    }

    /// A front without a DNS-path zone, with a log.
    fn start_plain(args: &[&str], log: &str) -> Self {
        let args = [&["dns", "--listen", "127.0.0.1:0"], args].concat();
        let mut running = Running::start_logging(&args, log);
        let address = running.address();
        Self { running, address, dns_path: String::new() }
    }

    /// The last octet of the address of `ns.xyz.com`.
    fn octet(&self) -> u8 {
        *self.ask(b"\x02ns\x03xyz\x03com\x00").last().unwrap()
    }

    /// Queries type A of a name in wire form. Returns the answer after the header.
    fn ask(&self, name: &[u8]) -> Vec<u8> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let query = [&[0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], name, &[0, 1, 0, 1]].concat();
        socket.send_to(&query, &self.address).unwrap();
        let mut answer = [0; 512];
        let len = socket.recv(&mut answer).unwrap();
        assert_eq!(answer[..4], [0, 7, 0x84, 0], "{answer:?}");
        answer[12..len].to_vec()
    }
}

#[test]
fn a_front_answers_names_and_fragments_and_remembers_its_start() {
    let dir = Dir::new("run");
    let (zone, key, relay) = (dir.file("zone", ZONE), dir.path("key"), dir.path("relay"));
    let made = prints(&["dns", "keygen", "-o", &key]);
    let public = made.trim().strip_prefix("dns-path-key ").unwrap();
    assert!(public.starts_with("1:") && public.len() == 66, "{made}");
    prints(&["dns", "keygen", "--relay", "-o", &relay]);
    for path in [&key, &relay] {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let (to, state) = (format!("127.0.0.1:9={relay}"), dir.path("boot"));
    let args = [
        "--zone",
        &zone,
        "--origin",
        "f.xyz.com",
        "--dns-path-zone",
        "F.xyz.com.",
        "--dns-path-address",
        "192.0.2.80",
        "--key-file",
        &key,
        "--relay",
        &to,
        "--state",
        &state,
    ];
    let front = Front::start(&args);
    assert_eq!(front.dns_path, format!("DNS-path zone f.xyz.com., dns-path-key {public}"));
    assert!(front.ask(b"\x02ns\x01f\x03xyz\x03com\x00").ends_with(&[0, 0, 0, 60, 0, 4, 192, 0, 2, 53]));
    let fragment = [&b"\x3fff0"[..], &[200; 60], b"\x01F\x03xyz\x03com\x00"].concat();
    let answer = front.ask(&fragment);
    assert!(answer.starts_with(&fragment) && answer.ends_with(&[0, 0, 0, 0, 0, 4, 192, 0, 2, 80]));

    // A second front would send with the same numbers.
    let second: Vec<&str> = ["dns", "--listen", "127.0.0.1:0"].into_iter().chain(args).collect();
    fails(&second, 1, "is held by another front");
    let first: u64 = std::fs::read_to_string(&state).unwrap().trim().parse().unwrap();
    assert_eq!(
        front.running.stop(),
        ["answers: 2 (1 to fragments); first flights: 0 put together, 0 relayed"]
    );
    Front::start(&args).running.stop();
    let next: u64 = std::fs::read_to_string(&state).unwrap().trim().parse().unwrap();
    assert!(next > first, "{next} {first}");
}

#[test]
fn a_new_key_leaves_the_old_one_for_a_while_and_is_published() {
    let dir = Dir::new("turn");
    let (old, new) = (dir.path("old"), dir.path("new"));
    prints(&["dns", "keygen", "-o", &old]);
    let made = prints(&["dns", "keygen", "-o", &new, "--after", &old, "--opens", "2h"]);
    let lines: Vec<&str> = made.lines().collect();
    let public = lines[0].strip_prefix("dns-path-key ").unwrap();
    assert!(public.starts_with("2:"), "{made}");
    assert_eq!(lines[1..], ["former 1 opens for 7200 s"]);
    let verifier = "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c";
    let record = ["asap", "record", "--verifier-key", verifier, "--udp-port", "443"];
    let carried = [&record[..], &["--dns-path-zone", "f.xyz.com", "--dns-path-key", public]].concat();
    let (plain, carried) = (prints(&record), prints(&carried));
    // Bit 2 of the flags, the key's number, the key and the zone (asap.md section 9).
    assert!(plain.starts_with("key65300=\"\\001\\002") && carried.starts_with("key65300=\"\\001\\006"));
    assert_eq!(carried.len() - plain.len(), 4 * (32 + 11));
    assert!(
        carried.trim().ends_with("\\001\\102\\003\\120\\121\\122\\003\\099\\111\\109\\000\""),
        "{carried}"
    );
}

/// The zone with this serial number. Its name server is at 192.0.2.`serial`.
fn serial(serial: u8) -> String {
    ZONE.replace("hostmaster 1", &format!("hostmaster {serial}"))
        .replace("192.0.2.53", &format!("192.0.2.{serial}"))
}

/// Replaces a file by another one, as editors do.
fn put(path: &str, text: &str) {
    let new = format!("{path}.new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(&new, path).unwrap();
}

#[test]
fn a_zone_is_read_again_and_a_mistake_changes_nothing() {
    let dir = Dir::new("reload");
    let (zone, other, log) = (dir.file("zone", &serial(1)), dir.file("other", &serial(1)), dir.path("log"));
    let args = ["--zone", &zone, "--origin", "xyz.com", "--zone", &other, "--origin", "xyz.net"];
    let mut front = Front::start_plain(&args, &log);
    assert_eq!(front.octet(), 1);
    put(&zone, &serial(2));
    front.running.signal("HUP");
    front.running.line_is("zone xyz.com. read again, serial 2");
    front.running.line_is("zone xyz.net. read again, serial 1");
    assert_eq!(front.octet(), 2);

    // One zone has a mistake, so all zones stay unchanged.
    put(&other, &format!("{}\nwww IN A 192.0.2\n", serial(3)));
    put(&zone, &serial(3));
    front.running.signal("HUP");
    let says = format!("the zones stay as they are: the zone file {other} for xyz.net., line 6: ");
    let said = || std::fs::read_to_string(&log).unwrap().lines().filter(|line| line.contains(&says)).count();
    program::until(|| said() > 0);
    assert_eq!(front.octet(), 2);

    // The mistake is corrected, without a signal.
    put(&other, &serial(4));
    front.running.line_is("zone xyz.com. read again, serial 3");
    front.running.line_is("zone xyz.net. read again, serial 4");
    assert_eq!(front.octet(), 3);
    // One warning, and one more for the signal.
    assert!(said() <= 2);
    front.running.stop();
}

#[test]
fn sighup_does_not_end_a_front_without_zone_files() {
    let dir = Dir::new("hangup");
    let (key, relay) = (dir.path("key"), dir.path("relay"));
    prints(&["dns", "keygen", "-o", &key]);
    prints(&["dns", "keygen", "--relay", "-o", &relay]);
    let (to, state) = (format!("127.0.0.1:9={relay}"), dir.path("boot"));
    let zone = ["--dns-path-zone", "f.xyz.com", "--dns-path-address", "192.0.2.80"];
    let front = Front::start(&[&zone[..], &["--key-file", &key, "--relay", &to, "--state", &state]].concat());
    front.running.signal("HUP");
    let fragment = [&b"\x3fff0"[..], &[200; 60], b"\x01f\x03xyz\x03com\x00"].concat();
    assert!(front.ask(&fragment).ends_with(&[0, 4, 192, 0, 2, 80]));
    // The front exits with success after SIGTERM.
    front.running.stop();
}

#[test]
fn settings_come_from_a_file_that_is_checked_beside_the_front() {
    let dir = Dir::new("config");
    let (key, relay, log) = (dir.path("key"), dir.path("relay"), dir.path("log"));
    prints(&["dns", "keygen", "-o", &key]);
    prints(&["dns", "keygen", "--relay", "-o", &relay]);
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\ndns_path_zone = \"f.xyz.com\"\ndns_path_address = [\"192.0.2.80\"]\nkey_file = {key:?}\n\
         relay = [\"127.0.0.1:9={relay}\"]\nstate = {:?}\n",
        dir.path("boot")
    );
    let file = dir.file("dns.toml", &text);
    prints(&["dns", "check", &file]);
    assert!(!std::fs::exists(dir.path("boot")).unwrap(), "a check starts nothing");
    let mut running = Running::start_logging(&["dns", "--config", &file], &log);
    let address = running.address();
    let front = Front { running, address, dns_path: String::new() };
    let fragment = [&b"\x3fff0"[..], &[200; 60], b"\x01f\x03xyz\x03com\x00"].concat();
    assert!(front.ask(&fragment).ends_with(&[0, 4, 192, 0, 2, 80]));
    // The file of starts is held by the front.
    assert!(prints(&["dns", "check", &file]).ends_with("dns.toml is right\n"));

    let said = |text: &str| std::fs::read_to_string(&log).unwrap().contains(text);
    dir.file("dns.toml", &text.replace("192.0.2.80", "192.0.2.81"));
    front.running.signal("HUP");
    program::until(|| said("what has changed needs a restart"));
    dir.file("dns.toml", &text.replace("key_file =", "key ="));
    fails(&["dns", "check", &file], 2, "line 4, key: unknown field");
    front.running.signal("HUP");
    program::until(|| said("line 4, key: unknown field"));
    fails(&["dns", "--config", &file, "--listen", "127.0.0.1:0"], 2, "cannot be used with");
    assert!(front.ask(&fragment).ends_with(&[0, 4, 192, 0, 2, 80]));
    front.running.stop();
}

#[test]
fn a_relay_key_that_changes_while_another_key_file_is_wrong_is_used() {
    let dir = Dir::new("two-keys");
    let (key, relay, log) = (dir.path("key"), dir.path("relay"), dir.path("log"));
    prints(&["dns", "keygen", "-o", &key]);
    prints(&["dns", "keygen", "--relay", "-o", &relay]);
    let (to, state) = (format!("127.0.0.1:9={relay}"), dir.path("boot"));
    let zone = ["--dns-path-zone", "f.xyz.com", "--dns-path-address", "192.0.2.80"];
    let args = [&zone[..], &["--key-file", &key, "--relay", &to, "--state", &state, "-v"]].concat();
    let front = Front::start_plain(&args, &log);
    let said = |text: &str| std::fs::read_to_string(&log).unwrap().contains(text);
    let boot = || std::fs::read_to_string(&state).unwrap();
    let first = boot();
    dir.file("key", "no key\n");
    program::until(|| said("line 1 is none of a key file"));
    dir.file("relay", &format!("relay 2 {}\n", "0badc0de".repeat(8)));
    // The file was read, which counts as another start. A later check of the files reports another mistake.
    program::until(|| boot() > first);
    std::fs::remove_file(&key).unwrap();
    program::until(|| said("make one with `firstflight dns keygen`"));
    front.running.stop();
    assert!(said("relay keys have changed"), "{}", std::fs::read_to_string(&log).unwrap());
}

#[test]
fn a_loop_of_aliases_is_warned_of_with_its_line() {
    let dir = Dir::new("loop");
    let (zone, log) = (dir.file("zone", &format!("{ZONE}a IN CNAME b\nb IN CNAME a\n")), dir.path("log"));
    Front::start_plain(&["--zone", &zone, "--origin", "xyz.com"], &log).running.stop();
    let said = std::fs::read_to_string(&log).unwrap();
    let says =
        format!("the zone file {zone} for xyz.com., line 5: the CNAME record at a.xyz.com. leads back");
    assert_eq!(said.lines().filter(|line| line.contains(&says)).count(), 1, "{said}");
}

#[test]
fn mistakes_are_told_in_one_line() {
    let dir = Dir::new("mistakes");
    let zone = dir.file("zone", ZONE);
    let key = dir.file("key", &format!("key 1 {}\n", "0badc0de".repeat(8)));
    let relay = dir.file("relay", &format!("relay 1 {}\n", "0badc0de".repeat(8)));
    let listen = ["dns", "--listen", "127.0.0.1:0"];
    let with = |args: &[&str], says: &str| fails(&[&listen[..], args].concat(), 2, says);
    fails(&["dns"], 2, "--listen");
    with(&[], "say what to serve");
    with(&["--zone", &zone], "1 --zone and 0 --origin");
    with(&["--zone", &dir.path("none"), "--origin", "xyz.com"], "cannot read the zone file");
    with(&["--zone", &key, "--origin", "xyz.com"], "for xyz.com., line 1: an entry that cannot be read");
    let wrong = dir.file("wrong", &format!("{ZONE}\na IN CNAME b\na IN A 192.0.2.1\n"));
    with(
        &["--zone", &wrong, "--origin", "xyz.com"],
        &format!("the zone file {wrong} for xyz.com., line 7: a CNAME record beside others at a.xyz.com."),
    );
    let included = dir.file("included", &format!("{ZONE}$INCLUDE wrong\n"));
    with(
        &["--zone", &included, "--origin", "xyz.com"],
        &format!("the zone file {wrong} for xyz.com., line 2: "),
    );
    let bare = dir.file("bare", "");
    with(&["--zone", &bare, "--origin", "xyz.com"], "for xyz.com.: no SOA record at its origin");
    with(&["--zone", &zone, "--origin", "x..y"], "write a domain name");
    with(
        &["--zone", &zone, "--origin", "a.com", "--zone", &zone, "--origin", "a.com"],
        "two zones begin at a.com.",
    );
    with(&["--dns-path-zone", "f.xyz.com"], "--dns-path-address");
    with(
        &["--zone", &zone, "--origin", "xyz.com", "--user", "no-such-user"],
        "there is no user \"no-such-user\"",
    );

    let (to, state) = (format!("192.0.2.80:4454={relay}"), dir.path("boot"));
    let dns_path = |changes: &[(&str, &str)], says: &str| {
        let mut args = vec![
            ("--dns-path-zone", "f.xyz.com"),
            ("--dns-path-address", "192.0.2.80"),
            ("--key-file", &key),
            ("--relay", &to),
            ("--state", &state),
        ];
        for (option, value) in changes {
            match args.iter_mut().find(|(other, _)| other == option) {
                Some(place) => place.1 = value,
                None => args.push((option, value)),
            }
        }
        let args: Vec<&str> = args.iter().flat_map(|(option, value)| [*option, *value]).collect();
        with(&args, says);
    };
    dns_path(&[("--key-file", &dir.path("none"))], "make one with `firstflight dns keygen`");
    dns_path(&[("--key-file", &relay)], "line 1 is none of a key file");
    dns_path(&[("--relay", &format!("192.0.2.80:4454={key}"))], "line 1 is none of a key file");
    dns_path(&[("--relay", "192.0.2.80:4454")], "write a server and its key file");
    dns_path(&[("--state", &key)], "is not what a front wrote");
    dns_path(&[("--dns-path-zone", ".")], "the DNS-path zone is the root");
    let fronts_without_number =
        [("--forward-listen", "127.0.0.1:0"), ("--forward-to", "127.0.0.1:9"), ("--forward-key", &relay)];
    let fronts = |changes: &[(&str, &str)], says: &str| {
        let mut args: Vec<(&str, &str)> = fronts_without_number.to_vec();
        args.push(("--front-id", "1"));
        args.extend(changes);
        dns_path(&args, says);
    };
    dns_path(&[("--forward-listen", "127.0.0.1:0")], "--forward-to <ADDR:PORT>");
    dns_path(&fronts_without_number, "--front-id <N>");
    fronts(&[("--forward-key", &key)], "line 1 is none of a key file");
    fronts(&[("--forward-to", "[::1]:9")], "cannot be reached from --forward-listen 127.0.0.1:0");
    let zone = ["--dns-path-zone", "f.xyz.com", "--dns-path-address", "192.0.2.80", "--key-file", &key];
    let relays = ["--relay", &to, "--relay", &to, "--state", &state, "--front-id", "65535"];
    with(&[&zone[..], &relays].concat(), "--front-id 65535 leaves no numbers up to 65535 for 2 --relay");
    let table = dir.file("table", "10.0.0.0/8 192.0.2.81:4454\n");
    dns_path(&[("--nearest", &table)], "line 1 names 192.0.2.81:4454, which no --relay does");
    std::fs::set_permissions(&relay, std::fs::Permissions::from_mode(0o644)).unwrap();
    dns_path(&[], "make it 0600");
    fails(&["dns", "keygen", "-o", &key], 2, "exists already");
    fails(&["dns", "keygen"], 2, "--output");
    fails(&["dns", "keygen", "--key", &key], 2, "--key is -o now");
    fails(&["dns", "keygen", "--relay-key", &key], 2, "--relay-key is --relay -o now");
    fails(&["dns", "--listen", "127.0.0.1:0", "--key", &key], 2, "--key is --key-file now");
}

/// Regression test: 20,000 queries with a bad option wrote 20,000 lines. Over TCP, so that every query arrives.
#[test]
fn twenty_thousand_bad_queries_write_few_lines_and_are_counted() {
    const QUERIES: usize = 20_000;
    // An option whose length field says six bytes, but which has three.
    let option = [&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 7][..], &[0, 10, 0, 6, 1, 2, 3]].concat();
    let name = b"\x02ns\x01f\x03xyz\x03com\x00\x00\x01\x00\x01";
    let query = [&[0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1][..], name, &option].concat();
    let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();

    let dir = Dir::new("flood");
    let (zone, log) = (dir.file("zone", ZONE), dir.path("log"));
    let args = ["dns", "--listen", "127.0.0.1:0", "--zone", &zone, "--origin", "f.xyz.com"];
    let mut front = Running::start_logging(&args, &log);
    let address = front.address();
    for _ in 0..QUERIES / 250 {
        let mut stream = TcpStream::connect(&address).unwrap();
        for _ in 0..250 {
            stream.write_all(&framed).unwrap();
            let mut len = [0; 2];
            stream.read_exact(&mut len).unwrap();
            stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes(len))]).unwrap();
        }
    }
    front.stop();
    let said = std::fs::read_to_string(&log).unwrap();
    let warnings = said.lines().filter(|line| line.contains("EDNS options")).count();
    // Ten at once, then one per second. Even an hour would give fewer lines than the bound.
    assert!((10..4000).contains(&warnings), "{warnings} lines");
    let told = said.lines().filter_map(|line| line.strip_prefix("firstflight: ")?.split_once(" more lines"));
    let left_out: usize = told.map(|(count, _)| count.parse::<usize>().unwrap()).sum();
    assert_eq!(warnings + left_out, QUERIES, "{said}");
}
