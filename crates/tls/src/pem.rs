//! Certificates and keys in PEM files (RFC 7468).

use crate::error::ConfigError;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;

/// The longest file with certificates, bytes. A file with all authorities of a system has some 250 KiB.
const LONGEST: usize = 4 << 20;
/// The longest key file, bytes.
const LONGEST_KEY: usize = 64 * 1024;
/// A passphrase would have to be in another file, with the same rights.
const ENCRYPTED: &str = "has an encrypted private key, and nobody is there to type its passphrase: decrypt it once with \
                         `openssl pkey -in KEY -out NEW`, and make NEW 0600";

fn problem(file: &Path, problem: impl ToString) -> ConfigError {
    ConfigError::File { file: file.to_owned(), problem: problem.to_string() }
}

/// The certificates of a file, in its order.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let text = firstflight_files::read(file, LONGEST).map_err(|error| problem(file, error))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match all {
        Ok(all) if all.is_empty() => Err(problem(file, "has no certificate in PEM")),
        Ok(all) => Ok(all),
        Err(_) => Err(problem(file, "is not valid PEM")),
    }
}

/// The private key of a file, which other users must not be able to read.
pub(crate) fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let text = match firstflight_files::read_secret(file, LONGEST_KEY) {
        Ok(text) => text,
        Err(error) => {
            // Certificates are open to everybody. To close this one would not help.
            return Err(match firstflight_files::read(file, LONGEST) {
                Ok(text) if is_certificate(&text) => problem(file, CERTIFICATE),
                _ => problem(file, error),
            });
        }
    };
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| {
        // PKCS #8 (RFC 7468 §11), and OpenSSL's older form (RFC 1421).
        let encrypted =
            text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED");
        let what = match () {
            () if encrypted => ENCRYPTED,
            () if is_certificate(&text) => CERTIFICATE,
            () => "has no private key in PEM",
        };
        problem(file, what)
    })
}

/// The message about a certificate in the place of a key.
const CERTIFICATE: &str =
    "has a certificate and no private key: name the file with the key of that certificate";

/// Whether there is a certificate, and no key.
fn is_certificate(text: &str) -> bool {
    text.contains("-----BEGIN CERTIFICATE-----") && !text.contains("PRIVATE KEY-----")
}

/// The certificates of a file, as authorities that are trusted.
pub(crate) fn roots(file: &Path) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(file)? {
        store.add(certificate).map_err(|_| problem(file, "has a certificate that cannot be an authority"))?;
    }
    Ok(store)
}

#[cfg(test)]
mod tests;
