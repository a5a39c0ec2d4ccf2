//! `firstflight verifier keygen`.

use super::VerifierError;
use crate::error::Renamed;
use crate::output;
use firstflight_credential::asap::PrivateKey;
use firstflight_verifier::{TokenKey, VerifierKeys, create_token_key, read_token_keys, secure_rng};
use std::path::{Path, PathBuf};

/// Make a verifier's key, or the key that a vantage point shares with its issuer
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight verifier keygen -o verifier.key
  firstflight verifier keygen -o new.key --after verifier.key   the old key's certificates stay good
  firstflight verifier keygen --vantage -o ams.token            the same file on both machines")]
pub struct Args {
    /// New file for the key, which only its owner can read
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["key", "vantage_key"])]
    output: Option<PathBuf>,
    /// The key file that the new one replaces: its public keys are kept as retired keys
    #[arg(long, value_name = "FILE", conflicts_with = "vantage")]
    after: Option<PathBuf>,
    /// Make the key of a vantage point
    #[arg(long)]
    vantage: bool,
    /// The key's number, which distinguishes it from the key that it replaces
    #[arg(long, value_name = "N", default_value_t = 1, requires = "vantage")]
    number: u8,
    /// What -o was
    #[arg(long, value_name = "FILE", hide = true)]
    key: Option<PathBuf>,
    /// What --vantage -o was
    #[arg(long, value_name = "FILE", hide = true)]
    vantage_key: Option<PathBuf>,
}

/// Makes the key.
pub fn run(args: &Args) -> Result<(), VerifierError> {
    match (&args.key, &args.vantage_key, &args.output) {
        (Some(_), ..) => Err(Renamed("--key", "-o").into()),
        (_, Some(_), _) => Err(Renamed("--vantage-key", "--vantage -o").into()),
        (None, None, Some(path)) if args.vantage => make_vantage(path, args.number),
        (None, None, Some(path)) => make(path, args.after.as_deref()),
        // clap demands one of them.
        (None, None, None) => Err(VerifierError::Nothing),
    }
}

fn make(path: &Path, after: Option<&Path>) -> Result<(), VerifierError> {
    let mut rng = secure_rng().map_err(VerifierError::Random)?;
    let mut retired = Vec::new();
    if let Some(old) = after {
        let keys = VerifierKeys::read(old).map_err(|error| VerifierError::unusable(old, error))?;
        retired.push(keys.key.public());
        retired.extend(keys.retired);
    }
    let keys = VerifierKeys { key: PrivateKey::generate(&mut rng), retired };
    keys.create(path).map_err(|error| VerifierError::not_written(path, error))?;
    let public = keys.key.public();
    output::line(&format_args!("key {public}"));
    output::line(&format_args!("id {}", public.id()));
    for retired in &keys.retired {
        output::line(&format_args!("retired {} {retired}", retired.id()));
    }
    Ok(())
}

fn make_vantage(path: &Path, number: u8) -> Result<(), VerifierError> {
    let mut rng = secure_rng().map_err(VerifierError::Random)?;
    let key = TokenKey::generate(number, &mut rng);
    create_token_key(path, &key).map_err(|error| VerifierError::not_written(path, error))?;
    // Read the new file, to check it.
    read_token_keys(path).map_err(|error| VerifierError::unusable(path, error))?;
    output::line(&format_args!("{}: token key number {number}", path.display()));
    Ok(())
}
