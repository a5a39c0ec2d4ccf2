//! Settings of a connector.

use super::any_certificate::Any;
use super::{Connector, Shared};
use crate::error::ConfigError;
use crate::groups::{Groups, Hybrid};
use crate::pem;
use crate::sealed::SealClient;
use crate::tickets::Tickets;
use firstflight::Time;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a handshake may take.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
enum Trust {
    #[default]
    Platform,
    Roots(RootCertStore),
    /// Whatever certificate there is.
    Any,
}

/// Settings of a [`Connector`]. All have a default.
#[derive(Debug)]
pub struct ConnectorBuilder {
    trust: Trust,
    certificate: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    alpn: Vec<Vec<u8>>,
    hybrid: Hybrid,
    early_data: bool,
    seal: Option<SealClient>,
    timeout: Duration,
    time: Time,
}

impl Default for ConnectorBuilder {
    fn default() -> Self {
        Self {
            trust: Trust::default(),
            certificate: None,
            alpn: Vec::new(),
            hybrid: Hybrid::default(),
            early_data: true,
            seal: None,
            timeout: TIMEOUT,
            time: Time::system(),
        }
    }
}

impl ConnectorBuilder {
    /// Trusts these certificate authorities and no others. The default is what the platform trusts
    /// (rustls-platform-verifier, feature `platform-verifier`).
    #[must_use]
    pub fn roots(mut self, roots: RootCertStore) -> Self {
        self.trust = Trust::Roots(roots);
        self
    }

    /// Trusts the certificate authorities in this PEM file and no others.
    ///
    /// # Errors
    /// When the file cannot be read or has no authority.
    pub fn ca_file(self, file: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        let roots = pem::roots(&file.into())?;
        Ok(self.roots(roots))
    }

    /// Accepts any certificate, of any name and age. An attacker on the path can then answer in the server's place and read
    /// everything: for tests and measurements only.
    #[must_use]
    pub fn trust_any_certificate(mut self) -> Self {
        self.trust = Trust::Any;
        self
    }

    /// The certificate of this client with its chain, and its key, for servers that ask for one.
    #[must_use]
    pub fn client_certificate(
        mut self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Self {
        self.certificate = Some((chain, key));
        self
    }

    /// Like [`ConnectorBuilder::client_certificate`], from files in PEM.
    ///
    /// # Errors
    /// When a file cannot be read or has not what it should have.
    pub fn client_files(
        self,
        chain: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Result<Self, ConfigError> {
        let chain = pem::certificates(&chain.into())?;
        let key = pem::private_key(&key.into())?;
        Ok(self.client_certificate(chain, key))
    }

    /// The protocols that are offered, best one first (ALPN, RFC 7301). The default is none. A connect with data offers only
    /// the first of them, because the data is in one protocol.
    #[must_use]
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Offers HTTP/2 only.
    #[must_use]
    pub fn h2(self) -> Self {
        self.alpn([crate::H2])
    }

    /// Offers HTTP/1.1 only.
    #[must_use]
    pub fn http1(self) -> Self {
        self.alpn([crate::HTTP_1_1])
    }

    /// Whether the hybrid key exchange is offered.
    #[must_use]
    pub const fn hybrid(mut self, hybrid: Hybrid) -> Self {
        self.hybrid = hybrid;
        self
    }

    /// Whether data that may be executed twice travels as early data if a ticket allows it. The default is true. Early data
    /// has no forward secrecy: who learns the ticket's secret at the server can read it (RFC 8446 §2.3).
    #[must_use]
    pub const fn early_data(mut self, early_data: bool) -> Self {
        self.early_data = early_data;
        self
    }

    /// Seals requests to servers whose keys are known (`docs/spec/sealed.md`): a connect with data sends the ClientHello and
    /// the data encrypted in the first flight, also at the first contact. The data must be a whole request, and the first
    /// protocol of [`ConnectorBuilder::alpn`] is its protocol; without one nothing is sealed.
    /// [`TlsStream::seal_outcome`](crate::TlsStream::seal_outcome) says what became of it.
    ///
    /// Sealed data has no forward secrecy until the server destroys its key, after two days at most.
    #[must_use]
    pub fn seal(mut self, seal: SealClient) -> Self {
        self.seal = Some(seal);
        self
    }

    /// How long a handshake may take, once the connection below is open. The default is ten seconds.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The clocks of timeouts. The default is the system's. The certificates' dates always follow the system's.
    #[must_use]
    pub fn time(mut self, time: Time) -> Self {
        self.time = time;
        self
    }

    /// The connector.
    ///
    /// # Errors
    /// When no authority is trusted, or the client's certificate and key do not fit.
    pub fn build(self) -> Result<Connector, ConfigError> {
        let provider = Groups::HybridFirst.provider();
        // Sessions are tied to these two, so that they are shared by all configurations.
        let verifier = verifier(self.trust, Arc::clone(&provider))?;
        let certificate = match self.certificate {
            Some((chain, key)) => {
                let key = CertifiedKey::from_der(chain, key, &provider)?;
                Some(Arc::new(rustls::sign::SingleCertAndKey::from(key)))
            }
            None => None,
        };
        let alpn = self.alpn;
        let config = |groups: Groups| -> Result<ClientConfig, ConfigError> {
            let builder = ClientConfig::builder_with_provider(groups.provider())
                .with_protocol_versions(&[&rustls::version::TLS13])?
                .dangerous()
                .with_custom_certificate_verifier(Arc::clone(&verifier));
            Ok(match &certificate {
                Some(one) => {
                    builder.with_client_cert_resolver(Arc::<rustls::sign::SingleCertAndKey>::clone(one))
                }
                None => builder.with_no_client_auth(),
            })
        };
        let (in_syn, elsewhere) = (self.hybrid.groups(true), self.hybrid.groups(false));
        let mut configs = [(in_syn, config(in_syn)?), (elsewhere, config(elsewhere)?)];
        // Without a certificate, each has made a resolver of its own.
        let [(_, one), (_, other)] = &mut configs;
        other.client_auth_cert_resolver = Arc::clone(&one.client_auth_cert_resolver);
        let configs = configs.map(|(groups, config)| (groups, Arc::new(config)));
        let (early_data, seal, timeout, time) = (self.early_data, self.seal, self.timeout, self.time);
        let tickets = Arc::new(Tickets::default());
        let agreed_before = false;
        let shared = Shared { configs, alpn, agreed_before, early_data, seal, timeout, time, tickets };
        Ok(Connector { shared: Arc::new(shared) })
    }
}

fn verifier(
    trust: Trust,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, ConfigError> {
    match trust {
        Trust::Any => Ok(Arc::new(Any(provider))),
        Trust::Roots(roots) if roots.is_empty() => Err(ConfigError::NoRoots),
        Trust::Roots(roots) => {
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
            Ok(verifier.map_err(|error| rustls::Error::General(error.to_string()))?)
        }
        #[cfg(feature = "platform-verifier")]
        Trust::Platform => match rustls_platform_verifier::Verifier::new(provider) {
            Ok(verifier) => Ok(Arc::new(verifier)),
            // Its only error of this kind.
            Err(rustls::Error::General(_)) => Err(ConfigError::NoPlatformRoots),
            Err(error) => Err(error.into()),
        },
        #[cfg(not(feature = "platform-verifier"))]
        Trust::Platform => Err(ConfigError::NoRoots),
    }
}
