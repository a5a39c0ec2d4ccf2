//! What servers publish: asked beside the addresses, and remembered.

use crate::client::authority::{Authority, Host};
use crate::record::{Names, Published};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// Servers remembered.
const CAPACITY: usize = 4096;
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
/// The time between two questions that lost first flights cause.
const AGAIN: Duration = Duration::from_secs(60);
/// A record is used for at least and at most this time.
const LEAST_LASTS: Duration = Duration::from_secs(5);
const MOST_LASTS: Duration = Duration::from_secs(24 * 3600);

/// The records.
#[derive(Debug)]
pub(super) struct Records {
    names: Mutex<Option<Arc<Names>>>,
    /// The resolvers are the system's.
    by_system: bool,
    /// What the caller said.
    given: HashMap<Authority, Published>,
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    records: HashMap<Authority, Known>,
    /// Questions under way.
    asking: HashSet<Authority>,
    /// How often all was forgotten. An answer to an earlier question is not used.
    era: u64,
}

/// What is known of one server.
#[derive(Debug)]
struct Known {
    published: Option<Published>,
    until: Instant,
    /// When it was asked again because first flights were lost.
    asked_again: Option<Instant>,
}

/// A question that may be under way.
pub(crate) struct Asked {
    answer: Option<watch::Receiver<bool>>,
    /// Whether the server published something before.
    speaks: bool,
}

impl Records {
    /// `names` are the caller's resolver. Without it the system's are asked if `by_system`.
    pub(super) fn new(
        names: Option<Arc<Names>>,
        by_system: bool,
        given: Vec<(Authority, Published)>,
    ) -> Self {
        let by_system = by_system && names.is_none();
        let names = if by_system { system() } else { names };
        Self {
            names: Mutex::new(names),
            by_system,
            given: given.into_iter().collect(),
            found: Arc::default(),
        }
    }

    fn names(&self) -> MutexGuard<'_, Option<Arc<Names>>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The host is on another network, which has other resolvers, and says what it likes.
    pub(super) fn moved(&self) {
        if self.by_system {
            *self.names() = system();
        }
        self.forget();
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        lock(&self.found)
    }

    /// Asks what `server` publishes, unless that is known, or an address has no records.
    pub(super) fn ask(&self, server: &Authority) -> Asked {
        let nothing = Asked { answer: None, speaks: false };
        let (Some(names), Host::Name(name)) = (self.names().clone(), server.host()) else { return nothing };
        if self.given.contains_key(server) {
            return nothing;
        }
        let mut found = self.found();
        let known = found.records.get(server);
        let speaks = known.is_some_and(|one| one.published.is_some());
        if known.is_some_and(|one| Instant::now() < one.until)
            || found.asking.len() >= AT_ONCE
            || !found.asking.insert(server.clone())
        {
            return nothing;
        }
        drop(found);
        let (tell, answer) = watch::channel(false);
        let question = Question::new(&self.found, server);
        let (name, port) = (name.clone(), server.port());
        tokio::spawn(async move {
            let result = names.record(&name, port).await;
            question.answer(result.ok());
            let _ = tell.send(true);
        });
        Asked { answer: Some(answer), speaks }
    }

    /// Asks again what `server` publishes, although that is known, at most once a minute. Nobody waits for the answer.
    pub(super) fn ask_again(&self, server: &Authority) {
        let (Some(names), Host::Name(name)) = (self.names().clone(), server.host()) else { return };
        let now = Instant::now();
        let mut found = self.found();
        let Found { records, asking, .. } = &mut *found;
        let Some(known) = records.get_mut(server) else { return };
        let lately = known.asked_again.is_some_and(|at| now < at + AGAIN);
        if lately || asking.len() >= AT_ONCE || !asking.insert(server.clone()) {
            return;
        }
        known.asked_again = Some(now);
        drop(found);
        let question = Question::new(&self.found, server);
        let (name, port) = (name.clone(), server.port());
        tracing::info!(%name, port, "first flights are lost: asking again what the server publishes");
        tokio::spawn(async move {
            // Without an answer, what is known is used on.
            if let Ok(found) = names.record(&name, port).await {
                question.answer(Some(found));
            }
        });
    }

    /// Whether it is worth asking: an address has no records, what the caller said counts, and so does what is known.
    pub(super) fn asks_about(&self, server: &Authority) -> bool {
        let askable = self.names().is_some() && matches!(server.host(), Host::Name(_));
        let known = || self.found().records.get(server).is_some_and(|one| Instant::now() < one.until);
        askable && !self.given.contains_key(server) && !known()
    }

    /// A question that is asked with the addresses of `server`.
    pub(super) fn question(&self, server: &Authority) -> Question {
        Question::new(&self.found, server)
    }

    /// What `server` publishes, as far as is known.
    pub(super) fn known(&self, server: &Authority) -> Option<Published> {
        if let Some(given) = self.given.get(server) {
            return Some(given.clone());
        }
        let found = self.found();
        let one = found.records.get(server).filter(|one| Instant::now() < one.until)?;
        one.published.clone()
    }

    pub(super) fn forget(&self) {
        let mut found = self.found();
        let era = found.era + 1;
        *found = Found { era, ..Found::default() };
    }
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

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A question under way.
pub(crate) struct Question {
    found: Arc<Mutex<Found>>,
    server: Authority,
    era: u64,
}

impl Question {
    fn new(found: &Arc<Mutex<Found>>, server: &Authority) -> Self {
        let era = lock(found).era;
        Self { found: Arc::clone(found), server: server.clone(), era }
    }

    /// Stores the answer; `None` if there was none.
    pub(crate) fn answer(&self, answer: Option<Option<Published>>) {
        let lasts = match &answer {
            Some(Some(published)) => Duration::from_secs(published.ttl.into()).clamp(LEAST_LASTS, MOST_LASTS),
            Some(None) => NOTHING_LASTS,
            None => FAILURE_LASTS,
        };
        let now = Instant::now();
        let mut found = lock(&self.found);
        if found.era != self.era {
            return;
        }
        if found.records.len() >= CAPACITY && !found.records.contains_key(&self.server) {
            let first =
                found.records.iter().min_by_key(|(_, one)| one.until).map(|(server, _)| server.clone());
            first.and_then(|server| found.records.remove(&server));
        }
        let asked_again = found.records.get(&self.server).and_then(|one| one.asked_again);
        let one = Known { published: answer.flatten(), until: now + lasts, asked_again };
        found.records.insert(self.server.clone(), one);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut found = lock(&self.found);
        if found.era == self.era {
            found.asking.remove(&self.server);
        }
    }
}

impl Asked {
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
        let records = Records::new(None, false, Vec::new());
        let server: Authority = "www.example.com:80".parse().unwrap();
        let question = Question::new(&records.found, &server);
        records.forget();
        question.answer(Some(Some(published)));
        assert!(records.known(&server).is_none(), "the other network's record is used");
    }
}
