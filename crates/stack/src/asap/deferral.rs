//! SYNs with a credential block that wait: for their signatures, and then perhaps for a store.

use crate::asap::state::Returned;
use crate::env::Env;
use crate::event::{JobId, ListenerId};
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::server::Server;
use crate::server::admission::{DeferredSyn, Handshake};
use crate::server::deferred_syns::DeferredSyns;
use crate::server::syn::Syn;
use alloc::boxed::Box;
use firstflight_credential::asap::{Candidate, Refused, reason};
use firstflight_credential::{JobRequest, Reason, Work};
use firstflight_wire::Instant;
use firstflight_wire::asap::{AsapOption, Status};
use firstflight_wire::tcp::Segment;

impl DeferredSyn {
    /// Whether a front delivered it.
    pub(crate) fn is_relayed(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.returned.is_some())
    }

    /// Whether the signatures of its block are right.
    pub(crate) fn is_verified(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.candidate.is_some())
    }

    /// What the SYN-ACK says about the SYN's credential block, if it has one, when the first flight is refused for this
    /// reason.
    #[must_use]
    pub(crate) fn refused_because(&self, reason: Reason) -> Option<Refused> {
        let status = match reason {
            Reason::Replay => Status::Replayed,
            Reason::GuardFloor => Status::GuardFloor,
            Reason::ClockSkew => Status::OutsideWindow,
            _ => Status::Overloaded,
        };
        self.block.as_ref().map(|block| Refused::new(status, block.tag))
    }
}

impl DeferredSyns {
    /// The signatures of this SYN are right: queues the question to a store whether the request was seen before.
    pub(super) fn ask(&mut self, id: JobId, candidate: Box<Candidate>, request: JobRequest) {
        if !self.entries.lives(id.index, id.generation) {
            return;
        }
        if let Some(deferred) = self.entries.get_mut(id.index) {
            if let Some(block) = &mut deferred.block {
                block.candidate = Some(candidate);
            }
            self.hand_out(id, request);
        }
    }

    /// Notes that a front delivered a waiting SYN.
    pub(super) fn mark_relayed(&mut self, id: JobId, returned: Returned) {
        if let Some(block) = self.entries.get_mut(id.index).and_then(|deferred| deferred.block.as_mut()) {
            block.returned = Some(returned);
        }
    }

    /// Whether a front delivered this SYN.
    #[must_use]
    pub(crate) fn is_relayed(&self, id: JobId) -> bool {
        self.entries.get(id.index).is_some_and(DeferredSyn::is_relayed)
    }

    /// Whether `syn` shows the same credential as the waiting SYN. Then the verdict for the waiting SYN uses the
    /// credential up.
    #[must_use]
    pub(crate) fn is_copy(&self, job: JobId, syn: &Segment<'_>) -> bool {
        let deferred =
            self.entries.get(job.index).and_then(|deferred| Segment::parse(&deferred.segment).ok());
        let option = |segment: &Segment<'_>| segment.options.asap().map(AsapOption::parse);
        let most = match option(syn) {
            // Data behind the block that was changed on the path does not make it another credential.
            Some(Some(AsapOption::Block { len, .. })) => usize::from(len),
            _ => usize::MAX,
        };
        deferred.is_some_and(|deferred| {
            let [one, two] =
                [deferred.payload, syn.payload].map(|payload| payload.get(..most).unwrap_or(payload));
            one == two
                && option(&deferred) == option(syn)
                && deferred.options.fast_open() == syn.options.fast_open()
        })
    }

    /// A [copy](Self::is_copy) of the waiting SYN is dropped.
    pub(crate) fn meet(&mut self, job: JobId, syn: &Segment<'_>) {
        if let Some(deferred) = self.entries.get_mut(job.index) {
            let same = Segment::parse(&deferred.segment).is_ok_and(|first| first.payload == syn.payload);
            deferred.met_another |= !same;
        }
    }
}

impl Server {
    /// Queues the verification of a waiting SYN's signatures. If the kind of work is unknown, nobody answers, and the
    /// SYN's deadline decides.
    pub(crate) fn verify(&mut self, id: JobId, work: Work) {
        let Work::Verify(candidate) = work else { return };
        let queue = &mut self.asap.verifications;
        if queue.len() >= self.deferred.most_jobs() {
            let entries = &self.deferred.entries;
            queue.retain(|(id, _)| entries.lives(id.index, id.generation));
        }
        queue.push_back((id, candidate));
    }

