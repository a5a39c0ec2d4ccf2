//! The command as a person or a script uses it. No test needs root.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::{Dir, TempFile};
use crate::program::{command, fails, run};
use crate::server;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The commands that `--help` lists, without `help` itself.
fn commands(help: &str) -> Vec<&str> {
    let list =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let named = list.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

#[test]
fn congestion_control_is_chosen_by_name() {
    let help = run(&["get", "--help"]);
    let help = text(&help.stdout);
    assert!(help.contains("--congestion <NAME>") && help.contains("[default: cubic]"), "{help}");
    let wrong = run(&["get", "http://127.0.0.1:9/", "--udp", "--congestion", "vegas"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("newreno, cubic or bbr"), "{}", text(&wrong.stderr));
}

#[test]
fn every_command_gives_examples() {
    let output = run(&["--help"]);
    assert!(output.status.success());
    let help = text(&output.stdout);
    for word in ["Examples:", "Exit codes:"] {
        assert!(help.contains(word), "{word} is missing in {help}");
    }
    let commands = commands(help);
    assert!(commands.len() >= 20 && commands.contains(&"gateway"), "{commands:?}");
    for command in commands {
        let output = run(&[command, "--help"]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains("Examples:"), "{command}");
    }
}

#[test]
fn completions_are_for_the_shell() {
    for (shell, mark) in
        [("bash", "_firstflight()"), ("zsh", "#compdef firstflight"), ("fish", "complete -c firstflight")]
    {
        let output = run(&["completions", shell]);
        assert!(output.status.success());
        assert!(text(&output.stdout).contains(mark), "{shell}");
    }
}

fn visits(args: &[&str]) -> Vec<Value> {
    let output = run(&[&["demo", "--json"], args].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn demo_shows_every_mode() {
    let capture = TempFile::new("demo.pcapng", "");
    let visits = visits(&["--rtt", "10", "--seed", "7", "--pcap", capture.as_str()]);
    let column = |name: &str| visits.iter().map(|visit| visit[name].clone()).collect::<Vec<_>>();
    let told: Vec<_> = column("mode").into_iter().zip(column("outcome")).zip(column("reason")).collect();
    let expected = [
        ("handshake", "handshake", Some("not-requested")),
        ("fast-open-first", "handshake", Some("no-credential")),
        ("fast-open-next", "accepted", None),
        ("asap-first", "accepted", None),
        ("asap-next", "accepted", None),
        ("asap-unknown", "handshake", Some("capability-unknown")),
        ("asap-untrusted", "handshake", Some("untrusted-verifier")),
        ("asap-replayed", "accepted", None),
        ("udp-handshake", "handshake", Some("not-requested")),
        ("udp-asap-first", "accepted", None),
        ("udp-asap-next", "accepted", None),
        ("udp-asap-unknown", "handshake", Some("capability-unknown")),
        ("udp-asap-untrusted", "handshake", Some("untrusted-verifier")),
        ("udp-asap-replayed", "accepted", None),
        ("site-first", "handshake", Some("not-requested")),
        ("site-other", "accepted", None),
        ("cached-handshake", "handshake", Some("not-requested")),
        ("cached-fast-open", "accepted", None),
        ("cached-asap", "accepted", None),
        ("cached-inside", "accepted", None),
        ("near-handshake", "handshake", Some("not-requested")),
        ("near-fast-open", "accepted", None),
        ("near-asap", "accepted", None),
        ("near-inside", "accepted", None),
        ("far-handshake", "handshake", Some("not-requested")),
        ("far-fast-open", "accepted", None),
        ("far-asap", "accepted", None),
        ("far-inside", "accepted", None),
        ("tls-handshake", "handshake", Some("not-requested")),
        ("tls-asap-first", "accepted", None),
        ("tls-asap-ticket", "accepted", None),
    ];
    let expected: Vec<_> = expected
        .map(|(mode, outcome, reason)| ((Value::from(mode), Value::from(outcome)), Value::from(reason)))
        .into();
    assert_eq!(told, expected);
    for visit in &visits {
        assert_eq!((&visit["bytes"], &visit["seed"]), (&11264.into(), &7.into()));
        assert_eq!(visit["executed"], 1, "{visit}");
    }
    for visit in &visits {
        let number = |name: &str| visit[name].as_f64().unwrap();
        assert!((number("first_byte_rtts") * 10.0 - number("first_byte_ms")).abs() < 0.01, "{visit}");
        assert!(number("total_ms") >= number("first_byte_ms"), "{visit}");
    }
    // A pcapng file begins with a section header block.
    let recorded = std::fs::read(&capture.0).unwrap();
    assert!(recorded.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) && recorded.len() > 3 * 11264);
}

/// Keeps four threads computing until it is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn machine() -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        for _ in 0..4 {
            let ends = Arc::clone(&ends);
            std::thread::spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(ends)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The output and the times in the capture depend on the seed, and not on the load of the machine.
#[test]
fn demo_of_one_seed_is_the_same_to_the_byte_on_a_busy_machine() {
    let runs = || {
        let capture = TempFile::new("seed.pcapng", "");
        let options = ["--seed", "5", "--loss", "5", "--rtt", "7", "--pcap", capture.as_str()];
        let [table, json] =
            [&["demo"][..], &["demo", "--json"]].map(|command| run(&[command, &options].concat()));
        assert!(table.status.success() && json.status.success(), "{}", text(&table.stderr));
        let recorded = run(&["explain", "--json", capture.as_str()]);
        let times: Vec<_> = text(&recorded.stdout)
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .map(|told| [&told["client"], &told["start_unix_ms"], &told["first_byte_ms"]].map(Value::clone))
            .collect();
        (table.stdout, json.stdout, times)
    };
    let quiet = runs();
    assert!(text(&quiet.0).contains("(seed 5)") && quiet.2.len() > 20, "{quiet:?}");
    let _busy = Busy::machine();
    for _ in 0..3 {
        assert_eq!(runs(), quiet);
    }
}

/// Computation takes no time, so every row is exact, even if half a round trip is not a whole number of milliseconds.
#[test]
fn demo_shows_round_trips_exactly() {
    for rtt in [1, 7, 100, 2000] {
        let visits = visits(&["--rtt", &rtt.to_string(), "--seed", "1"]);
        for visit in &visits {
            let expected = match visit["mode"].as_str().unwrap() {
                "near-handshake" | "far-handshake" => 3.1,
                "cached-handshake" | "near-fast-open" | "near-asap" | "far-fast-open" | "far-asap" => 2.1,
                "cached-fast-open" | "cached-asap" => 1.1,
                // The name server is half a round trip away, next to the server.
                "near-inside" | "cached-inside" => 1.055,
                "far-inside" => 1.55,
                "tls-handshake" => 3.0,
                "tls-asap-first" => 2.0,
                _ if visit["reason"].is_null() => 1.0,
                _ => 2.0,
            };
            assert_eq!(visit["first_byte_rtts"], expected, "{rtt} ms: {visit}");
        }
    }
}

/// The direct copy does not wait for the copy inside the lookup: its arrival lifts the server's limit.
#[test]
fn demo_has_a_whole_page_inside_the_lookup_no_later_than_after_it() {
    for rtt in ["1", "100"] {
        let visits = visits(&["--rtt", rtt, "--seed", "1", "--size", "11448"]);
        let total = |mode: &str| {
            let mut found = visits.iter().filter(|visit| visit["mode"] == mode);
            found.next().unwrap()["total_ms"].as_f64().unwrap()
        };
        for case in ["cached", "near", "far"] {
            let (inside, after) = (total(&format!("{case}-inside")), total(&format!("{case}-asap")));
            assert!(inside <= after, "{case}, {rtt} ms: {inside}, not {after}");
        }
    }
}

/// The result includes the machine's own time.
#[test]
fn demo_in_real_time_waits_for_its_packets() {
    let began = std::time::Instant::now();
    let visits = visits(&["--rtt", "10", "--seed", "1", "--real-time"]);
    let waited = began.elapsed().as_secs_f64() * 1e3;
    assert!(waited >= visits.iter().map(|visit| visit["total_ms"].as_f64().unwrap()).sum());
    assert!(visits.iter().all(|visit| visit["first_byte_rtts"].as_f64().unwrap() >= 1.0), "{visits:?}");
}

#[test]
fn demo_carries_any_size() {
    for size in [0, 1, 65_536, 3_000_000] {
        let visits = visits(&["--rtt", "1", "--size", &size.to_string()]);
        assert!(visits.iter().all(|visit| visit["bytes"] == size), "{visits:?}");
    }
}

#[test]
fn demo_draws_a_table() {
    let output = run(&["demo", "--rtt", "10"]);
    assert!(output.status.success());
    let table = text(&output.stdout);
    for word in
        ["ordinary handshake", "Fast Open, next visit", "accepted", "no-credential", "RTT", "seed", "█"]
    {
        assert!(table.contains(word), "{word} is missing in {table}");
    }
}

/// Checks that `explain` reports about the capture what the visits reported.
fn explains(demo: &[Value], capture: &TempFile) {
    let output = run(&["explain", "--json", capture.as_str()]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let lines: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (summary, connections) = lines.split_last().unwrap();
    assert_eq!(summary["event"], "summary");
    // One of the visits inside lookups has no SYN here, because its answer arrives before the address.
    assert_eq!(summary["certified"], 16, "{summary}");
    let (rest, inside): (Vec<_>, Vec<_>) =
        demo.iter().partition(|visit| !visit["mode"].as_str().unwrap().ends_with("-inside"));
    assert_eq!(inside.len(), 3);
    let ports = |visit: &&&Value| visit["udp"].is_object();
    // The eavesdropper's copies have no SYN of the client in the capture.
    let of_client = |told: &&Value| !told["option"].is_null() || told["outcome"] == "accepted";
    let seen: Vec<_> = connections.iter().filter(of_client).collect();
    let (before, lookups) = seen.split_at(16);
    assert_eq!(lookups.iter().filter(ports).filter(|told| told["outcome"] == "accepted").count(), 3);
    let told = before.iter().chain(lookups.iter().filter(|told| !ports(told)));
    let told: Vec<_> = told.map(|told| (&told["outcome"], &told["reason"])).collect();
    let expected: Vec<_> = rest.iter().map(|visit| (&visit["outcome"], &visit["reason"])).collect();
    assert_eq!(told, expected);
}

/// Uses several seeds. With 3 and 18, the port of the overheard visit differs from the client's next port in its last
/// bit.
#[test]
fn explain_tells_what_the_demo_recorded() {
    let capture = TempFile::new("explain.pcapng", "");
    for seed in ["1", "3", "18"] {
        explains(&visits(&["--rtt", "10", "--seed", seed, "--pcap", capture.as_str()]), &capture);
    }

    // As text, with a capture that ends early.
    let whole = std::fs::read(&capture.0).unwrap();
    std::fs::write(&capture.0, &whole[..whole.len() - 7]).unwrap();
    let output = run(&["explain", capture.as_str()]);
    assert_eq!(output.status.code(), Some(1));
    let stdout = text(&output.stdout);
    for words in ["handshake (no-credential)", "all acknowledged", "asked for Fast Open"] {
        assert!(stdout.contains(words), "{words} is missing in {stdout}");
    }
    let stderr = text(&output.stderr);
    assert!(stderr.lines().count() == 1 && stderr.contains("it ends in the middle of a packet"), "{stderr}");
}

#[test]
fn explain_says_what_it_cannot_read() {
    // A frame of IEEE 802.11.
    let word = |word: u32| word.to_le_bytes();
    let bytes = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 105, 0, 0, 4, 4, 0].map(word).concat();
    let file = TempFile::new("wifi.pcap", "");
    std::fs::write(&file.0, bytes).unwrap();
    let output = run(&["explain", file.as_str()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("link type 105"), "{}", text(&output.stderr));
}

#[test]
fn explain_reads_standard_input() {
    let capture = TempFile::new("stdin.pcapng", "");
    visits(&["--rtt", "1", "--pcap", capture.as_str()]);
    let input = std::fs::File::open(&capture.0).unwrap();
    let output = command(&["explain", "-"]).stdin(input).output().unwrap();
    assert!(output.status.success());
    let file = run(&["explain", capture.as_str()]);
    assert!(text(&output.stdout).contains(" connections, "));
    assert_eq!(text(&output.stdout), text(&file.stdout));
}

fn refused(args: &[&str], says: &str) {
    fails(args, 2, says);
}

#[test]
fn mistakes_in_options() {
    refused(&["fly"], "unrecognized subcommand 'fly'");
    refused(&["demo", "--loss", "51"], "a number from 0 to 50");
    refused(&["demo", "--loss", "NaN"], "a number from 0 to 50");
    refused(&["demo", "--rtt", "0"], "give a time from 1ms to 10s");
    refused(&["demo", "--rtt", "11s"], "give a time from 1ms to 10s");
    refused(&["demo", "--size", "lots"], "invalid");
    refused(&["demo", "--pcap", "/nonexistent/x"], "--pcap /nonexistent/x: ");
    refused(&["serve"], "<DIR>");
    refused(&["get"], "<URL>");
    refused(&["completions", "cmd"], "bash");
}

#[test]
fn mistakes_of_explain() {
    let file = TempFile::new("no-capture", "GET / HTTP/1.1");
    refused(&["explain", file.as_str()], "not a capture: give a pcapng or pcap file");
    refused(&["explain", "/nonexistent"], "/nonexistent: No such file");
    refused(&["explain", "/"], "/: Is a directory");
    refused(&["explain"], "<FILE>");
}

/// A device that cannot be created, so that a check that is passed by mistake leaves nothing behind.
const TUN: &[&str] = &["--tun", "lo"];

#[test]
fn mistakes_in_addresses() {
    let serve = |host: &str, at: &str, says: &str| {
        refused(&[&["serve", "/", "--host-ip", host, "--listen", at], TUN].concat(), says);
    };
    serve("10.9.0.1", "10.9.0.2:80", "add the length of the prefix");
    serve("10.9.0.1/33", "10.9.0.2:80", "from 0 to 32");
    serve("ten/24", "10.9.0.2:80", "no IP address");
    serve("10.9.0.1/24", "ten:80", "invalid socket address");
    serve("10.9.0.1/24", "10.9.1.2:80", "--listen 10.9.1.2:80: is in no --host-ip network");
    serve("10.9.0.1/24", "[fd09::2]:80", "--listen [fd09::2]:80: is in no --host-ip network");
    serve("10.9.0.1/24", "10.9.0.1:80", "is the kernel's address");
    serve("10.9.0.1/24", "10.9.0.255:80", "broadcast");
}

#[test]
fn devices_that_cannot_be_made() {
    let serve = |tun: &str, host: &str, at: &str, code, says: &str| {
        fails(&["serve", "/", "--tun", tun, "--host-ip", host, "--listen", at], code, says);
    };
    serve("lo", "10.9.0.1/24", "10.9.0.2:80", 1, "choose another name");
    serve("a/b", "10.9.0.1/24", "10.9.0.2:80", 2, "cannot name a network device");
    serve("a-name-that-is-too-long", "10.9.0.1/24", "10.9.0.2:80", 2, "cannot name a network device");
    serve("fftest0", "127.0.0.1/8", "127.0.0.2:80", 1, "is already the address of device lo");
}

#[test]
fn mistakes_of_serve() {
    let file = TempFile::new("a-file", "");
    let serve = |args: &[&str], says: &str| refused(&[&["serve"], args].concat(), says);
    serve(&[file.as_str()], "not a directory");
    serve(&["/nonexistent"], "root /nonexistent: ");
    serve(
        &["/", "--listen", "127.0.0.1:0", "--key-file", "/nonexistent"],
        "key file /nonexistent cannot be read",
    );
    serve(&["/", "--metrics", "7413"], "invalid socket address");
}

/// A gateway with an engine on a device.
fn gateway(dir: &Dir, args: &[&str], code: i32, says: &str) {
    let base = ["--root", "/", "--host-ip", "10.9.0.1/24", "--ip", "10.9.0.2", "--port", "80"];
    fails(&["gateway", &server::file(dir, &[&base, TUN, args].concat())], code, says);
}

#[test]
fn mistakes_about_replays() {
    let dir = Dir::new("replays");
    let refused = |args: &[&str], says: &str| gateway(&dir, args, 2, says);
    let state = dir.path("none/state");
    refused(&["--one-time", "--one-time-state", &state], &format!("one_time: state {state}: "));
    let keys = dir.file("farm-keys", &"0f".repeat(48));
    let mode = |mode| std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(mode)).unwrap();
    let store = ["--replays", "no-duplicates", "--store-keys", &keys];
    let at = |url, more: &[&str], says: &str| refused(&[&store[..], &["--store", url], more].concat(), says);
    mode(0o644);
    at("redis://127.0.0.1:1", &[], "chmod 600");
    mode(0o600);
    at("http://host", &[], "redis://HOST");
    at("redis://127.0.0.1:1", &["--store-state", &state], &format!("the state file {state}: "));
    std::fs::write(&keys, "0f".repeat(47)).unwrap();
    at("redis://127.0.0.1:1", &[], "openssl rand -hex 48");
}

#[test]
fn a_state_of_one_time_cookies_that_cannot_be_used() {
    let dir = Dir::new("serials");
    let state = TempFile::new("state", "something else\n");
    let args = ["--one-time", "--one-time-state", state.as_str()];
    let with = |says: &str| gateway(&dir, &args, 2, says);
    with("chmod 600");
    std::fs::set_permissions(&state.0, std::fs::Permissions::from_mode(0o600)).unwrap();
    with("it is damaged or something else");
    std::fs::remove_file(&state.0).unwrap();
    // The state file is created. Then the device cannot be created.
    gateway(&dir, &args, 1, "choose another name");
    let made = std::fs::read_to_string(&state.0).unwrap();
    assert!(made.starts_with("firstflight one-time cookies"), "{made}");
    let _ = std::fs::remove_file(format!("{}.lock", state.as_str()));
}

/// A mistyped secret still contains most of the secret.
#[test]
fn a_wrong_key_is_not_printed() {
    let secret = "0badc0de-0badc0de-0badc0de-0badc0d";
    let file = TempFile::new("key", secret);
    std::fs::set_permissions(&file.0, std::fs::Permissions::from_mode(0o600)).unwrap();
    let output = run(&["serve", "/", "--listen", "127.0.0.1:0", "--key-file", file.as_str()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("a cookie key is"), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("0badc0d"), "{}", text(&output.stderr));
}

fn get(args: &[&str], says: &str) {
    let base = ["get", "--host-ip", "10.9.0.1/24", "--ip", "10.9.0.2"];
    refused(&[&base, TUN, args].concat(), says);
}

#[test]
fn mistakes_of_get() {
    get(&["nonsense"], "not a URL");
    get(&["ftp://10.9.0.1/"], "only http://");
    get(&["http://10.9.0/"], "neither a name nor a whole address");
    // The name is too long to be valid, so no resolver is asked.
    get(&["http://10.9.0.1/", "--replay-safe"], "--upload");
    get(&["http://[fd09::1]/"], "no route to [fd09::1]:80");
    get(&["http://10.9.0.2/"], "this command's own --ip");
    get(&["http://10.9.0.1/", "--repeat", "2", "-o", "x"], "-o takes one body");
    get(&["http://10.9.0.1/", "-o", "/nonexistent/x"], "cannot write /nonexistent/x");
    get(&["http://10.9.0.1/", "--upload", "/nonexistent"], "cannot read /nonexistent");
    get(&["http://10.9.0.1/", "--upload", "/dev/null"], "not a regular file");
    get(&["http://10.9.0.1/", "--timeout", "0"], "--timeout");
    get(&["http://10.9.0.1/", "--cache", "/nonexistent/x"], "cannot write the cache /nonexistent/x");
    get(&["http://10.9.0.1/", "--network-id", "home"], "32 hexadecimal digits");
}

/// A cache of two servers. The second one has a cookie, and is avoided forever.
const CACHE: &str = r#"{"version":1,"servers":[
  {"network":"11111111111111111111111111111111","server":"fd09::1","cookies":[],"one_time":false,
   "mss":null,"rtt":null,"failures":0,"avoided":null},
  {"network":"22222222222222222222222222222222","server":"10.9.0.1",
   "cookies":[{"cookie":"c0ffee00c0ffee00","experimental":false,"granted":1700000000000}],"one_time":false,
   "mss":1460,"rtt":{"srtt_us":20500,"rttvar_us":100,"at":1700000000000},
   "failures":2,"avoided":{"until":9999999999999,"asking":true}}]}"#;

#[test]
fn cache_list_shows_servers_and_cookies_only_when_asked() {
    let file = TempFile::new("list.json", CACHE);
    let list = |args: &[&str]| {
        let output = run(&[&["cache", "list", file.as_str()], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let plain = list(&[]);
    assert_eq!(plain.lines().next(), Some("fd09::1 on 11111111: no cookie"));
    for word in ["10.9.0.1 on 22222222: cookie ", "rtt 20.5 ms, mss 1460 B, 2 failures, no data for "] {
        assert!(plain.contains(word), "{word} is missing in {plain}");
    }
    let rows: Vec<Value> =
        list(&["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["cookies"].clone()).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((&rows[1]["rtt_ms"], &rows[1]["asking"]), (&Value::from(20.5), &Value::from(true)));
    assert!(!format!("{plain}{rows:?}").contains("c0ffee"));
    assert!(list(&["--reveal"]).contains("\n  c0ffee00c0ffee00\n"));
    assert!(list(&["--json", "--reveal"]).contains("\"c0ffee00c0ffee00\""));
}

#[test]
fn cache_flush_forgets_one_server_or_all() {
    let file = TempFile::new("flush.json", CACHE);
    let flush = |args: &[&str]| {
        let output = run(&[&["cache", "flush", file.as_str()], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    assert_eq!(flush(&["--server", "10.9.0.1"]), "1 forgotten, 1 kept\n");
    assert!(!std::fs::read_to_string(&file.0).unwrap().contains("c0ffee"));
    assert_eq!(flush(&[]), "1 forgotten, 0 kept\n");
    assert_eq!(flush(&[]), "0 forgotten, 0 kept\n");
}

/// A cache with something of each kind, which never ends.
const ALL: &str = r#"{"version":2,"servers":[
  {"network":"11111111111111111111111111111111","server":"10.9.0.1","cookies":[],"one_time":false,
   "mss":null,"rtt":null,"failures":0,"avoided":null}],
 "lost_races":[{"network":"11111111111111111111111111111111","server":"10.9.0.1:80","udp_port":443,"at":9999999999999}],
 "closed_ports":[{"network":"11111111111111111111111111111111","server":"10.9.0.2:81","at":9999999999999}],
 "udp_pauses":[{"network":"11111111111111111111111111111111","pauses":1,"until":9999999999999}],
 "records":[{"network":"11111111111111111111111111111111","name":"www.example.com","port":80,"parameter":"01ab",
   "until":9999999999999}],
 "resolvers":[{"network":"11111111111111111111111111111111","resolver":"10.9.0.53","zone":"016100","strikes":2,
   "until":9999999999999}],
 "unreachable":[{"network":"11111111111111111111111111111111","until":9999999999999}]}"#;

#[test]
fn cache_list_and_flush_know_every_kind() {
    let file = TempFile::new("all.json", ALL);
    let cache = |args: &[&str]| {
        let output = run(&[&["cache"], args].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let plain = cache(&["list", file.as_str()]);
    let lines = [
        "10.9.0.1 on 11111111: no cookie",
        "10.9.0.1:80 in UDP port 443 on 11111111: lost race, ",
        "10.9.0.2:81 on 11111111: closed port, ",
        "all servers on 11111111: no UDP, ",
        "www.example.com:80 on 11111111: record, ",
        "10.9.0.53 with 2 strikes on 11111111: resolver, ",
        "unknown servers on 11111111: unreachable, ",
    ];
    assert_eq!(plain.lines().count(), lines.len(), "{plain}");
    for (line, start) in plain.lines().zip(lines) {
        assert!(line.starts_with(start), "{line}");
    }
    assert!(cache(&["list", file.as_str(), "--json"]).contains("\"parameter\":\"01ab\""));
    assert_eq!(cache(&["flush", file.as_str(), "--server", "10.9.0.1"]), "2 forgotten, 5 kept\n");
    assert_eq!(cache(&["flush", file.as_str()]), "5 forgotten, 0 kept\n");
}

#[test]
fn mistakes_with_caches() {
    let file = TempFile::new("bad.json", "{}");
    refused(&["cache", "list", "/nonexistent"], "there is no cache /nonexistent");
    refused(&["cache", "list", file.as_str()], "is not a cache of this version");
    refused(&["cache", "flush", file.as_str()], "remove or rename it");
    refused(&["cache", "flush", file.as_str(), "--server", "ten"], "invalid IP address");
    assert_eq!(std::fs::read_to_string(&file.0).unwrap(), "{}", "nothing is lost");
}
