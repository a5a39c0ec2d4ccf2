//! One connection: it joins the states, the two halves, the timers and congestion control.
//!
//! It has four families of methods. *Getters* read. `handle_*` methods take events (a segment, time).
//! *Commands* take the wishes of the application. `poll_*` methods return the results: after a call of a
//! `handle_*` method or a command, call [`Connection::poll_transmit`] until it returns `None`, then read
//! [`Connection::poll_timeout`], [`Connection::poll_readiness`] and [`Connection::poll_transition`].

mod acknowledge;
mod command;
mod due_segments;
mod ecn;
mod getters;
mod handshake;
mod model;
mod path;
mod recover;
mod refused;
mod segment;
mod stamp;
#[cfg(test)]
mod straight_tests;
mod timeout;
mod transmit;
mod transmit_syn;
mod variables;

use crate::buffer::Pool;
use crate::config::Config;
use crate::congestion::{CongestionControl, Controller, InitialWindow};
use crate::error::CloseReason;
use crate::plpmtud::Search;
use crate::push::Push;
use crate::quick_ack::QuickAck;
use crate::rack::Rack;
use crate::receive::Receive;
use crate::recovery::Undo;
use crate::rtt::{INITIAL_RTO, RttEstimator};
use crate::send::SendHalf;
use crate::state::{self, State};
use crate::timers::{Timer, Timers};
use crate::transition::{self, StateName, Transition, Transitions, Trigger};
use crate::usage::Usage;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;
use firstflight_wire::tcp::Timestamps;
use firstflight_wire::{Instant, SeqNum};

use due_segments::DueSegments;

pub use getters::{CongestionState, ConnectionFacts};
pub use segment::{Disposition, DropReason, follows};
pub use variables::Variables;

/// What changed for the application since its last call; the values are bits of one set.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Readiness(u8);

impl Readiness {
    /// The handshake is complete (client: the SYN-ACK arrived; server: the client's ACK arrived).
    pub const CONNECTED: Self = Self(1);
    /// There is something to read: data, or the end of the stream.
    pub const READABLE: Self = Self(2);
    /// There is room to write again.
    pub const WRITABLE: Self = Self(4);
    /// The connection is over: closed in order, reset, timed out, or in TIME-WAIT.
    pub const CLOSED: Self = Self(8);
    /// Our SYN was refused, and the connection waits for the answer to the SYN's other copy
    /// ([`Connection::hold_syn`]).
    pub const HELD: Self = Self(16);
    /// There are times to take ([`Connection::poll_stamp`]).
    pub const STAMPED: Self = Self(32);

    /// Whether nothing changed.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it contains all of `other`.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl core::ops::BitOrAssign for Readiness {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Everything that is fixed when a connection begins.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    /// Our port.
    pub local_port: u16,
    /// The peer's port.
    pub remote_port: u16,
    /// Our initial sequence number (RFC 6528; the stack generates it).
    pub isn: SeqNum,
    /// Added to the millisecond clock in our timestamps (RFC 7323 §5.4).
    pub ts_offset: u32,
    /// The peer's MSS if its SYN has no MSS option, bytes: 536 over IPv4, 1,220 over IPv6 (RFC 9293 §3.7.1).
    pub default_mss: u16,
    /// Largest payload that the path to the peer takes in one segment without options, bytes.
    pub path_mss: u16,
    /// Larger segments to try once the connection is established (RFC 8899): payloads without options, bytes,
    /// ascending. The last one is the link's limit, and is announced. With zeros nothing is tried.
    pub probe: [u16; 3],
}

/// Counters of one connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of the stream that the peer acknowledged.
    pub bytes_acked: u64,
    /// Bytes of the stream received in order.
    pub bytes_received: u64,
    /// Segments sent again.
    pub retransmits: u32,
    /// Segments that the peer received, including our SYN.
    pub delivered: u32,
    /// Bytes of the stream that arrived before the handshake completed.
    pub early: u32,
}

/// Boolean state of a connection.
#[derive(Debug, Default)]
struct Bools {
    timestamps: bool,
    sack: bool,
    nodelay: bool,
    /// Less than a full segment waits for more data.
    cork: bool,
    /// The next writes of the application do not end a message.
    more: bool,
    /// Its last write did not end a message.
    open_end: bool,
    /// The handshake is complete.
    connected: bool,
    /// The peer's SYN-ACK came, and nothing has left since.
    silent: bool,
    /// The application has released the connection.
    released: bool,
    /// A write found no room: report it when there is room again.
    wants_room: bool,
    /// See [`Connection::peer_is_ahead`].
    peer_ahead: bool,
    /// A RST had a number beyond what was received, and was challenged.
    reset_ahead: bool,
    /// See [`Connection::has_reset_acknowledged_syn`].
    reset_acknowledged_syn: bool,
    /// Data arrived before the SYN-ACK, and was dropped.
    early_data: bool,
    /// Data arrived that could not be taken in order, or that the application will not read.
    other_data: bool,
    /// A tail loss probe (RFC 8985 §7.3) left, and no round-trip time was measured since.
    unmeasured: bool,
    /// `Timer::Probe` runs because a segment may only be late.
    settling: bool,
    /// `Timer::Persist` waits for the answer to a probe.
    probed: bool,
    /// A black hole of path MTU made segments smaller.
    narrowed: bool,
}

