//! What a client remembers of servers: cookies, and what the next SYN to them needs to know.

use crate::lru::Lru;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Cookie, FastOpenForm};

/// Oldest round-trip time that still sets a SYN's timeout.
const RTT_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// Bounds of a SYN's first timeout. The upper one is the initial RTO of RFC 6298 §2.1.
const SYN_TIMEOUT_MIN: Duration = Duration::from_millis(50);
const SYN_TIMEOUT_MAX: Duration = Duration::from_secs(1);
/// How long a server is left alone after its first failure, and at most.
const BACKOFF_MIN: Duration = Duration::from_secs(60);
const BACKOFF_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The local network that something was learnt on: 16 bytes that mean nothing here. A cookie used on
/// another network than its own would tell the server that both are the same user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NetworkId(pub [u8; 16]);

/// What is remembered of one server on one network.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Entry {
    /// The cookie to present.
    pub cookie: Option<Cookie>,
    /// The option's form in which the server granted it.
    pub form: FastOpenForm,
    /// The MSS of its last SYN-ACK, bytes (RFC 7413 §4.1.3.1).
    pub mss: Option<u16>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Variation of the round-trip time.
    pub rttvar: Option<Duration>,
    /// When the round-trip time was learnt; [`Instant::ZERO`] without one.
    pub rtt_at: Instant,
    /// When the cookie was granted; [`Instant::ZERO`] without one.
    pub cookie_at: Instant,
    ladder: Ladder,
    failures: u32,
    retry_at: Instant,
}

impl Entry {
    const fn new() -> Self {
        Self {
            cookie: None,
            form: FastOpenForm::Standard,
            mss: None,
            srtt: None,
            rttvar: None,
            rtt_at: Instant::ZERO,
            cookie_at: Instant::ZERO,
            ladder: Ladder::Fresh,
            failures: 0,
            retry_at: Instant::ZERO,
        }
    }

    /// Failures in a row of first flights to it.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.failures
    }
}

/// In which form to ask for a cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ladder {
    /// Nothing known: 34.
    Fresh,
    /// 34 got no answer: 254, once.
    TryExperimental,
    /// 254 got none either: 34 for ever.
    GaveUp,
    /// A cookie came in the entry's form.
    Answered,
}

/// The client's memory of servers, by local network and server address. Bounded; the server used least
/// recently is forgotten.
///
/// All of it belongs to one network: whoever moves to another uses none of it, and without an id for the
/// network calls [`CredentialStore::flush`].
#[derive(Debug)]
pub struct CredentialStore {
    entries: Lru<(NetworkId, IpAddr), Entry>,
}

