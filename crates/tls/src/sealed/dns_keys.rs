//! Keys that servers publish in their HTTPS records (8.1), as a client looks them up and remembers them.

use super::client::Looked;
use firstflight::record::{Names, Validated};
use firstflight::wire::Instant;
use firstflight::{Authority, Host, Time};
use firstflight_seal::{AnsweredBy, KeySource, Reason, Record};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Servers remembered.
const CAPACITY: usize = 1024;
/// Questions under way.
const AT_ONCE: usize = 64;
/// How long a lookup may take longer than that of the addresses.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long the lookup for a hidden name may take: nothing is sent without its answer.
const WHOLE: Duration = Duration::from_secs(6);
/// A record is used for at least and at most this time.
const LEAST_LASTS: Duration = Duration::from_secs(5);
const MOST_LASTS: Duration = Duration::from_secs(24 * 3600);
/// How long it is remembered that a server publishes nothing, and that nobody answered.
const NOTHING_LASTS: Duration = Duration::from_secs(60);
const FAILURE_LASTS: Duration = Duration::from_secs(10);

/// Looks up the seal keys of servers in their HTTPS records, for [`SealClient::dns`](crate::SealClient::dns). Each is kept as
/// long as its TTL says, and asked for again after a REJECT.
///
/// A key counts as authenticated only with the AD bit of a resolver that was declared as trusted, with the path to it:
/// [`Names::trust_ad`], or `options trust-ad` in resolv.conf. A loopback address alone is no reason. With any other key a request waits for TLS, unless
/// the policy is [`Trust::Any`](crate::seal::Trust::Any).
///
/// ```no_run
/// # fn build() -> std::io::Result<firstflight_tls::SealClient> {
/// use firstflight::record::Names;
/// use firstflight_tls::{DnsKeys, SealClient};
/// Ok(SealClient::new().dns(DnsKeys::new(Names::system()?)))
/// # }
/// ```
#[derive(Debug)]
pub struct DnsKeys {
    names: Names,
    patience: Duration,
    found: Mutex<FoundSealKeys>,
}

#[derive(Debug, Default)]
struct FoundSealKeys {
    known: HashMap<Authority, (Looked, Instant)>,
    asking: HashMap<Authority, watch::Receiver<bool>>,
    /// How often all was forgotten. An answer to an earlier question is not kept.
    era: u64,
}

impl DnsKeys {
    /// Keys from these resolvers.
    #[must_use]
    pub fn new(names: Names) -> Self {
        Self { names, patience: PATIENCE, found: Mutex::default() }
    }

    /// How much longer than the lookup of the addresses this one may take, before the connect goes without a key. The answer
    /// then serves the next connect. The default is 50 ms. For a hidden name the connect waits for the answer.
    #[must_use]
    pub const fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    fn found(&self) -> MutexGuard<'_, FoundSealKeys> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self, server: &Authority) {
        self.found().known.remove(server);
    }

    pub(super) fn forget_all(&self) {
        let mut found = self.found();
        *found = FoundSealKeys { era: found.era + 1, ..FoundSealKeys::default() };
    }

    /// The key of a server. Looks it up beside `meanwhile`, and then waits for as long as patience lasts.
    pub(super) async fn find<T>(
        self: &Arc<Self>,
        server: &Authority,
        hidden: bool,
        time: &Time,
        meanwhile: impl Future<Output = T>,
    ) -> (Looked, T) {
        let asked = self.ask(server, time);
        let done = meanwhile.await;
        let mut answered = match asked {
            Ok(known) => return (known, done),
            Err(answered) => answered,
        };
        let patience = if hidden { WHOLE } else { self.patience };
        // An error: its task was dropped, as the runtime shuts down.
        let _ = time.timeout(patience, answered.wait_for(|answered| *answered)).await;
        let known = self.known(server, time.now());
        (known.unwrap_or(Looked::Nothing(Reason::LookupFailed)), done)
    }

    fn known(&self, server: &Authority, now: Instant) -> Option<Looked> {
        let found = self.found();
        found.known.get(server).filter(|(_, until)| now < *until).map(|(known, _)| known.clone())
    }

    /// What is known, or a question under way.
    fn ask(self: &Arc<Self>, server: &Authority, time: &Time) -> Result<Looked, watch::Receiver<bool>> {
        let Host::Name(name) = server.host() else { return Ok(Looked::Nothing(Reason::NoRecord)) };
        if let Some(known) = self.known(server, time.now()) {
            return Ok(known);
        }
        let mut found = self.found();
        if let Some(asking) = found.asking.get(server) {
            return Err(asking.clone());
        }
        if found.asking.len() >= AT_ONCE {
            return Ok(Looked::Nothing(Reason::LookupFailed));
        }
        let (tell, answered) = watch::channel(false);
        found.asking.insert(server.clone(), answered.clone());
        let era = found.era;
        drop(found);
        let (this, name, server, time) = (Arc::clone(self), name.clone(), server.clone(), time.clone());
        tokio::spawn(async move {
            let (looked, lasts) = this.question(&name, server.port()).await;
            this.answer(server, looked, lasts, era, time.now());
            let _ = tell.send(true);
        });
        Err(answered)
    }

    /// Asks the DNS. Returns for how long the answer counts, too.
    async fn question(&self, name: &str, port: u16) -> (Looked, Duration) {
        match self.names.parameter(name, port, Record::KEY).await {
            Ok(None) => (Looked::Nothing(Reason::NoRecord), NOTHING_LASTS),
            Ok(Some(found)) => {
                let lasts = Duration::from_secs(found.ttl.into()).clamp(LEAST_LASTS, MOST_LASTS);
                match Record::parse(&found.value) {
                    Ok(record) => (Looked::key(record, source(found.validated)), lasts),
                    // As if it were absent (8.1).
                    Err(error) => {
                        tracing::debug!("the seal keys that {name} publishes count as none: {error}");
                        (Looked::Nothing(Reason::NoRecord), lasts)
                    }
                }
            }
            Err(error) => {
                tracing::debug!("no answer about seal keys of {name}: {error}");
                (Looked::Nothing(Reason::LookupFailed), FAILURE_LASTS)
            }
        }
    }

    fn answer(&self, server: Authority, looked: Looked, lasts: Duration, era: u64, now: Instant) {
        let mut found = self.found();
        if found.era != era {
            return;
        }
        found.asking.remove(&server);
        if found.known.len() >= CAPACITY && !found.known.contains_key(&server) {
            let first = found.known.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(first) = first.map(|(server, _)| server.clone()) {
                found.known.remove(&first);
            }
        }
        found.known.insert(server, (looked, now + lasts));
    }
}

/// Who vouches for a key (8.3).
const fn source(validated: Validated) -> KeySource {
    match validated {
        Validated::TrustedPath => KeySource::Validated(AnsweredBy::TrustedPath),
        Validated::Other => KeySource::Validated(AnsweredBy::Other),
        _ => KeySource::PlainDns,
    }
}