/// A tail loss probe whose result is not known yet (RFC 8985 §7.4).
#[derive(Debug, Clone, Copy)]
struct Tail {
    /// SND.NXT when it left (TLP.end_seq).
    end: SeqNum,
    /// It carried data sent before (TLP.is_retrans).
    again: bool,
}

/// One TCP connection (RFC 9293).
///
/// It takes segments, the time and commands, and gives segments and notifications. Memory for data comes from a [`Pool`]
/// that its owner lends to each call. After [`handle_segment`](Self::handle_segment),
/// [`handle_timeout`](Self::handle_timeout) and commands, poll in this order: [`poll_readiness`](Self::poll_readiness),
/// and let the application read and write; [`poll_transmit`](Self::poll_transmit), until there is nothing to send; then
/// [`poll_timeout`](Self::poll_timeout), for when [`handle_timeout`](Self::handle_timeout) must be called.
///
/// # Example
///
/// A request and its response, between two connections. The checksums and the IP headers are the layer above's work.
///
/// ```
/// use firstflight_tcp::{ChildPlan, Config, Connection, Endpoints, Pool, Readiness, SynPlan};
/// use firstflight_wire::tcp::Segment;
/// use firstflight_wire::{Instant, SeqNum};
/// use std::sync::Arc;
///
/// /// Sends everything that waits in one connection to the other.
/// fn transmit(from: &mut Connection, to: &mut Connection, pool: &mut Pool, now: Instant) {
///     let mut out = [0; 1500];
///     while let Some(len) = from.poll_transmit(now, &mut out, pool) {
///         let segment = Segment::parse(&out[..len]).expect("what we made ourselves");
///         to.handle_segment(&segment, now, pool);
///     }
/// }
///
/// let (config, now) = (Arc::new(Config::default()), Instant::from_secs(1));
/// let mut pool = Pool::new(1 << 20);
/// // A real program takes initial numbers from RFC 6528.
/// let ends = |local_port, remote_port, isn| Endpoints {
///     local_port,
///     remote_port,
///     isn: SeqNum::new(isn),
///     ts_offset: 0,
///     default_mss: 536,
///     path_mss: 1460,
///     probe: [0; 3],
/// };
/// let mut client = Connection::new(Arc::clone(&config), ends(40_000, 80, 1), now);
/// let mut server = Connection::new(config, ends(80, 40_000, 1_000_000), now);
///
/// client.open_active(SynPlan::default(), b"question", &mut pool);
/// let mut syn = [0; 1500];
/// let len = client.poll_transmit(now, &mut syn, &mut pool).ok_or("no SYN")?;
/// server.open_passive(&Segment::parse(&syn[..len])?, &ChildPlan::default(), &mut pool, now);
/// transmit(&mut server, &mut client, &mut pool, now);
/// transmit(&mut client, &mut server, &mut pool, now);
///
/// assert!(server.poll_readiness().contains(Readiness::READABLE));
/// let mut request = [0; 100];
/// let len = server.read(&mut pool, &mut request)?;
/// assert_eq!(&request[..len], b"question");
///
/// server.write(&mut pool, b"answer", now)?;
/// transmit(&mut server, &mut client, &mut pool, now);
/// let mut response = [0; 100];
/// let len = client.read(&mut pool, &mut response)?;
/// assert_eq!(&response[..len], b"answer");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Connection {
    config: Arc<Config>,
    ends: Endpoints,
    state: State,
    snd: SendHalf,
    rcv: Receive,
    control: Controller,
    /// Pacing and path measurements, if in use.
    paced: Option<Box<model::Paced>>,
    rtt: RttEstimator,
    push: Push,
    quick: QuickAck,
    /// Path-MTU probing, if in use.
    search: Option<Box<Search>>,
    timers: Timers,
    facts: Bools,
    owed: DueSegments,
    marks: ecn::EcnMarks,
    ready: Readiness,
    totals: Totals,
    rack: Rack,
    tail: Option<Tail>,
    usage: Usage,
    /// What would show that the last reduction of the window was needless.
    undo: Option<Box<Undo>>,
    /// Timeouts in a row without progress.
    backoffs: u8,
    /// Probes in a row without an answer.
    probes: u8,
    /// Probes that were answered since the peer closed its window.
    answered: u8,
    /// Number of SYNs or SYN-ACKs sent again, valid once the handshake is complete.
    handshake_retransmits: u8,
    last_heard: Instant,
    last_sent: Instant,
    /// When data last left.
    last_data: Instant,
    /// While the user timeout runs: the number that the peer must acknowledge before it.
    expected: SeqNum,
    /// Challenge ACKs in the current second (RFC 5961 §10; counted per connection, so they are no side
    /// channel).
    challenges: u8,
    /// When that second began.
    challenged_at: Instant,
    transitions: Transitions,
}

