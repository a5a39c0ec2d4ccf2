//! The demonstration's verifiers, and what the client got from them.

use crate::error::Error;
use firstflight::credential::asap::{ClientCertificate, Identity, PrivateKey, certify};
use firstflight::wire::asap::CertificateFlags;
use firstflight::{Certified, Time};
use rand_chacha::ChaCha20Rng;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Certificates last so long, seconds.
const LASTS: u32 = 1800;

/// A verifier of the demonstration: its key is no secret.
#[derive(Debug, Clone, Copy)]
pub struct Certifier(u8);

/// The one that the servers trust.
pub const CERTIFIER: Certifier = Certifier(1);
/// One that nobody trusts.
const STRANGER: Certifier = Certifier(2);

impl Certifier {
    /// Its key.
    pub fn key(self) -> PrivateKey {
        PrivateKey::from_seed(&[self.0; 32])
    }

    fn certify(
        self,
        client: IpAddr,
        time: &Time,
        seeds: &mut ChaCha20Rng,
    ) -> Result<Arc<ClientCertificate>, Error> {
        let seed = super::draw::<32>(seeds);
        let (verifier, key) = (self.key(), PrivateKey::from_seed(&seed));
        let clock = time.certificate_clock().map_err(Error::NoClock)?;
        let now = u32::try_from(time.unix().as_secs()).unwrap_or(u32::MAX);
        let body = CertificateFlags::new(1, true, false)
            .and_then(|flags| certify(&verifier, &key.public(), client, now, LASTS, flags));
        let certificate =
            body.and_then(|body| ClientCertificate::new(body, verifier.public(), client, key, clock));
        // It fails for durations beyond a certificate's.
        certificate.map(Arc::new).ok_or_else(|| Error::NoClock(io::ErrorKind::InvalidData.into()))
    }
}

/// What the client shows, and to whom.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    by: Certifier,
    /// The server is known to take certificates.
    known: bool,
    /// Somebody on the path sends the request a second time.
    pub replayed: bool,
}

impl Shown {
    /// By the verifier that the server trusts.
    pub const TRUSTED: Self = Self { by: CERTIFIER, known: true, replayed: false };
    /// The same, to a server of which nothing is known.
    pub const UNASKED: Self = Self { known: false, ..Self::TRUSTED };
    /// By another verifier.
    pub const STRANGER: Self = Self { by: STRANGER, ..Self::TRUSTED };
    /// Overheard and sent again.
    pub const REPLAYED: Self = Self { replayed: true, ..Self::TRUSTED };
}

/// The client's certificates.
pub struct Wallet {
    trusted: Arc<ClientCertificate>,
    stranger: Arc<ClientCertificate>,
    time: Time,
}

impl Wallet {
    /// One certificate by each verifier.
    pub fn new(client: IpAddr, time: &Time, seeds: &mut ChaCha20Rng) -> Result<Self, Error> {
        let mut certificate = |by: Certifier| by.certify(client, time, seeds);
        Ok(Self { trusted: certificate(CERTIFIER)?, stranger: certificate(STRANGER)?, time: time.clone() })
    }

    /// For a connect to `server`.
    pub fn show(&self, shown: Shown, server: SocketAddr) -> io::Result<Certified> {
        let certificate = if shown.by.0 == CERTIFIER.0 { &self.trusted } else { &self.stranger };
        Ok(Certified {
            certificate: Arc::clone(certificate),
            now: self.time.certificate_clock()?,
            identity: identity(server),
            known: shown.known,
            once: false,
            mss: Some(1460),
        })
    }
}

/// What the server at `at` is called.
pub fn identity(at: SocketAddr) -> Identity {
    Identity::address(at.ip(), at.port())
}
