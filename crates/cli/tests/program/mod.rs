//! The command as a child process of a test: run to completion, or a service that keeps running.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests are tests: they fail by panicking")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firstflight"));
    command.args(args);
    command
}

pub(crate) fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs the command, which must succeed, and returns its output.
pub(crate) fn prints(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What the command said on stderr, without its notes: some are about this host.
pub(crate) fn complaint(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    said.lines()
        .filter(|line| !line.starts_with("firstflight: note: "))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Checks that the command prints nothing on stdout and one line on stderr that says what to do, and exits with this
/// code. The secrets that tests use or mistype begin with `0badc0d`.
pub(crate) fn fails(args: &[&str], code: i32, says: &str) {
    let output = run(args);
    let complaint = complaint(&output);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {complaint}");
    assert!(complaint.contains(says), "{args:?}: {complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(!complaint.to_lowercase().contains("0badc0d"), "{complaint}");
    assert!(output.stdout.is_empty(), "{:?}", String::from_utf8(output.stdout));
}

/// Waits until something has happened, for at least a minute.
pub(crate) fn until(mut happened: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if happened() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it never happened");
}

/// UDP and TCP sockets at one port of these addresses. The port is below the range that the system assigns to clients, so
/// that it stays free between its release here and a server's start. No other test gets it soon.
pub(crate) fn sockets(ips: &[&str]) -> (u16, Vec<(UdpSocket, TcpListener)>) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(101).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + (number % 12_000) as u16;
        let bind =
            |ip: &&str| Some((UdpSocket::bind((*ip, port)).ok()?, TcpListener::bind((*ip, port)).ok()?));
        if let Some(all) = ips.iter().map(bind).collect() {
            return (port, all);
        }
    }
}

/// A service that is running. Dropping it kills the service.
pub(crate) struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(command(args))
    }

    /// Starts a command with an environment of its own.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Starts the command with stderr written to the file `to`.
    pub(crate) fn start_logging(args: &[&str], to: &str) -> Self {
        let log = std::fs::File::create(to).unwrap();
        let mut child = command(args).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line of its output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Skips its output up to this line.
    pub(crate) fn line_is(&mut self, expected: &str) {
        loop {
            let line = self.line();
            assert!(!line.is_empty(), "it ended without {expected:?}");
            if line == expected {
                return;
            }
        }
    }

    /// The address in its next line, at which it listens.
    pub(crate) fn address(&mut self) -> String {
        let line = self.line();
        let rest = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}"));
        rest.split(' ').next().unwrap().to_owned()
    }

    /// Sends this signal to it, such as `HUP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    /// Ends it with SIGTERM, repeated until it exits: at the first signal, `serve` waits for its connections. Returns
    /// the lines that were not read.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let status = loop {
            self.signal("TERM");
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
        };
        assert!(status.success(), "{status}");
        (&mut self.lines).lines().map_while(Result::ok).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
