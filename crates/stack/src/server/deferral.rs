//! SYNs that wait for a verdict, and what follows them meanwhile.
//!
//! A first flight longer than one datagram, in UDP, has segments without ACK that follow the SYN at once.
//! They share the fate of their SYN. A child that accepts the SYN's data accepts them,
//! too ([`Connection::handle_segment`]). If the SYN waits, they wait with it. If the SYN is refused or unknown, they are
//! dropped. The client keeps them until they are acknowledged.
//!
//! [`Connection::handle_segment`]: firstflight_tcp::Connection::handle_segment

use crate::env::Env;
use crate::event::{JobId, PacketDrop};
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::server::Server;
use crate::server::admission::{Admitted, DeferredSyn, Handshake, NotAdmitted, SynDecision};
use crate::server::listeners::ListenerRoom;
use crate::server::syn::Syn;
use alloc::vec::Vec;
use core::convert::Infallible;
use firstflight_credential::{Decision, JobRequest, JobResult, Question, Reason, Work};
use firstflight_wire::Instant;
use firstflight_wire::tcp::Segment;

/// What is decided about a deferred first flight.
pub(crate) type DeferredDecision = Decision<(), Handshake, Infallible>;

impl Server {
    /// Keeps a SYN until its question is answered. Returns the connection that it opens if there is no room to wait.
    #[inline(never)]
    pub(crate) fn defer(&mut self, flows: &mut Flows, syn: &Syn<'_>, question: Question) -> Option<u32> {
        if let Some(bytes) = self.deferred.room_for(syn.segment) {
            self.defer_copy(syn, bytes, question);
            return None;
        }
        let Question { work, grant, permit } = question;
        drop(permit);
        let refused = self.not_asked(&mut flows.env, syn, work);
        let handshake = Handshake { reason: Reason::Overloaded, grant, refused, repeat: false };
        self.adopt(flows, syn, &handshake)
    }

    /// Keeps a SYN, whose [copy](crate::server::deferred_syns::DeferredSyns::room_for) is `bytes`, and queues its question.
    pub(crate) fn defer_copy(&mut self, syn: &Syn<'_>, bytes: Vec<u8>, question: Question) -> JobId {
        let listener = self.listeners.id(syn.listener);
        let (id, work) = self.deferred.defer(syn, bytes, listener, question);
        match work {
            Work::Ask(request) => self.deferred.hand_out(id, request),
            work => self.verify(id, work),
        }
        id
    }

    /// Handles the verdict for a deferred first flight.
    pub(crate) fn resume(
        &mut self,
        flows: &mut Flows,
        deferred: DeferredSyn,
        result: JobResult,
        now: Instant,
    ) {
        let decision = match result {
            JobResult::Accept => Decision::Accept(()),
            // The reply says so, and the client decides whether the data may run again.
            JobResult::Repeat if deferred.block.is_some() => {
                Decision::Refuse(deferred.handshake_because(Reason::Replay))
            }
            JobResult::Repeat => {
                let grant = deferred.grant;
                Decision::Refuse(Handshake { reason: Reason::Replay, grant, refused: None, repeat: true })
            }
            JobResult::Refuse(reason) => Decision::Refuse(deferred.handshake_because(reason)),
        };
        self.resume_with(flows, deferred, decision, now);
    }

    /// Does what was decided about a deferred first flight, if there is still room for it.
    pub(crate) fn resume_with(
        &mut self,
        flows: &mut Flows,
        mut deferred: DeferredSyn,
        decision: DeferredDecision,
        now: Instant,
    ) {
        let room =
            self.listeners.get(deferred.listener).map(|listener| ListenerRoom::of(listener, flows, now));
        let taken = matches!(decision, Decision::Accept(()))
            && room.as_ref().is_some_and(ListenerRoom::takes_relayed);
        if deferred.is_relayed() && !taken {
            flows.env.journal.counters.relayed_dropped += 1;
            return;
        }
        let bytes = core::mem::take(&mut deferred.segment);
        let (Some(room), Ok(segment)) = (room, Segment::parse(&bytes)) else { return };
        let DeferredSyn { listener, key, above, .. } = deferred;
        if flows.table.find(&key).is_some() {
            return;
        }
        let hash = flows.table.hasher.hash(&key);
        let syn = &Syn { listener: listener.index, key, hash, segment: &segment, above, now };
        let decision = deferred.judge_again(&room, decision);
        if let Some(child) = self.carry_out(flows, syn, decision) {
            flows.table.note(child);
        }
    }

    /// A deferred SYN's data comes another way. The verdict no longer matters, and no copy may be accepted. False if
    /// the store of a farm cannot be told: then the SYN still waits, and its data must not come another way before the
    /// verdict.
    #[must_use]
    pub(crate) fn overtaken(&mut self, flows: &mut Flows, job: JobId, now: Instant) -> bool {
        // A job for a store goes out anyway and rejects copies, but a verification does not.
        if !self.invalidate_unverified(flows, job, now) {
            return false;
        }
        if self.deferred.take(job).is_some_and(|deferred| deferred.is_relayed()) {
            flows.env.journal.counters.relayed_dropped += 1;
        }
        true
    }

    /// False if the job is lost.
    pub(crate) fn tell(&mut self, job: Option<JobRequest>) -> bool {
        job.is_none_or(|job| self.deferred.tell(job))
    }

    /// Handles a segment that may follow a SYN of no connection. It is kept if the SYN waits; otherwise it is
    /// dropped silently. Its sender has no answer yet, so a RST would end its connection. The sender retransmits
    /// the segment.
    pub(crate) fn handle_follower(&mut self, env: &mut Env, key: &FlowKey, segment: &Segment<'_>) {
        let waits = self.deferred.find(key).map(|(job, _)| job);
        if !waits.is_some_and(|job| self.deferred.follow(job, segment)) {
            env.journal.drop_packet(PacketDrop::Follower);
        }
    }
}

impl DeferredSyn {
    /// The handshake of a SYN whose first flight is refused for `reason`.
    pub(crate) fn handshake_because(&self, reason: Reason) -> Handshake {
        Handshake { reason, grant: self.grant, refused: self.refused_because(reason), repeat: false }
    }

    /// Decides again about a SYN that waited. The queues may have filled meanwhile.
    fn judge_again(self, room: &ListenerRoom, decision: DeferredDecision) -> SynDecision {
        // A repeat gets no permit among the connections that wait to be accepted, and a SYN cookie would not know of
        // it.
        let repeat = matches!(&decision, Decision::Refuse(handshake) if handshake.repeat);
        if let Some(reason) = room.full.filter(|reason| !repeat || *reason != PacketDrop::AcceptQueueFull) {
            return Decision::Refuse(NotAdmitted::Dropped(reason));
        }
        let handshake = match decision {
            Decision::Accept(()) if room.tail => self.handshake_because(Reason::SynCookie),
            Decision::Accept(()) => {
                let Self { grant, permit, block, followers, .. } = self;
                let certificate = block.and_then(|block| block.certificate());
                return Decision::Accept(Admitted { grant, permit, certificate, followers });
            }
            Decision::Refuse(handshake) if room.tail && !repeat => {
                let other = self.handshake_because(Reason::SynCookie);
                Handshake { refused: handshake.refused.or(other.refused), ..other }
            }
            Decision::Refuse(handshake) => handshake,
            Decision::Ask(never) => match never {},
        };
        Decision::Refuse(match handshake {
            handshake if handshake.repeat || !room.pressed => NotAdmitted::because(handshake),
            handshake => NotAdmitted::Cookie(handshake.refused),
        })
    }
}
