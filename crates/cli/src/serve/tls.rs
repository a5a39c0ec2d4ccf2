//! TLS of `serve`.

use super::{ServeError, seal};
use crate::error::Error;
use crate::self_signed::SelfSigned;
use firstflight_daemon::Hangup;
use firstflight_redis::RedisStore;
use firstflight_tls::{Acceptor, AcceptorBuilder, HTTP_1_1, SealServer, ServerCertificates};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::task::JoinHandle;

/// The options of TLS.
#[derive(clap::Args)]
pub struct Tls {
    /// Serve https:// with the certificate in this PEM file: the server's, then those that lead to the authority. Read
    /// again when it changes; once more for further names
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Vec<PathBuf>,
    /// PEM file with the private key of the certificate, mode 0600, or of root with 0640; once for each --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Vec<PathBuf>,
    /// For a trial: serve https:// with a certificate that is made now and ends with the command, for localhost and the addresses,
    /// or also for NAME. Clients have to be told to accept it, and the start says how
    #[arg(long, value_name = "NAME,…", num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    #[arg(conflicts_with = "tls_cert")]
    tls_self_signed: Option<Vec<String>>,
}

impl Tls {
    /// Makes the certificate of a trial, if one is wanted, and says so. The server shows it until the value is dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn begin_trial(&mut self, addresses: &[SocketAddr]) -> Result<Option<SelfSigned>, Error> {
        let Some(names) = &self.tls_self_signed else { return Ok(None) };
        let made = SelfSigned::new(names, addresses)?;
        made.say();
        (self.tls_cert, self.tls_key) = (vec![made.certificate()], vec![made.key()]);
        Ok(Some(made))
    }

    /// The acceptor, which takes sealed first flights if there are keys. Without them returns `plain`. The files of the keys
    /// are followed until the second value is dropped.
    ///
    /// # Errors
    /// When a certificate cannot be used.
    pub fn sealing(
        &self,
        plain: Option<Acceptor>,
        keys: Option<seal::Prepared>,
        store: Option<&Arc<RedisStore>>,
    ) -> Result<(Option<Acceptor>, Option<seal::Followed>), Error> {
        let Some(keys) = keys else { return Ok((plain, None)) };
        let (server, followed) = keys.server(store)?;
        let acceptor = self.acceptor(Some(server))?;
        Ok((acceptor, Some(followed)))
    }

    /// The acceptor, if there is a certificate.
    ///
    /// # Errors
    /// When a certificate cannot be used.
    pub fn acceptor(&self, seal: Option<SealServer>) -> Result<Option<Acceptor>, ServeError> {
        if self.tls_cert.len() != self.tls_key.len() {
            return Err(ServeError::TlsPairs);
        }
        if self.tls_cert.is_empty() {
            return Ok(None);
        }
        let pairs = self.tls_cert.iter().zip(&self.tls_key);
        let builder = Acceptor::builder().alpn([HTTP_1_1]);
        let builder = pairs.fold(builder, |builder: AcceptorBuilder, (chain, key)| builder.files(chain, key));
        let builder = seal.into_iter().fold(builder, AcceptorBuilder::seal);
        builder.build().map(Some).map_err(ServeError::Tls)
    }
}

/// Reads certificates after SIGHUP, until this is dropped.
pub struct Followed(JoinHandle<()>);

impl Drop for Followed {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Says what is wrong with the dates of certificates, and reads all of them again after each SIGHUP. Files that change are read
/// by themselves, while there are connections.
///
/// # Errors
/// When the system refuses signals.
pub fn follow(certificates: ServerCertificates) -> Result<Followed, Error> {
    let mut hangup = Hangup::new().map_err(Error::Runtime)?;
    say_problems(&certificates);
    Ok(Followed(tokio::spawn(async move {
        loop {
            hangup.asked().await;
            let certificates = certificates.clone();
            let look = move || {
                certificates.look();
                say_problems(&certificates);
            };
            // It fails only when the runtime shuts down.
            let _ = tokio::task::spawn_blocking(look).await;
        }
    })))
}

fn say_problems(certificates: &ServerCertificates) {
    let problems = certificates.problems(SystemTime::now());
    problems.iter().for_each(|problem| tracing::warn!("{problem}"));
}
