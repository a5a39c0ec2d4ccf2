//! The server's one decision about a first flight.

use crate::cookie::Flow;
use crate::one_time::Serial;
use crate::outcome::Reason;
use crate::pending::Place;
use crate::policy::{FastOpenPolicy, Replays};
use crate::replay::Guarded;
use firstflight_wire::tcp::{Cookie, FastOpen};
use firstflight_wire::{Clock, SeqNum};

/// The credential of a SYN.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Presented<'a> {
    /// None.
    None,
    /// The Fast Open option: a cookie, or a request for one (RFC 7413 §4.1.1).
    FastOpen(&'a FastOpen),
}

/// A SYN for a listener, as far as the decision needs it.
#[derive(Debug, Clone, Copy)]
pub struct FirstFlight<'a> {
    /// Its addresses.
    pub flow: Flow,
    /// Its ports: the client's, the server's.
    pub ports: (u16, u16),
    /// Its sequence number.
    pub isn: SeqNum,
    /// Its credential.
    pub presented: Presented<'a>,
    /// Its data (without a preamble).
    pub payload: &'a [u8],
    /// The listener's accept queue has no room.
    pub accept_queue_full: bool,
    /// The listener answers with SYN cookies, which leave no state to skip a handshake with.
    pub syn_cookie_pressure: bool,
}

/// A cookie for a SYN-ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The cookie.
    pub cookie: Cookie,
    /// It becomes usable with [`Verifier::activate`], when the handshake is complete; `None`: it is usable
    /// at once.
    pub serial: Option<Serial>,
}

/// Judges one kind of credential.
pub trait Verifier {
    /// Judges the credential of `first`. It must not take what it cannot prove: a false `Valid` lets a
    /// spoofed SYN through, a false `Invalid` costs the client one round trip.
    fn verify(&self, first: &FirstFlight<'_>, clock: &Clock) -> Verdict;

    /// Uses a credential that is good once, in one step, immediately before the first flight is accepted.
    /// A false `No` costs a round trip; `Yes` is said at most once for a serial.
    fn redeem(&self, _serial: Serial) -> Redemption {
        Redemption::No(Reason::Policy)
    }

    /// The handshake in which `serial` was granted is complete. A job that comes back from here has no
    /// answer to wait for.
    fn activate(&self, _serial: Serial) -> Option<JobRequest> {
        None
    }

    /// Whether every credential it takes is good for one first flight, however many servers take it.
    fn is_once(&self) -> bool {
        false
    }

    /// Whether it asks a store that a farm shares: [`JobRequest::Redeem`] and [`JobRequest::Activate`].
    fn needs_store(&self) -> bool {
        false
    }
}

/// What a [`Verifier`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The client may skip the handshake.
    Valid {
        /// A cookie for the SYN-ACK.
        grant: Option<Grant>,
        /// The credential is good once: to be redeemed under this serial.
        once: Option<Serial>,
    },
    /// It may not.
    Invalid {
        /// Why.
        reason: Reason,
        /// A cookie for the SYN-ACK.
        grant: Option<Grant>,
    },
    /// Somebody else has to say.
    Pending {
        /// Who, and what to ask.
        job: JobRequest,
        /// A cookie for the SYN-ACK.
        grant: Option<Grant>,
    },
}

/// The answer to [`Verifier::redeem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redemption {
    /// It is used now.
    Yes,
    /// It cannot be.
    No(Reason),
    /// Somebody else has to say.
    Ask(JobRequest),
}

/// Work for the driver, whose [`JobResult`] decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobRequest {
    /// Verify a signature.
    Verify {
        /// Under which the verifier keeps what is to be verified.
        key: u64,
    },
    /// Set a replay guard's id if it is not set.
    GuardSet {
        /// The id.
        key: [u8; 16],
        /// How long it must be kept, milliseconds.
        keep_ms: u64,
        /// How far its stamp is ahead of the present, milliseconds.
        ahead_ms: u64,
        /// A store whose memory begins at some moment takes nothing that is stamped up to so much later.
        reach_ms: u64,
    },
    /// Use a one-time cookie that was activated and not used yet.
    Redeem {
        /// Its serial.
        serial: Serial,
    },
    /// A one-time cookie may be used from now on. Nobody waits for the answer.
    Activate {
        /// Its serial.
        serial: Serial,
    },
}

/// The answer to a [`JobRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobResult {
    /// The client may skip the handshake.
    Accept,
    /// It may not, and why.
    Refuse(Reason),
}

/// What to do with a SYN.
#[derive(Debug)]
#[must_use]
pub enum Admission {
    /// Make the connection at once and deliver the data.
    Accept {
        /// A cookie for the SYN-ACK, in the form in which the client spoke.
        grant: Option<Grant>,
        /// Held until the client's ACK or the connection's end.
        place: Place,
    },
    /// An ordinary handshake; the data is ignored. With [`Reason::QueueFull`] the SYN is dropped instead.
    Fallback {
        /// Why.
        reason: Reason,
        /// A cookie for the SYN-ACK. Without one the SYN-ACK has no Fast Open option.
        grant: Option<Grant>,
        /// Work whose answer nobody waits for: see [`spoil`].
        tell: Option<JobRequest>,
    },
    /// Park the SYN until the job is answered.
    Pending {
        /// What is to be done.
        job: JobRequest,
        /// A cookie for the SYN-ACK, whatever the answer.
        grant: Option<Grant>,
        /// Held while it is parked, and then as in `Accept`.
        place: Place,
    },
}

