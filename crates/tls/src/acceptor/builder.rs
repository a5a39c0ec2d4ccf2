//! Settings of an acceptor.

use super::certificates::{Certificates, Source};
use super::{Acceptor, Shared, Tickets};
use crate::error::ConfigError;
use crate::groups::Groups;
use crate::pem;
use crate::sealed::SealServer;
use crate::store::MemorySessions;
use firstflight::Time;
use rustls::compress::CompressionCache;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a handshake may take, until `accept` returns.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Early data that a client may send, bytes. It is kept in memory until the application reads it.
const EARLY_DATA: u32 = 16 * 1024;

/// Whether clients have certificates.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum ClientCertificates {
    /// They are not asked for.
    #[default]
    None,
    /// They may have one, of these authorities.
    Optional(Arc<RootCertStore>),
    /// They must have one, of these authorities.
    Required(Arc<RootCertStore>),
}

/// Settings of an [`Acceptor`]. A certificate is needed; all else has a default.
#[derive(Debug)]
pub struct AcceptorBuilder {
    sources: Vec<Source>,
    alpn: Vec<Vec<u8>>,
    clients: ClientCertificates,
    early_data: u32,
    tickets: Tickets,
    seal: Option<SealServer>,
    timeout: Duration,
    time: Time,
}

impl Default for AcceptorBuilder {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            alpn: Vec::new(),
            clients: ClientCertificates::None,
            early_data: EARLY_DATA,
            tickets: Tickets::Sessions(Arc::new(MemorySessions::default())),
            seal: None,
            timeout: TIMEOUT,
            time: Time::system(),
        }
    }
}

impl AcceptorBuilder {
    /// A certificate and its key in files: the server's certificate, then those that lead to the authority, in PEM. The
    /// files are looked at once a second while there are accepts, and read again when they change. If they are not right
    /// then, the old certificate stays, and a line in the log says why, once.
    ///
    /// With several certificates each client gets the first one for its name whose signatures it can verify, as at nginx and
    /// HAProxy: a name may have one of RSA beside one of ECDSA. A client that names nobody, or a name without a certificate,
    /// gets the first of all, or one with the same names.
    #[must_use]
    pub fn files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.sources.push(Source::Files { chain: chain.into(), key: key.into() });
        self
    }

    /// A certificate with its chain, and its key.
    #[must_use]
    pub fn certificate(mut self, chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        self.sources.push(Source::Memory { chain, key });
        self
    }

    /// The protocols that the server speaks, best one first (ALPN, RFC 7301). The default is none: then any client is
    /// accepted, and nothing is agreed on.
    #[must_use]
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Whether clients have certificates. If they are asked for one, nothing runs before the client's Finished, because
    /// the client is not known before: [`Acceptor::accept`] waits for it, and no early data is taken. A client that resumes
    /// a session has the certificate of that session.
    #[must_use]
    pub fn clients(mut self, clients: ClientCertificates) -> Self {
        self.clients = clients;
        self
    }

    /// Like [`AcceptorBuilder::clients`] with [`ClientCertificates::Required`], of the authorities in a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read or has no authority.
    pub fn client_ca_file(self, file: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        let roots = Arc::new(pem::roots(&file.into())?);
        Ok(self.clients(ClientCertificates::Required(roots)))
    }

    /// How many bytes of early data a client may send; 0 switches it off. The default is 16 KiB. It needs
    /// [`Tickets::Sessions`].
    #[must_use]
    pub const fn early_data(mut self, bytes: u32) -> Self {
        self.early_data = bytes;
        self
    }

    /// How sessions are resumed. The default is [`Tickets::Sessions`] with [`MemorySessions::default`].
    #[must_use]
    pub fn tickets(mut self, tickets: Tickets) -> Self {
        self.tickets = tickets;
        self
    }

    /// Takes sealed first flights (`docs/spec/sealed.md`) beside TLS on the same port. It needs
    /// [`AcceptorBuilder::alpn`]. [`TlsStream::sealed_info`](crate::TlsStream::sealed_info) says which connections began with one.
    ///
    /// The first bytes that such a stream reads are the sealed request. [`Acceptor::accept`] returns at once if it runs
    /// early: it is new, and the client says that it may be executed more than once, or its credential block vouches for
    /// it. Otherwise the accept waits for the client's Finished.
    #[must_use]
    pub fn seal(mut self, seal: SealServer) -> Self {
        self.seal = Some(seal);
        self
    }

    /// How long [`Acceptor::accept`] may take. The default is ten seconds.
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

    /// The acceptor.
    ///
    /// # Errors
    /// When there is no certificate, or one cannot be used.
    pub fn build(self) -> Result<Acceptor, ConfigError> {
        if self.seal.is_some() && self.alpn.is_empty() {
            return Err(ConfigError::SealWithoutProtocol);
        }
        let provider = Groups::HybridFirst.provider();
        let certificates = Arc::new(Certificates::new(self.sources, Arc::clone(&provider))?);
        let (roots, required) = match self.clients {
            ClientCertificates::None => (None, false),
            ClientCertificates::Optional(roots) => (Some(roots), false),
            ClientCertificates::Required(roots) => (Some(roots), true),
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let asks = roots.is_some();
        let builder = match roots {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                let verifier = if required { verifier } else { verifier.allow_unauthenticated() };
                let verifier = verifier.build().map_err(|error| rustls::Error::General(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::<Certificates>::clone(&certificates));
        config.alpn_protocols = self.alpn;
        config.send_half_rtt_data = !asks;
        config.max_early_data_size = if asks { 0 } else { self.early_data };
        config.session_storage = Arc::new(NoServerSessionStorage {});
        // Certificates go compressed to clients that say so (RFC 8879). Each is compressed once.
        config.cert_compression_cache = Arc::new(CompressionCache::new(certificates.len()));
        let mut without_sessions = config.clone();
        (without_sessions.max_early_data_size, without_sessions.send_tls13_tickets) = (0, 0);
        let store = match self.tickets {
            Tickets::None => {
                config.send_tls13_tickets = 0;
                None
            }
            Tickets::Sessions(store) => Some(store),
            Tickets::Farm(tickets) => {
                // rustls does not take early data with these.
                config.max_early_data_size = 0;
                config.ticketer = tickets;
                None
            }
        };
        let (config, without_sessions) = (Arc::new(config), Arc::new(without_sessions));
        let (seal, timeout, time) = (self.seal, self.timeout, self.time);
        let shared = Shared { config, without_sessions, certificates, store, asks, seal, timeout, time };
        Ok(Acceptor { shared: Arc::new(shared) })
    }
}
