//! `firstflight get --via-dns` against a server that is its own name server, with two verifiers, all on the loopback
//! device.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program::{self, Running, fails, prints, run};
use crate::server;
use serde_json::Value;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::Output;

/// UDP and TCP sockets at one address of this host.
fn sockets(ip: &str) -> (UdpSocket, TcpListener) {
    program::sockets(&[ip]).1.remove(0)
}

/// An address of this host that was free a moment ago.
fn free(ip: &str) -> String {
    sockets(ip).0.local_addr().unwrap().to_string()
}

fn port(address: &str) -> u16 {
    address.parse::<SocketAddr>().unwrap().port()
}

struct Site {
    dir: Dir,
    udp: String,
    /// The TCP port in UDP.
    port: u16,
    resolver: String,
    verifier_key: String,
    server: Option<Running>,
}

impl Site {
    /// The server listens on `port_inside` or, without it, on the port of its UDP socket.
    fn new(name: &str, port_inside: Option<u16>) -> Self {
        let dir = Dir::new(name);
        std::fs::create_dir(dir.path("www")).unwrap();
        std::fs::write(dir.path("www/hello"), "as you like").unwrap();
        let told = prints(&["verifier", "keygen", "-o", &dir.path("verifier.key")]);
        let verifier_key = told.split_whitespace().nth(1).unwrap().to_owned();
        let trust = format!("# begin\n[[verifier]]\nkey = \"{verifier_key}\"\nown = true\n# end\n");
        std::fs::write(dir.path("trust"), trust).unwrap();
        let udp = free("127.0.0.1");
        let port = port_inside.unwrap_or(port(&udp));
        let mut site = Self { dir, udp, port, resolver: free("127.0.0.1"), verifier_key, server: None };
        site.start();
        site
    }

    /// Starts the server with a new DNS-path key, in place of the one that is running.
    fn start(&mut self) {
        self.server = None;
        let key = self.dir.path("dns-path.key");
        let _ = std::fs::remove_file(&key);
        let told = prints(&["dns", "keygen", "-o", &key]);
        let public = told.split_whitespace().nth(1).unwrap();
        let udp_port = port(&self.udp).to_string();
        let parameter =
            ["--verifier-key", &self.verifier_key, "--udp-port", &udp_port, "--dns-path-zone", "f.xyz.com"];
        let record = prints(&[&["asap", "record"], &parameter[..], &["--dns-path-key", public]].concat());
        let zone = format!(
            "$TTL 86400\n@ IN SOA ns hostmaster 1 86400 7200 3600000 60\n@ IN NS ns\nns IN A 127.0.0.1\n\
             www IN A 127.0.0.1\n_{}._https.www IN HTTPS 1 www.xyz.com. {}\n",
            self.port,
            record.trim()
        );
        std::fs::write(self.dir.path("zone"), zone).unwrap();
        let path = |name| self.dir.path(name);
        let (root, trust, zone, port) = (path("www"), path("trust"), path("zone"), self.port.to_string());
        let listen = format!("127.0.0.1:{port}");
        let options = [
            "--listen",
            &listen,
            "--udp-port",
            &udp_port,
            "--root",
            &root,
            "--trust",
            &trust,
            "--first-start",
            "--identity",
            "www.xyz.com",
            "--dns-listen",
            &self.resolver,
            "--dns-zone",
            &zone,
            "--dns-origin",
            "xyz.com",
            "--dns-path-zone",
            "f.xyz.com",
            "--dns-path-key",
            &key,
            "--json-log",
        ];
        let mut server = Running::start(&["gateway", &server::file(&self.dir, &options)]);
        assert!(server.line().contains("listening"));
        self.server = Some(server);
    }

    /// Two verifiers, the first of which sends probes, and their addresses.
    fn verifiers(&self) -> [(Running, String); 2] {
        let key = self.dir.path("verifier.key");
        [("127.0.0.1", &["--probe-from", "127.0.0.3:0"][..]), ("127.0.0.2", &[])].map(|(ip, more)| {
            let at = free(ip);
            let fixed = ["verifier", "--listen", &at, "--key-file", &key, "--allow-prefix", "127.0.0.0/8"];
            let mut running = Running::start(&[&fixed, more].concat());
            running.address();
            (running, at)
        })
    }

