//! A verifier in a server: it answers at the UDP port of the encapsulation (`docs/spec/asap.md` §5.9).

use crate::clock;
use crate::credential::asap::{AsapPolicy, PublicKey, TrustError, TrustStore, Trusted};
use crate::credential::{PolicyError, ReplayGuard};
use crate::endpoint::Endpoint;
use crate::endpoint::ending::EngineRef;
use crate::server::ServerBuilder;
use crate::shared::{Inner, Shared};
use firstflight_stack::{ListenError, ListenerId, Stack, VerifierMessage};
use firstflight_verifier::{Answer, Config, ConfigError, Counters, Issuer, Verifier, secure_rng};
use firstflight_wire::asap::message::MessageBytes;
use firstflight_wire::{Clock, Instant};
use rand_chacha::ChaCha20Rng;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::mpsc;

/// Messages of one endpoint that wait for the verifier. Further ones are dropped; their clients ask again.
const WAITING: usize = 64;
/// Signatures made and verified a second: some 4 % of a processor.
const SIGNATURES: u32 = 1_000;
/// A guard refuses requests while the wall clock is further than this behind the guard's time, milliseconds.
const BEHIND_MS: u64 = 1_000;
/// For how long after the farm's store refused this member's clock the verifier issues nothing.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// The verifier of a server's own process. Clones are handles to one verifier, so that all servers of a process that have the
/// same key are one. Give it to [`ServerBuilder::verifier`](crate::ServerBuilder::verifier), or to
/// [`Endpoint::verify`].
///
/// The servers trust its key, and its retired keys, whatever else they trust.
#[derive(Clone)]
pub struct OwnVerifier(Arc<State>);

struct State {
    /// Of the farm.
    members: NonZeroU16,
    machine: Mutex<(Verifier, ChaCha20Rng)>,
    /// What its servers trust.
    trusted: Mutex<Vec<Trusted>>,
    engines: Mutex<Vec<Weak<Shared>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why a configuration is not one of a server's verifier. Its author is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnVerifierError {
    /// It is invalid.
    #[error("{0}")]
    Config(ConfigError),
    /// It has no key to certify with.
    #[error("the verifier of a server needs a key to certify with")]
    NoKey,
    /// It sends probes, which would come from an address that clients ask at.
    #[error("the verifier of a server sends no probes: it has no other address")]
    Probes,
    /// The server trusts another key with the id of one of its keys.
    #[error("{0}")]
    Trust(TrustError),
}

impl OwnVerifier {
    /// Limits for the verifier of a server: those of any verifier, but only 1,000 signatures a second. They are made on the
    /// processors that serve requests.
    #[must_use]
    pub fn limits() -> firstflight_verifier::Limits {
        firstflight_verifier::Limits::default().signatures_per_second(SIGNATURES)
    }

