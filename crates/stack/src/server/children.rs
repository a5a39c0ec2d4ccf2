//! The connections that SYNs open: ordinary ones, and those whose first flight was admitted.

use crate::config::ResponsePolicy;
use crate::event::Trace;
use crate::flows::Flows;
use crate::flows::slot::{Beginning, Owner};
use crate::server::Server;
use crate::server::syn::{Admitted, Syn, offered};
use alloc::vec::Vec;
use firstflight_credential::asap::{BeforeAck, Refused};
use firstflight_credential::{Grant, Offered, Outcome, Place, Reason};
use firstflight_tcp::ChildPlan;
use firstflight_wire::Instant;
use firstflight_wire::asap::{Hint, Offer, Reply, Status};
use firstflight_wire::carrier::FOLLOWER_BYTES;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::Segment;

/// Retransmissions of a SYN-ACK before the client's ACK, if a certificate vouches for the client.
const CERTIFIED_RETRIES: u8 = 2;

/// Like [`CERTIFIED_RETRIES`], if nothing came from the client's address.
const RELAYED_RETRIES: u8 = 1;

/// Bytes that may be sent for each byte received, before the ACK of a client that has many first flights without an
/// ACK already ([`Place::is_borrowed`]): as in QUIC (RFC 9000 §8).
const BORROWED_TIMES: u32 = 3;

/// Seconds for which a child answers the client's SYN after the last retransmission of the SYN-ACK. The client
/// retransmits its SYN a few times in this time (RFC 6298 §2: 1, 2, 4, … s).
const LINGER_S: u16 = 60;

/// Like [`LINGER_S`], for a child in UDP that received nothing with the SYN. Its SYN-ACK is retransmitted once. On
/// raw IP such a connection lives longer.
const HALF_OPEN_LINGER_S: u16 = 15;

impl Server {
    /// Makes an ordinary child. The data of the SYN, if any, is not accepted.
    pub(crate) fn adopt(
        &mut self,
        flows: &mut Flows,
        syn: &Syn<'_>,
        reason: Reason,
        grant: Option<Grant>,
        refused: Option<Refused>,
    ) -> Option<u32> {
        let options = &syn.segment.options;
        if !syn.segment.payload.is_empty() || options.fast_open().is_some() {
            flows.journal.counters.first_flights_refused += 1;
        }
        let reply = self.reply_to(syn, refused, grant.is_some());
        let mut plan = ChildPlan::default();
        self.add_options(flows, &mut plan, syn.segment, reply, grant);
        if syn.key.is_carried() {
            plan.retries = crate::flows::carrier::SYN_ACK_RETRIES;
            plan.linger_s = HALF_OPEN_LINGER_S;
        }
        let child = self.make_child(flows, syn, &plan, Outcome::Handshake(reason), None);
        self.granted(flows, child, syn.listener, grant);
        child
    }

    /// Makes an ordinary child that is reset when its handshake is complete. The listener's backlog does not limit them:
    /// there is at most one for each first flight that was accepted elsewhere.
    #[cold]
    pub(crate) fn adopt_repeat(
        &mut self,
        flows: &mut Flows,
        syn: &Syn<'_>,
        grant: Option<Grant>,
    ) -> Option<u32> {
        let child = self.adopt(flows, syn, Reason::Replay, grant, None);
        if let Some(slot) = child.and_then(|child| flows.slots.get_mut(child)) {
            slot.repeat = true;
        }
        child
    }

