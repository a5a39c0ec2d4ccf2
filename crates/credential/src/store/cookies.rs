//! The cookies of one server: usually one, and several if the server's cookies are good for one use.

use alloc::vec::Vec;
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::{Cookie, FastOpenForm};

/// The most cookies kept for one server.
pub const MAX_COOKIES: usize = 16;

/// A cookie, and how it was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredCookie {
    /// The cookie.
    pub cookie: Cookie,
    /// The option's form in which the server granted it.
    pub form: FastOpenForm,
    /// When it was granted.
    pub granted_at: Instant,
    /// Later cookies of a server have higher numbers.
    serial: u64,
}

impl StoredCookie {
    #[cfg(test)]
    pub(super) const fn serial(&self) -> u64 {
        self.serial
    }
}

/// The result of a SYN that showed a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CookieAnswer {
    /// The server accepted its data.
    Accepted,
    /// The SYN-ACK acknowledged the SYN, but none of its data.
    Refused,
    /// No data was sent, or the SYN-ACK answered a plain SYN, or no answer came: the cookie may be valid.
    Unclear,
}

/// The cookies of one server, newest first.
///
/// A server may grant one cookie for all connections, or one for each. A cookie is opaque (RFC 7413 §4.1.2),
/// so only the server's answers show what it does. A server that accepts the data *and* sends another cookie
/// either grants cookies for one use, or has changed its key. From then on every connection takes its own
/// cookie out of the set, until the server accepts data without sending a new cookie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CookieSet {
    cookies: Vec<StoredCookie>,
    rotating: bool,
    granted: u64,
}

impl CookieSet {
    pub(super) const NONE: Self = Self { cookies: Vec::new(), rotating: false, granted: 0 };

    /// Restores a saved set: (cookie, form, granted at), newest first. Only the first [`MAX_COOKIES`] are
    /// used.
    #[must_use]
    pub fn restore(cookies: &[(Cookie, FastOpenForm, Instant)], rotating: bool) -> Self {
        let mut set = Self { rotating, ..Self::default() };
        for &(cookie, form, granted_at) in cookies.iter().take(MAX_COOKIES).rev() {
            set.grant(cookie, form, granted_at);
        }
        set
    }

    /// The cookies, newest first.
    #[must_use]
    pub fn as_slice(&self) -> &[StoredCookie] {
        &self.cookies
    }

    /// The cookie to show next.
    #[must_use]
    pub fn newest(&self) -> Option<&StoredCookie> {
        self.cookies.first()
    }

    /// Whether the server seems to grant cookies for one use.
    #[must_use]
    pub const fn is_rotating(&self) -> bool {
        self.rotating
    }

    /// Adds a cookie that the server granted. A cookie that is already in the set is not kept twice.
    pub(super) fn grant(&mut self, cookie: Cookie, form: FastOpenForm, now: Instant) {
        self.cookies.retain(|held| held.cookie != cookie);
        self.cookies.truncate(MAX_COOKIES - 1);
        self.granted += 1;
        let fresh = StoredCookie { cookie, form, granted_at: now, serial: self.granted };
        self.cookies.insert(0, fresh);
    }

    /// Writes the cookie for a SYN that leaves now to `place`.
    // Written in place: a copy of a value that was just written in parts would stall.
    #[inline]
    pub(super) fn take(&mut self, place: &mut Option<StoredCookie>) {
        match self.cookies.first() {
            Some(newest) => *place = Some(*newest),
            None => *place = None,
        }
        if unlikely(self.rotating) && !self.cookies.is_empty() {
            self.cookies.remove(0);
        }
    }

    /// Takes the result of a SYN with `used`. `fresh` is the cookie in the SYN-ACK.
    pub(super) fn answered(
        &mut self,
        used: &StoredCookie,
        answer: CookieAnswer,
        fresh: Option<(Cookie, FastOpenForm)>,
        now: Instant,
    ) {
        let other = fresh.filter(|(cookie, _)| *cookie != used.cookie);
        match (answer, other) {
            (CookieAnswer::Refused, Some(_)) => self.cookies.retain(|held| held.serial > used.serial),
            (CookieAnswer::Accepted, Some(_)) => {
                self.rotating = true;
                self.retire(used);
            }
            (CookieAnswer::Unclear, Some(_)) => self.retire(used),
            (CookieAnswer::Accepted, None) => self.confirm(used),
            // No new cookie came, so keep the old one (RFC 7413 §4.1.3: only a cookie replaces a cookie).
            (CookieAnswer::Refused | CookieAnswer::Unclear, None) => self.put_back(used),
        }
        if let Some((cookie, form)) = other {
            self.grant(cookie, form, now);
        }
    }

    /// The server accepted the data and sent no other cookie, so `used` is good for further SYNs.
    #[inline]
    pub(super) fn confirm(&mut self, used: &StoredCookie) {
        self.rotating = false;
        if self.newest().is_none_or(|held| held.cookie != used.cookie) {
            self.put_back(used);
        }
    }

    fn retire(&mut self, used: &StoredCookie) {
        self.cookies.retain(|held| held.serial != used.serial);
    }

    /// Puts a cookie that was taken out back at its place, unless the set is full.
    fn put_back(&mut self, used: &StoredCookie) {
        let known = self.cookies.iter().any(|held| held.cookie == used.cookie);
        if known || self.cookies.len() >= MAX_COOKIES {
            return;
        }
        let at = self.cookies.iter().position(|held| held.serial < used.serial);
        self.cookies.insert(at.unwrap_or(self.cookies.len()), *used);
    }

    /// Another store of the same client used this cookie up. `rotating`: the server grants cookies for one use.
    pub(super) fn spent(&mut self, cookie: &Cookie, rotating: bool) {
        self.rotating = rotating;
        self.cookies.retain(|held| held.cookie != *cookie);
    }

    /// Drops all.
    pub(super) fn clear(&mut self) {
        self.cookies.clear();
    }

    /// Whether `used` was granted after the cookie with number `serial`, and the number of the last cookie
    /// granted.
    pub(super) const fn since(&self, used: &StoredCookie, serial: u64) -> (bool, u64) {
        (used.serial > serial, self.granted)
    }
}
