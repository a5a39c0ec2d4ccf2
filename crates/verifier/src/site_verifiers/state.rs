//! The machine: what was learnt, and what is to be asked next.

use super::rules::{Host, HostRule, VerifierOfSite, group, prefix};
use crate::pool::{due, is_usable};
use firstflight_credential::NetworkId;
use firstflight_credential::asap::ClientCertificate;
use firstflight_wire::Instant;
use firstflight_wire::asap::VerifierId;
use lru::LruCache;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Verifiers learnt from the record of one host, of one group of hosts, and in all.
const FOR_A_HOST: usize = 2;
const FOR_A_GROUP: usize = 4;
const IN_ALL: usize = 16;
/// Hosts of which it is known that their records name verifiers.
const HOSTS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// A verifier is used for this time at most.
const MOST_LASTS: Duration = Duration::from_secs(24 * 3600);
/// A visit ends when the site was not visited for this time, and after an hour.
const VISIT: Duration = Duration::from_secs(60);
const LONGEST_VISIT: Duration = Duration::from_secs(3600);
/// A certificate is renewed for this time after a visit.
const RENEWED_FOR: Duration = Duration::from_secs(3600);
/// Pauses of a network that has given no CHALLENGE.
const STRANGE: RangeInclusive<Duration> = Duration::from_secs(3600)..=MOST_LASTS;
/// For this time an address that has given one is no stranger.
const ANSWERED_FOR: Duration = Duration::from_secs(3600);
/// Pauses after failures.
const PAUSES: RangeInclusive<Duration> = Duration::from_secs(600)..=Duration::from_secs(3600);
/// A host's record is asked about once in this time, at most and at least, and all records together at this rate.
const RECORD_EVERY: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3600);
const RECORDS: Rate = Rate { most: 6, for_a_group: 3, within: Duration::from_secs(60) };
/// Networks that have given no CHALLENGE and addresses that have, which are remembered. If there are more networks, no other one
/// is asked.
const STRANGERS: usize = 64;
const STRANGERS_OF_A_GROUP: usize = 16;
/// Datagrams to all learnt verifiers.
const DATAGRAMS: Rate = Rate { most: 10, for_a_group: 5, within: Duration::from_secs(60) };

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
    pub(super) named: VerifierOfSite,
    pub(super) v4: bool,
    /// The certificate that it renews.
    pub(super) old: Option<Arc<ClientCertificate>>,
    /// The address of this host by which the visit went.
    pub(super) source: IpAddr,
    pub(super) site: HostRule,
    /// The network's number.
    era: u64,
}

/// What a record named, whose verifiers agree.
#[derive(Debug)]
pub(super) struct RecordAnswer {
    /// In the site's order.
    pub(super) verifiers: Vec<VerifierOfSite>,
    /// How long the answers may be used, at least.
    pub(super) ttl: Duration,
    pub(super) authentic: bool,
}

/// How often something may happen, in all and because of one group of hosts.
#[derive(Debug)]
struct Rate {
    most: usize,
    for_a_group: usize,
    within: Duration,
}

/// What has happened, and because of which group.
#[derive(Debug, Default)]
struct Spent(VecDeque<(Instant, String)>);

impl Spent {
    /// When it may happen again; `None` if it may now.
    fn next(&mut self, rate: &Rate, group: &str, now: Instant) -> Option<Instant> {
        self.0.retain(|(at, _)| *at + rate.within > now);
        let mut own = self.0.iter().filter(|(_, of)| of == group).map(|(at, _)| *at);
        let (first_own, more) = (own.next(), own.count() + 1);
        let by_group = first_own.filter(|_| more >= rate.for_a_group);
        let in_all = self.0.front().map(|(at, _)| *at).filter(|_| self.0.len() >= rate.most);
        by_group.max(in_all).map(|at| at + rate.within)
    }

    fn spend(&mut self, rate: &Rate, group: &str, now: Instant) -> bool {
        let may = self.next(rate, group, now).is_none();
        if may {
            self.0.push_back((now, group.to_owned()));
        }
        may
    }
}

/// A network that has given no CHALLENGE.
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
    /// The verifiers that the server trusts.
    trusted: Vec<VerifierId>,
    /// The address of this host by which the last visit went.
    source: Option<IpAddr>,
}

