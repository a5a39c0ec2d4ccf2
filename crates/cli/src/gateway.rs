//! `firstflight gateway`: a reverse proxy that accepts connections in one round trip.

use crate::error::Error;
use crate::output;
use clap::Subcommand;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

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
    #[arg(value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
}

/// Read a configuration, and the certificates and keys that it names, and say what is wrong
#[derive(clap::Args)]
struct Check {
    /// Configuration, in TOML
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The number of threads that FILE asks for. A mistake in it is told when it is read to be used.
pub fn threads(args: &Args) -> Option<NonZeroUsize> {
    let config = firstflight_gateway::Config::read(args.file.as_ref()?).ok()?;
    config.gateway.threads
}

/// Runs the command until a signal arrives.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    match (args.command, args.file) {
        (Some(Command::Check(check)), _) => {
            firstflight_gateway::check(&check.file).await?;
            output::line(&format_args!("{} is right", check.file.display()));
        }
        (None, Some(file)) => firstflight_gateway::run(&file).await?,
        // clap demands one of them.
        (None, None) => return Ok(ExitCode::from(2)),
    }
    Ok(ExitCode::SUCCESS)
}
