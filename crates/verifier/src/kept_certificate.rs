//! A certificate that is kept in a file: for one verifier, one start of the machine, one network, and from its first use on one
//! site.

use crate::client::{IssuerAddress, ObtainError, Patience, Wanted, obtain};
use crate::clock::boot_clock;
use crate::pool::{PoolSite, boot_id, is_due, is_usable};
use crate::{LONGEST_DURATION, secure_rng};
use firstflight_credential::NetworkId;
use firstflight_credential::asap::{ClientCertificate, PrivateKey, PublicKey};
use firstflight_files::{
    Format, FormatError, LockError, OpenMode, OtherOwner, ReadError, StateFile, from_hex, to_hex,
};
use firstflight_wire::Instant;
use firstflight_wire::asap::{CERTIFICATE_LEN, CertificateBody};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroize;

/// The file. It has the client's private key.
const FORMAT: Format = Format { version: 2, longest: 64 << 10, secret: true };

/// What the file says.
#[derive(Serialize, Deserialize)]
struct Content {
    /// Changes at every start of the machine.
    boot: String,
    network: String,
    site: Option<String>,
    verifier: String,
    /// Where the verifier can be asked for the next one. `None`: it has vantage points, which the file does not have.
    asked: Option<SocketAddr>,
    address: IpAddr,
    certificate: String,
    /// The client's private key, which is secret.
    key: String,
    /// Nanoseconds since the machine started.
    obtained: u64,
}

impl Drop for Content {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Content {
    fn new(
        certificate: &ClientCertificate,
        network: NetworkId,
        site: Option<&PoolSite>,
        asked: Option<SocketAddr>,
    ) -> Self {
        Self {
            boot: boot_id(),
            network: to_hex(&network.0).to_string(),
            site: site.map(PoolSite::to_string),
            verifier: certificate.verifier().to_string(),
            asked,
            address: certificate.address(),
            certificate: to_hex(&certificate.body().to_bytes()).to_string(),
            key: to_hex(&*certificate.key().to_seed()).to_string(),
            obtained: certificate.obtained().as_nanos(),
        }
    }

    fn certificate(&self) -> Option<ClientCertificate> {
        let verifier = self.verifier.parse().ok()?;
        let body = CertificateBody::parse(&*from_hex::<CERTIFICATE_LEN>(&self.certificate)?).ok()?;
        let key = PrivateKey::from_seed(&*from_hex(&self.key)?);
        ClientCertificate::new(body, verifier, self.address, key, Instant::from_nanos(self.obtained))
    }

