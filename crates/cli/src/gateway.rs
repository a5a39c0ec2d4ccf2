//! `firstflight gateway`: a reverse proxy that accepts connections in one round trip.

mod quick;

use crate::error::{CommandError, Error, one_line};
use crate::output;
use crate::self_signed::SelfSigned;
use clap::Subcommand;
use firstflight_daemon::ExitKind;
use firstflight_gateway::{Config, ConfigError, RunError};
use quick::Quick;
use serde::Serialize;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

impl CommandError for RunError {
    fn exit_kind(&self) -> ExitKind {
        self.exit_kind()
    }
}

impl CommandError for firstflight_gateway::HealthError {
    fn exit_kind(&self) -> ExitKind {
        self.exit_kind()
    }
}

/// Stand in front of servers that nobody changes, and accept connections in one round trip
///
/// A reverse proxy for TCP, TLS that is passed through, and HTTP/1.1 and HTTP/2 with TLS or without. It takes first flights by
/// Fast Open on the kernel's TCP, and in UDP with certificates (ASAP). What may be a copy of a first flight reaches a
/// backend only as far as FILE allows. SIGHUP reads FILE again; a mistake in it changes nothing. SIGTERM and SIGINT let
/// connections end first. docs/gateway.md describes FILE.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  firstflight gateway check gateway.toml
  firstflight gateway gateway.toml
  firstflight gateway --from 0.0.0.0:8080 --to 127.0.0.1:8000
  firstflight gateway --from 0.0.0.0:443 --root ./site --tls-cert chain.pem --tls-key key.pem
  firstflight gateway --from 127.0.0.1:8443 --to 127.0.0.1:8000 --tls-self-signed
  firstflight gateway --from 0.0.0.0:8080 --to 127.0.0.1:8000 --print-config > gateway.toml

A gateway in front of an HTTP server on port 8000:
  [[listener]]
  name = \"web\"
  address = [\"0.0.0.0:8080\"]
  mode = \"http\"
  service = \"app\"

  [[service]]
  name = \"app\"
  backend = [\"127.0.0.1:8000\"]")]
pub struct Args {
    /// Configuration, in TOML
    #[arg(value_name = "FILE", required_unless_present = "from", conflicts_with = "from")]
    file: Option<PathBuf>,
    #[command(flatten)]
    quick: Quick,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
    Health(Health),
    /// Print the JSON Schema of FILE, with which editors complete and check it
    Schema,
}

/// Ask a gateway on this machine whether it lives: 0 if it does
///
/// For health checks of containers. Asks for /healthz at `gateway.admin`, and waits three seconds for the answer.
#[derive(clap::Args)]
struct Health {
    /// Configuration of the gateway, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Do what the start does, without ports, and say what is wrong
///
/// Reads the configuration, and the certificates and keys that it names; becomes the user that it names, if started as root; and
/// reads all again. It needs no port, so it runs beside a gateway in service.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 all is right, 1 a gateway would start, but something is not right (a certificate has ended, a file cannot be read \
after root is given up), or something failed that may be otherwise in a minute, 2 a gateway would not start.")]
struct Check {
    /// Configuration, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object: file, right, errors, warnings, notes (what this machine lacks)
    #[arg(long)]
    json: bool,
}

/// What `check --json` prints.
#[derive(Serialize)]
struct ConfigVerdict<'a> {
    file: &'a Path,
    /// Whether there are neither errors nor warnings.
    right: bool,
    errors: Vec<String>,
    warnings: Vec<String>,
    notes: Vec<String>,
}

async fn check(args: &Check) -> ExitCode {
    let found = firstflight_gateway::check(&args.file).await;
    let code = match found.errors.iter().any(|error| error.exit_kind() == ExitKind::Mistake) {
        true => 2,
        false if found.errors.is_empty() && found.warnings.is_empty() => 0,
        false => 1,
    };
    let errors: Vec<_> = found.errors.iter().map(|error| one_line(error)).collect();
    if args.json {
        let (warnings, notes) = (found.warnings, found.notes);
        output::json(&ConfigVerdict { file: &args.file, right: code == 0, errors, warnings, notes });
        return ExitCode::from(code);
    }
    found.notes.iter().for_each(|note| output::complain(&format_args!("note: {note}")));
    if code == 0 {
        output::line(&format_args!("{} is right", args.file.display()));
    } else {
        errors.iter().for_each(|error| output::complain(error));
        found.warnings.iter().for_each(|warning| output::complain(&format_args!("warning: {warning}")));
    }
    ExitCode::from(code)
}

/// The number of threads that FILE asks for. A mistake in it is told when it is read to be used.
pub fn threads(args: &Args) -> Option<NonZeroUsize> {
    threads_in(args.file.as_ref()?)
}

/// The number of threads that the file asks for.
pub fn threads_in(file: &Path) -> Option<NonZeroUsize> {
    Config::read(file).ok()?.gateway.threads
}

/// Runs a gateway with the configuration that options stand for, or prints it. It may name the certificate of a trial.
pub async fn run_written(text: &str, prints: bool, trial: Option<&SelfSigned>) -> Result<ExitCode, Error> {
    if prints {
        let wrong = |mistake| ConfigError::Mistake { path: "the options".into(), mistake };
        Config::parse(text).map_err(wrong).map_err(RunError::from)?;
        output::line(&text.trim_end());
    } else {
        trial.into_iter().for_each(SelfSigned::say);
        firstflight_gateway::run_text(text).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the command until a signal arrives.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    match (args.command, args.file) {
        (Some(Command::Check(check)), _) => return Ok(self::check(&check).await),
        (Some(Command::Schema), _) => output::json(&Config::schema()),
        (Some(Command::Health(health)), _) => firstflight_gateway::is_alive(&health.file).await?,
        (None, Some(file)) => firstflight_gateway::run(&file).await?,
        // clap demands one of them.
        (None, None) => {
            let trial = args.quick.self_signed()?;
            let text = args.quick.config(trial.as_ref());
            return run_written(&text, args.quick.prints(), trial.as_ref()).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}
