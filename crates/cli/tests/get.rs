//! `firstflight get` with verifiers, resolvers and address families that do not work, over UDP on the loopback
//! device.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program::{Running, fails, prints, run, sockets, until};
use crate::server;
use serde_json::Value;
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const NETWORK: [&str; 2] = ["--network-id", "00000000000000000000000000000001"];

/// An address of this host that was free a moment ago.
fn free(ip: &str) -> String {
    SocketAddr::new(ip.parse().unwrap(), sockets(&[ip]).0).to_string()
}

fn verifier(at: &str, key: &str) -> Running {
    let mut running =
        Running::start(&["verifier", "--listen", at, "--key-file", key, "--allow-prefix", "127.0.0.0/8"]);
    running.address();
    running
}

fn keygen(dir: &Dir, name: &str) -> String {
    let told = prints(&["verifier", "keygen", "-o", &dir.path(name)]);
    told.split_whitespace().nth(1).unwrap().to_owned()
}

/// A server that trusts a verifier.
struct Site {
    dir: Dir,
    url: String,
    key: String,
    server: Running,
}

impl Site {
    fn new(name: &str) -> Self {
        Self::at(name, &free("127.0.0.1"))
    }

    fn at(name: &str, udp: &str) -> Self {
        let dir = Dir::new(name);
        std::fs::create_dir(dir.path("www")).unwrap();
        std::fs::write(dir.path("www/hello"), "as you like").unwrap();
        let key = keygen(&dir, "verifier.key");
        let trust = format!("# begin\n[[verifier]]\nkey = \"{key}\"\nown = true\n# end\n");
        std::fs::write(dir.path("trust"), trust).unwrap();
        let (root, trust) = (dir.path("www"), dir.path("trust"));
        let options = ["--trust", &trust, "--first-start", "--json-log"];
        let file = server::file(&dir, &[&["--udp", udp, "--root", &root][..], &options].concat());
        let mut server = Running::start(&["gateway", &file]);
        assert!(server.line().contains("listening"));
        Self { dir, url: format!("http://{udp}/hello"), key, server }
    }

    /// Options that name this verifier and its correct key.
    fn asks<'a>(&'a self, at: &'a str) -> [&'a str; 4] {
        ["--verifier", at, "--verifier-key", &self.key]
    }

    fn get(&self, options: &[&str]) -> Output {
        run(&[&["get", &self.url, "--json", "--udp"], options].concat())
    }

    /// A `get` that keeps running. Its stderr is written to the file `stderr`.
    fn getting(&self, options: &[&str]) -> Running {
        let log = self.dir.path("stderr");
        Running::start_logging(&[&["get", &self.url, "--json", "--udp"], options].concat(), &log)
    }

    fn complaints(&self) -> String {
        std::fs::read_to_string(self.dir.path("stderr")).unwrap()
    }

    /// The server's log record of its next request.
    fn logged(&mut self) -> Value {
        loop {
            let record: Value = serde_json::from_str(&self.server.line()).unwrap();
            if record["event"] == "request" {
                return record;
            }
        }
    }
}

/// The reports of fetches, all of which succeeded.
fn reports(output: &Output) -> Vec<Value> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    out.lines().map(|line| whole(serde_json::from_str(line).unwrap())).collect()
}

/// A report of a fetch that succeeded.
fn whole(report: Value) -> Value {
    assert!(report["status"] == 200 && report["bytes"] == 11, "{report}");
    report
}

fn next(running: &mut Running) -> Value {
    whole(serde_json::from_str(&running.line()).unwrap())
}

fn number(report: &Value, name: &str) -> f64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name} of {report}"))
}

#[test]
fn a_verifier_that_gives_nothing_fails_no_fetch_and_hides_no_cookie() {
    let site = Site::new("nothing");
    let cache = site.dir.path("cache");
    let cached = [&["--cache", &cache][..], &NETWORK].concat();
    reports(&site.get(&cached));
    let live = free("127.0.0.1");
    let _verifier = verifier(&live, &site.dir.path("verifier.key"));
    let other = keygen(&site.dir, "other.key");
    // First a verifier that never answers, then a port without a verifier, then a wrong key.
    let (port, _silent) = sockets(&["127.0.0.1"]);
    let (silent, nobody) = (format!("127.0.0.1:{port}"), free("127.0.0.4"));
    for asked in [site.asks(&silent), site.asks(&nobody), ["--verifier", &live, "--verifier-key", &other]] {
        let report = reports(&site.get(&[&cached[..], &asked].concat())).pop().unwrap();
        assert_eq!((&report["outcome"], &report["reason"]), (&"accepted".into(), &Value::Null), "{report}");
        let plain = reports(&site.get(&[&asked[..], &["--no-fast-open"]].concat())).pop().unwrap();
        assert_eq!(plain["reason"], "no-credential", "{plain}");
    }
}

