//! What a client remembers of servers: cookies, and what the next SYN to them needs to know.

mod cookies;
mod entry;
mod failures;
mod path;

pub use cookies::{Answer, CookieSet, MAX_COOKIES, StoredCookie};
pub use entry::Entry;
pub use failures::{Failures, Permission};
pub use path::{PathMss, PathRtt};

use crate::asap::Identity;
use crate::lru::Lru;
use core::net::IpAddr;
use core::time::Duration;
use entry::Ladder;
use firstflight_wire::Instant;
use firstflight_wire::tcp::{Cookie, FastOpenForm};

/// The local network that something was learnt on: 16 bytes that mean nothing here. A cookie used on
/// another network than its own would tell the server that both are the same user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct NetworkId(pub [u8; 16]);

impl NetworkId {
    /// All zero: the network is not known.
    pub const UNKNOWN: Self = Self([0; 16]);

    /// The same network for TCP in UDP datagrams. What routers do to TCP's options and to SYNs with data says
    /// nothing about UDP, so what was learnt of servers there is kept apart.
    #[must_use]
    pub fn over_udp(self) -> Self {
        Self(self.0.map(|byte| !byte))
    }

    /// Whether it names a network.
    #[must_use]
    pub fn is_known(&self) -> bool {
        *self != Self::UNKNOWN && *self != Self::UNKNOWN.over_udp()
    }
}

/// What a client knows when it connects: see [`CredentialStore::prospect`].
#[derive(Debug, Clone, Copy)]
pub struct Prospect {
    /// What the SYN may carry, by what is known of failures.
    pub permission: Permission,
    /// The form in which to ask for one.
    pub form: FastOpenForm,
    /// The first timeout: see [`CredentialStore::syn_timeout`].
    pub timeout: Duration,
    /// The MSS of the server's last SYN-ACK, bytes.
    pub mss: Option<u16>,
    /// See [`CredentialStore::path_mss`].
    pub path_mss: Option<u16>,
}

impl Prospect {
    const UNKNOWN: Self = Self {
        permission: Permission::Everything,
        form: FastOpenForm::Standard,
        timeout: path::SYN_TIMEOUT_MAX,
        mss: None,
        path_mss: None,
    };
}

/// The client's memory of servers, by local network and server address. Bounded; the server used least
/// recently is forgotten.
///
/// All of it belongs to one network: whoever moves to another uses none of it, and without an id for the
/// network calls [`CredentialStore::flush`].
#[derive(Debug)]
pub struct CredentialStore {
    entries: Lru<(NetworkId, IpAddr), Entry>,
    /// Servers that have shown that they understand ASAP, or made it doubtful, by what they are called, and until
    /// when that counts. Not saved: a day is soon over, and a probe costs nothing.
    asap: Lru<(NetworkId, IpAddr, Identity), (bool, Instant)>,
    /// Servers that saw this client under another address than that of its certificate: that address, and until when
    /// no certificate for it is shown to them.
    mismatches: Lru<(NetworkId, IpAddr), (IpAddr, Instant)>,
    changes: u64,
    /// Cookies are good for many SYNs at once, and failures change nothing.
    simple: bool,
}

/// How long a server counts as understanding ASAP after it showed that it does.
const SPEAKS_ASAP: Duration = Duration::from_secs(86_400);
/// How long no certificate for an address is shown to a server that saw this client under another one. Then the address
/// translator may have chosen another.
const MISMATCH: Duration = Duration::from_secs(10 * 60);

