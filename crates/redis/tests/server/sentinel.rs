//! Redis Sentinel for one test, and a sentinel that says what the test wants.

use super::process::{Redis, free_port, program};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A Redis on a TCP port, with the configuration of `docs/farm-masters.md`.
pub(crate) fn replicated(port: u16, follows: Option<u16>) -> Option<Redis> {
    let (port, follows) = (port.to_string(), follows.map(|port| port.to_string()));
    let mut options = vec!["--port", &port, "--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"];
    options.extend(["--min-replicas-to-write", "1", "--min-replicas-max-lag", "10"]);
    if let Some(follows) = &follows {
        options.extend(["--replicaof", "127.0.0.1", follows]);
    }
    Redis::start(&options)
}

/// Waits until this number of replicas follow the master and have caught up.
pub(crate) fn followed(master: &Redis, replicas: usize) {
    while master.info("replication", "state=online").lines().count() != replicas {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// A real sentinel.
pub(crate) struct Sentinel {
    pub port: u16,
    process: Child,
    directory: PathBuf,
}

impl Sentinel {
    /// Watches the master `farm` at this port, together with one more sentinel.
    pub(crate) fn start(master: u16) -> Self {
        let port = free_port();
        let directory =
            std::env::temp_dir().join(format!("firstflight-sentinel-{}-{port}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let file = directory.join("sentinel.conf");
        let configuration = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor farm 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds farm 1000\nsentinel failover-timeout farm 5000\n",
            directory.display()
        );
        std::fs::write(&file, configuration).unwrap();
        let mut command = Command::new(program());
        let process = command.arg(&file).arg("--sentinel").stdout(Stdio::null()).spawn().unwrap();
        let sentinel = Self { port, process, directory };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        sentinel
    }

    fn ask(&self, command: &[&str]) -> redis::Value {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        redis::cmd("SENTINEL").arg(command).query(&mut client.get_connection().unwrap()).unwrap()
    }

    /// Waits until it knows this many other sentinels and replicas.
    pub(crate) fn knows(&self, sentinels: usize, replicas: usize) {
        for (what, expected) in [("sentinels", sentinels), ("replicas", replicas)] {
            while !matches!(self.ask(&[what, "farm"]), redis::Value::Array(all) if all.len() == expected) {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Says that a master with two replicas is at this port, whatever is true.
pub(crate) struct Liar {
    pub port: u16,
    master: Arc<Mutex<u16>>,
}

impl Liar {
    pub(crate) fn start(master: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let master = Arc::new(Mutex::new(master));
        let ours = Arc::clone(&master);
        // The threads end with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let master = Arc::clone(&ours);
                std::thread::spawn(move || answer(client, &master));
            }
        });
        Self { port, master }
    }

    pub(crate) fn name(&self, master: u16) {
        *self.master.lock().unwrap() = master;
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/farm", self.port)
    }
}

/// Answers each command by its last words.
fn answer(mut client: TcpStream, master: &Mutex<u16>) {
    let mut bytes = [0; 65536];
    while let Ok(len) = client.read(&mut bytes)
        && len > 0
    {
        let text = String::from_utf8_lossy(&bytes[..len]).to_uppercase();
        for command in text.split('*').skip(1) {
            let reply = if command.contains("GET-MASTER-ADDR") {
                let port = master.lock().unwrap().to_string();
                format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
            } else if command.contains("REPLICAS") {
                "*2\r\n*0\r\n*0\r\n".to_owned()
            } else {
                "+OK\r\n".to_owned()
            };
            if client.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    }
}
