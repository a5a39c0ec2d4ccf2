//! Where certificates come from: from verifiers, or from the program.

use firstflight_credential::NetworkId;
use firstflight_credential::asap::ClientCertificate;
use firstflight_verifier::{CertificatePool, Site};
use firstflight_wire::asap::VerifierId;
use std::net::IpAddr;
use std::sync::Arc;

#[derive(Debug)]
pub(super) enum Certificates {
    Pool(CertificatePool),
    /// The one that the program has, for this site, or for all.
    Given(Arc<ClientCertificate>, Option<Site>),
}

impl Certificates {
    /// A certificate by one of the `trusted` verifiers, for an address of the family of `any`.
    pub(super) fn certificate_for(
        &self,
        site: &Site,
        any: IpAddr,
        trusted: &[VerifierId],
    ) -> Option<Arc<ClientCertificate>> {
        match self {
            Self::Pool(pool) => pool.certificate_for(site, any, trusted),
            Self::Given(given, own) => {
                let fits = given.address().is_ipv4() == any.is_ipv4()
                    && trusted.contains(&given.verifier().id())
                    && own.as_ref().is_none_or(|own| own == site);
                fits.then(|| Arc::clone(given))
            }
        }
    }

    fn pool(&self) -> Option<&CertificatePool> {
        match self {
            Self::Pool(pool) => Some(pool),
            Self::Given(..) => None,
        }
    }

    pub(super) fn set_network(&self, network: NetworkId) {
        self.pool().into_iter().for_each(|pool| pool.set_network(network));
    }

    pub(super) fn forget(&self, certificate: &ClientCertificate) {
        self.pool().into_iter().for_each(|pool| pool.forget(certificate));
    }

    pub(super) fn mismatched(&self, site: &Site, certificate: &ClientCertificate) {
        self.pool().into_iter().for_each(|pool| pool.mismatched(site, certificate));
    }

    pub(super) fn is_mismatched(&self, site: &Site) -> bool {
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
