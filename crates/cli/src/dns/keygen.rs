//! `firstflight dns keygen`.

use super::DnsError;
use crate::error::Renamed;
use crate::output;
use crate::verifier::seconds;
use firstflight_dns::service::{published_key, secure_rng, unix_ms};
use firstflight_dns::{DnsPathKey, DnsPathKeyFile, RelayKey, create_relay_key, read_relay_keys};
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};

/// Make the key that first flights by DNS are sealed to, or a key that a front shares with a server or other fronts
///
/// The text after "dns-path-key" in the output is public: `firstflight asap record` puts it into the HTTPS record.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight dns keygen -o dns-path.key
  firstflight dns keygen -o new.key --after dns-path.key && mv new.key dns-path.key    once a day
  firstflight dns keygen --relay -o ams.relay                       the same file at front and server")]
pub struct Args {
    /// New file for the key, which only its owner can read
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["key", "relay_key"])]
    output: Option<PathBuf>,
    /// The key file that the new one replaces: its keys can open first flights for a while longer
    #[arg(long, value_name = "FILE", conflicts_with = "relay")]
    after: Option<PathBuf>,
    /// How long the key before still opens: the TTL of the records that name it, and an hour
    #[arg(long, value_name = "TIME", default_value = "25h", requires = "after", value_parser = seconds)]
    opens: u32,
    /// Make the key of a front and a server, or of all name servers of a zone
    #[arg(long)]
    relay: bool,
    /// The relay key's number, which distinguishes it from the key that it replaces
    #[arg(long, value_name = "N", default_value_t = 1, requires = "relay")]
    number: u8,
    /// What -o was
    #[arg(long, value_name = "FILE", hide = true)]
    key: Option<PathBuf>,
    /// What --relay -o was
    #[arg(long, value_name = "FILE", hide = true)]
    relay_key: Option<PathBuf>,
}

/// Makes the key.
pub fn run(args: &Args) -> Result<(), DnsError> {
    match (&args.key, &args.relay_key, &args.output) {
        (Some(_), ..) => Err(Renamed("--key", "-o").into()),
        (_, Some(_), _) => Err(Renamed("--relay-key", "--relay -o").into()),
        (None, None, Some(path)) if args.relay => make_relay(path, args.number),
        (None, None, Some(path)) => make(path, args.after.as_deref(), args.opens),
        // clap demands one of them.
        (None, None, None) => Err(DnsError::Nothing),
    }
}

fn make(path: &Path, after: Option<&Path>, opens: u32) -> Result<(), DnsError> {
    let mut rng = secure_rng().map_err(DnsError::Random)?;
    let key = DnsPathKey::generate(&mut rng);
    let now = unix_ms() / 1000;
    let file = match after {
        Some(old) => {
            let before = DnsPathKeyFile::read(old).map_err(|error| DnsError::unusable(old, error))?;
            before.rotated(key, now + u64::from(opens), now)
        }
        None => DnsPathKeyFile { id: NonZeroU8::MIN, key, former: Vec::new() },
    };
    file.create(path).map_err(|error| DnsError::not_written(path, error))?;
    output::line(&format_args!("dns-path-key {}", published_key(file.id, &file.key.public())));
    for (id, _, ends) in &file.former {
        output::line(&format_args!("former {id} opens for {} s", ends.saturating_sub(now)));
    }
    Ok(())
}

fn make_relay(path: &Path, number: u8) -> Result<(), DnsError> {
    let mut rng = secure_rng().map_err(DnsError::Random)?;
    let key = RelayKey::generate(&mut rng);
    create_relay_key(path, number, &key).map_err(|error| DnsError::not_written(path, error))?;
    // Read the new file, to check it.
    read_relay_keys(path).map_err(|error| DnsError::unusable(path, error))?;
    output::line(&format_args!("{}: relay key number {number}", path.display()));
    Ok(())
}
