//! Two network namespaces, joined by a veth pair or by an emulated wire.

use super::LoadError;
use super::flood::KEY;
use crate::namespaces::{UnnamedNamespace, ip};
use firstflight_credential::CookieKey;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

/// The device at each end.
const DEVICE: &str = "load0";
/// The addresses, and the networks behind the server.
const CLIENT: &str = "10.77.0.1";
/// The first one of more addresses of the client, in its networks.
const SOURCE: u8 = 101;
pub const SERVER: &str = "10.77.0.2";
const BEHIND: &str = "10.78.0.0/16";
/// The networks of network cards begin so.
const CARDS: &str = "10.79";
/// The file with the servers' key, in the directory.
pub const KEY_FILE: &str = "keys";
/// The page of the paper, and a response that fits into one packet.
pub const FILES: [(&str, usize); 2] = [("page", 5 << 10), ("small", 300)];

/// A program that ends when this is dropped, or when this process ends.
#[derive(Debug)]
pub struct Program(pub Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both namespaces, the line between them, and a directory with the files.
#[derive(Debug)]
pub struct LoadSite {
    // Fields are dropped in order: the wire ends before its namespaces.
    _wire: Option<Program>,
    client: UnnamedNamespace,
    server: UnnamedNamespace,
    pub root: Root,
    /// Initial window of the servers, segments.
    pub initcwnd: Option<u32>,
    /// Addresses of the client.
    sources: u8,
    /// By how much the priority of a flood is lower.
    pub flood_nice: u8,
    /// The client's and the server's processors, if there are two.
    pub cores: Option<(usize, usize)>,
    /// Whether the server's processor handles the packets that arrive at the server.
    steered: bool,
}

/// What the report says of the site.
#[derive(Debug, Clone, Copy)]
pub struct SiteFacts {
    pub separate_cores: bool,
    pub steered: bool,
    /// For how much of the time the server's processor was busy without requests.
    pub background: Option<f64>,
    /// The same for all processors together: between 0 and their number.
    pub machine: Option<f64>,
}

/// A temporary directory.
#[derive(Debug)]
pub struct Root(pub PathBuf);

impl Root {
    fn new() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("firstflight-load-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        let root = Self(path);
        for (name, size) in FILES {
            fs::write(root.0.join(name), vec![b'x'; size])?;
        }
        let mut keys = fs::OpenOptions::new();
        let mut keys = keys.write(true).create_new(true).mode(0o600).open(root.0.join(KEY_FILE))?;
        keys.write_all(CookieKey::from_bytes(KEY).to_text().as_bytes())?;
        Ok(root)
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // What cannot be removed is a few files in the directory for temporary ones.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An end of the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadSide {
    Client,
    Server,
}

impl LoadSite {
    /// `lab` is this program, which is also the wire.
    pub fn new(lab: &Path, rtt: Duration, initcwnd: Option<u32>, sources: u8) -> Result<Self, LoadError> {
        let room =
            || UnnamedNamespace::new().map_err(LoadError::system("make a network namespace (needs root)"));
        let (client, server) = (room()?, room()?);
        let wire = match rtt.is_zero() {
            true => join(&client, &server).map(|()| None),
            false => wire(lab, &client, &server, rtt).map(Some),
        };
        let wire = wire.map_err(LoadError::system("join two network namespaces"))?;
        let behind = BEHIND.to_owned();
        let prepared = client
            .within(move || {
                up(CLIENT)?;
                more("10.77.0", sources, DEVICE)?;
                ip(&["route", "add", &behind, "via", SERVER])?;
                fs::write("/proc/sys/net/ipv4/tcp_fastopen", "1")?;
                // Connections a second times seconds until a port is free again.
                fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535")
            })
            .and_then(|()| server.within(move || prepare_server(initcwnd)));
        prepared.map_err(LoadError::system("prepare a network namespace"))?;
        let root = Root::new().map_err(LoadError::system("make a temporary directory"))?;
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let cores = (cpus > 1).then_some((0, cpus - 1));
        let mut site = Self {
            _wire: wire,
            client,
            server,
            root,
            initcwnd,
            sources,
            flood_nice: 19,
            cores,
            steered: false,
        };
        site.steered = site.steer().unwrap_or_default();
        Ok(site)
    }

    /// Joins both namespaces by another veth pair, with as many queues. Returns the name of its ends, and the server's address.
    pub fn card(&self, number: u8, queues: u32) -> Result<(String, String), LoadError> {
        let name = format!("card{number}");
        let [client, server] = [1, 2].map(|host| format!("{CARDS}.{number}.{host}"));
        let (other, queues, sources) = (path(&self.server), queues.to_string(), self.sources);
        let end = |at: &str, name: &str| {
            ip(&["addr", "add", &format!("{at}/24"), "dev", name])?;
            ip(&["link", "set", name, "up"])
        };
        let (near, at) = (name.clone(), server.clone());
        let joined = self.client.within(move || {
            let many = ["numtxqueues", &queues, "numrxqueues", &queues];
            let make =
                [&["link", "add", &near], &many[..], &["type", "veth", "peer", "name", &near]].concat();
            ip(&[&make, &many[..], &["netns", &other]].concat())?;
            end(&client, &near)?;
            more(&format!("{CARDS}.{number}"), sources, &near)
        });
        let far = name.clone();
        let joined = joined.and_then(|()| self.server.within(move || end(&at, &far)));
        joined.map_err(LoadError::system("make a veth pair for a server"))?;
        Ok((name, server))
    }

    /// The first of the client's addresses towards the server with this number, and how many there are. `None` is the usual one.
    pub fn sources(&self, number: u8, is_card: bool) -> Option<(String, u8)> {
        let network = if is_card { format!("{CARDS}.{number}") } else { "10.77.0".to_owned() };
        (self.sources > 1).then(|| (format!("{network}.{SOURCE}"), self.sources))
    }

    /// Lets the server with this number answer the forged addresses of its flood by the client's end of its line, where nobody has
    /// them.
    pub fn route_forged(&self, number: u8, is_card: bool) -> Result<(), LoadError> {
        let network = format!("{}/20", forged(number));
        let via = if is_card { format!("{CARDS}.{number}.1") } else { CLIENT.to_owned() };
        let routed = self.server.within(move || ip(&["route", "add", &network, "via", &via]));
        routed.map_err(LoadError::system("route forged addresses"))
    }

    /// A command in a namespace, on that side's processor. It is killed when this process ends.
    pub fn command(&self, side: LoadSide, program: &str) -> Command {
        self.command_on(side, program, self.cores)
    }

    /// The same with these processors of client and server; `None` leaves the choice to the kernel.
    pub fn command_on(&self, side: LoadSide, program: &str, cores: Option<(usize, usize)>) -> Command {
        let room = if side == LoadSide::Client { &self.client } else { &self.server };
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "nsenter", &format!("--net={}", path(room))]);
        if let Some((client, server)) = cores {
            let core = if side == LoadSide::Client { client } else { server };
            command.args(["taskset", "-c", &core.to_string()]);
        }
        command.arg(program);
        command
    }

    /// Lets the server's processor handle packets that arrive, instead of the sender's (receive packet steering).
    fn steer(&self) -> io::Result<bool> {
        let Some((_, server)) = self.cores else { return Ok(false) };
        let script = format!(
            "mount -t sysfs sysfs /sys && printf %x {} > /sys/class/net/{DEVICE}/queues/rx-0/rps_cpus",
            1_u128 << server
        );
        let mut command = self.command(LoadSide::Server, "unshare");
        Ok(command.args(["--mount", "sh", "-c", &script]).stderr(Stdio::null()).status()?.success())
    }

    /// Time for which the server's processor was busy since the machine started, µs.
    pub fn core_us(&self) -> Option<f64> {
        let (_, core) = self.cores?;
        busy_us(&fs::read_to_string("/proc/stat").ok()?, &format!("cpu{core}"), is_nice())
    }

    /// Looks at the processors for two seconds, in which nobody asks.
    pub fn facts(&self) -> Result<SiteFacts, LoadError> {
        let (core, machine) = (self.core_us(), machine_us());
        let time = Duration::from_secs(2);
        thread::sleep(time);
        let share = |before: Option<f64>, after: Option<f64>| {
            before.zip(after).map(|(before, after)| (after - before) / time.as_micros() as f64)
        };
        Ok(SiteFacts {
            separate_cores: self.cores.is_some(),
            steered: self.steered,
            background: share(core, self.core_us()),
            machine: share(machine, machine_us()),
        })
    }
}

