//! The sessions of a farm in Redis.

use super::{SessionId, SessionStore, StoreFuture};
use firstflight_redis::RedisSessions;
use zeroize::Zeroizing;

impl SessionStore for RedisSessions {
    fn put(&self, id: SessionId, session: Zeroizing<Vec<u8>>) -> StoreFuture<'_, ()> {
        Box::pin(self.put(id, session))
    }

    fn take(&self, id: SessionId) -> StoreFuture<'_, Option<Zeroizing<Vec<u8>>>> {
        Box::pin(self.take(id))
    }
}
