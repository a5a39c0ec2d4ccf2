//! The parent's side of a peer.

use super::peer::{PROTOCOL, PeerEnd};
use super::usage::Usage;
use super::way::ConnectWay;
use crate::bench::BenchError;
use crate::namespaces::{UnnamedNamespace, ip};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A cable whose ends are network cards, by its number.
#[derive(Debug, Clone, Copy)]
pub struct Cable(pub u8);

impl Cable {
    /// The name of both cards.
    pub fn device(self) -> String {
        format!("card{}", self.0)
    }

    pub const fn server(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 100_u8.saturating_add(self.0), 255, 1)
    }

    /// The client's address with a number from 1 on.
    pub const fn client(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 100_u8.saturating_add(self.0), 0, number)
    }
}

/// Where the processes run.
#[derive(Debug)]
pub enum ProcessPlace {
    /// A network namespace of their own, with Fast Open for servers, and another one for a server behind a cable.
    Room(UnnamedNamespace, UnnamedNamespace),
    /// This namespace: making another one needs root.
    Here,
}

impl ProcessPlace {
    /// A namespace, if this process may make one.
    pub fn new() -> Result<Self, BenchError> {
        let (Ok(room), Ok(far)) = (UnnamedNamespace::new(), UnnamedNamespace::new()) else {
            return Ok(Self::Here);
        };
        let prepared = room.within(|| {
            ip(&["link", "set", "lo", "up"])?;
            fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3")
        });
        prepared.map_err(|error| BenchError::refused("a network namespace", error))?;
        Ok(Self::Room(room, far))
    }

    /// Joins both namespaces by a veth pair, whose ends are network cards. The client's has as many addresses.
    fn join(&self, cable: Cable, clients: u8) -> Result<(), BenchError> {
        let Self::Room(room, far) = self else { return Err(BenchError::Needs("root, for network cards")) };
        let other = format!("/proc/{}/fd/{}", std::process::id(), far.0.as_raw_fd());
        let end = |addresses: Vec<Ipv4Addr>, device: &str| {
            for address in addresses {
                ip(&["addr", "add", &format!("{address}/16"), "dev", device])?;
            }
            ip(&["link", "set", device, "up"])
        };
        let near = room.within(move || {
            let name = cable.device();
            ip(&["link", "add", &name, "type", "veth", "peer", "name", &name, "netns", &other])?;
            end((1..=clients).map(|number| cable.client(number)).collect(), &name)
        });
        let joined = near.and_then(|()| far.within(move || end(vec![cable.server()], &cable.device())));
        joined.map_err(|error| BenchError::refused("a veth pair", error))
    }

    /// Whether it is a namespace of its own.
    pub const fn is_room(&self) -> bool {
        matches!(self, Self::Room(..))
    }

    /// Whether the kernel lets servers use Fast Open.
    pub fn has_fast_open(&self) -> bool {
        match self {
            Self::Room(..) => true,
            Self::Here => firstflight_kernel::Setting::read().is_ok_and(|set| set.client && set.server),
        }
    }

    fn spawn(&self, mut command: Command, is_far: bool) -> io::Result<Child> {
        match self {
            Self::Room(room, far) => if is_far { far } else { room }.within(move || command.spawn()),
            Self::Here => command.spawn(),
        }
    }
}

/// What both ends do.
#[derive(Debug, Clone, Copy)]
pub struct Task {
    pub way: ConnectWay,
    /// The client's addresses.
    pub clients: u8,
    /// The server's work for a request.
    pub work: Duration,
    /// How long our engine's thread stays awake after each packet.
    pub busy_poll: Duration,
    /// The cable of [`ConnectWay::UdpCard`].
    pub cable: Cable,
}

impl Task {
    /// One client by `way`. The server does nothing but TCP's work.
    pub const fn new(way: ConnectWay) -> Self {
        Self { way, clients: 1, work: Duration::ZERO, busy_poll: Duration::ZERO, cable: Cable(0) }
    }
}

/// The programs of both ends.
#[derive(Debug)]
pub struct Programs {
    pub server: PathBuf,
    pub client: PathBuf,
}

/// A peer. It ends when this is dropped.
struct Process {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    path: PathBuf,
}

impl Process {
    fn start(
        place: &ProcessPlace,
        path: &Path,
        (end, way): (PeerEnd, ConnectWay),
        arguments: &[String],
    ) -> Result<(Self, Value), BenchError> {
        let refused = |why: &dyn std::fmt::Display| {
            BenchError::Peer(format!("{} is no end of `bench connections`: {why}", path.display()))
        };
        let mut command = Command::new(path);
        let name = if end == PeerEnd::Server { "server" } else { "client" };
        command.args(["bench", "connections-peer", name]).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = place
            .spawn(command, end == PeerEnd::Server && way == ConnectWay::UdpCard)
            .map_err(|error| refused(&error))?;
        let (commands, Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(refused(&"it has no output"));
        };
        let mut process = Self { child, commands, answers: BufReader::new(answers), path: path.to_owned() };
        let ready = process.answer()?;
        match ready.get("protocol").and_then(Value::as_u64) {
            Some(PROTOCOL) => Ok((process, ready)),
            other => Err(refused(&format!("version {other:?} of its commands, not {PROTOCOL}"))),
        }
    }

