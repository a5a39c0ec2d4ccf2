//! What becomes of a SYN for a listener. One function sees everything that decides it, and returns everything that can
//! happen; another one carries that out. A first flight that is refused is invalidated here or in `admit`, so that no copy of it
//! is accepted later.

use crate::asap::state::{Certificate, DeferredBlock};
use crate::env::Env;
use crate::event::{ListenerId, PacketDrop};
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::server::Server;
use crate::server::listeners::ListenerRoom;
use crate::server::syn::{Syn, is_first_syn};
use alloc::boxed::Box;
use alloc::vec::Vec;
use firstflight_credential::asap::Refused;
use firstflight_credential::{
    Accepted, Decision, Grant, PendingPermit, Question, Reason, Refusal, Unreported, Work, admit, invalidate,
};
use firstflight_tcp::TimeWait;
use firstflight_wire::tcp::{Flags, OptionBytes, Segment};
use firstflight_wire::{Instant, SeqNum};

/// What becomes of a SYN.
pub(crate) type SynDecision = Decision<Admitted, NotAdmitted, Question>;

/// What belongs to an admitted first flight.
pub(crate) struct Admitted {
    pub grant: Option<Grant>,
    pub permit: PendingPermit,
    /// It came with a certificate.
    pub certificate: Option<Box<Certificate>>,
    /// Segments that followed the SYN while it waited.
    pub followers: Vec<Vec<u8>>,
}

/// What becomes of a SYN whose first flight is not accepted.
pub(crate) enum NotAdmitted {
    /// Nothing answers it.
    Dropped(PacketDrop),
    /// A SYN cookie answers it, because too many handshakes are under way. It carries what is said about a credential block.
    Cookie(Option<Refused>),
    /// A SYN cookie answers it, because its credential block is forged.
    Forged(Handshake),
    /// It opens a connection. Its data, if any, is not accepted.
    Handshake(Handshake),
    /// Its one-time cookie is used up and not active yet. It goes round the stacks of the group, and is judged again.
    GoesRound,
}

/// An ordinary handshake.
pub(crate) struct Handshake {
    /// Why the first flight is not accepted.
    pub reason: Reason,
    pub grant: Option<Grant>,
    /// What the SYN-ACK says about a credential block.
    pub refused: Option<Refused>,
    /// The connection is reset when the handshake is complete: its first flight was accepted before, perhaps at another
    /// server. A client that got no answer would otherwise hand over the data again. A plain SYN would let it do so if
    /// this one were dropped.
    pub repeat: bool,
}

/// A SYN about which another party is asked.
#[derive(Debug)]
pub(crate) struct DeferredSyn {
    /// Its four-tuple, and the hash of it.
    pub key: FlowKey,
    pub hash: u64,
    /// Its sequence number.
    pub isn: SeqNum,
    /// Set if the SYN takes the place of a TIME-WAIT: our ISN must be above this.
    pub above: Option<SeqNum>,
    /// The IP packet's payload: the whole TCP segment.
    pub segment: Vec<u8>,
    /// The segments that followed the SYN, in the order of arrival.
    pub followers: Vec<Vec<u8>>,
    /// The listener that the SYN is for. By the time of the verdict, another listener may have its index.
    pub listener: ListenerId,
    /// The cookie for its SYN-ACK, whatever the verdict.
    pub grant: Option<Grant>,
    /// Its permit among the pending first flights.
    pub permit: PendingPermit,
    /// Set if it came with a certificate.
    pub block: Option<DeferredBlock>,
    /// Another SYN with the same credential and other data was dropped because this one waits.
    pub met_another: bool,
    /// When it has waited too long.
    pub deadline: Instant,
}

impl DeferredSyn {
    /// A SYN, whose copy is `segment`, and what is to be asked about it.
    pub(crate) fn new(
        syn: &Syn<'_>,
        segment: Vec<u8>,
        listener: ListenerId,
        question: Question,
        deadline: Instant,
    ) -> (Self, Work) {
        let Syn { key, hash, above, .. } = *syn;
        let Question { work, grant, permit } = question;
        let deferred = Self {
            key,
            hash,
            isn: syn.segment.seq,
            above,
            segment,
            followers: Vec::new(),
            listener,
            grant,
            permit,
            block: DeferredBlock::of(&work),
            met_another: false,
            deadline,
        };
        (deferred, work)
    }
}