/// Decides about a SYN for a listener; `policy` is `None` where the application did not ask for Fast Open.
///
/// In this order: SYN-cookie pressure, accept queue full (both whatever the SYN carries), the policy, the
/// pending limits, the credential, its client's limit, and last, immediately before the data is taken,
/// whether it was taken before. At a limit no cookie is granted (RFC 7413 §4.2.2: as if Fast Open were
/// switched off). A SYN without credential and data is an ordinary one, at the limit too.
pub fn admit(policy: Option<&FastOpenPolicy>, first: &FirstFlight<'_>, clock: &Clock) -> Admission {
    let refuse = |reason| Admission::Fallback { reason, grant: None, tell: spoil(policy, first, clock) };
    if first.syn_cookie_pressure {
        return refuse(Reason::SynCookie);
    }
    if first.accept_queue_full {
        return refuse(Reason::QueueFull);
    }
    let unproved = policy.filter(|policy| policy.no_cookie && !first.payload.is_empty());
    if matches!(first.presented, Presented::None) && unproved.is_none() {
        let plain = first.payload.is_empty();
        return refuse(if plain { Reason::NotRequested } else { Reason::NoCredential });
    }
    let Some(policy) = policy else {
        return refuse(Reason::Policy);
    };
    // Looked at before the credential is, taken only after: a SYN that proves nothing occupies no place.
    if let Err(reason) = policy.pending.has_room() {
        return refuse(reason);
    }
    let verdict = match unproved {
        Some(policy) => Verdict::Valid { grant: policy.courtesy(first, clock), once: None },
        None => policy.verifier().verify(first, clock),
    };
    let (grant, once) = match verdict {
        Verdict::Invalid { reason, grant } => return Admission::Fallback { reason, grant, tell: None },
        Verdict::Valid { grant, once } => (grant, Ok(once)),
        Verdict::Pending { job, grant } => (grant, Err(job)),
    };
    // Another shard may have taken the last place meanwhile.
    let place = match policy.pending.reserve(first.flow.client) {
        Ok(place) => place,
        Err(reason) => return refuse(reason),
    };
    let decided = match once {
        Ok(once) => spend(policy, once, first, clock),
        Err(job) => Redemption::Ask(job),
    };
    match decided {
        Redemption::Yes => Admission::Accept { grant, place },
        Redemption::No(reason) => Admission::Fallback { reason, grant, tell: None },
        Redemption::Ask(job) => Admission::Pending { job, grant, place },
    }
}

/// Uses up what `first` carries without taking its data, which then comes by an ordinary handshake: a copy of
/// this SYN must find nothing good when there is room again. A job that comes back has no answer to wait for.
///
/// For whoever refuses or drops a SYN without asking [`admit`], too.
#[must_use]
pub fn spoil(policy: Option<&FastOpenPolicy>, first: &FirstFlight<'_>, clock: &Clock) -> Option<JobRequest> {
    let policy = policy.filter(|policy| policy.remembers())?;
    let shown = matches!(first.presented, Presented::FastOpen(FastOpen::Cookie(..)));
    if first.payload.is_empty() || !(shown || policy.no_cookie) {
        return None;
    }
    let once = match policy.verifier().verify(first, clock) {
        Verdict::Valid { once, .. } => once,
        // In no-cookie mode it would have been taken all the same.
        _ if policy.no_cookie => None,
        _ => return None,
    };
    match spend(policy, once, first, clock) {
        Redemption::Ask(job) => Some(job),
        Redemption::Yes | Redemption::No(_) => None,
    }
}

/// The last step: a first flight that was executed before is not executed again, as far as the policy goes.
fn spend(
    policy: &FastOpenPolicy,
    once: Option<Serial>,
    first: &FirstFlight<'_>,
    clock: &Clock,
) -> Redemption {
    if let Some(serial) = once {
        // No copy of it gets further either.
        return policy.verifier().redeem(serial);
    }
    let guard = match &policy.replays {
        Replays::Allow => return Redemption::Yes,
        // The policy is not valid; it promises what this credential cannot hold.
        Replays::AtMostOnce => return Redemption::No(Reason::Policy),
        // Nothing would be executed.
        Replays::NoDuplicates(_) if first.payload.is_empty() => return Redemption::Yes,
        Replays::NoDuplicates(guard) => guard,
    };
    // A copy is stamped when it arrives, so the clock that never steps serves.
    let now_ms = clock.mono.as_millis();
    match guard.test_and_set(guard.id(first), now_ms, now_ms) {
        Guarded::New => Redemption::Yes,
        Guarded::Seen => Redemption::No(Reason::Replay),
        Guarded::Floor => Redemption::No(Reason::GuardFloor),
        Guarded::Ask(job) => Redemption::Ask(job),
    }
}

#[cfg(test)]
mod tests;