    fn network(&self) -> Option<NetworkId> {
        from_hex(&self.network).map(|bytes| NetworkId(*bytes))
    }
}

/// A certificate and its key in a file. While this exists, no other program can use the file.
///
/// The file has the mode 0600. Who reads it can link what this host does with the certificate, and use it from its address.
#[derive(Debug)]
pub struct KeptCertificate {
    file: StateFile,
    certificate: Arc<ClientCertificate>,
    network: NetworkId,
    site: Option<PoolSite>,
    asked: Option<SocketAddr>,
}

impl KeptCertificate {
    /// Writes a certificate that was obtained on this network from the verifier at `asked`, which has no vantage points. A file of
    /// this name is replaced.
    ///
    /// # Errors
    /// When another program uses the file, or it cannot be written. An existing file then stays as it was.
    pub fn create(
        path: &Path,
        certificate: ClientCertificate,
        network: NetworkId,
        asked: Option<SocketAddr>,
    ) -> Result<Self, KeptError> {
        let file = lock(path)?;
        let kept = Self { file, certificate: Arc::new(certificate), network, site: None, asked };
        kept.write()?;
        Ok(kept)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// When it cannot be read or is used by another program, is no such file, or its certificate is of no use any more.
    pub fn open(path: &Path) -> Result<Self, KeptError> {
        let file = lock(path)?;
        let content: Content = match FORMAT.read(path) {
            Ok(Some(content)) => content,
            Ok(None) => return Err(KeptError::Read(path.to_owned(), io::ErrorKind::NotFound.into())),
            Err(error) => return Err(read_error(path, error)),
        };
        let refuse = |why| KeptError::Refused(path.to_owned(), why);
        let damaged = || refuse(NotUsed::Damaged);
        let certificate = content.certificate().ok_or_else(damaged)?;
        let network = content.network().ok_or_else(damaged)?;
        let now = boot_clock().map_err(|error| KeptError::Read(path.to_owned(), error))?;
        if content.boot != boot_id() || certificate.obtained() > now {
            return Err(refuse(NotUsed::OtherBoot));
        }
        if !is_usable(&certificate, now) {
            return Err(refuse(NotUsed::Over));
        }
        let site = content.site.as_deref().map(PoolSite::new);
        Ok(Self { file, certificate: Arc::new(certificate), network, site, asked: content.asked })
    }

    /// The certificate, for first flights to `site` from this network. From now on it is this site's: the file says so before the
    /// certificate is shown to anybody.
    ///
    /// # Errors
    /// When it is another site's or of another network, or the file cannot be written.
    pub fn use_for(
        &mut self,
        site: &PoolSite,
        network: NetworkId,
    ) -> Result<Arc<ClientCertificate>, KeptError> {
        let refuse = |why| Err(KeptError::Refused(self.file.path().to_owned(), why));
        if !network.is_known() {
            return refuse(NotUsed::UnknownNetwork);
        }
        if network != self.network {
            return refuse(NotUsed::OtherNetwork);
        }
        match &self.site {
            Some(own) if own != site => return refuse(NotUsed::OtherSite(own.clone())),
            Some(_) => {}
            None => {
                self.site = Some(site.clone());
                self.write()?;
            }
        }
        Ok(Arc::clone(&self.certificate))
    }

    /// The verifier to ask for a new certificate, if it is time to renew this one ([`CertificatePool`](crate::CertificatePool)
    /// renews then, too). `None` before, and if the file does not say where to ask.
    #[must_use]
    pub fn due(&self) -> Option<IssuerAddress> {
        let due = boot_clock().is_ok_and(|now| is_due(&self.certificate, now));
        self.asked.filter(|_| due).map(|at| IssuerAddress::new(at, *self.certificate.verifier()))
    }

    /// Replaces the certificate by its renewal, which is for the same site on the same network. The file is written first.
    ///
    /// # Errors
    /// When the file cannot be written, or the certificate is by another verifier.
    pub fn renew(&mut self, certificate: ClientCertificate) -> Result<(), KeptError> {
        if certificate.verifier() != self.certificate.verifier() {
            return Err(KeptError::Refused(self.file.path().to_owned(), NotUsed::Damaged));
        }
        let former = std::mem::replace(&mut self.certificate, Arc::new(certificate));
        self.write().inspect_err(|_| self.certificate = former)
    }

    /// Asks the verifier for a new certificate if that is due ([`KeptCertificate::due`]), as long as the verifier gives one, and
    /// writes it in place ([`KeptCertificate::renew`]). Returns whether there is a new one.
    ///
    /// # Errors
    /// When the verifier gives none, or the file cannot be written. Until its end the former certificate is good, and a later
    /// call tries again.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn renew_if_due(&mut self, patience: &Patience) -> Result<bool, RenewError> {
        let Some(from) = self.due() else { return Ok(false) };
        let key = PrivateKey::generate(&mut secure_rng().map_err(ObtainError::System)?);
        let wanted = Wanted { key, wished: LONGEST_DURATION, old: Some(&self.certificate) };
        let next = obtain(&from, wanted, patience).await?;
        self.renew(next)?;
        Ok(true)
    }

