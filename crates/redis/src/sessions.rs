//! TLS sessions that the members of a farm share. The crate `firstflight-tls` uses this as its `SessionStore`.

use crate::error::Failure;
use crate::node::millis;
use crate::share::Share;
use crate::{RedisStore, cells};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// How long a session is kept: as long as its ticket is valid.
const LASTS: Duration = Duration::from_secs(86_400);
/// The longest session that is kept, bytes. One of a client without a certificate has some 150.
const LONGEST: usize = 16 * 1024;
/// What a session takes in Redis besides its own bytes, bytes.
const OVERHEAD: usize = 256;
/// Length of a nonce, bytes.
const NONCE: usize = 24;

/// The number of a session: the text of its ticket, which an eavesdropper knows.
type Id = [u8; 32];

/// The TLS sessions of a farm: a client resumes its session at every member, and each session is taken once.
///
/// Redis gets the sessions encrypted (XChaCha20-Poly1305) with a key that all members have and Redis has not. `GETDEL` takes
/// a session. A session in data that came back, from a disk or a replica, is not valid any more: its name contains the
/// process that it was given to. If Redis does not answer in time, there is no session, and the client makes a full
/// handshake.
///
/// Each member keeps a limited number of bytes in Redis: its oldest sessions go first. The user of Redis needs the rights to
/// `GETDEL` and `DEL`, too.
pub struct RedisSessions {
    store: Arc<RedisStore>,
    cipher: XChaCha20Poly1305,
    most: usize,
    kept: Mutex<GivenSessions>,
}

/// What this member has given to Redis, the oldest first.
#[derive(Debug, Default)]
struct GivenSessions {
    sessions: VecDeque<(Id, usize)>,
    bytes: usize,
}

impl GivenSessions {
    /// A session is added. Returns those that have to go.
    fn add(&mut self, id: Id, bytes: usize, most: usize) -> Vec<Id> {
        self.sessions.push_back((id, bytes));
        self.bytes += bytes;
        let mut gone = Vec::new();
        while self.bytes > most
            && let Some((id, bytes)) = self.sessions.pop_front()
        {
            self.bytes -= bytes;
            gone.push(id);
        }
        gone
    }
}

impl fmt::Debug for RedisSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSessions").field("store", &self.store).finish_non_exhaustive()
    }
}

impl RedisSessions {
    /// How many bytes a member keeps in Redis by default: 32 MiB, some 80,000 sessions of clients without certificates.
    pub const BYTES: usize = 32 << 20;

    /// Sessions in this store, encrypted with `key`, which is the same at all members and secret. At most `bytes` bytes of
    /// this member.
    #[must_use]
    pub fn new(store: Arc<RedisStore>, key: &[u8; 32], bytes: usize) -> Self {
        let cipher = XChaCha20Poly1305::new(key.into());
        Self { store, cipher, most: bytes, kept: Mutex::default() }
    }

    /// Keeps a session for a day at most.
    pub async fn put(&self, id: Id, session: Zeroizing<Vec<u8>>) {
        if session.len() > LONGEST {
            return;
        }
        let (Some(connection), Some(sealed)) = (self.share(&id).connection(), self.seal(&id, &session))
        else {
            return;
        };
        let gone = {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.add(id, sealed.len() + OVERHEAD, self.most)
        };
        let mut set = redis::cmd("SET");
        set.arg(connection.session(&id)).arg(sealed).arg("PX").arg(millis(LASTS));
        let (here, elsewhere): (Vec<Id>, Vec<Id>) =
            gone.into_iter().partition(|gone| Arc::ptr_eq(self.share(gone), self.share(&id)));
        let delete = (!here.is_empty()).then(|| {
            let mut delete = redis::cmd("DEL");
            delete.arg(here.iter().map(|id| connection.session(id)).collect::<Vec<_>>());
            delete
        });
        let told = async {
            connection.tell(std::iter::once(set).chain(delete)).await?;
            for id in elsewhere {
                if let Some(connection) = self.share(&id).connection() {
                    let mut delete = redis::cmd("DEL");
                    delete.arg(connection.session(&id));
                    connection.tell(std::iter::once(delete)).await?;
                }
            }
            Ok(())
        };
        let told = timeout(self.store.options.within, told);
        if let Err(failure) = told.await.unwrap_or(Err(Failure::TimedOut)) {
            tracing::debug!(%failure, "a TLS session is not kept");
        }
    }

    /// Returns a session and deletes it, in one step. `None` if it was taken before, if there is none, and if Redis does not
    /// answer in time.
    pub async fn take(&self, id: Id) -> Option<Zeroizing<Vec<u8>>> {
        let share = self.share(&id);
        let connection = share.connection()?;
        let mut command = redis::cmd("GETDEL");
        command.arg(connection.session(&id));
        let reply = timeout(self.store.options.within, connection.ask::<Vec<u8>>(&command));
        match reply.await.unwrap_or(Err(Failure::TimedOut)) {
            Ok(reply) => self.open(&id, &reply.value?),
            Err(failure) if failure.is_of_command() => {
                tracing::warn!(%failure, "no TLS session is resumed");
                None
            }
            Err(failure) => {
                share.lost(Some(&connection), &failure);
                None
            }
        }
    }

    fn share(&self, id: &Id) -> &Arc<Share> {
        self.store.shares.of(cells::of_id(id))
    }

    fn seal(&self, id: &Id, session: &[u8]) -> Option<Vec<u8>> {
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).ok()?;
        let payload = Payload { msg: session, aad: id };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload).ok()?;
        Some([&nonce[..], &sealed].concat())
    }

    fn open(&self, id: &Id, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
        let opened = self.cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: id });
        // Of a member with another key, or changed by somebody who can write to Redis.
        opened.ok().map(Zeroizing::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_sessions_go() {
        let mut kept = GivenSessions::default();
        assert!(kept.add([1; 32], 40, 100).is_empty() && kept.add([2; 32], 40, 100).is_empty());
        assert_eq!(kept.add([3; 32], 90, 100), [[1; 32], [2; 32]]);
        assert_eq!(kept.add([4; 32], 101, 100), [[3; 32], [4; 32]]);
        assert_eq!((kept.bytes, kept.sessions.len()), (0, 0));
    }
}
