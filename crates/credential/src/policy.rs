//! How a listener treats first flights.

use crate::admission::{FirstFlight, Grant, Verdict, Verifier};
use crate::key::KeyRing;
use crate::pending::PendingLimit;
use crate::replay::ReplayGuard;
use alloc::sync::Arc;
use core::fmt;
use firstflight_wire::Clock;

/// How often one first flight may be executed.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Replays {
    /// As often as it comes: for requests that change nothing (RFC 7413 §6.1).
    #[default]
    Allow,
    /// Copies that the network makes within 2 MSL are refused: same four-tuple, sequence number and data. An
    /// attacker who changes any of them is not stopped: a plain cookie lives for days.
    NoDuplicates(Arc<dyn ReplayGuard>),
    /// Once, whoever sends it: only with credentials that are good once ([`Verifier::is_once`]).
    AtMostOnce,
}

/// Which resets keep their place among the pending first flights for a while. With a stolen cookie the
/// reset comes from the address's owner, and would let the next spoofed SYN in (the Fast Open paper
/// §3.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quarantine {
    /// Of connections that the application had accepted, as in Linux.
    #[default]
    Accepted,
    /// Of every connection, as the paper asks.
    Every,
}

/// A policy that cannot hold what it promises. Whoever configured it is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// At most once, with cookies that are good for days.
    AtMostOnceNeedsOneTime,
    /// At most once, in no-cookie mode.
    AtMostOnceWithoutCookie,
    /// Certificates, in no-cookie mode: a block whose option was removed would be taken for data.
    AsapWithoutCookie,
    /// A farm's store is to be asked, and there is none.
    NeedsStore,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtMostOnceNeedsOneTime => {
                "at-most-once needs one-time cookies: a plain cookie can be replayed for as long as its key lives"
            }
            Self::AtMostOnceWithoutCookie => "at-most-once and no-cookie mode exclude each other",
            Self::AsapWithoutCookie => "certificates and no-cookie mode exclude each other",
            Self::NeedsStore => "the policy asks a store that a farm shares, and the endpoint has none",
        })
    }
}

impl core::error::Error for PolicyError {}

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
    /// How often one first flight may be executed.
    pub replays: Replays,
    /// Which resets keep their place for a while.
    pub quarantine: Quarantine,
}

impl FastOpenPolicy {
    /// Plain cookies of `keys`, within `pending`.
    #[must_use]
    pub fn new(keys: Arc<KeyRing>, pending: Arc<PendingLimit>) -> Self {
        pending.key(keys.hash_key());
        Self {
            keys,
            pending,
            no_cookie: false,
            verifier: None,
            replays: Replays::default(),
            quarantine: Quarantine::default(),
        }
    }

    /// Whether it can hold what it promises.
    ///
    /// # Errors
    /// What excludes what.
    pub fn validate(&self) -> Result<(), PolicyError> {
        if !matches!(self.replays, Replays::AtMostOnce) {
            return Ok(());
        }
        if self.no_cookie {
            return Err(PolicyError::AtMostOnceWithoutCookie);
        }
        match &self.verifier {
            Some(verifier) if verifier.is_once() => Ok(()),
            _ => Err(PolicyError::AtMostOnceNeedsOneTime),
        }
    }

    /// Whether it asks a store that a farm shares: without one every first flight falls back.
    #[must_use]
    pub fn needs_store(&self) -> bool {
        let guard = match &self.replays {
            Replays::NoDuplicates(guard) => guard.needs_store(),
            Replays::Allow | Replays::AtMostOnce => false,
        };
        guard || self.verifier().needs_store()
    }

    /// Whether it remembers what was taken, so that a copy is not.
    pub(crate) fn remembers(&self) -> bool {
        self.verifier.is_some() || !matches!(self.replays, Replays::Allow)
    }

    /// Asks the verifier.
    #[inline]
    pub(crate) fn verify(&self, first: &FirstFlight<'_>, clock: &Clock) -> Verdict {
        match &self.verifier {
            Some(verifier) => verifier.verify(first, clock),
            None => self.keys.verify(first, clock),
        }
    }

    pub(crate) fn verifier(&self) -> &dyn Verifier {
        match &self.verifier {
            Some(verifier) => &**verifier,
            None => &*self.keys,
        }
    }

    /// In no-cookie mode: what a client gets that asked for a cookie or showed one not of the primary
    /// key, so that it has one when the mode ends.
    pub(crate) fn courtesy(&self, first: &FirstFlight<'_>, clock: &Clock) -> Option<Grant> {
        // Another verifier may keep state about what it is asked, so it is not.
        if self.verifier.is_some() {
            return None;
        }
        match self.keys.verify(first, clock) {
            Verdict::Valid { grant, .. } | Verdict::Invalid { grant, .. } => grant,
            Verdict::Pending { .. } => None,
        }
    }
}

impl fmt::Debug for Replays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "Allow",
            Self::NoDuplicates(_) => "NoDuplicates(..)",
            Self::AtMostOnce => "AtMostOnce",
        })
    }
}

impl fmt::Debug for FastOpenPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastOpenPolicy")
            .field("keys", &self.keys)
            .field("pending", &self.pending)
            .field("no_cookie", &self.no_cookie)
            .field("verifier", &self.verifier.is_some())
            .field("replays", &self.replays)
            .field("quarantine", &self.quarantine)
            .finish()
    }
}
