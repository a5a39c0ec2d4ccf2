//! State shared by the driver and the sockets: the stack, and the tasks that wait for it.

use crate::cache::{CredentialCache, Keeper, Snapshot};
use crate::clock;
use crate::endpoint::ending::EngineRef;
use crate::memory::history::History;
use crate::memory::{Fact, HolderMemory};
use crate::own_verifier::VerifierDesk;
use crate::store::StoreCounters;
use crate::time::Time;
use firstflight_stack::{ConnId, Event, IoError, ListenerId, Readiness, Stack};
use firstflight_tcp::CloseReason;
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::{Clock, Instant};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

/// Tasks that wait for one connection.
#[derive(Debug, Default)]
struct ConnectionWakers {
    /// The connection, if a task waits.
    id: Option<ConnId>,
    read: Option<Waker>,
    write: Option<Waker>,
    connected: Option<Waker>,
    /// Several tasks may wait for the handshake.
    more_connected: Vec<Waker>,
}

impl ConnectionWakers {
    /// Takes the tasks that wait for the handshake.
    fn take_connected(&mut self) -> impl Iterator<Item = Waker> {
        self.connected.take().into_iter().chain(self.more_connected.drain(..))
    }

    /// Nobody waits any more. The list keeps its room.
    fn clear(&mut self) {
        (self.id, self.read, self.write, self.connected) = (None, None, None, None);
        self.more_connected.clear();
    }
}

/// The stack and its waiters.
#[derive(Debug)]
pub(crate) struct Inner {
    pub stack: Stack,
    /// Counters of the questions to the shared store.
    pub store: StoreCounters,
    /// Whether there is a shared store.
    pub has_store: bool,
    /// By the connections' indices.
    waiting: Vec<ConnectionWakers>,
    /// Each task has a number.
    accepting: HashMap<ListenerId, Vec<(u64, Waker)>>,
    /// The number of the next task that accepts.
    next_place: u64,
    idle: Vec<Waker>,
    /// The driver's waker.
    pub driver: Option<Waker>,
    /// The driver runs, or will run at once: it was woken since its last turn.
    kicked: bool,
    /// A connection was accepted.
    pub accepted: bool,
    /// The time of the driver's turn, while it lasts.
    turn: Option<Instant>,
    /// The last reading of the clock, and the tick in which it was made.
    read: Option<(Duration, Instant)>,
    /// The driver should stop.
    pub stopping: bool,
    /// Set when the driver has stopped; contains the kind of the link's error, if one was the cause.
    pub stopped: Option<Option<io::ErrorKind>>,
    /// The driver and its link are gone.
    pub released: bool,
    pub time: Time,
    /// The place of the server's own verifier.
    pub desk: VerifierDesk,
    /// Saves the client's memory of servers.
    keeper: Option<Keeper>,
    /// Addresses that lost races. The shards of an endpoint have one in common.
    history: Arc<Mutex<History>>,
    /// Whether the link's UDP socket is bound to all addresses of the host: for IPv4, for IPv6.
    any_address: [bool; 2],
}

/// What a task waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Read,
    Write,
    Connected,
}

/// Registers the caller's waker, unless it is there already.
fn register(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}

impl Inner {
    /// Monotonic time since the endpoint began. A turn of the driver has one time. The calls before a turn that comes at
    /// once share a reading, which is a few milliseconds old at most: reading the clock costs as much as a small packet.
    pub(crate) fn now(&mut self) -> Instant {
        if let Some(now) = self.turn {
            return now;
        }
        let tick = self.time.tick();
        if let (true, Some((read, now))) = (self.kicked, self.read)
            && tick == Some(read)
        {
            return now;
        }
        let now = self.time.now();
        self.read = tick.map(|tick| (tick, now));
        now
    }