impl CredentialStore {
    /// Remembers up to `capacity` servers; 0 remembers nothing.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            entries: Lru::new(capacity),
            asap: Lru::new(capacity),
            mismatches: Lru::new(capacity),
            changes: 0,
            simple: false,
        }
    }

    /// Whether every cookie is good for many SYNs at once, and failures change nothing.
    #[must_use]
    pub const fn simple(mut self, simple: bool) -> Self {
        self.simple = simple;
        self
    }

    /// What is known of a server, which counts as a use.
    pub fn lookup(&mut self, network: NetworkId, server: IpAddr) -> Option<&Entry> {
        self.entries.get(&(network, server))
    }

    /// Puts back what was saved; the most recently used one now.
    pub fn restore(&mut self, network: NetworkId, server: IpAddr, entry: Entry) {
        let form = entry.cookie().map(|held| held.form);
        self.learn(network, server, |known| {
            *known = entry;
            if let Some(form) = form {
                known.ladder = Ladder::Answered(form);
            }
        });
    }

    /// Takes the round-trip time of a visit that ended, smoothed with those before.
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

    /// Takes the round-trip time of a connection that is not over yet, if none is known: the next connect may begin before
    /// this one is over. True if it was taken. At the end [`CredentialStore::forget_rtt`] is called before
    /// [`CredentialStore::learn_rtt`], so that one connection does not count twice.
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
        taken
    }

    /// Forgets the round-trip time.
    pub fn forget_rtt(&mut self, network: NetworkId, server: IpAddr) {
        self.learn(network, server, |entry| entry.rtt = None);
    }

    /// The same of one whose first flight was accepted and answered: [`CredentialStore::note_success`].
    #[inline(always)]
    pub fn learn_visit(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        srtt: Duration,
        rttvar: Duration,
        now: Instant,
    ) {
        self.learn(network, server, |entry| {
            entry.rtt = Some(PathRtt::next(entry.rtt, srtt, rttvar, now));
            entry.failures.succeed();
        });
    }

    /// Takes the MSS of a SYN-ACK, bytes. One of 0 is ignored: nothing would fit.
    pub fn learn_mss(&mut self, network: NetworkId, server: IpAddr, mss: u16) {
        if mss > 0 {
            self.learn(network, server, |entry| entry.mss = Some(mss));
        }
    }

    /// A router could not pass more than segments of `mss` bytes (options not counted) on the way there.
    pub fn learn_path_mss(&mut self, network: NetworkId, server: IpAddr, mss: u16, now: Instant) {
        self.learn(network, server, |entry| entry.path_mss = Some(PathMss::new(mss, now)));
    }

    /// What the path to a server takes at most, if a router said so in the last ten minutes.
    #[must_use]
    pub fn path_mss(&self, network: NetworkId, server: IpAddr, now: Instant) -> Option<u16> {
        self.entries.peek(&(network, server))?.path_mss?.current(now)
    }

    /// Takes a cookie that was asked for and came in this form.
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
            entry.ladder = Ladder::Answered(form);
        });
    }

    /// All that a SYN to `server` needs to know when it leaves now, in one look, which counts as a use. `cookie`
    /// becomes the one to show, if the SYN may carry data; it is taken, see [`CredentialStore::take_cookie`].
    // Inlined, and the cookie written where it stays.
    #[inline(always)]
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
        }
    }

    /// The cookie for a SYN that leaves now. Tell [`CredentialStore::note_answer`] what became of it: the
    /// cookie of a server that grants them for one use is out of the store until then.
    pub fn take_cookie(&mut self, network: NetworkId, server: IpAddr) -> Option<StoredCookie> {
        let mut cookie = None;
        self.entries.get_mut(&(network, server))?.cookies.take(&mut cookie);
        cookie
    }

    /// What became of a SYN with the cookie `used`; `fresh` is the cookie that the SYN-ACK carried.
    //= rfc7413 4.2.2-e
    #[inline(never)]
    pub fn note_answer(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        used: &StoredCookie,
        answer: Answer,
        fresh: Option<(Cookie, FastOpenForm)>,
        now: Instant,
    ) {
        // A server that was forgotten meanwhile is not remembered for a used cookie alone.
        let Some(entry) = self.entries.peek_mut(&(network, server)) else { return };
        self.changes += 1;
        entry.answered(used, answer, fresh, now);
    }

    /// The same with the MSS of that SYN-ACK, in one look: [`CredentialStore::learn_mss`].
    #[allow(clippy::too_many_arguments, reason = "two calls in one")]
    #[inline(always)]
    pub fn note_syn_ack(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        mss: Option<u16>,
        used: &StoredCookie,
        answer: Answer,
        fresh: Option<(Cookie, FastOpenForm)>,
        now: Instant,
    ) {
        let Some(mss) = mss.filter(|mss| *mss > 0) else {
            return self.note_answer(network, server, used, answer, fresh, now);
        };
        self.learn(network, server, |entry| {
            entry.mss = Some(mss);
            entry.answered(used, answer, fresh, now);
        });
    }

    /// Drops the cookies, and nothing else: the next SYN asks for another.
    pub fn forget_cookies(&mut self, network: NetworkId, server: IpAddr) {
        if let Some(entry) = self.entries.peek_mut(&(network, server)) {
            entry.cookies.clear();
            self.changes += 1;
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
    /// `identity`: only then may it be sent a credential block, which any other server might hand to its
    /// application. `Some(false)`: its answer to a block made that doubtful; `None`: nothing is known.
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

    /// It has shown that it does, or, asked, that it does not.
    pub fn note_asap(
        &mut self,
        network: NetworkId,
        server: IpAddr,
        identity: &Identity,
        capable: bool,
        now: Instant,
    ) {
        // Of those that do not, only the ones of which something else was thought are kept in mind.
        if capable || self.asap.peek(&(network, server, identity.clone())).is_some() {
            self.learn_asap(network, server, identity, capable, now);
        }
    }

    /// A block got an answer from it that a server which understands ASAP does not give, or that did not get here
    /// whole: it is to be asked first for a day, even if it is known to understand.
    pub fn doubt_asap(&mut self, network: NetworkId, server: IpAddr, identity: &Identity, now: Instant) {
        self.learn_asap(network, server, identity, false, now);
    }

    /// The server refused a certificate for `address`, because it sees this client under another address.
    pub fn note_mismatch(&mut self, network: NetworkId, server: IpAddr, address: IpAddr, now: Instant) {
        let known = (address, now + MISMATCH);
        if let Some(entry) = self.mismatches.get_or_insert((network, server), || known) {
            *entry = known;
        }
    }

    /// Whether the server has refused a certificate for `address` so within the last ten minutes. A certificate for
    /// another address may be shown to it.
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
        if let Some(entry) = self.asap.get_or_insert((network, server, identity.clone()), || known) {
            *entry = known;
        }
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

    /// The same, the one used least recently first: [`CredentialStore::restore`] in this order gives the
    /// same store.
    pub fn iter_by_use(&self) -> impl Iterator<Item = (NetworkId, IpAddr, &Entry)> {
        self.entries.iter_by_use().map(|(&(network, server), entry)| (network, server, entry))
    }

    /// Counts changes: who saves the store compares.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// In which form to ask this server for a cookie: the one that it granted in before; else the
    /// standard one (34), after an unanswered request the experimental one (254), then 34 for ever.
    #[must_use]
    pub fn request_form(&self, network: NetworkId, server: IpAddr) -> FastOpenForm {
        self.entries.peek(&(network, server)).map_or(FastOpenForm::Standard, Entry::request_form)
    }

    /// A SYN with a request in `form` was answered by a SYN-ACK without a cookie. Not for a SYN that was
    /// retransmitted: the plain one may be what was answered.
    pub fn note_unanswered(&mut self, network: NetworkId, server: IpAddr, form: FastOpenForm) {
        self.learn(network, server, |entry| {
            entry.ladder = match (entry.ladder, form) {
                (Ladder::Fresh, FastOpenForm::Standard) => Ladder::TryExperimental,
                (Ladder::Fresh | Ladder::TryExperimental, FastOpenForm::Experimental) => Ladder::GaveUp,
                // It may have learnt the standard form since: from the start.
                (Ladder::Answered(_), FastOpenForm::Experimental) => Ladder::Fresh,
                // It granted in this form once, so it is at its pending limit, or switched off.
                (state, _) => state,
            };
        });
    }

    /// The first timeout of a SYN: max(1.5·SRTT, SRTT + 4·RTTVAR) between 50 ms and 1 s, from a
    /// round-trip time at most an hour old; 1 s without one.
    #[must_use]
    pub fn syn_timeout(&self, network: NetworkId, server: IpAddr, now: Instant) -> Duration {
        let rtt = self.entries.peek(&(network, server)).and_then(|entry| entry.rtt);
        rtt.and_then(|rtt| rtt.syn_timeout(now)).unwrap_or(path::SYN_TIMEOUT_MAX)
    }

    /// A SYN with a Fast Open option, or the connection that it opened, came to nothing where a plain one
    /// went through: neither option nor data to this server for a minute, twice as long after each further
    /// failure, at most a day. Other servers are not concerned.
    //= rfc7413 4.1.3.1-a
    pub fn note_failure(&mut self, network: NetworkId, server: IpAddr, now: Instant) {
        self.learn(network, server, |entry| entry.failures.fail(Permission::Nothing, now));
    }

    /// A first flight to this server was accepted, and answered: earlier failures are forgotten.
    pub fn note_success(&mut self, network: NetworkId, server: IpAddr) {
        if let Some(entry) = self.entries.peek_mut(&(network, server)) {
            entry.failures.succeed();
            self.changes += 1;
        }
    }

    /// Whether a first flight to this server was accepted and answered before, and none failed since: the path
    /// passes what follows a SYN with data.
    #[must_use]
    pub fn is_proven(&self, network: NetworkId, server: IpAddr) -> bool {
        self.entries.peek(&(network, server)).is_some_and(|entry| entry.failures.proven())
    }

    /// What a SYN to this server may carry, by what is known of failures.
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
