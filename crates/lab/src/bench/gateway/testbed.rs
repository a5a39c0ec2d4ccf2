//! A network namespace with a backend and the proxies. All of it goes when this is dropped.

use super::{BenchError, ClientWay, FILES, GatewayCase, Proxy, Sample, load};
use crate::namespaces::{UnnamedNamespace, ip};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::env;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const BACKEND: u16 = 8000;
/// How long a program may take until it listens.
const START: Duration = Duration::from_secs(20);
/// Connections to the backend that a proxy keeps: all streams of HTTP/2 have one each.
const POOL: usize = 512;

/// A program that ends when this is dropped, or when this process ends.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A temporary directory.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed is a few files in the directory for temporary ones.
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) struct GatewayTestbed {
    // Fields are dropped in order: the programs end before their files.
    proxies: Vec<(Proxy, Program)>,
    _backend: Program,
    room: UnnamedNamespace,
    directory: Directory,
    cores: Option<(usize, usize)>,
}

fn port(proxy: Proxy, way: ClientWay) -> u16 {
    let first = match proxy {
        Proxy::Gateway => 8010,
        Proxy::Haproxy => 8020,
        Proxy::Nginx => 8030,
    };
    // HAProxy and nginx have a port for each protocol.
    if way == ClientWay::Streams { first + 1 } else { first }
}

fn is_installed(program: &str) -> bool {
    let quiet = || Stdio::null();
    Command::new(program).arg("-v").stdout(quiet()).stderr(quiet()).stdin(quiet()).status().is_ok()
}

