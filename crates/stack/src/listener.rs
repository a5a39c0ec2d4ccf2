//! How a SYN for a listener is handled.

use crate::config::{ListenConfig, ResponsePolicy};
use crate::event::{Drop, Trace};
use crate::flow::FlowKey;
use crate::follower::copy_of;
use crate::isn::Initial;
use crate::lifecycle::Settings;
use crate::parked::Parked;
use crate::relayed::Returned;
use crate::slot::{Beginning, Owner};
use crate::stack::Stack;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hint::cold_path;
use core::time::Duration;
use firstflight_credential::asap::{AsapPolicy, BeforeAck, Candidate, Refused};
use firstflight_credential::{
    Admission, FirstFlight, Flow, Grant, JobRequest, JobResult, Offered, Outcome, Place, Policies, Presented,
    Reason, Work, admit, spoil,
};
use firstflight_tcp::{ChildPlan, Endpoints};
use firstflight_wire::asap::{Hint, Offer, Reply, Status};
use firstflight_wire::carrier::FOLLOWER_BYTES;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::{FastOpen, Flags, Segment};
use firstflight_wire::{Instant, SeqNum};

/// No first flight is accepted while SYN cookies are sent, nor for this long after the last one. A stateless cookie
/// and a later child have different ISNs, so the client's ACK of the cookie would reset its own executed request.
pub(crate) const COOKIE_TAIL: Duration = Duration::from_secs(10);

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

/// A SYN for a listener.
pub(crate) struct Syn<'a> {
    /// The listener (index).
    pub listener: u32,
    pub key: FlowKey,
    /// The hash of its flow.
    pub hash: u64,
    pub segment: &'a Segment<'a>,
    /// It takes the place of a TIME-WAIT: our ISN must be above this.
    pub above: Option<SeqNum>,
    pub now: Instant,
}

/// What belongs to an admitted first flight.
struct Admitted {
    grant: Option<Grant>,
    place: Place,
    /// It came with a certificate.
    candidate: Option<Box<Candidate>>,
    /// A front delivered it.
    relayed: Option<Returned>,
}

impl Stack {
    /// Handles a SYN that came from its client. Its first flight is admitted only here or by the verdict for a
    /// parked SYN.
    pub(crate) fn handle_syn(&mut self, syn: &Syn<'_>) {
        let Syn { listener: index, key, segment, now, .. } = *syn;
        if segment.flags.contains(Flags::FIN) {
            return self.journal.drop_packet(Drop::BadFlags);
        }
        let Some(listener) = self.listeners.at(index) else { return };
        let pressed = listener.syn_queue >= listener.config.syn_backlog;
        let tail = listener.last_cookie.is_some_and(|t| now - t < COOKIE_TAIL);
        if pressed {
            self.spoil(syn);
            return self.answer_with_cookie(index, key, segment, now);
        }
        if listener.accept_queue.len() >= listener.config.backlog {
            self.spoil(syn);
            return self.journal.drop_packet(Drop::AcceptQueueFull);
        }
        if self.slots.len() >= self.config.limits.connections {
            self.spoil(syn);
            return self.journal.drop_packet(Drop::TooManyConnections);
        }
        if let Some((job, isn)) = self.parked.find(&key) {
            let offered = segment.options.fast_open().is_some() || segment.options.asap().is_some();
            // A SYN from a front may be dropped silently, the client's own SYN may not.
            let stays = isn == segment.seq && !self.parked.is_relayed(job);
            if stays && (offered || !segment.payload.is_empty()) {
                if !self.parked.is_copy(job, segment) {
                    // This SYN is dropped, and its data comes by the ordinary handshake, so no copy may be
                    // accepted.
                    self.spoil(syn);
                }
                return self.journal.drop_packet(Drop::AlreadyParked);
            }
            // A plain SYN overtakes the verdict: ordinary handshake, the job's answer is ignored.
            self.overtaken(job, now);
        }
        let fast_open = segment.options.fast_open();
        let mut first = first_flight(&key, segment, fast_open.as_ref());
        first.syn_cookie_pressure = tail;
        let clock = self.clock_at(now);
        let Some(listener) = self.listeners.at(index) else { return };
        match admit(policies(&listener.config), &first, &mut self.asap, &clock) {
            Admission::Accept { grant, place } => {
                self.adopt_early(syn, Admitted { grant, place, candidate: None, relayed: None });
            }
            Admission::Fallback { reason, grant, tell, refused } => {
                self.tell(tell);
                self.limited(index, reason);
                if refused.is_some() {
                    self.spoil_beside(syn);
                }
                if refused.is_some_and(|refused| refused.is_forged()) {
                    return self.answer_forged(syn, refused);
                }
                self.adopt(syn, reason, grant, refused);
            }
            Admission::Pending { work, grant, place } => self.park(syn, work, grant, place),
        }
    }

