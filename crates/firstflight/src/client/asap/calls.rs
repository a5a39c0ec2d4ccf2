//! What a client with certificates can be told and asked.

use super::named::NamedVerifier;
use super::records::RecordQuestion;
use super::site_verifiers::FoundVerifiers;
use crate::client::{Authority, Client, ClientBuilder};
use crate::record::{Names, Published};
use firstflight_credential::asap::ClientCertificate;
use firstflight_credential::{NetworkId, Outcome, Reason};
use firstflight_verifier::{IssuerAddress, KeptCertificate, KeptError, LearntVerifier, PoolConfig, PoolSite};
use firstflight_wire::asap::VerifierId;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// Why a server gets no certificate ([`Client::uncertified`]). The message continues a sentence that begins with the server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Uncertified {
    /// It publishes that it trusts other verifiers, or none.
    #[error("does not trust verifier {}, but {}", list(.ours), list(.theirs))]
    Untrusted {
        /// The verifiers of this client.
        ours: Vec<VerifierId>,
        /// Those that it trusts.
        theirs: Vec<VerifierId>,
    },
    /// It sees another address of this host than the verifier.
    #[error("sees another address than the verifier")]
    AddressMismatch,
}

fn list(verifiers: &[VerifierId]) -> String {
    let all: Vec<_> = verifiers.iter().map(ToString::to_string).collect();
    if all.is_empty() { "nobody".to_owned() } else { all.join(", ") }
}

impl ClientBuilder {
    /// Obtains certificates from this verifier, ahead of the connects that use them.
    pub fn verifier(mut self, verifier: IssuerAddress) -> Self {
        self.asap.issuers.push(verifier);
        self
    }

    /// Like [`ClientBuilder::verifier`], by name.
    pub fn verifier_by_name(mut self, verifier: NamedVerifier) -> Self {
        self.asap.named.push(verifier);
        self
    }

    /// Whether verifiers are used that this client was not told of: [`FoundVerifiers::Site`] takes those that a site names in its HTTPS
    /// record, for this site and on this network only. The client then asks a resolver for the record of each server. After the first
    /// request to a server whose record names a verifier, within five seconds, the client asks the verifier for a certificate, over
    /// UDP. No request waits for any of this, and nothing of it is written to a file. Off by default, and in a client that is
    /// [`private`](ClientBuilder::private) or by an engine.
    pub const fn found_verifiers(mut self, found: FoundVerifiers) -> Self {
        self.asap.found = found;
        self
    }

    /// Shows this certificate to all servers that trust its verifier, in place of certificates that are obtained from
    /// verifiers. For a program that has one, and for one network.
    pub fn certificate(mut self, certificate: Arc<ClientCertificate>) -> Self {
        self.asap.given = Some((certificate, None));
        self
    }

    /// Like [`ClientBuilder::certificate`], but shows it to servers of this site only: for a
    /// [`KeptCertificate`](firstflight_verifier::KeptCertificate).
    pub fn certificate_for(mut self, certificate: Arc<ClientCertificate>, site: PoolSite) -> Self {
        self.asap.given = Some((certificate, Some(site)));
        self
    }

    /// Shows the certificate in a file to servers of this site only, as one that [`ClientBuilder::certificate_for`] names, on
    /// the network on which it was obtained ([`ClientBuilder::network`] is set to it). It is renewed in place if that is due, beside
    /// the connects, and [`Client::close`] waits for that, for at most two seconds. No other program can use the file until the
    /// client and its clones are gone.
    ///
    /// # Errors
    /// As [`KeptCertificate::use_for`]: it is another site's or of another network than this one, or the file cannot be written.
    pub fn kept_certificate(
        self,
        mut kept: KeptCertificate,
        site: &PoolSite,
        network: NetworkId,
    ) -> Result<Self, KeptError> {
        let certificate = kept.use_for(site, network)?;
        let mut builder = self.certificate_for(certificate, site.clone()).network(network);
        builder.asap.kept = Mutex::new(Some(kept));
        Ok(builder)
    }

    /// How many certificates are kept ready, and how long they should last.
    pub const fn certificates(mut self, pool: PoolConfig) -> Self {
        self.asap.pool = pool;
        self
    }

    /// Keeps the certificates and their keys in this file (mode 0600), so that a program's first connect has one.
    pub fn certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.asap.file = Some(path.into());
        self
    }

    /// Asks this resolver, in place of the system's, for addresses and for what servers publish (HTTPS records).
    pub fn resolver(mut self, resolver: Names) -> Self {
        self.asap.names = Some(Arc::new(resolver));
        self
    }

    /// Asks no resolver what servers publish. Only what [`ClientBuilder::record`] says is known.
    pub const fn no_resolver(mut self) -> Self {
        self.asap.no_records = true;
        self
    }

    /// What `server` publishes, for example because it belongs to the same operator. The resolver is not asked about it.
    pub fn record(mut self, server: Authority, record: Published) -> Self {
        self.asap.records.push((server, record));
        self
    }

    /// The servers execute a request with a certificate at most once. Data that must not run twice may then ride in the
    /// SYN with a certificate ([`Certified::once`](crate::Certified::once)).
    pub const fn servers_run_once(mut self, once: bool) -> Self {
        self.asap.once = once;
        self
    }
}