impl GatewayTestbed {
    pub(super) fn make(bin: Option<&Path>) -> Result<Self, BenchError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(BenchError::Needs("root: it makes a network namespace"));
        }
        for (program, needs) in [("nginx", "nginx"), ("wrk", "wrk"), ("h2load", "h2load (nghttp2-client)")] {
            if !is_installed(program) {
                return Err(BenchError::Needs(needs));
            }
        }
        let lab = env::current_exe().map_err(|error| BenchError::refused("this program", error))?;
        let bin = bin.map_or_else(|| lab.with_file_name("firstflight"), Path::to_owned);
        if !bin.is_file() {
            return Err(BenchError::Needs("the firstflight command beside this one, or --bin"));
        }
        let wrong = |what| move |error: std::io::Error| BenchError::refused(what, error);
        let room = UnnamedNamespace::new().map_err(wrong("a network namespace"))?;
        let prepared = room.within(|| {
            ip(&["link", "set", "lo", "up"])?;
            // Thousands of connections a second: ports are used again.
            fs::write("/proc/sys/net/ipv4/ip_local_port_range", "10000 65535")?;
            fs::write("/proc/sys/net/ipv4/tcp_tw_reuse", "1")
        });
        prepared.map_err(wrong("the network namespace"))?;
        let directory =
            Directory(env::temp_dir().join(format!("firstflight-gateway-{}", std::process::id())));
        fs::create_dir_all(&directory.0).map_err(wrong("a temporary directory"))?;
        for (name, length) in FILES {
            fs::write(directory.0.join(name), vec![b'x'; length]).map_err(wrong("a file"))?;
        }
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let cores = (cpus > 1).then_some((0, cpus - 1));
        let backend = backend(&room, &directory, cores)?;
        let mut place = Self { proxies: Vec::new(), _backend: backend, room, directory, cores };
        place.wait(BACKEND)?;
        for proxy in Proxy::ALL {
            let command = match proxy {
                Proxy::Gateway => place.gateway(&bin)?,
                Proxy::Haproxy if is_installed("haproxy") => place.haproxy()?,
                Proxy::Haproxy => continue,
                Proxy::Nginx => place.nginx()?,
            };
            place.proxies.push((proxy, start(command)?));
            place.wait(port(proxy, ClientWay::Kept))?;
            place.wait(port(proxy, ClientWay::Streams))?;
        }
        Ok(place)
    }

    pub(super) fn has(&self, proxy: Proxy) -> bool {
        self.proxies.iter().any(|(one, _)| *one == proxy)
    }

    /// Whether the proxy has a processor of its own.
    pub(super) const fn cores(&self) -> bool {
        self.cores.is_some()
    }

    /// Writes a file of settings. Returns its path.
    fn write(&self, name: &str, text: &str) -> Result<String, BenchError> {
        let path = self.directory.0.join(name);
        let shown = path.display().to_string();
        fs::write(&path, text).map_err(|error| BenchError::File(shown.clone(), error))?;
        Ok(shown)
    }

    fn proxy_command(&self, program: &str) -> Command {
        wrap(&self.room, self.cores.map(|(_, proxy)| proxy), program)
    }

    fn gateway(&self, bin: &Path) -> Result<Command, BenchError> {
        let mut text = "[gateway]\nlog = \"off\"\nthreads = 1\n".to_owned();
        for way in [ClientWay::Kept, ClientWay::Streams] {
            let port = port(Proxy::Gateway, way);
            text += &format!(
                "[[listener]]\nname = \"l{port}\"\naddress = [\"127.0.0.1:{port}\"]\nmode = \"http\"\nservice = \"app\"\n\
                 udp_port = 0\n"
            );
        }
        text += &format!("[[service]]\nname = \"app\"\nbackend = [\"127.0.0.1:{BACKEND}\"]\npool = {POOL}\n");
        let path = self.write("gateway.toml", &text)?;
        let mut command = self.proxy_command(&bin.display().to_string());
        command.args(["gateway", &path]);
        Ok(command)
    }

    fn haproxy(&self) -> Result<Command, BenchError> {
        let (plain, streams) =
            (port(Proxy::Haproxy, ClientWay::Kept), port(Proxy::Haproxy, ClientWay::Streams));
        let path = self.write(
            "haproxy.cfg",
            &format!(
                "global\n nbthread 1\n maxconn 4000\ndefaults\n mode http\n timeout client 60s\n timeout server 60s\n \
                 timeout connect 5s\n option forwardfor\n http-reuse safe\nfrontend plain\n bind 127.0.0.1:{plain}\n \
                 default_backend app\nfrontend streams\n bind 127.0.0.1:{streams} proto h2\n default_backend app\nbackend app\n \
                 server one 127.0.0.1:{BACKEND} pool-max-conn {POOL}\n"
            ),
        )?;
        let mut command = self.proxy_command("haproxy");
        command.args(["-db", "-f", &path]);
        Ok(command)
    }

    fn nginx(&self) -> Result<Command, BenchError> {
        let (plain, streams) = (port(Proxy::Nginx, ClientWay::Kept), port(Proxy::Nginx, ClientWay::Streams));
        let servers = format!(
            "upstream app {{ server 127.0.0.1:{BACKEND}; keepalive {POOL}; keepalive_requests 1000000000; }}\nserver {{ listen \
             127.0.0.1:{plain} backlog=4096; listen 127.0.0.1:{streams} http2 backlog=4096; http2_max_concurrent_streams 128; \
             location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_set_header \
             X-Forwarded-For $proxy_add_x_forwarded_for; }} }}"
        );
        let path = self.write("nginx-proxy.conf", &nginx_file(&self.directory.0, "proxy", &servers))?;
        let mut command = self.proxy_command("nginx");
        command.args(["-e", "stderr", "-p"]).arg(&self.directory.0).args(["-c", &path]);
        Ok(command)
    }

    /// Waits until a process listens.
    fn wait(&mut self, port: u16) -> Result<(), BenchError> {
        let since = Instant::now();
        loop {
            let at = SocketAddr::from(([127, 0, 0, 1], port));
            if self.room.within(move || TcpStream::connect(at)).is_ok() {
                return Ok(());
            }
            for (proxy, program) in &mut self.proxies {
                if let Ok(Some(status)) = program.0.try_wait() {
                    return Err(BenchError::Wrong(format!("{} ended: {status}", proxy.name())));
                }
            }
            if since.elapsed() > START {
                return Err(BenchError::Wrong(format!("nobody listens on port {port}")));
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks a proxy for `time`.
    pub(super) fn measure(
        &self,
        proxy: Proxy,
        case: GatewayCase,
        time: Duration,
    ) -> Result<Sample, BenchError> {
        let url = format!("http://127.0.0.1:{}/{}", port(proxy, case.way), case.file);
        let client = self.cores.map(|(client, _)| client);
        let mut command = load::command(|program| wrap(&self.room, client, program), case.way, &url, time);
        let before = self.cpu(proxy)?;
        let out = command.output().map_err(|error| BenchError::refused("the clients", error))?;
        let cpu = (self.cpu(proxy)? - before).as_secs_f64();
        let said = String::from_utf8_lossy(&out.stdout);
        if !out.status.success() {
            return Err(BenchError::Wrong(format!("the clients of {}: {}", proxy.name(), said.trim())));
        }
        let (requests, seconds) = load::read(case.way, &said)?;
        Ok(Sample { requests, seconds, cpu })
    }

    /// User and system time of a proxy's process.
    fn cpu(&self, proxy: Proxy) -> Result<Duration, BenchError> {
        let program = self.proxies.iter().find(|(one, _)| *one == proxy).map(|(_, program)| program.0.id());
        let pid = program.ok_or_else(|| BenchError::Wrong(format!("no {}", proxy.name())))?;
        let pid = Pid::from_raw(i32::try_from(pid).unwrap_or_default());
        let now = ClockId::pid_cpu_clock_id(pid).and_then(|clock| clock.now());
        now.map(Duration::from).map_err(BenchError::Clock)
    }
}

/// A command in the namespace, on this processor. It is killed when this process ends.
fn wrap(room: &UnnamedNamespace, core: Option<usize>, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    let net = format!("--net=/proc/{}/fd/{}", std::process::id(), room.0.as_raw_fd());
    command.args(["--pdeathsig", "KILL", "nsenter", &net]);
    if let Some(core) = core {
        command.args(["taskset", "-c", &core.to_string()]);
    }
    command.arg(program).stdin(Stdio::null());
    command
}

fn start(mut command: Command) -> Result<Program, BenchError> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(Program).map_err(|error| BenchError::refused("a program", error))
}

fn backend(
    room: &UnnamedNamespace,
    directory: &Directory,
    cores: Option<(usize, usize)>,
) -> Result<Program, BenchError> {
    let root = directory.0.display();
    let server = format!("server {{ listen 127.0.0.1:{BACKEND} backlog=4096; root {root}; }}");
    let path = directory.0.join("nginx-backend.conf");
    let shown = path.display().to_string();
    fs::write(&path, nginx_file(&directory.0, "backend", &server))
        .map_err(|error| BenchError::File(shown.clone(), error))?;
    let mut command = wrap(room, cores.map(|(client, _)| client), "nginx");
    command.args(["-e", "stderr", "-p"]).arg(&directory.0).args(["-c", &shown]);
    start(command)
}

/// nginx's configuration: one process, no log, connections that are kept without a limit.
fn nginx_file(directory: &Path, name: &str, servers: &str) -> String {
    let root = directory.display();
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let places: String = kinds.map(|kind| format!("{kind}_temp_path {root}/{name}-{kind};\n")).concat();
    format!(
        "user root; daemon off; master_process off; pid {root}/{name}.pid; error_log stderr crit;\nevents {{ worker_connections \
         8192; }}\nhttp {{ access_log off; sendfile on; tcp_nodelay on; open_file_cache max=10;\nkeepalive_requests 1000000000; \
         keepalive_timeout 600s;\n{places}{servers} }}\n"
    )
}
