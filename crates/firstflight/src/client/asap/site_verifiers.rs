//! Verifiers that sites name in their records, for a client that was told of none.

use super::private_addresses::is_near;
use crate::client::authority::{Authority, Host};
use crate::record::{Names, Published, Validated};
use firstflight_credential::NetworkId;
use firstflight_credential::asap::ClientCertificate;
use firstflight_verifier::site_verifiers::RecordLooked;
use firstflight_verifier::{LearntVerifier, LearntVerifiers, Looked, SiteRecord, Surroundings};
use firstflight_wire::asap::{VerifierId, VerifiersParam};
use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The client's resolvers, as they are now.
pub(super) type Resolvers = Arc<Mutex<Option<Arc<Names>>>>;

/// Whether a client uses verifiers that it was not told of ([`ClientBuilder::found_verifiers`](crate::ClientBuilder::found_verifiers)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FoundVerifiers {
    /// No.
    #[default]
    Off,
    /// Those that a site names in its record, for this site only (docs/spec/asap.md, section 9.1).
    Site,
}

/// How late after a visit its record may come. Later ones lead to no question.
const LATE: Duration = Duration::from_secs(10);
/// The most visits that are remembered.
const VISITS: usize = 16;

/// The verifiers that were found.
#[derive(Debug)]
pub(super) struct RecordVerifiers {
    /// Started by the first record that names one.
    learnt: OnceLock<Option<LearntVerifiers>>,
    network: Mutex<NetworkId>,
    resolvers: Resolvers,
    /// The last visits, because nobody waits for records: a name, the server's address, and when.
    visits: Mutex<VecDeque<(String, IpAddr, Instant)>>,
}

impl RecordVerifiers {
    pub(super) fn new(network: NetworkId, resolvers: Resolvers) -> Self {
        Self { learnt: OnceLock::new(), network: Mutex::new(network), resolvers, visits: Mutex::default() }
    }

    fn learnt(&self) -> Option<&LearntVerifiers> {
        self.learnt.get()?.as_ref()
    }

    fn network(&self) -> NetworkId {
        *self.network.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> Option<&LearntVerifiers> {
        let begin = || {
            let around = Arc::new(Around(Arc::clone(&self.resolvers)));
            let begun = LearntVerifiers::start(around, self.network());
            begun.inspect_err(|error| tracing::warn!("no verifiers are learnt: {error}")).ok()
        };
        self.learnt.get_or_init(begin).as_ref()
    }

    /// A resolver says what `server` publishes, and that this lasts so long.
    pub(super) fn handle_record(&self, server: &Authority, published: Option<&Published>, lasts: Duration) {
        let Host::Name(name) = server.host() else { return };
        match published.filter(|published| published.names_verifiers) {
            Some(Published { verifiers, .. }) => {
                let Some(learnt) = self.start() else { return };
                learnt.handle_record(name, server.port(), verifiers, lasts);
                if let Some(at) = self.take_visit(name) {
                    learnt.handle_visit(name, at);
                }
            }
            None => self.learnt().into_iter().for_each(|learnt| learnt.handle_no_record(name)),
        }
    }

    /// `server` has answered, at this address.
    pub(super) fn handle_visit(&self, server: &Authority, at: IpAddr) {
        let Host::Name(name) = server.host() else { return };
        self.learnt().into_iter().for_each(|learnt| learnt.handle_visit(name, at));
        let mut visits = self.visits();
        visits.truncate(VISITS - 1);
        visits.push_front((name.to_string(), at, Instant::now()));
    }

    fn visits(&self) -> MutexGuard<'_, VecDeque<(String, IpAddr, Instant)>> {
        self.visits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a server with this name that answered before its record came.
    fn take_visit(&self, name: &str) -> Option<IpAddr> {
        let mut visits = self.visits();
        let number = visits.iter().position(|(of, _, when)| of == name && when.elapsed() < LATE)?;
        visits.remove(number).map(|(_, at, _)| at)
    }

    pub(super) fn certificate_for(
        &self,
        host: &Host,
        v4: bool,
        trusted: &[VerifierId],
        seen: Option<IpAddr>,
    ) -> Option<Arc<ClientCertificate>> {
        match host {
            Host::Name(name) => self.learnt()?.certificate_for(name, v4, trusted, seen),
            Host::Ip(_) => None,
        }
    }

    pub(super) fn has_any(&self) -> bool {
        self.learnt().is_some_and(LearntVerifiers::has_any)
    }

    pub(super) fn forget(&self, certificate: &ClientCertificate) -> bool {
        self.learnt().is_some_and(|learnt| learnt.forget(certificate))
    }

    pub(super) fn mismatched(&self, certificate: &ClientCertificate) -> bool {
        self.learnt().is_some_and(|learnt| learnt.mismatched(certificate))
    }

    pub(super) fn set_network(&self, network: NetworkId) {
        let mut here = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *here, network) != network {
            self.visits().clear();
        }
        drop(here);
        self.learnt().into_iter().for_each(|learnt| learnt.set_network(network));
    }

    pub(super) fn list(&self) -> Vec<LearntVerifier> {
        self.learnt().map(LearntVerifiers::list).unwrap_or_default()
    }
}

/// Asks the client's resolvers.
struct Around(Resolvers);

impl Around {
    fn names(&self) -> io::Result<Arc<Names>> {
        let names = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        names.ok_or_else(|| io::Error::other("there is no resolver"))
    }
}

impl Surroundings for Around {
    fn record<'a>(&'a self, host: &'a str, port: u16) -> RecordLooked<'a> {
        Box::pin(async move {
            let found = self.names()?.parameter(host, port, VerifiersParam::KEY).await?;
            Ok(found.map(|found| SiteRecord {
                authentic: found.validated == Validated::TrustedPath,
                value: found.value,
                ttl: found.ttl,
            }))
        })
    }

    fn addresses<'a>(&'a self, host: &'a str, v4: bool) -> Looked<'a> {
        Box::pin(async move { self.names()?.addresses(host, v4).await })
    }

    fn is_near(&self, address: IpAddr) -> bool {
        is_near(address)
    }
}