/// Forwards datagrams to a verifier once `may` is set, or three seconds after the first one: a fetch that waits for the verifier waits
/// longer. The verifier sees them come from 127.0.0.2.
fn translator(to: String, may: Arc<AtomicBool>) -> (String, TcpListener) {
    let (port, mut sockets) = sockets(&["127.0.0.1"]);
    let (udp, tcp) = sockets.remove(0);
    std::thread::spawn(move || {
        let (mut buffer, mut mapped, mut until) = ([0; 2000], HashMap::new(), None);
        while let Ok((len, from)) = udp.recv_from(&mut buffer) {
            let beyond = mapped.entry(from).or_insert_with(|| UdpSocket::bind("127.0.0.2:0").unwrap());
            beyond.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            let until = *until.get_or_insert_with(|| Instant::now() + Duration::from_secs(3));
            while !may.load(Ordering::Relaxed) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            beyond.send_to(&buffer[..len], &to).unwrap();
            if let Ok(len) = beyond.recv(&mut buffer) {
                udp.send_to(&buffer[..len], from).unwrap();
            }
        }
    });
    (format!("127.0.0.1:{port}"), tcp)
}

/// The verifier answers after the first fetch is over. A fetch that waited for it would use the certificate.
#[test]
fn a_slow_verifier_is_waited_for_beside_the_fetches() {
    let site = Site::new("slow");
    let live = free("127.0.0.1");
    let _verifier = verifier(&live, &site.dir.path("verifier.key"));
    let may = Arc::new(AtomicBool::new(false));
    let (at, _tcp) = translator(live, Arc::clone(&may));
    let many = ["--repeat", "10000", "--interval", "100", "--no-fast-open", "--asap-known"];
    let mut getting = site.getting(&[&site.asks(&at), &many[..]].concat());
    let first = next(&mut getting);
    assert_eq!(
        (&first["outcome"], &first["reason"]),
        (&"handshake".into(), &"no-credential".into()),
        "{first}"
    );
    may.store(true, Ordering::Relaxed);
    // The server sees another address. That reason shows that the certificate was used.
    until(|| next(&mut getting)["reason"] == "address-mismatch");
}

#[test]
fn a_verifier_that_comes_later_is_found_and_its_absence_is_one_line() {
    let site = Site::new("later");
    let at = free("127.0.0.1");
    let many = ["--repeat", "10000", "--interval", "100", "--no-fast-open", "--asap-known"];
    let mut getting = site.getting(&[&site.asks(&at), &many[..]].concat());
    assert_eq!(next(&mut getting)["reason"], "no-credential");
    until(|| site.complaints().contains(&at));
    let _verifier = verifier(&at, &site.dir.path("verifier.key"));
    until(|| next(&mut getting)["outcome"] == "accepted");
    let said = site.complaints();
    assert!(said.lines().count() == 1 && said.contains("first flights go without"), "{said}");
}