    /// A verifier with the default settings and [`OwnVerifier::limits`]. It certifies global addresses.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(issuer: Issuer) -> io::Result<Self> {
        Self::with_config(Config::default().issuer(Some(issuer)).limits(Self::limits()))
    }

    /// A verifier with other settings. [`Config::members`] is the number of the farm's members; 1, if it is not set.
    ///
    /// # Errors
    /// When the system has no random numbers. [`io::ErrorKind::InvalidInput`] with an [`OwnVerifierError`] when the settings are
    /// wrong.
    pub fn with_config(config: Config) -> io::Result<Self> {
        let (config, trusted) = check(config).map_err(invalid)?;
        let members = config.members.unwrap_or(NonZeroU16::MIN);
        let mut rng = secure_rng()?;
        // Its clock is an argument of each message. It makes no challenge keys of its own.
        let verifier = Verifier::new(config, Instant::ZERO, &mut rng);
        let verifier = verifier.map_err(|error| invalid(OwnVerifierError::Config(error)))?;
        let (machine, trusted) = (Mutex::new((verifier, rng)), Mutex::new(trusted));
        Ok(Self(Arc::new(State { members, machine, trusted, engines: Mutex::default() })))
    }

    /// The key that certifies. Clients need it.
    #[must_use]
    pub fn key(&self) -> PublicKey {
        // The first one of those that are trusted. There is always one.
        lock(&self.0.trusted).first().map_or(PublicKey::from_bytes([0; 32]), |first| first.key)
    }

    /// How many servers have its key. Each takes its part of the limits.
    #[must_use]
    pub fn members(&self) -> NonZeroU16 {
        self.0.members
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *lock(&self.0.machine).0.counters()
    }

    /// `trust` and this verifier: what a server with it trusts. An entry of `trust` for the same key holds.
    ///
    /// # Errors
    /// When `trust` has another key with the id of one of this verifier's keys.
    pub fn trusted_beside(&self, trust: &TrustStore) -> Result<TrustStore, TrustError> {
        beside(trust, &lock(&self.0.trusted))
    }

    /// Takes other keys, durations and prefixes. Its servers trust the new key first, and then it certifies with it. Requests
    /// with certificates by a new key are taken ten seconds later at the earliest. Limits and the number of members stay.
    ///
    /// The other members of a farm must trust a new key before.
    ///
    /// # Errors
    /// When the settings are wrong, or a server trusts another key with the same id. Then nothing changes.
    pub fn set_config(&self, config: Config) -> Result<(), OwnVerifierError> {
        let (config, trusted) = check(config)?;
        self.contradicted(&trusted)?;
        *lock(&self.0.trusted) = trusted;
        self.each_engine(|inner| {
            inner.set_clock();
            let now = inner.now();
            let Inner { stack, desk, .. } = inner;
            for (id, listener) in &desk.listeners {
                // There was no contradiction a moment ago.
                if let Ok(trust) = self.trusted_beside(&listener.trust) {
                    stack.set_trust(*id, Arc::new(trust), now);
                }
            }
        });
        lock(&self.0.machine).0.set_config(config).map_err(OwnVerifierError::Config)
    }

    /// Checks what [`OwnVerifier::set_config`] would do, and changes nothing.
    ///
    /// # Errors
    /// As [`OwnVerifier::set_config`].
    pub fn check_config(&self, config: &Config) -> Result<(), OwnVerifierError> {
        let (_, trusted) = check(config.clone())?;
        self.contradicted(&trusted)
    }

    /// Whether `other` is a handle to the same verifier.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether a listener trusts another key with the id of one of these.
    fn contradicted(&self, trusted: &[Trusted]) -> Result<(), OwnVerifierError> {
        let mut result = Ok(());
        self.each_engine(|inner| {
            for listener in inner.desk.listeners.values() {
                if let Err(error) = beside(&listener.trust, trusted) {
                    result = Err(OwnVerifierError::Trust(error));
                }
            }
        });
        result
    }

    fn each_engine(&self, mut act: impl FnMut(&mut Inner)) {
        let engines: Vec<_> = lock(&self.0.engines).iter().filter_map(EngineRef::of).collect();
        engines.iter().for_each(|engine| act(&mut engine.lock()));
    }

    fn handle(&self, clock: &Clock, message: &VerifierMessage) -> Option<MessageBytes> {
        let (verifier, rng) = &mut *lock(&self.0.machine);
        match verifier.handle_datagram(clock, message.client, &message.bytes, rng)? {
            Answer::Reply(answer) => Some(answer),
            // It has no address to send it from.
            Answer::Probe(_) => None,
        }
    }
}

impl fmt::Debug for OwnVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnVerifier").field(&self.counters()).finish()
    }
}

