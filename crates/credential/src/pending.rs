//! How many first flights may wait for their client's ACK: of a listener, of a server, of one client
//! (RFC 7413 §5.1, the Fast Open paper §§3.4.1 and 7.3).

mod clients;

use crate::outcome::Reason;
use alloc::boxed::Box;
use alloc::sync::Arc;
use clients::ClientTable;
pub use clients::prefix;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Client prefixes that a limit can tell apart at a time (the paper's §7.3 proposes 10,000).
const CLIENTS: usize = 10_000;
/// A client may borrow this part of the free places: one half.
const LENT: u32 = 2;

/// A bound on connections that run before their handshake is complete. Shared by all shards of a listener;
/// the limits may change while it runs.
///
/// Three bounds in one: of these connections together, of those of one client prefix (an IPv4 address,
/// an IPv6 /64), and, by [`PendingLimit::within`], of a whole server with several listeners. Whoever ends
/// connections by RST keeps their places for a while, and so meets the bound of one client first.
///
/// Many clients can have one address. So a client has some places of its own, and unless its bound is fixed it may
/// borrow: it gets one more as long as it has less than half as many as are free. An office thus gets a third of all
/// places while nobody else wants them. Attackers at `n` addresses get `n / (n + 2)` of them, and leave others their own.
/// What is sent before the ACK to a client with a borrowed place is limited: see [`Place::is_borrowed`].
///
/// Only numbers are shared, no data is published through them: relaxed ordering is enough.
#[derive(Debug)]
pub struct PendingLimit {
    count: AtomicU32,
    limit: AtomicU32,
    clients: ClientTable,
    /// Whether clients may borrow.
    lends: AtomicBool,
    server: Option<Arc<PendingLimit>>,
}

impl PendingLimit {
    /// At most `limit` at a time; 0 switches Fast Open off. A client has a 32nd of them, but 4 to 8, of its own, and may
    /// borrow.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self::with(limit, (limit / 32).clamp(4, 8), true)
    }

    /// At most `limit` at a time, of them `per_client` of one client prefix, which may not borrow. `u32::MAX` for both
    /// leaves it all to [`PendingLimit::within`].
    #[must_use]
    pub fn with_clients(limit: u32, per_client: u32) -> Self {
        Self::with(limit, per_client, false)
    }

    fn with(limit: u32, own: u32, lends: bool) -> Self {
        Self {
            count: AtomicU32::new(0),
            limit: AtomicU32::new(limit),
            clients: ClientTable::new(CLIENTS, own),
            lends: AtomicBool::new(lends),
            server: None,
        }
    }

    /// Every place counts in `server` too, which several listeners share.
    #[must_use]
    pub fn within(mut self, server: Arc<PendingLimit>) -> Self {
        self.server = Some(server);
        self
    }

    /// Connections that hold a place.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// The bound on all of them.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The bound on those of one client prefix, at this moment.
    #[must_use]
    pub fn client_limit(&self) -> u32 {
        let own = self.clients.own();
        if !self.lends.load(Ordering::Relaxed) {
            return own;
        }
        own.max(self.limit().saturating_sub(self.pending()) / LENT)
    }

    /// Changes the bound. Places given out stay valid, even if they are more than it allows.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Fixes the bound on one client prefix, in the same way: clients may not borrow from then on.
    pub fn set_client_limit(&self, limit: u32) {
        self.clients.set_own(limit);
        self.lends.store(false, Ordering::Relaxed);
    }

    /// Keys the hash over client prefixes, so that nobody can choose addresses that collide. The first
    /// key stays.
    pub(crate) fn key(&self, key: u64) {
        self.clients.key(key);
    }

    /// Which bound leaves no room at this moment, if any; another shard may take the last place in the
    /// next.
    ///
    /// # Errors
    /// The bound that is reached.
    //= rfc7413 4.2-c
    pub fn has_room(&self) -> Result<(), Reason> {
        if self.pending() >= self.limit() {
            return Err(Reason::PendingLimit);
        }
        self.server.as_ref().map_or(Ok(()), |server| server.has_room().map_err(|_| Reason::ServerLimit))
    }

    /// Takes a place for `client`.
    ///
    /// # Errors
    /// The bound that is reached.
    // Inlined: a place is made where it stays.
    #[inline(always)]
    pub fn reserve(self: &Arc<Self>, client: IpAddr) -> Result<Place, Reason> {
        let server = match &self.server {
            None => None,
            Some(server) => Some(server.reserve_for_listener(client)?),
        };
        let (entry, before) = self.clients.reserve(client, self.client_limit()).ok_or(Reason::ClientLimit)?;
        if !self.count_up() {
            self.clients.release(entry);
            return Err(Reason::PendingLimit);
        }
        let borrowed = before >= self.clients.own();
        Ok(Place { of: Arc::clone(self), entry, borrowed, server })
    }

    /// The same of a whole server. A client's bound over all listeners is the server's own, and told apart from the
    /// listener's.
    #[inline(never)]
    fn reserve_for_listener(self: &Arc<Self>, client: IpAddr) -> Result<Box<Place>, Reason> {
        match self.reserve(client) {
            Ok(place) => Ok(Box::new(place)),
            Err(Reason::PendingLimit) => Err(Reason::ServerLimit),
            Err(other) => Err(other),
        }
    }

    fn count_up(&self) -> bool {
        let limit = self.limit();
        self.count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                // Below the limit, so adding one cannot overflow.
                (count < limit).then(|| count + 1)
            })
            .is_ok()
    }
}

/// A place among the pending first flights. Given back exactly once: when dropped, or earlier by
/// [`Place::release`].
#[derive(Debug)]
#[must_use = "dropping it gives the place back"]
pub struct Place {
    of: Arc<PendingLimit>,
    entry: u32,
    borrowed: bool,
    /// Given back with this one. Boxed, so that a connection without a server-wide bound stays small.
    server: Option<Box<Place>>,
}

impl Place {
    /// Whether its client had all of its own places when it got this one. The client may be an office, or a victim of
    /// reflection: its own places bound what an attacker can have sent there at will. So what is sent before its ACK
    /// should be at most a small multiple of what was received.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.borrowed || self.server.as_ref().is_some_and(|server| server.is_borrowed())
    }

    /// Gives it back: the client's ACK came, or the connection ended.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Each place was counted once and is dropped once, so neither can pass zero.
        self.of.count.fetch_sub(1, Ordering::Relaxed);
        self.of.clients.release(self.entry);
    }
}

#[cfg(test)]
mod tests;
