//! How a listener treats first flights.

use crate::flight::Verifier;
use crate::key::KeyRing;
use crate::pending::PendingLimit;
use crate::replay::guard::millis;
use crate::replay::{ReplayGuard, Window};
use alloc::sync::Arc;
use core::fmt;
use firstflight_wire::Clock;

/// How often one first flight may be executed.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Replays {
    /// As often as it arrives: for requests that change nothing (RFC 7413 §6.1).
    #[default]
    Allow,
    /// Refuses copies that the network makes within 2 MSL: they have the same four-tuple, sequence number and
    /// data. This does not stop an attacker who changes any of these, because a plain cookie is valid for
    /// days.
    NoDuplicates(Arc<dyn ReplayGuard>),
    /// At most once, even if an attacker sends copies. Needs credentials that are good once
    /// ([`Verifier::is_once`]).
    AtMostOnce,
}

/// Which connections that end by RST keep their permit among the pending first flights for a while. If an
/// attacker uses a stolen cookie, the owner of the address sends the RST. Without the quarantine, each RST
/// would free a permit for the next spoofed SYN (the Fast Open paper §3.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Quarantine {
    /// Connections that the application had accepted, as in Linux.
    #[default]
    Accepted,
    /// Every connection, as the paper demands.
    Every,
}

/// A policy that cannot keep its promise. The configuration is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// At most once, with cookies that are valid for days.
    AtMostOnceNeedsOneTime,
    /// At most once, in no-cookie mode.
    AtMostOnceWithoutCookie,
    /// Certificates, in no-cookie mode. If the path removes the option, the credential block would be
    /// delivered as data.
    AsapWithoutCookie,
    /// The policy asks the shared store of a farm, but there is none.
    NeedsStore,
    /// The trusted verifiers contradict the server's own.
    #[cfg(feature = "asap")]
    Trust(crate::asap::TrustError),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            #[cfg(feature = "asap")]
            Self::Trust(error) => return error.fmt(f),
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
    /// Accepts data without a cookie, and with any cookie. Use it only in closed networks: nothing proves the
    /// client's address, so the listener answers spoofed SYNs with data. Off by default.
    pub no_cookie: bool,
    /// If set, it is asked instead of `keys`.
    pub verifier: Option<Arc<dyn Verifier + Send + Sync>>,
    /// How often one first flight may be executed.
    pub replays: Replays,
    /// Which connections that end by RST keep their permit for a while.
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

    /// Checks that the policy can keep its promise.
    ///
    /// # Errors
    /// The settings that exclude each other.
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

    /// Refuses copies of first flights that another server may have taken until now. A server calls this when it begins to get
    /// packets that went to the other one. Within [`Replays::NoDuplicates`] no first flight is accepted for two minutes then.
    pub fn close(&self, clock: &Clock) {
        if let Replays::NoDuplicates(guard) = &self.replays {
            guard.raise_floor(clock.mono.as_millis().saturating_add(millis(Window::NETWORK.reach())));
        }
    }

    /// Whether it asks the shared store of a farm. Without a store every first flight falls back.
    #[must_use]
    pub fn needs_store(&self) -> bool {
        let guard = match &self.replays {
            Replays::NoDuplicates(guard) => guard.needs_store(),
            Replays::Allow | Replays::AtMostOnce => false,
        };
        guard || self.verifier().needs_store()
    }

    pub(crate) fn verifier(&self) -> &dyn Verifier {
        match &self.verifier {
            Some(verifier) => &**verifier,
            None => &*self.keys,
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
