//! A server: its stack, its receiver for fronts, its application, and its clock.

use super::ledger::Done;
use super::packets::Flow;
use super::store::Driver;
use super::{PORT, Setup, UNIX_MS, identity, verifier};
use firstflight_credential::asap::{AsapPolicy, GuardDomain, ReplyKey, TrustStore, Trusted};
use firstflight_credential::{
    GuardKey, PendingLimit, Quarantine, Reason, RemoteGuard, ReplayGuard, ReplayTable, Window,
};
use firstflight_dns::{OpenBuffer, RelayKey, RelayReceiver};
use firstflight_stack::{
    Config, ConnId, EncapsulationConfig, IoError, Limits, ListenConfig, ListenerId, RelayedFlight, Stack,
    Trace,
};
use firstflight_wire::asap::BLOCK_LEN;
use firstflight_wire::{Clock, Instant, SeqNum};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// UDP port of the encapsulation.
pub const OUTER: u16 = 443;
/// The first bytes of a request. Its number and its length follow.
pub const MAGIC: [u8; 4] = *b"ONCE";
pub const HEAD: usize = 10;

/// How the servers remember requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, arbitrary::Arbitrary)]
pub enum Guards {
    /// All servers are one process with one table.
    Table,
    /// The servers ask a store.
    Store,
    /// Each server has its own table.
    Sites,
}

/// A connection that the application holds.
struct Open {
    id: ConnId,
    bytes: Vec<u8>,
    flow: Flow,
    early: bool,
    made: (Instant, Option<SeqNum>),
    unasked: bool,
}

pub struct Server {
    pub number: usize,
    pub address: IpAddr,
    pub stack: Stack,
    listener: ListenerId,
    receiver: RelayReceiver,
    policy: AsapPolicy,
    pub driver: Driver,
    /// The difference between its wall clock and the world's, milliseconds.
    pub offset_ms: i64,
    /// The number of its start.
    pub epoch: u32,
    /// The end of its downtime.
    pub down_until: Option<Instant>,
    /// Whether the application accepts connections.
    pub accepting: bool,
    open: Vec<Open>,
    /// Connections that were made: the time, and the number of their client's SYN.
    made: BTreeMap<ConnId, (Instant, Option<SeqNum>)>,
}

pub fn relay_key(front: usize, server: usize) -> RelayKey {
    RelayKey::from_bytes(&[10 + (front * 16 + server) as u8; 32])
}

pub fn key_id(front: usize) -> u8 {
    1 + front as u8
}

/// The key of all guards.
pub fn guard_key() -> GuardKey {
    GuardKey::from_bytes([3; 16])
}

pub fn table(now_ms: u64) -> Arc<dyn ReplayGuard> {
    Arc::new(ReplayTable::new(guard_key(), Window::REQUESTS, 1 << 14, now_ms))
}

pub fn trust(good: bool) -> Arc<TrustStore> {
    let entry = Trusted { own: true, ..Trusted::new(verifier(good).public()) };
    Arc::new(TrustStore::new([entry]).expect("one entry"))
}

/// Whether a member of a farm refuses a block for this reason before it asks the store, or without an answer of it.
fn is_unasked(reason: Reason) -> bool {
    !matches!(reason, Reason::Replay | Reason::NotRequested | Reason::NoCredential)
}

impl Server {
    pub fn new(number: usize, setup: &Setup, guard: Arc<dyn ReplayGuard>, now: Instant) -> Self {
        let address = IpAddr::from([192, 0, 2, 80 + number as u8]);
        let pending = Arc::new(PendingLimit::new(if setup.few_permits.0 { 2 } else { 64 }));
        let relayed = PendingLimit::with_clients(if setup.few_relayed.0 { 1 } else { 64 }, 4);
        let domain = if setup.guards == Guards::Sites { GuardDomain::Site } else { GuardDomain::All };
        let policy = AsapPolicy {
            trust: trust(true),
            identities: [identity()].into(),
            guard,
            domain,
            relayed: Some(Arc::new(relayed.within(Arc::clone(&pending)))),
            pending,
            quarantine: Quarantine::Accepted,
        };
        let (stack, listener) = start(number, 0, address, setup, &policy, now);
        let mut receiver = RelayReceiver::new();
        (0..super::FRONTS).for_each(|front| receiver.set_key(key_id(front), &relay_key(front, number)));
        Self {
            number,
            address,
            stack,
            listener,
            receiver,
            policy,
            driver: Driver::default(),
            offset_ms: 0,
            epoch: 0,
            down_until: None,
            accepting: true,
            open: Vec::new(),
            made: BTreeMap::new(),
        }
    }

