//! `firstflight keys show`, `schedule` and `export`: reports about a key file.

use super::{Source, Stored};
use crate::error::Error;
use crate::output;
use crate::utc::Time;
use firstflight::credential::{CookieKey, CookieKeys, FarmSecret, Schedule};
use serde::Serialize;

/// Show fingerprints, with which the keys of farm members can be compared
///
/// A key's fingerprint is the begin of the SHA-256 of its text, as in
/// sysctl -n net.ipv4.tcp_fastopen_key | tr , '\n' | head -1 | tr -d '\n' | sha256sum | cut -c1-16
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight keys show key
  firstflight keys show secret --at 2027-01-15T00:00:00Z
  sysctl -n net.ipv4.tcp_fastopen_key | firstflight keys show /dev/stdin")]
pub struct ShowArgs {
    #[command(flatten)]
    source: Source,
    /// Also show the secrets themselves
    #[arg(long)]
    reveal: bool,
}

/// Runs `keys show`.
pub fn show(args: &ShowArgs) -> Result<(), Error> {
    match args.source.read()? {
        Stored::Keys(keys) => show_keys(&keys, args.reveal),
        Stored::Secrets(schedule) => {
            let at = args.source.at();
            show_secret("grants", &schedule.secrets().current, args.reveal);
            if let Some(other) = &schedule.secrets().other {
                show_secret("accepted too", other, args.reveal);
            }
            output::line(&format_args!(
                "at {}: key {} of {} h each, next turn {}",
                at.rfc3339(),
                schedule.index_at(at.0),
                schedule.period().as_secs() / 3600,
                turn(schedule.next_turn(at.0)),
            ));
            show_keys(&schedule.cookie_keys_at(at.0), args.reveal);
        }
    }
    Ok(())
}

fn show_secret(role: &str, secret: &FarmSecret, reveal: bool) {
    output::line(&format_args!("secret   {}  {} ({role})", secret.fingerprint(), secret.id()));
    if reveal {
        output::line(&*secret.to_text());
    }
}

fn show_keys(keys: &CookieKeys, reveal: bool) {
    let show = |role: &str, key: &CookieKey| {
        output::line(&format_args!("{role:8} {}", key.fingerprint()));
        if reveal {
            output::line(&*key.to_text());
        }
    };
    show("primary", &keys.primary);
    keys.backups.iter().for_each(|key| show("backup", key));
}

fn turn(at: Option<u64>) -> String {
    at.map_or_else(|| "never".to_owned(), |at| Time(at).rfc3339())
}

/// Show the periods of the keys of a farm secret
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight keys schedule secret
  firstflight keys schedule secret --period 168 --at 2027-01-15T00:00:00Z --count 3 --json")]
pub struct ScheduleArgs {
    #[command(flatten)]
    source: Source,
    /// Number of keys, beginning with the one that grants at that time
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    count: u16,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// One key and its times.
#[derive(Serialize)]
struct Row {
    index: u64,
    accepted_from: String,
    grants_from: String,
    grants_until: String,
    accepted_until: String,
    fingerprint: String,
    /// The key of the other secret, which is also accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    other: Option<String>,
}

impl Row {
    fn new(schedule: &Schedule, index: u64) -> Self {
        let times = schedule.times_of(index);
        let time = |unix_ms| Time(unix_ms).rfc3339();
        let secrets = schedule.secrets();
        let fingerprint = |secret: &FarmSecret| secret.cookie_key(index).fingerprint().to_string();
        Self {
            index,
            accepted_from: time(times.accepted_from),
            grants_from: time(times.grants_from),
            grants_until: time(times.grants_until),
            accepted_until: time(times.accepted_until),
            fingerprint: fingerprint(&secrets.current),
            other: secrets.other.as_ref().map(fingerprint),
        }
    }
}

/// Runs `keys schedule`.
pub fn schedule(args: &ScheduleArgs) -> Result<(), Error> {
    let schedule = args.source.schedule()?;
    let first = schedule.index_at(args.source.at().0);
    let rows: Vec<Row> =
        (0..u64::from(args.count)).map(|ahead| Row::new(&schedule, first.saturating_add(ahead))).collect();
    if args.json {
        output::json(&rows);
        return Ok(());
    }
    output::line(
        &"grants from            accepted from          accepted until               key  fingerprint",
    );
    for row in rows {
        output::line(&format_args!(
            "{}   {}   {}  {:>8}  {}",
            row.grants_from, row.accepted_from, row.accepted_until, row.index, row.fingerprint
        ));
    }
    Ok(())
}

/// Print keys, including the secrets, for another server
///
/// The output is the primary key, and after a comma the backup key. With two farm secrets, the backup is the key of
/// the second one.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight keys export secret --format linux > /proc/sys/net/ipv4/tcp_fastopen_key
  (umask 077; firstflight keys export secret --format linux --at 2027-01-15T00:00:00Z > key)")]
pub struct ExportArgs {
    #[command(flatten)]
    source: Source,
    /// Format: linux is that of net.ipv4.tcp_fastopen_key
    #[arg(long, value_enum)]
    format: Format,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Linux,
}

/// Runs `keys export`.
pub fn export(args: &ExportArgs) -> Result<(), Error> {
    let keys = args.source.cookie_keys()?;
    match args.format {
        Format::Linux => output::line(&*keys.to_text()),
    }
    Ok(())
}
