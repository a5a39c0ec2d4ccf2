//! The entry of one server.

use super::cookies::{CookieAnswer, CookieSet, StoredCookie};
use super::failures::Failures;
use super::path::{PathMss, PathRtt};
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Cookie, FastOpenForm};

/// The memory of one server on one network.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The cookies to present.
    pub cookies: CookieSet,
    /// The MSS of its last SYN-ACK, bytes (RFC 7413 §4.1.3.1).
    pub mss: Option<u16>,
    /// Round-trip times.
    pub rtt: Option<PathRtt>,
    /// The failure memory.
    pub failures: Failures,
    /// The largest segment that the path passes, if that was learnt.
    pub path_mss: Option<PathMss>,
    pub(super) form_fallback: FormFallback,
    /// When the other stores of the client last heard that first flights get through.
    pub(super) told: Option<Instant>,
}

impl Default for Entry {
    fn default() -> Self {
        Self::new()
    }
}

impl Entry {
    /// Nothing known.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            cookies: CookieSet::NONE,
            mss: None,
            rtt: None,
            failures: Failures::NONE,
            path_mss: None,
            form_fallback: FormFallback::Fresh,
            told: None,
        }
    }

    /// Takes the result of a SYN with the cookie `used`.
    #[inline]
    pub(super) fn answered(
        &mut self,
        used: &StoredCookie,
        answer: CookieAnswer,
        fresh: Option<(Cookie, FastOpenForm)>,
        now: Instant,
    ) {
        if let (CookieAnswer::Accepted, None) = (answer, fresh) {
            self.cookies.confirm(used);
            self.failures.no_refusal();
        } else {
            self.answered_otherwise(used, answer, fresh, now);
        }
    }

    fn answered_otherwise(
        &mut self,
        used: &StoredCookie,
        answer: CookieAnswer,
        fresh: Option<(Cookie, FastOpenForm)>,
        now: Instant,
    ) {
        let (newer, granted) = self.cookies.since(used, self.failures.refused_at());
        self.cookies.answered(used, answer, fresh, now);
        if let Some((_, form)) = fresh {
            self.form_fallback = FormFallback::Answered(form);
        }
        match (answer, fresh) {
            (CookieAnswer::Accepted, _) | (CookieAnswer::Refused, None) => self.failures.no_refusal(),
            (CookieAnswer::Refused, Some(_)) => self.failures.refuse(newer, granted, now),
            (CookieAnswer::Unclear, _) => {}
        }
    }

    //= rfc7413 9-a 9-b
    pub(super) fn request_form(&self) -> FastOpenForm {
        // The first case is the common one. A chain of comparisons is faster here than the jump table of a
        // `match`.
        if let FormFallback::Answered(form) = self.form_fallback {
            form
        } else if self.form_fallback == FormFallback::TryExperimental {
            FastOpenForm::Experimental
        } else {
            FastOpenForm::Standard
        }
    }

    /// The newest cookie.
    #[must_use]
    pub fn cookie(&self) -> Option<&StoredCookie> {
        self.cookies.newest()
    }
}

/// The state that decides in which option form to ask for a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FormFallback {
    /// Nothing is known: ask in 34.
    Fresh,
    /// A request in 34 got no answer: ask in 254 once.
    TryExperimental,
    /// A request in 254 got no answer either: always ask in 34.
    GaveUp,
    /// A cookie came in this form.
    Answered(FastOpenForm),
}