/// A learnt verifier.
#[derive(Debug)]
pub(super) struct LearntState {
    pub(super) named: VerifierOfSite,
    pub(super) site: HostRule,
    /// The host whose record named it last.
    pub(super) by: String,
    pub(super) since: Instant,
    /// By authenticated answers.
    pub(super) authentic: bool,
    pub(super) until: Instant,
    /// Its site was visited.
    visited: Instant,
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
    /// The address of this host by which the last visit went.
    source: Option<IpAddr>,
    asking: bool,
    failures: u32,
    retry_at: Instant,
}

impl LearntState {
    fn is_alive(&self, now: Instant) -> bool {
        let visit = self.authentic || (self.visited + VISIT > now && self.since + LONGEST_VISIT > now);
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
    naming: LruCache<String, Naming>,
    /// A record is being asked about.
    learning: bool,
    pub(super) learnt: Vec<LearntState>,
    records: Spent,
    datagrams: Spent,
    /// By the group of hosts that named them.
    strangers: BTreeMap<(String, IpAddr), Stranger>,
    /// Addresses that have given a challenge, and until when they are no strangers.
    answered: BTreeMap<SocketAddr, Instant>,
}

impl State {
    pub(super) fn new(network: NetworkId) -> Self {
        Self {
            network,
            era: 0,
            naming: LruCache::new(HOSTS),
            learning: false,
            learnt: Vec::new(),
            records: Spent::default(),
            datagrams: Spent::default(),
            strangers: BTreeMap::new(),
            answered: BTreeMap::new(),
        }
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
        self.strangers.clear();
        self.answered.clear();
    }

    /// The record of `host`, for its server at a port, names verifiers, says that the server trusts these, and may be used for
    /// `ttl`.
    pub(super) fn handle_record(
        &mut self,
        host: &Host,
        trusted: Vec<VerifierId>,
        ttl: Duration,
        now: Instant,
    ) {
        let until = now + ttl.min(MOST_LASTS);
        match self.naming.get_mut(&host.name) {
            Some(naming) => (naming.until, naming.port, naming.trusted) = (until, host.port, trusted),
            None => {
                let (not_before, port) = (Instant::ZERO, host.port);
                let naming = Naming { port, until, at: None, not_before, trusted, source: None };
                self.naming.push(host.name.clone(), naming);
            }
        }
    }

    /// The record of `host` names none.
    pub(super) fn handle_no_record(&mut self, host: &str) {
        self.naming.pop(host);
        self.learnt.retain(|one| one.by != host);
    }