    fn get(&self, verifiers: [&str; 2], options: &[&str]) -> Output {
        let url = format!("http://www.xyz.com:{}/hello", self.port);
        let [first, second] = verifiers;
        let fixed = [
            "get",
            &url,
            "--json",
            "--udp",
            "--via-dns",
            "--dns",
            &self.resolver,
            "--verifier",
            first,
            "--verifier-key",
            &self.verifier_key,
            "--second-verifier",
            second,
            "--network-id",
            "00000000000000000000000000000001",
        ];
        run(&[&fixed[..], options].concat())
    }
}

/// The reports of fetches, all of which succeeded.
fn reports(output: &Output) -> Vec<Value> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let reports: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(reports.iter().all(|report| report["status"] == 200 && report["bytes"] == 11), "{out}");
    reports
}

/// Whether a request was also sent inside the lookup.
fn left(report: &Value) -> bool {
    report["held_back"].is_null() && report["way"] != "ordinary"
}

/// Whether a request was held back because the names of the previous one were not answered yet, as on a busy machine.
fn is_late(report: &Value) -> bool {
    report["held_back"] == "names-unanswered"
}

/// What the file remembers that the server publishes, if anything.
fn remembered(path: &str) -> Option<String> {
    let memory: Value = serde_json::from_slice(&std::fs::read(Path::new(path)).unwrap()).unwrap();
    Some(memory["records"].get(0)?["parameter"].as_str().unwrap().to_owned())
}

/// On a busy machine a run may end before the answers to its names arrive. Two such runs pause first flights for a
/// while.
fn forget_stops(path: &str) {
    let mut memory: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    memory["resolvers"] = Value::Array(Vec::new());
    std::fs::write(path, memory.to_string()).unwrap();
}

#[test]
fn a_fetch_does_not_wait_for_verifiers_that_never_answer() {
    let site = Site::new("silent", None);
    // TCP is also open there, and does not answer.
    let silent = ["127.0.0.1", "127.0.0.2"].map(sockets);
    let [first, second] = silent.each_ref().map(|(socket, _)| socket.local_addr().unwrap());
    let output = site.get([&first.to_string(), &second.to_string()], &[]);
    for report in reports(&output) {
        assert_eq!(
            (&report["way"], &report["held_back"]),
            (&"ordinary".into(), &"no-dns-path".into()),
            "{report}"
        );
    }
    // The verification had begun.
    silent[0].0.set_nonblocking(true).unwrap();
    assert!(silent[0].0.recv(&mut [0; 2000]).is_ok());
    // Without the certificate, a request to a known server also goes the ordinary way.
    let memory = site.dir.path("cache.json");
    let [verifier, other] = site.verifiers();
    reports(&site.get([&verifier.1, &other.1], &["--cache", &memory, "--verify-first"]));
    let output = site.get([&first.to_string(), &second.to_string()], &["--cache", &memory]);
    for report in reports(&output) {
        assert_eq!(
            (&report["way"], &report["held_back"]),
            (&"ordinary".into(), &"no-certificate".into()),
            "{report}"
        );
    }
}

/// A refusal by a verifier is reported, and no fetch fails.
#[test]
fn a_verification_that_fails_is_one_line_and_fails_no_fetch() {
    let site = Site::new("refused", None);
    let [_, second] = site.verifiers();
    // It sends no probes, and nothing listens at the other address.
    let nobody = free("127.0.0.4");
    let output = site.get([&second.1, &nobody], &["--verify-first"]);
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains(&second.1) && complaint.contains("no request inside a lookup"), "{complaint}");
    for report in reports(&output) {
        assert_eq!(
            (&report["way"], &report["held_back"]),
            (&"ordinary".into(), &"not-proved".into()),
            "{report}"
        );
    }
}

