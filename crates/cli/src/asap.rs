//! `firstflight asap`: shows ASAP's objects to people who inspect them.

mod check;
mod error;
mod inspect;
mod record;

pub use error::AsapError;

use clap::Subcommand;
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

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, AsapError> {
    match &args.command {
        Command::Inspect(args) => inspect::run(args).map_err(AsapError::Inspect),
        Command::Record(args) => record::run(args).map(|()| ExitCode::SUCCESS),
    }
}
