//! What becomes of a SYN for a listener. One function sees everything that decides it, and returns everything that can
//! happen; another one carries that out. A first flight that is refused is invalidated only here, so that no copy of it
//! is accepted later.

use crate::event::Drop;
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::server::Server;
use crate::server::listeners::Room;
use crate::server::parking_lot::Parked;
use crate::server::syn::{Admitted, Syn, is_first_syn};
use alloc::vec::Vec;
use firstflight_credential::asap::{AsapPolicy, Refused};
use firstflight_credential::{
    Accepted, Admission, Grant, JobResult, Place, Policies, Question, Reason, Refusal, Unreported, Work,
    admit, spoil,
};
use firstflight_tcp::TimeWait;
use firstflight_wire::Instant;
use firstflight_wire::asap::Status;
use firstflight_wire::tcp::{Flags, OptionBytes, Segment};

/// What can become of a SYN.
pub(crate) enum Verdict {
    /// Nothing answers it.
    Dropped(Drop),
    /// It waits for a verdict already.
    Waits,
    /// A SYN cookie answers it, because too many handshakes are under way.
    Cookie,
    /// A SYN cookie answers it, because its credential block is forged.
    Forged(Option<Refused>),
    /// It opens a connection by the ordinary handshake. Its data, if any, is not accepted.
    Handshake { reason: Reason, grant: Option<Grant>, refused: Option<Refused> },
    /// It opens a connection that is reset when the handshake is complete: its first flight was accepted before, perhaps
    /// at another server. A client that got no answer would otherwise hand over the data again. A plain SYN would let it
    /// do so if this one were dropped.
    Repeat { grant: Option<Grant> },
    /// Its first flight is accepted.
    Accepted(Admitted),
    /// Its one-time cookie is used up and not active yet. It goes round the stacks of the group, and is judged again.
    GoesRound,
    /// It waits for a verdict.
    Parked { work: Work, grant: Option<Grant>, place: Place },
}

impl Server {
    /// Handles a SYN that came from its client. Returns the connection that it opens, whose news are to be taken.
    pub(crate) fn handle_syn(&mut self, flows: &mut Flows, syn: &Syn<'_>) -> Option<u32> {
        let verdict = self.admit(flows, syn);
        self.carry_out(flows, syn, verdict)
    }

    /// Decides about a SYN that came from its client.
    #[inline]
    pub(crate) fn admit(&mut self, flows: &mut Flows, syn: &Syn<'_>) -> Verdict {
        let Syn { listener: index, key, segment, now, .. } = *syn;
        if segment.flags.contains(Flags::FIN) {
            return Verdict::Dropped(Drop::BadFlags);
        }
        let Some(listener) = self.listeners.at(index) else { return Verdict::Dropped(Drop::NoConnection) };
        let room = Room::of(listener, flows, now);
        if room.pressed {
            // A cookie does not say that the request may run elsewhere.
            let told = self.spoil(flows, syn, false);
            return if told { Verdict::Cookie } else { Verdict::Dropped(Drop::Unreported) };
        }
        if let Some(reason) = room.full {
            self.spoil(flows, syn, false);
            return Verdict::Dropped(reason);
        }
        if let Some((job, isn)) = self.parked.find(&key) {
            let offered = segment.options.fast_open().is_some() || segment.options.asap().is_some();
            // A SYN from a front may be dropped silently, the client's own SYN may not.
            let stays = isn == segment.seq && !self.parked.is_relayed(job);
            if stays && (offered || !segment.payload.is_empty()) {
                if !self.parked.is_copy(job, segment) {
                    // This SYN is dropped, and its data comes by the ordinary handshake.
                    self.spoil(flows, syn, false);
                }
                return Verdict::Waits;
            }
            if stays && self.parked.is_directly_behind(job, now) {
                // Its client did not know whether the path would pass the first one, which is here: see
                // `SynPlan::hedged`. The verdict answers both.
                return Verdict::Waits;
            }
            // A plain SYN overtakes the verdict: ordinary handshake, the job's answer is ignored.
            if !self.overtaken(flows, job, now) {
                return Verdict::Dropped(Drop::Unreported);
            }
        }
        let fast_open = segment.options.fast_open();
        let mut first = syn.first_flight(fast_open.as_ref());
        first.syn_cookie_pressure = room.tail;
        first.claim = flows.env.shard.claim(now);
        let clock = flows.env.clock_at(now);
        let Some(listener) = self.listeners.at(index) else { return Verdict::Dropped(Drop::NoConnection) };
        match admit(listener.config.policies(), &first, &mut self.asap.shard, &clock) {
            Admission::Accept(Accepted { grant, place }) => {
                Verdict::Accepted(Admitted::directly(grant, place))
            }
            Admission::Ask(Question { work, grant, place }) => Verdict::Parked { work, grant, place },
            // In the place of a TIME-WAIT it would lose what it knows of that.
            Admission::Refuse(Refusal { reason: Reason::NotActive, .. })
                if syn.above.is_none() && flows.env.shard.begins_round(segment.payload.len(), now) =>
            {
                Verdict::GoesRound
            }
            Admission::Refuse(Refusal { reason, grant, tell, refused }) => {
                let told = self.tell(tell);
                self.limited(flows, index, reason);
                let refused = match refused {
                    Some(refused) if !self.spoil_beside(flows, syn) || !told => Some(refused.unreported()),
                    refused => refused,
                };
                if refused.is_some_and(|refused| refused.is_unreported()) {
                    flows.env.journal.counters.blocks_unreported += 1;
                }
                if refused.is_some_and(|refused| refused.is_forged()) {
                    return Verdict::Forged(refused);
                }
                Verdict::Handshake { reason, grant, refused }
            }
        }
    }

