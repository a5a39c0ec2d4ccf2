//! Verifiers by name.

use super::Resolver;
use crate::record::Names;
use firstflight_credential::asap::PublicKey;
use firstflight_verifier::{BySystem, IssuerAddress, LookUp, Looked, VantageAddress};
use std::sync::Arc;

/// A verifier with a name. Its addresses are looked up each time that it is asked, by the client's resolver: a certificate for this
/// host's IPv4 address at the IPv4 addresses, and one for its IPv6 address at the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedVerifier {
    /// The name.
    pub host: String,
    /// Its port of UDP and TCP.
    pub port: u16,
    /// Its key.
    pub key: PublicKey,
    /// Its vantage points.
    pub group: Vec<VantageAddress>,
}

impl NamedVerifier {
    /// The verifier with this name and key, without vantage points.
    pub fn new(host: impl Into<String>, port: u16, key: PublicKey) -> Self {
        Self { host: host.into(), port, key, group: Vec::new() }
    }

    /// As the pool knows it: once for each family.
    pub(super) fn issuers(&self, resolver: Resolver) -> [IssuerAddress; 2] {
        let look_up: Arc<dyn LookUp> = match resolver {
            Some(names) => Arc::new(ByNames(names)),
            None => Arc::new(BySystem),
        };
        [true, false].map(|v4| IssuerAddress {
            group: self.group.clone(),
            ..IssuerAddress::named(&self.host, self.port, v4, self.key, Arc::clone(&look_up))
        })
    }
}

/// The resolver that the caller named.
struct ByNames(Arc<Names>);

impl LookUp for ByNames {
    fn addresses<'a>(&'a self, name: &'a str, v4: bool) -> Looked<'a> {
        Box::pin(self.0.addresses(name, v4))
    }
}
