//! A server's certificates, and how files with them are followed.

use crate::error::ConfigError;
use crate::pem;
use firstflight_files::LastProblem;
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

/// How often files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// Where a certificate comes from.
#[derive(Debug)]
pub(super) enum Source {
    Files { chain: PathBuf, key: PathBuf },
    Memory { chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static> },
}

/// Sizes and times of a pair of files.
type Stamp = [Option<(u64, SystemTime)>; 2];

/// One certificate with its chain and key.
#[derive(Debug)]
struct Pair {
    files: Option<(PathBuf, PathBuf)>,
    key: RwLock<Arc<CertifiedKey>>,
    followed: Mutex<Followed>,
}

#[derive(Debug, Default)]
struct Followed {
    stamp: Stamp,
    problem: LastProblem,
}

/// The certificates. It chooses one for each client by the name that the client asks for.
#[derive(Debug)]
pub(super) struct Certificates {
    pairs: Vec<Pair>,
    provider: Arc<CryptoProvider>,
    looked: Mutex<Instant>,
    looking: AtomicBool,
    /// Whether any comes from files.
    follows: bool,
}

fn stamp(chain: &Path, key: &Path) -> Stamp {
    [chain, key].map(|path| {
        let about = fs::metadata(path).ok()?;
        Some((about.len(), about.modified().ok()?))
    })
}

fn load(chain: &Path, key: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, ConfigError> {
    let certificates = pem::certificates(chain)?;
    let read = pem::private_key(key)?;
    CertifiedKey::from_der(certificates, read, provider).map_err(|error| ConfigError::File {
        file: key.to_owned(),
        problem: match error {
            rustls::Error::InconsistentKeys(_) => format!("is not the key of {}", chain.display()),
            error => format!("cannot be used: {error}"),
        },
    })
}

impl Certificates {
    pub(super) fn new(sources: Vec<Source>, provider: Arc<CryptoProvider>) -> Result<Self, ConfigError> {
        if sources.is_empty() {
            return Err(ConfigError::NoCertificate);
        }
        let pairs: Result<Vec<_>, ConfigError> =
            sources.into_iter().map(|source| Pair::new(source, &provider)).collect();
        let pairs = pairs?;
        let follows = pairs.iter().any(|pair| pair.files.is_some());
        let looking = AtomicBool::new(false);
        Ok(Self { pairs, provider, looked: Mutex::new(Instant::now()), looking, follows })
    }

    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether the certificate for clients that ask for nobody is for this name.
    pub(super) fn first_is_for(&self, name: &str) -> bool {
        let name = ServerName::try_from(name);
        name.is_ok_and(|name| self.pairs.first().is_some_and(|pair| is_for(&pair.key(), &name)))
    }

    /// Whether there is a certificate for this name.
    pub(super) fn are_for(&self, name: &str) -> bool {
        let name = ServerName::try_from(name);
        name.is_ok_and(|name| self.pairs.iter().any(|pair| is_for(&pair.key(), &name)))
    }

    /// Reads files again that have changed, if the last look was a second ago. While one task looks, others go on.
    pub(super) async fn refresh(self: &Arc<Self>) {
        if !self.follows || !self.is_time() || self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        let look = tokio::task::spawn_blocking(move || {
            for pair in &this.pairs {
                pair.follow(&this.provider);
            }
            this.looking.store(false, Ordering::Release);
        });
        // It fails only when the runtime shuts down.
        let _ = look.await;
    }

    fn is_time(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = looked.elapsed() >= EVERY;
        if due {
            *looked = Instant::now();
        }
        due
    }
}

impl Pair {
    fn new(source: Source, provider: &CryptoProvider) -> Result<Self, ConfigError> {
        let (key, files, stamp) = match source {
            Source::Memory { chain, key } => {
                (CertifiedKey::from_der(chain, key, provider)?, None, Stamp::default())
            }
            Source::Files { chain, key } => {
                // Before the files are read, so that no change is missed.
                let stamp = stamp(&chain, &key);
                (load(&chain, &key, provider)?, Some((chain, key)), stamp)
            }
        };
        let followed = Mutex::new(Followed { stamp, problem: LastProblem::default() });
        Ok(Self { files, key: RwLock::new(Arc::new(key)), followed })
    }

    fn follow(&self, provider: &CryptoProvider) {
        let Some((chain, key)) = &self.files else { return };
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let found = stamp(chain, key);
        if found == followed.stamp {
            return;
        }
        match load(chain, key, provider) {
            Ok(new) => {
                *self.key.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
                followed.stamp = found;
                followed.problem.over();
                tracing::info!("{} has a new certificate", chain.display());
            }
            // The stamp stays, so the files are read again until they are right.
            Err(error) => {
                if let Some(message) = followed.problem.new_message(&error) {
                    tracing::warn!("the certificate stays as it is: {message}");
                }
            }
        }
    }

    fn key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let parsed = key.end_entity_cert().ok().and_then(|cert| ParsedCertificate::try_from(cert).ok());
    parsed.is_some_and(|cert| verify_server_name(&cert, name).is_ok())
}

impl ResolvesServerCert for Certificates {
    /// The first certificate for the name that the client asks for, or else the first of all.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let named = match (&name, self.pairs.len()) {
            (Some(name), 2..) => self.pairs.iter().map(Pair::key).find(|key| is_for(key, name)),
            _ => None,
        };
        named.or_else(|| self.pairs.first().map(Pair::key))
    }
}
