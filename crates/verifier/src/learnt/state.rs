//! The machine: what was learnt, and what is to be asked next.

use super::rules::{Host, Named, is_below};
use crate::pool::{due, is_usable};
use firstflight_credential::NetworkId;
use firstflight_credential::asap::ClientCertificate;
use firstflight_wire::Instant;
use firstflight_wire::asap::VerifierId;
use lru::LruCache;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Verifiers learnt from the record of one host, and in all.
const FOR_A_HOST: usize = 2;
const IN_ALL: usize = 16;
/// Hosts of which it is known that their records name verifiers.
const HOSTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// A verifier is used for this time at most.
const MOST_LASTS: Duration = Duration::from_secs(24 * 3600);
/// A visit ends when the site was not visited for this time.
const VISIT: Duration = Duration::from_secs(60);
/// A certificate is renewed for this time after a visit.
const RENEWED_FOR: Duration = Duration::from_secs(3600);
/// Pauses after questions without a CHALLENGE, as long as there was none.
const STRANGE: RangeInclusive<Duration> = Duration::from_secs(3600)..=MOST_LASTS;
/// Pauses after other failures.
const PAUSES: RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(600);
/// A host's record is asked about once in this time, at most and at least, and all records together at this rate.
const RECORD_EVERY: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3600);
const RECORDS: Rate = Rate { most: 6, within: Duration::from_secs(60) };
/// Addresses that have given no CHALLENGE, which are remembered. If there are more, no other one is asked.
const STRANGERS: usize = 64;
/// Datagrams to all learnt verifiers.
const DATAGRAMS: Rate = Rate { most: 10, within: Duration::from_secs(60) };

/// What is to be done next.
#[derive(Debug)]
pub(super) enum Task {
    /// Ask what the record of this host names, and whether those that it names agree.
    Learn(Host),
    /// Obtain a certificate.
    Obtain(Wish),
}

/// A certificate to obtain.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) named: Named,
    pub(super) v4: bool,
    /// The certificate that it renews.
    pub(super) old: Option<Arc<ClientCertificate>>,
    /// The verifier has given a challenge before.
    pub(super) answered: bool,
    site: String,
    /// The network's number.
    era: u64,
}

/// What a record named, whose verifiers agree.
#[derive(Debug)]
pub(super) struct Answer {
    /// In the site's order.
    pub(super) verifiers: Vec<Named>,
    /// How long the answers may be used, at least.
    pub(super) ttl: Duration,
    pub(super) authentic: bool,
}

/// How often something may happen.
#[derive(Debug)]
struct Rate {
    most: usize,
    within: Duration,
}

#[derive(Debug, Default)]
struct Spent(VecDeque<Instant>);

impl Spent {
    fn next(&mut self, rate: &Rate, now: Instant) -> Option<Instant> {
        self.0.retain(|at| *at + rate.within > now);
        if self.0.len() < rate.most { None } else { self.0.front().map(|first| *first + rate.within) }
    }

    fn spend(&mut self, rate: &Rate, now: Instant) -> bool {
        let may = self.next(rate, now).is_none();
        if may {
            self.0.push_back(now);
        }
        may
    }
}

/// An address that has given no CHALLENGE.
#[derive(Debug, Default)]
struct Stranger {
    /// Datagrams that it got.
    sent: u32,
    /// When it may get the next one.
    next: Instant,
}

/// A host whose record names verifiers.
#[derive(Debug)]
struct Naming {
    port: u16,
    /// Until when the record may be used.
    until: Instant,
    /// When it is asked about, if it is to be.
    at: Option<Instant>,
    /// Not before this time.
    not_before: Instant,
    /// Visited in this family.
    v4: bool,
}

/// A learnt verifier.
#[derive(Debug)]
pub(super) struct Learnt {
    pub(super) named: Named,
    pub(super) site: String,
    /// The host whose record named it last.
    pub(super) by: String,
    pub(super) since: Instant,
    /// By authenticated answers.
    pub(super) authentic: bool,
    pub(super) until: Instant,
    /// Its site was visited.
    visited: Instant,
    /// It has given a challenge.
    answered: bool,
    /// It was seen to say what is not so, and is asked no more.
    dropped: bool,
    by_family: [Shelf; 2],
}

/// The certificate of one family.
#[derive(Debug, Default)]
struct Shelf {
    certificate: Option<Arc<ClientCertificate>>,
    /// When it is asked for, if it is to be.
    at: Option<Instant>,
    asking: bool,
    failures: u32,
    retry_at: Instant,
}

