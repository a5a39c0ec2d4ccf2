//! A pool in a file. Its times are those of a clock that starts with the machine, so the file is of no use
//! after a restart of the machine.

use super::site::PoolSite;
use super::state::State;
use firstflight_credential::NetworkId;
use firstflight_credential::asap::{ClientCertificate, PrivateKey};
use firstflight_files::{Format, FormatError, OpenMode, OtherOwner, ReadError, from_hex, to_hex};
use firstflight_wire::Instant;
use firstflight_wire::asap::{CERTIFICATE_LEN, CertificateBody};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use zeroize::Zeroize;

/// The file. It has the clients' private keys.
const FORMAT: Format = Format { version: 1, longest: 16 << 20, secret: true };
/// This id changes at every start of the machine (Linux, `random(4)`).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Serialize, Deserialize)]
struct Content {
    boot: String,
    certificates: Vec<Saved>,
}

/// One certificate.
#[derive(Serialize, Deserialize)]
pub(super) struct Saved {
    network: String,
    verifier: String,
    address: IpAddr,
    certificate: String,
    /// The client's private key, which is secret.
    key: String,
    /// Nanoseconds since the machine started.
    obtained: u64,
    site: Option<String>,
}

impl Drop for Saved {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

impl Saved {
    fn of(network: NetworkId, site: Option<&PoolSite>, certificate: &ClientCertificate) -> Self {
        Self {
            network: to_hex(&network.0).to_string(),
            verifier: certificate.verifier().to_string(),
            address: certificate.address(),
            certificate: to_hex(&certificate.body().to_bytes()).to_string(),
            key: to_hex(&*certificate.key().to_seed()).to_string(),
            obtained: certificate.obtained().as_nanos(),
            site: site.map(PoolSite::to_string),
        }
    }

    /// The certificate. `None` if it is invalid or from the future.
    fn certificate(&self, now: Instant) -> Option<ClientCertificate> {
        let verifier = self.verifier.parse().ok()?;
        let body = CertificateBody::parse(&*from_hex::<CERTIFICATE_LEN>(&self.certificate)?).ok()?;
        let key = PrivateKey::from_seed(&*from_hex(&self.key)?);
        let obtained = Some(Instant::from_nanos(self.obtained)).filter(|obtained| *obtained <= now)?;
        ClientCertificate::new(body, verifier, self.address, key, obtained)
    }

    fn restore(&self, state: &mut State, now: Instant) -> Option<()> {
        let network = NetworkId(*from_hex(&self.network)?);
        let certificate = self.certificate(now)?;
        let issuer = (state.issuers.iter()).position(|issuer| {
            issuer.key == *certificate.verifier() && issuer.address.is_ipv4() == self.address.is_ipv4()
        })?;
        state.restore(network, issuer, self.site.as_deref().map(PoolSite::new), certificate);
        Some(())
    }
}

/// Loads the certificates of the file into `state`. Leaves out those that do not fit. A missing file counts
/// as an empty one.
pub(super) fn load(path: &Path, state: &mut State, now: Instant) -> Result<(), PoolFileError> {
    let Some(content) = read(path)?.filter(|content| content.boot == boot_id()) else { return Ok(()) };
    for saved in &content.certificates {
        if saved.restore(state, now).is_none() {
            tracing::debug!("a saved certificate is left out");
        }
    }
    Ok(())
}

/// The certificates of a pool that its file holds.
pub(super) fn to_save(state: &State) -> Vec<Saved> {
    let mut certificates = Vec::new();
    for (&(network, _), shelf) in &state.shelves {
        // An unknown network cannot be recognised later.
        if !network.is_known() {
            continue;
        }
        let fresh = shelf.fresh.iter().map(|held| (None, held));
        let sites = shelf.sites.iter().map(|(site, held)| (Some(site), held));
        certificates
            .extend(fresh.chain(sites).map(|(site, held)| Saved::of(network, site, &held.certificate)));
    }
    certificates
}

/// Writes the whole file.
pub(super) fn save(path: &Path, certificates: Vec<Saved>) -> Result<(), PoolFileError> {
    write(path, certificates)
}

/// The content of a file. `None` if the file does not exist.
fn read(path: &Path) -> Result<Option<Content>, PoolFileError> {
    FORMAT.read(path).map_err(|error| match error {
        FormatError::Read(ReadError::Io(error)) => PoolFileError::Read(path.to_owned(), error),
        FormatError::Read(ReadError::Open(mode)) => PoolFileError::Open(path.to_owned(), mode),
        FormatError::Read(ReadError::Foreign(owner)) => PoolFileError::Foreign(path.to_owned(), owner),
        error => PoolFileError::Format(path.to_owned(), error),
    })
}

fn write(path: &Path, certificates: Vec<Saved>) -> Result<(), PoolFileError> {
    let content = Content { boot: boot_id(), certificates };
    FORMAT.write(path, &content).map_err(|error| PoolFileError::Write(path.to_owned(), error))
}

/// Empty on a system without such an id. A file from there is then loaded only on a system without one.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Why a pool's file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolFileError {
    /// It cannot be read.
    #[error("cannot read the certificates in {0}: {1}")]
    Read(PathBuf, io::Error),
    /// Other users can read or change it. Contains its mode. Its creator is at fault.
    #[error("{0} {mode}", mode = OpenMode(*.1))]
    Open(PathBuf, u32),
    /// It belongs to this other user. Its creator is at fault.
    #[error("{0} {owner}", owner = OtherOwner(*.1))]
    Foreign(PathBuf, u32),
    /// It is not a pool of this version.
    #[error("{0} holds no certificates of this version: {1}")]
    Format(PathBuf, FormatError),
    /// It cannot be written.
    #[error("cannot write the certificates to {0}: {1}")]
    Write(PathBuf, io::Error),
}