    /// Restarts with empty memory.
    pub fn restart(&mut self, setup: &Setup, guard: Option<Arc<dyn ReplayGuard>>, now: Instant) {
        self.epoch += 1;
        self.open.clear();
        self.made.clear();
        let pending = Arc::new(PendingLimit::new(self.policy.pending.limit()));
        let relayed = self.policy.relayed.as_ref().map_or(0, |relayed| relayed.limit());
        let relayed = PendingLimit::with_clients(relayed, 4).within(Arc::clone(&pending));
        (self.policy.pending, self.policy.relayed) = (pending, Some(Arc::new(relayed)));
        if let Some(guard) = guard {
            self.policy.guard = guard;
        }
        (self.stack, self.listener) = start(self.number, self.epoch, self.address, setup, &self.policy, now);
        self.receiver = RelayReceiver::new();
        for front in 0..super::FRONTS {
            self.receiver.set_key(key_id(front), &relay_key(front, self.number));
        }
        self.down_until = None;
        self.tell_time(now);
    }

    pub fn unix_ms(&self, now: Instant) -> u64 {
        (UNIX_MS + now.as_millis()).saturating_add_signed(self.offset_ms)
    }

    pub fn tell_time(&mut self, now: Instant) {
        let clock = Clock { mono: now, unix_ms: self.unix_ms(now), uncertainty: Duration::ZERO };
        self.stack.handle_clock(clock);
    }

    pub fn set_trust(&mut self, good: bool, now: Instant) {
        self.policy.trust = trust(good);
        self.stack.set_trust(self.listener, Arc::clone(&self.policy.trust), now);
    }

    /// Handles a datagram at the port for fronts.
    pub fn take_relay(&mut self, datagram: &[u8], now: Instant) {
        let mut buffer = OpenBuffer::new();
        let unix_ms = self.unix_ms(now);
        let Ok(relayed) = self.receiver.handle_datagram(datagram, unix_ms, &mut buffer) else { return };
        let segment = relayed.ci.segment();
        let client = SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get());
        self.take_opened(client, &segment, relayed.reply, now);
    }

    /// Handles a first flight from a front.
    pub fn take_opened(&mut self, client: SocketAddr, segment: &[u8], key: ReplyKey, now: Instant) {
        let flight = RelayedFlight { client, server: self.address, segment, key, seen_as: None };
        self.stack.handle_relayed(now, flight);
    }

    /// The application: accepts connections, reads requests, answers and closes. Returns what was executed.
    pub fn serve(&mut self, guard: usize, now: Instant) -> Vec<(u32, Done)> {
        while self.stack.poll_event().is_some() {}
        self.note_made(now);
        while self.accepting
            && let Some(id) = self.stack.accept(self.listener)
        {
            let info = self.stack.info(id).expect("a connection that was accepted");
            let flow = Flow { server: self.address, client: info.remote, outer: info.encapsulation };
            // A connection that a SYN cookie made has no trace record.
            let made = self.made.remove(&id).unwrap_or((now, None));
            let unasked = self.policy.guard.needs_store() && info.outcome.reason().is_some_and(is_unasked);
            self.open.push(Open {
                id,
                bytes: Vec::new(),
                flow,
                early: info.outcome.is_accepted(),
                made,
                unasked,
            });
        }
        let mut executed = Vec::new();
        let (server, stack) = ((self.number, self.epoch), &mut self.stack);
        self.open.retain_mut(|open| {
            let mut buffer = [0; 2048];
            loop {
                match stack.read(open.id, &mut buffer, now) {
                    Ok(0) => break,
                    Ok(len) => open.bytes.extend_from_slice(&buffer[..len]),
                    Err(IoError::WouldBlock) => return true,
                    Err(_) => {
                        stack.release(open.id, now);
                        return false;
                    }
                }
                let Some(number) = whole(&open.bytes) else { continue };
                let (made, isn) = open.made;
                // Some applications abort immediately, which leaves nothing of the connection.
                let aborted = number.is_multiple_of(4);
                let done = Done {
                    guard,
                    server,
                    flow: open.flow,
                    early: open.early,
                    made,
                    isn,
                    unasked: open.unasked,
                };
                executed.push((number, done));
                if aborted {
                    stack.abort(open.id, now);
                    break;
                }
                let _ = stack.write(open.id, &vec![b'.'; 100 + number as usize % 3000], now);
                break;
            }
            let _ = stack.shutdown(open.id, now);
            stack.release(open.id, now);
            false
        });
        executed
    }

    /// Records which connections were made just now.
    fn note_made(&mut self, now: Instant) {
        while let Some(trace) = self.stack.poll_trace() {
            let Trace::Outcome(id, outcome) = trace else { continue };
            let Some(variables) = self.stack.variables(id) else { continue };
            // The number of the stream's first byte.
            let first = variables.rcv_nxt - self.stack.peek(id, &mut [0; 2048]) as u32;
            let block = if outcome.is_accepted() { BLOCK_LEN as u32 } else { 0 };
            self.made.entry(id).or_insert((now, Some(first - (1 + block))));
        }
        let stack = &self.stack;
        self.made.retain(|id, _| stack.info(*id).is_some());
    }

    /// Checks the invariants.
    pub fn check(&self) {
        let (limits, gauges) = (&self.stack.config().limits, self.stack.gauges());
        assert!(gauges.connections <= limits.connections && gauges.deferred <= limits.deferred);
        let permits = self.policy.pending.pending();
        assert!(permits <= self.policy.pending.limit(), "{permits} pending permits");
        let whose = gauges.connections + gauges.deferred + gauges.quarantined;
        assert!(permits as usize <= whose, "{permits} pending permits of {whose}");
        assert!(self.receiver.fronts() <= super::FRONTS);
    }

    /// Releases everything.
    pub fn give_up(&mut self, now: Instant) {
        self.stack.unlisten(self.listener, now);
        self.open.drain(..).for_each(|open| self.stack.release(open.id, now));
    }

    /// Checks at the end that nothing is left.
    pub fn end(&self) {
        assert_eq!(self.stack.connections(), 0, "connections are left: {:?}", self.stack);
        assert_eq!((self.stack.gauges().deferred, self.stack.buffer_bytes()), (0, 0));
        assert_eq!(self.policy.pending.pending(), 0, "pending permits are left");
    }
}

