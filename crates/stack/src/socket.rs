//! Commands: what applications do with listeners and connections.

use crate::answered::Answered;
use crate::client::Intent;
use crate::config::{ConnectConfig, ListenConfig};
use crate::event::{ConnId, ListenerId};
use crate::flow::FlowKey;
use crate::ingress::possible_source;
use crate::lifecycle::Settings;
use crate::listeners::Listener;
use crate::queue::Queue;
use crate::slot::{Beginning, Owner, Slot};
use crate::stack::Stack;
use alloc::sync::Arc;
use core::fmt;
use core::hint::cold_path;
use core::net::SocketAddr;
use firstflight_credential::asap::TrustStore;
use firstflight_credential::{FastOpenPolicy, KeyRing, Outcome, PolicyError};
use firstflight_tcp::{CloseReason, IoError, SynPlan};
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;

/// Why a listener was not made. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListenError {
    /// Another listener has this address already.
    AddressInUse,
    /// The stack does not have that address.
    AddressNotOurs,
    /// Port 0 cannot be listened on.
    NoPort,
    /// The policy of first flights cannot keep what it promises.
    Policy(PolicyError),
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Policy(error) = self {
            return error.fmt(f);
        }
        f.write_str(match self {
            Self::Policy(_) => "",
            Self::AddressInUse => "address in use: another listener has it",
            Self::AddressNotOurs => "the stack does not have that address",
            Self::NoPort => "port 0 cannot be listened on: name one",
        })
    }
}

impl core::error::Error for ListenError {}

/// Why a connect was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The stack has no address of the server's family.
    NoAddress,
    /// The server's address or port cannot be connected to.
    BadRemote,
    /// The local address is not ours, or the pair is in use.
    LocalInUse,
    /// Every port to that server is in use.
    NoPorts,
    /// The stack's connection limit is reached.
    TooManyConnections,
    /// The stack has no UDP port to connect from ([`crate::Config::carrier`]).
    NoCarrier,
    /// The link is a UDP socket, and the server's UDP port is not named ([`ConnectConfig::carrier`]).
    NeedsCarrier,
    /// A first flight that travels in a lookup needs a certificate ([`ConnectConfig::asap`]).
    NoCertificate,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAddress => "no route: the stack has no address of the server's family",
            Self::BadRemote => "that address or port cannot be connected to",
            Self::LocalInUse => "the local address is not ours or in use to that server",
            Self::NoPorts => "every local port to that server is in use",
            Self::TooManyConnections => "the stack's connection limit is reached",
            Self::NoCarrier => "the stack has no UDP port to connect from",
            Self::NeedsCarrier => "over a UDP socket the server's UDP port has to be named",
            Self::NoCertificate => "a first flight that travels in a lookup needs a certificate",
        })
    }
}

impl core::error::Error for ConnectError {}

const GONE: IoError = IoError::Closed(CloseReason::Aborted);

impl Stack {
    /// Starts to listen.
    ///
    /// If another listener of this port takes no certificates, or fewer than this one, or if one was removed
    /// before, it may have refused requests that this listener would accept. In that case, this listener's replay
    /// guard closes for all requests that are in time now, by the last wall clock ([`Stack::handle_clock`]).
    ///
    /// # Errors
    /// If the address is taken or not ours, the port is 0, or a policy is invalid.
    //= rfc9293 MUST-41 MUST-42
    pub fn listen(&mut self, config: ListenConfig) -> Result<ListenerId, ListenError> {
        let ip = config.local.ip();
        if config.local.port() == 0 {
            return Err(ListenError::NoPort);
        }
        if !ip.is_unspecified() && !self.is_ours(ip) {
            return Err(ListenError::AddressNotOurs);
        }
        if let Some(policy) = &config.fast_open {
            policy.validate().map_err(ListenError::Policy)?;
            if policy.no_cookie && config.asap.is_some() {
                return Err(ListenError::Policy(PolicyError::AsapWithoutCookie));
            }
        }
        if let Some(policy) = &config.asap {
            policy.key(self.random.next_u64());
            if self.listeners.refused_before(config.local.port(), policy) {
                policy.close(&self.clock);
            }
        }
        let tcp = config.tcp.clone().unwrap_or_else(|| self.tcp.clone());
        let listener = Listener {
            config,
            tcp,
            accept_queue: Queue::default(),
            syn_queue: 0,
            last_cookie: None,
            last_stateless: None,
            answered: Answered::default(),
            announced: false,
            limited: false,
        };
        self.listeners.insert(listener).ok_or(ListenError::AddressInUse)
    }