    /// `host` was visited by this address of this host. What there is to ask is asked after `delay`.
    pub(super) fn handle_visit(&mut self, host: &str, source: IpAddr, delay: Duration, now: Instant) {
        self.drop_over(now);
        let (mut found, at) = (false, now + delay);
        for one in self.learnt.iter_mut().filter(|one| one.site.has(host)) {
            (one.visited, found) = (now, found || one.by == host);
            let shelf = one.family(source.is_ipv4());
            shelf.source = Some(source);
            if shelf.certificate.is_none() && shelf.at.is_none() {
                shelf.at = Some(at);
            }
        }
        if let Some(naming) = self.naming.get_mut(host).filter(|naming| !found && naming.until > now) {
            naming.source = Some(source);
            naming.at.get_or_insert_with(|| at.max(naming.not_before));
        }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Option<Task> {
        self.drop_over(now);
        if let Some((name, port)) = self.next_record(now) {
            self.records.spend(&RECORDS, &group(&name), now);
            self.learning = true;
            if let Some(naming) = self.naming.peek_mut(&name) {
                (naming.at, naming.not_before) = (None, now + *RECORD_EVERY.start());
            }
            return Some(Task::Learn(Host { name, port }));
        }
        let era = self.era;
        let asked = self.asked();
        for one in self.learnt.iter_mut().filter(|one| !asked.contains(&one.named.at)) {
            let due = |v4: &bool| one.asked_at(*v4).is_some_and(|at| at <= now);
            let Some(v4) = [true, false].into_iter().find(due) else { continue };
            let shelf = one.family(v4);
            (shelf.asking, shelf.at) = (true, None);
            let (old, Some(source)) = (shelf.certificate.clone(), shelf.source) else { continue };
            let (named, site) = (one.named.clone(), one.site.clone());
            return Some(Task::Obtain(Wish { named, v4, old, source, site, era }));
        }
        None
    }

    /// A host whose record is to be asked about now.
    fn next_record(&mut self, now: Instant) -> Option<(String, u16)> {
        if self.learning {
            return None;
        }
        let records = &mut self.records;
        let due = |naming: &Naming| naming.at.is_some_and(|at| at <= now);
        let mut due = self.naming.iter().filter(|(_, naming)| due(naming));
        let found = due.find(|(name, _)| records.next(&RECORDS, &group(name), now).is_none());
        found.map(|(name, naming)| (name.clone(), naming.port))
    }

    /// The hosts that are asked now. One question at a time goes to each: it may be known by several keys, and its first datagram is to
    /// find out whether it is there.
    fn asked(&self) -> Vec<Host> {
        let asked = self.learnt.iter().filter(|one| one.by_family.iter().any(|shelf| shelf.asking));
        asked.map(|one| one.named.at.clone()).collect()
    }

    /// When to poll again at the latest, if nothing else happens.
    pub(super) fn poll_timeout(&mut self, now: Instant) -> Option<Instant> {
        let records = &mut self.records;
        let waiting = self.naming.iter().filter(|_| !self.learning);
        let records = waiting.filter_map(|(name, naming)| {
            let not_before = records.next(&RECORDS, &group(name), now);
            naming.at.map(|at| not_before.map_or(at, |not_before| at.max(not_before)))
        });
        let records = records.min();
        let asked = self.asked();
        let free = self.learnt.iter().filter(|one| !asked.contains(&one.named.at));
        let wishes = free.flat_map(|one| [true, false].map(|v4| one.asked_at(v4))).flatten();
        wishes.chain(records).min()
    }

    /// The verifiers of the record of `host` that may be learnt: the first two that its server trusts. What else the client knows
    /// has no influence, or a site could find out what that is.
    pub(super) fn choose(
        &mut self,
        host: &str,
        named: impl Iterator<Item = VerifierOfSite>,
    ) -> Vec<VerifierOfSite> {
        let Some(naming) = self.naming.peek(host) else { return Vec::new() };
        named.filter(|one| naming.trusted.contains(&one.key.id())).take(FOR_A_HOST).collect()
    }

    /// Answers a [`Task::Learn`]; `None` if nobody answered. What `host` named before and does not name now is forgotten.
    pub(super) fn handle_learnt(&mut self, host: &str, era: u64, answer: Option<RecordAnswer>, now: Instant) {
        if era != self.era {
            return;
        }
        self.learning = false;
        let Some(RecordAnswer { verifiers, ttl, authentic }) = answer else { return };
        let naming = self.naming.peek_mut(host);
        let source = naming.as_ref().and_then(|naming| naming.source);
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
            } else if self.has_place(host, now) {
                let mut one = LearntState {
                    named,
                    site,
                    by: host.to_owned(),
                    since: now,
                    authentic,
                    until,
                    visited: now,
                    dropped: false,
                    by_family: <[Shelf; 2]>::default(),
                };
                if let Some(source) = source {
                    let shelf = one.family(source.is_ipv4());
                    (shelf.at, shelf.source) = (Some(now), Some(source));
                }
                self.learnt.push(one);
            }
        }
    }

    /// Whether there is a place for another verifier of the record of `host`. One whose site was not visited for an hour, and who so is
    /// renewed no more, makes a place.
    fn has_place(&mut self, host: &str, now: Instant) -> bool {
        let group = group(host);
        let own = self.learnt.iter().filter(|one| super::rules::group(&one.by) == group);
        if own.count() >= FOR_A_GROUP {
            return false;
        }
        if self.learnt.len() >= IN_ALL {
            let oldest = (self.learnt.iter().enumerate()).min_by_key(|(_, one)| one.visited);
            let idle = oldest.filter(|(_, one)| one.visited + RENEWED_FOR <= now).map(|(at, _)| at);
            idle.map(|at| self.learnt.swap_remove(at));
        }
        self.learnt.len() < IN_ALL
    }