    /// The driver's turn begins. Returns the time of the whole turn.
    pub(crate) fn begin_turn(&mut self, cx: &Context<'_>) -> Instant {
        register(&mut self.driver, cx);
        self.kicked = true;
        *self.turn.insert(self.time.now())
    }

    /// The driver's turn ends. Another one follows at once if it comes `again`.
    pub(crate) fn end_turn(&mut self, again: bool) {
        self.kicked = again;
        self.turn = None;
    }

    /// Whether a connection was accepted since the last call.
    pub(crate) fn has_accepted(&mut self) -> bool {
        std::mem::take(&mut self.accepted)
    }

    /// The monotonic and the wall clock.
    fn clock(&mut self) -> Clock {
        let now = self.now();
        clock::at(self.time.unix(), now)
    }

    /// Gives the stack the wall clock.
    pub(crate) fn set_clock(&mut self) {
        let clock = self.clock();
        self.stack.handle_clock(clock);
    }

    /// Loads what `cache` holds and keeps its file up to date.
    pub(crate) fn keep(&mut self, cache: CredentialCache) {
        let clock = self.clock();
        let keeper = Keeper::load(cache, &clock, |fact| match fact {
            Fact::Server(network, server, entry) => self.stack.restore_credential(network, server, entry),
            Fact::LostRace(way, at) => self.history().lost(way, at),
            // Of these an engine learns nothing.
            Fact::Closed(..) | Fact::UdpPause(..) | Fact::Record(..) => {}
        });
        let history = self.history();
        let learnt = HolderMemory { servers: self.stack.credentials(), history: &history, others: None };
        let keeper = keeper.start(&learnt, &clock);
        drop(history);
        self.keeper = Some(keeper);
    }

    /// Forgets all that was learnt of servers, in the file too.
    pub(crate) fn forget_credentials(&mut self) {
        self.stack.forget_credentials();
        self.history().clear();
        if let Some(keeper) = &mut self.keeper {
            keeper.forget();
        }
    }

    /// Addresses that lost races.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the same memory of lost races as another shard.
    pub(crate) fn share_history(&mut self, other: &Self) {
        self.history = Arc::clone(&other.history);
    }

    /// When the cache file should be written next.
    pub(crate) fn save_due(&self) -> Option<Instant> {
        let (keeper, history) = (self.keeper.as_ref()?, self.history());
        keeper.due(&HolderMemory { servers: self.stack.credentials(), history: &history, others: None })
    }

    /// What should be written to the cache file, if anything.
    pub(crate) fn save(&mut self) -> Option<Snapshot> {
        self.saved_by(Keeper::snapshot)
    }

    /// What must be written to the cache file at the end.
    pub(crate) fn save_last(&mut self) -> Option<Snapshot> {
        self.saved_by(Keeper::last)
    }