/// The first of the forged addresses of a flood at the server with this number.
pub fn forged(number: u8) -> String {
    format!("10.80.{}.0", u32::from(number) * 16)
}

/// Gives the client's end of a line its further addresses.
fn more(network: &str, sources: u8, device: &str) -> io::Result<()> {
    let mut hosts = (SOURCE..).take(if sources > 1 { sources.into() } else { 0 });
    hosts.try_for_each(|host| ip(&["addr", "add", &format!("{network}.{host}/24"), "dev", device]))
}

/// Time for which all processors together were busy since the machine started, µs.
pub fn machine_us() -> Option<f64> {
    busy_us(&fs::read_to_string("/proc/stat").ok()?, "cpu", is_nice())
}

fn path(room: &UnnamedNamespace) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), room.0.as_raw_fd())
}

fn join(client: &UnnamedNamespace, server: &UnnamedNamespace) -> io::Result<()> {
    let other = path(server);
    client
        .within(move || ip(&["link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", &other]))
}

/// An emulated wire, which is ready.
fn wire(
    lab: &Path,
    client: &UnnamedNamespace,
    server: &UnnamedNamespace,
    rtt: Duration,
) -> io::Result<Program> {
    let end = |room| format!("{}:{DEVICE}", path(room));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(lab).arg("wire");
    command.args(["--a", &end(client), "--b", &end(server)]);
    command.args(["--rtt", &humantime::format_duration(rtt).to_string()]);
    let mut program = Program(command.stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    if let Some(out) = program.0.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    match line.starts_with("ready") {
        true => Ok(program),
        false => Err(io::Error::other("the wire did not start")),
    }
}

fn up(address: &str) -> io::Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["addr", "add", &format!("{address}/24"), "dev", DEVICE])?;
    ip(&["link", "set", DEVICE, "up"])
}

