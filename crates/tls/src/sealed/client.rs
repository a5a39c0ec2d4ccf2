//! What a client needs besides TLS: servers' keys, and the memory of failures.

mod hello;

pub(crate) use hello::{Ended, SealedHello, finish_over};

use super::rng;
use crate::connector::{Connector, Departure};
use crate::error::{ConnectError, HiddenError};
use firstflight::credential::NetworkId;
use firstflight::wire::Instant;
use firstflight::{AttemptInfo, Authority, FirstFlight, Host, Time, Way};
use firstflight_seal::{
    Bind, Draft, Entry, Failures, Flags, FlightRoom, HostName, KeySource, NamePolicy, Plan, Reason, Record,
    Rid, Sent, Target, Trust,
};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest flight in a SYN that is not known to hold more, bytes. The kernel does not say how much one holds. A path of
/// IPv6 has 1220 bytes at least, of which options take 40 at most.
const UNKNOWN_SYN: usize = 1024;
/// What a SYN in UDP holds if the server has not published it, in bytes of a datagram.
const DATAGRAM: u16 = 1200;
/// The encapsulation's header in front of it.
const ENCAPSULATION: u16 = 24;
/// TCP options of a SYN, at most.
const OPTIONS: usize = 40;
/// A credential block with its padding, at most.
const BLOCK: usize = 204;

/// The client's side of sealed first flights, for [`ConnectorBuilder::seal`](crate::ConnectorBuilder::seal): the keys of
/// servers, and the memory of where flights fail. Clones share that memory.
///
/// ```
/// use firstflight_tls::SealClient;
/// use firstflight_tls::seal::{KeySource, Record};
///
/// # fn seal(bytes: &[u8]) -> Result<SealClient, Box<dyn std::error::Error>> {
/// let record = Record::parse(bytes)?;
/// let seal = SealClient::new().record("www.example.com:443".parse()?, record, KeySource::Configuration);
/// # Ok(seal)
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct SealClient {
    records: HashMap<Authority, (Record, KeySource)>,
    #[cfg(feature = "dns")]
    dns: Option<Arc<super::DnsKeys>>,
    trust: Trust,
    hidden: HashSet<Authority>,
    failures: Arc<Mutex<Failures<NetworkId, Authority>>>,
}

impl SealClient {
    /// No keys yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The keys that `server` publishes, and where they come from.
    #[must_use]
    pub fn record(mut self, server: Authority, record: Record, source: KeySource) -> Self {
        self.records.insert(server, (record, source));
        self
    }

    /// Looks up the keys of all other servers in the DNS. What [`SealClient::record`] says about a server counts before.
    #[cfg(feature = "dns")]
    #[must_use]
    pub fn dns(mut self, keys: super::DnsKeys) -> Self {
        self.dns = Some(Arc::new(keys));
        self
    }

    /// Which keys requests may be sealed to. The default is [`Trust::Authenticated`].
    #[must_use]
    pub const fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Hides the name of `server` (`docs/spec/sealed.md` 7.5). Credential blocks are signed for the public name of its key,
    /// with a client key for this name alone. A connect without a key, with a request that cannot be sealed, or after a
    /// REJECT fails ([`ConnectError::Hidden`](crate::ConnectError::Hidden)), because a ClientHello outside a seal would name
    /// the server.
    ///
    /// It hides nothing if the name is looked up in the DNS in clear: use a resolver over TLS or HTTPS, and
    /// [`Connector::connect_at`](crate::Connector::connect_at).
    #[must_use]
    pub fn hide(mut self, server: Authority) -> Self {
        self.hidden.insert(server);
        self
    }

    pub(crate) fn hides(&self, server: &Authority) -> bool {
        self.hidden.contains(server)
    }

    /// Looks up the key of `server` if it is not given, beside `meanwhile`.
    #[cfg_attr(not(feature = "dns"), allow(unused_variables, reason = "nothing is looked up"))]
    pub(crate) async fn look_up<T>(
        &self,
        server: &Authority,
        time: &Time,
        meanwhile: impl Future<Output = T>,
    ) -> (Looked, T) {
        #[cfg(feature = "dns")]
        if let Some(dns) = self.dns.as_ref().filter(|_| !self.records.contains_key(server)) {
            return dns.find(server, self.hides(server), time, meanwhile).await;
        }
        (Looked::Nothing(Reason::NoRecord), meanwhile.await)
    }

    /// The server rejected the key: the DNS may have another one by now.
    #[cfg_attr(not(feature = "dns"), allow(unused_variables, reason = "nothing was looked up"))]
    pub(crate) fn is_stale(&self, server: &Authority) {
        #[cfg(feature = "dns")]
        if let Some(dns) = &self.dns {
            dns.forget(server);
        }
    }