    /// Makes a child whose first flight was admitted. It is readable and acceptable at once.
    #[inline(always)]
    pub(crate) fn adopt_early(
        &mut self,
        flows: &mut Flows,
        syn: &Syn<'_>,
        admitted: Admitted,
    ) -> Option<u32> {
        let Admitted { grant, place, candidate, relayed, followers } = admitted;
        let (segment, now) = (syn.segment, syn.now);
        self.relieved(flows, syn.listener);
        flows.journal.counters.first_flights_accepted += 1;
        let below = syn.key.headers_len() as u32;
        let received = below + (20 + segment.options.raw.len() + segment.payload.len()) as u32;
        let response = self.listeners.at(syn.listener).map(|l| l.config.response).unwrap_or_default();
        let times = |k: u32| k.saturating_mul(received);
        let most = if unlikely(place.is_borrowed()) { times(BORROWED_TIMES) } else { u32::MAX };
        let budget = |before_ack: Option<BeforeAck>| {
            let vouched = match before_ack {
                Some(BeforeAck::Times(k)) => times(k),
                //= rfc7413 4.2.2-c
                Some(BeforeAck::InitialWindow) | None => u32::MAX,
            };
            let vouched = vouched.min(most);
            match response {
                ResponsePolicy::Immediately => vouched,
                ResponsePolicy::Times(k) => times(k).min(vouched),
                ResponsePolicy::AfterHandshake => 0,
            }
        };
        let direct = candidate.as_ref().and_then(|candidate| candidate.direct_copy());
        let mut plan = ChildPlan {
            early: true,
            pre_ack_budget: budget(candidate.as_ref().map(|candidate| candidate.before_ack())),
            overhead: below,
            ..ChildPlan::default()
        };
        let reply = match &candidate {
            Some(candidate) => {
                if let Offered::Offer(Offer::Block { len, .. }, _) = offered(&syn.key, segment) {
                    plan.skip = u32::from(len);
                }
                plan.retries = if relayed.is_some() { RELAYED_RETRIES } else { CERTIFIED_RETRIES };
                let hint = relayed.as_ref().map_or(Hint::None, |returned| {
                    returned.proof(flows.endpoints(&syn.key, syn.above, syn.now).isn)
                });
                Some(Reply { status: Status::Accepted, tag: candidate.tag(), hint })
            }
            None => self.reply_to(syn, None, grant.is_some()),
        };
        if syn.key.is_carried() {
            plan.retries = plan.retries.min(crate::flows::carrier::SYN_ACK_RETRIES);
            // Who has not sent the SYN knows more than its client only by guessing: see `contacted`.
            plan.follow = if relayed.is_some() { 0 } else { FOLLOWER_BYTES };
        }
        if plan.retries < ChildPlan::default().retries {
            plan.linger_s = LINGER_S;
        }
        self.add_options(flows, &mut plan, segment, reply, grant);
        let child = self.make_child(flows, syn, &plan, Outcome::Accepted, Some(place));
        self.granted(flows, child, syn.listener, grant);
        if let (Some(child), Some(candidate)) = (child, candidate) {
            let more = direct.map_or(0, |(_, before_ack)| budget(Some(before_ack)));
            self.certified(flows, child, &candidate, more.saturating_sub(plan.pre_ack_budget));
        }
        if let (Some(child), false) = (child, followers.is_empty()) {
            take_followers(flows, child, &followers, now);
        }
        child
    }

    fn make_child(
        &mut self,
        flows: &mut Flows,
        syn: &Syn<'_>,
        plan: &ChildPlan,
        outcome: Outcome,
        place: Option<Place>,
    ) -> Option<u32> {
        let Syn { listener: index, key, hash, segment, above, now } = *syn;
        let listener = self.listeners.at_mut(index)?;
        let hold = plan.early && listener.config.hold_last_ack;
        if !plan.early {
            listener.syn_queue += 1;
        }
        flows.journal.counters.passive_opens += 1;
        let ends = flows.endpoints(&key, above, now);
        let owner = if plan.early { Owner::AcceptQueue(index) } else { Owner::SynQueue(index) };
        let tcp = self.listeners.at(index).map(|listener| &listener.tcp);
        let child = flows.insert(
            tcp,
            Beginning { ends, key: &key, hash, owner, outcome, now },
            #[inline]
            |slot, pool| {
                slot.conn.open_passive(segment, plan, pool, now);
                slot.place = place;
                slot.hold = hold;
            },
        );
        flows.trace_outcome(child, outcome);
        if plan.early {
            self.enqueue(flows, child, index);
        }
        Some(child)
    }

    /// Moves a child whose handshake is complete from the SYN queue to the accept queue.
    pub(crate) fn promote(&mut self, flows: &mut Flows, child: u32, index: u32) {
        self.listeners.left_syn_queue(index);
        if let Some(slot) = flows.slots.get_mut(child) {
            slot.owner = Owner::AcceptQueue(index);
        }
        self.enqueue(flows, child, index);
    }

    #[inline]
    fn enqueue(&mut self, flows: &mut Flows, child: u32, index: u32) {
        if let Some(listener) = self.listeners.at_mut(index) {
            listener.accept_queue.push_back(child);
            if !listener.announced {
                listener.announced = true;
                flows.journal.announce_listener(index);
            }
        }
    }

    /// A limit sends first flights to the ordinary handshake from now on (RFC 7413 §5.1).
    pub(crate) fn limited(&mut self, flows: &mut Flows, index: u32, reason: Reason) {
        if !matches!(reason, Reason::PendingLimit | Reason::ServerLimit) {
            return;
        }
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if !core::mem::replace(&mut listener.limited, true) {
            flows.journal.counters.fast_open_suspended += 1;
            flows.journal.trace(Trace::Suspended(self.listeners.id(index), reason));
        }
    }

    /// A first flight is accepted again.
    #[inline]
    fn relieved(&mut self, flows: &mut Flows, index: u32) {
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if unlikely(core::mem::replace(&mut listener.limited, false)) {
            flows.journal.trace(Trace::Resumed(self.listeners.id(index)));
        }
    }
}

/// Delivers to a new child the segments that followed its SYN while the SYN waited.
#[cold]
fn take_followers(flows: &mut Flows, child: u32, followers: &[Vec<u8>], now: Instant) {
    for segment in followers.iter().filter_map(|bytes| Segment::parse(bytes).ok()) {
        if flows.deliver(child, &segment, now) {
            flows.note(child);
        }
    }
}