    /// Whether a datagram may leave to a verifier of this site at this address now. It counts as sent.
    pub(super) fn spend_datagram(&mut self, site: &HostRule, to: SocketAddr, now: Instant) -> bool {
        let group = group(&site.name);
        if self.answered.get(&to).is_some_and(|until| *until > now) {
            return self.datagrams.spend(&DATAGRAMS, &group, now);
        }
        self.strangers.retain(|_, one| one.next + *STRANGE.end() > now);
        let own = self.strangers.keys().filter(|(of, _)| *of == group).count();
        let has_place = self.strangers.len() < STRANGERS && own < STRANGERS_OF_A_GROUP;
        let key = (group, prefix(to.ip()));
        let may = self.strangers.get(&key).map_or(has_place, |one| one.next <= now);
        if !may || !self.datagrams.spend(&DATAGRAMS, &key.0, now) {
            return false;
        }
        let one = self.strangers.entry(key).or_default();
        let pause = STRANGE.start().saturating_mul(1 << one.sent.min(16)).min(*STRANGE.end());
        (one.sent, one.next) = (one.sent.saturating_add(1), now + pause);
        true
    }

    /// A verifier of this site at this address has given a challenge.
    pub(super) fn handle_challenge(&mut self, site: &HostRule, from: SocketAddr, now: Instant) {
        self.strangers.remove(&(group(&site.name), prefix(from.ip())));
        self.answered.retain(|_, until| *until > now);
        if self.answered.len() >= STRANGERS {
            let first = self.answered.iter().min_by_key(|(_, until)| **until).map(|(at, _)| *at);
            first.and_then(|first| self.answered.remove(&first));
        }
        self.answered.insert(from, now + ANSWERED_FOR);
    }

    pub(super) const fn era(&self) -> u64 {
        self.era
    }

    fn of(&mut self, wish: &Wish) -> Option<&mut LearntState> {
        let era = self.era;
        let same =
            |one: &&mut LearntState| wish.era == era && one.named == wish.named && one.site == wish.site;
        self.learnt.iter_mut().find(same)
    }

    /// Answers a [`Task::Obtain`].
    pub(super) fn handle_obtained(&mut self, wish: &Wish, certificate: ClientCertificate) {
        let Some(one) = self.of(wish) else { return };
        let certificate = Some(Arc::new(certificate));
        *one.family(wish.v4) = Shelf { certificate, source: Some(wish.source), ..Shelf::default() };
    }

    /// Answers a [`Task::Obtain`]. `useless`: the old certificate cannot be renewed. The verifier said to wait for `wait`, which
    /// nobody has signed. It is asked again at a later visit, or for a renewal.
    pub(super) fn handle_failed(&mut self, wish: &Wish, useless: bool, wait: Duration, now: Instant) {
        let Some(one) = self.of(wish) else { return };
        let shelf = one.family(wish.v4);
        shelf.asking = false;
        if useless {
            shelf.certificate = None;
        }
        let pause = PAUSES.start().saturating_mul(1 << shelf.failures.min(16)).max(wait).min(*PAUSES.end());
        shelf.failures = shelf.failures.saturating_add(1);
        shelf.retry_at = now + pause;
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
        let usable = |one: &mut LearntState, id: &VerifierId| {
            let certificate = one.family(v4).certificate.clone().filter(|_| one.named.key.id() == *id)?;
            if seen.is_some_and(|seen| seen != certificate.address()) {
                drop_verifier(one);
                return None;
            }
            Some(certificate)
        };
        let mut here: Vec<_> = self.learnt.iter_mut().filter(|one| one.site.has(host)).collect();
        trusted.iter().find_map(|id| here.iter_mut().find_map(|one| usable(one, id)))
    }

    /// Whether there is any certificate.
    pub(super) fn has_any(&self, now: Instant) -> bool {
        let alive = self.learnt.iter().filter(|one| one.is_alive(now));
        alive.flat_map(LearntState::certificates).any(|held| is_usable(held, now))
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

    fn holder(&mut self, certificate: &ClientCertificate) -> Option<&mut LearntState> {
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
fn drop_verifier(one: &mut LearntState) {
    one.dropped = true;
    one.by_family = Default::default();
}
