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
/// A record is used for at least and at most this time.
const LEAST_LASTS: Duration = Duration::from_secs(5);
const MOST_LASTS: Duration = Duration::from_secs(24 * 3600);

/// The records.
#[derive(Debug)]
pub(super) struct Records {
    names: Option<Arc<Names>>,
    /// What the caller said.
    given: HashMap<Authority, Published>,
    found: Arc<Mutex<Found>>,
}

#[derive(Debug, Default)]
struct Found {
    records: HashMap<Authority, Known>,
    /// Questions under way.
    asking: HashSet<Authority>,
}

/// What is known of one server.
#[derive(Debug)]
struct Known {
    published: Option<Published>,
    until: Instant,
}

/// A question that may be under way.
pub(crate) struct Asked {
    answer: Option<watch::Receiver<bool>>,
    /// Whether the server published something before.
    speaks: bool,
}

impl Records {
    pub(super) fn new(names: Option<Arc<Names>>, given: Vec<(Authority, Published)>) -> Self {
        Self { names, given: given.into_iter().collect(), found: Arc::default() }
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        lock(&self.found)
    }

    /// Asks what `server` publishes, unless that is known, or an address has no records.
    pub(super) fn ask(&self, server: &Authority) -> Asked {
        let nothing = Asked { answer: None, speaks: false };
        let (Some(names), Host::Name(name)) = (&self.names, server.host()) else { return nothing };
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
        let question = Question { found: Arc::clone(&self.found), server: server.clone() };
        let (names, name, port) = (Arc::clone(names), name.clone(), server.port());
        tokio::spawn(async move {
            let result = names.record(&name, port).await;
            question.answer(result.ok());
            let _ = tell.send(true);
        });
        Asked { answer: Some(answer), speaks }
    }

    /// Whether it is worth asking: an address has no records, and what the caller said counts.
    pub(super) fn asks_about(&self, server: &Authority) -> bool {
        self.names.is_some() && matches!(server.host(), Host::Name(_)) && !self.given.contains_key(server)
    }

    /// `server` publishes this, as was found with its addresses.
    pub(super) fn found_beside(&self, server: &Authority, published: Option<Published>) {
        Question { found: Arc::clone(&self.found), server: server.clone() }.answer(Some(published));
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
        self.found().records.clear();
    }
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A question under way.
struct Question {
    found: Arc<Mutex<Found>>,
    server: Authority,
}

impl Question {
    /// Stores the answer; `None` if there was none.
    fn answer(&self, answer: Option<Option<Published>>) {
        let lasts = match &answer {
            Some(Some(published)) => Duration::from_secs(published.ttl.into()).clamp(LEAST_LASTS, MOST_LASTS),
            Some(None) => NOTHING_LASTS,
            None => FAILURE_LASTS,
        };
        let now = Instant::now();
        let mut found = lock(&self.found);
        if found.records.len() >= CAPACITY && !found.records.contains_key(&self.server) {
            let first =
                found.records.iter().min_by_key(|(_, one)| one.until).map(|(server, _)| server.clone());
            first.and_then(|server| found.records.remove(&server));
        }
        let one = Known { published: answer.flatten(), until: now + lasts };
        found.records.insert(self.server.clone(), one);
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        lock(&self.found).asking.remove(&self.server);
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
