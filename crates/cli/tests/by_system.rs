//! A server and `get` on the system's sockets: the kernel's TCP and UDP.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program::{self, Running, fails, prints, run};
use crate::server;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

/// A port of the loopback address that was free a moment ago.
fn free() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, program::sockets(&["127.0.0.1"]).0).into()
}

/// A directory with the file `hello`.
fn site(name: &str) -> Dir {
    let dir = Dir::new(name);
    std::fs::create_dir(dir.path("www")).unwrap();
    std::fs::write(dir.path("www/hello"), "as you like").unwrap();
    dir
}

fn serve(dir: &Dir, at: &str, options: &[&str]) -> (Running, String) {
    let (root, log) = (dir.path("www"), dir.path("log"));
    let file = server::file(dir, &[&["--root", &root, "--listen", at][..], options].concat());
    let mut server = Running::start_logging(&["gateway", &file], &log);
    let line = server.line();
    (server, line)
}

fn reports(args: &[&str]) -> Vec<Value> {
    prints(args).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn neither_end_needs_privileges_or_a_link() {
    let (dir, at) = (site("by-system"), free().to_string());
    let mut server = Running::start_logging(&["serve", &dir.path("www"), "--listen", &at], &dir.path("log"));
    let said = server.line();
    assert!(said.contains(&format!("{at} for web (TCP with")), "{said}");
    assert!(said.contains(&format!("UDP port {}", at.rsplit(':').next().unwrap())), "{said}");
    let url = format!("http://{at}/hello");
    for report in reports(&["get", &url, "--json", "--repeat", "2"]) {
        assert_eq!(
            (&report["status"], &report["bytes"], &report["way"]),
            (&200.into(), &11.into(), &"kernel".into())
        );
        assert_eq!((&report["raced"], &report["data_left_twice"]), (&false.into(), &false.into()));
    }
    // The same port serves an engine in UDP.
    assert_eq!(reports(&["get", &url, "--json", "--udp"])[0]["status"], 200);
    // An ordinary connect.
    let report = &reports(&["get", &url, "--json", "--no-fast-open"])[0];
    assert_eq!((&report["outcome"], &report["reason"]), (&"handshake".into(), &"not-requested".into()));
    // The counts at the end are those of all ways.
    let said = server.stop();
    assert!(said.iter().any(|line| line.starts_with("web, TCP: 3 connections, ")), "{said:?}");
    let udp = said.iter().position(|line| line == "web, engine:").unwrap();
    assert!(said[udp..].iter().any(|line| line.contains("1 opened")), "{said:?}");
}

#[test]
fn a_certificate_goes_in_udp_at_the_first_contact() {
    let (dir, at) = (site("by-system-asap"), free().to_string());
    let key = prints(&["verifier", "keygen", "-o", &dir.path("key")]);
    let key = key.split_whitespace().nth(1).unwrap();
    let verifier = free().to_string();
    let args =
        ["verifier", "--listen", &verifier, "--key-file", &dir.path("key"), "--allow-prefix", "127.0.0.0/8"];
    let mut verifying = Running::start(&args);
    verifying.address();
    std::fs::write(dir.path("trust"), format!("# begin\n[[verifier]]\nkey = \"{key}\"\nown = true\n# end\n"))
        .unwrap();
    let (server, _) = serve(&dir, &at, &["--trust", &dir.path("trust"), "--first-start"]);
    let url = format!("http://{at}/hello");
    let asks = ["--verifier", &verifier, "--verifier-key", key, "--verify-first", "--asap-known"];
    let report = &reports(&[&["get", &url, "--json"][..], &asks].concat())[0];
    assert_eq!((&report["way"], &report["outcome"]), (&"udp".into(), &"accepted".into()), "{report}");
    // A verifier that gives no answer fails no fetch.
    let dead = free().to_string();
    let asks = ["--verifier", &dead, "--verifier-key", key, "--asap-known"];
    let report = &reports(&[&["get", &url, "--json"][..], &asks].concat())[0];
    assert_eq!((&report["way"], &report["status"]), (&"kernel".into(), &200.into()), "{report}");
    server.stop();
}

/// The server is its own verifier, for clients of UDP alone and for those that use the kernel's TCP, too. No other server and no
/// trust file is needed.
#[test]
fn a_server_that_is_its_own_verifier_gets_the_request_in_the_first_packet() {
    let dir = site("by-system-own-verifier");
    let key = prints(&["verifier", "keygen", "-o", &dir.path("key")]);
    let key = key.split_whitespace().nth(1).unwrap();
    let file = dir.path("key");
    let own = ["--verifier", &file, "--verifier-allow", "127.0.0.0/8", "--first-start"];
    for alone in [false, true] {
        let at = free().to_string();
        let (root, log) = (dir.path("www"), dir.path("log"));
        let listen = if alone { "--udp" } else { "--listen" };
        let file = server::file(&dir, &[&["--root", &root, listen, &at], &own[..]].concat());
        let mut server = Running::start_logging(&["gateway", &file], &log);
        let said = server.line();
        assert!(said.starts_with("web is verifier ") && said.ends_with(&format!(", key {key}")), "{said}");
        let url = format!("http://{at}/hello");
        let mut asks = vec!["get", &url, "--json", "--verifier", &at, "--verifier-key", key];
        asks.extend(["--verify-first", "--asap-known"]);
        if alone {
            asks.push("--udp");
        }
        let report = &reports(&asks)[0];
        assert_eq!((&report["way"], &report["outcome"]), (&"udp".into(), &"accepted".into()), "{report}");
        server.stop();
    }
}

/// A certificate in a file is for one site on one network, and its first fetch needs no wait.
#[test]
fn a_kept_certificate_is_for_one_site_on_one_network() {
    let dir = site("by-system-kept");
    let key = prints(&["verifier", "keygen", "-o", &dir.path("key")]);
    let key = key.split_whitespace().nth(1).unwrap();
    let at = free().to_string();
    let own = ["--verifier", &dir.path("key"), "--verifier-allow", "127.0.0.0/8", "--first-start"];
    let (server, _) = serve(&dir, &at, &own);
    let (file, home) = (dir.path("certificate"), "11".repeat(16));
    let get =
        ["certificate", "get", "--verifier", &at, "--verifier-key", key, "-o", &file, "--network-id", &home];
    prints(&get);
    let text = std::fs::read_to_string(&file).unwrap();
    let secret = text.split("\"key\": \"").nth(1).unwrap().split('"').next().unwrap();
    let url = format!("http://{at}/hello");
    let args = ["get", &url, "--json", "--certificate", &file, "--asap-known"];
    let here = [&args[..], &["--network-id", &home]].concat();
    let report = &reports(&here)[0];
    assert_eq!((&report["way"], &report["outcome"]), (&"udp".into(), &"accepted".into()), "{report}");
    let shown = prints(&["asap", "inspect", &file]);
    assert!(shown.contains("site: 127.0.0.1") && !shown.contains(secret), "{shown}");
    let shown = prints(&["asap", "inspect", &file, "--json"]);
    assert!(shown.contains(&home) && !shown.contains(secret), "{shown}");
    // Another network, another site, and several sites.
    let refused = |args: &[&str], says: &str| fails(args, 2, says);
    refused(&[&args[..], &["--network-id", &"22".repeat(16)]].concat(), "another network");
    refused(&[&args[..], &["--network-id", "none"]].concat(), "--network-id");
    let other = url.replace("127.0.0.1", "127.0.0.2");
    refused(&[&["get", &other][..], &here[2..]].concat(), "it was used for 127.0.0.1");
    refused(&[&["get", &url, &other][..], &here[2..]].concat(), "several sites");
    // Another command renews it. It stays that of its site.
    prints(&get);
    assert!(!std::fs::read_to_string(&file).unwrap().contains(secret));
    assert_eq!(reports(&here)[0]["outcome"], "accepted");
    refused(&[&["get", &other][..], &here[2..]].concat(), "it was used for 127.0.0.1");
    server.stop();
}

#[test]
fn a_verifier_that_could_not_answer_is_refused() {
    let dir = site("by-system-no-verifier");
    prints(&["verifier", "keygen", "-o", &dir.path("key")]);
    let (root, file) = (dir.path("www"), dir.path("key"));
    let at = free().to_string();
    let refused = |options: &[&str], says: &str| {
        let file = server::file(&dir, &[&["--root", &root, "--verifier", &file][..], options].concat());
        fails(&["gateway", &file], 2, says);
    };
    refused(&["--listen", &at, "--udp-port", "0"], "a verifier answers in UDP");
    // At all addresses it needs a name.
    refused(&["--listen", "0.0.0.0:8080"], "needs identity");
    fails(&["serve", &root, "--verifier", &file], 2, "needs identity");
    // Messages of fronts can look like those to a verifier.
    std::fs::write(dir.path("trust"), "# begin\n# end\n").unwrap();
    let (trust, relay) = (dir.path("trust"), dir.path("relay"));
    let fronts = ["--udp", &at, "--relay-listen", &at, "--relay-key", &relay, "--trust", &trust];
    refused(&fronts, &format!("relay.listen: {at} is in use for something else"));
    // Nobody else may read the key.
    std::fs::write(dir.path("open"), "key 00").unwrap();
    fails(&["serve", &root, "--listen", &at, "--verifier", &dir.path("open")], 2, "open");
}

#[test]
fn sockets_of_a_service_manager_are_used() {
    let dir = site("by-system-listen-fds");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let program = env!("CARGO_BIN_EXE_firstflight");
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1 exec {program} serve {} --listen {at} --udp-port 0 3<&0 </dev/null",
        dir.path("www")
    );
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::from(OwnedFd::from(listener.try_clone().unwrap())))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // The port is bound already, so a second listener would fail. This connect waits for the server to accept.
    let report = &reports(&["get", &format!("http://{at}/hello"), "--json"])[0];
    assert_eq!(report["status"], 200);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn wrong_options_are_one_line() {
    let dir = site("by-system-wrong");
    let root = dir.path("www");
    let ends = |options: &[&str], code, says: &str| {
        fails(&[&["serve", &root][..], options].concat(), code, says);
    };
    ends(&["--listen", "127.0.0.1:1", "--listen", "[::1]:2"], 2, "same port");
    ends(&["--listen", "192.0.2.1:8080"], 1, "listener web: cannot listen");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    ends(&["--listen", &taken.local_addr().unwrap().to_string()], 1, "listener web: cannot listen");
    fails(&["get", "http://127.0.0.1:9/", "--verifier", "127.0.0.1:9"], 2, "--verifier-key");
    // Nothing listens there.
    let output = run(&["get", "http://127.0.0.1:1/"]);
    assert_eq!(output.status.code(), Some(1));
}
