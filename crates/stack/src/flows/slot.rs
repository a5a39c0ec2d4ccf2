//! One connection with what the stack knows about it.

use crate::encapsulation::pair::PairId;
use crate::flow::FlowKey;
use crate::journal::Journal;
use crate::output::Outbox;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_credential::store::StoredCookie;
use firstflight_credential::{Identity, NetworkId, Outcome, PendingPermit, Reason};
use firstflight_tcp::{Connection, Endpoints, Pool, Readiness};
use firstflight_wire::Instant;
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::FastOpenForm;

/// A connection may be reset in favour of another one when its peer has accepted nothing for this time.
pub(crate) const STUCK: Duration = Duration::from_secs(5);

/// Who owns a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Owner {
    /// A handshake under way at this listener (index).
    SynQueue(u32),
    /// Waiting to be accepted at this listener (index).
    AcceptQueue(u32),
    Application,
    /// Another connection (index): this one is its second attempt, from another port.
    SecondAttempt(u32),
    /// Nobody: the connection closes in the background.
    #[default]
    Nobody,
}

/// The side that opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OpeningSide {
    /// This stack did, as a client.
    Client,
    /// The peer did.
    #[default]
    Server,
}

/// Whether a connection can be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SlotStage {
    /// It is in the flow table.
    Mapped,
    /// It is over, and out of the table.
    #[default]
    Ended,
}

/// The certificate of a first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ShownCertificate {
    /// It had none.
    #[default]
    Nothing,
    /// It was sent or received with one.
    Certificate,
    /// It was sent with one, and a front delivered it to the server.
    ByFront,
}

/// Whether a connection waits in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum InQueue {
    Yes,
    #[default]
    No,
}

/// A set of what is to be done for a connection, and of what was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SlotMarks(u8);

impl SlotMarks {
    /// It waits for memory, see `stack/shortage.rs`.
    pub(crate) const STARVED: Self = Self(1);
    /// Its outcome is in the counters.
    pub(crate) const COUNTED: Self = Self(1 << 1);
    /// The store has learnt from it about the path.
    pub(crate) const PATH_TOLD: Self = Self(1 << 2);
    /// It was granted a one-time cookie that becomes valid with the client's ACK.
    pub(crate) const GRANTED: Self = Self(1 << 3);
    /// Its first flight was accepted before, here or on another connection, so it is reset when its handshake is complete.
    pub(crate) const REPEAT: Self = Self(1 << 4);
    /// Its end is remembered for 2 MSL, also if the peer closes first.
    pub(crate) const HOLD: Self = Self(1 << 5);
    /// It counts as one of its client's connections, see [`crate::server::clients`].
    pub(crate) const OF_CLIENT: Self = Self(1 << 6);
    /// The data of its accepted first flight must not run twice: its credential says so, or the listener's policy.
    pub(crate) const ONCE: Self = Self(1 << 7);

    /// Whether `mark` is in the set.
    #[inline]
    pub(crate) const fn has(self, mark: Self) -> bool {
        self.0 & mark.0 != 0
    }

    #[inline]
    pub(crate) const fn set(&mut self, mark: Self) {
        self.0 |= mark.0;
    }

    #[inline]
    pub(crate) const fn clear(&mut self, mark: Self) {
        self.0 &= !mark.0;
    }

    /// Clears `mark`. Returns whether it was set.
    #[inline]
    pub(crate) const fn take(&mut self, mark: Self) -> bool {
        let was = self.has(mark);
        if was {
            self.clear(mark);
        }
        was
    }
}

