//! Verifiers that the records of sites name (docs/spec/asap.md, section 9.1), for a client that was not configured with them.
//!
//! The danger is tracking, and that strangers decide what this host sends. So a learnt verifier is used for the site that named it
//! and on this network only, is asked seldom, over UDP, at global addresses, and never before a request; and nothing of it is
//! written to disk. The machine in `state` has these rules.

mod rules;
mod state;

use crate::client::{IssuerAddress, LookUp, Looked, ObtainError, Patience, Permit, Route, Wanted, obtain_by};
use crate::clock::boot_clock;
use crate::global::is_global;
use crate::group::VantageAddress;
use firstflight_credential::NetworkId;
use firstflight_credential::asap::{ClientCertificate, PrivateKey, PublicKey};
use firstflight_service::secure_rng;
use firstflight_wire::Instant;
use firstflight_wire::asap::message::Reason;
use firstflight_wire::asap::{CertificateBody, SiteVerifier, VerifierId, VerifiersParam};
use rand_core::Rng;
use rules::{Host, HostRule, VerifierOfSite};
use state::{RecordAnswer, State, Task, Wish};
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};

/// How long certificates may last, seconds.
const WISHED: u32 = 3600;
/// How far the beginning of a certificate may be from this host's time, seconds: what is signed for a later time could be used then.
const ASKEW: u64 = 120;
/// The longest time between a visit and what is asked because of it.
const DELAY: Duration = Duration::from_secs(5);

/// What a record says of a site's verifiers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRecord {
    /// The value of [`VerifiersParam::KEY`].
    pub value: Vec<u8>,
    /// How long it may be used, seconds.
    pub ttl: u32,
    /// A resolver that this host trusts has validated it (DNSSEC).
    pub authentic: bool,
}

/// An answer that is looked up.
pub type RecordLooked<'a> = Pin<Box<dyn Future<Output = io::Result<Option<SiteRecord>>> + Send + 'a>>;

/// What the client's surroundings say.
pub trait Surroundings: Send + Sync {
    /// What the HTTPS record of a host, for its server at `port`, says of verifiers. `None` if it names none.
    fn record<'a>(&'a self, host: &'a str, port: u16) -> RecordLooked<'a>;

    /// The addresses of one family of a host.
    fn addresses<'a>(&'a self, host: &'a str, v4: bool) -> Looked<'a>;

    /// Whether this is an address of this host, or of its gateway.
    fn is_near(&self, address: IpAddr) -> bool;
}

/// A learnt verifier, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LearntVerifier {
    /// Its key.
    pub key: PublicKey,
    /// Its name and UDP port.
    pub at: String,
    /// The hosts for which it is used: this one, and those below it if this is the verifier's own name.
    pub site: String,
    /// The host whose record named it.
    pub named_by: String,
    /// How long ago it was learnt.
    pub since: Duration,
    /// By records that were authenticated. If not, it is forgotten with the visit.
    pub authentic: bool,
    /// How many certificates of it there are.
    pub certificates: usize,
}

/// Whether clients learn a verifier that a record names so, as far as the record shows it: by its port, its name, its key, and those of its
/// vantage points.
#[must_use]
pub fn may_be_learnt(one: &SiteVerifier<'_>) -> bool {
    VerifierOfSite::read(one).is_some()
}

/// Verifiers that records named. They are asked in the background, until this is dropped.
pub struct LearntVerifiers {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
    surroundings: Arc<dyn Surroundings>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a stranger's record may lead to a datagram to this address.
    fn may_be_asked(&self, address: IpAddr) -> bool {
        is_global(address) && !self.surroundings.is_near(address)
    }
}

impl LearntVerifiers {
    /// Knows none yet. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the system has no clock that runs during sleep, or no random numbers.
    pub fn start(surroundings: Arc<dyn Surroundings>, network: NetworkId) -> io::Result<Self> {
        boot_clock()?;
        secure_rng()?;
        let state = Mutex::new(State::new(network));
        let shared = Arc::new(Shared { state, changed: Notify::new(), surroundings });
        let keeper = tokio::spawn(keep(Arc::clone(&shared))).abort_handle();
        Ok(Self { shared, keeper })
    }

    /// A resolver's answer: the record of `host`, for its server at `port`, names verifiers, says that the server trusts these, and
    /// may be used for `ttl`.
    pub fn handle_record(&self, host: &str, port: u16, trusted: &[VerifierId], ttl: Duration) {
        let Ok(now) = boot_clock() else { return };
        let host = Host { name: lower(host), port };
        self.shared.lock().handle_record(&host, trusted.to_vec(), ttl, now);
    }

    /// A resolver's answer: the record of `host` names none.
    pub fn handle_no_record(&self, host: &str) {
        self.shared.lock().handle_no_record(&lower(host));
    }