    /// Invalidates the SYN's first flight, which is not accepted, so that no copy of it is accepted later.
    pub(crate) fn spoil(&mut self, syn: &Syn<'_>) {
        if syn.segment.payload.is_empty() {
            return;
        }
        let clock = self.clock_at(syn.now);
        let Some(listener) = self.listeners.at(syn.listener) else { return };
        let fast_open = syn.segment.options.fast_open();
        let first = first_flight(&syn.key, syn.segment, fast_open.as_ref());
        let job = spoil(policies(&listener.config), &first, &clock);
        self.tell(job);
    }

    /// This listener has refused a credential block. Invalidates the block for the other listeners of the port that
    /// admit more: a copy may go to another address, or come when this listener is gone.
    #[cold]
    fn spoil_beside(&mut self, syn: &Syn<'_>) {
        let clock = self.clock_at(syn.now);
        let Some(listener) = self.listeners.at(syn.listener) else { return };
        let own = listener.config.asap.as_ref();
        let first = first_flight(&syn.key, syn.segment, None);
        let more = |policy: &&AsapPolicy| own.is_none_or(|own| policy.admits_more_than(own));
        let policies = self.listeners.policies(syn.key.local_port()).filter(more);
        let jobs: Vec<_> = policies
            .filter_map(|policy| spoil(Policies { fast_open: None, asap: Some(policy) }, &first, &clock))
            .collect();
        for job in jobs {
            self.tell(Some(job));
        }
    }

    /// A parked SYN's data comes another way. The verdict no longer matters, and no copy may be accepted.
    pub(crate) fn overtaken(&mut self, job: crate::event::JobId, now: Instant) {
        if let Some(parked) = self.parked.take(job) {
            self.spoil_parked(&parked, now);
            if parked.relayed.is_some() {
                self.dropped_relayed();
            }
        }
    }

    /// Invalidates the first flight of a SYN that is no longer parked. A job for a store goes out anyway and
    /// rejects copies, but a verification does not.
    pub(crate) fn spoil_parked(&mut self, parked: &Parked, now: Instant) {
        let Ok(segment) = Segment::parse(&parked.segment) else { return };
        if parked.relayed.is_some() {
            // The client also sends the same request directly.
            return;
        }
        if self.listeners.get(parked.listener).is_some() && segment.options.asap().is_some() {
            let listener = parked.listener.index;
            let hash = self.hasher.hash(&parked.key);
            self.spoil(&Syn { listener, key: parked.key, hash, segment: &segment, above: None, now });
        }
    }

    pub(crate) fn tell(&mut self, job: Option<JobRequest>) {
        if let Some(job) = job {
            self.parked.tell(job);
        }
    }

    fn park(&mut self, syn: &Syn<'_>, work: Work, grant: Option<Grant>, place: Place) {
        let room = copy_of(syn.segment).filter(|bytes| self.parked.has_room(bytes.len()));
        let Some(bytes) = room else {
            drop(place);
            let refused = match work {
                Work::Ask(job) => {
                    self.tell(Some(job));
                    None
                }
                Work::Verify(candidate) => {
                    self.spoil(syn);
                    Some(Refused::new(Status::Overloaded, candidate.tag()))
                }
                _ => None,
            };
            return self.adopt(syn, Reason::Overloaded, grant, refused);
        };
        let listener = self.listeners.id(syn.listener);
        let Syn { key, segment, above, now, .. } = *syn;
        self.parked.park(key, segment.seq, above, bytes, listener, grant, place, work, now);
    }

    /// Handles the verdict for a parked first flight.
    pub(crate) fn resume(&mut self, parked: Parked, result: JobResult, now: Instant) {
        let status = match result {
            JobResult::Refuse(Reason::Replay) => Status::Replayed,
            JobResult::Refuse(Reason::GuardFloor) => Status::GuardFloor,
            JobResult::Refuse(Reason::ClockSkew) => Status::OutsideWindow,
            _ => Status::Overloaded,
        };
        let refused = parked.refused(status).filter(|_| result != JobResult::Accept);
        self.resume_with(parked, result, refused, now);
    }

