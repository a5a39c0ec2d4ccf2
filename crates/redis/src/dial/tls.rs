//! TLS to the store. The certificate is checked by the name or the IP address in the store's address.

use super::Access;
use crate::error::AccessError;
use firstflight_files::{ReadError, read, read_secret};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The longest PEM file, bytes: a file with all public authorities has some 250,000.
const LONGEST_PEM: usize = 1 << 20;

/// What a connection needs, from the files of `access`.
pub(super) fn config(access: &Access) -> Result<Arc<ClientConfig>, AccessError> {
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(AccessError::Tls)?;
    let builder = match &access.authorities {
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|_| AccessError::NoCertificate(path.clone()))?;
            }
            builder.with_root_certificates(roots)
        }
        None => {
            let verifier = Verifier::new(provider).map_err(AccessError::Tls)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let config = match &access.certificate {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let (ours, secret) = (certificates(chain)?, private_key(key)?);
            builder.with_client_auth_cert(ours, secret).map_err(AccessError::Tls)?
        }
    };
    Ok(Arc::new(config))
}

/// Makes the handshake with the server `host`.
pub(super) async fn wrap(
    config: Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    TlsConnector::from(config).connect(name, stream).await
}

fn unreadable(path: &Path) -> impl Fn(ReadError) -> AccessError {
    |error| AccessError::Unreadable(path.to_owned(), error)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, AccessError> {
    let text = read(path, LONGEST_PEM).map_err(unreadable(path))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| AccessError::NoCertificate(path.to_owned()))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, AccessError> {
    let text = read_secret(path, LONGEST_PEM).map_err(unreadable(path))?;
    PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| AccessError::NoKey(path.to_owned()))
}
