//! Commands: what applications do with listeners and connections.

use crate::client::connect::ConnectError;
use crate::config::{ConnectConfig, ListenConfig};
use crate::event::{ConnId, ListenerId};
use crate::flows::slot::{InQueue, Owner, Slot};
use crate::server::listeners::ListenError;
use crate::stack::Stack;
use alloc::sync::Arc;
use core::net::SocketAddr;
use firstflight_credential::{FastOpenPolicy, KeyRing};
use firstflight_tcp::{CloseReason, IoError, Stamp};
use firstflight_wire::Instant;

const GONE: IoError = IoError::Closed(CloseReason::Aborted);

impl Stack {
    // --- listeners ---------------------------------------------------------------------------------

    /// Starts to listen.
    ///
    /// If another listener of this port takes no certificates, or fewer than this one, or if one was removed
    /// before, it may have refused requests that this listener would accept. In that case, this listener's replay
    /// guard closes for all requests that are in time now, by the last wall clock ([`Stack::handle_clock`]).
    ///
    /// # Errors
    /// If the address is taken or not ours, the port is 0, or a policy is invalid.
    pub fn listen(&mut self, config: ListenConfig) -> Result<ListenerId, ListenError> {
        let port = config.local.port();
        let id = self.server.listeners.listen(&mut self.flows.env, config)?;
        self.client.reserve_port(port);
        Ok(id)
    }

    /// Stops listening. Children that were not accepted are reset.
    pub fn unlisten(&mut self, id: ListenerId, now: Instant) {
        if let Some(port) = self.server.listeners.unlisten(&mut self.flows, id, now) {
            self.client.free_port(port);
            self.settle(now);
        }
    }

    /// Replaces the cookie keys of a listener, from the next SYN on. First flights that are accepted or deferred
    /// already are not affected, and neither is a verifier of the policy.
    ///
    /// False if there is no such listener, or one without Fast Open.
    pub fn set_keys(&mut self, id: ListenerId, keys: Arc<KeyRing>) -> bool {
        self.server.listeners.set_keys(id, keys)
    }

    /// Replaces a listener's policy of first flights, from the next SYN on; `None` ends Fast Open there.
    ///
    /// False if there is no such listener, or if the policy cannot keep what it promises.
    pub fn set_fast_open(&mut self, id: ListenerId, policy: Option<FastOpenPolicy>) -> bool {
        self.server.listeners.set_fast_open(id, policy)
    }

    /// Refuses copies of first flights that another server at the same addresses may have taken until now. Call it when packets that went to
    /// the other one begin to come here: for a minute no listener accepts a request with a certificate, and for two minutes none that takes
    /// no duplicates accepts a first flight.
    pub fn refuse_earlier_flights(&mut self, now: Instant) {
        let clock = self.flows.env.clock_at(now);
        for listener in self.server.listeners.iter() {
            listener.config.refuse_earlier_flights(&clock);
        }
    }

    /// Replaces the settings of the connections that a listener makes from now on. False if there is no such
    /// listener.
    pub fn set_listener_config(&mut self, id: ListenerId, tcp: Arc<firstflight_tcp::Config>) -> bool {
        self.server.listeners.set_listener_config(id, tcp)
    }

    // --- listeners' queues -------------------------------------------------------------------------

    /// Lengths of a listener's queues: (accept queue, SYN queue).
    #[must_use]
    pub fn queues(&self, id: ListenerId) -> Option<(usize, usize)> {
        self.server.listeners.queues(id)
    }

    /// The next connection of a listener.
    pub fn accept(&mut self, id: ListenerId) -> Option<ConnId> {
        self.server.listeners.accept(&mut self.flows, id)
    }

    // --- connects ----------------------------------------------------------------------------------

