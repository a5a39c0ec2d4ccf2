//! What a client with certificates was told before it began.

use super::site_verifiers::FoundVerifiers;
use super::{Asap, InsideLookups, NamedVerifier};
use crate::client::Authority;
use crate::client::by_engine::ByEngine;
use crate::kernel::Kernel;
use crate::record::{Names, Published};
use firstflight_credential::NetworkId;
use firstflight_credential::asap::ClientCertificate;
use firstflight_verifier::{IssuerAddress, KeptCertificate, PoolConfig, PoolSite};
use firstflight_wire::asap::VerifierId;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// What the program wants.
#[derive(Debug, Default)]
pub(in crate::client) struct Settings {
    pub issuers: Vec<IssuerAddress>,
    /// Verifiers that have names.
    pub named: Vec<NamedVerifier>,
    /// The certificate that the program has.
    /// With the site that alone may see it, if there is one.
    pub given: Option<(Arc<ClientCertificate>, Option<PoolSite>)>,
    /// The file of that certificate, until the client starts.
    pub kept: Mutex<Option<KeptCertificate>>,
    pub pool: PoolConfig,
    pub file: Option<PathBuf>,
    /// The cache of the client's memory of servers.
    pub cache: Option<PathBuf>,
    /// No resolver is asked what servers publish.
    pub no_records: bool,
    pub records: Vec<(Authority, Published)>,
    pub once: bool,
    pub inside: Option<InsideLookups>,
    /// The resolver that the caller named.
    pub names: Resolver,
    pub found: FoundVerifiers,
}

/// A resolver that the caller named.
pub(in crate::client) type Resolver = Option<Arc<Names>>;

impl Settings {
    /// The client's memory is in this file.
    pub(in crate::client) fn keep_in(&mut self, cache: Option<&PathBuf>) {
        self.cache = cache.cloned();
    }

    /// Nothing is learnt from strangers.
    pub(in crate::client) const fn find_none(&mut self) {
        self.found = FoundVerifiers::Off;
    }

    /// Whether there are certificates without those of verifiers that are found.
    pub(super) const fn has_any(&self) -> bool {
        !self.issuers.is_empty() || !self.named.is_empty() || self.given.is_some()
    }

    /// Whose certificates there are.
    pub(super) fn verifiers(&self) -> impl Iterator<Item = VerifierId> {
        let given = self.given.iter().map(|(given, _)| given.verifier().id());
        let named = self.named.iter().map(|named| named.key.id());
        self.issuers.iter().map(IssuerAddress::id).chain(named).chain(given)
    }

    pub(in crate::client) fn resolver(&self) -> Resolver {
        self.names.clone()
    }

    /// What a client with verifiers needs.
    pub(in crate::client) fn start(
        self,
        fixed: Option<NetworkId>,
        cookies: bool,
        kernel: &Kernel,
        by_engine: Option<&ByEngine>,
    ) -> Option<Asap> {
        let names = self.names.clone();
        let wanted = self.has_any() || self.found == FoundVerifiers::Site;
        wanted.then(|| Asap::new(self, names, fixed, cookies, kernel, by_engine.cloned()))
    }
}
