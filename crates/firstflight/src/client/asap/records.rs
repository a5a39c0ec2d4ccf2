//! What servers publish: asked beside the addresses, and remembered.

use super::site_verifiers::{RecordVerifiers, Resolvers};
use crate::client::authority::{Authority, Host};
use crate::kernel::Kernel;
use crate::memory::records::NamedServer;
use crate::record::{Names, Published};
use firstflight_credential::NetworkId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Questions under way.
const AT_ONCE: usize = 64;
/// How long to wait for the record of a server that has published one.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long to wait for any other server's record: a part of what the addresses took, and at most this. The answers to
/// questions asked together arrive together, in any order.
const GRACE: Duration = Duration::from_millis(10);
/// How long it is remembered that a server publishes nothing, and that nobody answered.
const NOTHING_LASTS: Duration = Duration::from_secs(60);
const FAILURE_LASTS: Duration = Duration::from_secs(10);
/// A record is used for at least and at most this time.
const LEAST_LASTS: Duration = Duration::from_secs(5);
const MOST_LASTS: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub(super) struct Records {
    names: Resolvers,
    /// The resolvers are the system's.
    by_system: bool,
    /// What the caller said.
    given: HashMap<Authority, Published>,
    /// It has the memory.
    kernel: Kernel,
    asking: Arc<Mutex<AskingRecords>>,
    /// It is told of records that name verifiers.
    found: Option<Arc<RecordVerifiers>>,
}

#[derive(Debug, Default)]
struct AskingRecords {
    /// Questions under way.
    servers: HashSet<Authority>,
    /// How often the host moved, or all was forgotten. An answer to an earlier question is not used.
    era: u64,
}

/// A question that may be under way.
pub(crate) struct RecordQuestion {
    answer: Option<watch::Receiver<bool>>,
    /// Whether the server published something before.
    speaks: bool,
}

impl Records {
    /// `names` are the caller's resolver. Without it the system's are asked if `by_system`.
    pub(super) fn new(
        kernel: &Kernel,
        names: Option<Arc<Names>>,
        by_system: bool,
        given: Vec<(Authority, Published)>,
    ) -> Self {
        let by_system = by_system && names.is_none();
        let names = if by_system { system() } else { names };
        Self {
            names: Arc::new(Mutex::new(names)),
            by_system,
            given: given.into_iter().collect(),
            kernel: kernel.clone(),
            asking: Arc::default(),
            found: None,
        }
    }

    /// What there is from now on knows of verifiers that records name.
    pub(super) fn tell(&mut self, found: &Arc<RecordVerifiers>) {
        self.found = Some(Arc::clone(found));
    }

    pub(super) fn resolvers(&self) -> Resolvers {
        Arc::clone(&self.names)
    }

    fn names(&self) -> MutexGuard<'_, Option<Arc<Names>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host is on another network, which has other resolvers, and says what it likes. What it said before, if it has
    /// an id, is known again.
    pub(super) fn moved(&self) {
        if self.by_system {
            *self.names() = system();
        }
        self.forget();
    }

    /// `server` on the present network.
    fn here(&self, server: &Authority) -> NamedServer {
        named(self.kernel.network(), server)
    }

    /// Whether it is known what `server` publishes, or that it publishes nothing.
    fn is_known(&self, server: &Authority) -> bool {
        let here = self.here(server);
        let mut memory = self.kernel.memory();
        let (records, now) = memory.records();
        records.get(&here, now).is_some()
    }

    /// Asks what `server` publishes, unless that is known, or an address has no records.
    pub(super) fn ask(&self, server: &Authority) -> RecordQuestion {
        let nothing = RecordQuestion { answer: None, speaks: false };
        let (Some(names), Host::Name(name)) = (self.names().clone(), server.host()) else { return nothing };
        if self.given.contains_key(server) {
            return nothing;
        }
        let here = self.here(server);
        let speaks = self.kernel.memory().records().0.published_before(&here);
        if self.is_known(server) {
            return nothing;
        }
        let mut asking = lock(&self.asking);
        if asking.servers.len() >= AT_ONCE || !asking.servers.insert(server.clone()) {
            return nothing;
        }
        drop(asking);
        let (tell, answer) = watch::channel(false);
        let question = self.question(server);
        let (name, port) = (name.clone(), server.port());
        tokio::spawn(async move {
            let result = names.record(&name, port).await;
            question.answer(result.ok());
            let _ = tell.send(true);
        });
        RecordQuestion { answer: Some(answer), speaks }
    }

    /// Asks again what `server` publishes, because first flights to it are lost, at most once in ten minutes. Nobody waits
    /// for the answer.
    pub(super) fn ask_again(&self, server: &Authority) {
        let (Some(names), Host::Name(name)) = (self.names().clone(), server.host()) else { return };
        let here = self.here(server);
        {
            let mut memory = self.kernel.memory();
            let (records, now) = memory.records();
            if !records.may_ask_again(&here, now) {
                return;
            }
        }
        let mut asking = lock(&self.asking);
        if asking.servers.len() >= AT_ONCE || !asking.servers.insert(server.clone()) {
            return;
        }
        drop(asking);
        let question = self.question(server);
        let (name, port) = (name.clone(), server.port());
        tracing::info!(%name, port, "first flights are lost: asking again what the server publishes");
        tokio::spawn(async move {
            let found = names.record(&name, port).await;
            question.answer_again(&here, found.ok());
        });
    }