    fn answer(&mut self) -> Result<Value, BenchError> {
        let wrong = |why: &dyn std::fmt::Display| BenchError::Peer(format!("{}: {why}", self.path.display()));
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(wrong(&"it ended; its message is above")),
            Err(error) => Err(wrong(&error)),
            Ok(_) => {
                let answer: Value = serde_json::from_str(&line).map_err(|error| wrong(&error))?;
                match answer.get("error").and_then(Value::as_str) {
                    Some(error) => Err(wrong(&error)),
                    None => Ok(answer),
                }
            }
        }
    }

    fn ask(&mut self, command: &Value) -> Result<Value, BenchError> {
        if let Some(commands) = &mut self.commands {
            // If it has ended, there will be no answer, either.
            let _ = writeln!(commands, "{command}").and_then(|()| commands.flush());
        }
        self.answer()
    }

    fn usage(&mut self) -> Result<Usage, BenchError> {
        let answer = self.ask(&json!({ "do": "usage" }))?;
        Usage::read(&answer).ok_or_else(|| BenchError::Wrong(format!("no figures in {answer}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client and its server.
pub struct Pair {
    // Fields are dropped in order.
    client: Process,
    server: Process,
}

/// The figures of some visits.
#[derive(Debug, Clone, Copy)]
pub struct Visits {
    pub connections: f64,
    pub early: f64,
    pub wall_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub client: Usage,
    pub server: Usage,
}

impl Visits {
    /// CPU time of both ends for a connection, µs.
    pub fn cpu_us(&self) -> f64 {
        (self.client.cpu_us() + self.server.cpu_us()) / self.connections
    }

    /// Connections a second.
    pub fn per_s(&self) -> f64 {
        self.connections * 1e6 / self.wall_us
    }
}

impl Pair {
    /// Starts both.
    pub fn start(place: &ProcessPlace, programs: &Programs, task: Task) -> Result<Self, BenchError> {
        let mut both = vec!["--way".to_owned(), task.way.label().to_owned()];
        // Earlier versions do not know the option.
        if !task.busy_poll.is_zero() {
            both.extend(["--busy-poll".to_owned(), task.busy_poll.as_micros().to_string()]);
        }
        if task.way == ConnectWay::UdpCard {
            place.join(task.cable, task.clients)?;
            both.extend(["--cable".to_owned(), task.cable.0.to_string()]);
        }
        let work = ["--work".to_owned(), task.work.as_micros().to_string()];
        let (server, ready) = Process::start(
            place,
            &programs.server,
            (PeerEnd::Server, task.way),
            &[&both[..], &work].concat(),
        )?;
        let server_said = ["--server".to_owned(), ready.to_string()];
        let clients = ["--clients".to_owned(), task.clients.to_string()];
        let arguments = [&both[..], &server_said, &clients].concat();
        let (client, _) = Process::start(place, &programs.client, (PeerEnd::Client, task.way), &arguments)?;
        Ok(Self { client, server })
    }

    pub fn visits(&mut self, in_flight: usize, time: Duration, least: u64) -> Result<Visits, BenchError> {
        let before = self.server.usage()?;
        let command = json!({
            "do": "visits", "in_flight": in_flight, "ms": time.as_millis() as u64, "least": least,
        });
        let answer = self.client.ask(&command)?;
        let server = self.server.usage()?.since(&before);
        let client = Usage::read(&answer);
        let of = |name: &str| answer.get(name).and_then(Value::as_f64);
        let figures = (|| {
            Some(Visits {
                connections: of("connections")?,
                early: of("early")?,
                wall_us: of("wall_us")?,
                p50_us: of("p50_us")?,
                p99_us: of("p99_us")?,
                client: client?,
                server,
            })
        })();
        figures.ok_or_else(|| BenchError::Wrong(format!("no figures in {answer}")))
    }

    /// Opens connections `first` to `end`, which stay open.
    pub fn stay(&mut self, first: u32, end: u32) -> Result<(), BenchError> {
        let answer = self.client.ask(&json!({ "do": "stay", "first": first, "end": end }))?;
        match answer.get("held").and_then(Value::as_u64) {
            Some(held) if held == u64::from(end) => Ok(()),
            _ => Err(BenchError::Wrong(format!("not {end} idle connections: {answer}"))),
        }
    }

    /// Connects at a constant rate. Returns the client's answer.
    pub fn offer(&mut self, per_s: u64, time: Duration, patience: Duration) -> Result<Value, BenchError> {
        self.client.ask(&json!({
            "do": "offer", "per_s": per_s, "ms": time.as_millis() as u64, "patience_ms": patience.as_millis() as u64,
        }))
    }

    /// What both ends use: the client, the server.
    pub fn usage(&mut self) -> Result<[Usage; 2], BenchError> {
        Ok([self.client.usage()?, self.server.usage()?])
    }
}
