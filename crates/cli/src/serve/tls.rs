//! TLS of `serve`.

use super::ServeError;
use firstflight_tls::{Acceptor, AcceptorBuilder, HTTP_1_1};
use std::path::PathBuf;

/// The options of TLS.
#[derive(clap::Args)]
pub struct Tls {
    /// Serve https:// with the certificate in this PEM file: the server's, then those that lead to the authority. Read
    /// again when it changes; once more for further names
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Vec<PathBuf>,
    /// PEM file with the private key of the certificate, mode 0600; once for each --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Vec<PathBuf>,
}

impl Tls {
    /// The acceptor, if there is a certificate.
    ///
    /// # Errors
    /// When a certificate cannot be used.
    pub fn acceptor(&self) -> Result<Option<Acceptor>, ServeError> {
        if self.tls_cert.len() != self.tls_key.len() {
            return Err(ServeError::TlsPairs);
        }
        if self.tls_cert.is_empty() {
            return Ok(None);
        }
        let pairs = self.tls_cert.iter().zip(&self.tls_key);
        let builder = Acceptor::builder().alpn([HTTP_1_1]);
        let builder = pairs.fold(builder, |builder: AcceptorBuilder, (chain, key)| builder.files(chain, key));
        builder.build().map(Some).map_err(ServeError::Tls)
    }
}
