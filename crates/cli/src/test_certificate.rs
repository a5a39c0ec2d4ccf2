//! `firstflight test-certificate`: a certificate of TLS for trials.

use crate::error::{CommandError, Error};
use crate::output;
use crate::span;
use firstflight_daemon::ExitKind;
use firstflight_tls::TestCertificateError;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Make a certificate and its key, to try TLS out
///
/// The certificate is signed by its own key. A client accepts it if it is told to trust it: `get --cacert FILE` and
/// `curl --cacert FILE`. It is for trials: a public server needs one that everybody trusts.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  firstflight test-certificate localhost 127.0.0.1
  firstflight serve www --tls-cert localhost.pem --tls-key localhost.key
  firstflight get --cacert localhost.pem https://localhost:8080/

Nothing is overwritten: if one of the two files exists, the exit code is 2.")]
pub struct Args {
    /// Host names and IP addresses that the certificate is for: www.example.com, *.example.com, 127.0.0.1
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Write PATH.pem and PATH.key [default: the first NAME, in this directory]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// How long it is valid, up to 1year
    #[arg(long, value_name = "TIME", default_value = "30days", value_parser = lifetime)]
    valid: Duration,
}

/// Limits of --valid.
const LEAST: Duration = Duration::from_secs(60);
const YEAR: Duration = Duration::from_secs(366 * 86_400);

fn lifetime(text: &str) -> Result<Duration, String> {
    let valid = span::parse(text)?;
    match (LEAST..=YEAR).contains(&valid) {
        true => Ok(valid),
        false => Err("write a time from 1min to 1year".to_owned()),
    }
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The names or the clock.
    #[error(transparent)]
    Make(#[from] TestCertificateError),
    /// A file of that name.
    #[error("{} exists: remove it, or choose another -o", .0.display())]
    Exists(PathBuf),
    /// A file cannot be written.
    #[error("cannot write {path}: {1}; choose another -o", path = .0.display())]
    Write(PathBuf, io::Error),
}

impl CertificateError {
    fn of_file(path: &Path, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists(path.to_owned()),
            _ => Self::Write(path.to_owned(), error),
        }
    }
}

impl CommandError for CertificateError {
    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Make(TestCertificateError::NoName | TestCertificateError::Name(_)) | Self::Exists(_) => {
                ExitKind::Mistake
            }
            Self::Write(_, error) => ExitKind::of_file(error),
            Self::Make(_) => ExitKind::Failure,
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    make(args)?;
    Ok(ExitCode::SUCCESS)
}

fn make(args: &Args) -> Result<(), CertificateError> {
    let made = firstflight_tls::TestCertificate::new(&args.names, args.valid)?;
    let (certificate, key) = (args.file("pem"), args.file("key"));
    // The key first, so that a second call changes nothing.
    firstflight_files::create(&key, made.key().as_bytes())
        .map_err(|error| CertificateError::of_file(&key, error))?;
    let written = create_public(&certificate, made.certificate().as_bytes());
    if let Err(error) = written {
        // A key alone is of no use.
        let _ = std::fs::remove_file(&key);
        return Err(CertificateError::of_file(&certificate, error));
    }
    let (certificate, key) = (certificate.display(), key.display());
    let valid = humantime::format_duration(args.valid);
    output::line(&format_args!(
        "{certificate}: certificate for {}, valid for {valid}",
        args.names.join(", ")
    ));
    output::line(&format_args!("{key}: its private key"));
    output::line(&format_args!(
        "clients trust it with: get --cacert {certificate}, or curl --cacert {certificate}"
    ));
    Ok(())
}

/// Everybody may read a certificate.
fn create_public(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(content).inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}

impl Args {
    fn file(&self, ending: &str) -> PathBuf {
        let name = || self.names.first().map_or_else(PathBuf::new, |name| name.replace('*', "_").into());
        let mut path = self.output.clone().unwrap_or_else(name).into_os_string();
        path.push(".");
        path.push(ending);
        path.into()
    }
}