fn invalid(error: OwnVerifierError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// The settings with what is always so, and what servers trust.
fn check(config: Config) -> Result<(Config, Vec<Trusted>), OwnVerifierError> {
    let members = config.members.or(Some(NonZeroU16::MIN));
    let config = config.members(members);
    config.validate().map_err(|error| match error {
        ConfigError::Members | ConfigError::Nothing => OwnVerifierError::NoKey,
        error => OwnVerifierError::Config(error),
    })?;
    if !config.probe_from.is_empty() {
        return Err(OwnVerifierError::Probes);
    }
    let issuer = config.issuer.as_ref().ok_or(OwnVerifierError::NoKey)?;
    let longest = Duration::from_secs(issuer.longest.into());
    let keys = std::iter::once(issuer.key.public()).chain(issuer.retired.iter().copied());
    let trusted: Vec<_> =
        keys.map(|key| Trusted { own: true, longest, oldest: longest, ..Trusted::new(key) }).collect();
    // Two of its own keys may have one id.
    TrustStore::new(trusted.iter().cloned()).map_err(OwnVerifierError::Trust)?;
    Ok((config, trusted))
}

fn beside(trust: &TrustStore, own: &[Trusted]) -> Result<TrustStore, TrustError> {
    let named = |entry: &&Trusted| trust.iter().any(|other| other.key == entry.key);
    TrustStore::new(trust.iter().chain(own.iter().filter(|entry| !named(entry))).cloned())
}

/// The place of the verifier in an engine, if it has one: what passes between its stack and the verifier.
#[derive(Default)]
pub(crate) struct VerifierDesk {
    verifier: Option<OwnVerifier>,
    messages: Option<mpsc::Sender<(Weak<Shared>, VerifierMessage)>>,
    shared: Weak<Shared>,
    listeners: HashMap<ListenerId, Listening>,
    /// Until when nothing is issued, because the farm's store refused the clock.
    clock_refused: Option<Instant>,
}

/// A listener that takes certificates.
struct Listening {
    /// What it trusts besides the verifier.
    trust: Arc<TrustStore>,
    guard: Arc<dyn ReplayGuard>,
}

impl fmt::Debug for VerifierDesk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifierDesk").field("verifier", &self.verifier).finish_non_exhaustive()
    }
}

impl VerifierDesk {
    /// Hands the stack's messages to the verifier.
    pub(crate) fn hand_over(&self, stack: &mut Stack) {
        let Some(messages) = &self.messages else { return };
        while let Some(message) = stack.poll_verifier_message() {
            // Without room it is lost, as a datagram may be.
            let _ = messages.try_send((Weak::clone(&self.shared), message));
        }
    }

    /// What a listener with this policy trusts, if there is a verifier.
    pub(crate) fn trust(
        &self,
        policy: Option<&mut AsapPolicy>,
    ) -> Result<Option<Arc<TrustStore>>, ListenError> {
        let (Some(verifier), Some(policy)) = (&self.verifier, policy) else { return Ok(None) };
        let both = verifier.trusted_beside(&policy.trust);
        let both = both.map_err(|error| ListenError::Policy(PolicyError::Trust(error)))?;
        Ok(Some(std::mem::replace(&mut policy.trust, Arc::new(both))))
    }

    /// A listener has begun. `trust` is what it trusts besides the verifier.
    pub(crate) fn begin(&mut self, id: ListenerId, trust: Arc<TrustStore>, guard: Arc<dyn ReplayGuard>) {
        self.listeners.insert(id, Listening { trust, guard });
    }

    pub(crate) fn end(&mut self, id: ListenerId) {
        self.listeners.remove(&id);
    }

    /// What the listener shall trust when its file says `trust`.
    pub(crate) fn reload(
        &mut self,
        id: ListenerId,
        trust: &Arc<TrustStore>,
    ) -> Result<Arc<TrustStore>, TrustError> {
        let (Some(verifier), Some(listener)) = (&self.verifier, self.listeners.get_mut(&id)) else {
            return Ok(Arc::clone(trust));
        };
        let both = verifier.trusted_beside(trust)?;
        listener.trust = Arc::clone(trust);
        Ok(Arc::new(both))
    }

    /// The farm's store has refused this member's clock at `now`.
    pub(crate) fn clock_was_refused(&mut self, now: Instant) {
        self.clock_refused = Some(now + REFUSED_FOR);
    }

    /// Whether a listener would refuse the certificates that are made now, because of the clock.
    fn clock_is_wrong(&self, clock: &Clock) -> bool {
        let behind =
            |guard: &Arc<dyn ReplayGuard>| guard.observe(clock) > clock.unix_ms.saturating_add(BEHIND_MS);
        self.clock_refused.is_some_and(|until| clock.mono < until)
            || self.listeners.values().any(|listener| behind(&listener.guard))
    }
}

