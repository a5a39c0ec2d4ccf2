//! The server's decision about a first flight.

use crate::asap::{AsapPolicy, AsapShard, Candidate, Refused};
use crate::flight::{
    Claim, Decision, FirstFlight, Grant, JobRequest, Offered, Presented, Verifier, VerifierVerdict,
};
use crate::outcome::Reason;
use crate::pending::PendingPermit;
use crate::policy::{FastOpenPolicy, Replays};
use crate::replay::{Guarded, Unreported};
use crate::serial::Serial;
use alloc::boxed::Box;
use firstflight_wire::Clock;
use firstflight_wire::asap::{AsapOption, BLOCK_MAGIC, Status};
use firstflight_wire::tcp::FastOpen;

/// Work that must be done before the decision about a SYN.
#[derive(Debug)]
#[non_exhaustive]
pub enum Work {
    /// Ask a store, or the driver that answers for it.
    Ask(JobRequest),
    /// Verify signatures: [`crate::asap::verify`].
    Verify(Box<Candidate>),
}

/// A listener's policies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Policies<'a> {
    /// The policy for cookies. `None` if the application did not ask for Fast Open.
    pub fast_open: Option<&'a FastOpenPolicy>,
    /// The policy for certificates.
    pub asap: Option<&'a AsapPolicy>,
}

impl<'a> From<&'a FastOpenPolicy> for Policies<'a> {
    fn from(policy: &'a FastOpenPolicy) -> Self {
        Self { fast_open: Some(policy), asap: None }
    }
}

/// What to do with a SYN: create the connection at once and deliver the data, do an ordinary handshake and ignore the
/// data, or keep the SYN until the work is done.
pub type Admission = Decision<Accepted, Refusal, Question>;

/// A first flight whose data is delivered at once.
#[derive(Debug)]
pub struct Accepted {
    /// A cookie for the SYN-ACK, in the option form that the client used.
    pub grant: Option<Grant>,
    /// Held until the client's ACK or the connection's end.
    pub permit: PendingPermit,
}

/// A first flight whose data is not accepted.
#[derive(Debug)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// A cookie for the SYN-ACK. Without one the SYN-ACK has no Fast Open option.
    pub grant: Option<Grant>,
    /// A job whose answer nobody waits for: see [`invalidate`].
    pub tell: Option<JobRequest>,
    /// The reply to a credential block, for the SYN-ACK.
    pub refused: Option<Refused>,
}

/// A first flight about which something must be asked first.
#[derive(Debug)]
pub struct Question {
    /// The work.
    pub work: Work,
    /// A cookie for the SYN-ACK, whatever the answer.
    pub grant: Option<Grant>,
    /// Held while the SYN waits, and then as in [`Accepted`].
    pub permit: PendingPermit,
}

/// Decides about a SYN for a listener. `shard` is this shard's memory of certificates.
///
/// The checks are made in this order: SYN-cookie pressure (whatever the SYN carries), the policy, the pending limits, the credential, the client's limit, and last, immediately before
/// the data is accepted, whether it was accepted before. If a limit stops the first flight, no cookie is
/// granted (RFC 7413 §4.2.2: as if Fast Open were switched off). A SYN without credential and data is an
/// ordinary SYN, at a limit too.
#[inline(always)]
pub fn admit(
    policies: Policies<'_>,
    first: &FirstFlight<'_>,
    shard: &mut AsapShard,
    clock: &Clock,
) -> Admission {
    let refuse = |reason| {
        let refused = first.offered.has_block().then(|| {
            let refused = Refused::new(Status::Overloaded, [0; 2]).because(reason);
            unless_seen(policies, first, refused)
        });
        let reason = refused.map_or(reason, |refused| refused.reason);
        let (tell, refused) = invalidated(policies, first, clock, refused);
        Admission::Refuse(Refusal { reason, grant: None, tell, refused })
    };
    if first.syn_cookie_pressure {
        return refuse(Reason::SynCookie);
    }
    if first.offered.has_block() {
        return admit_block(policies, first, shard, clock);
    }
    let unproved = policies.fast_open.filter(|policy| policy.no_cookie && !first.payload.is_empty());
    // The path may have removed the option of a credential block. The application must not get any byte of
    // the block.
    let unproved = unproved.filter(|_| !first.payload.starts_with(&BLOCK_MAGIC.to_be_bytes()));
    if matches!(first.presented, Presented::None) && unproved.is_none() {
        let plain = first.payload.is_empty();
        let asks = matches!(first.offered, Offered::AsapOption(..)) && policies.asap.is_some();
        if plain && !asks {
            // The SYN carries no credential, so there is nothing to invalidate.
            let (grant, tell, refused) = (None, None, None);
            return Admission::Refuse(Refusal { reason: Reason::NotRequested, grant, tell, refused });
        }
        return refuse(Reason::NoCredential);
    }
    //= rfc7413 4.2-b
    let Some(policy) = policies.fast_open else {
        return refuse(Reason::Policy);
    };
    // Check for room before the credential, but reserve the permit only after it: a SYN with a bad credential
    // takes no permit.
    //= rfc7413 4.2-c
    if let Err(reason) = policy.pending.has_room() {
        return refuse(reason);
    }
    let verdict = match unproved {
        Some(policy) => VerifierVerdict::Valid { grant: policy.courtesy(first, clock), once: None },
        None => policy.verify(first, clock),
    };
    let fallback = |reason, grant| Admission::Refuse(Refusal { reason, grant, tell: None, refused: None });
    if let VerifierVerdict::Invalid { reason, grant } = verdict {
        return fallback(reason, grant);
    }
    // Another shard may have taken the last permit in the meantime.
    let permit = match policy.pending.reserve(first.flow.client) {
        Ok(permit) => permit,
        Err(reason) => return refuse(reason),
    };
    if let (VerifierVerdict::Valid { grant: None, once: None }, Replays::Allow) = (&verdict, &policy.replays)
    {
        // Fast path for the common case. It moves no grant and needs no replay check.
        return Admission::Accept(Accepted { grant: None, permit });
    }
    let (grant, decided) = match verdict {
        VerifierVerdict::Valid { grant, once } => (grant, spend(policy, once, first, clock)),
        VerifierVerdict::Pending { job, grant } => (grant, Decision::Ask(job)),
        VerifierVerdict::Invalid { reason, grant } => (grant, Decision::Refuse(reason)),
    };
    match decided {
        Decision::Accept(()) => Admission::Accept(Accepted { grant, permit }),
        Decision::Refuse(reason) => fallback(reason, grant),
        Decision::Ask(job) => Admission::Ask(Question { work: Work::Ask(job), grant, permit }),
    }
}