impl Server {
    /// Handles a SYN that came from its client. Returns the connection that it opens, whose notifications are to be
    /// taken.
    pub(crate) fn handle_syn(&mut self, flows: &mut Flows, syn: &Syn<'_>) -> Option<u32> {
        let decision = self.judge(flows, syn);
        self.carry_out(flows, syn, decision)
    }

    /// Decides about a SYN that came from its client.
    #[inline]
    pub(crate) fn judge(&mut self, flows: &mut Flows, syn: &Syn<'_>) -> SynDecision {
        let Syn { listener: index, key, segment, now, .. } = *syn;
        let dropped = |reason| Decision::Refuse(NotAdmitted::Dropped(reason));
        if segment.flags.contains(Flags::FIN) {
            return dropped(PacketDrop::BadFlags);
        }
        let Some(listener) = self.listeners.at(index) else { return dropped(PacketDrop::NoConnection) };
        let room = ListenerRoom::of(listener, flows, now);
        if room.pressed {
            return match self.refuse_under_pressure(&mut flows.env, syn) {
                Ok(refused) => Decision::Refuse(NotAdmitted::Cookie(refused)),
                Err(reason) => dropped(reason),
            };
        }
        if let Some(reason) = room.full {
            self.invalidate(&mut flows.env, syn, false);
            return dropped(reason);
        }
        if let Some((job, isn)) = self.deferred.find(&key) {
            let offered = segment.options.fast_open().is_some() || segment.options.asap().is_some();
            // A SYN from a front may be dropped silently, the client's own SYN may not.
            let stays = isn == segment.seq && !self.deferred.is_relayed(job);
            if stays && (offered || !segment.payload.is_empty()) {
                if self.deferred.is_copy(job, segment) {
                    self.deferred.meet(job, segment);
                } else {
                    // This SYN is dropped, and its data comes by the ordinary handshake.
                    self.invalidate(&mut flows.env, syn, false);
                }
                return dropped(PacketDrop::AlreadyDeferred);
            }
            if stays && self.deferred.is_directly_behind(job, now) {
                // Its client did not know whether the path would pass the first one, which is here: see
                // `SynPlan::hedged`. The verdict answers both.
                return dropped(PacketDrop::AlreadyDeferred);
            }
            // A plain SYN overtakes the verdict: ordinary handshake, the job's answer is ignored.
            if self.remembers_deferred(flows, job, now) || !self.overtaken(flows, job, now) {
                self.invalidate(&mut flows.env, syn, false);
                return dropped(PacketDrop::Unreported);
            }
        }
        let fast_open = segment.options.fast_open();
        let mut first = syn.first_flight(fast_open.as_ref());
        first.syn_cookie_pressure = room.tail;
        first.claim = flows.env.shard.claim(now);
        let clock = flows.env.clock_at(now);
        let Some(listener) = self.listeners.at(index) else { return dropped(PacketDrop::NoConnection) };
        match admit(listener.config.policies(), &first, &mut self.asap.shard, &clock) {
            Decision::Accept(Accepted { grant, permit }) => {
                Decision::Accept(Admitted { grant, permit, certificate: None, followers: Vec::new() })
            }
            Decision::Ask(question) => Decision::Ask(question),
            // In the place of a TIME-WAIT it would lose what it knows of that.
            Decision::Refuse(Refusal { reason: Reason::NotActive, .. })
                if syn.above.is_none()
                    && flows.env.shard.begins_round(syn.hash, segment.payload.len(), now) =>
            {
                Decision::Refuse(NotAdmitted::GoesRound)
            }
            Decision::Refuse(Refusal { reason, grant, tell, refused }) => {
                let told = self.tell(tell);
                self.limited(&mut flows.env, index, reason);
                let refused = refused.map(|refused| {
                    let seen = self.remembers_beside(syn);
                    refused.knowing(seen, self.invalidate_beside(&mut flows.env, syn) && told)
                });
                if refused.is_some_and(|refused| refused.is_unreported()) {
                    flows.env.journal.counters.blocks_unreported += 1;
                }
                Decision::Refuse(NotAdmitted::because(Handshake { reason, grant, refused, repeat: false }))
            }
        }
    }