    /// Like [`Self::resume`]. `refused` is what the SYN-ACK says about a credential block.
    pub(crate) fn resume_with(
        &mut self,
        parked: Parked,
        result: JobResult,
        refused: Option<Refused>,
        now: Instant,
    ) {
        let listener = self.listeners.get(parked.listener);
        let taken = result == JobResult::Accept && listener.is_some_and(|l| self.takes_relayed(l, now));
        if parked.relayed.is_some() && !taken {
            return self.dropped_relayed();
        }
        let Ok(segment) = Segment::parse(&parked.segment) else { return };
        let Some(listener) = listener else { return };
        if self.find(&parked.key).is_some() {
            return;
        }
        // The queues may have filled while the SYN waited.
        let pressed = listener.syn_queue >= listener.config.syn_backlog;
        if listener.accept_queue.len() >= listener.config.backlog {
            return self.journal.drop_packet(Drop::AcceptQueueFull);
        }
        if self.slots.len() >= self.config.limits.connections {
            return self.journal.drop_packet(Drop::TooManyConnections);
        }
        let tail = listener.last_cookie.is_some_and(|t| now - t < COOKIE_TAIL);
        let (result, refused) = if tail {
            (JobResult::Refuse(Reason::SynCookie), refused.or(parked.refused(Status::Overloaded)))
        } else {
            (result, refused)
        };
        let (listener, key, above, grant) = (parked.listener.index, parked.key, parked.above, parked.grant);
        let hash = self.hasher.hash(&key);
        let syn = &Syn { listener, key, hash, segment: &segment, above, now };
        match result {
            JobResult::Accept => {
                let (place, candidate) = (parked.place, parked.candidate);
                self.adopt_early(syn, Admitted { grant, place, candidate, relayed: parked.relayed });
                self.take_followers(&key, &parked.followers, now);
            }
            JobResult::Refuse(_) if pressed => self.answer_with_cookie(listener, key, &segment, now),
            JobResult::Refuse(_) if refused.is_some_and(|refused| refused.is_forged()) => {
                drop(parked.place);
                self.answer_forged(syn, refused);
            }
            JobResult::Refuse(reason) => {
                drop(parked.place);
                self.adopt(syn, reason, grant, refused);
            }
        }
    }

    /// Handles a segment that may follow a SYN of no connection. It is kept if the SYN waits; otherwise it is
    /// dropped silently. Its sender has no answer yet, so a RST would end its connection. The sender retransmits
    /// the segment.
    pub(crate) fn handle_follower(&mut self, key: &FlowKey, segment: &Segment<'_>) {
        let waits = self.parked.find(key).map(|(job, _)| job);
        let kept = waits
            .is_some_and(|job| copy_of(segment).is_some_and(|bytes| self.parked.follow(job, segment, bytes)));
        if !kept {
            self.journal.drop_packet(Drop::Follower);
        }
    }

    /// Delivers to a new child the segments that followed its SYN while the SYN waited.
    fn take_followers(&mut self, key: &FlowKey, followers: &[Vec<u8>], now: Instant) {
        let Some(child) = self.find(key) else { return };
        for segment in followers.iter().filter_map(|bytes| Segment::parse(bytes).ok()) {
            self.deliver(child, &segment, now);
        }
    }

    /// Makes an ordinary child. The data of the SYN, if any, is not accepted.
    fn adopt(&mut self, syn: &Syn<'_>, reason: Reason, grant: Option<Grant>, refused: Option<Refused>) {
        let options = &syn.segment.options;
        if !syn.segment.payload.is_empty() || options.fast_open().is_some() {
            self.journal.counters.first_flights_refused += 1;
        }
        let reply = self.reply_to(syn, refused, grant.is_some());
        let mut plan = ChildPlan::default();
        self.add_options(&mut plan, syn.segment, reply, grant);
        if syn.key.is_carried() {
            plan.retries = crate::carrier::SYN_ACK_RETRIES;
            plan.linger_s = HALF_OPEN_LINGER_S;
        }
        let child = self.make_child(syn, &plan, Outcome::Handshake(reason), None);
        self.granted(child, syn.listener, grant);
    }