impl Inner {
    /// The clock by which the verifier answers.
    fn verifier_clock(&mut self) -> Option<Clock> {
        // Stack and verifier tell a guard the same time.
        self.set_clock();
        let here = clock::at(self.time.unix(), self.now());
        let mono = self.time.certificate_clock();
        let mono =
            mono.inspect_err(|error| tracing::error!(%error, "no clock: a message is not answered")).ok()?;
        let uncertainty = if self.desk.clock_is_wrong(&here) { Duration::MAX } else { here.uncertainty };
        Some(Clock { mono, uncertainty, ..here })
    }
}

impl Endpoint {
    /// Answers clients of `verifier` at the encapsulation's UDP port. The listeners that begin from now on trust it, if
    /// they take certificates. Messages are handled by a task of the calling runtime, one at a time. Call it once.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the engine has no encapsulation, so that nobody can ask it. Its listeners
    /// trust the verifier in any case.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn verify(&self, verifier: &OwnVerifier) -> io::Result<()> {
        let (messages, waiting) = mpsc::channel(WAITING);
        let mut engines = lock(&verifier.0.engines);
        engines.retain(|engine| engine.strong_count() > 0);
        engines.extend(self.all().iter().map(Arc::downgrade));
        drop(engines);
        for shared in self.all() {
            let mut inner = shared.lock();
            inner.desk.verifier = Some(verifier.clone());
            if !inner.stack.keep_verifier_messages() {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "a verifier answers in UDP, which this engine does not speak",
                ));
            }
            inner.desk.messages = Some(messages.clone());
            inner.desk.shared = Arc::downgrade(shared);
        }
        tokio::spawn(answer(verifier.clone(), waiting));
        Ok(())
    }
}

impl ServerBuilder {
    /// The server is its own verifier: it certifies that clients are at their addresses, in its UDP port, and takes their
    /// certificates as with [`ServerBuilder::trust`], which it needs not. Each client's first visit gets a certificate,
    /// and a later one sends its request in the first packet ([`ClientBuilder::verifier`](crate::ClientBuilder::verifier)
    /// with this server's UDP address). Engines of [`ServerBuilder::engine_at`] with an encapsulation answer, too. A
    /// verifier of several members needs [`ServerBuilder::per_site`].
    ///
    /// ```no_run
    /// # fn serve() -> Result<(), Box<dyn std::error::Error>> {
    /// use firstflight::OwnVerifier;
    /// use firstflight::verifier::{Issuer, VerifierKeys};
    /// let keys = VerifierKeys::read("verifier.key".as_ref())?;
    /// let verifier = OwnVerifier::new(Issuer { retired: keys.retired, ..Issuer::new(keys.key) })?;
    /// let server = firstflight::Server::builder()
    ///     .address("0.0.0.0:443".parse()?)
    ///     .verifier(&verifier)
    ///     .identity("www.example.com")
    ///     .bind()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn verifier(mut self, verifier: &OwnVerifier) -> Self {
        self.first_flights.verifier = Some(verifier.clone());
        self
    }
}

/// Answers the messages of an endpoint, until it is gone.
async fn answer(verifier: OwnVerifier, mut waiting: mpsc::Receiver<(Weak<Shared>, VerifierMessage)>) {
    while let Some((shared, message)) = waiting.recv().await {
        answer_one(&verifier, &shared, &message);
        // The segments of the next burst come before the next message.
        tokio::task::yield_now().await;
    }
}

fn answer_one(verifier: &OwnVerifier, shared: &Weak<Shared>, message: &VerifierMessage) {
    let Some(shared) = EngineRef::of(shared) else { return };
    let clock = shared.lock().verifier_clock();
    // Signatures are made and verified without the engine's lock.
    if let Some(answer) = clock.and_then(|clock| verifier.handle(&clock, message)) {
        let mut inner = shared.lock();
        inner.stack.send_verifier_answer(message.local, message.client, &answer);
        inner.kick();
    }
}
