//! The servers, and their CPU time.

use super::client::ClientView;
use super::flood::{self, Flood};
use super::site::{self, FILES, LoadSide, LoadSite, Program, SERVER, SiteFacts, machine_us};
use super::{BESIDE, Kind, LoadError, Mode, Sample};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to start.
const START: Duration = Duration::from_secs(20);
/// First flights that may wait for their client's ACK, and connections that may wait to be accepted.
const PENDING: u32 = 1024;

/// A server. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    program: Program,
    at: SocketAddr,
    pub kind: Kind,
    pub fast_open: bool,
    number: u8,
}

/// Whether nginx is installed.
pub fn has_nginx() -> bool {
    Command::new("nginx")
        .arg("-v")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

impl Server {
    /// Starts the server with this number, and waits until it answers.
    pub fn start(
        site: &LoadSite,
        (lab, bin): (&Path, &Path),
        kind: Kind,
        fast_open: bool,
        number: u8,
    ) -> Result<Self, LoadError> {
        let port = 8000 + u16::from(number);
        let behind = format!("10.78.{number}");
        let root = site.root.0.display().to_string();
        let (address, mut command) = match kind {
            Kind::Nginx => {
                let file =
                    nginx_file(site, fast_open, port).map_err(LoadError::system("write nginx.conf"))?;
                let mut command = site.command(LoadSide::Server, "nginx");
                command.args(["-p", &root, "-e", "stderr", "-c", &file]);
                (format!("{SERVER}:{port}"), command)
            }
            Kind::Serve | Kind::ServeTun | Kind::ServeXdp | Kind::ServeXdpTwo => {
                let (ip, device) = match kind.queues() {
                    Some(queues) => {
                        let (name, ip) = site.card(number, queues)?;
                        (ip, Some(Device::Card { name, queues }))
                    }
                    None if kind == Kind::ServeTun => {
                        let (name, host) = (format!("ff{number}"), format!("{behind}.1/24"));
                        (format!("{behind}.2"), Some(Device::Tun { name, host }))
                    }
                    None => (SERVER.to_owned(), None),
                };
                let at = format!("{ip}:{port}");
                let file = format!("{root}/gateway-{port}.toml");
                let text = gateway_file(&root, &at, fast_open, device.as_ref(), site.initcwnd);
                fs::write(&file, text).map_err(LoadError::system("write gateway.toml"))?;
                let cores = site.cores.filter(|_| kind.queues() != Some(2));
                let mut command = site.command_on(LoadSide::Server, &bin.display().to_string(), cores);
                command.args(["gateway", &file]);
                (at, command)
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let program = Program(command.spawn().map_err(LoadError::system("start a server"))?);
        let at = address.parse().map_err(|_| LoadError::Wrong(format!("no address: {address}")))?;
        site.route_forged(number, kind.queues().is_some())?;
        let mut server = Self { program, at, kind, fast_open, number };
        server.wait(site, lab)?;
        Ok(server)
    }

    /// Waits until the server answers.
    fn wait(&mut self, site: &LoadSite, lab: &Path) -> Result<(), LoadError> {
        let since = Instant::now();
        loop {
            if let Ok(Some(status)) = self.program.0.try_wait() {
                return Err(LoadError::Wrong(format!("{} ended: {status}", self.kind.name())));
            }
            let mut ask = self.client(site, lab, Mode::Closed(1), Duration::ZERO);
            if ask.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
                return Ok(());
            }
            if since.elapsed() > START {
                return Err(LoadError::Wrong(format!("{} does not answer at {}", self.kind.name(), self.at)));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.program.0.id()
    }

    /// Starts a client that asks for `time`.
    pub fn client(&self, site: &LoadSite, lab: &Path, mode: Mode, time: Duration) -> Command {
        let mut command = site.command(LoadSide::Client, &lab.display().to_string());
        command.args(["load-client", "--at", &self.at.to_string(), "--ms", &time.as_millis().to_string()]);
        let [page, small] = FILES;
        match mode {
            Mode::Closed(in_flight) => {
                command.args(["--file", small.0, "--in-flight", &in_flight.to_string()])
            }
            Mode::Open(rate) => command.args(["--file", page.0, "--rate", &rate.to_string()]),
            Mode::Flooded(_) => command.args(["--file", small.0, "--rate", &BESIDE.to_string()]),
        };
        if self.fast_open {
            command.arg("--fast-open");
        }
        if let Some((first, count)) = site.sources(self.number, self.kind.queues().is_some()) {
            command.args(["--from", &first, "--sources", &count.to_string()]);
        }
        command
    }

    /// Asks for `time`. Returns what the client saw.
    pub fn ask(
        &self,
        site: &LoadSite,
        lab: &Path,
        mode: Mode,
        time: Duration,
    ) -> Result<ClientView, LoadError> {
        let out = self.client(site, lab, mode, time).stderr(Stdio::inherit()).output();
        let out = out.map_err(LoadError::system("start a client"))?;
        let seen = serde_json::from_slice(&out.stdout).ok().and_then(|value| ClientView::read(&value));
        seen.ok_or_else(|| {
            LoadError::Wrong(format!("the client of {} ended: {}", self.kind.name(), out.status))
        })
    }

    /// Measures for `time`.
    pub fn measure(
        &self,
        site: &LoadSite,
        lab: &Path,
        facts: &SiteFacts,
        mode: Mode,
        time: Duration,
    ) -> Result<Sample, LoadError> {
        let busy = || (site.core_us(), machine_us());
        let (before, (core_before, machine_before)) = (self.cpu()?, busy());
        let since = Instant::now();
        let flood = match mode {
            Mode::Flooded(kind) if kind != Flood::Nothing => Some(self.flood(site, lab, kind, time)?),
            _ => None,
        };
        let seen = self.ask(site, lab, mode, time)?;
        let flood_per_s = flood.map(Self::flooded).transpose()?;
        let (after, (core_after, machine_after)) = (self.cpu()?, busy());
        let took_us = since.elapsed().as_secs_f64() * 1e6;
        let process_us = (after.saturating_sub(before)).as_secs_f64() * 1e6;
        let machine = facts.machine.map(|idle| idle * took_us);
        Ok(Sample {
            seen,
            process_us,
            core_us: busy_for(core_before, core_after, Some(0.0)),
            machine_us: busy_for(machine_before, machine_after, machine),
            flood_per_s,
        })
    }

    /// Starts a flood that goes on for `time`. It has the client's processor, with a low priority, so that the honest client does
    /// not wait for it.
    fn flood(&self, site: &LoadSite, lab: &Path, kind: Flood, time: Duration) -> Result<Child, LoadError> {
        let mut command = site.command(LoadSide::Client, "nice");
        command.args(["-n", &site.flood_nice.to_string()]).arg(lab).args([
            "load-flood",
            "--at",
            &self.at.to_string(),
        ]);
        command.args(["--kind", kind.name(), "--from", &site::forged(self.number)]);
        command.args(["--ms", &time.as_millis().to_string()]);
        command.stdout(Stdio::piped()).spawn().map_err(LoadError::system("start a flood"))
    }

    /// Packets a second of a flood that ends.
    fn flooded(flood: Child) -> Result<f64, LoadError> {
        let out = flood.wait_with_output().map_err(LoadError::system("wait for a flood"))?;
        flood::read(&out.stdout).ok_or_else(|| LoadError::Wrong(format!("the flood ended: {}", out.status)))
    }

    /// CPU time of the server's process, threads that have ended included.
    fn cpu(&self) -> Result<Duration, LoadError> {
        let read = || {
            let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(self.pid() as i32))?;
            Ok::<_, nix::Error>(Duration::from(clock.now()?))
        };
        read().map_err(|error| LoadError::System("read a server's CPU time", error.into()))
    }
}

/// How long processors were busy between two looks, less `other` work, µs. `None` when it was less than that: then the
/// machine's other work was not even, and nothing is known of the load's part.
fn busy_for(before: Option<f64>, after: Option<f64>, other: Option<f64>) -> Option<f64> {
    let busy = after? - before? - other?;
    (busy >= 0.0).then_some(busy)
}

/// nginx's configuration: one process, no log.
fn nginx_file(site: &LoadSite, fast_open: bool, port: u16) -> io::Result<String> {
    let root = site.root.0.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let places: String = kinds.map(|kind| format!("{kind}_temp_path {root}/{kind};\n")).concat();
    let fast_open = if fast_open { format!("fastopen={PENDING}") } else { String::new() };
    let text = format!(
        "daemon off; master_process off; pid {root}/nginx-{port}.pid; error_log stderr crit;\nevents {{ \
         worker_connections 8192; }}\nhttp {{ access_log off; \
         open_file_cache max=1024;\n{places}server {{ listen {SERVER}:{port} {fast_open} \
         backlog=4096; root {root}; }} }}\n"
    );
    let path = format!("{root}/nginx-{port}.conf");
    fs::write(&path, text)?;
    Ok(path)
}

/// A device with an engine.
enum Device {
    /// With the kernel's address on it, and its prefix.
    Tun { name: String, host: String },
    /// With as many threads as queues.
    Card { name: String, queues: u32 },
}

/// The gateway's configuration: a thread for each queue, no log, and no limit for a client, because the load has one address.
fn gateway_file(
    root: &str,
    at: &str,
    fast_open: bool,
    device: Option<&Device>,
    initial_window: Option<u32>,
) -> String {
    let first_flights = match fast_open {
        true => format!("pending = {PENDING}\nkey_file = \"{root}/{}\"", site::KEY_FILE),
        false => "fast_open = false".to_owned(),
    };
    let (ip, port) = at.rsplit_once(':').unwrap_or_default();
    let sockets = match device {
        Some(_) => String::new(),
        None => format!("address = [\"{at}\"]\nudp_port = 0\n"),
    };
    let engine = device.map_or_else(String::new, |device| {
        let per_client = if fast_open { format!("pending_per_client = {PENDING}\n") } else { String::new() };
        let window = initial_window.map_or_else(String::new, |n| format!("initial_window = {n}\n"));
        let (table, name, more) = match device {
            Device::Tun { name, host } => ("tun", name, format!("host = [\"{host}\"]")),
            Device::Card { name, .. } => ("xdp", name, "allow = [\"any\"]".to_owned()),
        };
        format!(
            "[listener.{table}]\ndevice = \"{name}\"\n{more}\naddress = [\"{ip}\"]\nport = {port}\n\
             [listener.engine]\n{per_client}{window}"
        )
    });
    let threads = match device {
        Some(Device::Card { queues, .. }) => *queues,
        _ => 1,
    };
    format!(
        "[gateway]\nlog = \"off\"\nthreads = {threads}\n\n[[listener]]\nname = \"web\"\n{sockets}mode = \"http\"\n\
         service = \"site\"\n{first_flights}\nmax_requests_per_client = 0\n{engine}\n\
         [[service]]\nname = \"site\"\nroot = {root:?}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_negative() {
        assert_eq!(busy_for(Some(100.0), Some(150.0), Some(20.0)), Some(30.0));
        assert_eq!(busy_for(Some(100.0), Some(150.0), Some(60.0)), None);
        assert_eq!(busy_for(Some(100.0), Some(90.0), Some(0.0)), None);
        assert_eq!(busy_for(Some(100.0), Some(150.0), None), None);
    }
}
