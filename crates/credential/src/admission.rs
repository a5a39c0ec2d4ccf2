//! The server's one decision about a first flight.

use crate::cookie::Flow;
use crate::key::KeyRing;
use crate::outcome::Reason;
use crate::pending::{PendingLimit, Place};
use alloc::sync::Arc;
use core::fmt;
use firstflight_wire::Clock;
use firstflight_wire::tcp::{Cookie, FastOpen};

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
    /// Its credential.
    pub presented: Presented<'a>,
    /// Its payload, bytes (without a preamble).
    pub data_len: usize,
    /// The listener's accept queue has no room.
    pub accept_queue_full: bool,
    /// The listener answers with SYN cookies, which leave no state to skip a handshake with.
    pub syn_cookie_pressure: bool,
}

/// How a listener treats first flights. The parts behind an [`Arc`] are shared by its shards.
#[derive(Clone)]
pub struct FastOpenPolicy {
    /// Keys of plain cookies.
    pub keys: Arc<KeyRing>,
    /// How many first flights may wait for their client's ACK.
    pub pending: Arc<PendingLimit>,
    /// Takes data without a cookie, or with any. Only for closed networks: nothing proves the client's
    /// address, so the listener answers spoofed SYNs with data. Off by default.
    pub no_cookie: bool,
    /// Asked instead of `keys` when there is one.
    pub verifier: Option<Arc<dyn Verifier + Send + Sync>>,
}

impl FastOpenPolicy {
    /// Plain cookies of `keys`, within `pending`.
    #[must_use]
    pub fn new(keys: Arc<KeyRing>, pending: Arc<PendingLimit>) -> Self {
        Self { keys, pending, no_cookie: false, verifier: None }
    }

    fn verdict(&self, first: &FirstFlight<'_>, clock: &Clock) -> Verdict {
        match &self.verifier {
            Some(verifier) => verifier.verify(first, clock),
            None => self.keys.verify(first, clock),
        }
    }

    /// In no-cookie mode: what a client gets that asked for a cookie or showed one not of the primary
    /// key, so that it has one when the mode ends.
    fn courtesy(&self, first: &FirstFlight<'_>, clock: &Clock) -> Option<Cookie> {
        // Another verifier may keep state about what it is asked, so it is not.
        if self.verifier.is_some() {
            return None;
        }
        match self.keys.verify(first, clock) {
            Verdict::Valid { grant } | Verdict::Invalid { grant, .. } => grant,
            Verdict::Pending(_) => None,
        }
    }
}

impl fmt::Debug for FastOpenPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastOpenPolicy")
            .field("keys", &self.keys)
            .field("pending", &self.pending)
            .field("no_cookie", &self.no_cookie)
            .field("verifier", &self.verifier.is_some())
            .finish()
    }
}

/// Judges one kind of credential.
pub trait Verifier {
    /// Judges the credential of `first`. It must not take what it cannot prove: a false `Valid` lets a
    /// spoofed SYN through, a false `Invalid` costs the client one round trip.
    fn verify(&self, first: &FirstFlight<'_>, clock: &Clock) -> Verdict;
}

/// What a [`Verifier`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The client may skip the handshake.
    Valid {
        /// A cookie for the SYN-ACK.
        grant: Option<Cookie>,
    },
    /// It may not.
    Invalid {
        /// Why.
        reason: Reason,
        /// A cookie for the SYN-ACK.
        grant: Option<Cookie>,
    },
    /// Somebody else has to say.
    Pending(JobRequest),
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
        /// When it may be forgotten, Unix time in milliseconds.
        expires_unix_ms: u64,
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
        grant: Option<Cookie>,
        /// Held until the client's ACK or the connection's end.
        place: Place,
    },
    /// An ordinary handshake; the data is ignored. With [`Reason::QueueFull`] the SYN is dropped instead.
    Fallback {
        /// Why.
        reason: Reason,
        /// A cookie for the SYN-ACK. Without one the SYN-ACK has no Fast Open option.
        grant: Option<Cookie>,
    },
    /// Park the SYN until the job is answered.
    Pending {
        /// What is to be done.
        job: JobRequest,
        /// Held while it is parked, and then as in `Accept`.
        place: Place,
    },
}

impl Admission {
    const fn refuse(reason: Reason) -> Self {
        Self::Fallback { reason, grant: None }
    }
}

/// Decides about a SYN for a listener; `policy` is `None` where the application did not ask for Fast Open.
///
/// In this order: SYN-cookie pressure, accept queue full (both whatever the SYN carries), the policy, the
/// pending limit, the credential. At the limit no cookie is granted (RFC 7413 §4.2.2: as if Fast Open
/// were switched off). A SYN without credential and data is an ordinary one, at the limit too.
pub fn admit(policy: Option<&FastOpenPolicy>, first: &FirstFlight<'_>, clock: &Clock) -> Admission {
    if first.syn_cookie_pressure {
        return Admission::refuse(Reason::SynCookie);
    }
    if first.accept_queue_full {
        return Admission::refuse(Reason::QueueFull);
    }
    let unproved = policy.filter(|policy| policy.no_cookie && first.data_len > 0);
    if matches!(first.presented, Presented::None) && unproved.is_none() {
        let plain = first.data_len == 0;
        return Admission::refuse(if plain { Reason::NotRequested } else { Reason::NoCredential });
    }
    let Some(policy) = policy else {
        return Admission::refuse(Reason::Policy);
    };
    // Looked at before the credential is, taken only after: a SYN that proves nothing occupies no place.
    if !policy.pending.has_room() {
        return Admission::refuse(Reason::PendingLimit);
    }
    let verdict = match unproved {
        Some(policy) => Verdict::Valid { grant: policy.courtesy(first, clock) },
        None => policy.verdict(first, clock),
    };
    if let Verdict::Invalid { reason, grant } = verdict {
        return Admission::Fallback { reason, grant };
    }
    // Another shard may have taken the last place meanwhile.
    match (verdict, policy.pending.try_reserve()) {
        (Verdict::Valid { grant }, Some(place)) => Admission::Accept { grant, place },
        (Verdict::Pending(job), Some(place)) => Admission::Pending { job, place },
        _ => Admission::refuse(Reason::PendingLimit),
    }
}

#[cfg(test)]
mod tests;
