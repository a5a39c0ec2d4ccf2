//! A Redis for one test, on a socket in its own directory. Both are removed with it.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) struct Redis {
    process: Option<Child>,
    directory: PathBuf,
    options: Vec<String>,
}

/// A TCP port that nobody uses at this moment. No other test of this process gets it.
pub(crate) fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let listener = std::net::TcpListener::bind("localhost:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}

/// The program to test with: `FIRSTFLIGHT_REDIS_SERVER`, `valkey-server` for example, or `redis-server`.
pub(crate) fn program() -> String {
    std::env::var("FIRSTFLIGHT_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Whether the program was built with TLS: then it misses the key for its certificate. It ends at once in any case.
pub(crate) fn has_tls() -> bool {
    let port = free_port().to_string();
    let tried = Command::new(program())
        .args(["--port", "0", "--tls-port", &port, "--tls-cert-file", "/nonexistent"])
        .output();
    tried.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("tls-key-file"))
}

impl Redis {
    /// A Redis without persistence. `None` and a printed reason if there is no redis-server on this host.
    pub(crate) fn start(options: &[&str]) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if Command::new(program()).arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: no redis-server here (Debian package redis-server)");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("firstflight-redis-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut redis = Self { process: None, directory, options };
        redis.restart();
        Some(redis)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    /// The path of a file beside its socket, removed with it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// Stops the process as a power failure does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    pub(crate) fn restart(&mut self) {
        self.kill();
        let mut command = Command::new(program());
        command
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(self.socket());
        command.args(&self.options).current_dir(&self.directory).stdout(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        let began = Instant::now();
        while std::os::unix::net::UnixStream::connect(self.socket()).is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "redis-server does not start");
            std::thread::yield_now();
        }
    }

    /// Options for the next start.
    pub(crate) fn set_options(&mut self, options: &[&str]) {
        self.options = options.iter().map(|&option| option.to_owned()).collect();
    }

    pub(crate) fn pid(&self) -> i32 {
        self.process.as_ref().unwrap().id().cast_signed()
    }

    /// The lines of a section of INFO that contain `word`.
    pub(crate) fn info(&self, section: &str, word: &str) -> String {
        let client = redis::Client::open(self.url()).unwrap();
        let mut connection = client.get_connection().unwrap();
        let all: String = redis::cmd("INFO").arg(section).query(&mut connection).unwrap();
        all.lines().filter(|line| line.contains(word)).collect::<Vec<_>>().join("\n")
    }

    /// The reply to a command.
    pub(crate) fn cli(&self, command: &[&str]) -> String {
        self.try_cli(command).unwrap()
    }

    /// The reply to a command, which is text.
    pub(crate) fn text(&self, command: &[&str]) -> String {
        redis::cmd(command[0]).arg(&command[1..]).query(&mut self.connect()).unwrap()
    }

    /// The reply to a command, which is a list of texts.
    pub(crate) fn list(&self, command: &[&str]) -> Vec<String> {
        redis::cmd(command[0]).arg(&command[1..]).query(&mut self.connect()).unwrap()
    }

    /// The keys that fit `pattern`.
    pub(crate) fn keys(&self, pattern: &str) -> Vec<String> {
        redis::cmd("KEYS").arg(pattern).query(&mut self.connect()).unwrap()
    }

    pub(crate) fn get(&self, key: &str) -> Vec<u8> {
        redis::cmd("GET").arg(key).query(&mut self.connect()).unwrap()
    }

    /// How long a key is kept, milliseconds.
    pub(crate) fn ttl_ms(&self, key: &str) -> u64 {
        redis::cmd("PTTL").arg(key).query(&mut self.connect()).unwrap()
    }

    fn connect(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    fn try_cli(&self, command: &[&str]) -> redis::RedisResult<String> {
        let mut connection = redis::Client::open(self.url())?.get_connection()?;
        let (name, arguments) = command.split_first().unwrap();
        let mut command = redis::cmd(name);
        command.arg(arguments);
        let reply: redis::Value = command.query(&mut connection)?;
        Ok(format!("{reply:?}"))
    }

    /// Makes Redis evict keys. It evicts only keys that expire, so the mark of its memory stays.
    pub(crate) fn evict(&self) {
        self.cli(&["CONFIG", "SET", "maxmemory-policy", "volatile-random"]);
        self.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        // Redis refuses this command for lack of memory after it has evicted all such keys.
        let _ = self.try_cli(&["SET", "one-more", "1"]);
        self.cli(&["CONFIG", "SET", "maxmemory", "0"]);
        self.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        assert!(self.cli(&["KEYS", "*:memory"]).contains("memory"), "the mark is gone too");
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.info("stats", "evicted_keys").split(':').nth(1).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