    /// Whether it is worth asking: an address has no records, what the caller said counts, and so does what is known.
    pub(super) fn asks_about(&self, server: &Authority) -> bool {
        let askable = self.names().is_some() && matches!(server.host(), Host::Name(_));
        askable && !self.given.contains_key(server) && !self.is_known(server)
    }

    /// A question that is asked with the addresses of `server`.
    pub(super) fn question(&self, server: &Authority) -> Question {
        Question {
            asking: Arc::clone(&self.asking),
            kernel: self.kernel.clone(),
            network: self.kernel.network(),
            server: server.clone(),
            era: lock(&self.asking).era,
            found: self.found.clone(),
        }
    }

    pub(super) fn known(&self, server: &Authority) -> Option<Published> {
        if let Some(given) = self.given.get(server) {
            return Some(given.clone());
        }
        let here = self.here(server);
        let mut memory = self.kernel.memory();
        let (records, now) = memory.records();
        let known = records.get(&here, now)?;
        let left = known.until.saturating_since(now).as_secs();
        Published::read(known.parameter.as_deref()?, u32::try_from(left).unwrap_or(u32::MAX))
    }

    /// No answer to an earlier question is used.
    pub(super) fn forget(&self) {
        let mut asking = lock(&self.asking);
        let era = asking.era + 1;
        *asking = AskingRecords { era, ..AskingRecords::default() };
    }
}

fn named(network: NetworkId, server: &Authority) -> NamedServer {
    NamedServer::new(network, &server.host().to_string(), server.port())
}

/// The system's resolvers, as they are now.
fn system() -> Option<Arc<Names>> {
    match Names::system() {
        Ok(names) => Some(Arc::new(names)),
        Err(error) => {
            tracing::warn!("cannot ask what servers publish: {error}");
            None
        }
    }
}

fn lock(asking: &Mutex<AskingRecords>) -> MutexGuard<'_, AskingRecords> {
    asking.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A question under way.
pub(crate) struct Question {
    asking: Arc<Mutex<AskingRecords>>,
    kernel: Kernel,
    /// Where it was asked.
    network: NetworkId,
    server: Authority,
    era: u64,
    found: Option<Arc<RecordVerifiers>>,
}

impl Question {
    /// Tells what a resolver said of verifiers.
    fn tell(&self, answer: Option<&Published>, lasts: Duration) {
        self.found.iter().for_each(|found| found.handle_record(&self.server, answer, lasts));
    }

    /// Stores the answer; `None` if there was none.
    pub(crate) fn answer(&self, answer: Option<Option<Published>>) {
        let lasts = match &answer {
            Some(Some(published)) => Duration::from_secs(published.ttl.into()).clamp(LEAST_LASTS, MOST_LASTS),
            Some(None) => NOTHING_LASTS,
            None => FAILURE_LASTS,
        };
        let asking = lock(&self.asking);
        if asking.era == self.era {
            if let Some(answer) = &answer {
                self.tell(answer.as_ref(), lasts);
            }
            let published = answer.flatten();
            let parameter = published.as_ref().map(|published| &*published.bytes);
            let mut memory = self.kernel.memory();
            let (records, now) = memory.records();
            records.learn(named(self.network, &self.server), parameter, lasts, now);
        }
    }
}

impl Question {
    /// Stores the answer to a question that was repeated. Without an answer, what is known is used on, and nobody asks for a
    /// while. A program that ends before it comes asks again in its next run.
    fn answer_again(&self, here: &NamedServer, answer: Option<Option<Published>>) {
        if lock(&self.asking).era != self.era {
            return;
        }
        let mut memory = self.kernel.memory();
        let (records, now) = memory.records();
        match answer {
            Some(found) => {
                let lasts = |one: &Published| Duration::from_secs(one.ttl.into()).max(LEAST_LASTS);
                self.tell(found.as_ref(), found.as_ref().map_or(NOTHING_LASTS, lasts));
                let found = found.as_ref().map(|one| (&*one.bytes, lasts(one)));
                records.learn_again(here, found, now);
            }
            None => records.set_asked(here, now),
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut asking = lock(&self.asking);
        if asking.era == self.era {
            asking.servers.remove(&self.server);
        }
    }
}

impl RecordQuestion {
    /// Nobody waits for it.
    pub(super) fn in_background(self) -> Self {
        Self { answer: None, ..self }
    }

    /// Waits for the answer, if that is worth it. `lookup` is how long the addresses took.
    pub(crate) async fn wait(self, lookup: Duration) {
        let Some(mut answer) = self.answer else { return };
        let patience = if self.speaks { PATIENCE } else { (lookup / 10).min(GRACE) };
        // The question goes on.
        let _ = timeout(patience, answer.wait_for(|done| *done)).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    /// A network's resolver answers after the host has left the network.
    #[test]
    fn an_answer_that_comes_after_a_move_is_not_used() {
        let key = firstflight_credential::asap::PrivateKey::from_seed(&[1; 32]);
        let published = Published::in_udp(9, 1200, &[key.public().id()]).unwrap();
        let records = Records::new(&Kernel::default(), None, false, Vec::new());
        let server: Authority = "www.example.com:80".parse().unwrap();
        let question = records.question(&server);
        records.moved();
        question.answer(Some(Some(published)));
        assert!(records.known(&server).is_none(), "the other network's record is used");
    }
}