    /// Stops listening. Children that were not accepted are reset.
    pub fn unlisten(&mut self, id: ListenerId, now: Instant) {
        let Some(gone) = self.listeners.remove(id) else { return };
        if gone.config.asap.is_none() {
            // Another listener of this port may accept requests that this one refused.
            let clock = self.clock_at(now);
            self.listeners.policies(gone.config.local.port()).for_each(|policy| policy.close(&clock));
        }
        let ours = |o: Owner| o == Owner::SynQueue(id.index) || o == Owner::AcceptQueue(id.index);
        let orphans: alloc::vec::Vec<u32> =
            self.slots.indices().filter(|i| self.slots.get(*i).is_some_and(|s| ours(s.owner))).collect();
        for index in orphans {
            if let Some(slot) = self.slots.get_mut(index) {
                slot.owner = Owner::Nobody;
                slot.conn.abort(&mut self.pool);
                self.touched(index, now);
            }
        }
    }

    /// Replaces the cookie keys of a listener, from the next SYN on. First flights that are accepted or parked
    /// already are not affected, and neither is a verifier of the policy.
    ///
    /// False if there is no such listener, or one without Fast Open.
    pub fn set_keys(&mut self, id: ListenerId, keys: Arc<KeyRing>) -> bool {
        let listener = self.listeners.get_mut(id);
        let Some(policy) = listener.and_then(|listener| listener.config.fast_open.as_mut()) else {
            return false;
        };
        policy.keys = keys;
        true
    }

    /// Replaces a listener's policy of first flights, from the next SYN on; `None` ends Fast Open there.
    ///
    /// False if there is no such listener, or if the policy cannot keep what it promises.
    pub fn set_fast_open(&mut self, id: ListenerId, policy: Option<FastOpenPolicy>) -> bool {
        let Some(listener) = self.listeners.get_mut(id) else { return false };
        if policy.as_ref().is_some_and(|policy| policy.validate().is_err()) {
            return false;
        }
        listener.config.fast_open = policy;
        true
    }

    /// Replaces the settings of the connections that a listener makes from now on. False if there is no such
    /// listener.
    pub fn set_listener_config(&mut self, id: ListenerId, tcp: Arc<firstflight_tcp::Config>) -> bool {
        let Some(listener) = self.listeners.get_mut(id) else { return false };
        listener.tcp = tcp;
        true
    }

    /// Replaces the verifiers that a listener trusts. Every certificate is verified anew from now on, and first
    /// flights that are being verified are refused. If the change admits more than before, requests that were made
    /// before it, or up to ten seconds after it, are refused (`docs/spec/asap.md` §7.10).
    ///
    /// False if there is no such listener, or one that takes no certificates.
    pub fn set_trust(&mut self, id: ListenerId, trust: Arc<TrustStore>, now: Instant) -> bool {
        let clock = self.clock_at(now);
        let listener = self.listeners.get_mut(id);
        let Some(policy) = listener.and_then(|listener| listener.config.asap.as_mut()) else {
            return false;
        };
        policy.set_trust(trust, &clock);
        self.asap.trust_changed();
        true
    }

    /// Lengths of a listener's queues: (accept queue, SYN queue).
    #[must_use]
    pub fn queues(&self, id: ListenerId) -> Option<(usize, usize)> {
        self.listeners.get(id).map(|l| (l.accept_queue.len(), l.syn_queue))
    }

