//! `firstflight asap`: shows ASAP's objects to people who inspect them.

mod check;
mod inspect;
mod record;

use crate::error::CommandError;
use crate::seal::SealError;
use crate::verifier::VerifierPlace;
use clap::Subcommand;
use inspect::InspectError;
use std::process::ExitCode;

/// Inspect ASAP's options, credential blocks, certificates and messages; publish that a server accepts them
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight asap inspect fd08fa57110000c4
  firstflight asap inspect block.bin --verifier-key KEY --address 192.0.2.1")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Inspect(inspect::Args),
    Record(record::Args),
}

/// Why `asap` stopped.
#[derive(Debug, thiserror::Error)]
pub enum AsapError {
    /// The object to inspect is not an object of ASAP.
    #[error("{0}")]
    Inspect(InspectError),
    /// The seal keys cannot be published.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// Certificates are accepted nowhere.
    #[error("say where certificates of these verifiers are accepted: --ip, --udp-port N or both")]
    NoEncapsulation,
    /// Clients would not ask a verifier.
    #[error(
        "clients do not ask {0}: take a name with a dot, and port 443 or one from 1024 that no well-known service has"
    )]
    NotAsked(VerifierPlace),
    /// The names of verifiers and vantage points do not fit.
    #[error("the names are too long, or a verifier or vantage point is there twice: leave some out")]
    Names,
    /// Verifiers without keys.
    #[error("say --verifier-key for each --verifier, in the same order")]
    VerifierKeys,
    /// More verifiers than a record has room for.
    #[error("a record names {0} verifiers at most: leave some out")]
    TooManyVerifiers(usize),
}

impl CommandError for AsapError {}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, AsapError> {
    match &args.command {
        Command::Inspect(args) => inspect::run(args).map_err(AsapError::Inspect),
        Command::Record(args) => record::run(args).map(|()| ExitCode::SUCCESS),
    }
}
