//! How `serve` treats certificates: which verifiers it trusts, and which identities it has.

use super::ServeError;
use super::verifier::Verifies;
use crate::error::Error;
use firstflight::OwnVerifier;
use firstflight::credential::asap::{AsapPolicy, GuardDomain, Identity};
use firstflight::credential::{FastOpenPolicy, PendingLimit, Quarantine, ReplayTable, Window};
use firstflight::trust::{self, TrustFile, TrustHandle};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// No server accepts a request older than this: the sum of the window and the possible difference of clocks.
const FORGOTTEN_MS: u64 = 120_000;

/// Options for certificates.
#[derive(clap::Args)]
pub struct Certificates {
    /// Accept first flights with certificates (ASAP) of the verifiers in this file; read again while running
    ///
    /// Each request is executed once. For ten seconds after the start, and some twenty more for certificates that
    /// began before they were made, none is taken: the server does not know what it took before. A change of the
    /// file that admits more of a verifier causes the same pause for its certificates.
    #[arg(long, value_name = "FILE", conflicts_with = "no_cookie")]
    trust: Option<PathBuf>,
    #[command(flatten)]
    verifies: Verifies,
    /// Identity that clients use for this server, a name or NAME:PORT; may be repeated [default: its addresses]
    #[arg(long = "identity", value_name = "NAME", requires = "certified")]
    identities: Vec<String>,
    /// Other servers answer to the same name and do not know what this one took: a request may be executed once
    /// on each
    #[arg(long, requires = "once")]
    per_site: bool,
    /// No server of this name has run within the last two minutes, nor one with these seal keys within the last fifteen:
    /// accept certificates and sealed requests at once
    #[arg(long, requires = "once")]
    first_start: bool,
    /// Memory for the requests of the last 70 seconds, MiB: 1 for each 1,500 first flights a second
    #[arg(
        long, value_name = "MIB", default_value_t = 8, requires = "certified",
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    request_memory: u16,
}

/// The policy, and the file that it follows.
pub struct Prepared {
    /// `None` without `--trust` and `--verifier`.
    pub policy: Option<AsapPolicy>,
    /// The server's own verifier.
    pub verifier: Option<OwnVerifier>,
    file: Option<TrustFile>,
}

impl Prepared {
    /// Follows the trust file as long as the listeners exist.
    pub fn follow(&mut self, listeners: Vec<TrustHandle>) {
        if let Some(file) = self.file.take() {
            tokio::spawn(trust::follow(listeners, file));
        }
    }
}

impl Certificates {
    /// Whether nothing ran before.
    pub const fn is_first_start(&self) -> bool {
        self.first_start
    }

    /// Whether other servers of the name do not know what this one took.
    pub const fn is_per_site(&self) -> bool {
        self.per_site
    }

    /// Whether the server is to be a verifier.
    pub const fn verifies(&self) -> bool {
        self.verifies.wanted()
    }

    /// The policy for listeners at `addresses` and `port`. Fast Open and certificates share the places of pending
    /// first flights. `sealed` are the identities of sealed first flights. `udp` is the server's UDP port, if it is known, and
    /// `others` are those of other protocols.
    pub async fn prepare(
        &self,
        (addresses, port): (&[IpAddr], u16),
        (udp, others): (Option<SocketAddr>, &[SocketAddr]),
        fast_open: Option<&FastOpenPolicy>,
        sealed: Vec<Identity>,
    ) -> Result<Prepared, Error> {
        let verifier = self.verifies.prepare(udp, others, self.per_site)?;
        let file = match &self.trust {
            Some(path) => {
                let opened = TrustFile::open(path).await;
                Some(opened.map_err(|error| ServeError::TrustFile(path.clone(), Box::new(error)))?)
            }
            None if verifier.is_none() => return Ok(Prepared { policy: None, verifier, file: None }),
            None => None,
        };
        let trust = file.as_ref().map(TrustFile::store).unwrap_or_default();
        if let Some(verifier) = &verifier {
            let contradicts = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
            verifier.trusted_beside(&trust).map_err(|error| ServeError::OwnVerifier(contradicts(error)))?;
        }
        let key = firstflight::random_guard_key().map_err(Error::Random)?;
        let now = firstflight::unix_ms();
        let began = if self.first_start { now.saturating_sub(FORGOTTEN_MS) } else { now };
        let bytes = usize::from(self.request_memory) << 20;
        let pending = match fast_open {
            Some(policy) => Arc::clone(&policy.pending),
            None => Arc::new(PendingLimit::new(super::fast_open::PENDING)),
        };
        let policy = AsapPolicy {
            trust,
            identities: self.identities(addresses, port, sealed)?.into(),
            guard: Arc::new(ReplayTable::new(key, Window::REQUESTS, bytes, began)),
            domain: if self.per_site { GuardDomain::Site } else { GuardDomain::All },
            pending,
            relayed: None,
            quarantine: fast_open.map_or(Quarantine::default(), |policy| policy.quarantine),
        };
        Ok(Prepared { policy: Some(policy), verifier, file })
    }

    fn identities(
        &self,
        addresses: &[IpAddr],
        port: u16,
        sealed: Vec<Identity>,
    ) -> Result<Vec<Identity>, ServeError> {
        let named = self.identities.iter().map(|text| {
            let (name, port) = match text.rsplit_once(':') {
                Some((name, digits)) => (name, digits.parse().ok()),
                None => (text.as_str(), Some(port)),
            };
            let good = |part: &str| {
                !part.is_empty()
                    && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            };
            let labels = name.strip_suffix('.').unwrap_or(name).split('.').all(good);
            port.filter(|_| labels)
                .map(|port| Identity::name(name, port))
                .ok_or_else(|| ServeError::Identity(text.clone()))
        });
        let mut identities: Vec<Identity> = named.collect::<Result<_, _>>()?;
        if identities.is_empty() {
            let own = addresses.iter().filter(|address| !address.is_unspecified());
            identities.extend(own.map(|address| Identity::address(*address, port)));
        }
        identities.extend(sealed);
        if identities.is_empty() { Err(ServeError::NoIdentity) } else { Ok(identities) }
    }
}
