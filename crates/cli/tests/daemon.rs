//! What all commands that stay running do alike.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests: they fail by panicking")]

use crate::dir::Dir;
use crate::program::{Running, command, fails, prints, until};
use crate::server;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

const LOCAL: &str = "127.0.0.1:0";

/// The files of all of them.
struct Files(Dir);

impl Files {
    fn new(name: &str) -> Self {
        let dir = Dir::new(name);
        prints(&["verifier", "keygen", "-o", &dir.path("verifier")]);
        dir.file("zone", "$TTL 60\n@ IN SOA ns host 1 2 3 4 5\n@ IN NS ns\nns IN A 192.0.2.53\n");
        Self(dir)
    }

    /// The commands that listen at `at` by TCP. `metrics` is the admin address.
    fn commands(&self, at: &str, metrics: &str) -> Vec<Vec<String>> {
        let [root, zone, verifier] = ["", "zone", "verifier"].map(|name| self.0.path(name));
        let file = format!(
            "[gateway]\nadmin = {metrics:?}\n[[listener]]\nname = \"l\"\naddress = [{at:?}]\nmode = \"tcp\"\n\
             service = \"s\"\n[[service]]\nname = \"s\"\nbackend = [\"127.0.0.1:1\"]\n"
        );
        let gateway = self.0.file("gateway.toml", &file);
        let all = [
            vec!["serve", &root, "--udp-port", "0", "--listen", at, "--metrics", metrics],
            vec!["dns", "--zone", &zone, "--origin", "xyz.com", "--listen", at, "--metrics", metrics],
            vec!["verifier", "--key-file", &verifier, "--listen", at, "--metrics", metrics],
            vec!["gateway", &gateway],
            vec!["proxy", "--listen", at],
        ];
        let own = |args: Vec<&str>| args.into_iter().map(str::to_owned).collect();
        all.into_iter().map(own).collect()
    }
}

fn start(args: &[String]) -> Running {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Running::start(&args)
}

/// An answer of an admin address.
fn ask(at: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut text = String::new();
    let mut stream = TcpStream::connect(at)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n")?;
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Waits for a line that says that the command serves.
fn serves(running: &mut Running) {
    loop {
        let line = running.line();
        assert!(!line.is_empty(), "it has ended");
        if line.contains("listening on ") {
            return;
        }
    }
}

#[test]
fn a_metrics_address_that_is_in_use_stops_nothing() {
    let files = Files::new("in-use");
    let count = files.commands(LOCAL, LOCAL).len();
    for number in 0..count {
        let taken = TcpListener::bind(LOCAL).unwrap();
        let at = taken.local_addr().unwrap();
        let args = files.commands(LOCAL, &at.to_string()).swap_remove(number);
        // It has a status page of its own.
        if args[0] == "proxy" {
            continue;
        }
        let log = files.0.path(&format!("{}.log", args[0]));
        let all: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut running = Running::start_logging(&all, &log);
        serves(&mut running);
        let says = std::fs::read_to_string(&log).unwrap();
        assert!(says.contains(&format!("{at} cannot be used for metrics: Address already in use")), "{says}");
        drop(taken);
        until(|| ask(at, "/healthz").is_ok_and(|text| text.ends_with("alive\n")));
        let ready = ask(at, "/readyz").unwrap();
        assert!(ready.starts_with("HTTP/1.1 200 ") && ready.contains("\r\n\r\nready\n"), "{ready}");
        assert!(ask(at, "/metrics").unwrap().starts_with("HTTP/1.1 200 "));
        running.stop();
    }
}

/// SIGHUP is for files, and logrotate and others send SIGUSR1 to whatever has a log.
#[test]
fn signals_that_are_not_for_the_end_end_nothing() {
    let files = Files::new("signals");
    for args in files.commands(LOCAL, LOCAL) {
        let mut running = start(&args);
        serves(&mut running);
        for name in ["HUP", "USR1", "USR2"] {
            running.signal(name);
        }
        // It ends with 0 by SIGTERM, and did not by another signal.
        running.stop();
    }
}

/// A service manager starts it again after 1, and not after 2.
#[test]
fn an_address_that_comes_later_is_no_mistake() {
    let files = Files::new("addresses");
    let taken = TcpListener::bind(LOCAL).unwrap();
    let (in_use, elsewhere) = (taken.local_addr().unwrap().to_string(), "192.0.2.1:8080");
    for (at, code, says) in [(&*in_use, 1, "Address already in use"), (elsewhere, 1, "Cannot assign")] {
        for args in files.commands(at, LOCAL) {
            // Its addresses are those of this machine only.
            if args[0] == "proxy" && at == elsewhere {
                continue;
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            fails(&args, code, says);
        }
    }
    let zone = files.0.path("zone");
    let front = [
        &["dns", "--listen", LOCAL, "--zone", &zone, "--origin", "xyz.com"][..],
        &[
            "--forward-listen",
            "192.0.2.1:9",
            "--forward-to",
            "127.0.0.1:9",
            "--forward-key",
            "x",
            "--state",
            "x",
        ],
        &[
            "--dns-path-zone",
            "f.xyz.com",
            "--dns-path-address",
            "192.0.2.80",
            "--key-file",
            "x",
            "--relay",
            "192.0.2.80:1=x",
        ],
        &["--front-id", "1"],
    ];
    fails(&front.concat(), 1, "cannot listen on 192.0.2.1:9 for other fronts");
    // What another process has: the file is in use as long as the server listens on UDP.
    let (root, state) = (files.0.path(""), files.0.path("state"));
    let options = ["--root", &root, "--listen", LOCAL, "--one-time", "--one-time-state", &state];
    let once = server::file(&files.0, &options);
    let mut running = Running::start(&["gateway", &once]);
    serves(&mut running);
    fails(&["gateway", &once], 1, "another process uses it");
    running.stop();
    // What the text of options decides.
    fails(&["serve", "/nonexistent"], 2, "service site: root /nonexistent: ");
    fails(&["verifier", "--listen", LOCAL, "--key-file", "/nonexistent"], 2, "cannot be read");
    fails(&["gateway", "/nonexistent"], 2, "cannot read");
}

/// systemd waits for this: `Type=notify`.
#[test]
fn all_of_them_say_when_they_are_ready_and_when_they_end() {
    let files = Files::new("notify");
    let path = files.0.path("notify");
    let notices = UnixDatagram::bind(&path).unwrap();
    // For a command that says nothing.
    notices.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let notice = || {
        let mut buffer = [0; 256];
        let length = notices.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    for args in files.commands(LOCAL, LOCAL) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut command = command(&args);
        command.env("NOTIFY_SOCKET", &path);
        let running = Running::spawn(command);
        assert_eq!(notice(), "READY=1\n", "{args:?}");
        running.signal("TERM");
        assert_eq!(notice(), "STOPPING=1\n", "{args:?}");
        running.stop();
    }
}