    /// Does what was decided about a SYN. Returns the connection that it opens, whose notifications are to be taken.
    #[inline]
    pub(crate) fn carry_out(
        &mut self,
        flows: &mut Flows,
        syn: &Syn<'_>,
        decision: SynDecision,
    ) -> Option<u32> {
        match decision {
            Decision::Accept(admitted) => return self.adopt_early(flows, syn, admitted),
            Decision::Ask(question) => return self.defer(flows, syn, question),
            Decision::Refuse(NotAdmitted::Handshake(handshake)) => return self.adopt(flows, syn, &handshake),
            Decision::Refuse(NotAdmitted::Dropped(reason)) => flows.env.journal.drop_packet(reason),
            Decision::Refuse(NotAdmitted::Cookie(refused)) => self.answer_with_cookie(flows, syn, refused),
            Decision::Refuse(NotAdmitted::Forged(handshake)) => {
                self.answer_forged(&mut flows.env, syn, &handshake)
            }
            Decision::Refuse(NotAdmitted::GoesRound) => {}
        }
        None
    }

    /// Answers without keeping state, because too many handshakes are under way.
    #[inline(never)]
    fn answer_with_cookie(&mut self, flows: &mut Flows, syn: &Syn<'_>, refused: Option<Refused>) {
        if let Some(listener) = self.listeners.at_mut(syn.listener) {
            listener.cookies.press(syn.now);
        }
        // A pending verdict would cause a second answer to the same SYN. Only the cookie for a copy of what waits says what became
        // of that.
        if let Some((job, _)) = self.deferred.find(&syn.key)
            && (!self.deferred.is_copy(job, syn.segment) && self.remembers_deferred(flows, job, syn.now)
                || !self.overtaken(flows, job, syn.now))
        {
            return flows.env.journal.drop_packet(PacketDrop::Unreported);
        }
        let mut options = OptionBytes::EMPTY;
        self.reply_to(syn, refused, false, &mut options);
        if let Some(listener) = self.listeners.at(syn.listener) {
            self.cookies.send(&mut flows.env, &listener.tcp, syn, &options);
        }
    }

    /// Invalidates the SYN's first flight, which is not accepted, so that no copy of it is accepted later. `checked`: the
    /// signatures of its credential block are right. False if the store of a farm cannot be told, so that another member
    /// may accept a copy.
    pub(crate) fn invalidate(&mut self, env: &mut Env, syn: &Syn<'_>, checked: bool) -> bool {
        if syn.segment.payload.is_empty() {
            return true;
        }
        let clock = env.clock_at(syn.now);
        let Some(listener) = self.listeners.at(syn.listener) else { return true };
        let fast_open = syn.segment.options.fast_open();
        let first = syn.first_flight(fast_open.as_ref());
        let told = match invalidate(listener.config.policies(), &first, &clock, checked) {
            Ok(job) => self.tell(job),
            Err(Unreported) => false,
        };
        env.journal.counters.blocks_unreported += u64::from(!told);
        told
    }

    /// Whether this SYN may open a connection although it is not newer than the old one: the client has answered
    /// our ACK of an earlier SYN with a RST. A SYN with data may not. It may be a copy of the SYN that opened the
    /// old connection, and a client sends the RST for such a copy too.
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
            self.invalidate(
                &mut flows.env,
                &Syn { listener, key: *key, hash, segment, above: None, now },
                false,
            );
        }
    }
}

impl NotAdmitted {
    /// A SYN cookie, if the credential block is forged, or else the handshake.
    pub(crate) fn because(handshake: Handshake) -> Self {
        if handshake.refused.is_some_and(|refused| refused.is_forged()) {
            Self::Forged(handshake)
        } else {
            Self::Handshake(handshake)
        }
    }
}
