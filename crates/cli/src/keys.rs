//! `firstflight keys`: cookie keys and farm secrets for operators.

mod error;
mod new;
mod report;

pub use error::KeysError;

use crate::error::Error;
use crate::span::{self, HOURS};
use crate::utc::Time;
use clap::Subcommand;
use firstflight::credential::{CookieKeys, FarmSecrets, Schedule, Scheme};
use firstflight::keys::{KeyError, KeyFile, KeyFileError};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

/// Make and compare the keys of one server or of a farm
///
/// A cookie key has the form of net.ipv4.tcp_fastopen_key in the Linux kernel. From a farm secret (a line id:hex) all
/// members of a farm derive the same keys, with a new key for every period.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight keys new -o key                      one random cookie key
  firstflight keys new --secret -o secret          a farm's secret
  firstflight keys show secret                     fingerprints, to compare members
  firstflight keys schedule secret                 the next turns
  firstflight keys export secret --format linux > /proc/sys/net/ipv4/tcp_fastopen_key")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    New(new::Args),
    Show(report::ShowArgs),
    Schedule(report::ScheduleArgs),
    Export(report::ExportArgs),
}

/// Runs the command.
pub async fn run(args: Args) -> Result<ExitCode, Error> {
    match args.command {
        Command::New(args) => new::run(&args)?,
        Command::Show(args) => report::show(&args)?,
        Command::Schedule(args) => report::schedule(&args)?,
        Command::Export(args) => report::export(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// How long a key grants cookies: whole hours.
#[derive(Debug, Clone, Copy)]
pub struct Period(Duration);

impl Period {
    /// For `--help`.
    pub const HELP: &str = "How long a key grants, 12h to 8784h (366days), whole hours; a number without a unit is hours. \
                             The same on all members";
    /// 24 hours.
    pub const DEFAULT: &str = "24h";

    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hours = |n| Duration::from_secs(n * 3600);
        match span::or_bare(HOURS, hours(12)..=hours(8784))(text) {
            Ok(period) if hours(period.as_secs() / 3600) == period => Ok(Self(period)),
            _ => Err("give whole hours, 12 to 8784, as 24h or 7days"),
        }
    }
}

/// A file and a point in time.
#[derive(clap::Args)]
struct Source {
    /// File with cookie keys or farm secrets
    file: PathBuf,
    #[arg(long, value_name = "TIME", help = Period::HELP, default_value = Period::DEFAULT)]
    period: Period,
    /// When: UTC as 2027-01-15T00:00:00Z, or Unix seconds [default: now]
    #[arg(long, value_name = "TIME")]
    at: Option<Time>,
}

/// The content of a file.
enum Stored {
    Keys(CookieKeys),
    Secrets(Box<Schedule>),
}

impl Source {
    fn at(&self) -> Time {
        self.at.unwrap_or_else(Time::now)
    }

    fn read(&self) -> Result<Stored, Error> {
        let failed = |error| Error::KeyFile(self.file.clone(), error);
        let invalid = |error| failed(KeyFileError::Content(error));
        let text = firstflight_files::read_secret(&self.file, KeyFile::MAX_BYTES);
        let text = text.map_err(|error| failed(error.into()))?;
        if text.contains(':') {
            let secrets: FarmSecrets = text.parse().map_err(|error| invalid(KeyError::Secret(error)))?;
            let schedule =
                Schedule::new(secrets, Scheme::Linux, self.period.duration(), Schedule::DEFAULT_LEAD);
            return Ok(Stored::Secrets(Box::new(schedule.map_err(KeysError::Schedule)?)));
        }
        if !text.contains('-') {
            return Err(KeysError::NotKeys(self.file.clone()).into());
        }
        text.parse().map(Stored::Keys).map_err(|error| invalid(KeyError::Key(error)))
    }

    /// The keys that are valid at that time.
    fn cookie_keys(&self) -> Result<CookieKeys, Error> {
        Ok(match self.read()? {
            Stored::Keys(keys) => keys,
            Stored::Secrets(schedule) => schedule.cookie_keys_at(self.at().0),
        })
    }

    fn schedule(&self) -> Result<Schedule, Error> {
        match self.read()? {
            Stored::Keys(_) => Err(KeysError::NoSecret(self.file.clone()).into()),
            Stored::Secrets(schedule) => Ok(*schedule),
        }
    }
}
