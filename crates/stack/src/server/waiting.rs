//! SYNs that wait for a verdict, and what follows them meanwhile.

use crate::event::{Drop, JobId, ListenerId};
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::server::Server;
use crate::server::admission::{Room, admit_parked};
use crate::server::follower::copy_of;
use crate::server::parked::Parked;
use crate::server::relayed::dropped_relayed;
use crate::server::syn::Syn;
use firstflight_credential::asap::Refused;
use firstflight_credential::{Grant, JobRequest, JobResult, Place, Reason, Work};
use firstflight_wire::Instant;
use firstflight_wire::asap::Status;
use firstflight_wire::tcp::Segment;

impl Server {
    pub(crate) fn park(
        &mut self,
        flows: &mut Flows,
        syn: &Syn<'_>,
        work: Work,
        grant: Option<Grant>,
        place: Place,
    ) -> Option<u32> {
        let room = copy_of(syn.segment).filter(|bytes| self.parked.has_room(bytes.len()));
        let Some(bytes) = room else {
            drop(place);
            let refused = match work {
                Work::Ask(job) => {
                    self.tell(Some(job.refused()));
                    None
                }
                Work::Verify(candidate) => {
                    let refused = Refused::new(Status::Overloaded, candidate.tag());
                    Some(if self.spoil(flows, syn, false) { refused } else { refused.unreported() })
                }
                _ => None,
            };
            return self.adopt(flows, syn, Reason::Overloaded, grant, refused);
        };
        let listener = self.listeners.id(syn.listener);
        let Syn { key, hash, segment, above, now, .. } = *syn;
        self.parked.park((key, hash), segment.seq, above, bytes, listener, grant, place, work, now);
        None
    }

    /// Handles the verdict for a parked first flight.
    pub(crate) fn resume(&mut self, flows: &mut Flows, parked: Parked, result: JobResult, now: Instant) {
        let result = match result {
            // The reply says so, and the client decides whether the data may run again.
            JobResult::Repeat if parked.tag.is_some() => JobResult::Refuse(Reason::Replay),
            other => other,
        };
        let status = match result {
            JobResult::Refuse(Reason::Replay) => Status::Replayed,
            JobResult::Refuse(Reason::GuardFloor) => Status::GuardFloor,
            JobResult::Refuse(Reason::ClockSkew) => Status::OutsideWindow,
            _ => Status::Overloaded,
        };
        let refused = parked.refused(status).filter(|_| result != JobResult::Accept);
        self.resume_with(flows, parked, result, refused, now);
    }

    /// Like [`Self::resume`]. `refused` is what the SYN-ACK says about a credential block.
    pub(crate) fn resume_with(
        &mut self,
        flows: &mut Flows,
        mut parked: Parked,
        result: JobResult,
        refused: Option<Refused>,
        now: Instant,
    ) {
        let room = self.listeners.get(parked.listener).map(|listener| Room::of(listener, flows, now));
        let taken = result == JobResult::Accept && room.as_ref().is_some_and(Room::takes_relayed);
        if parked.relayed.is_some() && !taken {
            return dropped_relayed(flows);
        }
        let bytes = core::mem::take(&mut parked.segment);
        let (Some(room), Ok(segment)) = (room, Segment::parse(&bytes)) else { return };
        let Parked { listener, key, above, .. } = parked;
        if flows.find(&key).is_some() {
            return;
        }
        let hash = flows.hasher.hash(&key);
        let syn = &Syn { listener: listener.index, key, hash, segment: &segment, above, now };
        let verdict = admit_parked(&room, parked, result, refused);
        if let Some(child) = self.carry_out(flows, syn, verdict) {
            flows.note(child);
        }
    }

    /// A parked SYN's data comes another way. The verdict no longer matters, and no copy may be accepted. False if the
    /// store of a farm cannot be told: then the SYN still waits, and its data must not come another way before the verdict.
    #[must_use]
    pub(crate) fn overtaken(&mut self, flows: &mut Flows, job: JobId, now: Instant) -> bool {
        // A job for a store goes out anyway and rejects copies, but a verification does not.
        if let Some((listener, key, segment)) = self.parked.unverified(job)
            && !self.spoil_segment(flows, listener, key, &segment, false, now)
        {
            return false;
        }
        if self.parked.take(job).is_some_and(|parked| parked.relayed.is_some()) {
            dropped_relayed(flows);
        }
        true
    }

    /// Invalidates the first flight of a SYN that is no longer parked. False as in [`Self::spoil`].
    pub(crate) fn spoil_parked(
        &mut self,
        flows: &mut Flows,
        parked: &Parked,
        checked: bool,
        now: Instant,
    ) -> bool {
        // A front's client also sends the same request directly.
        parked.relayed.is_some()
            || self.spoil_segment(flows, parked.listener, parked.key, &parked.segment, checked, now)
    }

    fn spoil_segment(
        &mut self,
        flows: &mut Flows,
        listener: ListenerId,
        key: FlowKey,
        segment: &[u8],
        checked: bool,
        now: Instant,
    ) -> bool {
        let Ok(segment) = Segment::parse(segment) else { return true };
        if self.listeners.get(listener).is_none() || segment.options.asap().is_none() {
            return true;
        }
        let hash = flows.hasher.hash(&key);
        let syn = Syn { listener: listener.index, key, hash, segment: &segment, above: None, now };
        self.spoil(flows, &syn, checked)
    }

    /// False if the job is lost.
    pub(crate) fn tell(&mut self, job: Option<JobRequest>) -> bool {
        job.is_none_or(|job| self.parked.tell(job))
    }

    /// Handles a segment that may follow a SYN of no connection. It is kept if the SYN waits; otherwise it is
    /// dropped silently. Its sender has no answer yet, so a RST would end its connection. The sender retransmits
    /// the segment.
    pub(crate) fn handle_follower(&mut self, flows: &mut Flows, key: &FlowKey, segment: &Segment<'_>) {
        let waits = self.parked.find(key).map(|(job, _)| job);
        let kept = waits
            .is_some_and(|job| copy_of(segment).is_some_and(|bytes| self.parked.follow(job, segment, bytes)));
        if !kept {
            flows.journal.drop_packet(Drop::Follower);
        }
    }
}
