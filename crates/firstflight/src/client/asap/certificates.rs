//! Where certificates come from: from verifiers, or from the program.

use super::site_verifiers::RecordVerifiers;
use crate::client::authority::Host;
use firstflight_credential::NetworkId;
use firstflight_credential::asap::ClientCertificate;
use firstflight_verifier::{CertificatePool, PoolSite};
use firstflight_wire::asap::VerifierId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Certificates {
    own: Own,
    /// Those of verifiers that sites name.
    found: Option<Arc<RecordVerifiers>>,
}

#[derive(Debug)]
pub(super) enum Own {
    Pool(CertificatePool),
    /// The one that the program has, for this site, or for all.
    Given(Arc<ClientCertificate>, Option<PoolSite>),
}

impl Certificates {
    pub(super) const fn new(own: Own, found: Option<Arc<RecordVerifiers>>) -> Self {
        Self { own, found }
    }

    /// A certificate by one of the `trusted` verifiers, for an address of this family. `host` is the server's, if the host is what
    /// the site shows.
    pub(super) fn certificate_for(
        &self,
        site: &PoolSite,
        host: Option<&Host>,
        v4: bool,
        trusted: &[VerifierId],
    ) -> Option<Arc<ClientCertificate>> {
        let any: IpAddr = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let own = match &self.own {
            Own::Pool(pool) => pool.certificate_for(site, any, trusted),
            Own::Given(given, own) => {
                let fits = given.address().is_ipv4() == v4
                    && trusted.contains(&given.verifier().id())
                    && own.as_ref().is_none_or(|own| own == site);
                fits.then(|| Arc::clone(given))
            }
        };
        own.or_else(|| {
            let seen = self.pool().and_then(|pool| pool.address(v4));
            self.found.as_ref()?.certificate_for(host?, v4, trusted, seen)
        })
    }

    /// Whether there is one for this host's address of this family, without those of verifiers that sites name.
    pub(super) fn has(&self, v4: bool) -> bool {
        match &self.own {
            Own::Pool(pool) => pool.address(v4).is_some(),
            Own::Given(given, _) => given.address().is_ipv4() == v4,
        }
    }

    fn pool(&self) -> Option<&CertificatePool> {
        match &self.own {
            Own::Pool(pool) => Some(pool),
            Own::Given(..) => None,
        }
    }

    pub(super) fn set_network(&self, network: NetworkId) {
        self.pool().into_iter().for_each(|pool| pool.set_network(network));
    }

    pub(super) fn forget(&self, certificate: &ClientCertificate) {
        if !self.found.as_ref().is_some_and(|found| found.forget(certificate)) {
            self.pool().into_iter().for_each(|pool| pool.forget(certificate));
        }
    }

    pub(super) fn mismatched(&self, site: &PoolSite, certificate: &ClientCertificate) {
        if !self.found.as_ref().is_some_and(|found| found.mismatched(certificate)) {
            self.pool().into_iter().for_each(|pool| pool.mismatched(site, certificate));
        }
    }

    pub(super) fn is_mismatched(&self, site: &PoolSite) -> bool {
        self.pool().is_some_and(|pool| pool.is_mismatched(site))
    }

    pub(super) fn is_failing(&self) -> bool {
        self.pool().is_some_and(CertificatePool::is_failing)
    }

    /// Whether there is one that no site has seen.
    pub(super) fn is_ready(&self) -> bool {
        self.pool().is_none_or(|pool| pool.fresh() > 0)
    }
}
