//! `firstflight keys new`.

use super::KeysError;
use crate::error::Error;
use crate::output;
use crate::utc::Time;
use firstflight::credential::FarmSecret;
use std::io;
use std::path::PathBuf;
use zeroize::Zeroizing;

/// Make a random cookie key or farm secret
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight keys new -o key
  firstflight keys new --secret --id 2027-spring -o secret")]
pub struct Args {
    /// A farm secret instead of a cookie key
    #[arg(long)]
    secret: bool,
    /// Name of the farm secret: letters, digits, '.', '_', '-' [default: today's date]
    #[arg(long, value_name = "ID", requires = "secret", value_parser = id)]
    id: Option<String>,
    /// Write it to a new file that only its owner can read [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn id(text: &str) -> Result<String, String> {
    match FarmSecret::new(text, &[0; FarmSecret::MIN_BYTES]) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Makes the key or the secret.
pub fn run(args: &Args) -> Result<(), Error> {
    let (text, told) = if args.secret {
        let today = || Time::now().rfc3339().chars().take(10).collect();
        let id = args.id.clone().unwrap_or_else(today);
        let secret = firstflight::random_secret(&id).map_err(Error::Random)?;
        (secret.to_text(), format!("farm secret {id}, fingerprint {}", secret.fingerprint()))
    } else {
        let key = firstflight::random_key().map_err(Error::Random)?;
        (key.to_text(), format!("cookie key, fingerprint {}", key.fingerprint()))
    };
    match &args.output {
        None => output::line(&*text),
        Some(path) => {
            let line = Zeroizing::new([text.as_bytes(), b"\n"].concat());
            firstflight_files::create(path, &line).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => KeysError::KeyExists(path.clone()).into(),
                _ => Error::Output(path.clone(), error),
            })?;
            output::line(&format_args!("{}: {told}", path.display()));
        }
    }
    Ok(())
}