impl FastOpenPolicy {
    /// Whether it remembers accepted first flights, so that it can refuse copies.
    fn remembers(&self) -> bool {
        self.verifier.is_some() || !matches!(self.replays, Replays::Allow)
    }

    /// Asks the verifier.
    #[inline]
    fn verify(&self, first: &FirstFlight<'_>, clock: &Clock) -> VerifierVerdict {
        match &self.verifier {
            Some(verifier) => verifier.verify(first, clock),
            None => self.keys.verify(first, clock),
        }
    }

    /// In no-cookie mode: the cookie for a client that asked for one, or showed one that is not of the
    /// primary key. The client can use it when the mode ends.
    fn courtesy(&self, first: &FirstFlight<'_>, clock: &Clock) -> Option<Grant> {
        // Another verifier may keep state for each question, so do not ask it.
        if self.verifier.is_some() {
            return None;
        }
        match self.keys.verify(first, clock) {
            VerifierVerdict::Valid { grant, .. } | VerifierVerdict::Invalid { grant, .. } => grant,
            VerifierVerdict::Pending { .. } => None,
        }
    }
}

/// Like [`admit`], for a SYN whose payload begins with a credential block. A cookie in the same SYN is
/// ignored. A request for a cookie is answered.
fn admit_block(
    policies: Policies<'_>,
    first: &FirstFlight<'_>,
    shard: &mut AsapShard,
    clock: &Clock,
) -> Admission {
    let asked = matches!(first.presented, Presented::FastOpen(FastOpen::Request(_)));
    let grant = policies.fast_open.filter(|_| asked).and_then(|policy| policy.courtesy(first, clock));
    let refuse = |refused: Refused| {
        // At a limit, grant no cookie either.
        let grant = grant.filter(|_| refused.status != Status::Overloaded);
        let refused = unless_seen(policies, first, refused);
        Admission::Refuse(Refusal { reason: refused.reason, grant, tell: None, refused: Some(refused) })
    };
    let invalidate = |refused: Refused| {
        let grant = grant.filter(|_| refused.status != Status::Overloaded);
        let refused = unless_seen(policies, first, refused);
        let reason = refused.reason;
        let (tell, refused) = invalidated(policies, first, clock, Some(refused));
        Admission::Refuse(Refusal { reason, grant, tell, refused })
    };
    let Some(policy) = policies.asap else {
        return refuse(Refused::new(Status::Disabled, [0; 2]));
    };
    let Offered::AsapOption(AsapOption::Block { len, .. }, encapsulation) = first.offered else {
        return refuse(Refused::new(Status::Malformed, [0; 2]));
    };
    let overloaded = |tag, reason| invalidate(Refused::new(Status::Overloaded, tag).because(reason));
    let pending = if first.relayed { policy.relayed.as_ref() } else { Some(&policy.pending) };
    let Some(pending) = pending else {
        return refuse(Refused::new(Status::Policy, [0; 2]));
    };
    if let Err(reason) = pending.has_room() {
        return overloaded([0; 2], reason);
    }
    let candidate = match policy.examine(first, len, encapsulation, shard, clock) {
        Ok(candidate) => candidate,
        Err(refused) => {
            // A first flight that is refused only for now must not be accepted later, because its data comes by the
            // ordinary handshake. One below this member's floor must not be accepted by another member of the farm.
            let for_now = matches!(
                refused.status,
                Status::Overloaded | Status::Policy | Status::GuardFloor | Status::Barred
            );
            return if for_now { invalidate(refused) } else { refuse(refused) };
        }
    };
    match pending.reserve(first.flow.client) {
        Ok(permit) => Admission::Ask(Question { work: Work::Verify(candidate), grant, permit }),
        Err(reason) => overloaded(candidate.tag(), reason),
    }
}

