//! `firstflight dns`: an authoritative name server that accepts first flights.

mod error;
mod file;
mod forward;
mod keygen;
mod names;

pub use error::DnsError;
pub use forward::Forward;
pub use names::{DnsPathArgs, name, zone_files};

use crate::error::{Error, Renamed};
use crate::life::Metrics;
use crate::output;
use clap::Subcommand;
use firstflight_daemon::{Hangup, Signals, become_user};
use firstflight_dns::Name;
use firstflight_dns::front::{Kind, Nearest, Policy, RoundRobin};
use firstflight_dns::metrics::{Publisher, describe};
use firstflight_dns::service::{
    DnsPathSettings, FollowedZones, FrontSettings, OpenFront, RelayTo, Servers, SetUpError, Sockets,
};
use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run an authoritative name server that also takes first flights inside DNS lookups (ASAP)
///
/// Answers from zone files over UDP and TCP. Names below the DNS-path zone are parts of first flights: they are
/// answered at once, reassembled, opened and relayed to a server. Zone files and key files are read again when they
/// change. On SIGHUP the zone files are read at once; a change in the file of --config needs a restart, and is told. SIGINT and
/// SIGTERM end it.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    mut_arg("dns_path_zone", |zone| zone.requires_all(["dns_path_address", "key_file", "relay", "state"])),
    mut_arg("forward_listen", |listen| listen.requires("state")),
    after_help = "\
Examples:
  firstflight dns --zone xyz.zone --origin xyz.com --listen 192.0.2.53:53 --user nobody
  firstflight dns keygen -o dns-path.key
  firstflight dns keygen --relay -o www.relay
  firstflight dns --zone f.zone --origin f.xyz.com --listen 192.0.2.53:53 --dns-path-zone f.xyz.com \\
      --dns-path-address 192.0.2.80 --key-file dns-path.key --relay 192.0.2.80:4454=www.relay --state front.boot
  firstflight dns check dns.toml && firstflight dns --config dns.toml"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Read the settings from this file, in TOML: the names of the options with _ in place of -, as
    /// listen = ["192.0.2.53:53"] and zone = ["xyz.zone"]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Run", "DnsPathArgs", "Forward", "Metrics"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    run: Option<Run>,
    // These are not in `Run`, because clap does not find optional arguments that contain other arguments.
    #[command(flatten)]
    dns_path: DnsPathArgs,
    #[command(flatten)]
    forward: Forward,
    #[command(flatten)]
    metrics: Metrics,
}

#[derive(Subcommand)]
enum Command {
    Keygen(keygen::Args),
    Check(Check),
}

/// Read a file for --config as the start does, and say what is wrong
///
/// It reads the zone files and the keys, too. It needs no port, and the file of starts may be in use, so it runs beside a name server
/// in service. Exit codes: 0 all is right, 1 something failed that may be otherwise in a minute, 2 a name server would not start.
#[derive(clap::Args)]
struct Check {
    /// The file, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// What the options or a file say.
#[derive(PartialEq, Eq)]
struct Settings {
    run: Run,
    dns_path: DnsPathArgs,
    forward: Forward,
    metrics: Metrics,
}

#[derive(PartialEq, Eq, clap::Args)]
struct Run {
    /// Zone file (RFC 1035); may be repeated. Read again when it changes, and on SIGHUP
    #[arg(long, value_name = "FILE")]
    zone: Vec<PathBuf>,
    /// Name that the zone begins at; one for each --zone, in the same order
    #[arg(long, value_name = "NAME", value_parser = name)]
    origin: Vec<Name>,
    /// Address and port to listen on, over UDP and TCP
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "config")]
    listen: Vec<SocketAddr>,
    /// File of the key that first flights are sealed to (dns keygen -o makes one)
    #[arg(long, value_name = "FILE", requires = "dns_path_zone")]
    key_file: Option<PathBuf>,
    /// What --key-file was
    #[arg(long, value_name = "FILE", hide = true)]
    key: Option<PathBuf>,
    /// Server that gets first flights, and the file of the key that it shares with this front
    #[arg(long, value_name = "ADDR:PORT=FILE", value_parser = relay_to, requires = "dns_path_zone")]
    relay: Vec<RelayTo>,
    /// File that records when this front was last started; created if it does not exist
    #[arg(long, value_name = "FILE", requires = "dns_path_zone")]
    state: Option<PathBuf>,
    /// Number of this name server among those that have the same relay key, or serve the same DNS-path zone
    #[arg(long, value_name = "N", default_value_t = 0, requires = "dns_path_zone")]
    front_id: u16,
    /// Table of prefixes and servers, as `192.0.2.0/24 192.0.2.80:4454`: the first flights of a prefix go to its
    /// server
    #[arg(long, value_name = "FILE", requires = "dns_path_zone")]
    nearest: Option<PathBuf>,
    /// Become this user once the ports are held; files are read afterwards
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

/// A server that gets first flights, and the file of its key.
fn relay_to(text: &str) -> Result<RelayTo, &'static str> {
    let says = "write a server and its key file as 192.0.2.80:4454=FILE";
    let (address, path) = text.split_once('=').filter(|(_, path)| !path.is_empty()).ok_or(says)?;
    let address: SocketAddr = address.parse().map_err(|_| says)?;
    if address.port() == 0 { Err(says) } else { Ok(RelayTo { address, key: path.into() }) }
}