    /// Does what was decided about a SYN. Returns the connection that it opens, whose news are to be taken.
    #[inline(always)]
    pub(crate) fn carry_out(&mut self, flows: &mut Flows, syn: &Syn<'_>, verdict: Verdict) -> Option<u32> {
        match verdict {
            Verdict::Accepted(admitted) => return self.adopt_early(flows, syn, admitted),
            Verdict::Handshake { reason, grant, refused } => {
                return self.adopt(flows, syn, reason, grant, refused);
            }
            Verdict::Repeat { grant } => return self.adopt_repeat(flows, syn, grant),
            Verdict::Parked { work, grant, place } => return self.park(flows, syn, work, grant, place),
            Verdict::Dropped(reason) => flows.env.journal.drop_packet(reason),
            Verdict::GoesRound => {}
            Verdict::Waits => flows.env.journal.drop_packet(Drop::AlreadyParked),
            Verdict::Cookie => self.answer_with_cookie(flows, syn),
            Verdict::Forged(refused) => self.answer_forged(flows, syn, refused),
        }
        None
    }

    /// Answers without keeping state, because too many handshakes are under way.
    fn answer_with_cookie(&mut self, flows: &mut Flows, syn: &Syn<'_>) {
        if let Some(listener) = self.listeners.at_mut(syn.listener) {
            listener.cookies.press(syn.now);
        }
        // A pending verdict would cause a second answer to the same SYN.
        if let Some((job, _)) = self.parked.find(&syn.key)
            && !self.overtaken(flows, job, syn.now)
        {
            return flows.env.journal.drop_packet(Drop::Unreported);
        }
        if let Some(listener) = self.listeners.at(syn.listener) {
            self.cookies.send(&mut flows.env, &listener.tcp, syn, &OptionBytes::EMPTY);
        }
    }

    /// Invalidates the SYN's first flight, which is not accepted, so that no copy of it is accepted later. `checked`: the
    /// signatures of its credential block are right. False if the store of a farm cannot be told, so that another member
    /// may accept a copy.
    pub(crate) fn spoil(&mut self, flows: &mut Flows, syn: &Syn<'_>, checked: bool) -> bool {
        if syn.segment.payload.is_empty() {
            return true;
        }
        let clock = flows.env.clock_at(syn.now);
        let Some(listener) = self.listeners.at(syn.listener) else { return true };
        let fast_open = syn.segment.options.fast_open();
        let first = syn.first_flight(fast_open.as_ref());
        let told = match spoil(listener.config.policies(), &first, &clock, checked) {
            Ok(job) => self.tell(job),
            Err(Unreported) => false,
        };
        flows.env.journal.counters.blocks_unreported += u64::from(!told);
        told
    }