    /// The server of `host` has answered a request, at this address. What there is to ask is asked in the next seconds, by the same
    /// address of this host.
    pub fn handle_visit(&self, host: &str, server: IpAddr) {
        let (Ok(now), Ok(mut rng)) = (boot_clock(), secure_rng()) else { return };
        let Ok(source) = source(server) else { return };
        let delay = DELAY.mul_f64(f64::from(rng.next_u32()) / f64::from(u32::MAX));
        self.shared.lock().handle_visit(&lower(host), source, delay, now);
        self.shared.changed.notify_one();
    }

    /// A certificate by one of the `trusted` verifiers for first flights to `host`, whose server has an address of this family.
    /// All hosts of a verifier's site see the same one. `seen` is this host's address as a configured verifier sees it.
    #[must_use]
    pub fn certificate_for(
        &self,
        host: &str,
        v4: bool,
        trusted: &[VerifierId],
        seen: Option<IpAddr>,
    ) -> Option<Arc<ClientCertificate>> {
        let now = boot_clock().ok()?;
        self.shared.lock().certificate_for(&lower(host), v4, trusted, seen, now)
    }

    /// Whether there is any certificate.
    #[must_use]
    pub fn has_any(&self) -> bool {
        boot_clock().is_ok_and(|now| self.shared.lock().has_any(now))
    }

    /// A server refused this certificate, so it is not used again. Returns whether it is one of these.
    pub fn forget(&self, certificate: &ClientCertificate) -> bool {
        self.shared.lock().forget(certificate)
    }

    /// A server sees another address than this certificate's. Its verifier is asked no more. Returns whether it is one of these.
    pub fn mismatched(&self, certificate: &ClientCertificate) -> bool {
        self.shared.lock().mismatched(certificate)
    }

    /// This host is on this network. What was learnt on another one is forgotten.
    pub fn set_network(&self, network: NetworkId) {
        self.shared.lock().set_network(network);
        self.shared.changed.notify_one();
    }

    /// What was learnt.
    #[must_use]
    pub fn list(&self) -> Vec<LearntVerifier> {
        let Ok(now) = boot_clock() else { return Vec::new() };
        let state = self.shared.lock();
        let shown = state.learnt.iter().map(|one| LearntVerifier {
            key: one.named.key,
            at: one.named.at.to_string(),
            site: one.site.name.clone(),
            named_by: one.by.clone(),
            since: now.saturating_since(one.since),
            authentic: one.authentic,
            certificates: one.certificates().count(),
        });
        shown.collect()
    }
}

impl Drop for LearntVerifiers {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl fmt::Debug for LearntVerifiers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LearntVerifiers")
            .field("learnt", &self.shared.lock().learnt.len())
            .finish_non_exhaustive()
    }
}

/// The address of this host by which packets to `server` leave now. Nothing is sent.
fn source(server: IpAddr) -> io::Result<IpAddr> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    // Any port: no packet leaves.
    socket.connect((server, 9))?;
    Ok(socket.local_addr()?.ip())
}

fn lower(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

enum TaskResult {
    Learnt { host: String, era: u64, answer: Option<RecordAnswer> },
    Obtained { wish: Box<Wish>, result: Result<Box<ClientCertificate>, ObtainError> },
}

/// Does what the machine wants.
async fn keep(shared: Arc<Shared>) {
    let mut tasks: JoinSet<TaskResult> = JoinSet::new();
    loop {
        let Ok(now) = boot_clock() else { return };
        let wake = {
            let mut state = shared.lock();
            while let Some(task) = state.poll(now) {
                let (shared, era) = (Arc::clone(&shared), state.era());
                match task {
                    Task::Learn(host) => tasks.spawn(async move {
                        let answer = learn(&shared, &host).await;
                        TaskResult::Learnt { host: host.name, era, answer }
                    }),
                    Task::Obtain(wish) => tasks.spawn(fulfil(shared, wish)),
                };
            }
            state.poll_timeout(now)
        };
        // Timers do not run while the machine sleeps, so poll from time to time.
        let wait = wake.map_or(Duration::MAX, |wake| wake.saturating_since(now));
        let wait = wait.clamp(Duration::from_millis(10), Duration::from_secs(60));
        tokio::select! {
            () = shared.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
            Some(done) = tasks.join_next() => {
                if let (Ok(done), Ok(now)) = (done, boot_clock()) {
                    settle(&shared, done, now);
                }
            }
        }
    }
}

/// What the record of `host` names, of those verifiers that agree. `None` if nobody answers.
async fn learn(shared: &Shared, host: &Host) -> Option<RecordAnswer> {
    let surroundings = &*shared.surroundings;
    let record = surroundings.record(&host.name, host.port).await.ok()?;
    let none = RecordAnswer { verifiers: Vec::new(), ttl: Duration::ZERO, authentic: true };
    let Some(record) = record else { return Some(none) };
    let chosen = {
        let Ok(param) = VerifiersParam::parse(&record.value) else { return Some(none) };
        let mut state = shared.lock();
        state.choose(&host.name, param.iter().filter_map(|one| VerifierOfSite::read(&one)))
    };
    let (mut verifiers, mut ttl, mut authentic) = (Vec::new(), record.ttl, record.authentic);
    for named in chosen {
        // Each host that is to be asked has a record of its own that says the same of the verifier.
        let mut agreed = true;
        for at in named.hosts() {
            let own = if at == host {
                Ok(Some(record.clone()))
            } else {
                surroundings.record(&at.name, at.port).await
            };
            let Ok(Some(own)) = own else {
                agreed = false;
                break;
            };
            let names = |param: VerifiersParam<'_>| {
                param.iter().any(|one| VerifierOfSite::read(&one).as_ref() == Some(&named))
            };
            agreed &= VerifiersParam::parse(&own.value).is_ok_and(names);
            (ttl, authentic) = (ttl.min(own.ttl), authentic && own.authentic);
        }
        if agreed {
            verifiers.push(named);
        } else {
            tracing::debug!(host = host.name, verifier = %named.at, "a verifier is named that does not name itself");
        }
    }
    Some(RecordAnswer { verifiers, ttl: Duration::from_secs(ttl.into()), authentic })
}

