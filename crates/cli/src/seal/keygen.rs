//! `firstflight seal keygen`.

use super::SealError;
use crate::error::Renamed;
use crate::output;
use crate::utc::Time;
use crate::verifier::seconds;
use firstflight_dns::service::secure_rng;
use firstflight_seal::{Farm, FarmError, HostName, KeyFile, Record, SealKey};
use std::path::PathBuf;

/// Make a key that clients seal first flights to, or the secret of a farm
///
/// Publish a key for a day, then make the next one with --after: the former key opens until clients no longer use it,
/// and an hour more. The members of a farm with one secret make a new key by themselves in every period.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight seal keygen --name www.example.com -o seal.key
  firstflight seal keygen --after seal.key -o new.key && mv new.key seal.key    once a day
  firstflight seal keygen --name www.example.com --farm farm.seal             the same file at all members")]
pub struct Args {
    /// New file for the key, which only its owner can read
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["farm", "key"], conflicts_with = "farm")]
    output: Option<PathBuf>,
    /// What -o was
    #[arg(long, value_name = "FILE", hide = true)]
    key: Option<PathBuf>,
    /// New file for a farm's secret, which only its owner can read
    #[arg(long, value_name = "FILE")]
    farm: Option<PathBuf>,
    /// Public name of the keys: the server's, or the one that hides the others
    #[arg(long, value_name = "NAME", required_unless_present = "after", conflicts_with = "after")]
    name: Option<HostName>,
    /// The key file that the new one replaces: its keys open for a while longer
    #[arg(long, value_name = "FILE", conflicts_with = "farm")]
    after: Option<PathBuf>,
    /// How long a key is published: a day at most for a farm
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = seconds)]
    period: u32,
    /// TTL of the record that names the key
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds)]
    ttl: u32,
}

/// Makes the key.
pub fn run(args: &Args) -> Result<(), SealError> {
    if args.key.is_some() {
        return Err(Renamed("--key", "-o").into());
    }
    let mut rng = secure_rng().map_err(SealError::Random)?;
    let now = Time::now().0 / 1000;
    let name = |args: &Args| args.name.clone().ok_or(SealError::Times(FarmError::Period));
    if let Some(path) = &args.farm {
        let farm = Farm::generate(name(args)?, args.period, args.ttl, now, &mut rng);
        let farm = farm.map_err(SealError::Times)?;
        let line =
            format!("{}: seal keys of {}, a new one every {} s", path.display(), farm.name(), farm.period());
        KeyFile::Farm(farm).create(path).map_err(|error| SealError::not_written(path, error))?;
        output::line(&line);
    }
    if let Some(path) = &args.output {
        let lasts = u64::from(args.period) + u64::from(args.ttl);
        if lasts > Record::LONGEST {
            return Err(SealError::Times(FarmError::Ttl));
        }
        let not_after = u32::try_from(now + lasts).unwrap_or(u32::MAX);
        let key = SealKey::generate(&mut rng);
        let file = match &args.after {
            None => KeyFile::new(name(args)?, key, not_after),
            Some(old) => {
                let before = KeyFile::read(old).map_err(|error| SealError::Unusable(old.clone(), error))?;
                before.rotated(key, not_after, now).ok_or_else(|| SealError::Farm(old.clone()))?
            }
        };
        file.create(path).map_err(|error| SealError::not_written(path, error))?;
        let until = Time(u64::from(not_after) * 1000).rfc3339();
        output::line(&format_args!("{}: seal key of {}, used until {until}", path.display(), file.name()));
    }
    Ok(())
}