/// Reads the zone files again on each SIGHUP.
pub async fn read_again_on(mut hangup: Hangup, zones: FollowedZones) {
    loop {
        hangup.asked().await;
        zones.read_again();
    }
}

/// Runs the command.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    match (args.command, args.run) {
        (Some(Command::Keygen(args)), _) => {
            keygen::run(&args).map_err(Error::from)?;
            Ok(ExitCode::SUCCESS)
        }
        (Some(Command::Check(Check { file })), _) => {
            file::read(&file)?.front()?.check().map_err(DnsError::from)?;
            output::line(&format_args!("{} is right", file.display()));
            Ok(ExitCode::SUCCESS)
        }
        (None, _) if let Some(path) = args.config => serve(file::read(&path)?, Some(path)).await,
        (None, Some(run)) => {
            if run.key.is_some() {
                return Err(DnsError::from(Renamed("--key", "--key-file")).into());
            }
            let (dns_path, forward, metrics) = (args.dns_path, args.forward, args.metrics);
            serve(Settings { run, dns_path, forward, metrics }, None).await
        }
        (None, None) => Err(DnsError::Nothing.into()),
    }
}

impl Run {
    fn policy(&self) -> Result<Box<dyn Policy>, DnsError> {
        /// Longest table, bytes.
        const LARGEST: u64 = 1 << 24;
        let Some(path) = &self.nearest else { return Ok(Box::new(RoundRobin::default())) };
        let mut text = String::new();
        let file = std::fs::File::open(path);
        let read = file.and_then(|file| file.take(LARGEST).read_to_string(&mut text));
        read.map_err(|error| DnsError::ReadNearest(path.clone(), error))?;
        let servers: Vec<SocketAddr> = self.relay.iter().map(|relay| relay.address).collect();
        let table = Nearest::parse(&text, &servers);
        Ok(Box::new(table.map_err(|error| DnsError::Nearest(path.clone(), error))?))
    }
}

impl Settings {
    /// What they ask for.
    fn front(&self) -> Result<FrontSettings, DnsError> {
        let Self { run, dns_path, forward, .. } = self;
        if run.zone.is_empty() && run.origin.is_empty() && dns_path.dns_path_zone.is_none() {
            return Err(DnsError::Nothing);
        }
        let zones = zone_files(&run.zone, &run.origin, ("zone", "origin"))?;
        let mut settings = dns_path.front(&run.listen, zones);
        if let (Some(zone), Some(key)) = (&dns_path.dns_path_zone, &run.key_file) {
            let servers = Servers { servers: run.relay.clone(), policy: run.policy()? };
            settings.dns_path = Some(DnsPathSettings {
                servers: Some(servers),
                others: forward.others(),
                front_id: run.front_id,
                state: run.state.clone(),
                ..dns_path.carry(zone, key)
            });
        }
        Ok(settings)
    }
}

/// Says on each SIGHUP if the file of the settings asks for something else than `began`.
async fn look_again_on(mut hangup: Hangup, path: PathBuf, began: Settings) {
    loop {
        hangup.asked().await;
        match file::read(&path) {
            Ok(now) if now == began => {}
            Ok(_) => tracing::warn!("{}: what has changed needs a restart", path.display()),
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

/// `path` is that of the settings, if they are from a file.
async fn serve(began: Settings, path: Option<PathBuf>) -> Result<ExitCode, Error> {
    let (mut signals, hangup) =
        (Signals::new().map_err(Error::Runtime)?, Hangup::new().map_err(Error::Runtime)?);
    let settings = began.front()?;
    let sockets = settings.ports().bind().await.map_err(DnsError::from)?;
    let life = began.metrics.start(describe).await;
    if let Some(user) = &began.run.user {
        become_user(user).map_err(DnsError::User)?;
    }
    // Files that can be read now can be read again while the server runs.
    let front = settings.open().map_err(DnsError::from)?;
    let says = lines(&front, &sockets, "");
    let front = front.relay(sockets).await.map_err(SetUpError::from).map_err(DnsError::from)?;
    let handle = front.handle();
    let again = tokio::spawn(read_again_on(hangup, front.zones()));
    let look = match path {
        Some(path) => Some(tokio::spawn(look_again_on(Hangup::new().map_err(Error::Runtime)?, path, began))),
        None => None,
    };
    let mut publisher = Publisher::new(handle.clone());
    life.serving(move || publisher.publish());
    // A program that reads these lines can use everything from now on.
    says.iter().for_each(|line| output::line(line));
    let end = async {
        signals.end().await;
        life.stopping();
    };
    front.run(|line| output::line(&line), end).await;
    again.abort();
    look.inspect(tokio::task::JoinHandle::abort);
    let (counts, table) = handle.counters();
    output::line(&format_args!(
        "answers: {} ({} to fragments); first flights: {} put together, {} relayed",
        counts.answers_in_all(),
        counts.answers(Kind::Fragment),
        table.completed,
        counts.relayed
    ));
    Ok(ExitCode::SUCCESS)
}

/// The lines that say where a front listens, `what` for, and which DNS-path zone it has.
pub fn lines(front: &OpenFront, sockets: &Sockets, what: &str) -> Vec<String> {
    let listening = sockets.addresses().into_iter().map(|at| format!("listening on {at}{what}"));
    let fronts =
        sockets.for_fronts().map(|at| format!("listening on {at} for the zone's other name servers"));
    listening.chain(front.dns_path().map(str::to_owned)).chain(fronts).collect()
}
