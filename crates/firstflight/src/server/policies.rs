//! What a server does with first flights: the policies of its engines' listeners.

use super::ServerBuilder;
use crate::ListenConfig;
use crate::client::{Authority, Host};
use crate::credential::asap::{AsapPolicy, GuardDomain, Identity, TrustStore};
use crate::credential::{
    FastOpenPolicy, KeyRing, OneTimeCookies, PendingLimit, Quarantine, ReplayGuard, ReplayTable, Replays,
    Scheme, Window,
};
use crate::endpoint::Endpoint;
use crate::listener::Listener;
use crate::own_verifier::OwnVerifier;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

/// Memory for the requests of the last 70 seconds, bytes: for some 12,000 first flights a second.
const REQUEST_MEMORY: usize = 8 << 20;

/// No server accepts a request older than this, milliseconds: the sum of the window and the possible difference of clocks.
const FORGOTTEN_MS: u64 = 120_000;

/// What a server does with first flights.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub trust: Option<Arc<TrustStore>>,
    pub verifier: Option<OwnVerifier>,
    pub policy: Option<AsapPolicy>,
    pub identities: Vec<String>,
    pub listen: Option<ListenConfig>,
    pub replays: Replays,
    pub pending_per_client: Option<u32>,
    pub quarantine: Option<Quarantine>,
    pub one_time: Option<Arc<OneTimeCookies>>,
    pub per_site: bool,
    /// What remembers requests with certificates, if not a table of the server's own.
    pub request_guard: Option<RequestGuard>,
    pub first_start: bool,
}

/// What remembers requests with certificates.
#[derive(Clone)]
pub(crate) struct RequestGuard(pub Arc<dyn ReplayGuard>);

impl fmt::Debug for RequestGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestGuard").finish_non_exhaustive()
    }
}

impl Settings {
    /// Whether the kernel's TCP may take first flights. It remembers none.
    pub(super) const fn allows_copies(&self) -> bool {
        matches!(self.replays, Replays::Allow)
    }
}

/// The policies of all listeners of engines.
pub(super) struct Policies {
    listen: Option<ListenConfig>,
    fast_open: Option<FastOpenPolicy>,
    pub(super) asap: Option<AsapPolicy>,
}

impl Policies {
    pub(super) fn new(builder: &ServerBuilder, addresses: &[SocketAddr]) -> io::Result<Self> {
        let settings = &builder.first_flights;
        let pending = Arc::new(PendingLimit::new(builder.pending));
        if let Some(most) = settings.pending_per_client {
            pending.set_client_limit(most);
        }
        let mut fast_open = match (&builder.keys, builder.pending) {
            (_, 0) => None,
            (Some(keys), _) => Some(FastOpenPolicy::new(Arc::clone(keys), Arc::clone(&pending))),
            (None, _) => {
                let keys = Arc::new(KeyRing::new(Scheme::Linux, crate::random_key()?));
                Some(FastOpenPolicy::new(keys, Arc::clone(&pending)))
            }
        };
        if let Some(policy) = &mut fast_open {
            policy.replays = settings.replays.clone();
            policy.quarantine = settings.quarantine.unwrap_or_default();
            policy.verifier = settings.one_time.clone().map(|cookies| cookies as _);
            policy.validate().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        }
        // A server that is a verifier trusts itself: see `Endpoint::verify`.
        let listen_says = settings.listen.as_ref().is_some_and(|listen| listen.asap.is_some());
        let itself = settings.verifier.as_ref().filter(|_| !listen_says).map(|_| Arc::default());
        let asap = match (&settings.policy, settings.trust.clone().or(itself)) {
            (Some(policy), _) => Some(policy.clone()),
            (None, Some(trust)) => {
                let identities = identities(&settings.identities, addresses)?;
                Some(policy(settings, &trust, identities, &pending)?)
            }
            (None, None) => None,
        };
        let own_policy = settings.policy.is_some() || listen_says;
        if settings.request_guard.is_some() && (asap.is_none() || own_policy) {
            let text = "request_guard has no effect: it is for certificates that trust or a verifier makes the server take, and \
                        a policy of its own has its guard";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self { listen: settings.listen.clone(), fast_open, asap })
    }

    /// Listens at this address of an engine.
    pub(super) fn listen(&self, endpoint: &Endpoint, at: SocketAddr) -> io::Result<Listener> {
        let mut config = self.listen.clone().unwrap_or_else(|| ListenConfig::new(at));
        config.local = at;
        config.fast_open = config.fast_open.or_else(|| self.fast_open.clone());
        config.asap = config.asap.or_else(|| self.asap.clone());
        endpoint.listen(config).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
    }
}

fn policy(
    settings: &Settings,
    trust: &Arc<TrustStore>,
    identities: Vec<Identity>,
    pending: &Arc<PendingLimit>,
) -> io::Result<AsapPolicy> {
    let members = settings.verifier.as_ref().map_or(NonZeroU16::MIN, OwnVerifier::members);
    let is_shared = settings.request_guard.as_ref().is_some_and(|guard| guard.0.needs_store());
    let wrong = |text| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    if is_shared && settings.per_site {
        return wrong(
            "request_guard is one that servers share, and per_site says that they share none: leave one of them out",
        );
    }
    if members > NonZeroU16::MIN && !settings.per_site && !is_shared {
        return wrong(
            "members of a farm do not know which requests with certificates the others took: set per_site, or give \
             request_guard one that they share",
        );
    }
    // The listener does not know what was refused before it began, here or at another one.
    let began = crate::unix_ms().saturating_sub(if settings.first_start { FORGOTTEN_MS } else { 0 });
    let guard = match &settings.request_guard {
        Some(RequestGuard(guard)) => {
            guard.raise_floor(began.saturating_add(Window::REQUESTS.future.as_millis() as u64));
            Arc::clone(guard)
        }
        None => {
            Arc::new(ReplayTable::new(crate::random_guard_key()?, Window::REQUESTS, REQUEST_MEMORY, began))
        }
    };
    Ok(AsapPolicy {
        trust: Arc::clone(trust),
        identities: identities.into(),
        guard,
        domain: if settings.per_site { GuardDomain::Site } else { GuardDomain::All },
        pending: Arc::clone(pending),
        relayed: None,
        quarantine: settings.quarantine.unwrap_or_default(),
    })
}

/// The names, or else the addresses, with the port where they have none.
fn identities(names: &[String], addresses: &[SocketAddr]) -> io::Result<Vec<Identity>> {
    let wrong = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    let port = addresses.first().map_or(0, SocketAddr::port);
    let own = addresses.iter().filter(|address| names.is_empty() && !address.ip().is_unspecified());
    let mut all: Vec<_> = own.map(|address| Identity::address(address.ip(), port)).collect();
    for text in names {
        let whole = text.parse().or_else(|_| Authority::new(text, port));
        let one = whole.map_err(|_| wrong(format!("{text:?} is not a host name")))?;
        all.push(match one.host() {
            Host::Name(name) => Identity::name(name, one.port()),
            Host::Ip(ip) => Identity::address(*ip, one.port()),
        });
    }
    match all.is_empty() {
        true => Err(wrong("a server at all addresses that takes certificates needs an identity".to_owned())),
        false => Ok(all),
    }
}