    /// Connects. `data` is the beginning of the stream and rides in the SYN as far as a known cookie and the
    /// segment size allow. Returns the connection and how much of `data` was taken (all of it, if the send buffer
    /// holds it).
    ///
    /// # Errors
    /// If no local address or port is available, or a limit is reached.
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        data: &[u8],
        config: &ConnectConfig,
        now: Instant,
    ) -> Result<(ConnId, usize), ConnectError> {
        let (id, taken, notifications) = self.client.connect(&mut self.flows, remote, data, config, now)?;
        if notifications {
            self.take_notifications(id.index, now);
        }
        Ok((id, taken))
    }

    /// Sends a keep-alive to a peer that has no connection with us. It holds a mapping of the address translator in
    /// front of us, through which others reach us. An answer, if one comes, is ignored.
    pub fn keep_alive(&mut self, to: SocketAddr) {
        self.flows.keep_alive(to);
    }

    // --- connections -------------------------------------------------------------------------------
    /// Appends data for the peer; returns how much was taken.
    ///
    /// # Errors
    /// See [`firstflight_tcp::Connection::write`].
    pub fn write(&mut self, id: ConnId, bytes: &[u8], now: Instant) -> Result<usize, IoError> {
        let result = self.with(id, now, |slot, pool| slot.conn.write(pool, bytes, now));
        if result == Err(IoError::WouldBlock) {
            self.starve(id, now);
        }
        result
    }

    /// A write to `id` was refused. If its own buffer has room, the reason was the memory.
    fn starve(&mut self, id: ConnId, now: Instant) {
        let Some(slot) = self.flows.table.slots.get_live(id.index, id.generation) else { return };
        if slot.conn.unacknowledged() >= slot.conn.send_limit() as usize {
            return;
        }
        let taken = self.flows.env.pool.outstanding();
        for index in self.shortage.choose(&self.flows.table.slots, now) {
            self.flows.env.journal.counters.stuck_reset += 1;
            self.flows.shed(index);
        }
        self.settle(now);
        self.shortage.add(id, taken, &mut self.flows.table.slots);
    }

    /// Takes out data of the peer. `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// See [`firstflight_tcp::Connection::read`].
    // The lookup of the slot is inlined into the caller, the copy of the data is one function.
    #[inline]
    pub fn read(&mut self, id: ConnId, out: &mut [u8], now: Instant) -> Result<usize, IoError> {
        let slot = self.flows.table.slots.get_live(id.index, id.generation).ok_or(GONE)?;
        let result = slot.conn.read(&mut self.flows.env.pool, out);
        // Only a window that opened needs an ACK.
        if slot.conn.owes_ack() && slot.turn == InQueue::No {
            self.flows.touched(id.index);
            self.settle(now);
        }
        result
    }

    /// Closes the sending direction.
    ///
    /// # Errors
    /// When the connection is gone.
    #[inline]
    pub fn shutdown(&mut self, id: ConnId, now: Instant) -> Result<(), IoError> {
        self.with(id, now, |slot, _| {
            slot.conn.close(now);
            Ok(())
        })
    }

    /// Ends the connection with a RST. Its state stays readable until it is released.
    pub fn abort(&mut self, id: ConnId, now: Instant) {
        self.client.aborted(&mut self.flows, id, now);
        let _ = self.with(id, now, |slot, pool| {
            slot.conn.abort(pool);
            Ok(())
        });
        self.settle(now);
    }

    /// Releases a connection. It closes in the background. Unread data causes a RST.
    #[inline]
    pub fn release(&mut self, id: ConnId, now: Instant) {
        self.client.released(&mut self.flows, id, now);
        let _ = self.with(id, now, |slot, pool| {
            slot.conn.release(pool, now);
            slot.owner = Owner::Nobody;
            Ok(())
        });
        self.settle(now);
    }

    /// Copies data of the peer without taking it out. Returns the number of bytes.
    pub fn peek(&self, id: ConnId, out: &mut [u8]) -> usize {
        self.flows.table.slot(id).map_or(0, |slot| slot.conn.peek(out))
    }

    /// Replaces a connection's settings: see [`firstflight_tcp::Connection::set_config`].
    pub fn set_tcp_config(&mut self, id: ConnId, tcp: Arc<firstflight_tcp::Config>, now: Instant) {
        let _ = self.with(id, now, |slot, _| {
            slot.conn.set_config(tcp, now);
            Ok(())
        });
    }

    /// Corks a connection or removes its cork: see [`firstflight_tcp::Connection::set_cork`]. With `now`, data that
    /// waited leaves at once; without, it leaves with the next packet.
    pub fn set_cork(&mut self, id: ConnId, cork: bool, more: bool, now: Option<Instant>) {
        match (now, self.flows.table.slots.get_live(id.index, id.generation)) {
            (None, Some(slot)) => slot.conn.set_cork(cork, more),
            (Some(now), _) => {
                let _ = self.with(id, now, |slot, _| {
                    slot.conn.set_cork(cork, more);
                    Ok(())
                });
            }
            (None, None) => {}
        }
    }

    /// Marks what was written so far as a record: see [`firstflight_tcp::Connection::end_record`].
    pub fn end_record(&mut self, id: ConnId) {
        if let Some(slot) = self.flows.table.slots.get_live(id.index, id.generation) {
            slot.conn.end_record();
        }
    }

    /// Asks when the last byte written so far leaves, and when the peer acknowledges it: see
    /// [`firstflight_tcp::Connection::stamp`]. [`Readiness::STAMPED`](crate::Readiness::STAMPED) announces the times.
    pub fn stamp(&mut self, id: ConnId, now: Instant) -> Option<u64> {
        self.with(id, now, |slot, _| Ok(slot.conn.stamp())).ok().flatten()
    }

    /// The next time that [`Stack::stamp`] asked for, oldest first.
    pub fn poll_stamp(&mut self, id: ConnId) -> Option<Stamp> {
        self.flows.table.slots.get_live(id.index, id.generation)?.conn.poll_stamp()
    }

    /// Turns Nagle's algorithm off or on.
    pub fn set_nodelay(&mut self, id: ConnId, nodelay: bool, now: Instant) {
        let _ = self.with(id, now, |slot, _| {
            slot.conn.set_nodelay(nodelay);
            Ok(())
        });
    }

    #[inline(always)]
    fn with<T>(
        &mut self,
        id: ConnId,
        now: Instant,
        f: impl FnOnce(&mut Slot, &mut firstflight_tcp::Pool) -> Result<T, IoError>,
    ) -> Result<T, IoError> {
        let slot = self.flows.table.slots.get_live(id.index, id.generation).ok_or(GONE)?;
        let result = f(slot, &mut self.flows.env.pool);
        if slot.touch(id.index, &mut self.flows.env.outbox, self.flows.env.journal.is_tracing()) {
            self.take_notifications(id.index, now);
        }
        result
    }
}
