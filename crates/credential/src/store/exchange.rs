//! What several stores of one client tell each other. Each shard of a client has a store of its own, so that a connect
//! needs no lock. A store records what the others must know, and they repeat it.
//!
//! Not everything is told. Round-trip times differ with each visit, so only the first one is. A cookie that is good for one use
//! stays with the store that got it: two stores would show it twice.

use super::cookies::{CookieAnswer, StoredCookie};
use super::learnt::{LearntOfServer, Telling, What};
use super::{CredentialStore, Entry};
use crate::network::NetworkId;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Cookie, FastOpenForm};

/// How often it is told that first flights to a server get through. A SYN waits at least this long for its answer
/// before a loss is noted, so a loss beside another shard's accepted first flights does not count as a failure.
const TELL_EVERY: Duration = Duration::from_millis(25);

impl CredentialStore {
    /// From now on the store records what other stores of the same client must know.
    #[must_use]
    pub fn telling(mut self) -> Self {
        self.telling = Some(Telling::default());
        self
    }

    /// The next record for the other stores.
    pub fn poll_learnt(&mut self) -> Option<LearntOfServer> {
        self.telling.as_mut()?.0.pop_front()
    }

    /// Takes what another store learnt. It is not told again.
    pub fn repeat(&mut self, learnt: LearntOfServer) {
        let LearntOfServer { network, server, what } = learnt;
        let telling = self.telling.take();
        match what {
            What::Cookie(cookie, form, at) => {
                // A server that grants cookies for one use granted this one to the other store.
                let rotating = self.entries.peek(&(network, server)).is_some_and(|e| e.cookies.is_rotating());
                if !rotating {
                    self.learn_cookie(network, server, form, cookie, at);
                }
            }
            What::Spent(cookie, rotating) => {
                self.learn(network, server, |entry| entry.cookies.spent(&cookie, rotating));
            }
            What::Plain(used) => self.learn(network, server, |entry| entry.cookies.confirm(&used)),
            What::NoCookies => self.forget_cookies(network, server),
            What::Unanswered(form) => self.note_unanswered(network, server, form),
            What::Failure(at) => self.note_failure(network, server, at),
            What::Lost(sent, at) => self.note_lost(network, server, sent, at),
            What::Passed(sent) => self.note_passed(network, server, sent),
            What::Success => self.note_success(network, server),
            What::Mss(mss) => self.learn_mss(network, server, mss),
            What::PathMss(mss, at) => self.learn_path_mss(network, server, mss, at),
            What::Rtt(srtt, rttvar, at) => {
                self.learn_first_rtt(network, server, srtt, rttvar, at);
            }
            What::Asap(identity, speaks, at) => self.learn_asap(network, server, &identity, speaks, at),
            What::Mismatch(address, at) => self.note_mismatch(network, server, address, at),
        }
        self.telling = telling;
    }

    /// Records something for the other stores, if there are any.
    #[inline]
    pub(super) fn tell(&mut self, network: NetworkId, server: IpAddr, what: impl FnOnce() -> What) {
        if let Some(telling) = &mut self.telling {
            telling.add(LearntOfServer { network, server, what: what() });
        }
    }

    /// Records that the first flight of a SYN that left at `sent` was accepted, if that was not told shortly before.
    #[inline]
    pub(super) fn tell_passed(&mut self, network: NetworkId, server: IpAddr, sent: Instant) {
        if self.telling.is_some()
            && let Some(entry) = self.entries.peek_mut(&(network, server))
            && entry.told.is_none_or(|told| sent.saturating_since(told) >= TELL_EVERY)
        {
            entry.told = Some(sent);
            self.tell(network, server, || What::Passed(sent));
        }
    }

    /// Records what the answer to a SYN with the cookie `used` says about cookies. `was_rotating` is from before it.
    pub(super) fn tell_answer(
        &mut self,
        (network, server): (NetworkId, IpAddr),
        used: &StoredCookie,
        answer: CookieAnswer,
        fresh: Option<(Cookie, FastOpenForm)>,
        was_rotating: bool,
        now: Instant,
    ) {
        let rotating = self.entries.peek(&(network, server)).is_some_and(|e| e.cookies.is_rotating());
        match (answer, fresh.filter(|(cookie, _)| *cookie != used.cookie)) {
            (CookieAnswer::Accepted, None) if was_rotating => {
                self.tell(network, server, || What::Plain(*used))
            }
            (_, None) => {}
            (_, Some((cookie, form))) => {
                self.tell(network, server, || What::Spent(used.cookie, rotating));
                if !rotating {
                    self.tell(network, server, || What::Cookie(cookie, form, now));
                }
            }
        }
    }
}

impl Entry {
    /// What another store of the same client may know of this server: all but cookies for one use.
    #[must_use]
    pub fn to_share(&self) -> Self {
        let mut entry = self.clone();
        if entry.cookies.is_rotating() {
            entry.cookies.clear();
        }
        entry
    }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
