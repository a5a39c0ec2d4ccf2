//! The connections that SYNs open: ordinary ones, and those whose first flight was admitted.

use crate::config::ResponsePolicy;
use crate::env::Env;
use crate::event::{PacketDrop, Trace};
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::slot::{Beginning, Owner, SlotMarks};
use crate::flows::table::Table;
use crate::server::Server;
use crate::server::admission::{Admitted, Handshake};
use crate::server::listeners::ListenerRoom;
use crate::server::syn::Syn;
use crate::server::syn_cookies::decode_ts;
use alloc::vec::Vec;
use firstflight_credential::{Grant, Outcome, PendingPermit, Reason, Replays, Serial};
use firstflight_tcp::ChildPlan;
use firstflight_wire::Instant;
use firstflight_wire::encapsulation::FOLLOWER_BYTES;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::{FastOpen, Options, Segment};

/// Bytes that may be sent for each byte received, before the ACK of a client that has many first flights without an
/// ACK already ([`PendingPermit::is_borrowed`]): as in QUIC (RFC 9000 §8).
const BORROWED_TIMES: u32 = 3;

/// Seconds for which a child answers the client's SYN after the last retransmission of the SYN-ACK. The client
/// retransmits its SYN a few times in this time (RFC 6298 §2: 1, 2, 4, … s).
const LINGER_S: u16 = 60;

/// Like [`LINGER_S`], for a child in UDP that received nothing with the SYN. Its SYN-ACK is retransmitted once. On
/// raw IP such a connection lives longer.
const HALF_OPEN_LINGER_S: u16 = 15;

/// How much a child may send before its client's ACK.
pub(crate) struct Budget {
    /// Bytes received, IP header included.
    received: u32,
    /// The most, whatever vouches for the client.
    most: u32,
    response: ResponsePolicy,
}

impl Budget {
    /// How many bytes may be sent: `times` the bytes that were received, as what vouches for the client allows. With `None`
    /// the congestion window alone limits them.
    pub(crate) fn bytes(&self, times: Option<u32>) -> u32 {
        let received = |times: u32| times.saturating_mul(self.received);
        //= rfc7413 4.2.2-c
        let vouched = times.map_or(u32::MAX, received).min(self.most);
        match self.response {
            ResponsePolicy::Immediately => vouched,
            ResponsePolicy::Times(times) => received(times).min(vouched),
            ResponsePolicy::AfterHandshake => 0,
        }
    }
}

impl Server {
    /// Makes an ordinary child. The data of the SYN, if any, is not accepted.
    ///
    /// The listener's backlog does not limit those that are reset when their handshake is complete: there is at most one
    /// for each first flight that was accepted elsewhere.
    pub(crate) fn adopt(&mut self, flows: &mut Flows, syn: &Syn<'_>, handshake: &Handshake) -> Option<u32> {
        let Handshake { reason, grant, refused, repeat } = *handshake;
        let options = &syn.segment.options;
        if !syn.segment.payload.is_empty() || options.fast_open().is_some() {
            flows.env.journal.counters.first_flights_refused += 1;
        }
        let mut plan = ChildPlan::default();
        self.reply_to(syn, refused, grant.is_some(), &mut plan.options);
        add_grant(&mut flows.env, &mut plan, syn.segment, grant);
        if syn.key.is_carried() {
            plan.retries = crate::encapsulation::SYN_ACK_RETRIES;
            plan.linger_s = HALF_OPEN_LINGER_S;
        }
        let child = self.make_child(flows, syn, &plan, Outcome::Handshake(reason), None);
        self.granted(&mut flows.table, child, syn.listener, grant);
        if unlikely(repeat)
            && let Some(slot) = child.and_then(|child| flows.table.slots.get_mut(child))
        {
            slot.marks.set(SlotMarks::REPEAT);
        }
        child
    }

