//! One connection with what the stack knows about it.

use crate::carrier::pair::PairId;
use crate::flow::FlowKey;
use crate::journal::Journal;
use crate::output::Outbox;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_credential::store::StoredCookie;
use firstflight_credential::{Identity, NetworkId, Outcome, Place, Reason};
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
    /// The application.
    Application,
    /// Another connection (index): this one is its second attempt, from another port.
    Twin(u32),
    /// Nobody: the connection closes in the background.
    #[default]
    Nobody,
}

/// A client's pending connect: what its SYN asked for. The credential store learns of it when the answer comes.
#[derive(Debug, Default)]
pub(crate) struct Asked {
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
    /// The offer of a certificate that was sent.
    pub offer: Option<SentOffer>,
    /// The address that the certificate of that offer was issued for.
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
    pub ladder: Ladder,
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
pub(crate) struct Ladder {
    /// The first flight, to send it again from another port; `None` if that is not allowed or not needed.
    pub first: Option<Box<[u8]>>,
    /// When to check again; `None` if there is nothing to wait for.
    pub at: Option<Instant>,
    /// The second attempt, from another port (index).
    pub twin: Option<u32>,
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
pub(crate) struct SentOffer {
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
    /// This stack opened it.
    pub client: bool,
    /// Who owns it.
    pub owner: Owner,
    /// What became of its first flight.
    pub outcome: Outcome,
    /// Its outcome is in the counters.
    pub counted: bool,
    /// The pending connect of a client's connection whose SYN asked for more than an ordinary handshake.
    pub asked: Option<Box<Asked>>,
    /// Its place among the listener's pending first flights.
    pub place: Option<Place>,
    /// It was granted a one-time cookie that becomes valid with the client's ACK.
    pub granted: bool,
    /// Its first flight was sent or received with a certificate.
    pub certificate: bool,
    /// A front delivered its first flight to the server.
    pub relayed: bool,
    /// Its first flight was accepted before, so it is reset when its handshake is complete.
    pub repeat: bool,
    /// Its end is remembered for 2 MSL, also if the peer closes first.
    pub hold: bool,
    /// What the network last reported about its packets.
    pub network_error: Option<IcmpErrorKind>,
    /// Changes of which the application has not been notified.
    pub ready: Readiness,
    /// It is in the event queue.
    pub announced: bool,
    /// It is in the transmit queue.
    pub queued: bool,
    /// It waits for memory, see `stack/shortage.rs`.
    pub starved: bool,
    /// It is in the flow table.
    pub mapped: bool,
    /// The store has learnt from it about the path.
    pub path_told: bool,
    /// Whether it counts as one of its client's connections, see [`crate::server::clients`].
    pub of_client: bool,
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
            client,
            owner: own_owner,
            outcome: own_outcome,
            counted,
            asked,
            place,
            granted,
            certificate,
            relayed,
            repeat,
            hold,
            network_error,
            ready,
            announced,
            queued,
            starved,
            mapped,
            path_told,
            of_client,
            pair,
        } = self;
        conn.renew(tcp, ends, now);
        (*own_key, *own_hash, *own_owner, *own_outcome) = (*key, hash, owner, outcome);
        *asked = None;
        *place = None;
        *network_error = None;
        *pair = None;
        (*client, *counted, *granted, *certificate, *relayed) = (false, false, false, false, false);
        (*hold, *announced, *queued, *starved, *mapped) = (false, false, false, false, true);
        (*ready, *of_client, *path_told, *repeat) = (Readiness::default(), false, false, false);
    }

    /// Gives all memory back, because the connection is over.
    #[inline]
    pub(crate) fn retire(&mut self, pool: &mut Pool) {
        self.conn.retire(pool);
        self.asked = None;
        self.place = None;
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
        match self.asked.as_ref().and_then(|asked| asked.ladder.at) {
            Some(at) => Some(own.map_or(at, |own| own.min(at))),
            None => own,
        }
    }

    /// Adds the connection, which has this id, to the events if the application owns it and was not notified yet.
    #[inline]
    pub(crate) fn announce(&mut self, index: u32, generation: u32, journal: &mut Journal) {
        if self.owner == Owner::Application && !self.announced {
            self.announced = true;
            journal.announce(index, generation);
        }
    }

    /// Something happened to the connection at `index`: queues it for transmission. True if it also has pending
    /// notifications; [`crate::Stack`] takes them.
    #[inline(always)]
    #[must_use]
    pub(crate) fn touch(&mut self, index: u32, outbox: &mut Outbox, tracing: bool) -> bool {
        if !self.queued {
            self.queued = true;
            outbox.queue(index);
        }
        let decided = !self.counted && self.outcome != Outcome::Undecided;
        decided || self.conn.has_readiness() || tracing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstflight_wire::SeqNum;
    use std::format;

    #[test]
    fn nothing_is_left_of_the_connection_before() {
        let tcp = Arc::new(firstflight_tcp::Config::default());
        let ends = || Endpoints {
            local_port: 80,
            remote_port: 40_000,
            isn: SeqNum::new(7),
            ts_offset: 5,
            default_mss: 536,
            path_mss: 1460,
            probe: [0; 3],
        };
        let now = Instant::from_secs(3);
        let key = |n: u8| FlowKey::of([10, 0, 0, n].into(), 80, [10, 0, 1, n].into(), 40_000);
        let (before, after) = (key(1), key(2));
        let begin = |slot: &mut Slot, key, hash, owner, outcome| {
            slot.renew(&tcp, Beginning { ends: ends(), key, hash, owner, outcome, now });
        };
        let mut slot = Slot::default();
        begin(&mut slot, &before, 1, Owner::Twin(3), Outcome::Accepted);
        (slot.client, slot.counted, slot.granted, slot.certificate, slot.relayed) =
            (true, true, true, true, true);
        (slot.hold, slot.announced, slot.queued, slot.starved, slot.mapped) = (true, true, true, true, false);
        (slot.path_told, slot.repeat) = (true, true);
        slot.asked = Some(Box::default());
        slot.network_error = Some(IcmpErrorKind::HostUnreachable);
        (slot.ready, slot.of_client) = (Readiness::CLOSED, true);
        slot.retire(&mut Pool::new(0));
        let mut fresh = Slot::default();
        for slot in [&mut slot, &mut fresh] {
            begin(slot, &after, 2, Owner::Nobody, Outcome::Undecided);
        }
        assert_eq!(format!("{slot:#?}"), format!("{fresh:#?}"));
    }
}