    /// Forgets the keys that were looked up.
    pub(crate) fn forget(&self) {
        #[cfg(feature = "dns")]
        if let Some(dns) = &self.dns {
            dns.forget_all();
        }
    }

    fn failures(&self) -> MutexGuard<'_, Failures<NetworkId, Authority>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request of this protocol may be sealed, apart from the network.
    pub(crate) fn consider<'a>(
        &'a self,
        server: &'a Authority,
        looked: &'a Looked,
        data: FirstFlight<'a>,
        complete: bool,
        protocol: Option<&'a [u8]>,
        time: &Time,
    ) -> Considered<'a> {
        let unix = time.unix();
        let policy = if self.hides(server) { NamePolicy::Hidden } else { NamePolicy::Visible };
        let clear = |reason, hidden| match policy.allows_clear() {
            true => Considered::Clear(reason),
            false => Considered::Hidden(hidden, reason),
        };
        let (record, source) = match (self.records.get(server), looked) {
            (Some(given), _) => given,
            (None, Looked::Key(found)) => found,
            (None, Looked::Nothing(reason)) => return clear(*reason, HiddenError::NoKey),
        };
        if !self.trust.allows(*source) {
            return clear(Reason::Untrusted, HiddenError::NoKey);
        }
        let Some(entry) = record.usable(unix.as_secs()) else {
            return clear(Reason::NotUsable, HiddenError::NoKey);
        };
        let name = match server.host() {
            Host::Name(name) => name.parse::<HostName>().ok(),
            Host::Ip(_) => None,
        };
        let (Some(name), Some(protocol), false) = (name, protocol, data.data().is_empty()) else {
            return clear(Reason::NoRequest, HiddenError::Request);
        };
        if policy.block_name(&name, record.name()).is_none() {
            return Considered::Hidden(HiddenError::PublicName, Reason::NothingToHide);
        }
        let Ok(mut rng) = rng() else { return clear(Reason::NoRequest, HiddenError::Request) };
        Considered::Sealed(SealedRequest {
            seal: self,
            server,
            name,
            policy,
            entry,
            public_name: record.name(),
            data,
            flags: Flags { replayable: data.is_replayable(), complete },
            protocol,
            rid: Rid::random(&mut rng),
            t_ms: unix.as_millis() as u64,
            first_sealed: age_clock(time),
            declined: Mutex::new(Reason::OtherAttempt),
        })
    }
}

/// Whether a request is sealed.
pub(crate) enum Considered<'a> {
    Sealed(SealedRequest<'a>),
    /// It is not, for this reason.
    Clear(Reason),
    /// It cannot be, and nothing is sent: the name is hidden.
    Hidden(HiddenError, Reason),
}

/// What the DNS says about a server's keys.
#[derive(Debug, Clone)]
pub(crate) enum Looked {
    #[cfg_attr(not(feature = "dns"), allow(dead_code, reason = "nothing is looked up"))]
    Key(Arc<(Record, KeySource)>),
    /// There is none, or it was not asked.
    Nothing(Reason),
}

#[cfg(feature = "dns")]
impl Looked {
    pub(super) fn key(record: Record, source: KeySource) -> Self {
        Self::Key(Arc::new((record, source)))
    }
}

/// A request that is sealed, once for each connection that it is tried on (7.1).
pub(crate) struct SealedRequest<'a> {
    seal: &'a SealClient,
    server: &'a Authority,
    name: HostName,
    policy: NamePolicy,
    entry: &'a Entry,
    public_name: &'a HostName,
    data: FirstFlight<'a>,
    flags: Flags,
    protocol: &'a [u8],
    rid: Rid,
    t_ms: u64,
    first_sealed: Instant,
    /// Why it was not sealed, if it was not.
    declined: Mutex<Reason>,
}

