//! The demonstration's verifiers, and what the client got from them.

use crate::error::Error;
use firstflight::Certified;
use firstflight::credential::asap::{ClientCertificate, Identity, PrivateKey, certify};
use firstflight::wire::asap::CertificateFlags;
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

    fn certify(self, client: IpAddr) -> Result<Arc<ClientCertificate>, Error> {
        let mut seed = zeroize::Zeroizing::new([0; 32]);
        firstflight::random_bytes(&mut *seed).map_err(Error::Random)?;
        let (verifier, key) = (self.key(), PrivateKey::from_seed(&seed));
        let clock = firstflight::certificate_clock().map_err(Error::NoClock)?;
        let now = u32::try_from(firstflight::unix_ms() / 1000).unwrap_or(u32::MAX);
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
}

impl Wallet {
    /// One certificate by each verifier.
    pub fn new(client: IpAddr) -> Result<Self, Error> {
        Ok(Self { trusted: CERTIFIER.certify(client)?, stranger: STRANGER.certify(client)? })
    }

    /// For a connect to `server`.
    pub fn show(&self, shown: Shown, server: SocketAddr) -> io::Result<Certified> {
        let certificate = if shown.by.0 == CERTIFIER.0 { &self.trusted } else { &self.stranger };
        Ok(Certified {
            certificate: Arc::clone(certificate),
            now: firstflight::certificate_clock()?,
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