/// Lets datagrams to one learnt verifier leave.
struct Gate {
    shared: Arc<Shared>,
    site: HostRule,
    /// The address of this host by which the visit went. By another one, the host has moved, or goes another way.
    source: IpAddr,
}

impl Permit for Gate {
    fn may_send(&self, from: IpAddr, to: SocketAddr) -> bool {
        let may = || boot_clock().is_ok_and(|now| self.shared.lock().spend_datagram(&self.site, to, now));
        from == self.source && self.shared.may_be_asked(to.ip()) && may()
    }

    fn handle_answer(&self, from: SocketAddr) {
        if let Ok(now) = boot_clock() {
            self.shared.lock().handle_challenge(&self.site, from, now);
        }
    }
}

/// The first address of a learnt verifier to which a datagram may be sent.
struct Allowed(Arc<Shared>);

impl Allowed {
    async fn addresses(&self, host: &str, v4: bool) -> io::Result<Vec<IpAddr>> {
        let found = self.0.surroundings.addresses(host, v4).await?;
        Ok(found.into_iter().find(|ip| self.0.may_be_asked(*ip)).into_iter().collect())
    }
}

impl LookUp for Allowed {
    fn addresses<'a>(&'a self, name: &'a str, v4: bool) -> Looked<'a> {
        Box::pin(Self::addresses(self, name, v4))
    }
}

async fn fulfil(shared: Arc<Shared>, wish: Wish) -> TaskResult {
    let result = ask(shared, &wish).await.map(Box::new);
    TaskResult::Obtained { wish: Box::new(wish), result }
}

async fn ask(shared: Arc<Shared>, wish: &Wish) -> Result<ClientCertificate, ObtainError> {
    let key = PrivateKey::generate(&mut secure_rng().map_err(ObtainError::System)?);
    let (named, v4) = (&wish.named, wish.v4);
    let gate = Gate { shared: Arc::clone(&shared), site: wish.site.clone(), source: wish.source };
    let allowed = Arc::new(Allowed(shared));
    let mut group = Vec::new();
    for (id, at) in &named.points {
        let found = allowed.addresses(&at.name, v4).await.unwrap_or_default();
        let addresses = found.into_iter().map(|ip| SocketAddr::new(ip, at.port)).collect();
        group.push(VantageAddress { id: *id, name: at.to_string(), addresses });
    }
    let named_at = IssuerAddress::named(&named.at.name, named.at.port, v4, named.key, allowed);
    let issuer = IssuerAddress { group, ..named_at };
    let wanted = Wanted { key, wished: WISHED, old: wish.old.as_deref() };
    let route = Route::Permitted(Arc::new(gate));
    let certificate = obtain_by(&route, &issuer, wanted, &Patience::default()).await?;
    if fits(certificate.body(), unix_now()) {
        Ok(certificate)
    } else {
        Err(ObtainError::Wrong { issuer: issuer.name })
    }
}

/// Whether a certificate of a verifier that nobody vouches for lasts no longer than was wished, and begins now.
fn fits(body: &CertificateBody, now: u64) -> bool {
    body.lasts() <= Duration::from_secs(WISHED.into()) && u64::from(body.valid_from).abs_diff(now) <= ASKEW
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn settle(shared: &Shared, done: TaskResult, now: Instant) {
    match done {
        TaskResult::Learnt { host, era, answer } => shared.lock().handle_learnt(&host, era, answer, now),
        TaskResult::Obtained { wish, result: Ok(certificate) } => {
            shared.lock().handle_obtained(&wish, *certificate)
        }
        TaskResult::Obtained { wish, result: Err(error) } => {
            tracing::debug!(verifier = %wish.named.at, %error, "no certificate of a learnt verifier");
            let refused = error.refused();
            let useless = refused.is_some_and(|refused| refused.reason == Reason::OldCertificate);
            let wait = Duration::from_secs(refused.map_or(0, |refused| refused.retry_after).into());
            shared.lock().handle_failed(&wish, useless, wait, now);
        }
    }
}

#[cfg(test)]
mod tests;
