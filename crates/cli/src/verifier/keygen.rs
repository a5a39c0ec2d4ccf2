//! `firstflight verifier keygen`.

use super::VerifierError;
use crate::output;
use firstflight_credential::asap::PrivateKey;
use firstflight_verifier::{TokenKey, VerifierKeys, create_token_key, read_token_keys, secure_rng};
use std::path::PathBuf;

/// Make a verifier's key, or the key that a vantage point shares with its issuer
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight verifier keygen --key verifier.key
  firstflight verifier keygen --key new.key --after verifier.key   the old key's certificates stay good
  firstflight verifier keygen --vantage-key ams.token              the same file on both machines")]
#[group(required = true, multiple = true)]
pub struct Args {
    /// New file for a verifier's key, which only its owner can read
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "vantage_key",
        required_unless_present = "vantage_key"
    )]
    key: Option<PathBuf>,
    /// The key file that the new one replaces: its public keys are kept as retired keys
    #[arg(long, value_name = "FILE", requires = "key")]
    after: Option<PathBuf>,
    /// New file for a vantage point's key, which only its owner can read
    #[arg(long, value_name = "FILE")]
    vantage_key: Option<PathBuf>,
    /// The key's number, which distinguishes it from the key that it replaces
    #[arg(long, value_name = "N", default_value_t = 1, requires = "vantage_key")]
    number: u8,
}

/// Makes the key.
pub fn run(args: &Args) -> Result<(), VerifierError> {
    let mut rng = secure_rng().map_err(VerifierError::Random)?;
    if let Some(path) = &args.key {
        let mut retired = Vec::new();
        if let Some(old) = &args.after {
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
    }
    if let Some(path) = &args.vantage_key {
        let key = TokenKey::generate(args.number, &mut rng);
        create_token_key(path, &key).map_err(|error| VerifierError::not_written(path, error))?;
        // Read the new file, to check it.
        read_token_keys(path).map_err(|error| VerifierError::unusable(path, error))?;
        output::line(&format_args!("{}: token key number {}", path.display(), args.number));
    }
    Ok(())
}
