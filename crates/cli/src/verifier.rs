//! `firstflight verifier`: certifies that clients are at their addresses.

mod error;
mod file;
mod keygen;
mod location;
mod site_verifiers;

pub use error::VerifierError;
pub use location::{AskedVerifier, VerifierPlace};
pub use site_verifiers::SiteVerifiersUse;

use crate::error::{Error, Renamed};
use crate::life::Metrics;
use crate::output;
use crate::span;
use clap::Subcommand;
use firstflight_daemon::{SignalRequest, Signals, manager};
use firstflight_verifier::metrics::{Publisher, describe};
use firstflight_verifier::{
    Config, ConfigHandle, Group, Issuer, KeyFileError, LineError, STREAM_LIMITS, Service, ServiceError,
    TokenKey, VantagePoint, VerifierKeys, read_token_keys,
};
use firstflight_wire::asap::message::VantageId;
use ipnet::IpNet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run a provenance verifier, which certifies that clients are at their addresses (ASAP)
///
/// Answers over UDP and TCP on the same ports. Servers that trust its key take data in the first packet of the
/// clients that it certified. It needs no privileges. SIGHUP reads its keys, the group file and the file of --config again; a
/// mistake changes nothing. SIGINT and SIGTERM end it.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  firstflight verifier keygen -o verifier.key
  firstflight verifier --listen 192.0.2.1:4433 --listen '[2001:db8::1]:4433' --key-file verifier.key
  firstflight verifier --listen 127.0.0.1:4433 --key-file verifier.key --allow-prefix 127.0.0.0/8
  firstflight verifier --listen 192.0.2.2:4433 --vantage-id 1 --vantage-key ams.token
  firstflight verifier --listen 192.0.2.1:4433 --key-file verifier.key --group group.txt
  firstflight verifier --listen 192.0.2.1:4433 --key-file verifier.key --probe-from 192.0.2.9:4434
  firstflight verifier check verifier.toml && firstflight verifier --config verifier.toml"
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Read the settings from this file, in TOML: the names of the options with _ in place of -, as
    /// listen = ["192.0.2.1:4433"] and key_file = "verifier.key"
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Run", "Metrics"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    run: Option<Run>,
    // This is not in `Run`, because clap does not find optional arguments that contain other arguments.
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
/// It reads the keys and the group file, too. It needs no port, so it runs beside a verifier in service. Exit codes: 0 all is right,
/// 1 something failed that may be otherwise in a minute, 2 a verifier would not start.
#[derive(clap::Args)]
struct Check {
    /// The file, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
struct Run {
    /// Address and port to listen on, over UDP and TCP
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "config")]
    listen: Vec<SocketAddr>,
    /// File of the key that certifies (verifier keygen -o makes one)
    #[arg(long, value_name = "FILE", required_unless_present_any = ["vantage_id", "key", "config"])]
    key_file: Option<PathBuf>,
    /// What --key-file was
    #[arg(long, value_name = "FILE", hide = true)]
    key: Option<PathBuf>,
    /// How long a client's first certificate lasts
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = seconds)]
    first_duration: u32,
    /// Maximum duration of a certificate
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = seconds)]
    max_duration: u32,
    /// Certify addresses of this prefix although they are not global, as 10.0.0.0/8
    #[arg(long, value_name = "P")]
    allow_prefix: Vec<IpNet>,
    /// Give tokens as the vantage point with this number of a group
    #[arg(long, value_name = "N", requires = "vantage_key", value_parser = vantage_id)]
    vantage_id: Option<VantageId>,
    /// File of the key that the vantage point shares with its issuer (verifier keygen --vantage makes one)
    #[arg(long, value_name = "FILE", requires = "vantage_id")]
    vantage_key: Option<PathBuf>,
    /// Certify only who brings a token of every vantage point in this file
    #[arg(long, value_name = "FILE", requires = "key_file")]
    group: Option<PathBuf>,
    /// Send probes from this address and port, to which no client sends (see firstflight reach)
    #[arg(long, value_name = "ADDR:PORT")]
    probe_from: Vec<SocketAddr>,
}

/// Whole seconds of a duration as `30m` or `1d`.
pub fn seconds(text: &str) -> Result<u32, String> {
    u32::try_from(span::parse(text)?.as_secs())
        .map_err(|_| "that is longer than a certificate can last (194 days)".to_owned())
}

fn vantage_id(text: &str) -> Result<VantageId, &'static str> {
    text.parse().ok().and_then(VantageId::new).ok_or("a vantage point's number is 1 to 65535")
}

