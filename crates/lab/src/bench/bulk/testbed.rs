//! Two network namespaces, a veth pair between them, a server of each kind, and a file. All of it goes when this is
//! dropped.

use super::super::BenchError;
use super::Peer;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The addresses of the kernel's server and the engine's: on a TUN device, and on a card. Everything is inside the namespaces.
const KERNEL: &str = "10.99.0.2:8080";
const ENGINE: &str = "10.99.1.2:8080";
const CARD: &str = "10.99.2.2:8080";
/// The name of the TUN device, and of the card.
const DEVICE: &str = "ffbulk0";
const CARD_DEVICE: &str = "veth1";

pub(super) struct BulkTestbed {
    client: String,
    server: String,
    children: Vec<Child>,
    file: PathBuf,
}

impl BulkTestbed {
    pub(super) fn make(bytes: u64) -> Result<Self, BenchError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(BenchError::Needs("root: it makes network namespaces and a TUN device"));
        }
        let id = std::process::id();
        let mut place = Self {
            client: format!("ffbulk{id}a"),
            server: format!("ffbulk{id}b"),
            children: Vec::new(),
            file: std::env::temp_dir().join(format!("ffbulk{id}")),
        };
        let (a, b) = (place.client.clone(), place.server.clone());
        for line in [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add veth0 netns {a} type veth peer name veth0 netns {b}"),
            format!("-n {a} addr add 10.99.0.1/24 dev veth0"),
            format!("-n {b} addr add 10.99.0.2/24 dev veth0"),
            format!("-n {a} link set veth0 up"),
            format!("-n {b} link set veth0 up"),
            format!("link add {CARD_DEVICE} netns {a} type veth peer name {CARD_DEVICE} netns {b}"),
            format!("-n {a} addr add 10.99.2.1/24 dev {CARD_DEVICE}"),
            format!("-n {b} addr add 10.99.2.2/24 dev {CARD_DEVICE}"),
            format!("-n {a} link set {CARD_DEVICE} up"),
            format!("-n {b} link set {CARD_DEVICE} up"),
        ] {
            ip(&line)?;
        }
        place.serve(&b, &["--kernel", KERNEL], bytes)?;
        place.serve(&a, &["--tun", DEVICE, "--engine", ENGINE], bytes)?;
        place.serve(&b, &["--card", CARD_DEVICE, "--engine", CARD], bytes)?;
        File::create(&place.file)
            .and_then(|file| file.set_len(bytes))
            .map_err(|error| BenchError::refused("a file for curl", error))?;
        Ok(place)
    }

    /// Starts a server and waits until it listens.
    fn serve(&mut self, namespace: &str, arguments: &[&str], bytes: u64) -> Result<(), BenchError> {
        let wrong = |error: std::io::Error| BenchError::refused("the server", error);
        let this = std::env::current_exe().map_err(wrong)?;
        let mut child = Command::new("ip")
            .args(["netns", "exec", namespace])
            .arg(this)
            .args(["bench", "bulk-server", "--bytes", &bytes.to_string()])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(wrong)?;
        let output = child.stdout.take();
        self.children.push(child);
        let mut line = String::new();
        if let Some(output) = output {
            BufReader::new(output).read_line(&mut line).map_err(wrong)?;
        }
        if line.trim() != "ready" {
            return Err(BenchError::Wrong("the server did not start".to_owned()));
        }
        Ok(())
    }

    pub(super) fn client(&self) -> &str {
        &self.client
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    pub(super) const fn address(&self, peer: Peer) -> &'static str {
        match peer {
            Peer::Kernel => KERNEL,
            Peer::Engine => ENGINE,
            Peer::Card => CARD,
        }
    }
}

/// Runs `ip` with these arguments.
fn ip(line: &str) -> Result<(), BenchError> {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.map_err(|error| BenchError::refused("ip (iproute2)", error))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(BenchError::refused("ip", why.trim()))
}

impl Drop for BulkTestbed {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        for namespace in [&self.client, &self.server] {
            let _ = ip(&format!("netns del {namespace}"));
        }
        let _ = fs::remove_file(&self.file);
    }
}
