//! The keys of a server: one key grants cookies, and cookies of older or coming keys are accepted too.

use crate::cookie::{CookieScheme, Loaded, Scheme};
use crate::cookie_key::CookieKey;
use crate::flight::{FirstFlight, Flow, Grant, Presented, Verifier, VerifierVerdict};
use crate::outcome::Reason;
use alloc::vec::Vec;
use core::fmt;
use core::hint::black_box;
use core::net::{IpAddr, Ipv4Addr};
use firstflight_wire::Clock;
use firstflight_wire::tcp::{Cookie, FastOpen};
use zeroize::Zeroizing;

/// Which key a cookie was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The key that grants.
    Primary,
    /// An older or a coming key: the cookie is valid, but the client should get a fresh one.
    Backup,
    /// None of the ring's keys.
    No,
}

/// The keys of a server or a farm. A ring does not change: to rotate the keys, build another ring and replace
/// this one.
pub struct KeyRing {
    scheme: Scheme,
    primary: Loaded,
    backups: Vec<Loaded>,
}

impl KeyRing {
    /// A ring of one key.
    #[must_use]
    pub fn new(scheme: Scheme, primary: CookieKey) -> Self {
        Self { scheme, primary: scheme.load(primary), backups: Vec::new() }
    }

    /// Accepts cookies of `key` too. A Linux kernel holds at most one backup.
    #[must_use]
    pub fn with_backup(mut self, key: CookieKey) -> Self {
        self.backups.push(self.scheme.load(key));
        self
    }

    /// The cookie function.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The keys as Linux takes them for a listener (`TCP_FASTOPEN_KEY`): 16 bytes, and 16 more for the first backup.
    /// Linux has no room for further ones. `None` if the cookie function is not Linux'.
    #[must_use]
    pub fn to_linux(&self) -> Option<Zeroizing<Vec<u8>>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(32));
        for key in core::iter::once(&self.primary).chain(self.backups.first()) {
            match key {
                Loaded::Linux(linux) => bytes.extend_from_slice(linux.key().as_bytes()),
                Loaded::Paper(_) => return None,
            }
        }
        Some(bytes)
    }

    /// A secret number that tables may use as the key of their hashes.
    pub(crate) fn hash_key(&self) -> u64 {
        // Use the cookie of an address that no client can have (RFC 1122 §3.2.1.3).
        let nobody = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        u64::from_be_bytes(self.primary.make(&Flow { client: nobody, server: nobody }))
    }

    /// A fresh cookie for `flow`, of the primary key.
    #[must_use]
    pub fn grant(&self, flow: &Flow) -> Cookie {
        match Cookie::new(&self.primary.make(flow)) {
            Some(cookie) => cookie,
            None => unreachable!("eight bytes are a legal cookie (RFC 7413 §4.1.1)"),
        }
    }

    /// Which key made `cookie` for `flow`. All keys are always tried, so the time reveals only how many keys
    /// there are.
    // Inlined with `verify`: a verdict returned from a call is written in parts and read as a whole, which
    // stalls.
    #[inline(always)]
    #[must_use]
    pub fn check(&self, flow: &Flow, cookie: &Cookie) -> Check {
        // Compare as one number: a comparison byte by byte takes longer than the hash. `black_box` hides the
        // difference from the optimiser, as in the comparison of cookies.
        let Ok(shown) = cookie.as_bytes().try_into().map(u64::from_ne_bytes) else { return Check::No };
        let matches = |key: &Loaded| black_box(shown ^ u64::from_ne_bytes(key.make(flow))) == 0;
        let primary = matches(&self.primary);
        let mut backup = false;
        for key in &self.backups {
            backup |= matches(key);
        }
        match (primary, backup) {
            (true, _) => Check::Primary,
            (false, true) => Check::Backup,
            (false, false) => Check::No,
        }
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing")
            .field("scheme", &self.scheme)
            .field("backups", &self.backups.len())
            .finish_non_exhaustive()
    }
}

/// Plain cookies: the credential of RFC 7413.
impl Verifier for KeyRing {
    #[inline(always)]
    fn verify(&self, first: &FirstFlight<'_>, _clock: &Clock) -> VerifierVerdict {
        let fresh = || Some(Grant { cookie: self.grant(&first.flow), serial: None });
        match first.presented {
            Presented::None => VerifierVerdict::Invalid { reason: Reason::NoCredential, grant: None },
            Presented::FastOpen(FastOpen::Request(_)) => {
                VerifierVerdict::Invalid { reason: Reason::NoCredential, grant: fresh() }
            }
            Presented::FastOpen(FastOpen::Cookie(_, cookie)) => match self.check(&first.flow, cookie) {
                Check::Primary => VerifierVerdict::Valid { grant: None, once: None },
                Check::Backup => VerifierVerdict::Valid { grant: fresh(), once: None },
                Check::No => {
                    VerifierVerdict::Invalid { reason: Reason::StaleOrWrongCredential, grant: fresh() }
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
