//! A server's certificates, and how files with them are followed.

use crate::error::ConfigError;
use crate::pem;
use firstflight_files::{FileStamp, LastProblem};
use rustls::SignatureScheme;
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

/// How often files are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// Where a certificate comes from.
#[derive(Debug)]
pub(super) enum Source {
    Files { chain: PathBuf, key: PathBuf },
    Memory { chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static> },
}

/// One certificate with its chain and key.
#[derive(Debug)]
struct Pair {
    files: Option<(PathBuf, PathBuf)>,
    loaded: RwLock<Arc<Loaded>>,
    followed: Mutex<Followed>,
}

/// A certificate that was read.
#[derive(Debug)]
pub(super) struct Loaded {
    key: Arc<CertifiedKey>,
    /// The extension with the names. Certificates of one site have the same.
    names: Vec<u8>,
    valid: [SystemTime; 2],
}

#[derive(Debug)]
struct Followed {
    seen: [FileStamp; 2],
    problem: LastProblem,
}

/// The certificates. It chooses one for each client by the name that the client asks for, and by what it can verify.
#[derive(Debug)]
pub(super) struct Certificates {
    pairs: Vec<Pair>,
    provider: Arc<CryptoProvider>,
    looked: Mutex<Instant>,
    looking: AtomicBool,
    /// Whether any comes from files.
    follows: bool,
}

/// A certificate that a server, or a client, shows, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServedCertificate {
    /// The file that it was read from.
    pub chain: Option<PathBuf>,
    /// Since when it is valid.
    pub begins: SystemTime,
    /// When it ends.
    pub ends: SystemTime,
}

impl ServedCertificate {
    /// The first certificate of a file.
    ///
    /// # Errors
    /// When the file cannot be read, or has no certificate.
    pub fn read(chain: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        let chain = chain.into();
        let certificates = pem::certificates(&chain)?;
        let parsed = certificates.first().and_then(|first| facts(first));
        let (_, [begins, ends]) = parsed.ok_or_else(|| not_x509(&chain))?;
        Ok(Self { chain: Some(chain), begins, ends })
    }

    /// Why its peers refuse it at this time, as a sentence. `None` if its dates are right.
    #[must_use]
    pub fn problem(&self, now: SystemTime) -> Option<String> {
        let chain =
            self.chain.as_ref().map_or_else(|| "a certificate".into(), |chain| chain.to_string_lossy());
        let at = |time| humantime::format_rfc3339_seconds(time);
        if now > self.ends {
            return Some(format!("{chain} ended at {}: renew the certificate", at(self.ends)));
        }
        (now < self.begins).then(|| {
            format!(
                "{chain} is not valid before {}: look whether this machine's clock is right",
                at(self.begins)
            )
        })
    }
}

/// New certificates, which are read but not used yet.
#[derive(Debug)]
pub(super) struct Staged(Vec<(usize, [FileStamp; 2], Loaded)>);

fn load(chain: &Path, key: &Path, provider: &CryptoProvider) -> Result<Loaded, ConfigError> {
    let certificates = pem::certificates(chain)?;
    let read = pem::private_key(key)?;
    let loaded = CertifiedKey::from_der(certificates, read, provider).map_err(|error| ConfigError::File {
        file: key.to_owned(),
        problem: match error {
            rustls::Error::InconsistentKeys(_) => format!("is not the key of {}", chain.display()),
            error => format!("cannot be used: {error}"),
        },
    })?;
    Loaded::new(loaded).ok_or_else(|| not_x509(chain))
}

fn not_x509(chain: &Path) -> ConfigError {
    ConfigError::File { file: chain.to_owned(), problem: "has no valid X.509 certificate".to_owned() }
}

/// The extension with the names of a certificate, and since when and until when it is valid. `None` if it cannot be read.
fn facts(certificate: &CertificateDer<'_>) -> Option<(Vec<u8>, [SystemTime; 2])> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let names = parsed.extensions().iter().find(|one| one.oid == OID_X509_EXT_SUBJECT_ALT_NAME);
    // Dates of X.509 have four digits for the year, so nothing overflows.
    let time = |time: ASN1Time| {
        UNIX_EPOCH + Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or_default())
    };
    let valid = [parsed.validity().not_before, parsed.validity().not_after].map(time);
    Some((names.map(|names| names.value.to_vec()).unwrap_or_default(), valid))
}

impl Loaded {
    /// `None` if the certificate cannot be read.
    fn new(key: CertifiedKey) -> Option<Self> {
        let (names, valid) = facts(key.cert.first()?)?;
        Some(Self { key: Arc::new(key), names, valid })
    }

    /// Whether a client that offers these schemes can verify signatures of the key.
    fn fits(&self, offered: &[SignatureScheme]) -> bool {
        self.key.key.choose_scheme(offered).is_some()
    }
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

    /// The certificates as they are now.
    pub(super) fn served(&self) -> Vec<ServedCertificate> {
        let served = |pair: &Pair| {
            let [begins, ends] = pair.loaded().valid;
            ServedCertificate { chain: pair.files.as_ref().map(|(chain, _)| chain.clone()), begins, ends }
        };
        self.pairs.iter().map(served).collect()
    }

