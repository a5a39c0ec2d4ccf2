//! The client's memory of servers: their cookies, and what the next SYN to them depends on.

mod cookies;
mod entry;
mod exchange;
mod failures;
mod learnt;
mod path;

pub use cookies::{CookieAnswer, CookieSet, MAX_COOKIES, StoredCookie};
pub use entry::Entry;
pub use failures::{Failures, Permission};
pub use learnt::LearntOfServer;
pub use path::{PathMss, PathRtt};

use crate::identity::Identity;
use crate::lru::Lru;
use crate::network::NetworkId;
use core::net::IpAddr;
use core::time::Duration;
use entry::FormFallback;
use failures::LostFlight;
use firstflight_wire::Instant;
use firstflight_wire::hint::unlikely;
use firstflight_wire::tcp::{Cookie, FastOpenForm};
use learnt::{Telling, What};

/// What a client knows about a server when it connects: see [`CredentialStore::prospect`].
#[derive(Debug, Clone, Copy)]
pub struct Prospect {
    /// What the SYN may carry, according to the failure memory.
    pub permission: Permission,
    /// The option form in which to ask for a cookie.
    pub form: FastOpenForm,
    /// The first timeout: see [`CredentialStore::syn_timeout`].
    pub timeout: Duration,
    /// The MSS of the server's last SYN-ACK, bytes.
    pub mss: Option<u16>,
    /// See [`CredentialStore::path_mss`].
    pub path_mss: Option<u16>,
    /// The latest first flight got no answer, so a plain SYN follows the next one at once: see
    /// [`CredentialStore::note_lost`].
    pub doubtful: bool,
}

impl Prospect {
    const UNKNOWN: Self = Self {
        permission: Permission::Everything,
        form: FastOpenForm::Standard,
        timeout: path::SYN_TIMEOUT_MAX,
        mss: None,
        path_mss: None,
        doubtful: false,
    };
}

/// The client's memory of servers, by local network and server address. It is bounded: the least recently
/// used server is forgotten.
///
/// Each entry belongs to one network and is not used on another. A client that has no id for its network must
/// call [`CredentialStore::flush`] when it moves.
#[derive(Debug)]
pub struct CredentialStore {
    entries: Lru<(NetworkId, IpAddr), Entry>,
    /// By server and identity: whether the server has shown that it understands ASAP (false: that is
    /// doubtful), and until when this counts. It is not saved, because it counts for a day only, and a probe
    /// costs nothing.
    asap: Lru<(NetworkId, IpAddr, Identity), (bool, Instant)>,
    /// Servers that saw this client under another address than that of its certificate: the certificate's
    /// address, and until when no certificate for it is sent to them.
    mismatches: Lru<(NetworkId, IpAddr), (IpAddr, Instant)>,
    changes: u64,
    /// Each cookie is used for many SYNs at the same time, and failures are ignored.
    simple: bool,
    /// What the other stores of the client must know, if there are any.
    telling: Option<Telling>,
}

/// How long a server counts as understanding ASAP after it showed that it does.
const SPEAKS_ASAP: Duration = Duration::from_secs(86_400);
/// How often the other stores of a client hear that a server still understands it.
const TELL_ASAP_EVERY: Duration = Duration::from_secs(3600);
/// How long no certificate for an address is sent to a server that saw this client under another address.
/// After this time the address translator may have chosen a new address.
const MISMATCH: Duration = Duration::from_secs(10 * 60);

