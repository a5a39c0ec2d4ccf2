//! A server's sessions.

#[cfg(feature = "redis")]
mod redis;

use rustls::server::StoresServerSessions;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zeroize::{Zeroize, Zeroizing};

/// The length of a session's id, bytes. rustls chooses ids at random.
pub const SESSION_ID: usize = 32;
/// Sessions of one ClientHello that are looked up. Early data needs the first one (RFC 8446 §4.2.10).
const LOOKED_UP: usize = 2;

/// The id of a session. It is a ticket's text, so it is known to an eavesdropper.
pub type SessionId = [u8; SESSION_ID];
/// The future of a [`SessionStore`].
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The sessions of a server, or of a farm, each for one use. rustls takes early data only for sessions that a store
/// remembers, because a session that can be taken once makes early data run once (RFC 8446 §8.1).
///
/// An implementation may forget sessions: their clients make full handshakes. It must never return a session twice, not
/// even to two members of a farm at the same moment (Redis: GETDEL). A session is a secret: who has it can read its early
/// data and impersonate either end in it.
///
/// The lookup delays an accept, so give it a time limit. Return `None` when it is over.
pub trait SessionStore: fmt::Debug + Send + Sync + 'static {
    /// Keeps a session for a day at most.
    fn put(&self, id: SessionId, session: Zeroizing<Vec<u8>>) -> StoreFuture<'_, ()>;

    /// Returns the session and deletes it, in one step.
    fn take(&self, id: SessionId) -> StoreFuture<'_, Option<Zeroizing<Vec<u8>>>>;
}

/// Sessions in this process, with a limit of their number and their bytes. The oldest one goes first.
pub struct MemorySessions {
    inner: Mutex<Memory>,
    sessions: usize,
    bytes: usize,
}

#[derive(Default)]
struct Memory {
    sessions: HashMap<SessionId, Zeroizing<Vec<u8>>>,
    /// Ids in the order of insertion, also some that are taken already.
    order: VecDeque<SessionId>,
    bytes: usize,
}

impl fmt::Debug for MemorySessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySessions").field("sessions", &self.len()).finish_non_exhaustive()
    }
}

impl Default for MemorySessions {
    /// 16,384 sessions, 8 MiB. A session without a client certificate has some 150 bytes.
    fn default() -> Self {
        Self::new(16_384, 8 << 20)
    }
}

impl MemorySessions {
    /// At most `sessions` sessions of at most `bytes` bytes together.
    #[must_use]
    pub fn new(sessions: usize, bytes: usize) -> Self {
        Self { inner: Mutex::default(), sessions, bytes }
    }

    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Memory {
    fn take(&mut self, id: &SessionId) -> Option<Zeroizing<Vec<u8>>> {
        let session = self.sessions.remove(id)?;
        self.bytes = self.bytes.saturating_sub(session.len());
        Some(session)
    }
}

impl SessionStore for MemorySessions {
    fn put(&self, id: SessionId, session: Zeroizing<Vec<u8>>) -> StoreFuture<'_, ()> {
        let mut memory = self.lock();
        if session.len() <= self.bytes && self.sessions > 0 {
            memory.take(&id);
            memory.bytes += session.len();
            memory.sessions.insert(id, session);
            memory.order.push_back(id);
            while memory.sessions.len() > self.sessions || memory.bytes > self.bytes {
                let Some(oldest) = memory.order.pop_front() else { break };
                memory.take(&oldest);
            }
            // Ids of sessions that were taken.
            if memory.order.len() > self.sessions.saturating_mul(2) {
                let Memory { sessions, order, .. } = &mut *memory;
                order.retain(|id| sessions.contains_key(id));
            }
        }
        Box::pin(std::future::ready(()))
    }

    fn take(&self, id: SessionId) -> StoreFuture<'_, Option<Zeroizing<Vec<u8>>>> {
        Box::pin(std::future::ready(self.lock().take(&id)))
    }
}