impl Client {
    /// Waits, at most this long, until a certificate is ready for the next server, and until the verifiers have said whether
    /// requests can travel inside lookups, if that is wanted. Returns whether all is ready; false at once if no verifier gives
    /// a certificate. Without verifiers there is none.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time.
    pub async fn prepare(&self, within: Duration) -> bool {
        let Some(asap) = self.shared.asap.as_ref().filter(|asap| asap.settings.has_any()) else {
            return false;
        };
        self.shared.networks.refresh(&self.shared).await;
        asap.begin_fixed();
        let ready = async {
            while !asap.is_ready() && !asap.is_failing() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            asap.is_ready()
        };
        tokio::time::timeout(within, ready).await.unwrap_or(false)
    }

    /// Like [`Client::prepare`]. If requests are to travel inside lookups, it also looks up those of these servers of which it does
    /// not know what they publish, so that the first connect knows it.
    ///
    /// # Panics
    /// As [`Client::prepare`].
    pub async fn prepare_for(&self, servers: &[Authority], within: Duration) -> bool {
        let inside = self.shared.asap.as_ref().is_some_and(|asap| asap.settings.inside.is_some());
        let mut asking = JoinSet::new();
        for server in servers.iter().filter(|server| inside && self.published(server).is_none()) {
            let (client, server) = (self.clone(), server.clone());
            asking.spawn(async move { client.look_up(server).await.is_ok() });
        }
        let found = async { while asking.join_next().await.is_some() {} };
        let (ready, _) = tokio::join!(self.prepare(within), tokio::time::timeout(within, found));
        ready
    }

    /// What `server` publishes, as far as this client knows on the present network: from [`ClientBuilder::record`], or from a
    /// resolver.
    #[must_use]
    pub fn published(&self, server: &Authority) -> Option<Published> {
        self.shared.asap.as_ref()?.records.known(server)
    }

    /// The verifiers that were found ([`ClientBuilder::found_verifiers`]), by which records.
    #[must_use]
    pub fn found_verifiers(&self) -> Vec<LearntVerifier> {
        let found = self.shared.asap.as_ref().and_then(|asap| asap.found.as_ref());
        found.map(|found| found.list()).unwrap_or_default()
    }

    /// Why `server` gets no certificate of this client, after a first flight with this outcome. `None` as far as nothing is known
    /// that speaks against it.
    #[must_use]
    pub fn uncertified(&self, server: &Authority, outcome: Outcome) -> Option<Uncertified> {
        let asap = self.shared.asap.as_ref().filter(|asap| asap.settings.has_any())?;
        let theirs = asap.records.known(server).map(|published| published.verifiers);
        let ours: Vec<_> = asap.settings.verifiers().collect();
        match theirs {
            Some(theirs) if !theirs.iter().any(|one| ours.contains(one)) => {
                Some(Uncertified::Untrusted { ours, theirs })
            }
            _ if outcome.reason() == Some(Reason::AddressMismatch) => Some(Uncertified::AddressMismatch),
            _ => None,
        }
    }

    /// Starts to ask what `server` publishes, beside its addresses, unless one resolver is asked for both.
    pub(in crate::client) fn ask(&self, server: &Authority) -> Option<RecordQuestion> {
        let asap = self.asap().filter(|_| self.shared.resolver.is_none())?;
        Some(asap.ask(server))
    }

    /// Asks the resolver that the caller named, if it named one, for the addresses of `name`, and what its server publishes.
    pub(in crate::client) async fn ask_resolver(
        &self,
        server: &Authority,
        name: &str,
        all: bool,
    ) -> Option<io::Result<(Vec<IpAddr>, bool)>> {
        let names = self.shared.resolver.as_ref()?;
        let whole = |found: io::Result<Vec<IpAddr>>| Some(found.map(|found| (found, false)));
        let Some(asap) = self.asap().filter(|asap| asap.asks_about(server)) else {
            let family = self.asap().filter(|_| !all).and_then(|asap| asap.only_family(server));
            if let Some(v4) = family
                && let Ok(found) = names.addresses(name, v4).await
            {
                return Some(Ok((found, true)));
            }
            return whole(names.all_addresses(name, false).await);
        };
        if !asap.may_certify() {
            // It is asked beside them, and nobody waits for the answer.
            drop(asap.ask(server));
            return whole(names.all_addresses(name, false).await);
        }
        let question = asap.question(server);
        let found = names.look_up(name, server.port()).await;
        Some(found.map(|(addresses, published)| {
            question.answer(Some(published));
            (addresses, false)
        }))
    }
}