    fn saved_by(
        &mut self,
        save: impl FnOnce(&mut Keeper, &HolderMemory<'_>, &Clock) -> Option<Snapshot>,
    ) -> Option<Snapshot> {
        let (clock, history) = (self.clock(), Arc::clone(&self.history));
        let history = history.lock().unwrap_or_else(PoisonError::into_inner);
        let learnt = HolderMemory { servers: self.stack.credentials(), history: &history, others: None };
        save(self.keeper.as_mut()?, &learnt, &clock)
    }

    /// If the link's socket is bound to all addresses, tells the stack the source address that the kernel would choose
    /// for `remote`. The next connect uses it.
    pub(crate) fn find_source(&mut self, remote: SocketAddr) -> io::Result<()> {
        let [v4, v6] = self.any_address;
        if if remote.is_ipv4() { v4 } else { v6 } {
            self.stack.prefer_address(firstflight_link::source_for(remote)?.ip());
        }
        Ok(())
    }

    /// Wakes the driver, because something should be sent or a timer changed.
    pub(crate) fn kick(&mut self) {
        if !self.kicked {
            self.kicked = true;
            if let Some(waker) = &self.driver {
                waker.wake_by_ref();
            }
        }
    }

    /// The error of connection `id` as an [`io::Error`]. A connect is refused when ICMP reports that the server's port
    /// is closed.
    pub(crate) fn io_error(&self, id: ConnId, error: IoError) -> io::Error {
        let network = || self.stack.info(id)?.network_error;
        match error {
            IoError::Closed(CloseReason::Unreachable)
                if network() == Some(IcmpErrorKind::PortUnreachable) =>
            {
                io::Error::new(io::ErrorKind::ConnectionRefused, error)
            }
            _ => io_error(error),
        }
    }

    /// Registers a task that waits.
    pub(crate) fn wait(&mut self, id: ConnId, interest: Interest, cx: &Context<'_>) {
        if self.waiting.len() <= id.index() {
            self.waiting.resize_with(id.index() + 1, ConnectionWakers::default);
        }
        let Some(waiting) = self.waiting.get_mut(id.index()) else { return };
        if waiting.id != Some(id) {
            waiting.clear();
            waiting.id = Some(id);
        }
        match interest {
            Interest::Read => register(&mut waiting.read, cx),
            Interest::Write => register(&mut waiting.write, cx),
            Interest::Connected => match &waiting.connected {
                None => waiting.connected = Some(cx.waker().clone()),
                Some(first) => {
                    let known = |waker: &Waker| waker.will_wake(cx.waker());
                    if !known(first) && !waiting.more_connected.iter().any(known) {
                        waiting.more_connected.push(cx.waker().clone());
                    }
                }
            },
        }
    }

    /// A number for a task that accepts.
    pub(crate) fn place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }

    /// Registers the task with this number, which waits for a connection of a listener.
    pub(crate) fn wait_accept(&mut self, id: ListenerId, place: u64, cx: &Context<'_>) {
        let list = self.accepting.entry(id).or_default();
        match list.iter_mut().find(|(other, _)| *other == place) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => list.push((place, cx.waker().clone())),
        }
    }

    /// The task with this number no longer waits.
    pub(crate) fn leave_accept(&mut self, id: ListenerId, place: u64) {
        if let Some(list) = self.accepting.get_mut(&id) {
            list.retain(|(other, _)| *other != place);
        }
    }

    /// Registers a task that waits until no connection is left.
    pub(crate) fn wait_idle(&mut self, cx: &Context<'_>) {
        self.idle.push(cx.waker().clone());
    }

    /// Removes the tasks that wait for this connection.
    pub(crate) fn forget(&mut self, id: ConnId) {
        if let Some(waiting) = self.waiting.get_mut(id.index()).filter(|waiting| waiting.id == Some(id)) {
            waiting.clear();
        }
    }

    /// Removes the tasks that wait for this listener.
    pub(crate) fn forget_listener(&mut self, id: ListenerId) {
        self.accepting.remove(&id);
    }

    /// Wakes the tasks that wait for the stack's events. Returns true if there were events.
    pub(crate) fn dispatch(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.stack.poll_event() {
            any = true;
            match event {
                Event::Acceptable(id) => {
                    if let Some(list) = self.accepting.get_mut(&id) {
                        list.drain(..).for_each(|(_, waker)| waker.wake());
                    }
                }
                Event::Ready(id, ready) => self.wake(id, ready),
            }
        }
        if self.stack.connections() == 0 {
            self.idle.drain(..).for_each(Waker::wake);
        }
        any
    }

    fn wake(&mut self, id: ConnId, ready: Readiness) {
        let waiting = self.waiting.get_mut(id.index()).filter(|waiting| waiting.id == Some(id));
        let Some(waiting) = waiting else { return };
        let closed = ready.contains(Readiness::CLOSED);
        if (closed || ready.contains(Readiness::READABLE))
            && let Some(waker) = waiting.read.take()
        {
            waker.wake();
        }
        if (closed || ready.contains(Readiness::WRITABLE))
            && let Some(waker) = waiting.write.take()
        {
            waker.wake();
        }
        if closed || ready.contains(Readiness::CONNECTED) || ready.contains(Readiness::HELD) {
            waiting.take_connected().for_each(Waker::wake);
        }
    }

    /// Records that the driver has stopped, and wakes all tasks.
    pub(crate) fn stop(&mut self, error: Option<io::ErrorKind>) {
        self.stopped = Some(error);
        for mut waiting in self.waiting.drain(..) {
            let others = waiting.read.take().into_iter().chain(waiting.write.take());
            others.chain(waiting.take_connected()).for_each(Waker::wake);
        }
        self.accepting.drain().flat_map(|(_, l)| l).for_each(|(_, waker)| waker.wake());
        self.idle.drain(..).for_each(Waker::wake);
    }

    /// Records that the driver and its link are gone.
    pub(crate) fn release(&mut self) {
        self.released = true;
        self.idle.drain(..).for_each(Waker::wake);
    }

    /// Returns an error once the driver has stopped.
    pub(crate) fn check(&self) -> io::Result<()> {
        match self.stopped {
            None => Ok(()),
            Some(kind) => {
                Err(io::Error::new(kind.unwrap_or(io::ErrorKind::NotConnected), "the endpoint has stopped"))
            }
        }
    }
}

