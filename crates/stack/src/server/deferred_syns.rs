//! First flights that wait for a verdict: bounded in number, bytes and time.

use crate::event::{JobId, ListenerId};
use crate::flow::FlowKey;
use crate::flows::slab::Slab;
use crate::owners::Claims;
use crate::server::admission::DeferredSyn;
use crate::server::syn::Syn;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use firstflight_credential::{JobRequest, Question, Work};
use firstflight_wire::encapsulation::{FOLLOWER_BYTES, FOLLOWERS};
use firstflight_wire::tcp::{Header, Segment};
use firstflight_wire::{Instant, SeqNum};

/// Longest TCP header, bytes.
const MOST_HEADER: usize = 60;

/// Time after a SYN within which another one directly follows it: the client did not wait for an answer.
const DIRECTLY: Duration = Duration::from_millis(5);

/// The place where first flights wait for a verdict.
#[derive(Debug)]
pub(crate) struct DeferredSyns {
    pub entries: Slab<DeferredSyn>,
    by_flow: BTreeMap<FlowKey, u32>,
    order: VecDeque<(u32, u32)>,
    jobs: VecDeque<(JobId, JobRequest)>,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
    lasts: Duration,
    claims: Option<Claims>,
}

impl DeferredSyns {
    /// A lot with these bounds.
    #[must_use]
    pub(crate) fn new(max_entries: usize, max_bytes: usize, lasts: Duration) -> Self {
        Self {
            entries: Slab::default(),
            by_flow: BTreeMap::new(),
            order: VecDeque::new(),
            jobs: VecDeque::new(),
            bytes: 0,
            max_entries,
            max_bytes,
            lasts,
            claims: None,
        }
    }

    /// Claims the flows of SYNs while they wait.
    #[must_use]
    pub(crate) fn telling(mut self, claims: Option<Claims>) -> Self {
        self.claims = claims;
        self
    }

    /// Number of SYNs that wait.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A copy of `segment`, if there is room for it and it can be written again.
    #[must_use]
    pub(crate) fn room_for(&self, segment: &Segment<'_>) -> Option<Vec<u8>> {
        let has_room = |bytes: &Vec<u8>| self.bytes + bytes.len() <= self.max_bytes;
        copy_of(segment).filter(|bytes| self.entries.len() < self.max_entries && has_room(bytes))
    }

    /// Defers a SYN, whose [copy](Self::room_for) is `bytes`. Returns what is to be asked about it.
    #[must_use]
    pub(crate) fn defer(
        &mut self,
        syn: &Syn<'_>,
        bytes: Vec<u8>,
        listener: ListenerId,
        question: Question,
    ) -> (JobId, Work) {
        self.bytes += bytes.len();
        if let Some(claims) = &self.claims {
            claims.claim(syn.hash);
        }
        let (deferred, work) = DeferredSyn::new(syn, bytes, listener, question, syn.now + self.lasts);
        let (index, generation) = self.entries.insert(deferred);
        self.by_flow.insert(syn.key, index);
        self.order.push_back((index, generation));
        (JobId { index, generation }, work)
    }

    /// Whether what arrives now directly follows a waiting SYN.
    #[must_use]
    pub(crate) fn is_directly_behind(&self, id: JobId, now: Instant) -> bool {
        self.entries.get(id.index).is_some_and(|deferred| now + self.lasts <= deferred.deadline + DIRECTLY)
    }

    pub(crate) fn most_jobs(&self) -> usize {
        2 * self.max_entries.max(1)
    }

    /// Queues the job of a waiting SYN. If nobody takes jobs, those whose SYN is gone must not pile up.
    pub(crate) fn hand_out(&mut self, id: JobId, request: JobRequest) {
        if self.jobs.len() >= self.most_jobs() {
            let entries = &self.entries;
            self.jobs.retain(|(id, _)| entries.lives(id.index, id.generation));
        }
        self.jobs.push_back((id, request));
    }

    /// A waiting SYN.
    #[must_use]
    pub(crate) fn get(&self, id: JobId) -> Option<&DeferredSyn> {
        let lives = self.entries.lives(id.index, id.generation);
        self.entries.get(id.index).filter(|_| lives)
    }

    /// Queues a job whose answer is not needed. False if nobody takes jobs, so that it is lost: a one-time cookie then
    /// never becomes valid.
    pub(crate) fn tell(&mut self, request: JobRequest) -> bool {
        let has_room = self.jobs.len() < self.most_jobs();
        if has_room {
            self.jobs.push_back((JobId::NOBODY, request));
        }
        has_room
    }