impl SealedRequest<'_> {
    /// Why it was not sealed, for a connection that began in clear.
    pub(crate) fn declined(&self) -> Reason {
        *self.declined.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is not sealed here.
    fn decline<T>(&self, why: Reason) -> Result<Option<T>, ConnectError> {
        *self.declined.lock().unwrap_or_else(PoisonError::into_inner) = why;
        Ok(None)
    }

    /// Whether a flight may go again by itself (7.3). Without a block, what is not replayable runs after Finished only, and
    /// the client sends one Finished.
    pub(crate) const fn is_replayable(&self, certified: bool) -> bool {
        self.flags.replayable || !certified
    }

    /// The name that blocks are signed for, if it is not the server's.
    pub(crate) fn block_name(&self) -> Option<&str> {
        match self.policy {
            NamePolicy::Visible => None,
            NamePolicy::Hidden => Some(self.public_name.as_str()),
        }
    }

    pub(crate) const fn is_hidden(&self) -> bool {
        matches!(self.policy, NamePolicy::Hidden)
    }

    /// Seals the request for what carries it. `None`: not here.
    pub(crate) fn seal_for(
        &self,
        connector: &Connector,
        info: &AttemptInfo,
    ) -> Result<Option<SealedHello>, ConnectError> {
        let bind = info.block.as_ref().map_or(Bind::NONE, Bind::to);
        let block = if info.block.is_some() { BLOCK } else { 0 };
        let plan = |hello: usize| match (info.way, info.mss) {
            (Way::Udp, mss) => {
                let mss = mss.unwrap_or(DATAGRAM).saturating_sub(ENCAPSULATION);
                FlightRoom::in_udp(mss, OPTIONS, block).plan(hello, self.data.data().len())
            }
            (Way::Ip, Some(mss)) => {
                FlightRoom::in_syn(mss, OPTIONS, block).plan(hello, self.data.data().len())
            }
            _ => self.on_connection(hello).filter(|plan| plan.total <= UNKNOWN_SYN),
        };
        self.seal(connector, info.into(), bind, plan)
    }

    /// Seals the request for a connection that is open.
    pub(crate) fn seal_over(
        &self,
        connector: &Connector,
        departure: Departure,
    ) -> Result<Option<SealedHello>, ConnectError> {
        self.seal(connector, departure, Bind::NONE, |hello| self.on_connection(hello))
    }

    fn on_connection(&self, hello: usize) -> Option<Plan> {
        FlightRoom::on_connection().plan(hello, self.data.data().len())
    }

    fn seal(
        &self,
        connector: &Connector,
        departure: Departure,
        bind: Bind,
        plan: impl Fn(usize) -> Option<Plan>,
    ) -> Result<Option<SealedHello>, ConnectError> {
        let Self { entry, public_name, rid, t_ms, flags, protocol, first_sealed, .. } = *self;
        if age_clock(connector.time()) - first_sealed >= Sent::LASTS {
            return self.decline(Reason::OtherAttempt);
        }
        let now = connector.time().now();
        let failures = self.seal.failures();
        if self.is_hidden() && !failures.allows_hidden(&departure.network, self.server, now) {
            return Err(ConnectError::Hidden(HiddenError::Stopped));
        }
        if !self.is_hidden() && !failures.allows(&departure.network, self.server, now) {
            return self.decline(Reason::FailureMemory);
        }
        drop(failures);
        let to = Target { entry, public_name, port: self.server.port() };
        let draft = Draft::new(to, rid, bind, t_ms, flags, self.data.data(), protocol);
        let (Some(draft), Ok(mut rng)) = (draft, rng()) else { return self.decline(Reason::NoRequest) };
        let hello = connector.sealed_hello(self.server, departure, draft.alpn().to_vec())?;
        let Some(plan) = plan(hello.bytes().len()) else { return self.decline(Reason::TooLong) };
        let flight = match draft.seal(hello.bytes(), &self.name, &plan, &mut rng) {
            Ok(flight) => flight,
            Err(error) => {
                tracing::debug!("no sealed first flight to {}: {error}", self.server);
                return self.decline(Reason::NoRequest);
            }
        };
        let sent = Sent::new(flags, bind, protocol, self.policy, first_sealed);
        let memory = Memory {
            seal: self.seal.clone(),
            network: departure.network,
            server: self.server.clone(),
            time: connector.time().clone(),
        };
        let bytes = flight.as_bytes().to_vec();
        let once = !flags.replayable && bind.is_bound();
        Ok(Some(SealedHello { hello, bytes, sent, complete: flags.complete, once, memory }))
    }
}

/// Where the failure of a flight is remembered.
struct Memory {
    seal: SealClient,
    network: NetworkId,
    server: Authority,
    time: Time,
}

impl Memory {
    fn failed(&self) {
        self.seal.failures().failed(&self.network, &self.server, self.time.now());
    }
}

/// What an ordinary connection to a server was. It tells why flights failed at the same time (7.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ordinary {
    Worked,
    Failed,
}

impl SealClient {
    pub(crate) fn ordinary(&self, network: NetworkId, server: &Authority, was: Ordinary, now: Instant) {
        let mut failures = self.failures();
        match was {
            Ordinary::Worked => failures.ordinary_worked(&network, server, now),
            Ordinary::Failed => failures.ordinary_failed(&network, server, now),
        }
    }
}

/// The clock of a request's age, which runs while the machine sleeps (`docs/spec/sealed.md` 1.1): the server forgets what it has
/// seen after 15 minutes, asleep or not.
fn age_clock(time: &Time) -> Instant {
    time.certificate_clock().unwrap_or_else(|_| time.now())
}