    /// Makes a child whose first flight was admitted. It is readable and acceptable at once.
    #[inline(always)]
    fn adopt_early(&mut self, syn: &Syn<'_>, admitted: Admitted) {
        let Admitted { grant, place, candidate, relayed } = admitted;
        let segment = syn.segment;
        self.relieved(syn.listener);
        self.journal.counters.first_flights_accepted += 1;
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
                let hint = relayed.as_ref().map_or(Hint::None, |returned| self.proof(returned, syn));
                Some(Reply { status: Status::Accepted, tag: candidate.tag(), hint })
            }
            None => self.reply_to(syn, None, grant.is_some()),
        };
        if syn.key.is_carried() {
            plan.retries = plan.retries.min(crate::carrier::SYN_ACK_RETRIES);
            plan.follow = FOLLOWER_BYTES;
        }
        if plan.retries < ChildPlan::default().retries {
            plan.linger_s = LINGER_S;
        }
        self.add_options(&mut plan, segment, reply, grant);
        let child = self.make_child(syn, &plan, Outcome::Accepted, Some(place));
        self.granted(child, syn.listener, grant);
        if let (Some(child), Some(candidate)) = (child, candidate) {
            let more = direct.map_or(0, |(_, before_ack)| budget(Some(before_ack)));
            self.certified(child, &candidate, more.saturating_sub(plan.pre_ack_budget));
        }
    }

    /// A limit sends first flights to the ordinary handshake from now on (RFC 7413 §5.1).
    fn limited(&mut self, index: u32, reason: Reason) {
        if !matches!(reason, Reason::PendingLimit | Reason::ServerLimit) {
            return;
        }
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if !core::mem::replace(&mut listener.limited, true) {
            self.journal.counters.fast_open_suspended += 1;
            self.journal.trace(Trace::Suspended(self.listeners.id(index), reason));
        }
    }

    /// A first flight is accepted again.
    #[inline(always)]
    fn relieved(&mut self, index: u32) {
        let Some(listener) = self.listeners.at_mut(index) else { return };
        if unlikely(core::mem::replace(&mut listener.limited, false)) {
            self.journal.trace(Trace::Resumed(self.listeners.id(index)));
        }
    }

    fn make_child(
        &mut self,
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
        self.journal.counters.passive_opens += 1;
        let ends = self.endpoints(&key, above, now);
        let owner = if plan.early { Owner::AcceptQueue(index) } else { Owner::SynQueue(index) };
        let child = self.insert(
            Settings::Listener(index),
            Beginning { ends, key: &key, hash, owner, outcome, now },
            #[inline(always)]
            |slot, pool| {
                slot.conn.open_passive(segment, plan, pool, now);
                slot.place = place;
                slot.hold = hold;
            },
        );
        self.trace_outcome(child, outcome);
        if plan.early {
            self.enqueue(child, index);
        }
        self.take_news(child, now);
        Some(child)
    }

    #[inline(always)]
    pub(crate) fn endpoints(&self, key: &FlowKey, above: Option<SeqNum>, now: Instant) -> Endpoints {
        let Initial { isn, ts_offset } = self.isn.initial(key, now);
        Endpoints {
            local_port: key.local_port(),
            remote_port: key.remote_port(),
            isn: above.map_or(isn, |a| if isn.gt(a) { isn } else { a + 1 }),
            ts_offset,
            default_mss: key.default_mss(),
            path_mss: self.path_mss(key),
            probe: self.probe_sizes(key),
        }
    }

    /// Moves a child whose handshake is complete from the SYN queue to the accept queue.
    pub(crate) fn promote(&mut self, child: u32, index: u32) {
        self.listeners.left_syn_queue(index);
        if let Some(slot) = self.slots.get_mut(child) {
            slot.owner = Owner::AcceptQueue(index);
        }
        self.enqueue(child, index);
    }

    #[inline(always)]
    fn enqueue(&mut self, child: u32, index: u32) {
        if let Some(listener) = self.listeners.at_mut(index) {
            listener.accept_queue.push_back(child);
            if !listener.announced {
                listener.announced = true;
                self.journal.announce_listener(index);
            }
        }
    }
}

pub(crate) fn policies(config: &ListenConfig) -> Policies<'_> {
    Policies { fast_open: config.fast_open.as_ref(), asap: config.asap.as_ref() }
}

/// The ASAP option of a SYN.
#[inline(always)]
pub(crate) fn offered(key: &FlowKey, segment: &Segment<'_>) -> Offered {
    let Some(option) = segment.options.asap() else { return Offered::Nothing };
    cold_path();
    Offered::read(Some(option), key.carrier())
}

/// A SYN in the form in which `admit` takes it.
#[inline(always)]
pub(crate) fn first_flight<'a>(
    key: &FlowKey,
    segment: &'a Segment<'_>,
    fast_open: Option<&'a FastOpen>,
) -> FirstFlight<'a> {
    FirstFlight {
        flow: Flow { client: key.remote_ip(), server: key.local_ip() },
        ports: (segment.src_port, segment.dst_port),
        isn: segment.seq,
        presented: fast_open.map_or(Presented::None, Presented::FastOpen),
        offered: offered(key, segment),
        payload: segment.payload,
        relayed: false,
        accept_queue_full: false,
        syn_cookie_pressure: false,
    }
}
