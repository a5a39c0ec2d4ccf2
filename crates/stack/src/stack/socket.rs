//! Commands: what applications do with listeners and connections.

use crate::client::connect::ConnectError;
use crate::client::lookup::{ArmedSyn, FirstData};
use crate::config::{ConnectConfig, ListenConfig};
use crate::event::{ConnId, ListenerId};
use crate::flows::slot::{Owner, Slot};
use crate::flows::verifier::VerifierMessage;
use crate::server::listen::ListenError;
use crate::stack::Stack;
use alloc::sync::Arc;
use core::net::{IpAddr, SocketAddr};
use firstflight_credential::asap::{ReplyKey, TrustStore};
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
        let id = self.server.listen(&mut self.flows, config)?;
        self.client.reserve_port(port);
        Ok(id)
    }

    /// Stops listening. Children that were not accepted are reset.
    pub fn unlisten(&mut self, id: ListenerId, now: Instant) {
        if let Some(port) = self.server.unlisten(&mut self.flows, id, now) {
            self.client.free_port(port);
            self.settle(now);
        }
    }

    /// Replaces the cookie keys of a listener, from the next SYN on. First flights that are accepted or parked
    /// already are not affected, and neither is a verifier of the policy.
    ///
    /// False if there is no such listener, or one without Fast Open.
    pub fn set_keys(&mut self, id: ListenerId, keys: Arc<KeyRing>) -> bool {
        self.server.set_keys(id, keys)
    }

    /// Replaces a listener's policy of first flights, from the next SYN on; `None` ends Fast Open there.
    ///
    /// False if there is no such listener, or if the policy cannot keep what it promises.
    pub fn set_fast_open(&mut self, id: ListenerId, policy: Option<FastOpenPolicy>) -> bool {
        self.server.set_fast_open(id, policy)
    }

    /// Replaces the settings of the connections that a listener makes from now on. False if there is no such
    /// listener.
    pub fn set_listener_config(&mut self, id: ListenerId, tcp: Arc<firstflight_tcp::Config>) -> bool {
        self.server.set_listener_config(id, tcp)
    }

    /// Replaces the verifiers that a listener trusts. Every certificate is verified anew from now on, and first
    /// flights that are being verified are refused. If the change admits more than before, requests that were made
    /// before it, or up to ten seconds after it, are refused (`docs/spec/asap.md` §7.10).
    ///
    /// False if there is no such listener, or one that takes no certificates.
    pub fn set_trust(&mut self, id: ListenerId, trust: Arc<TrustStore>, now: Instant) -> bool {
        self.server.set_trust(&self.flows, id, trust, now)
    }

    // --- a verifier at the carrier's port ----------------------------------------------------------

    /// From now on messages to a verifier that come to the carrier's UDP port are kept for
    /// [`poll_verifier_message`](Self::poll_verifier_message). At most 64 wait. False without a carrier.
    pub fn keep_verifier_messages(&mut self) -> bool {
        let Some(carrier) = &mut self.flows.carrier else { return false };
        carrier.verifier.get_or_insert_default();
        true
    }

    /// The next message to the verifier.
    pub fn poll_verifier_message(&mut self) -> Option<VerifierMessage> {
        self.flows.carrier.as_mut()?.verifier.as_mut()?.poll()
    }

    /// Sends the verifier's answer to `client`, from this address of ours and the carrier's port.
    pub fn send_verifier_answer(&mut self, local: IpAddr, client: SocketAddr, answer: &[u8]) {
        self.flows.answer_as_verifier(local, client, answer);
    }

    // --- listeners' queues -------------------------------------------------------------------------

    /// Lengths of a listener's queues: (accept queue, SYN queue).
    #[must_use]
    pub fn queues(&self, id: ListenerId) -> Option<(usize, usize)> {
        self.server.queues(id)
    }

    /// The next connection of a listener.
    pub fn accept(&mut self, id: ListenerId) -> Option<ConnId> {
        self.server.accept(&mut self.flows, id)
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
        let (id, taken, news) = self.client.connect(&mut self.flows, remote, data, config, now)?;
        if news {
            self.take_news(id.index, now);
        }
        Ok((id, taken))
    }

    /// Begins a connection to `port` of a server whose address is not known, with `data` as its first flight, and
    /// the certificate of `config.asap` in front of it. Nothing is sent: the returned SYN travels in the lookup.
    /// `config.carrier` is the server's UDP port; `config.local` and Fast Open are ignored. What rides in the SYN must be
    /// short, and all of `data` may be executed twice.
    ///
    /// The connection has no timeout. The caller must abort it ([`Stack::abort`]) if the address cannot be found
    /// either.
    ///
    /// # Errors
    /// When there is no certificate to show ([`ConnectError::NoCertificate`]), no address of its family, no carrier or
    /// port, or a limit is reached.
    pub fn arm(
        &mut self,
        port: u16,
        data: FirstData<'_>,
        config: &ConnectConfig,
        now: Instant,
    ) -> Result<ArmedSyn, ConnectError> {
        let armed = self.client.arm(&mut self.flows, port, data, config, now);
        self.settle(now);
        armed
    }

    /// Like [`Stack::arm`], with a SYN on IP, signed like one that comes from its client. This is the thesis' own
    /// form, for its experiments. Use it only in a simulator or in a network made for such experiments: anyone who
    /// sees the lookup can answer.
    #[cfg(feature = "lab")]
    pub fn lab_arm_on_ip(
        &mut self,
        port: u16,
        data: FirstData<'_>,
        config: &ConnectConfig,
        now: Instant,
    ) -> Result<ArmedSyn, ConnectError> {
        let armed = self.client.lab_arm_on_ip(&mut self.flows, port, data, config, now);
        self.settle(now);
        armed
    }

    /// From now on, `id` accepts the answer of any server that proves with `key` that it received the first flight.
    /// False if the connection is not, or no longer, carried in a lookup.
    pub fn expect_answer(&mut self, id: ConnId, key: ReplyKey) -> bool {
        self.client.expect_answer(&mut self.flows, id, key)
    }

    /// Like [`Stack::expect_answer`], but accepts any server that acknowledges the right numbers. Anyone who has
    /// seen the lookup knows them. This is the thesis' own form, for its experiments. Use it only in a simulator or
    /// in a network made for such experiments.
    #[cfg(feature = "lab")]
    pub fn lab_expect_unproved_answer(&mut self, id: ConnId) -> bool {
        self.client.lab_expect_unproved_answer(&mut self.flows, id)
    }

    /// Sends the same SYN to `server`, because its address is now known, under the same request id, signed for this
    /// path. A proved answer of another server is still accepted until this one answers. Does nothing if an answer
    /// came before. If `server` refuses the SYN or cannot be reached, the connection waits for the other copy's
    /// answer as before ([`Stack::direct_refused`]).
    ///
    /// # Errors
    /// [`ConnectError::BadRemote`] for an address that cannot be connected to or is of another family;
    /// [`ConnectError::LocalInUse`] if there is a connection with the same ports. The connection still waits for
    /// the other copy's answer.
    pub fn send_direct(&mut self, id: ConnId, server: IpAddr, now: Instant) -> Result<(), ConnectError> {
        let sent = self.client.send_direct(&mut self.flows, id, server, now);
        self.settle(now);
        sent
    }

    /// Why the direct copy of `id` failed, while the connection waits for the answer to the other copy: a server
    /// may have executed that copy.
    #[must_use]
    pub fn direct_refused(&self, id: ConnId) -> Option<CloseReason> {
        self.client.direct_refused(&self.flows, id)
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
    #[cold]
    fn starve(&mut self, id: ConnId, now: Instant) {
        let Some(slot) = self.flows.slots.get_live(id.index, id.generation) else { return };
        if slot.conn.unacknowledged() >= slot.conn.send_limit() as usize {
            return;
        }
        let taken = self.flows.pool.outstanding();
        for index in self.flows.relief.choose(&self.flows.slots, now) {
            self.flows.journal.counters.stuck_reset += 1;
            self.flows.shed(index);
        }
        self.settle(now);
        self.flows.starved.add(id, taken, &mut self.flows.slots);
    }

    /// Takes out data of the peer. `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// See [`firstflight_tcp::Connection::read`].
    // The lookup of the slot is inlined into the caller, the copy of the data is one function.
    #[inline]
    pub fn read(&mut self, id: ConnId, out: &mut [u8], now: Instant) -> Result<usize, IoError> {
        let slot = self.flows.slots.get_live(id.index, id.generation).ok_or(GONE)?;
        let result = slot.conn.read(&mut self.flows.pool, out);
        // Only a window that opened needs an ACK.
        if slot.conn.owes_ack() && !slot.queued {
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
        self.flows.slot(id).map_or(0, |slot| slot.conn.peek(out))
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
        match (now, self.flows.slots.get_live(id.index, id.generation)) {
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
        if let Some(slot) = self.flows.slots.get_live(id.index, id.generation) {
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
        self.flows.slots.get_live(id.index, id.generation)?.conn.poll_stamp()
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
        let slot = self.flows.slots.get_live(id.index, id.generation).ok_or(GONE)?;
        let result = f(slot, &mut self.flows.pool);
        if slot.touch(id.index, &mut self.flows.outbox, self.flows.journal.is_tracing()) {
            self.take_news(id.index, now);
        }
        result
    }
}
