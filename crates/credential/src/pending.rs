//! Bounds on the first flights that wait for their client's ACK: of a listener, of a server, of one client
//! (RFC 7413 §5.1, the Fast Open paper §§3.4.1 and 7.3).

mod clients;

use crate::outcome::Reason;
use crate::sync::{AtomicBool, AtomicU32, Ordering};
use alloc::boxed::Box;
use alloc::sync::Arc;
use clients::ClientTable;
pub use clients::prefix;
use core::net::IpAddr;

/// Client prefixes that a limit can distinguish at one time (the paper's §7.3 proposes 10,000).
const CLIENTS: usize = if cfg!(loom) { 2 } else { 10_000 };
/// A client may borrow one half of the free permits.
const LENT: u32 = 2;

/// A bound on connections that run before their handshake is complete. All shards of a listener share it, and
/// the limits may change while the listener runs.
///
/// It has three bounds: on all these connections, on those of one client prefix (an IPv4 address, an IPv6
/// /64), and, with [`PendingLimit::within`], on a whole server with several listeners. Connections that end
/// by RST keep their permits for a while, so a client that resets its connections reaches its own bound first.
///
/// Many clients can share one address. So a client has some permits of its own, and may borrow more unless its
/// bound is fixed. It gets one more permit if it holds fewer than half as many as are free. An office thus
/// gets a third of all permits while no other client needs them. Attackers at `n` addresses get `n / (n + 2)`
/// of the permits, and leave the other clients their own. Before the ACK, a client with a borrowed permit gets
/// only a limited amount of data: see [`PendingPermit::is_borrowed`].
///
/// The atomics hold only numbers and publish no other data, so relaxed ordering is sufficient.
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
    /// At most `limit` permits at a time. 0 switches Fast Open off. A client has a 32nd of the permits of its
    /// own, but at least 4 and at most 8, and may borrow.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self::with(limit, (limit / 32).clamp(4, 8), true)
    }

    /// At most `limit` permits at a time, and at most `per_client` for one client prefix, which may not
    /// borrow. With `u32::MAX` for both, only [`PendingLimit::within`] limits.
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

    /// Every permit also counts in `server`, which several listeners share.
    #[must_use]
    pub fn within(mut self, server: Arc<PendingLimit>) -> Self {
        self.server = Some(server);
        self
    }

    /// Connections that hold a permit.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// The bound on all connections.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The bound on the connections of one client prefix, at this moment.
    #[must_use]
    pub fn client_limit(&self) -> u32 {
        let own = self.clients.own();
        if !self.lends.load(Ordering::Relaxed) {
            return own;
        }
        own.max(self.limit().saturating_sub(self.pending()) / LENT)
    }

    /// Changes the bound on all connections. Permits that are already held stay valid, even if the new bound
    /// is lower.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Fixes the bound on one client prefix in the same way. Clients may not borrow from then on.
    pub fn set_client_limit(&self, limit: u32) {
        self.clients.set_own(limit);
        self.lends.store(false, Ordering::Relaxed);
    }

    /// Sets the key of the hash over client prefixes, so that an attacker cannot choose addresses that
    /// collide. The first key stays.
    pub(crate) fn key(&self, key: u64) {
        self.clients.key(key);
    }

    /// Checks that there is room at this moment. Another shard may take the last permit immediately
    /// afterwards.
    ///
    /// # Errors
    /// The bound that was reached.
    //= rfc7413 4.2-c
    pub fn has_room(&self) -> Result<(), Reason> {
        if self.pending() >= self.limit() {
            return Err(Reason::PendingLimit);
        }
        self.server.as_ref().map_or(Ok(()), |server| server.has_room().map_err(|_| Reason::ServerLimit))
    }

    /// Takes a permit for `client`.
    ///
    /// # Errors
    /// The bound that was reached.
    // Inlined, so that the permit is built in its final location.
    #[inline(always)]
    pub fn reserve(self: &Arc<Self>, client: IpAddr) -> Result<PendingPermit, Reason> {
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
        Ok(PendingPermit { of: Arc::clone(self), entry, borrowed, server })
    }

    /// Takes a permit of a whole server for one of its listeners. The bound on all its connections is reported
    /// as [`Reason::ServerLimit`]. A client's bound over all listeners is the server's own.
    fn reserve_for_listener(self: &Arc<Self>, client: IpAddr) -> Result<Box<PendingPermit>, Reason> {
        match self.reserve(client) {
            Ok(permit) => Ok(Box::new(permit)),
            Err(Reason::PendingLimit) => Err(Reason::ServerLimit),
            Err(other) => Err(other),
        }
    }

    fn count_up(&self) -> bool {
        let limit = self.limit();
        self.count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                // The count is below the limit, so adding one cannot overflow.
                (count < limit).then(|| count + 1)
            })
            .is_ok()
    }
}

/// A permit among the pending first flights. It is given back exactly once: on drop, or by [`PendingPermit::release`].
#[derive(Debug)]
#[must_use = "dropping it gives the permit back"]
pub struct PendingPermit {
    of: Arc<PendingLimit>,
    entry: u32,
    borrowed: bool,
    /// The server's permit, given back with this one. It is boxed, so that a connection without a server-wide
    /// bound stays small.
    server: Option<Box<PendingPermit>>,
}

impl PendingPermit {
    /// Whether its client already held all of its own permits when it got this one. The client may be an
    /// office, or the victim of a reflection attack. Its own permits bound how much data an attacker can
    /// direct there without a further limit. So the data sent before the client's ACK should be at most a
    /// small multiple of the data received.
    #[must_use]
    pub fn is_borrowed(&self) -> bool {
        self.borrowed || self.server.as_ref().is_some_and(|server| server.is_borrowed())
    }

    /// Gives the permit back: the client's ACK arrived, or the connection ended.
    pub fn release(self) {
        drop(self);
    }
}

impl Drop for PendingPermit {
    fn drop(&mut self) {
        // Each permit was counted once and is dropped once, so neither count can go below zero.
        self.of.count.fetch_sub(1, Ordering::Relaxed);
        self.of.clients.release(self.entry);
    }
}

#[cfg(test)]
mod tests;
