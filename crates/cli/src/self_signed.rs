//! A certificate for a trial, which ends with the command (`--tls-self-signed`).

use crate::error::CommandError;
use crate::output;
use firstflight_daemon::ExitKind;
use firstflight_tls::{TestCertificate, TestCertificateError};
use std::fs::{self, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// How long it is valid. A trial is over by then.
const VALID: Duration = Duration::from_secs(30 * 86_400);
/// The names of this machine that need no resolver.
const OWN: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    /// The names or the clock.
    #[error("--tls-self-signed: {0}")]
    Make(#[from] TestCertificateError),
    /// There is no place for the files.
    #[error("--tls-self-signed: cannot write a file in {path}: {1}; set TMPDIR to a directory of yours", path = .0.display())]
    Write(PathBuf, io::Error),
}

impl CommandError for SelfSignedError {
    fn exit_kind(&self) -> ExitKind {
        match self {
            Self::Make(TestCertificateError::NoName | TestCertificateError::Name(_)) => ExitKind::Mistake,
            Self::Make(_) => ExitKind::Failure,
            Self::Write(_, error) => ExitKind::of_file(error),
        }
    }
}

/// A certificate and its key, in files that are deleted when this is dropped. Only this user can read the directory.
pub struct SelfSigned {
    directory: TempDir,
    names: Vec<String>,
}

impl SelfSigned {
    /// A new certificate for `names`, for this machine's own names, and for the addresses at which a server listens.
    /// Errors: when a name is none, or there is no place for the files.
    pub fn new(names: &[String], addresses: &[SocketAddr]) -> Result<Self, SelfSignedError> {
        let own = OWN.map(str::to_owned);
        let at = addresses.iter().map(SocketAddr::ip).filter(|ip| !ip.is_unspecified());
        let mut all: Vec<String> = Vec::new();
        for name in names.iter().cloned().chain(own).chain(at.map(|ip| ip.to_string())) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        let made = TestCertificate::new(&all, VALID)?;
        let place = std::env::temp_dir();
        let fail = |error| SelfSignedError::Write(place.clone(), error);
        let ours = Permissions::from_mode(0o700);
        let made_at = tempfile::Builder::new().prefix("firstflight-").permissions(ours).tempdir();
        let directory = made_at.map_err(fail)?;
        let signed = Self { directory, names: all };
        firstflight_files::create(&signed.key(), made.key().as_bytes()).map_err(fail)?;
        fs::write(signed.certificate(), made.certificate()).map_err(fail)?;
        Ok(signed)
    }

    /// The file with the certificate.
    pub fn certificate(&self) -> PathBuf {
        self.directory.path().join("certificate.pem")
    }

    /// The file with the key.
    pub fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    /// Says on stderr that it is for a trial, and how clients accept it.
    pub fn say(&self) {
        let (names, file) = (self.names.join(", "), self.certificate());
        let file = file.display();
        output::complain(&format_args!(
            "the certificate, for {names}, is for a trial: it is new at each start, and nobody trusts it"
        ));
        output::complain(&format_args!(
            "clients accept it with: get --cacert {file}, or curl --cacert {file}; or any certificate, with -k"
        ));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn it_is_its_owners_and_ends_with_the_command() {
        let at = ["192.0.2.1:443", "0.0.0.0:443", "127.0.0.1:443"].map(|at| at.parse().unwrap());
        let signed = SelfSigned::new(&["www.example.com".to_owned()], &at).unwrap();
        assert_eq!(signed.names, ["www.example.com", "localhost", "127.0.0.1", "::1", "192.0.2.1"]);
        let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
        let directory = signed.directory.path().to_owned();
        assert_eq!((mode(directory.clone()), mode(signed.key())), (0o700, 0o600));
        assert!(fs::read_to_string(signed.certificate()).unwrap().contains("BEGIN CERTIFICATE"));
        drop(signed);
        assert!(!directory.exists());
        let wrong = SelfSigned::new(&["a b".to_owned()], &[]).map(drop).unwrap_err();
        assert_eq!(wrong.exit_kind(), ExitKind::Mistake);
        assert!(wrong.to_string().contains("\"a b\" is neither a host name nor an IP address"), "{wrong}");
    }
}