/// A client's pending connect: what its SYN asked for. The credential store learns of it when the answer comes.
#[derive(Debug, Default)]
pub(crate) struct PendingConnect {
    /// The local network that it was sent from.
    pub network: NetworkId,
    /// The option form that was sent.
    pub form: FastOpenForm,
    /// A Fast Open option was sent.
    pub fast_open: bool,
    /// Data may ride without a cookie, so none was requested.
    pub bare: bool,
    /// The cookie that was shown; without one, the SYN requested one.
    pub cookie: Option<StoredCookie>,
    /// Age of that cookie.
    pub cookie_age: Option<Duration>,
    /// The ASAP option that was sent.
    pub asap_option: Option<SentAsapOption>,
    /// The address that the certificate of that option was issued for.
    pub certified_for: Option<IpAddr>,
    /// The data must not be executed twice.
    pub at_most_once: bool,
    /// The store took the round-trip time of the handshake, because it had none.
    pub first_rtt: bool,
    /// Why the SYN carries no data, if the client decided that.
    pub plain: Option<Reason>,
    /// No answer has come yet.
    pub awaited: bool,
    /// When the SYN-ACK came; [`Instant::FAR_FUTURE`] before.
    pub answered_at: Instant,
    /// The fallback sequence: the second attempt, or what may lead to one.
    pub fallback: Fallback,
}

impl PendingConnect {
    /// Whether the SYN carried an ASAP block, not only a probe.
    pub(crate) fn shows_block(&self) -> bool {
        self.asap_option.as_ref().is_some_and(|sent| sent.tag.is_ok())
    }

    /// Whether the SYN carried a credential.
    pub(crate) fn shows_credential(&self) -> bool {
        self.cookie.is_some() || self.shows_block()
    }

    /// Why the server's answer made no sense, if it did not.
    pub(crate) fn distrusts(&self) -> Option<Reason> {
        self.asap_option.as_ref()?.distrusted
    }
}

/// How far a second attempt is that starts although the first one may only be slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Eager {
    /// None: a second attempt follows only a failure.
    #[default]
    No,
    /// The next step is a probe, if the connection is still silent.
    Probes,
    /// The next step is the second attempt, if the connection is still silent.
    Begins,
    /// The second attempt has begun. When its SYN-ACK comes, the answers to the probes decide.
    Begun,
}

/// The fallback sequence of a connect whose data may run twice: what it does when no answer comes.
#[derive(Debug, Default)]
pub(crate) struct Fallback {
    /// The first flight, to send it again from another port; `None` if that is not allowed or not needed.
    pub first: Option<Box<[u8]>>,
    /// When to check again; `None` if there is nothing to wait for.
    pub at: Option<Instant>,
    /// The second attempt, from another port (index).
    pub second_attempt: Option<u32>,
    /// When the connection was last probed.
    pub probed_at: Option<Instant>,
    /// Whether the second attempt starts before this one has failed, because the path is new to first flights.
    pub eager: Eager,
    /// Probes in a row without an answer.
    pub unanswered: u8,
    /// Time between two checks of a silent connection.
    pub wait: Duration,
    /// Bytes that the SYN-ACK acknowledged.
    pub acked: u64,
    /// SYNs of attempts that were given up.
    pub syns: u8,
}

/// What a client's SYN offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentAsapOption {
    /// The server's identity.
    pub identity: Identity,
    /// First two bytes of the request's id; for a probe, why no block was sent.
    pub tag: Result<[u8; 2], Reason>,
    /// Why the server's answer made no sense, if it did not. After that, only an ordinary handshake is accepted
    /// from it.
    pub distrusted: Option<Reason>,
}

/// What a connection begins with, besides its settings.
pub(crate) struct Beginning<'a> {
    /// Ports, initial numbers and segment sizes.
    pub ends: Endpoints,
    /// Its four-tuple.
    pub key: &'a FlowKey,
    /// The four-tuple's hash in the flow table.
    pub hash: u64,
    /// Who owns it.
    pub owner: Owner,
    /// What is known of its first flight.
    pub outcome: Outcome,
    /// When it begins.
    pub now: Instant,
}