impl Learnt {
    fn is_alive(&self, now: Instant) -> bool {
        let visit = self.authentic || self.visited + VISIT > now;
        self.until > now && visit
    }

    const fn family(&mut self, v4: bool) -> &mut Shelf {
        let [six, four] = &mut self.by_family;
        if v4 { four } else { six }
    }

    pub(super) fn certificates(&self) -> impl Iterator<Item = &Arc<ClientCertificate>> {
        self.by_family.iter().filter_map(|shelf| shelf.certificate.as_ref())
    }

    /// When the certificate of a family is to be asked for.
    fn asked_at(&self, v4: bool) -> Option<Instant> {
        let [six, four] = &self.by_family;
        let shelf = if v4 { four } else { six };
        if shelf.asking || self.dropped {
            return None;
        }
        let at = match &shelf.certificate {
            Some(held) => Some(due(held)).filter(|at| *at < self.visited + RENEWED_FOR),
            None => shelf.at,
        };
        at.map(|at| at.max(shelf.retry_at))
    }
}

/// Everything that was learnt on this network.
#[derive(Debug)]
pub(super) struct State {
    network: NetworkId,
    era: u64,
    /// Verifiers that the client was configured with.
    configured: Vec<VerifierId>,
    naming: LruCache<String, Naming>,
    /// A record is being asked about.
    learning: bool,
    pub(super) learnt: Vec<Learnt>,
    records: Spent,
    datagrams: Spent,
    strangers: BTreeMap<IpAddr, Stranger>,
}

impl State {
    pub(super) fn new(configured: Vec<VerifierId>, network: NetworkId) -> Self {
        let (naming, learnt) = (LruCache::new(HOSTS), Vec::new());
        let (records, datagrams) = (Spent::default(), Spent::default());
        let strangers = BTreeMap::new();
        Self { network, era: 0, configured, naming, learning: false, learnt, records, datagrams, strangers }
    }

    /// The host is on this network. Nothing that was learnt on another one is kept, nor on one that cannot be told from the next.
    pub(super) fn set_network(&mut self, network: NetworkId) {
        if network == self.network {
            return;
        }
        self.network = network;
        self.era += 1;
        self.learning = false;
        self.naming.clear();
        self.learnt.clear();
    }

    /// The record of `host`, for its server at `port`, names verifiers, and may be used for `ttl`.
    pub(super) fn handle_record(&mut self, host: &Host, ttl: Duration, now: Instant) {
        let until = now + ttl.min(MOST_LASTS);
        match self.naming.get_mut(&host.name) {
            Some(naming) => (naming.until, naming.port) = (until, host.port),
            None => {
                let naming = Naming { port: host.port, until, at: None, not_before: Instant::ZERO, v4: true };
                self.naming.push(host.name.clone(), naming);
            }
        }
    }

    /// The record of `host` names none.
    pub(super) fn handle_no_record(&mut self, host: &str) {
        self.naming.pop(host);
        self.learnt.retain(|one| one.by != host);
    }

    /// `host` was visited, and its server has an address of this family. What there is to ask is asked after `delay`.
    pub(super) fn handle_visit(&mut self, host: &str, v4: bool, delay: Duration, now: Instant) {
        self.drop_over(now);
        let (mut found, at) = (false, now + delay);
        for one in self.learnt.iter_mut().filter(|one| is_below(host, &one.site)) {
            (one.visited, found) = (now, found || one.by == host);
            let shelf = one.family(v4);
            if shelf.certificate.is_none() && shelf.at.is_none() {
                shelf.at = Some(at);
            }
        }
        if let Some(naming) = self.naming.get_mut(host).filter(|naming| !found && naming.until > now) {
            naming.v4 = v4;
            naming.at.get_or_insert_with(|| at.max(naming.not_before));
        }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<Task> {
        self.drop_over(now);
        if !self.learning && self.records.next(&RECORDS, now).is_none() {
            let due = self.naming.iter().find(|(_, naming)| naming.at.is_some_and(|at| at <= now));
            if let Some((name, port)) = due.map(|(name, naming)| (name.clone(), naming.port)) {
                self.records.spend(&RECORDS, now);
                self.learning = true;
                if let Some(naming) = self.naming.peek_mut(&name) {
                    (naming.at, naming.not_before) = (None, now + *RECORD_EVERY.start());
                }
                return Some(Task::Learn(Host { name, port }));
            }
        }
        let era = self.era;
        for one in &mut self.learnt {
            let due = |v4: &bool| one.asked_at(*v4).is_some_and(|at| at <= now);
            let Some(v4) = [true, false].into_iter().find(due) else { continue };
            let shelf = one.family(v4);
            (shelf.asking, shelf.at) = (true, None);
            let old = shelf.certificate.clone();
            let (named, site) = (one.named.clone(), one.site.clone());
            return Some(Task::Obtain(Wish { named, v4, old, answered: one.answered, site, era }));
        }
        None
    }

    /// When to poll again at the latest, if nothing else happens.
    pub(super) fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        let held = if self.learning { None } else { Some(self.records.next(&RECORDS, now)) };
        let records = held.and_then(|not_before| {
            let first = self.naming.iter().filter_map(|(_, naming)| naming.at).min();
            first.map(|first| not_before.map_or(first, |not_before| first.max(not_before)))
        });
        let wishes = self.learnt.iter().flat_map(|one| [true, false].map(|v4| one.asked_at(v4))).flatten();
        wishes.chain(records).min()
    }