    /// The certificate. Use [`KeptCertificate::use_for`] to show it to a server.
    #[must_use]
    pub fn certificate(&self) -> &Arc<ClientCertificate> {
        &self.certificate
    }

    /// The key of its verifier.
    #[must_use]
    pub fn verifier(&self) -> &PublicKey {
        self.certificate.verifier()
    }

    /// The network on which it was obtained.
    #[must_use]
    pub const fn network(&self) -> NetworkId {
        self.network
    }

    /// The site that it was used for.
    #[must_use]
    pub const fn site(&self) -> Option<&PoolSite> {
        self.site.as_ref()
    }

    /// How long it can still be used.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        boot_clock().map_or(Duration::ZERO, |now| self.certificate.remaining(now))
    }

    fn write(&self) -> Result<(), KeptError> {
        let content = Content::new(&self.certificate, self.network, self.site.as_ref(), self.asked);
        let path = self.file.path();
        FORMAT.write(path, &content).map_err(|error| KeptError::Write(path.to_owned(), error))
    }
}

fn lock(path: &Path) -> Result<StateFile, KeptError> {
    StateFile::lock(path).map_err(|error| match error {
        LockError::Held => KeptError::Held(path.to_owned()),
        LockError::Io(error) => KeptError::Write(path.to_owned(), error),
    })
}

fn read_error(path: &Path, error: FormatError) -> KeptError {
    match error {
        FormatError::Read(ReadError::Io(error)) => KeptError::Read(path.to_owned(), error),
        FormatError::Read(ReadError::Open(mode)) => KeptError::Open(path.to_owned(), mode),
        FormatError::Read(ReadError::Foreign(owner)) => KeptError::Foreign(path.to_owned(), owner),
        error => KeptError::Format(path.to_owned(), error),
    }
}

/// Why a certificate in a file is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotUsed {
    /// Its content does not fit together.
    #[error("its certificate is wrong")]
    Damaged,
    /// Its time can no longer be counted.
    #[error("it is from before the machine was last started, so its time cannot be counted")]
    OtherBoot,
    /// It has ended, or is about to.
    #[error("it is over, or almost")]
    Over,
    /// This host's network has no id, so that nobody can tell whether it is the one of the certificate.
    #[error("it is for one network, and this one cannot be told from others: name it with --network-id")]
    UnknownNetwork,
    /// It was obtained on another network.
    #[error("it was obtained on another network")]
    OtherNetwork,
    /// It was used for another site, which would see the same key.
    #[error("it was used for {0}, and a key is shown to one site only")]
    OtherSite(PoolSite),
}

/// Why a file with a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// Another program uses it.
    #[error("another program uses the certificate in {0}")]
    Held(PathBuf),
    /// It cannot be read.
    #[error("cannot read the certificate in {0}: {1}")]
    Read(PathBuf, io::Error),
    /// Other users can read or change it. Contains its mode. Its creator is at fault.
    #[error("{0} {mode}", mode = OpenMode(*.1))]
    Open(PathBuf, u32),
    /// It belongs to this other user. Its creator is at fault.
    #[error("{0} {owner}", owner = OtherOwner(*.1))]
    Foreign(PathBuf, u32),
    /// It holds no certificate of this version.
    #[error("{0} holds no certificate of this version: {1}")]
    Format(PathBuf, FormatError),
    /// It cannot be written.
    #[error("cannot write the certificate to {0}: {1}")]
    Write(PathBuf, io::Error),
    /// The certificate is of no use here and now.
    #[error("the certificate in {0} is not used: {1}; get another one with firstflight certificate get -o")]
    Refused(PathBuf, NotUsed),
}

/// Why a certificate in a file was not renewed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// The verifier gave no new one.
    #[error(transparent)]
    Obtain(#[from] ObtainError),
    /// The new one cannot be written.
    #[error(transparent)]
    Kept(#[from] KeptError),
}

#[cfg(test)]
#[path = "kept_certificate_tests.rs"]
mod tests;