#[test]
fn with_verify_first_the_first_fetch_travels_in_its_lookup() {
    let site = Site::new("first", None);
    let [verifier, second] = site.verifiers();
    let output = site.get([&verifier.1, &second.1], &["--verify-first", "--repeat", "2"]);
    let reports = reports(&output);
    assert_eq!(reports.len(), 2);
    assert!(left(&reports[0]), "{}", reports[0]);
    for report in reports {
        assert!(left(&report) || is_late(&report), "{report}");
        assert_eq!(report["outcome"], "accepted", "{report}");
    }
    fails(&["get", "http://www.xyz.com/", "--udp", "--verify-first"], 2, "--verifier");
}

/// The record names a UDP port other than the URL's. A first visit tries the URL's port, and then the record's.
#[test]
fn a_first_visit_finds_the_udp_port_in_the_record() {
    let site = Site::new("port", Some(port(&free("127.0.0.1"))));
    let [verifier, second] = site.verifiers();
    reports(&site.get([&verifier.1, &second.1], &[]));
    reports(&site.get([&verifier.1, &second.1], &["--verify-first"]));
    // The same holds for a request that must not run twice.
    let upload = site.dir.path("www/hello");
    let output = site.get([&verifier.1, &second.1], &["--upload", &upload]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["status"].is_number(), "{report}");
}

/// The operator changes the DNS-path key. A client that remembers the old one queries the record again.
#[test]
fn a_new_dns_path_key_reaches_a_client_whose_first_flights_are_lost() {
    let mut site = Site::new("key", None);
    let verifiers = site.verifiers();
    let [first, second] = verifiers.each_ref().map(|(_, at)| at.as_str());
    let memory = site.dir.path("cache.json");
    let options = ["--verify-first", "--cache", &memory];
    reports(&site.get([first, second], &options));
    let old = remembered(&memory).unwrap();
    site.start();
    let output = site.get([first, second], &[&options[..], &["--repeat", "2"]].concat());
    // The second fetch may already have the new key, if the direct copy of the first visit reached the server first.
    let first_again = &reports(&output)[0];
    assert_eq!(first_again["way"], "direct", "{first_again}");
    // The record is queried after the second fetch or, if the run ended before the answer arrived, during the next
    // one.
    for _ in 0..20 {
        if remembered(&memory).unwrap() != old {
            break;
        }
        forget_stops(&memory);
        reports(&site.get([first, second], &options));
    }
    assert_ne!(remembered(&memory).unwrap(), old, "it still seals to the old key");
    forget_stops(&memory);
    let report = reports(&site.get([first, second], &options)).pop().unwrap();
    assert!(left(&report), "{report}");
    let told = site.server.take().unwrap().stop();
    let events: Vec<Value> = told.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let names = events.iter().find(|event| event["event"] == "names").unwrap();
    assert!(names["taken"].as_u64().unwrap() > 0, "{names}");
}

/// The library does what the command does, in a few lines.
#[test]
fn a_program_sends_its_request_inside_a_lookup() {
    use firstflight::dns_path::LookupWay;
    use firstflight::{Client, FirstFlight, InsideLookups};
    use tokio::io::AsyncReadExt;

    let site = Site::new("program", None);
    let verifiers = site.verifiers();
    let at = [0, 1].map(|one: usize| verifiers[one].1.parse().unwrap());
    let (resolver, key) = (site.resolver.parse().unwrap(), site.verifier_key.parse().unwrap());
    let program = async {
        let inside = InsideLookups::new(resolver, at)?;
        let issuer = firstflight::verifier::IssuerAddress::new(at[0], key);
        let client = Client::builder().verifier(issuer).inside_lookups(inside).build().unwrap();
        client.prepare(std::time::Duration::from_secs(30)).await;
        let mut reports = Vec::new();
        for _ in 0..3 {
            let request = FirstFlight::safely_replayable(b"GET /hello HTTP/1.0\r\nHost: www.xyz.com\r\n\r\n");
            let mut stream = client.connect(("www.xyz.com", site.port), request).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            assert!(answer.ends_with("as you like"), "{answer}");
            let report = stream.inside_lookup().unwrap();
            reports.push((report.way, report.names, stream.outcome()));
        }
        // An address that is not allowed is not connected to, and the request does not leave for it inside its lookup.
        let request = FirstFlight::safely_replayable(b"GET /hello HTTP/1.0\r\n\r\n");
        let none = |_: &[SocketAddr]| Err(std::io::ErrorKind::PermissionDenied.into());
        let error = client.connect(("www.xyz.com", site.port), request).only_to(none).await.unwrap_err();
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::PermissionDenied);
        client.close().await;
        std::io::Result::Ok(reports)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reports = runtime.block_on(program).unwrap();
    // The first visit learns what the server publishes.
    assert_eq!((reports[0].0, reports[0].1), (LookupWay::Ordinary, 0), "{reports:?}");
    for (way, names, outcome) in &reports[1..] {
        assert!(*way != LookupWay::Ordinary && *names > 0 && outcome.is_accepted(), "{reports:?}");
    }
}