/// With `--verify-first` the first fetch waits for the verifier, but not forever, and no fetch fails.
#[test]
fn verify_first_waits_for_the_certificate_and_counts_the_wait() {
    let site = Site::new("first");
    let live = free("127.0.0.1");
    let _verifier = verifier(&live, &site.dir.path("verifier.key"));
    let options = ["--verify-first", "--asap-known", "--no-fast-open"];
    let report = reports(&site.get(&[&site.asks(&live), &options[..]].concat())).pop().unwrap();
    assert_eq!(report["outcome"], "accepted", "{report}");
    let (waited, first) = (number(&report, "waited_ms"), number(&report, "first_byte_ms"));
    assert!(waited > 0.0 && first > waited && number(&report, "total_ms") >= first, "{report}");
    let said = prints(&[&["get", &site.url, "--udp"], &site.asks(&live)[..], &options].concat());
    assert!(said.contains(" ms before connecting)"), "{said}");

    let (port, _silent) = sockets(&["127.0.0.1"]);
    let (silent, nobody) = (format!("127.0.0.1:{port}"), free("127.0.0.4"));
    for at in [&silent, &nobody] {
        let output = site.get(&[&site.asks(at), &options[..]].concat());
        let report = reports(&output).pop().unwrap();
        assert_eq!(report["reason"], "no-credential", "{report}");
        assert!(at != &silent || number(&report, "first_byte_ms") >= 5000.0, "{report}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told = if at == &silent { "fetching without" } else { "first flights go without" };
        assert!(said.lines().count() == 1 && said.contains(told), "{said}");
    }
    fails(&["get", &site.url, "--udp", "--verify-first"], 2, "--verifier");
}

/// The verifier sees the client behind an address translator; the server does not.
#[test]
fn a_server_that_sees_another_address_is_shown_one_certificate() {
    let mut site = Site::new("mismatch");
    let live = free("127.0.0.1");
    let verifier = verifier(&live, &site.dir.path("verifier.key"));
    let (at, _tcp) = translator(live, Arc::new(AtomicBool::new(true)));
    let many = ["--repeat", "10000", "--interval", "100", "--no-fast-open", "--asap-known"];
    let mut getting = site.getting(&[&site.asks(&at), &many[..]].concat());
    let mut told = || {
        let (ours, theirs) = (next(&mut getting), site.logged());
        (ours["reason"].clone(), theirs["reason"].clone())
    };
    until(|| told() == ("address-mismatch".into(), "address-mismatch".into()));
    for _ in 0..20 {
        assert_eq!(told(), ("address-mismatch".into(), "not-requested".into()));
    }
    until(|| site.complaints().contains("sees another address than the verifier"));
    drop(getting);
    // One for the site, one in reserve, and perhaps another one to learn what the verifier sees now.
    let told = verifier.stop().pop().unwrap();
    let given = told.strip_prefix("certificates: ").and_then(|rest| rest.split(' ').next()).unwrap();
    assert!((2..=3).contains(&given.parse().unwrap()), "{told}");
    assert_eq!(site.complaints().lines().count(), 1);
}

/// A resolver that gives these addresses for every name, `a.test` and `b.test` included.
struct Resolver {
    at: String,
    /// Number of address questions.
    asked: Arc<AtomicUsize>,
}

impl Resolver {
    /// It answers after `pause`, and never for `b.test`.
    fn start(v4: Option<[u8; 4]>, v6: Option<[u8; 16]>, pause: Duration) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap().to_string();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut question = [0; 2000];
            while let Ok((len, from)) = socket.recv_from(&mut question) {
                let end = 12 + question[12..len].iter().position(|octet| *octet == 0).unwrap() + 5;
                if question[12..].starts_with(b"\x01b\x04test") {
                    continue;
                }
                let kind = question[end - 3];
                count.fetch_add(usize::from(kind != 65), Ordering::Relaxed);
                let found = match kind {
                    1 => v4.map(|octets| octets.to_vec()),
                    28 => v6.map(|octets| octets.to_vec()),
                    _ => None,
                };
                let mut answer = question[..end].to_vec();
                answer[2..12].copy_from_slice(&[0x84, 0, 0, 1, 0, u8::from(found.is_some()), 0, 0, 0, 0]);
                if let Some(octets) = found {
                    answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, octets.len() as u8]);
                    answer.extend(octets);
                }
                let socket = socket.try_clone().unwrap();
                std::thread::spawn(move || {
                    std::thread::sleep(pause);
                    socket.send_to(&answer, from).unwrap();
                });
            }
        });
        Self { at, asked }
    }
}

