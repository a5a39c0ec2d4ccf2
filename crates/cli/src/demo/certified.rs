//! The demonstration's verifiers, and the certificates that the client got from them.

use super::DemoError;
use firstflight::credential::asap::{ClientCertificate, Identity, PrivateKey, certify};
use firstflight::{Certified, Time};
use firstflight_wire::asap::CertificateFlags;
use rand_chacha::ChaCha20Rng;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Duration of the certificates, seconds.
const LASTS: u32 = 1800;

/// A verifier of the demonstration. Its key is not secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certifier(u8);

/// The verifier that the servers trust.
pub const CERTIFIER: Certifier = Certifier(1);
/// A verifier that no server trusts.
const STRANGER: Certifier = Certifier(2);
/// The verifier that a site is for itself.
pub const SITES_OWN: Certifier = Certifier(3);

impl Certifier {
    pub fn key(self) -> PrivateKey {
        PrivateKey::from_seed(&[self.0; 32])
    }

    fn certify(
        self,
        client: IpAddr,
        time: &Time,
        seeds: &mut ChaCha20Rng,
    ) -> Result<Arc<ClientCertificate>, DemoError> {
        let seed = super::world::draw::<32>(seeds);
        let (verifier, key) = (self.key(), PrivateKey::from_seed(&seed));
        let clock = time.certificate_clock().map_err(DemoError::NoClock)?;
        let now = u32::try_from(time.unix().as_secs()).unwrap_or(u32::MAX);
        let body = CertificateFlags::new(1, true, false)
            .and_then(|flags| certify(&verifier, &key.public(), client, now, LASTS, flags));
        let certificate =
            body.and_then(|body| ClientCertificate::new(body, verifier.public(), client, key, clock));
        // This fails only for durations beyond a certificate's maximum.
        certificate.map(Arc::new).ok_or_else(|| DemoError::NoClock(io::ErrorKind::InvalidData.into()))
    }
}

/// Which certificate the client uses, and with which server.
#[derive(Debug, Clone, Copy)]
pub struct DemoCertificate {
    by: Certifier,
    /// The server is known to accept certificates.
    known: bool,
    /// An eavesdropper on the path sends the request a second time.
    pub replayed: bool,
}

impl DemoCertificate {
    /// A certificate of the verifier that the server trusts.
    pub const TRUSTED: Self = Self { by: CERTIFIER, known: true, replayed: false };
    /// Like `TRUSTED`, with a server that the client does not know.
    pub const UNASKED: Self = Self { known: false, ..Self::TRUSTED };
    /// A certificate of another verifier.
    pub const STRANGER: Self = Self { by: STRANGER, ..Self::TRUSTED };
    /// A certificate of a site's own verifier, which the client learnt of.
    pub const LEARNT: Self = Self { by: SITES_OWN, ..Self::TRUSTED };
    /// A request that an eavesdropper sends again.
    pub const REPLAYED: Self = Self { replayed: true, ..Self::TRUSTED };
}

/// The client's certificates.
pub struct Wallet {
    trusted: Arc<ClientCertificate>,
    stranger: Arc<ClientCertificate>,
    /// Of a site's verifier, from the first visit on.
    learnt: Option<Arc<ClientCertificate>>,
    time: Time,
}

impl Wallet {
    /// One certificate by each verifier.
    pub fn new(client: IpAddr, time: &Time, seeds: &mut ChaCha20Rng) -> Result<Self, DemoError> {
        let mut certificate = |by: Certifier| by.certify(client, time, seeds);
        Ok(Self {
            trusted: certificate(CERTIFIER)?,
            stranger: certificate(STRANGER)?,
            learnt: None,
            time: time.clone(),
        })
    }

    /// The client asks the verifier that it learnt of.
    pub fn learn(&mut self, client: IpAddr, seeds: &mut ChaCha20Rng) -> Result<(), DemoError> {
        self.learnt = Some(SITES_OWN.certify(client, &self.time, seeds)?);
        Ok(())
    }

    /// The certificate that the servers trust.
    pub fn trusted(&self) -> Arc<ClientCertificate> {
        Arc::clone(&self.trusted)
    }

    /// The certificate for a connection to `server`.
    pub fn show(&self, shown: DemoCertificate, server: SocketAddr) -> io::Result<Certified> {
        let certificate = match shown.by {
            CERTIFIER => &self.trusted,
            SITES_OWN => self.learnt.as_ref().ok_or(io::ErrorKind::NotFound)?,
            _ => &self.stranger,
        };
        Ok(Certified {
            certificate: Arc::clone(certificate),
            now: self.time.certificate_clock()?,
            identity: identity(server),
            known: shown.known,
            once: false,
            mss: Some(1460),
            request_id: None,
        })
    }
}

/// The identity of the server at `at`.
pub fn identity(at: SocketAddr) -> Identity {
    Identity::address(at.ip(), at.port())
}