    /// Makes a child whose first flight was admitted. It is readable and acceptable at once.
    #[inline]
    pub(crate) fn adopt_early(
        &mut self,
        flows: &mut Flows,
        syn: &Syn<'_>,
        admitted: Admitted,
    ) -> Option<u32> {
        let Admitted { grant, permit, certificate, followers } = admitted;
        let (segment, now) = (syn.segment, syn.now);
        self.relieved(&mut flows.env, syn.listener);
        flows.env.journal.counters.first_flights_accepted += 1;
        let below = syn.key.headers_len() as u32;
        let received = below + (20 + segment.options.raw.len() + segment.payload.len()) as u32;
        let response = self.listeners.at(syn.listener).map(|l| l.config.response).unwrap_or_default();
        let most =
            if unlikely(permit.is_borrowed()) { received.saturating_mul(BORROWED_TIMES) } else { u32::MAX };
        let budget = Budget { received, most, response };
        let mut plan = ChildPlan {
            early: true,
            pre_ack_budget: budget.bytes(None),
            overhead: below,
            ..ChildPlan::default()
        };
        match &certificate {
            Some(certificate) => self.plan_certified(&flows.env, syn, certificate, &budget, &mut plan),
            None => self.reply_to(syn, None, grant.is_some(), &mut plan.options),
        }
        if syn.key.is_carried() {
            plan.retries = plan.retries.min(crate::encapsulation::SYN_ACK_RETRIES);
            // Who has not sent the SYN knows more than its client only by guessing: see `contacted`.
            let relayed = certificate.as_ref().is_some_and(|certificate| certificate.returned.is_some());
            plan.follow = if relayed { 0 } else { FOLLOWER_BYTES };
        }
        if plan.retries < ChildPlan::default().retries {
            plan.linger_s = LINGER_S;
        }
        add_grant(&mut flows.env, &mut plan, segment, grant);
        let policy = self.listeners.at(syn.listener).and_then(|l| l.config.fast_open.as_ref());
        let once =
            certificate.is_some() || policy.is_some_and(|policy| !matches!(policy.replays, Replays::Allow));
        let child = self.make_child(flows, syn, &plan, Outcome::Accepted, Some(permit));
        if once && let Some(slot) = child.and_then(|child| flows.table.slots.get_mut(child)) {
            slot.marks.set(SlotMarks::ONCE);
        }
        self.granted(&mut flows.table, child, syn.listener, grant);
        if let (Some(child), Some(certificate)) = (child, certificate) {
            self.certified(&mut flows.table, child, &certificate, &budget, plan.pre_ack_budget);
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
        permit: Option<PendingPermit>,
    ) -> Option<u32> {
        let Syn { listener: index, key, hash, segment, above, now } = *syn;
        let listener = self.listeners.at_mut(index)?;
        let hold = plan.early && listener.config.hold_last_ack;
        if !plan.early {
            listener.syn_queue += 1;
        }
        flows.env.journal.counters.passive_opens += 1;
        let ends = flows.env.endpoints(&key, above, now);
        let owner = if plan.early { Owner::AcceptQueue(index) } else { Owner::SynQueue(index) };
        let tcp = self.listeners.at(index).map(|listener| &listener.tcp);
        let child = flows.insert(
            tcp,
            Beginning { ends, key: &key, hash, owner, outcome, now },
            #[inline]
            |slot, pool| {
                slot.conn.open_passive(segment, plan, pool, now);
                slot.permit = permit;
                if hold {
                    slot.marks.set(SlotMarks::HOLD);
                }
            },
        );
        flows.trace_outcome(child, outcome);
        if plan.early {
            self.enqueue(&mut flows.env, child, index);
        }
        Some(child)
    }

    /// Whether `segment` opens a connection because it acknowledges a SYN cookie.
    pub(crate) fn opens_from_cookie(
        &self,
        table: &Table,
        key: &FlowKey,
        segment: &Segment<'_>,
        now: Instant,
    ) -> bool {
        let hash = table.hasher.hash(key);
        let listener = self.listeners.find(key).and_then(|index| self.listeners.at(index));
        listener.is_some_and(|l| self.cookies.acknowledged(&l.cookies, key, hash, segment, now).is_some())
    }

    /// Handles an ACK for a listener, which may answer a SYN cookie. False if it does not.
    pub(crate) fn handle_cookie_ack(
        &mut self,
        flows: &mut Flows,
        index: u32,
        key: FlowKey,
        hash: u64,
        segment: &Segment<'_>,
        now: Instant,
    ) -> bool {
        let Some(listener) = self.listeners.at_mut(index) else { return false };
        let full = ListenerRoom::of(listener, flows, now).full;
        let Some(mss) = self.cookies.acknowledged(&listener.cookies, &key, hash, segment, now) else {
            return false;
        };
        if full.is_some() {
            flows.env.journal.drop_packet(PacketDrop::AcceptQueueFull);
            return true;
        }
        flows.env.journal.counters.syn_cookies_good += 1;
        let (peer_isn, cookie) = (segment.seq - 1, segment.ack - 1);
        let mut ends = flows.env.endpoints(&key, None, now);
        ends.isn = cookie;
        let mut options = Options::parse(&[], true);
        options.mss = Some(mss);
        if let Some(ts) = segment.options.timestamps {
            let echo = ts.echo.wrapping_sub(ends.ts_offset);
            let (scale, sack) = decode_ts(echo);
            options.timestamps = Some(ts);
            options.window_scale = scale;
            options.sack_permitted = sack;
        }
        flows.env.journal.counters.passive_opens += 1;
        listener.syn_queue += 1;
        let outcome = Outcome::Handshake(Reason::SynCookie);
        let with = Beginning { ends, key: &key, hash, owner: Owner::SynQueue(index), outcome, now };
        let child = flows.insert(Some(&listener.tcp), with, |slot, _| {
            slot.conn.open_from_cookie(peer_isn, &options, now);
        });
        if flows.deliver(child, segment, now) {
            flows.table.note(child);
        }
        true
    }

    /// Moves a child whose handshake is complete from the SYN queue to the accept queue.
    pub(crate) fn promote(&mut self, flows: &mut Flows, child: u32, index: u32) {
        self.listeners.left_syn_queue(index);
        if let Some(slot) = flows.table.slots.get_mut(child) {
            slot.owner = Owner::AcceptQueue(index);
        }
        self.enqueue(&mut flows.env, child, index);
    }

    #[inline]
    fn enqueue(&mut self, env: &mut Env, child: u32, index: u32) {
        if let Some(listener) = self.listeners.at_mut(index) {
            listener.accept_queue.push_back(child);
            if !listener.announced {
                listener.announced = true;
                env.journal.announce_listener(index);
            }
        }
    }

    /// Keeps the serial of a one-time cookie until the client's ACK makes the cookie valid.
    #[inline]
    pub(crate) fn granted(
        &mut self,
        table: &mut Table,
        child: Option<u32>,
        listener: u32,
        grant: Option<Grant>,
    ) {
        if let Some((child, serial)) = child.zip(grant.and_then(|grant| grant.serial)) {
            self.keep_serial(table, child, listener, serial);
        }
    }

    #[inline(never)]
    fn keep_serial(&mut self, table: &mut Table, child: u32, listener: u32, serial: Serial) {
        let listener = self.listeners.id(listener);
        if let Some(slot) = table.slots.get_mut(child) {
            slot.marks.set(SlotMarks::GRANTED);
            self.grants.insert(child, (listener, serial));
        }
    }

    /// Makes the one-time cookie of `child` valid, because its client has acknowledged.
    pub(crate) fn activate(&mut self, child: u32) {
        let Some((listener, serial)) = self.grants.remove(&child) else { return };
        let policy = self.listeners.get(listener).and_then(|l| l.config.fast_open.as_ref());
        let job = policy.and_then(|policy| policy.verifier.as_ref()).and_then(|v| v.activate(serial));
        self.tell(job);
    }

    /// A limit sends first flights to the ordinary handshake from now on (RFC 7413 §5.1).
    pub(crate) fn limited(&mut self, env: &mut Env, index: u32, reason: Reason) {
        if !matches!(reason, Reason::PendingLimit | Reason::ServerLimit) {
            return;
        }
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if !core::mem::replace(&mut listener.limited, true) {
            env.journal.counters.fast_open_suspended += 1;
            env.journal.trace(Trace::Suspended(self.listeners.id(index), reason));
        }
    }

    /// A first flight is accepted again.
    #[inline]
    fn relieved(&mut self, env: &mut Env, index: u32) {
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if unlikely(core::mem::replace(&mut listener.limited, false)) {
            env.journal.trace(Trace::Resumed(self.listeners.id(index)));
        }
    }
}

/// Adds a granted cookie to the SYN-ACK's options, in the form in which the client asked for it. A retransmitted SYN-ACK
/// does not carry the cookie (RFC 7413 §4.2.2).
#[inline(always)]
fn add_grant(env: &mut Env, plan: &mut ChildPlan, segment: &Segment<'_>, grant: Option<Grant>) {
    let lasting = plan.options.len();
    if let Some(grant) = grant
        && let Some(asked) = segment.options.fast_open()
        && plan.options.append_fast_open(&FastOpen::Cookie(asked.form(), grant.cookie))
    {
        env.journal.counters.cookies_granted += 1;
        plan.once = (plan.options.len() - lasting) as u8;
    }
}

/// Delivers to a new child the segments that followed its SYN while the SYN waited.
fn take_followers(flows: &mut Flows, child: u32, followers: &[Vec<u8>], now: Instant) {
    for segment in followers.iter().filter_map(|bytes| Segment::parse(bytes).ok()) {
        if flows.deliver(child, &segment, now) {
            flows.table.note(child);
        }
    }
}