impl CredentialStore {
    /// Remembers up to `capacity` servers; 0 remembers nothing.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self { entries: Lru::new(capacity) }
    }

    /// What is known of a server, which counts as a use.
    pub fn lookup(&mut self, network: NetworkId, server: IpAddr) -> Option<&Entry> {
        self.entries.get(&(network, server))
    }

    /// Takes a measured round-trip time.
    pub fn learn_rtt(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        srtt: Duration,
        rttvar: Duration,
        now: Instant,
    ) {
        self.learn(network, server, |entry| {
            (entry.srtt, entry.rttvar, entry.rtt_at) = (Some(srtt), Some(rttvar), now);
        });
    }

    /// Takes the MSS of a SYN-ACK, bytes. One of 0 is ignored: nothing would fit.
    pub fn learn_mss(&mut self, network: NetworkId, server: IpAddr, mss: u16) {
        if mss > 0 {
            self.learn(network, server, |entry| entry.mss = Some(mss));
        }
    }

    /// Takes a cookie that was asked for and came in this form. It replaces an older one; a SYN-ACK
    /// without a cookie does not.
    pub fn learn_cookie(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        form: FastOpenForm,
        cookie: Cookie,
        now: Instant,
    ) {
        self.learn(network, server, |entry| {
            (entry.cookie, entry.form, entry.cookie_at) = (Some(cookie), form, now);
            entry.ladder = Ladder::Answered;
        });
    }

    /// Drops the cookie, and nothing else: the next SYN asks for another.
    pub fn forget_cookie(&mut self, network: NetworkId, server: IpAddr) {
        if let Some(entry) = self.entries.peek_mut(&(network, server)) {
            (entry.cookie, entry.cookie_at) = (None, Instant::ZERO);
        }
    }

    /// Forgets everything.
    pub fn flush(&mut self) {
        self.entries.clear();
    }

    /// Servers remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no server is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything remembered, by network and address.
    pub fn iter(&self) -> impl Iterator<Item = (NetworkId, IpAddr, &Entry)> {
        self.entries.iter().map(|(&(network, server), entry)| (network, server, entry))
    }

    /// In which form to ask this server for a cookie: the one that it granted in before; else the
    /// standard one (34), after an unanswered request the experimental one (254), then 34 for ever.
    #[must_use]
    pub fn request_form(&self, network: NetworkId, server: IpAddr) -> FastOpenForm {
        match self.entries.peek(&(network, server)) {
            Some(entry) => match entry.ladder {
                Ladder::Fresh | Ladder::GaveUp => FastOpenForm::Standard,
                Ladder::TryExperimental => FastOpenForm::Experimental,
                Ladder::Answered => entry.form,
            },
            None => FastOpenForm::Standard,
        }
    }

    /// A SYN with a request in `form` was answered by a SYN-ACK without a cookie. Not for a SYN that was
    /// retransmitted: the plain one may be what was answered.
    pub fn note_unanswered(&mut self, network: NetworkId, server: IpAddr, form: FastOpenForm) {
        self.learn(network, server, |entry| {
            entry.ladder = match (entry.ladder, form) {
                (Ladder::Fresh, FastOpenForm::Standard) => Ladder::TryExperimental,
                (Ladder::Fresh | Ladder::TryExperimental, FastOpenForm::Experimental) => Ladder::GaveUp,
                // It may have learnt the standard form since: from the start.
                (Ladder::Answered, FastOpenForm::Experimental) => Ladder::Fresh,
                // It granted in this form once, so it is at its pending limit, or switched off.
                (state, _) => state,
            };
        });
    }

    /// The first timeout of a SYN: max(1.5·SRTT, SRTT + 4·RTTVAR) between 50 ms and 1 s, from a
    /// round-trip time at most an hour old; 1 s without one.
    #[must_use]
    pub fn syn_timeout(&self, network: NetworkId, server: IpAddr, now: Instant) -> Duration {
        let measured = self
            .entries
            .peek(&(network, server))
            .filter(|entry| now.saturating_since(entry.rtt_at) <= RTT_LIFETIME)
            .and_then(|entry| Some((entry.srtt?, entry.rttvar?)));
        match measured {
            Some((srtt, rttvar)) => srtt
                .saturating_add(srtt / 2)
                .max(srtt.saturating_add(rttvar.saturating_mul(4)))
                .clamp(SYN_TIMEOUT_MIN, SYN_TIMEOUT_MAX),
            None => SYN_TIMEOUT_MAX,
        }
    }

    /// A first flight to this server failed where a plain SYN went through: data is kept out of the SYNs
    /// to it for a minute, twice as long after each further failure, at most a day. Other servers are not
    /// concerned.
    pub fn note_failure(&mut self, network: NetworkId, server: IpAddr, now: Instant) {
        self.learn(network, server, |entry| {
            // Connections opened together fail together: that is one failure.
            if now < entry.retry_at {
                return;
            }
            // Doublings beyond the largest pause change nothing.
            let doubled = BACKOFF_MIN.saturating_mul(1 << entry.failures.min(16));
            entry.failures = entry.failures.saturating_add(1);
            entry.retry_at = now + doubled.min(BACKOFF_MAX);
        });
    }

    /// A first flight to this server was accepted: earlier failures are forgotten.
    pub fn note_success(&mut self, network: NetworkId, server: IpAddr) {
        if let Some(entry) = self.entries.peek_mut(&(network, server)) {
            (entry.failures, entry.retry_at) = (0, Instant::ZERO);
        }
    }

    /// Whether a SYN to this server may carry data, by what is known of failures.
    #[must_use]
    pub fn may_try(&self, network: NetworkId, server: IpAddr, now: Instant) -> bool {
        self.entries.peek(&(network, server)).is_none_or(|entry| now >= entry.retry_at)
    }

    fn learn(&mut self, network: NetworkId, server: IpAddr, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_or_insert((network, server), Entry::new) {
            change(entry);
        }
    }
}

#[cfg(test)]
mod tests;
