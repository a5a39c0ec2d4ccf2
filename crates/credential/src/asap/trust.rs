//! The verifiers that a server trusts, and the limits of this trust.

use super::keys::PublicKey;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::asap::{CertificateBody, Status, VerifierId};
use ipnet::IpNet;

/// A certificate may begin up to this much later than now by the server's clock, seconds.
const NOT_YET_VALID: u64 = 60;

/// A verifier that a server trusts. The trust can be limited, because a careless verifier exposes the servers
/// that trust it to reflection attacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    /// Its key, or the key of its group.
    pub key: PublicKey,
    /// The addresses that it may certify. An empty list means all addresses. The verifier of an access
    /// network certifies only the addresses of that network.
    pub prefixes: Vec<IpNet>,
    /// The longest duration of a certificate that is accepted.
    pub longest: Duration,
    /// The greatest age of a certificate that is accepted.
    pub oldest: Duration,
    /// The number of vantage points that must have seen the client.
    pub min_vantage: u8,
    /// The server's own operator runs it. Then the data sent before the client's ACK is not limited further,
    /// as with a cookie.
    pub own: bool,
    /// The most bytes sent before the client's ACK, as a multiple of the bytes received. It applies if the
    /// verifier is not `own` and the certificate does not allow more.
    pub times: u32,
    /// First flights accepted a second. `None`: no limit.
    pub per_second: Option<u32>,
}

impl Trusted {
    /// The defaults for a verifier with `key`: every address, certificates of at most a day, one vantage
    /// point, three times the bytes received.
    #[must_use]
    pub const fn new(key: PublicKey) -> Self {
        const DAY: Duration = Duration::from_secs(86_400);
        Self {
            key,
            prefixes: Vec::new(),
            longest: DAY,
            oldest: DAY,
            min_vantage: 1,
            own: false,
            times: 3,
            per_second: None,
        }
    }

    /// Whether there can be a certificate that this entry accepts and `before` does not. The answer may be a false yes,
    /// but never a false no.
    fn admits_more_than(&self, before: &Self) -> bool {
        // Exhaustive, so that a new field has to be considered here. `own` and `times` limit only the data
        // sent before the client's ACK. A request that the rate refuses is used up.
        let Self { key, prefixes, longest, oldest, min_vantage, own: _, times: _, per_second: _ } = self;
        let within = |net: &IpNet| before.prefixes.iter().any(|old| old.contains(net));
        let narrower = before.prefixes.is_empty() || (!prefixes.is_empty() && prefixes.iter().all(within));
        *key != before.key
            || !narrower
            || *longest > before.longest
            || *oldest > before.oldest
            || *min_vantage < before.min_vantage
    }

    /// Whether this entry grants clients anything that `before` does not: it accepts more certificates, sends more
    /// before the client's ACK, or accepts more first flights a second.
    fn grants_more_than(&self, before: &Self) -> bool {
        let rate = |entry: &Self| entry.per_second.unwrap_or(u32::MAX);
        self.admits_more_than(before)
            || (self.own && !before.own)
            || self.times > before.times
            || rate(self) > rate(before)
    }

    /// Checks all but the signatures: whether a certificate for `address` is acceptable at `now_s` (Unix
    /// seconds).
    pub(super) fn allows(&self, body: &CertificateBody, address: IpAddr, now_s: u64) -> Result<(), Status> {
        let allowed = self.prefixes.is_empty() || self.prefixes.iter().any(|net| net.contains(&address));
        if !allowed || body.flags.vantage() < self.min_vantage || body.lasts() > self.longest {
            return Err(Status::Policy);
        }
        let begins = u64::from(body.valid_from);
        if begins > now_s + NOT_YET_VALID {
            return Err(Status::NotYetValid);
        }
        if body.ends() < now_s || now_s.saturating_sub(begins) > self.oldest.as_secs() {
            return Err(Status::Expired);
        }
        Ok(())
    }

    /// How much may be sent before the client's ACK.
    pub(super) fn before_ack(&self, body: &CertificateBody, now_s: u64) -> BeforeAck {
        let young = now_s.saturating_sub(u64::from(body.valid_from)) <= 3600;
        if self.own || (body.flags.vantage() >= 3 && young) {
            BeforeAck::InitialWindow
        } else {
            BeforeAck::Times(self.times)
        }
    }
}

