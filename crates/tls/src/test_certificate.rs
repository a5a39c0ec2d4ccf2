//! Certificates for trials.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    SanType, date_time_ymd,
};
use rustls::pki_types::DnsName;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, SystemTimeError};
use zeroize::{Zeroize, Zeroizing};

/// A certificate for a trial, signed by its own key (ECDSA, P-256). A client accepts it if it is told to trust it:
/// `get --cacert FILE`, `curl --cacert FILE`, [`ConnectorBuilder::ca_file`](crate::ConnectorBuilder::ca_file). It is not an
/// authority, so it can vouch for nothing else.
///
/// ```
/// use firstflight_tls::TestCertificate;
/// use std::time::Duration;
/// let made = TestCertificate::new(["localhost", "127.0.0.1"], Duration::from_secs(86_400))?;
/// assert!(made.certificate().starts_with("-----BEGIN CERTIFICATE-----"));
/// assert!(made.key().starts_with("-----BEGIN PRIVATE KEY-----"));
/// # Ok::<(), firstflight_tls::TestCertificateError>(())
/// ```
pub struct TestCertificate {
    certificate: String,
    key: Zeroizing<String>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestCertificateError {
    /// The caller named no host.
    #[error("a certificate needs the name or the address of a host")]
    NoName,
    /// The caller's name is not one of a host.
    #[error(
        "{0:?} is neither a host name nor an IP address: write www.example.com, *.example.com or 127.0.0.1"
    )]
    Name(String),
    /// The clock of this machine cannot be right, or the certificate would end too far in the future.
    #[error("this machine's clock cannot be right: {0}")]
    Clock(#[from] SystemTimeError),
    /// The key or the certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl std::fmt::Debug for TestCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestCertificate").finish_non_exhaustive()
    }
}

impl TestCertificate {
    /// A new key, and a certificate of it for these host names and IP addresses. It is valid from an hour ago, because clocks
    /// differ, until `lifetime` from now.
    ///
    /// # Errors
    /// When there is no name, a name is not valid, or the system gives no random numbers.
    pub fn new<N: AsRef<str>>(
        names: impl IntoIterator<Item = N>,
        lifetime: Duration,
    ) -> Result<Self, TestCertificateError> {
        const HOUR: Duration = Duration::from_secs(3600);
        let names: Vec<_> = names.into_iter().map(|name| host(name.as_ref())).collect::<Result<_, _>>()?;
        if names.is_empty() {
            return Err(TestCertificateError::NoName);
        }
        let now = date_time_ymd(1970, 1, 1) + SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "firstflight test certificate");
        params.subject_alt_names = names;
        params.not_before = now - HOUR;
        params.not_after = now + lifetime;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut key = KeyPair::generate()?;
        let certificate = params.self_signed(&key).map(|certificate| certificate.pem());
        let text = Zeroizing::new(key.serialize_pem());
        key.zeroize();
        Ok(Self { certificate: certificate?, key: text })
    }

    /// The certificate in PEM. It is what the server shows, and what clients have to trust.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The private key in PEM (PKCS #8). It is secret.
    pub fn key(&self) -> &str {
        &self.key
    }
}

fn host(name: &str) -> Result<SanType, TestCertificateError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let wrong = || TestCertificateError::Name(name.to_owned());
    // One label may be a wildcard (RFC 9525 §6.3).
    let checked = name.strip_prefix("*.").unwrap_or(name);
    // A name whose last label is a number is a mistyped address.
    let last = checked.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    if DnsName::try_from(checked).is_err() || last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    Ok(SanType::DnsName(name.try_into().map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests;