    /// The next connection of a listener.
    pub fn accept(&mut self, id: ListenerId) -> Option<ConnId> {
        let index = self.listeners.get_mut(id)?.accept_queue.pop_front()?;
        let (slot, generation) = self.slots.get_mut_with_generation(index)?;
        slot.owner = Owner::Application;
        slot.announce(index, generation, &mut self.journal);
        Some(ConnId { index, generation })
    }

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
        let ip = remote.ip();
        // In UDP, a stack on the same host is another one if its UDP port differs.
        let own = self.carrier.as_ref().map(|carrier| carrier.port);
        let outer = match (own, config.carrier) {
            (None, None) => None,
            (Some(_), None) if self.carrier.as_ref().is_some_and(|carrier| carrier.from_socket) => {
                return Err(ConnectError::NeedsCarrier);
            }
            (Some(_), None) => None,
            (Some(own), Some(theirs)) => Some((own, theirs)),
            (None, Some(_)) => return Err(ConnectError::NoCarrier),
        };
        let ourselves = self.is_ours(ip) && outer.is_none_or(|(own, theirs)| own == theirs);
        let no_port = remote.port() == 0 || config.carrier == Some(0);
        //= rfc9293 MUST-46
        if no_port || !possible_source(ip) || ourselves {
            return Err(ConnectError::BadRemote);
        }
        if self.slots.len() >= self.config.limits.connections {
            return Err(ConnectError::TooManyConnections);
        }
        let mut key = self.any_port(remote, config, outer)?;
        let hash = self.choose_port(&mut key, config)?;
        let tcp = config.tcp.as_ref().map_or(Settings::Stack, Settings::Own);
        let mut ends = self.endpoints(&key, None, now);
        let mut plan = SynPlan::default();
        let Intent { asked, outcome, path_mss } =
            self.intend(&mut plan, config, &key, ends.path_mss, data, now);
        if path_mss < ends.path_mss {
            // A router has reported which size passes.
            ends.probe = [0; 3];
        }
        ends.path_mss = path_mss;
        let mut taken = 0;
        let with = Beginning { ends, key: &key, hash, owner: Owner::Application, outcome, now };
        let index = self.insert(
            tcp,
            with,
            #[inline(always)]
            |slot, pool| {
                taken = slot.conn.open_active(plan, data, pool);
                slot.asked = asked;
                slot.client = true;
            },
        );
        self.plan_ladder(index, config, data.get(..taken).unwrap_or_default(), now);
        self.journal.counters.active_opens += 1;
        if outcome != Outcome::Undecided || self.journal.is_tracing() {
            self.take_news(index, now);
        }
        Ok((self.id(index), taken))
    }

    //= rfc9293 MUST-43 MUST-44 MUST-45
    pub(crate) fn local_end(
        &mut self,
        remote: SocketAddr,
        config: &ConnectConfig,
    ) -> Result<SocketAddr, ConnectError> {
        let outer = self.carrier.as_ref().map(|carrier| carrier.port).zip(config.carrier);
        let mut key = self.any_port(remote, config, outer)?;
        self.choose_port(&mut key, config)?;
        Ok(key.local())
    }

    /// The flow of a connect, with local port 0. `outer` are the UDP ports.
    #[inline(always)]
    fn any_port(
        &self,
        remote: SocketAddr,
        config: &ConnectConfig,
        outer: Option<(u16, u16)>,
    ) -> Result<FlowKey, ConnectError> {
        let same = |ip: &&core::net::IpAddr| ip.is_ipv4() == remote.is_ipv4();
        let ip = match config.local {
            Some(local) if !local.ip().is_unspecified() => {
                if !self.is_ours(local.ip()) || local.is_ipv4() != remote.is_ipv4() {
                    return Err(ConnectError::LocalInUse);
                }
                local.ip()
            }
            _ => *self.config.addresses.iter().find(same).ok_or(ConnectError::NoAddress)?,
        };
        let key = FlowKey::of(ip, 0, remote.ip(), remote.port());
        let Some((own, theirs)) = outer else { return Ok(key) };
        cold_path();
        Ok(key.carried(own, theirs))
    }

    /// Chooses the local port of a flow whose local port is 0. Returns the flow's hash.
    fn choose_port(&mut self, key: &mut FlowKey, config: &ConnectConfig) -> Result<u64, ConnectError> {
        if let Some(port) = config.local.map(|l| l.port()).filter(|p| *p != 0) {
            *key = key.with_local_port(port);
            let hash = self.hasher.hash(key);
            return if self.taken(key, hash) { Err(ConnectError::LocalInUse) } else { Ok(hash) };
        }
        let random = u32::from(self.random.next_byte());
        let first = self.ports.candidate(key).ok_or(ConnectError::NoPorts)?;
        let port = first.port;
        let chosen = key.with_local_port(port);
        let hash = self.hasher.hash(&chosen);
        if unlikely(self.listeners.listens_on(port) || self.taken(&chosen, hash)) {
            return self.choose_free_port(key, random);
        }
        self.ports.choose(first, random);
        *key = chosen;
        Ok(hash)
    }

    /// Like [`Self::choose_port`], if the first port is not free. A separate function, because one loop for both is
    /// slower if many ports are taken.
    #[inline(never)]
    fn choose_free_port(&mut self, key: &mut FlowKey, random: u32) -> Result<u64, ConnectError> {
        let Self { ports, listeners, flows, slots, hasher, time_wait, .. } = self;
        let mut hash = 0;
        let port = ports.select(key, random, |port| {
            let key = key.with_local_port(port);
            hash = hasher.hash(&key);
            listeners.listens_on(port)
                || flows.find(hash, |i| slots.get(i).is_some_and(|s| s.key == key)).is_some()
                || time_wait.find(hash).is_some()
        });
        *key = key.with_local_port(port.ok_or(ConnectError::NoPorts)?);
        Ok(hash)
    }

    #[inline(always)]
    fn taken(&self, key: &FlowKey, hash: u64) -> bool {
        self.find_hashed(hash, key).is_some() || self.time_wait.find(hash).is_some()
    }

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
        let Some(slot) = self.slots.get_live(id.index, id.generation) else { return };
        if slot.conn.unacknowledged() >= slot.conn.send_limit() as usize {
            return;
        }
        let taken = self.pool.outstanding();
        for index in self.relief.choose(&self.slots, now) {
            self.journal.counters.stuck_reset += 1;
            self.shed(index, now);
        }
        self.starved.add(id, taken, &mut self.slots);
    }

    /// Takes out data of the peer. `Ok(0)` is the end of the stream.
    ///
    /// # Errors
    /// See [`firstflight_tcp::Connection::read`].
    // The lookup of the slot is inlined into the caller, the copy of the data is one function.
    #[inline(always)]
    pub fn read(&mut self, id: ConnId, out: &mut [u8], now: Instant) -> Result<usize, IoError> {
        let slot = self.slots.get_live(id.index, id.generation).ok_or(GONE)?;
        let result = slot.conn.read(&mut self.pool, out);
        // Only a window that opened needs an ACK.
        if slot.conn.owes_ack() && !slot.queued {
            self.touched(id.index, now);
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
        self.given_up(id, now);
        let _ = self.with(id, now, |slot, pool| {
            slot.conn.abort(pool);
            Ok(())
        });
    }

    /// Releases a connection. It closes in the background. Unread data causes a RST.
    #[inline]
    pub fn release(&mut self, id: ConnId, now: Instant) {
        self.tell_path(id, now);
        self.given_up(id, now);
        let _ = self.with(id, now, |slot, pool| {
            slot.conn.release(pool, now);
            slot.owner = Owner::Nobody;
            Ok(())
        });
    }

    /// Copies data of the peer without taking it out. Returns the number of bytes.
    pub fn peek(&self, id: ConnId, out: &mut [u8]) -> usize {
        self.slot(id).map_or(0, |slot| slot.conn.peek(out))
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
        match (now, self.slots.get_live(id.index, id.generation)) {
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
        if let Some(slot) = self.slots.get_live(id.index, id.generation) {
            slot.conn.end_record();
        }
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
        let slot = self.slots.get_live(id.index, id.generation).ok_or(GONE)?;
        let result = f(slot, &mut self.pool);
        if slot.touch(id.index, &mut self.outbox, self.journal.is_tracing()) {
            self.take_news(id.index, now);
        }
        result
    }
}