/// How much a server sends before the client's first ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeAck {
    /// As much as the congestion window allows.
    InitialWindow,
    /// This multiple of the bytes received, IP headers included.
    Times(u32),
}

/// Why a trust store is invalid. Its entries are at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrustError {
    /// Two keys have one id, so a certificate's verifier would be ambiguous.
    SameId(VerifierId),
    /// The key with this id cannot be trusted.
    Unsound(VerifierId),
}

impl fmt::Display for TrustError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameId(id) => write!(f, "two trusted keys have the id {id}: remove one"),
            Self::Unsound(id) => write!(f, "the trusted key with id {id} is not a sound Ed25519 key"),
        }
    }
}

impl core::error::Error for TrustError {}

/// The verifiers that a server trusts. A store does not change: a changed file gives a new store.
#[derive(Debug, Clone, Default)]
pub struct TrustStore {
    entries: BTreeMap<VerifierId, Trusted>,
    /// Until when, Unix time in milliseconds, requests must have been made to be refused, by verifiers that an earlier
    /// store did not trust as far as this one.
    closed: BTreeMap<VerifierId, u64>,
}

impl TrustStore {
    /// A store of these verifiers.
    ///
    /// # Errors
    /// Two keys have one id, or a key is not [sound](PublicKey::is_sound).
    pub fn new(entries: impl IntoIterator<Item = Trusted>) -> Result<Self, TrustError> {
        let mut store = Self::default();
        for entry in entries {
            let id = entry.key.id();
            if !entry.key.is_sound() {
                return Err(TrustError::Unsound(id));
            }
            if store.entries.insert(id, entry).is_some() {
                return Err(TrustError::SameId(id));
            }
        }
        Ok(store)
    }

    /// The verifier with this id.
    #[must_use]
    pub fn get(&self, id: VerifierId) -> Option<&Trusted> {
        self.entries.get(&id)
    }

    /// This store in the place of `before`. Requests with a certificate of a verifier that `before` trusted less are
    /// refused if they were made at `floor_ms` or before, in Unix time: one of them may have been refused, and executed
    /// after the ordinary handshake that followed. Those of the other verifiers go on.
    #[must_use]
    pub fn in_place_of(&self, before: &Self, floor_ms: u64) -> Self {
        let closed = |(id, entry): (&VerifierId, &Trusted)| {
            let more = before.get(*id).is_none_or(|before| entry.admits_more_than(before));
            let floor = if more { Some(floor_ms) } else { before.closed.get(id).copied() };
            floor.map(|floor| (*id, floor))
        };
        Self { entries: self.entries.clone(), closed: self.entries.iter().filter_map(closed).collect() }
    }

    /// Whether a request that was made at `stamp_ms` with a certificate of this verifier may have been refused by an
    /// earlier store: see [`TrustStore::in_place_of`].
    pub(super) fn is_closed(&self, id: VerifierId, stamp_ms: u64) -> bool {
        self.closed.get(&id).is_some_and(|floor| stamp_ms <= *floor)
    }

    /// Whether there can be a certificate that this store accepts and `before` does not. The answer may be a false yes,
    /// but never a false no.
    #[must_use]
    pub fn admits_more_than(&self, before: &Self) -> bool {
        self.any_more_than(before, Trusted::admits_more_than)
    }

    /// Whether this store grants clients anything that `before` does not: more certificates, more bytes before the
    /// client's ACK, or more first flights a second. The answer may be a false yes, but never a false no.
    #[must_use]
    pub fn grants_more_than(&self, before: &Self) -> bool {
        self.any_more_than(before, Trusted::grants_more_than)
    }

    fn any_more_than(&self, before: &Self, more: impl Fn(&Trusted, &Trusted) -> bool) -> bool {
        self.entries.iter().any(|(id, entry)| before.get(*id).is_none_or(|before| more(entry, before)))
    }

    /// All verifiers, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Trusted> {
        self.entries.values()
    }

    /// The id of one trusted verifier, for a client whose certificate is by an unknown verifier.
    #[must_use]
    pub fn hint(&self) -> Option<VerifierId> {
        self.entries.keys().next().copied()
    }
}

#[cfg(test)]
mod tests;
