//! `firstflight seal`: the keys that first flights are sealed to.

mod error;
mod keygen;

pub use error::SealError;

use crate::error::Error;
use clap::Subcommand;
use firstflight_seal::{KeyFile, Record};
use std::path::Path;
use std::process::ExitCode;

/// Make the keys that clients seal TLS and the first request to
///
/// A client that finds such a key in the HTTPS record of a server encrypts its first request to it, and has the answer
/// after one round trip. `firstflight asap record --seal-key FILE` prints what to publish.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight seal keygen --name www.example.com -o seal.key
  firstflight asap record --seal-key seal.key")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Keygen(keygen::Args),
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let Command::Keygen(args) = &args.command;
    keygen::run(args)?;
    Ok(ExitCode::SUCCESS)
}

/// What to publish of the keys in a file at `now`, Unix seconds.
pub fn record(path: &Path, now: u64) -> Result<Record, SealError> {
    let file = KeyFile::read(path).map_err(|error| SealError::Unusable(path.to_owned(), error))?;
    let keys = file.keys(now).map_err(|error| SealError::Chain(path.to_owned(), error))?;
    keys.record(now).ok_or_else(|| SealError::Over(path.to_owned()))
}

#[cfg(test)]
mod tests;