impl Connection {
    /// A connection in CLOSED. Begin it with [`Connection::open_active`], [`Connection::open_passive`] or
    /// [`Connection::open_from_cookie`].
    #[must_use]
    pub fn new(config: Arc<Config>, ends: Endpoints, now: Instant) -> Self {
        let mut conn = Self::default();
        conn.renew(&config, ends, now);
        conn
    }

    /// Puts a new connection, in CLOSED, in the place of one that is over. It is too large to be moved there. A
    /// reference to the same settings stays: processors wait when a reference count changes.
    #[inline(always)]
    pub fn renew(&mut self, config: &Arc<Config>, ends: Endpoints, now: Instant) {
        // Exhaustive destructuring, so that no field is forgotten.
        let Self {
            config: own_config,
            ends: own_ends,
            state,
            snd,
            rcv,
            control,
            paced,
            rtt,
            push,
            quick,
            search,
            timers,
            facts,
            owed,
            marks,
            ready,
            totals,
            rack,
            tail,
            usage,
            undo,
            backoffs,
            probes,
            answered,
            handshake_retransmits,
            last_heard,
            last_sent,
            last_data,
            expected,
            challenges,
            challenged_at,
            transitions,
        } = self;
        if !Arc::ptr_eq(own_config, config) {
            own_config.clone_from(config);
        }
        let mss = config.mss.min(ends.path_mss).min(536);
        *state = State::default();
        *snd = SendHalf::new(ends.isn, mss);
        *rcv = Receive::new(SeqNum::new(0), config.receive_buffer, config.window_scale(), config.mss);
        if let Some(first) = config.first_window {
            rcv.offer_at_first(first);
        }
        *control = Controller::provisional(config.congestion, u32::from(mss));
        if config.initial_window != InitialWindow::Standard {
            control.begin_with(config.initial_window);
        }
        (*rtt, *quick, *push) =
            (RttEstimator::starting(config.timeout_at_first()), QuickAck::default(), Push::default());
        (*paced, *search, *undo, *tail) = (None, None, None, None);
        (*timers, *marks, *ready) = (Timers::default(), ecn::EcnMarks::default(), Readiness::default());
        (*facts, *owed) = (Bools { nodelay: config.nodelay, ..Bools::default() }, DueSegments::default());
        (*totals, *transitions) = (Totals::default(), Transitions::default());
        (*rack, *usage) = (Rack::new(ends.isn), Usage::new(ends.isn, now));
        (*backoffs, *probes, *answered, *handshake_retransmits, *challenges) = (0, 0, 0, 0, 0);
        (*last_heard, *last_sent, *last_data, *challenged_at) = (now, now, now, now);
        *expected = ends.isn;
        *own_ends = ends;
    }

    /// Gives all memory back. The connection is over, and the application will not read the remaining data.
    #[inline]
    pub fn retire(&mut self, pool: &mut Pool) {
        self.snd.clear(pool);
        self.rcv.clear(pool);
        self.paced = None;
        self.search = None;
        self.undo = None;
        self.push.clear();
    }

    // --- polls ---------------------------------------------------------------------------------

    /// When to call [`Connection::handle_timeout`].
    #[inline]
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// What changed for the application since the last call.
    #[inline]
    pub fn poll_readiness(&mut self) -> Readiness {
        core::mem::take(&mut self.ready)
    }