    /// This listener has refused a credential block. Invalidates the block for the other listeners of the port that
    /// admit more: a copy may go to another address, or come when this listener is gone. False as in [`Self::spoil`].
    #[cold]
    pub(crate) fn spoil_beside(&mut self, flows: &mut Flows, syn: &Syn<'_>) -> bool {
        let clock = flows.env.clock_at(syn.now);
        let Some(listener) = self.listeners.at(syn.listener) else { return true };
        let own = listener.config.asap.as_ref();
        let first = syn.first_flight(None);
        let more = |policy: &&AsapPolicy| own.is_none_or(|own| policy.admits_more_than(own));
        let policies = self.listeners.policies(syn.key.local_port()).filter(more);
        let jobs: Vec<_> = policies
            .map(|policy| spoil(Policies { fast_open: None, asap: Some(policy) }, &first, &clock, false))
            .collect();
        let mut told = true;
        for job in jobs {
            told &= job.is_ok_and(|job| self.tell(job));
        }
        told
    }

    /// Whether this SYN may open a connection although it is not newer than the old one: the client has answered
    /// our ACK of an earlier SYN with a RST. A SYN with data may not. It may be a copy of the SYN that opened the
    /// old connection, and a client sends the RST for such a copy too.
    #[cold]
    pub(crate) fn may_reopen(
        &mut self,
        key: &FlowKey,
        hash: u64,
        record: &TimeWait,
        segment: &Segment<'_>,
    ) -> bool {
        is_first_syn(segment)
            && segment.payload.is_empty()
            && self.challenged.is_reset(hash, record.rcv_nxt)
            && self.listeners.find(key).is_some()
    }

    /// Handles a SYN that meets an existing connection or TIME-WAIT of its four-tuple and opens nothing. Its first
    /// flight is invalidated, because the client may open a connection another way.
    pub(crate) fn not_opened(
        &mut self,
        flows: &mut Flows,
        key: &FlowKey,
        segment: &Segment<'_>,
        now: Instant,
    ) {
        if segment.flags.contains(Flags::SYN)
            && !segment.payload.is_empty()
            && let Some(listener) = self.listeners.find(key)
        {
            let hash = flows.table.hasher.hash(key);
            self.spoil(flows, &Syn { listener, key: *key, hash, segment, above: None, now }, false);
        }
    }
}

/// Decides again about a SYN that waited and whose verdict is `result`. The queues may have filled meanwhile.
/// `refused` is what the SYN-ACK says about a credential block.
pub(crate) fn admit_parked(
    room: &Room,
    parked: Parked,
    result: JobResult,
    refused: Option<Refused>,
) -> Verdict {
    // A repeat gets no place among the connections that wait to be accepted, and a SYN cookie would not know of it.
    let repeat = result == JobResult::Repeat;
    if let Some(reason) = room.full.filter(|reason| !repeat || *reason != Drop::AcceptQueueFull) {
        return Verdict::Dropped(reason);
    }
    let (result, refused) = if room.tail && !repeat {
        (JobResult::Refuse(Reason::SynCookie), refused.or(parked.refused(Status::Overloaded)))
    } else {
        (result, refused)
    };
    let Parked { grant, place, candidate, relayed, followers, .. } = parked;
    match result {
        JobResult::Accept => Verdict::Accepted(Admitted { grant, place, candidate, relayed, followers }),
        JobResult::Repeat => Verdict::Repeat { grant },
        // A SYN cookie cannot say that the request ran or may run elsewhere.
        JobResult::Refuse(_) if room.pressed && refused.is_some_and(|r| r.status == Status::Replayed) => {
            Verdict::Dropped(Drop::Unreported)
        }
        JobResult::Refuse(_) if room.pressed => Verdict::Cookie,
        JobResult::Refuse(_) if refused.is_some_and(|refused| refused.is_forged()) => {
            Verdict::Forged(refused)
        }
        JobResult::Refuse(reason) => Verdict::Handshake { reason, grant, refused },
    }
}