    /// The job of the SYN deferred for `key`, and the SYN's sequence number.
    #[must_use]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<(JobId, SeqNum)> {
        if self.by_flow.is_empty() {
            return None;
        }
        let index = *self.by_flow.get(key)?;
        let isn = self.entries.get(index)?.isn;
        Some((JobId { index, generation: self.entries.generation(index) }, isn))
    }

    /// Keeps `segment`, which follows a waiting SYN, for the connection that the SYN may become. False if the segment is
    /// too far behind the SYN, does not fit, or is there already.
    pub(crate) fn follow(&mut self, job: JobId, segment: &Segment<'_>) -> bool {
        let Some(bytes) = copy_of(segment) else { return false };
        let Some(deferred) = self.entries.get_live(job.index, job.generation) else { return false };
        // A client with many first flights must leave room for the SYNs of others.
        let most = if deferred.permit.is_borrowed() { self.max_bytes / 2 } else { self.max_bytes };
        let room = most.saturating_sub(self.bytes);
        let Ok(syn) = Segment::parse(&deferred.segment) else { return false };
        let end = syn.seq + syn.len();
        let offset = segment.seq.distance_from(end);
        let near = segment.seq.ge(end) && offset.saturating_add(segment.len()) <= FOLLOWER_BYTES;
        // Overlapping segments must not take more memory than this.
        let held: usize = deferred.followers.iter().map(Vec::len).sum();
        let most = (FOLLOWER_BYTES as usize + FOLLOWERS * MOST_HEADER).saturating_sub(held);
        if !near || deferred.followers.len() >= FOLLOWERS || bytes.len() > room.min(most) {
            return false;
        }
        if deferred.followers.contains(&bytes) {
            return false;
        }
        self.bytes += bytes.len();
        deferred.followers.push(bytes);
        true
    }

    /// Takes a SYN out; `None` if the job is no longer valid.
    pub(crate) fn take(&mut self, job: JobId) -> Option<DeferredSyn> {
        if !self.entries.lives(job.index, job.generation) {
            return None;
        }
        let deferred = self.entries.remove(job.index)?;
        self.bytes -= deferred.segment.len() + deferred.followers.iter().map(Vec::len).sum::<usize>();
        self.by_flow.remove(&deferred.key);
        if let Some(claims) = &self.claims {
            claims.release(deferred.hash);
        }
        if deferred.is_relayed() {
            // The store must not be asked: it would use the request up, and the client's direct copy must still be
            // accepted.
            self.jobs.retain(|(id, _)| *id != job);
        }
        Some(deferred)
    }

    /// The next job to hand out.
    pub(crate) fn poll_job(&mut self) -> Option<(JobId, JobRequest)> {
        loop {
            let (id, request) = self.jobs.pop_front()?;
            if id == JobId::NOBODY || self.entries.lives(id.index, id.generation) {
                return Some((id, request));
            }
            // The SYN no longer waits, and its data comes another way. The store must be asked, so that it rejects
            // copies.
            if matches!(request, JobRequest::GuardSet { .. } | JobRequest::Redeem { .. }) {
                return Some((JobId::NOBODY, request.refused()));
            }
        }
    }

    /// Takes out one SYN whose deadline has passed.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Option<DeferredSyn> {
        while let Some(&(index, generation)) = self.order.front() {
            if self.entries.lives(index, generation) {
                if self.entries.get(index)?.deadline > now {
                    return None;
                }
                self.order.pop_front();
                return self.take(JobId { index, generation });
            }
            self.order.pop_front();
        }
        None
    }

    /// When the next SYN's deadline passes.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let (index, generation) = *self.order.front()?;
        if !self.entries.lives(index, generation) {
            return Some(Instant::ZERO);
        }
        self.entries.get(index).map(|p| p.deadline)
    }
}

/// The bytes of `segment`; `None` if its options are not whole words.
fn copy_of(segment: &Segment<'_>) -> Option<Vec<u8>> {
    let mut bytes = alloc::vec![0; 60 + segment.payload.len()];
    let header = Header {
        src_port: segment.src_port,
        dst_port: segment.dst_port,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        urgent: segment.urgent,
    };
    let at = header.emit(segment.options.raw, &mut bytes).ok()?;
    bytes.truncate(at + segment.payload.len());
    bytes.get_mut(at..)?.copy_from_slice(segment.payload);
    Some(bytes)
}

#[cfg(test)]
mod tests;