/// A connection in the slab. By default there is none, and [`Slot::renew`] puts the first one in.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The connection.
    pub conn: Connection,
    /// Its four-tuple.
    pub key: FlowKey,
    /// The four-tuple's hash in the flow table.
    pub hash: u64,
    /// Which side opened it.
    pub side: OpeningSide,
    /// Whether it is in the flow table.
    pub stage: SlotStage,
    /// Who owns it.
    pub owner: Owner,
    /// What became of its first flight.
    pub outcome: Outcome,
    /// With which certificate its first flight was sent or received.
    pub shown: ShownCertificate,
    /// Whether it waits for its turn to send.
    pub turn: InQueue,
    /// Whether it waits for the application to take its event.
    pub event: InQueue,
    /// What is to be done for it, and what was.
    pub marks: SlotMarks,
    /// The pending connect of a client's connection whose SYN asked for more than an ordinary handshake.
    pub pending: Option<Box<PendingConnect>>,
    /// Its permit among the listener's pending first flights.
    pub permit: Option<PendingPermit>,
    /// What the network last reported about its packets.
    pub network_error: Option<IcmpErrorKind>,
    /// Changes of which the application has not been notified.
    pub ready: Readiness,
    /// The pair of UDP ports that it uses; `None` on raw IP.
    pub pair: Option<PairId>,
}

impl Slot {
    /// Puts a new connection, in CLOSED, in the place of the one before, which is over. It writes the fields in place:
    /// to build a slot and move it here costs a short connection 6 % more instructions.
    #[inline(always)]
    pub(crate) fn renew(&mut self, tcp: &Arc<firstflight_tcp::Config>, with: Beginning<'_>) {
        let Beginning { ends, key, hash, owner, outcome, now } = with;
        // Exhaustive destructuring, so that no field is forgotten.
        let Self {
            conn,
            key: own_key,
            hash: own_hash,
            side,
            stage,
            owner: own_owner,
            outcome: own_outcome,
            shown,
            turn,
            event,
            marks,
            pending,
            permit,
            network_error,
            ready,
            pair,
        } = self;
        conn.renew(tcp, ends, now);
        (*own_key, *own_hash, *own_owner, *own_outcome) = (*key, hash, owner, outcome);
        *pending = None;
        *permit = None;
        *network_error = None;
        *pair = None;
        (*side, *stage, *shown, *marks) =
            (OpeningSide::Server, SlotStage::Mapped, ShownCertificate::Nothing, SlotMarks::default());
        (*turn, *event, *ready) = (InQueue::No, InQueue::No, Readiness::default());
    }

    /// Gives all memory back, because the connection is over.
    #[inline]
    pub(crate) fn retire(&mut self, pool: &mut Pool) {
        self.conn.retire(pool);
        self.pending = None;
        self.permit = None;
    }

    /// Whether this stack opened it.
    #[inline]
    pub(crate) fn is_client(&self) -> bool {
        self.side == OpeningSide::Client
    }

    /// When data last left for a peer that has not acknowledged everything, or `None`.
    pub(crate) fn stuck_since(&self) -> Option<Instant> {
        // Data that was written just now does not count as waiting, even if something was sent long ago.
        let waits = self.conn.waits_for_peer() && self.conn.close_reason().is_none();
        waits.then(|| self.conn.last_data())
    }

    /// When the timer wheel must call it next.
    #[inline]
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = self.conn.poll_timeout();
        match self.pending.as_ref().and_then(|pending| pending.fallback.at) {
            Some(at) => Some(own.map_or(at, |own| own.min(at))),
            None => own,
        }
    }

    /// Adds the connection, which has this id, to the events if the application owns it and was not notified yet.
    #[inline]
    pub(crate) fn announce(&mut self, index: u32, generation: u32, journal: &mut Journal) {
        if self.owner == Owner::Application && self.event == InQueue::No {
            self.event = InQueue::Yes;
            journal.announce(index, generation);
        }
    }

    /// Something happened to the connection at `index`: queues it for transmission. True if it also has pending
    /// notifications; [`crate::Stack`] takes them.
    #[inline(always)]
    #[must_use]
    pub(crate) fn touch(&mut self, index: u32, outbox: &mut Outbox, tracing: bool) -> bool {
        if self.turn == InQueue::No {
            self.turn = InQueue::Yes;
            outbox.queue(index);
        }
        let decided = !self.marks.has(SlotMarks::COUNTED) && self.outcome != Outcome::Undecided;
        decided || self.conn.has_readiness() || tracing
    }
}

#[cfg(test)]
mod tests;