    /// The verifiers of a record that may be learnt: two at most, and none that the client knows otherwise.
    pub(super) fn choose(&self, host: &str, named: impl Iterator<Item = Named>) -> Vec<Named> {
        let mut chosen: Vec<Named> = Vec::new();
        for one in named {
            let id = one.key.id();
            // Ids can be ground. Two keys of one id are never both known.
            let other = |known: &Named| known.key.id() == id && known.key != one.key;
            let among_learnt = self.learnt.iter().any(|learnt| learnt.by != host && other(&learnt.named));
            let is_known = self.configured.contains(&id) || among_learnt || chosen.iter().any(other);
            if !is_known && chosen.len() < FOR_A_HOST {
                chosen.push(one);
            }
        }
        chosen
    }

    /// Answers a [`Task::Learn`]; `None` if nobody answered. What `host` named before and does not name now is forgotten.
    pub(super) fn handle_learnt(&mut self, host: &str, era: u64, answer: Option<Answer>, now: Instant) {
        if era != self.era {
            return;
        }
        self.learning = false;
        let Some(Answer { verifiers, ttl, authentic }) = answer else { return };
        let naming = self.naming.peek_mut(host);
        let v4 = naming.as_ref().is_none_or(|naming| naming.v4);
        if let Some(naming) = naming {
            naming.not_before = now + ttl.clamp(*RECORD_EVERY.start(), *RECORD_EVERY.end());
        }
        let until = now + ttl.min(MOST_LASTS);
        self.learnt.retain(|one| one.by != host || verifiers.contains(&one.named));
        for named in verifiers {
            let site = named.site(host);
            if let Some(one) = self.learnt.iter_mut().find(|one| one.named == named && one.site == site) {
                one.until = until;
                one.authentic = authentic;
                host.clone_into(&mut one.by);
            } else if self.has_place(now) {
                let mut one = Learnt {
                    named,
                    site,
                    by: host.to_owned(),
                    since: now,
                    authentic,
                    until,
                    visited: now,
                    answered: false,
                    dropped: false,
                    by_family: <[Shelf; 2]>::default(),
                };
                one.family(v4).at = Some(now);
                self.learnt.push(one);
            }
        }
    }

    /// Whether there is a place for another verifier. One whose site was not visited for an hour, and who so is renewed no more,
    /// makes a place.
    fn has_place(&mut self, now: Instant) -> bool {
        if self.learnt.len() >= IN_ALL {
            let oldest = (self.learnt.iter().enumerate()).min_by_key(|(_, one)| one.visited);
            let idle = oldest.filter(|(_, one)| one.visited + RENEWED_FOR <= now).map(|(at, _)| at);
            idle.map(|at| self.learnt.swap_remove(at));
        }
        self.learnt.len() < IN_ALL
    }

    /// Whether a datagram may leave to this address now. It counts as sent. `answered`: the verifier has given a challenge.
    pub(super) fn spend_datagram(&mut self, to: IpAddr, answered: bool, now: Instant) -> bool {
        if !answered {
            self.strangers.retain(|_, one| one.next + *STRANGE.end() > now);
            let known = self.strangers.get(&to);
            if known.map_or(self.strangers.len() >= STRANGERS, |one| one.next > now) {
                return false;
            }
        }
        let may = self.datagrams.spend(&DATAGRAMS, now);
        if may && !answered {
            let one = self.strangers.entry(to).or_default();
            let pause = STRANGE.start().saturating_mul(1 << one.sent.min(16)).min(*STRANGE.end());
            (one.sent, one.next) = (one.sent.saturating_add(1), now + pause);
        }
        may
    }