/// The sessions that one connection may take, and those that it makes. rustls asks without waiting, so they are fetched
/// before it asks.
#[derive(Default)]
pub(crate) struct OfConnection {
    fetched: Mutex<Vec<(SessionId, Zeroizing<Vec<u8>>)>>,
    made: Mutex<Vec<(SessionId, Zeroizing<Vec<u8>>)>>,
}

impl fmt::Debug for OfConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfConnection").finish_non_exhaustive()
    }
}

impl OfConnection {
    /// Takes the sessions with these ids out of `store`.
    pub(crate) async fn fetch(store: &dyn SessionStore, ids: Vec<SessionId>) -> Self {
        let mut fetched = Vec::new();
        for id in ids.into_iter().take(LOOKED_UP) {
            if let Some(session) = store.take(id).await {
                fetched.push((id, session));
            }
        }
        Self { fetched: Mutex::new(fetched), made: Mutex::default() }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StoresServerSessions for OfConnection {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        let session = Zeroizing::new(value);
        let Ok(id) = SessionId::try_from(key) else { return false };
        locked(&self.made).push((id, session));
        true
    }

    /// TLS 1.2 only.
    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut fetched = locked(&self.fetched);
        let at = fetched.iter().position(|(id, _)| id.as_slice() == key)?;
        Some(std::mem::take(&mut *fetched.swap_remove(at).1))
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// Gives the sessions that a connection makes to the store.
pub(crate) struct Keeping {
    pub(crate) store: Arc<dyn SessionStore>,
    pub(crate) connection: Arc<OfConnection>,
}

impl Keeping {
    /// Keeps them. A store that takes time does so in a task of its own.
    pub(crate) fn keep(self) {
        let made = std::mem::take(&mut *locked(&self.connection.made));
        if made.is_empty() {
            return;
        }
        let store = self.store;
        let mut keeping = Box::pin(async move {
            for (id, session) in made {
                store.put(id, session).await;
            }
        });
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        if keeping.as_mut().poll(&mut cx).is_pending() {
            tokio::spawn(keeping);
        }
    }
}

/// The ids of sessions in a ClientHello (pre_shared_key, RFC 8446 §4.2.11). `records` are the records that carry it. What
/// is not a valid ClientHello has none; rustls reads it, too, and refuses it.
pub(crate) fn ids_in(records: &[u8]) -> Vec<SessionId> {
    let mut hello = reassemble(records);
    let ids = find_ids(&hello).unwrap_or_default();
    hello.zeroize();
    ids
}

const HANDSHAKE: u8 = 22;
const PRE_SHARED_KEY: u16 = 41;

/// The handshake bytes in these records.
fn reassemble(mut records: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some((&[kind, _, _, high, low], rest)) = records.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some((fragment, rest)) = rest.split_at_checked(length) else { break };
        if kind != HANDSHAKE {
            break;
        }
        all.extend_from_slice(fragment);
        records = rest;
    }
    all
}

fn find_ids(hello: &[u8]) -> Option<Vec<SessionId>> {
    // Type and length of the message, version, random.
    let mut rest = hello.get(4 + 2 + 32..)?;
    vector8(&mut rest)?;
    vector16(&mut rest)?;
    vector8(&mut rest)?;
    let mut extensions = vector16(&mut rest)?;
    while !extensions.is_empty() {
        let kind = number(&mut extensions)?;
        let mut body = vector16(&mut extensions)?;
        if kind != PRE_SHARED_KEY {
            continue;
        }
        let (mut identities, mut ids) = (vector16(&mut body)?, Vec::new());
        while !identities.is_empty() && ids.len() < LOOKED_UP {
            ids.extend(SessionId::try_from(vector16(&mut identities)?));
            // The obfuscated age.
            identities = identities.get(4..)?;
        }
        return Some(ids);
    }
    None
}

fn number(rest: &mut &[u8]) -> Option<u16> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u16::from_be_bytes(*bytes))
}

fn vector16<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(rest)?;
    let (vector, after) = rest.split_at_checked(usize::from(length))?;
    *rest = after;
    Some(vector)
}

fn vector8<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, after) = rest.split_first()?;
    let (vector, after) = after.split_at_checked(usize::from(length))?;
    *rest = after;
    Some(vector)
}

#[cfg(test)]
mod tests;