/// A program that knows nothing of lookups fetches by the proxy.
#[test]
fn the_proxy_sends_requests_inside_lookups() {
    by_proxy("by-proxy", &[], "");
}

/// As browsers' requests are.
#[test]
fn the_proxy_sends_the_first_lines_of_long_requests_inside_lookups() {
    by_proxy("long-by-proxy", &["--first-line"], &format!("Cookie: {}\r\n", "x".repeat(1200)));
}

/// Fetches with this field by a proxy with these options, until a request travels inside a lookup.
fn by_proxy(name: &str, options: &[&str], field: &str) {
    use std::io::{BufRead, BufReader, Read, Write};

    let mut site = Site::new(name, None);
    let verifiers = site.verifiers();
    let always = [
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--allow-net",
        "127.0.0.0/8",
        "--dns",
        &site.resolver,
        "--verifier",
        &verifiers[0].1,
        "--verifier-key",
        &site.verifier_key,
        "--via-dns",
        "--second-verifier",
        &verifiers[1].1,
    ];
    let mut proxy = Running::start(&[&always[..], options].concat());
    let at =
        serde_json::from_str::<Value>(&proxy.line()).unwrap()["addresses"][0].as_str().unwrap().to_owned();
    let mut fetch = |port: u16| {
        let mut stream = std::net::TcpStream::connect(&at).unwrap();
        let url = format!("http://www.xyz.com:{}/hello", port);
        write!(stream, "GET {url} HTTP/1.1\r\nHost: www.xyz.com:{port}\r\n{field}Connection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        stream.read_to_string(&mut answer).unwrap();
        loop {
            let event: Value = serde_json::from_str(&proxy.line()).unwrap();
            if event["event"] == "connected" || event["event"] == "failed" {
                assert_eq!(
                    answer.starts_with("HTTP/1.1 200"),
                    event["event"] == "connected",
                    "{answer} {event}"
                );
                break event;
            }
        }
    };
    // The first requests go as ever: the certificate, the record and the proof are obtained meanwhile. The proxy keeps its
    // connection to the server until that starts anew.
    let mut events = (0..200).map(|_| {
        site.start();
        let event = fetch(site.port);
        assert_eq!(event["event"], "connected", "{event}");
        event
    });
    let left = |event: &Value| event["inside_lookup"] == "lookup" || event["inside_lookup"] == "direct";
    let event = events.find(left).expect("no request inside a lookup");
    assert_eq!(
        (&event["way"], &event["outcome"]),
        (&Value::from("udp"), &Value::from("accepted")),
        "{event}"
    );
}

/// What an older program kept in a file of its own is in the cache.
#[test]
fn the_file_of_lookups_is_gone_and_its_option_says_where_to() {
    let options = ["get", "http://www.xyz.com/", "--udp", "--via-dns", "--dns-memory", "names.json"];
    fails(&options, 2, "name it with --cache");
    assert!(!Path::new("names.json").exists());
}