    /// This address has given a challenge.
    pub(super) fn handle_challenge(&mut self, from: IpAddr) {
        self.strangers.remove(&from);
    }

    pub(super) const fn era(&self) -> u64 {
        self.era
    }

    fn of(&mut self, wish: &Wish) -> Option<&mut Learnt> {
        let era = self.era;
        let same = |one: &&mut Learnt| wish.era == era && one.named == wish.named && one.site == wish.site;
        self.learnt.iter_mut().find(same)
    }

    /// Answers a [`Task::Obtain`].
    pub(super) fn handle_obtained(&mut self, wish: &Wish, certificate: ClientCertificate) {
        let Some(one) = self.of(wish) else { return };
        one.answered = true;
        *one.family(wish.v4) = Shelf { certificate: Some(Arc::new(certificate)), ..Shelf::default() };
    }

    /// Answers a [`Task::Obtain`]. `answered`: there was a challenge. `useless`: the old certificate cannot be renewed. The
    /// verifier said to wait for `wait`, which nobody has signed.
    pub(super) fn handle_failed(
        &mut self,
        wish: &Wish,
        answered: bool,
        useless: bool,
        wait: Duration,
        now: Instant,
    ) {
        let Some(one) = self.of(wish) else { return };
        one.answered |= answered;
        let pauses = if one.answered { PAUSES } else { STRANGE };
        let visited = one.visited;
        let shelf = one.family(wish.v4);
        shelf.asking = false;
        if useless {
            shelf.certificate = None;
        }
        let pause = pauses.start().saturating_mul(1 << shelf.failures.min(16)).min(*pauses.end());
        shelf.failures = shelf.failures.saturating_add(1);
        shelf.retry_at = now + pause.max(wait.min(*PAUSES.end()));
        if answered && shelf.certificate.is_none() && visited + VISIT > now {
            shelf.at = Some(shelf.retry_at);
        }
    }

    /// A certificate for a first flight to `host`, at an address of this family, by one of the `trusted` verifiers. `seen` is the
    /// address that a configured verifier sees.
    pub(super) fn certificate_for(
        &mut self,
        host: &str,
        v4: bool,
        trusted: &[VerifierId],
        seen: Option<IpAddr>,
        now: Instant,
    ) -> Option<Arc<ClientCertificate>> {
        self.drop_over(now);
        trusted.iter().find_map(|id| {
            let fits = |one: &&mut Learnt| one.named.key.id() == *id && is_below(host, &one.site);
            let one = self.learnt.iter_mut().find(fits)?;
            let certificate = one.family(v4).certificate.clone()?;
            if seen.is_some_and(|seen| seen != certificate.address()) {
                drop_verifier(one);
                return None;
            }
            is_usable(&certificate, now).then_some(certificate)
        })
    }

    /// Whether there is any certificate.
    pub(super) fn has_any(&self, now: Instant) -> bool {
        let alive = self.learnt.iter().filter(|one| one.is_alive(now));
        alive.flat_map(Learnt::certificates).any(|held| is_usable(held, now))
    }

    /// A server refused this certificate. Returns whether it is one of these.
    pub(super) fn forget(&mut self, certificate: &ClientCertificate) -> bool {
        let found = self.holder(certificate);
        if let Some(one) = found {
            one.by_family.iter_mut().for_each(|shelf| shelf.certificate = None);
            return true;
        }
        false
    }

    /// A server sees another address than the verifier of this certificate: it is asked no more. Returns whether it is one of these.
    pub(super) fn mismatched(&mut self, certificate: &ClientCertificate) -> bool {
        self.holder(certificate).map(drop_verifier).is_some()
    }

    fn holder(&mut self, certificate: &ClientCertificate) -> Option<&mut Learnt> {
        let key = certificate.body().client_key;
        self.learnt.iter_mut().find(|one| one.certificates().any(|held| held.body().client_key == key))
    }

    fn drop_over(&mut self, now: Instant) {
        self.learnt.retain(|one| one.is_alive(now));
        for one in &mut self.learnt {
            for shelf in &mut one.by_family {
                if shelf.certificate.as_ref().is_some_and(|held| !is_usable(held, now)) {
                    shelf.certificate = None;
                }
            }
        }
    }
}

/// It stays in the list until its record ends, so that it is not learnt again.
fn drop_verifier(one: &mut Learnt) {
    one.dropped = true;
    one.by_family = Default::default();
}