    /// The next verification of a SYN that still waits.
    pub(super) fn poll_verification(&mut self) -> Option<(JobId, Box<Candidate>)> {
        loop {
            let (id, candidate) = self.asap.verifications.pop_front()?;
            if self.deferred.entries.lives(id.index, id.generation) {
                return Some((id, candidate));
            }
        }
    }

    /// There is no room for a SYN about which `work` was to be asked: its credential is used up. Returns what the SYN-ACK
    /// says about its block.
    pub(crate) fn not_asked(&mut self, env: &mut Env, syn: &Syn<'_>, work: Work) -> Option<Refused> {
        match work {
            Work::Ask(job) => {
                self.tell(Some(job.refused()));
                None
            }
            Work::Verify(candidate) => {
                let refused = Refused::new(Status::Overloaded, candidate.tag());
                Some(if self.invalidate(env, syn, false) { refused } else { refused.unreported() })
            }
            _ => None,
        }
    }

    /// The handshake of a deferred SYN whose certificate does not stand any more, though a store accepts the request.
    pub(crate) fn fallen(&self, env: &Env, deferred: &DeferredSyn, now: Instant) -> Option<Handshake> {
        let candidate = deferred.block.as_ref()?.candidate.as_ref()?;
        let refused = candidate.stands(&self.asap.shard, &env.clock_at(now)).err()?;
        let (reason, grant) = (reason(refused.status), deferred.grant);
        Some(Handshake { reason, grant, refused: Some(refused), repeat: false })
    }

    /// The handshake of a SYN that waited too long. Its first flight is invalidated.
    pub(crate) fn expired(&mut self, flows: &mut Flows, deferred: &DeferredSyn, now: Instant) -> Handshake {
        let handshake = deferred.handshake_because(Reason::DeferredTooLong);
        // If the store was asked, it knows of the request in any case.
        let refused = match handshake.refused {
            Some(refused) if !deferred.is_verified() => {
                Some(self.refuse_deferred(flows, deferred, refused, false, now))
            }
            refused => refused,
        };
        Handshake { refused, ..handshake }
    }

    /// What the SYN-ACK says when the block of a SYN is refused that is no longer deferred. Its first flight is invalidated.
    pub(super) fn refuse_deferred(
        &mut self,
        flows: &mut Flows,
        deferred: &DeferredSyn,
        refused: Refused,
        checked: bool,
        now: Instant,
    ) -> Refused {
        let (listener, key) = (deferred.listener, deferred.key);
        // A front's client also sends the same request directly.
        if deferred.is_relayed() {
            return refused;
        }
        let seen = self.remembers_segment(flows, listener, key, &deferred.segment, now);
        refused.knowing(seen, self.invalidate_segment(flows, listener, key, &deferred.segment, checked, now))
    }

    /// Whether the listener's guard remembers the request of a SYN whose signatures are being verified.
    pub(crate) fn remembers_deferred(&self, flows: &Flows, job: JobId, now: Instant) -> bool {
        let deferred =
            self.deferred.get(job).filter(|deferred| !deferred.is_verified() && !deferred.is_relayed());
        deferred.is_some_and(|deferred| {
            self.remembers_segment(flows, deferred.listener, deferred.key, &deferred.segment, now)
        })
    }

    /// Invalidates the first flight of a SYN that its client sent and whose signatures are being verified. False as in
    /// [`Self::invalidate`]; true for any other SYN.
    pub(crate) fn invalidate_unverified(&mut self, flows: &mut Flows, job: JobId, now: Instant) -> bool {
        let Some(deferred) = self.deferred.get(job).filter(|deferred| deferred.block.is_some()) else {
            return true;
        };
        if deferred.is_verified() || deferred.is_relayed() {
            return true;
        }
        let (listener, key, segment) = (deferred.listener, deferred.key, deferred.segment.clone());
        self.invalidate_segment(flows, listener, key, &segment, false, now)
    }

    fn remembers_segment(
        &self,
        flows: &Flows,
        listener: ListenerId,
        key: FlowKey,
        segment: &[u8],
        now: Instant,
    ) -> bool {
        let Ok(segment) = Segment::parse(segment) else { return false };
        let hash = flows.table.hasher.hash(&key);
        let syn = Syn { listener: listener.index, key, hash, segment: &segment, above: None, now };
        self.listeners.get(listener).is_some() && self.remembers(&syn)
    }

    fn invalidate_segment(
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
        let hash = flows.table.hasher.hash(&key);
        let syn = Syn { listener: listener.index, key, hash, segment: &segment, above: None, now };
        self.invalidate(&mut flows.env, &syn, checked)
    }
}