/// The wall clock now.
pub(crate) fn wall_clock(mono: Instant) -> Clock {
    clock::at(clock::unix(), mono)
}

/// Removes the unspecified addresses from `config`, and returns for which families there was one. They mean all
/// addresses of the host, so they are valid only over a socket of the operating system.
fn take_unspecified(config: &mut firstflight_stack::Config) -> [bool; 2] {
    if !config.encapsulation.as_ref().is_some_and(|encapsulation| encapsulation.from_socket) {
        return [false; 2];
    }
    let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let found = any.map(|any| config.addresses.contains(&any));
    config.addresses.retain(|ip| !ip.is_unspecified());
    found
}

/// The lock around [`Inner`].
#[derive(Debug)]
pub(crate) struct Shared(Mutex<Inner>);

impl Shared {
    /// Whether the endpoint and the listener are still there.
    pub(crate) fn has_listener(shared: &Weak<Self>, id: ListenerId) -> bool {
        EngineRef::of(shared).is_some_and(|shared| shared.lock().stack.queues(id).is_some())
    }

    pub(crate) fn new(mut config: firstflight_stack::Config, has_store: bool, time: Time) -> Arc<Self> {
        let any_address = take_unspecified(&mut config);
        let mut inner = Inner {
            stack: Stack::new(config, time.now()),
            store: StoreCounters::default(),
            has_store,
            waiting: Vec::new(),
            accepting: HashMap::new(),
            next_place: 0,
            idle: Vec::new(),
            driver: None,
            kicked: false,
            accepted: false,
            turn: None,
            read: None,
            stopping: false,
            stopped: None,
            released: false,
            time,
            desk: VerifierDesk::default(),
            keeper: None,
            history: Arc::default(),
            any_address,
        };
        inner.set_clock();
        Arc::new(Self(Mutex::new(inner)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts a stack error to an I/O error.
pub(crate) fn io_error(error: IoError) -> io::Error {
    let kind = match error {
        IoError::SendClosed => io::ErrorKind::BrokenPipe,
        IoError::Closed(reason) => match reason {
            CloseReason::Refused => io::ErrorKind::ConnectionRefused,
            CloseReason::Reset | CloseReason::PeerMisbehaved => io::ErrorKind::ConnectionReset,
            CloseReason::TimedOut => io::ErrorKind::TimedOut,
            CloseReason::Unreachable => io::ErrorKind::HostUnreachable,
            CloseReason::Finished => io::ErrorKind::NotConnected,
            _ => io::ErrorKind::ConnectionAborted,
        },
        _ => io::ErrorKind::WouldBlock,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests;