fn prepare_server(initcwnd: Option<u32>) -> io::Result<()> {
    up(SERVER)?;
    fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3")?;
    fs::write("/proc/sys/net/ipv4/tcp_fastopen_key", CookieKey::from_bytes(KEY).to_text().as_str())?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    if let Some(segments) = initcwnd {
        let route = [&format!("{CLIENT}/32"), "dev", DEVICE, "initcwnd", &segments.to_string()];
        ip(&[&["route", "replace"], &route[..]].concat())?;
    }
    Ok(())
}

/// The unit of /proc/stat (`USER_HZ`), on every machine that Rust runs on.
const TICKS_PER_S: f64 = 100.0;

/// The busy time of a processor in /proc/stat, or of all together (`cpu`), µs: all but idle and waiting for a disk, and without what a hypervisor
/// took. The time of processes with a low priority counts if the servers have one, too.
fn busy_us(stat: &str, name: &str, with_nice: bool) -> Option<f64> {
    let line = stat.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    let ticks: Vec<f64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _wait, irq, softirq, ..] = ticks.as_slice() else { return None };
    let nice = if with_nice { *nice } else { 0.0 };
    Some((user + nice + system + irq + softirq) * 1e6 / TICKS_PER_S)
}

/// Whether this process, and so the servers, have a low priority.
fn is_nice() -> bool {
    // The name in parentheses may have spaces. The state behind it is the third field, the nice value the nineteenth.
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    behind.split_whitespace().nth(16).and_then(|nice| nice.parse::<i32>().ok()).is_some_and(|nice| nice > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_line_is_read() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 40 50 6 7 8 0 0\ncpu1 0 0 0 1 1 0 0 0 0 0\n";
        let busy = |name, nice| busy_us(stat, name, nice);
        assert_eq!(busy("cpu0", true), Some(19.0 * 10_000.0));
        assert_eq!(busy("cpu0", false), Some(17.0 * 10_000.0));
        assert_eq!((busy("cpu1", true), busy("cpu2", true)), (Some(0.0), None));
        assert_eq!(busy("cpu", true), Some(45.0 * 10_000.0));
    }
}