/// Runs the command.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    match (args.command, args.run) {
        (Some(Command::Keygen(args)), _) => {
            keygen::run(&args).map_err(Error::from)?;
            Ok(ExitCode::SUCCESS)
        }
        (Some(Command::Check(Check { file })), _) => {
            let (run, _) = file::read(&file)?;
            let config = run.config().map_err(Error::from)?;
            config.validate().map_err(|error| VerifierError::Service(ServiceError::Config(error)))?;
            output::line(&format_args!("{} is right", file.display()));
            Ok(ExitCode::SUCCESS)
        }
        (None, _) if let Some(path) = args.config => {
            let (run, metrics) = file::read(&path)?;
            serve(run, metrics, Some(&path)).await
        }
        (None, Some(run)) => match run.key {
            Some(_) => Err(VerifierError::from(Renamed("--key", "--key-file")).into()),
            None => serve(run, args.metrics, None).await,
        },
        (None, None) => Err(VerifierError::Nothing.into()),
    }
}

impl Run {
    /// Reads the options and the files. Nothing listens until all of them are valid.
    fn config(&self) -> Result<Config, VerifierError> {
        let group = match &self.group {
            Some(path) => {
                let members = Group::read(path).and_then(|group| group.members());
                members.map_err(|error| VerifierError::Group(path.clone(), error))?
            }
            None => Vec::new(),
        };
        let issuer = match &self.key_file {
            Some(path) => {
                let keys = VerifierKeys::read(path);
                let VerifierKeys { key, retired } =
                    keys.map_err(|error| VerifierError::unusable(path, error))?;
                Some(Issuer { key, retired, first: self.first_duration, longest: self.max_duration, group })
            }
            None => None,
        };
        let vantage = match (self.vantage_id, &self.vantage_key) {
            (Some(id), Some(path)) => Some(VantagePoint { id, key: token_key(path)? }),
            _ => None,
        };
        let (allowed, probe_from) = (self.allow_prefix.clone(), self.probe_from.clone());
        Ok(Config::default().issuer(issuer).vantage(vantage).allowed(allowed).probe_from(probe_from))
    }
}

/// The first key of a file, which makes the tokens.
fn token_key(path: &Path) -> Result<TokenKey, VerifierError> {
    let fail = |error| VerifierError::unusable(path, error);
    let keys = read_token_keys(path).map_err(fail)?;
    keys.into_iter().next().ok_or_else(|| fail(KeyFileError::Content(LineError::NoKey)))
}

/// Reads the files again. On an error nothing changes.
fn reload(began: &file::Settings, path: Option<&Path>, service: &ConfigHandle) -> Result<(), Error> {
    let read = path.map(|path| file::read_again(path, began)).transpose()?;
    let config = read.as_ref().unwrap_or(&began.0).config().map_err(Error::from)?;
    let set = service.set(config);
    set.map_err(|error| VerifierError::Service(ServiceError::Config(error)).into())
}

async fn serve(run: Run, metrics: Metrics, path: Option<&Path>) -> Result<ExitCode, Error> {
    let config = run.config().map_err(Error::from)?;
    let mut signals = Signals::new().map_err(Error::Runtime)?;
    let public = config.issuer.as_ref().map(|issuer| issuer.key.public());
    let vantage = config.vantage.as_ref().map(|vantage| vantage.id);
    let service = Service::bind(config, &run.listen, STREAM_LIMITS).await;
    let service = service.map_err(VerifierError::Service)?;
    let life = metrics.start(describe).await;
    let counters = service.counters();
    let mut publisher = Publisher::new(service.counters());
    life.serving(move || publisher.publish());
    // A program that reads these lines can use everything from now on.
    for address in service.addresses() {
        output::line(&format_args!("listening on {address}"));
    }
    if let Some(public) = public {
        output::line(&format_args!("verifier {}, key {public}", public.id()));
    }
    if let Some(id) = vantage {
        output::line(&format_args!("vantage point {id}"));
    }
    let (handle, began) = (service.config(), (run, metrics));
    let end = async {
        while signals.next().await == SignalRequest::Reload {
            manager::reloading();
            match reload(&began, path, &handle) {
                Ok(()) => output::line(&"the files were read again"),
                Err(error) => tracing::warn!("keys and vantage points stay as they are: {error}"),
            }
            manager::ready();
        }
        life.stopping();
    };
    service.run(end).await;
    let counts = counters.get();
    output::line(&format_args!(
        "certificates: {} ({} refreshed); tokens: {}; probes: {}; refused: {}",
        counts.certificates,
        counts.refreshed,
        counts.tokens,
        counts.probes,
        counts.refused_in_all()
    ));
    Ok(ExitCode::SUCCESS)
}