const V4: Option<[u8; 4]> = Some([127, 0, 0, 1]);
const V6: Option<[u8; 16]> = Some([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);

#[test]
fn the_lookup_counts_as_part_of_the_fetch_that_needs_it() {
    let site = Site::new("lookup");
    let port = site.url.split([':', '/']).nth(4).unwrap();
    let resolver = Resolver::start(V4, None, Duration::from_millis(300));
    let urls = ["a", "c"].map(|name| format!("http://{name}.test:{port}/hello"));
    let asked = ["get", &urls[0], &urls[1], "--json", "--udp", "--dns", &resolver.at, "--repeat", "2"];
    let reports = reports(&run(&asked));
    // No fetch uses the answer to another one: records have a time to live, and the resolver keeps them.
    for report in &reports {
        assert!(number(report, "first_byte_ms") >= 300.0 && number(report, "waited_ms") >= 300.0, "{report}");
    }
    assert_eq!(resolver.asked.load(Ordering::Relaxed), 8);
}

#[test]
fn a_name_that_is_never_answered_keeps_no_other_url_waiting() {
    let site = Site::new("unanswered");
    let port = site.url.split([':', '/']).nth(4).unwrap();
    let resolver = Resolver::start(V4, None, Duration::ZERO);
    let urls = ["a", "b"].map(|name| format!("http://{name}.test:{port}/hello"));
    let asked = ["get", &urls[0], &urls[1], "--json", "--udp", "--dns", &resolver.at, "--timeout", "3"];
    let output = run(&asked);
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [first, second] = &lines[..] else { panic!("{lines:?}") };
    whole(first.clone());
    assert!(second["error"].as_str().unwrap().contains("--timeout"), "{second}");
    assert_eq!(output.status.code(), Some(1));
}

/// Packets to the server's IPv6 address are dropped.
#[test]
fn over_udp_a_silent_family_costs_the_first_fetch_one_delay() {
    let (port, mut silent) = sockets(&["::1", "127.0.0.1"]);
    let (v6, _) = silent.remove(0);
    drop(silent);
    let site = Site::at("families", &format!("127.0.0.1:{port}"));
    let resolver = Resolver::start(V4, V6, Duration::ZERO);
    let url = format!("http://a.test:{port}/hello");
    let asked =
        ["get", &url, "--json", "--udp", "--dns", &resolver.at, "--repeat", "10000", "--interval", "300"];
    let mut getting = Running::start_logging(&asked, &site.dir.path("stderr"));
    let remote = format!("127.0.0.1:{port}");
    assert_eq!(next(&mut getting)["remote"], *remote);
    v6.set_nonblocking(true).unwrap();
    let heard = || std::iter::from_fn(|| v6.recv(&mut [0; 2000]).ok()).count();
    assert!(heard() > 0, "nothing was tried");
    // An address that lost is tried last. On a busy machine it may still be tried in parallel with the other one.
    until(|| {
        assert_eq!(next(&mut getting)["remote"], *remote);
        heard() == 0
    });
}

#[test]
fn a_server_that_is_silent_in_udp_is_told_as_such() {
    // As behind a firewall that drops UDP: the socket takes the datagrams, and nothing answers.
    let (port, sockets) = sockets(&["127.0.0.1"]);
    let url = format!("http://127.0.0.1:{port}/");
    let output = run(&["get", &url, "--udp", "--timeout", "4"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = said.lines().collect();
    let names = format!("let UDP port {port} pass");
    assert_eq!((output.status.code(), lines.len()), (Some(1), 2), "{said}");
    assert!(lines[0].contains("still no answer in UDP") && lines[0].contains(&names), "{said}");
    assert!(
        lines[1].contains("no answer within 4s (--timeout) in UDP") && lines[1].contains(&names),
        "{said}"
    );
    drop(sockets);
}

/// The verifiers and the server have different address families, so the request uses no certificate.
#[test]
fn via_dns_reaches_servers_of_both_families() {
    let (port, found) = sockets(&["::1"]);
    drop(found);
    let site = Site::at("other-family", &format!("[::1]:{port}"));
    let resolver = Resolver::start(None, V6, Duration::ZERO);
    let url = format!("http://a.test:{port}/hello");
    let (first, second) = (free("127.0.0.1"), free("127.0.0.2"));
    let asked =
        ["get", &url, "--json", "--udp", "--via-dns", "--dns", &resolver.at, "--second-verifier", &second];
    let output = run(&[&asked[..], &site.asks(&first), &NETWORK].concat());
    let report = reports(&output).pop().unwrap();
    assert_eq!((&report["way"], &report["remote"]), (&"ordinary".into(), &format!("[::1]:{port}").into()));
}