    /// Whether [`Connection::poll_readiness`] would return a change.
    #[inline]
    #[must_use]
    pub fn has_readiness(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next transition not yet returned, oldest first.
    pub fn poll_transition(&mut self) -> Option<Transition> {
        self.transitions.take()
    }

    /// Drops the transitions not yet returned.
    #[inline]
    pub fn forget_transitions(&mut self) {
        self.transitions.forget();
    }

    /// Whether [`Connection::poll_transmit`] certainly has nothing to send and nothing to do. If false, call
    /// it: it may still have nothing.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        if !self.owed.is_empty() || self.rcv.need != crate::receive::AckNeed::None || !self.snd.is_quiet() {
            return false;
        }
        match &self.state {
            State::SynSent(syn) => {
                !syn.pending && syn.follow_end(self.snd.iss).is_none_or(|end| !self.snd.nxt.lt(end))
            }
            State::SynRcvd(syn) => !syn.pending,
            _ => true,
        }
    }

    // --- the one way to change the state ---------------------------------------------------------

    #[inline]
    fn record(&mut self, transition: Transition) {
        self.transitions.note(transition);
    }

    /// Makes the transition for `trigger`. A trigger that the table does not allow changes nothing.
    #[inline]
    fn transit(&mut self, trigger: Trigger) {
        self.transit_from(self.state.name(), trigger);
    }

    /// Like [`Connection::transit`], for a connection that was in `from` without storing that state.
    #[inline]
    fn transit_from(&mut self, from: StateName, trigger: Trigger) {
        let Some(to) = transition::next(from, trigger) else {
            debug_assert!(false, "no transition from {from} on {trigger}");
            return;
        };
        self.state = match to {
            StateName::Established => State::Established(state::Established),
            StateName::FinWait1 => State::FinWait1(state::FinWait1),
            StateName::FinWait2 => State::FinWait2(state::FinWait2),
            StateName::CloseWait => State::CloseWait(state::CloseWait),
            StateName::Closing => State::Closing(state::Closing),
            StateName::LastAck => State::LastAck(state::LastAck),
            StateName::TimeWait => {
                self.end();
                State::TimeWait(state::TimeWait)
            }
            // The constructors and `handshake` enter LISTEN, SYN-SENT and SYN-RECEIVED.
            _ => {
                self.end();
                State::Closed(state::Closed { reason: CloseReason::Finished })
            }
        };
        self.record(Transition { from, trigger, to });
    }

    /// Does what TIME-WAIT and CLOSED have in common.
    #[inline]
    fn end(&mut self) {
        self.timers.stop_all();
        self.ready |= Readiness::CLOSED;
    }

    /// Ends the connection for `reason`; unread data stays readable.
    fn die(&mut self, reason: CloseReason, pool: &mut Pool) {
        let from = self.state.name();
        if from == StateName::Closed {
            return;
        }
        self.state = State::Closed(state::Closed { reason });
        self.record(Transition { from, trigger: Trigger::Abort, to: StateName::Closed });
        self.end();
        self.snd.clear(pool);
        self.rcv.end(pool);
        self.ready |= Readiness::READABLE;
        self.ready |= Readiness::WRITABLE;
    }

    // --- small things that several files need ------------------------------------------------------

    /// Our timestamp for a segment that leaves now, and the echo of the peer's timestamp.
    fn timestamps(&self, now: Instant) -> Timestamps {
        Timestamps { value: self.ts_now(now), echo: self.rcv.ts_recent }
    }

    /// The millisecond clock plus this connection's offset.
    //= rfc7323 4.1-a 5.4-a 5.4-b 5.4-c
    fn ts_now(&self, now: Instant) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.ends.ts_offset)
    }

    /// The configured initial window for segments of the size in use, bytes.
    fn initial_window(&self) -> u32 {
        self.config.initial_window.window(u32::from(self.snd.mss))
    }

    /// The MSS that our SYN announces: what we can receive.
    //= rfc9293 MUST-67
    fn announced_mss(&self) -> u16 {
        let [.., link] = self.ends.probe;
        self.config.mss.min(self.ends.path_mss.max(link))
    }

    //= rfc6298 5-a 5-b
    #[inline]
    fn arm_retransmit(&mut self, now: Instant) {
        self.timers.set(Timer::Retransmit, now.after_nanos(self.timeout_nanos()));
    }

    /// The retransmission timeout, limited to the configured maximum.
    fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout_nanos())
    }

    /// Like [`Connection::timeout`], in nanoseconds.
    #[inline(always)]
    fn timeout_nanos(&self) -> u64 {
        /// Nearly no timeout is longer.
        const USUAL: u64 = INITIAL_RTO.as_nanos() as u64;
        let timeout = self.rtt.rto_nanos();
        if timeout <= USUAL {
            return timeout;
        }
        // The minimum with `timeout` makes the value fit into 64 bits.
        timeout.min((self.config.max_rto.as_nanos().min(u128::from(timeout)) as u64).max(USUAL))
    }

    fn arm_keepalive(&mut self, now: Instant) {
        if let Some(keepalive) = self.config.keepalive {
            self.timers.set(Timer::Keepalive, now + keepalive.idle);
        }
    }
}