/// What the SYN-ACK says of a block that is refused, before it is invalidated. The client sends its data by the ordinary
/// handshake, unless it learns that a copy may have been accepted.
fn unless_seen(policies: Policies<'_>, first: &FirstFlight<'_>, refused: Refused) -> Refused {
    match policies.asap.is_some_and(|policy| policy.remembers(first)) {
        true => refused.seen(),
        false => refused,
    }
}

/// [`invalidate`], and what the SYN-ACK then says about a credential block.
fn invalidated(
    policies: Policies<'_>,
    first: &FirstFlight<'_>,
    clock: &Clock,
    refused: Option<Refused>,
) -> (Option<JobRequest>, Option<Refused>) {
    match invalidate(policies, first, clock, false) {
        Ok(tell) => (tell, refused),
        Err(Unreported) => (None, refused.map(Refused::unreported)),
    }
}

/// Invalidates the credential of `first` without accepting its data. The client sends the data again after an
/// ordinary handshake, so a copy of this SYN must not be accepted when there is room again. If a job is
/// returned, nobody waits for its answer. `checked`: the signatures of its credential block are right.
///
/// Also call it for a SYN that is refused or dropped without a call of [`admit`].
///
/// # Errors
/// When too much was reported to the store of the farm lately, so that another member may accept a copy. Then the client
/// must learn that the request may have run ([`Refused::unreported`]), or the SYN gets no answer.
pub fn invalidate(
    policies: Policies<'_>,
    first: &FirstFlight<'_>,
    clock: &Clock,
    checked: bool,
) -> Result<Option<JobRequest>, Unreported> {
    if first.relayed {
        // The client also sends this request directly to the server. That copy must stay valid.
        return Ok(None);
    }
    if first.offered.has_block() {
        return policies.asap.map_or(Ok(None), |policy| policy.invalidate(first, clock, checked));
    }
    Ok(invalidate_cookie(policies, first, clock))
}

/// Like [`invalidate`], for a SYN without credential block.
fn invalidate_cookie(policies: Policies<'_>, first: &FirstFlight<'_>, clock: &Clock) -> Option<JobRequest> {
    let policy = policies.fast_open.filter(|policy| policy.remembers())?;
    // A variant that is not shown here would be accepted in a later copy.
    let shown = match first.presented {
        Presented::None => false,
        Presented::FastOpen(option) => matches!(option, FastOpen::Cookie(..)),
    };
    if first.payload.is_empty() || !(shown || policy.no_cookie) {
        return None;
    }
    let once = match policy.verify(first, clock) {
        VerifierVerdict::Valid { once, .. } => once,
        // No-cookie mode accepts the data whatever the cookie is, so the guard must learn of it.
        _ if policy.no_cookie => None,
        _ => return None,
    };
    match spend(policy, once, first, clock) {
        Decision::Ask(job) => Some(job.refused()),
        Decision::Accept(()) | Decision::Refuse(_) => None,
    }
}

/// The last step: refuses a first flight that was executed before, as far as the policy demands it.
#[inline]
fn spend(policy: &FastOpenPolicy, once: Option<Serial>, first: &FirstFlight<'_>, clock: &Clock) -> Decision {
    if let Some(serial) = once {
        // The serial is redeemed once, which also stops copies of this SYN.
        return match first.claim {
            Claim::None => policy.verifier().redeem(serial, first),
            Claim::Held => policy.verifier().redeem_claimed(serial),
            Claim::Lapsed => Decision::Refuse(Reason::NotActive),
        };
    }
    let guard = match &policy.replays {
        Replays::Allow => return Decision::Accept(()),
        // The policy is invalid: it promises at most once, but this credential can be used again.
        Replays::AtMostOnce => return Decision::Refuse(Reason::Policy),
        // Without data nothing is executed.
        Replays::NoDuplicates(_) if first.payload.is_empty() => return Decision::Accept(()),
        Replays::NoDuplicates(guard) => guard,
    };
    // A copy is stamped when it arrives, so the monotonic clock is sufficient.
    let now_ms = clock.mono.as_millis();
    match guard.test_and_set(guard.id(first), now_ms, now_ms) {
        Guarded::New => Decision::Accept(()),
        Guarded::Seen => Decision::Refuse(Reason::Replay),
        Guarded::Floor => Decision::Refuse(Reason::GuardFloor),
        Guarded::Ask(job) => Decision::Ask(job),
    }
}

#[cfg(test)]
mod tests;