impl CredentialStore {
    /// Remembers up to `capacity` servers. With 0 it remembers nothing.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            entries: Lru::new(capacity),
            asap: Lru::new(capacity),
            mismatches: Lru::new(capacity),
            changes: 0,
            simple: false,
            telling: None,
        }
    }

    /// With `simple`, the store uses each cookie for many SYNs at the same time, and ignores failures.
    #[must_use]
    pub const fn simple(mut self, simple: bool) -> Self {
        self.simple = simple;
        self
    }

    /// The entry of a server. This counts as a use.
    pub fn lookup(&mut self, network: NetworkId, server: IpAddr) -> Option<&Entry> {
        self.entries.get(&(network, server))
    }

    /// Restores a saved entry, and makes it the most recently used one.
    pub fn restore(&mut self, network: NetworkId, server: IpAddr, entry: Entry) {
        let form = entry.cookie().map(|held| held.form);
        self.learn(network, server, |known| {
            *known = entry;
            if let Some(form) = form {
                known.form_fallback = FormFallback::Answered(form);
            }
        });
    }

    /// Takes the round-trip time of a connection that ended, and smooths it with the earlier ones.
    #[inline]
    pub fn learn_rtt(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        srtt: Duration,
        rttvar: Duration,
        now: Instant,
    ) {
        self.learn(network, server, |entry| {
            entry.rtt = Some(PathRtt::next(entry.rtt, srtt, rttvar, now));
        });
    }

    /// Takes the round-trip time of an open connection, if no current one is known: the next connection may
    /// begin before this one ends. True if it was taken. At the end [`CredentialStore::forget_rtt`] is called
    /// before [`CredentialStore::learn_rtt`], so that one connection does not count twice.
    pub fn learn_first_rtt(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        srtt: Duration,
        rttvar: Duration,
        now: Instant,
    ) -> bool {
        let mut taken = false;
        self.learn(network, server, |entry| {
            taken = entry.rtt.is_none_or(|rtt| !rtt.is_current(now));
            if taken {
                entry.rtt = Some(PathRtt::new(srtt, rttvar, now));
            }
        });
        if taken {
            self.tell(network, server, || What::Rtt(srtt, rttvar, now));
        }
        taken
    }

    /// Forgets the round-trip time.
    pub fn forget_rtt(&mut self, network: NetworkId, server: IpAddr) {
        self.learn(network, server, |entry| entry.rtt = None);
    }

    /// Like [`CredentialStore::learn_rtt`], for a connection whose first flight was accepted and answered:
    /// includes [`CredentialStore::note_success`].
    #[inline]
    pub fn learn_visit(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        srtt: Duration,
        rttvar: Duration,
        now: Instant,
    ) {
        let mut changed = false;
        self.learn(network, server, |entry| {
            entry.rtt = Some(PathRtt::next(entry.rtt, srtt, rttvar, now));
            changed = entry.failures.succeed();
        });
        if unlikely(changed) {
            self.tell(network, server, || What::Success);
        }
    }

    /// Takes the MSS of a SYN-ACK, bytes. An MSS of 0 is ignored, because no data would fit.
    pub fn learn_mss(&mut self, network: NetworkId, server: IpAddr, mss: u16) {
        if mss > 0 {
            let mut before = None;
            self.learn(network, server, |entry| before = entry.mss.replace(mss));
            if before != Some(mss) {
                self.tell(network, server, || What::Mss(mss));
            }
        }
    }

    /// A router on the path to the server passes only segments up to `mss` bytes (options not counted).
    pub fn learn_path_mss(&mut self, network: NetworkId, server: IpAddr, mss: u16, now: Instant) {
        self.learn(network, server, |entry| entry.path_mss = Some(PathMss::new(mss, now)));
        self.tell(network, server, || What::PathMss(mss, now));
    }

    /// The largest segment that the path to a server passes, bytes, if that was learnt in the last ten
    /// minutes.
    #[inline]
    #[must_use]
    pub fn path_mss(&self, network: NetworkId, server: IpAddr, now: Instant) -> Option<u16> {
        self.entries.peek(&(network, server))?.path_mss?.current(now)
    }

    /// Takes a cookie that the client asked for and that came in this form.
    //= rfc7413 4.1.3-a
    pub fn learn_cookie(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        form: FastOpenForm,
        cookie: Cookie,
        now: Instant,
    ) {
        self.learn(network, server, |entry| {
            entry.cookies.grant(cookie, form, now);
            entry.form_fallback = FormFallback::Answered(form);
        });
        let rotating = self.entries.peek(&(network, server)).is_some_and(|e| e.cookies.is_rotating());
        if !rotating {
            self.tell(network, server, || What::Cookie(cookie, form, now));
        }
    }

    /// All that a SYN to `server` that leaves now depends on, in one lookup, which counts as a use. If the
    /// SYN may carry data, `cookie` is set to the cookie to show, which is taken as by
    /// [`CredentialStore::take_cookie`].
    // Inlined, and the cookie is written in place to avoid a copy.
    #[inline]
    pub fn prospect(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        cookie: &mut Option<StoredCookie>,
        now: Instant,
    ) -> Prospect {
        let Some(entry) = self.entries.get_mut(&(network, server)) else {
            *cookie = None;
            return Prospect::UNKNOWN;
        };
        let permission = if self.simple { Permission::Everything } else { entry.failures.permission(now) };
        match permission {
            Permission::Everything if self.simple => *cookie = entry.cookies.newest().copied(),
            Permission::Everything => entry.cookies.take(cookie),
            Permission::Request | Permission::Nothing => *cookie = None,
        }
        Prospect {
            permission,
            form: entry.request_form(),
            timeout: entry.rtt.and_then(|rtt| rtt.syn_timeout(now)).unwrap_or(path::SYN_TIMEOUT_MAX),
            mss: entry.mss,
            path_mss: entry.path_mss.and_then(|mss| mss.current(now)),
            doubtful: !self.simple && entry.failures.lost() > 0,
        }
    }

    /// Whether a SYN that left now would carry data: there is a cookie, and nothing speaks against its use.
    #[must_use]
    pub fn holds_cookie(&self, network: NetworkId, server: IpAddr, now: Instant) -> bool {
        let entry = self.entries.peek(&(network, server));
        entry.is_some_and(|entry| {
            let free = self.simple || entry.failures.permission(now) == Permission::Everything;
            free && entry.cookies.newest().is_some()
        })
    }

    /// The cookie for a SYN that leaves now. Report the result by [`CredentialStore::note_answer`]: if the
    /// server grants cookies for one use, the cookie is out of the store until then.
    pub fn take_cookie(&mut self, network: NetworkId, server: IpAddr) -> Option<StoredCookie> {
        let mut cookie = None;
        self.entries.get_mut(&(network, server))?.cookies.take(&mut cookie);
        cookie
    }

    /// Takes the result of a SYN with the cookie `used`. `fresh` is the cookie that the SYN-ACK carried.
    //= rfc7413 4.2.2-e
    pub fn note_answer(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        used: &StoredCookie,
        answer: CookieAnswer,
        fresh: Option<(Cookie, FastOpenForm)>,
        now: Instant,
    ) {
        // If the server was forgotten in the meantime, a used cookie alone does not create a new entry.
        let Some(entry) = self.entries.peek_mut(&(network, server)) else { return };
        self.changes += 1;
        let rotating = entry.cookies.is_rotating();
        entry.answered(used, answer, fresh, now);
        if unlikely(self.telling.is_some()) {
            self.tell_answer((network, server), used, answer, fresh, rotating, now);
        }
    }

    /// [`CredentialStore::note_answer`] and [`CredentialStore::learn_mss`] for the same SYN-ACK, in one
    /// lookup. If its first flight was accepted, `sent` is when its SYN left.
    #[allow(clippy::too_many_arguments, reason = "two calls in one")]
    #[inline]
    pub fn note_syn_ack(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        mss: Option<u16>,
        sent: Option<Instant>,
        used: &StoredCookie,
        answer: CookieAnswer,
        fresh: Option<(Cookie, FastOpenForm)>,
        now: Instant,
    ) {
        let Some(mss) = mss.filter(|mss| *mss > 0) else {
            return self.note_answer(network, server, used, answer, fresh, now);
        };
        let (mut before, mut rotating) = (None, false);
        self.learn(network, server, |entry| {
            (before, rotating) = (entry.mss.replace(mss), entry.cookies.is_rotating());
            if let Some(sent) = sent {
                entry.failures.pass(sent);
            }
            entry.answered(used, answer, fresh, now);
        });
        if unlikely(self.telling.is_some()) {
            if before != Some(mss) {
                self.tell(network, server, || What::Mss(mss));
            }
            if let Some(sent) = sent {
                self.tell_passed(network, server, sent);
            }
            self.tell_answer((network, server), used, answer, fresh, rotating, now);
        }
    }

    /// Drops only the cookies of a server, so the next SYN asks for a new one.
    pub fn forget_cookies(&mut self, network: NetworkId, server: IpAddr) {
        if let Some(entry) = self.entries.peek_mut(&(network, server)) {
            entry.cookies.clear();
            self.changes += 1;
            self.tell(network, server, || What::NoCookies);
        }
    }

    /// Forgets everything.
    pub fn flush(&mut self) {
        self.changes += 1;
        self.entries.clear();
        self.asap.clear();
        self.mismatches.clear();
    }

    /// Whether the server at this address has shown within the last day that it understands ASAP as
    /// `identity`. Only then may the client send it a credential block: any other server might deliver the
    /// block to its application. `Some(false)`: an answer of the server made that doubtful. `None`: nothing
    /// is known.
    #[must_use]
    pub fn speaks_asap(
        &self,
        network: NetworkId,
        server: IpAddr,
        identity: &Identity,
        now: Instant,
    ) -> Option<bool> {
        let (speaks, until) = self.asap.peek(&(network, server, identity.clone()))?;
        (*until > now).then_some(*speaks)
    }

    /// The server's answer has shown whether it understands ASAP.
    pub fn note_asap(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        identity: &Identity,
        capable: bool,
        now: Instant,
    ) {
        // Remember that a server does not understand ASAP only if there is an earlier entry for it.
        if capable || self.asap.peek(&(network, server, identity.clone())).is_some() {
            self.learn_asap(network, server, identity, capable, now);
        }
    }

    /// The server's answer to a block was one that a server which understands ASAP does not give, or the
    /// answer was damaged on the path. For a day the client must ask the server before it sends a block, even
    /// if the server had shown that it understands ASAP.
    pub fn doubt_asap(&mut self, network: NetworkId, server: IpAddr, identity: &Identity, now: Instant) {
        self.learn_asap(network, server, identity, false, now);
    }

    /// The server refused a certificate for `address`, because it sees this client under another address.
    pub fn note_mismatch(&mut self, network: NetworkId, server: IpAddr, address: IpAddr, now: Instant) {
        self.tell(network, server, || What::Mismatch(address, now));
        let known = (address, now + MISMATCH);
        if let Some(entry) = self.mismatches.get_or_insert((network, server), || known) {
            *entry = known;
        }
    }

    /// Whether the server has refused a certificate for `address` within the last ten minutes, because it
    /// sees this client under another address. A certificate for another address may be sent to it.
    #[must_use]
    pub fn is_mismatch(&self, network: NetworkId, server: IpAddr, address: IpAddr, now: Instant) -> bool {
        self.mismatches.peek(&(network, server)).is_some_and(|known| known.0 == address && known.1 > now)
    }

    fn learn_asap(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        identity: &Identity,
        speaks: bool,
        now: Instant,
    ) {
        let known = (speaks, now + SPEAKS_ASAP);
        let before = self.asap.peek(&(network, server, identity.clone()));
        if before.is_none_or(|before| before.0 != speaks || before.1 + TELL_ASAP_EVERY <= known.1) {
            self.tell(network, server, || What::Asap(identity.clone(), speaks, now));
        }
        if let Some(entry) = self.asap.get_or_insert((network, server, identity.clone()), || known) {
            *entry = known;
        }
    }

    /// The most servers that are remembered.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// The number of servers remembered.
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

    /// Everything remembered, in the order of use, the least recently used first:
    /// [`CredentialStore::restore`] in this order gives an equal store.
    pub fn iter_by_use(&self) -> impl Iterator<Item = (NetworkId, IpAddr, &Entry)> {
        self.entries.iter_by_use().map(|(&(network, server), entry)| (network, server, entry))
    }

    /// The number of changes. A caller that saves the store compares it with the number at the last save.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// The option form in which to ask this server for a cookie: the form in which it granted one before, or
    /// else the standard form (34). After an unanswered request it is the experimental form (254) once, then
    /// always 34.
    #[must_use]
    pub fn request_form(&self, network: NetworkId, server: IpAddr) -> FastOpenForm {
        self.entries.peek(&(network, server)).map_or(FastOpenForm::Standard, Entry::request_form)
    }

    /// A SYN with a request in `form` was answered by a SYN-ACK without a cookie. Do not call it for a
    /// retransmitted SYN, because the SYN-ACK may answer a plain SYN.
    pub fn note_unanswered(&mut self, network: NetworkId, server: IpAddr, form: FastOpenForm) {
        let mut before = None;
        self.learn(network, server, |entry| {
            before = Some(entry.form_fallback);
            entry.form_fallback = match (entry.form_fallback, form) {
                (FormFallback::Fresh, FastOpenForm::Standard) => FormFallback::TryExperimental,
                (FormFallback::Fresh | FormFallback::TryExperimental, FastOpenForm::Experimental) => {
                    FormFallback::GaveUp
                }
                // The server may understand the standard form by now, so start again.
                (FormFallback::Answered(_), FastOpenForm::Experimental) => FormFallback::Fresh,
                // It granted a cookie in this form before. So it is at its pending limit, or Fast Open is
                // switched off.
                (state, _) => state,
            };
        });
        if self.entries.peek(&(network, server)).map(|entry| entry.form_fallback) != before {
            self.tell(network, server, || What::Unanswered(form));
        }
    }

    /// The first timeout of a SYN: max(1.5·SRTT, SRTT + 4·RTTVAR), between 50 ms and 1 s, from a round-trip
    /// time that is at most an hour old. Without one it is 1 s.
    #[must_use]
    pub fn syn_timeout(&self, network: NetworkId, server: IpAddr, now: Instant) -> Duration {
        let rtt = self.entries.peek(&(network, server)).and_then(|entry| entry.rtt);
        rtt.and_then(|rtt| rtt.syn_timeout(now)).unwrap_or(path::SYN_TIMEOUT_MAX)
    }

    /// A SYN with a Fast Open option, or the connection that it opened, failed where a plain SYN succeeded.
    /// The client sends neither option nor data to this server for a minute, then twice as long after each
    /// further failure, at most a day. Other servers are not affected.
    //= rfc7413 4.1.3.1-a
    pub fn note_failure(&mut self, network: NetworkId, server: IpAddr, now: Instant) {
        self.learn(network, server, |entry| entry.failures.fail(Permission::Nothing, now));
        self.tell(network, server, || What::Failure(now));
    }

    /// A SYN with a Fast Open option that left at `sent` got no answer, and a plain SYN behind it did. One such SYN was
    /// probably lost by chance: first flights go on, each followed by a plain SYN at once, which is answered even if the
    /// path takes nothing else. Four of them in a row are a failure, as in [`CredentialStore::note_failure`].
    ///
    /// It does not count if a first flight that left at that moment or later was accepted: then the path takes first
    /// flights, and the SYN fell victim to congestion, of the path or of the server.
    pub fn note_lost(&mut self, network: NetworkId, server: IpAddr, sent: Option<Instant>, now: Instant) {
        if self.lose(network, server, sent, LostFlight::Hedged, now) {
            self.tell(network, server, || What::Lost(sent, now));
        }
    }

    /// As [`CredentialStore::note_lost`], where a plain SYN follows from another port and only after the time that the
    /// first one is given, so that each lost one costs time: two in a row are a failure. Other stores are not told.
    pub fn note_lost_race(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        sent: Option<Instant>,
        now: Instant,
    ) {
        self.lose(network, server, sent, LostFlight::Raced, now);
    }

    /// Whether it counts.
    fn lose(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        sent: Option<Instant>,
        most: LostFlight,
        now: Instant,
    ) -> bool {
        let counts = !sent.is_some_and(|sent| self.passed_since(network, server, sent));
        if counts {
            self.learn(network, server, |entry| entry.failures.lose(sent, most, now));
        }
        counts
    }

    /// Whether a first flight was accepted whose SYN left at `sent` or later.
    #[must_use]
    pub fn passed_since(&self, network: NetworkId, server: IpAddr, sent: Instant) -> bool {
        self.entries.peek(&(network, server)).is_some_and(|entry| entry.failures.passed_since(sent))
    }

    /// The first flight of a SYN that left at `sent` was accepted. See [`CredentialStore::note_lost`].
    pub fn note_passed(&mut self, network: NetworkId, server: IpAddr, sent: Instant) {
        self.learn(network, server, |entry| entry.failures.pass(sent));
        self.tell_passed(network, server, sent);
    }

    /// A first flight to this server was accepted and answered. Earlier failures are forgotten.
    pub fn note_success(&mut self, network: NetworkId, server: IpAddr) {
        if let Some(entry) = self.entries.peek_mut(&(network, server)) {
            let changed = entry.failures.succeed();
            self.changes += 1;
            if changed {
                self.tell(network, server, || What::Success);
            }
        }
    }

    /// Whether a first flight to this server was accepted and answered before, and none failed since. Then
    /// the path passes the segments that follow a SYN with data.
    #[must_use]
    pub fn is_proven(&self, network: NetworkId, server: IpAddr) -> bool {
        self.entries.peek(&(network, server)).is_some_and(|entry| entry.failures.proven())
    }

    /// What a SYN to this server may carry, according to the failure memory.
    //= rfc7413 4.1.3.1-b
    #[must_use]
    pub fn permission(&self, network: NetworkId, server: IpAddr, now: Instant) -> Permission {
        if self.simple {
            return Permission::Everything;
        }
        let entry = self.entries.peek(&(network, server));
        entry.map_or(Permission::Everything, |entry| entry.failures.permission(now))
    }

    #[inline]
    fn learn(&mut self, network: NetworkId, server: IpAddr, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_or_insert((network, server), Entry::new) {
            change(entry);
            self.changes += 1;
        }
    }
}

#[cfg(test)]
mod tests;