/// The number of a request, once it is complete.
fn whole(bytes: &[u8]) -> Option<u32> {
    let (number, len) = numbered(bytes)?;
    (bytes.len() >= len).then_some(number)
}

/// Number and length of the request at the beginning of `bytes`.
pub fn numbered(bytes: &[u8]) -> Option<(u32, usize)> {
    let &[a, b, c, d, n, o, p, q, high, low] = bytes.first_chunk::<HEAD>()?;
    assert_eq!([a, b, c, d], MAGIC, "what is delivered is no request");
    Some((u32::from_be_bytes([n, o, p, q]), u16::from_be_bytes([high, low]).into()))
}

fn start(
    number: usize,
    epoch: u32,
    address: IpAddr,
    setup: &Setup,
    policy: &AsapPolicy,
    now: Instant,
) -> (Stack, ListenerId) {
    let mut secret = [number as u8; 32];
    secret[..4].copy_from_slice(&epoch.to_be_bytes());
    let mut config = Config::new(vec![address], secret);
    config.encapsulation = Some(EncapsulationConfig::new(OUTER).probe(false));
    let connections = if setup.few_connections.0 { 3 } else { 64 };
    config.limits = Limits::default()
        .connections(connections)
        .trace(4096)
        .deferred(if setup.few_deferred.0 { 1 } else { 16 })
        .time_wait(8);
    if setup.small_budget.0 {
        (config.limits.asap.per_second, config.limits.asap.relayed_per_second) = (30, 20);
    }
    let mut stack = Stack::new(config, now);
    let mut config = ListenConfig::new(SocketAddr::new(address, PORT));
    config.asap = Some(policy.clone());
    config.backlog = if setup.short_backlog.0 { 1 } else { 16 };
    config.syn_backlog = if setup.short_queue.0 { 1 } else { 16 };
    let listener = stack.listen(config).expect("the port is free");
    (stack, listener)
}

pub fn remote() -> Arc<dyn ReplayGuard> {
    Arc::new(RemoteGuard::new(guard_key(), Window::REQUESTS))
}