    /// Reads all files, whether they look changed or not. Nothing changes yet.
    pub(super) fn read_again(&self) -> Result<Staged, ConfigError> {
        let read = self.pairs.iter().enumerate().filter_map(|(n, pair)| {
            let (chain, key) = pair.files.as_ref()?;
            // Before the files are read, so that no change is missed.
            let seen = [FileStamp::at(chain), FileStamp::at(key)];
            let loaded = load(chain, key, &self.provider);
            if let Err(error) = &loaded {
                // The caller says so; the next look does not say it again.
                let _ = pair.followed().problem.new_message(error);
            }
            Some(loaded.map(|loaded| (n, seen, loaded)))
        });
        read.collect::<Result<_, _>>().map(Staged)
    }

    /// Uses what was read.
    pub(super) fn commit(&self, Staged(read): Staged) {
        for (n, seen, loaded) in read {
            if let Some(pair) = self.pairs.get(n) {
                pair.set(&mut pair.followed(), seen, loaded);
            }
        }
    }

    /// Reads each pair of files, whether it looks changed or not. One that is not right stays as it is, and a line says why.
    pub(super) fn look(&self) {
        self.pairs.iter().for_each(|pair| pair.follow(&self.provider, true));
    }

    pub(super) fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether the certificate for clients that ask for nobody is for this name.
    pub(super) fn first_is_for(&self, name: &str) -> bool {
        let name = ServerName::try_from(name);
        name.is_ok_and(|name| self.pairs.first().is_some_and(|pair| is_for(&pair.loaded(), &name)))
    }

    pub(super) fn are_for(&self, name: &str) -> bool {
        let name = ServerName::try_from(name);
        name.is_ok_and(|name| self.pairs.iter().any(|pair| is_for(&pair.loaded(), &name)))
    }

    /// Reads files again that have changed, if the last look was a second ago. While one task looks, others go on.
    pub(super) async fn refresh(self: &Arc<Self>) {
        if !self.follows || !self.is_time() || self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let this = Arc::clone(self);
        let look = tokio::task::spawn_blocking(move || {
            for pair in &this.pairs {
                pair.follow(&this.provider, false);
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
        let (loaded, files, seen) = match source {
            Source::Memory { chain, key } => {
                let loaded = Loaded::new(CertifiedKey::from_der(chain, key, provider)?);
                let bad = rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding);
                (loaded.ok_or(bad)?, None, [FileStamp::MISSING; 2])
            }
            Source::Files { chain, key } => {
                // Before the files are read, so that no change is missed.
                let seen = [FileStamp::at(&chain), FileStamp::at(&key)];
                (load(&chain, &key, provider)?, Some((chain, key)), seen)
            }
        };
        let followed = Mutex::new(Followed { seen, problem: LastProblem::default() });
        Ok(Self { files, loaded: RwLock::new(Arc::new(loaded)), followed })
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `asked`: somebody waits for an answer, so the files are read in any case, and a problem is said once more.
    fn follow(&self, provider: &CryptoProvider, asked: bool) {
        let Some((chain, key)) = &self.files else { return };
        let mut followed = self.followed();
        let [chain_seen, key_seen] = &followed.seen;
        if !asked && !chain_seen.may_have_changed(chain) && !key_seen.may_have_changed(key) {
            return;
        }
        if asked {
            followed.problem.over();
        }
        let seen = [FileStamp::at(chain), FileStamp::at(key)];
        match load(chain, key, provider) {
            Ok(new) => self.set(&mut followed, seen, new),
            // The files count as not seen, so they are read again until they are right.
            Err(error) => {
                if let Some(message) = followed.problem.new_message(&error) {
                    tracing::warn!("the certificate stays as it is: {message}");
                }
            }
        }
    }

    /// Uses a certificate that was read. The same one again changes nothing: its sessions and its compressed form stay.
    fn set(&self, followed: &mut Followed, seen: [FileStamp; 2], new: Loaded) {
        followed.seen = seen;
        followed.problem.over();
        if new.key.cert == self.loaded().key.cert {
            return;
        }
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        if let Some((chain, _)) = &self.files {
            tracing::info!("{} has a new certificate", chain.display());
        }
    }

    fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_for(loaded: &Loaded, name: &ServerName<'_>) -> bool {
    let parsed = loaded.key.end_entity_cert().ok().and_then(|cert| ParsedCertificate::try_from(cert).ok());
    parsed.is_some_and(|cert| verify_server_name(&cert, name).is_ok())
}

impl ResolvesServerCert for Certificates {
    /// Among the certificates for the name that the client asks for, the first one whose signatures it can verify. Without a
    /// name, or one that no certificate is for, those of the first one's names count.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let first = self.pairs.first()?.loaded();
        if self.pairs.len() == 1 {
            return Some(Arc::clone(&first.key));
        }
        let offered = hello.signature_schemes();
        let mut first_for_name = None;
        if let Some(name) = hello.server_name().and_then(|name| ServerName::try_from(name).ok()) {
            for one in self.pairs.iter().map(Pair::loaded).filter(|one| is_for(one, &name)) {
                if one.fits(offered) {
                    return Some(Arc::clone(&one.key));
                }
                first_for_name.get_or_insert(one);
            }
        }
        // Where none fits, the handshake fails with the alert for that.
        let chosen = first_for_name.unwrap_or_else(|| {
            let mut like_first = self.pairs.iter().map(Pair::loaded).filter(|one| one.names == first.names);
            like_first.find(|one| one.fits(offered)).unwrap_or(first)
        });
        Some(Arc::clone(&chosen.key))
    }
}
