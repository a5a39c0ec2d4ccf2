//! The pool as a machine: the certificates that it has and gives out, and those that it wants next.

use super::site::PoolSite;
use crate::client::IssuerAddress;
use firstflight_credential::NetworkId;
use firstflight_credential::asap::ClientCertificate;
use firstflight_wire::Instant;
use firstflight_wire::asap::VerifierId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The longest time before its end in which a certificate is not given out: see [`slack`].
const SLACK: Duration = Duration::from_secs(30);
/// How long before its end a certificate is renewed, at least and at most, unless it is short: see [`margin`].
const MARGINS: std::ops::RangeInclusive<Duration> = Duration::from_secs(90)..=Duration::from_secs(600);
/// Pauses after failures.
const PAUSES: std::ops::RangeInclusive<Duration> = Duration::from_secs(5)..=Duration::from_secs(600);
/// How long the pool assumes that a site's server sees another address than the verifier.
const MISMATCHED_FOR: Duration = Duration::from_secs(3600);
/// Pauses between certificates that are obtained to learn which address the verifier sees now.
const REPLACEMENTS: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=MISMATCHED_FOR;
/// Networks remembered.
const NETWORKS: usize = 8;

/// The sizes of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolConfig {
    /// Certificates that no site has seen, for each network and verifier.
    pub fresh: usize,
    /// Sites with a certificate, for each network and verifier. A new site replaces the least recently used
    /// one.
    pub sites: usize,
    /// How long certificates should last, seconds. The verifier decides.
    pub wished: u32,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { fresh: 4, sites: 256, wished: 24 * 60 * 60 }
    }
}

/// A certificate to obtain.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) issuer: IssuerAddress,
    pub(crate) wished: u32,
    pub(crate) renew: Option<Arc<ClientCertificate>>,
    shelf: (NetworkId, usize),
    /// [`Shelf::born`] of that shelf.
    born: u64,
    /// [`State::era`] at the time.
    era: u64,
}

impl Wish {
    /// The network for which it is.
    pub(crate) const fn network(&self) -> NetworkId {
        self.shelf.0
    }
}

/// How long before its end a certificate that lasts for `lasts` is no longer given out: it began up to 20 s before it was made,
/// or a twelfth of its time, and took a while to arrive.
fn slack(lasts: Duration) -> Duration {
    SLACK.min(lasts / 6)
}

/// How long before its end it is renewed. It is given out in the time between both, until the new one is there.
fn margin(lasts: Duration) -> Duration {
    (lasts / 20).clamp(*MARGINS.start(), *MARGINS.end()).min(lasts / 4)
}

/// Whether a certificate should still be used for a first flight at `now`: it has more than 30 s left, or, if it is short, more
/// than a sixth of its time.
#[must_use]
pub fn is_usable(certificate: &ClientCertificate, now: Instant) -> bool {
    certificate.remaining(now) > slack(certificate.body().lasts())
}

/// Whether it should be renewed at `now`: as late as is safe, because a certificate that was held longer is renewed for longer.
pub(crate) fn is_due(certificate: &ClientCertificate, now: Instant) -> bool {
    due(certificate) <= now
}

/// When it should be renewed.
pub(crate) fn due(certificate: &ClientCertificate) -> Instant {
    let lasts = certificate.body().lasts();
    certificate.obtained() + (lasts - margin(lasts))
}

#[derive(Debug, Clone)]
pub(super) struct PooledCertificate {
    pub(super) certificate: Arc<ClientCertificate>,
    /// When it was last given to its site. `None` if it has not been given out since it arrived.
    used: Option<Instant>,
    /// It is being refreshed.
    renewing: bool,
}

impl PooledCertificate {
    const fn new(certificate: Arc<ClientCertificate>) -> Self {
        Self { certificate, used: None, renewing: false }
    }

    fn is_good(&self, now: Instant) -> bool {
        is_usable(&self.certificate, now)
    }

    fn due(&self) -> Instant {
        due(&self.certificate)
    }
}

/// The certificates of one verifier in one network.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    /// When it was made, as a count of changes. A network that was forgotten and came back has another one.
    born: u64,
    pub(super) fresh: Vec<PooledCertificate>,
    pub(super) sites: BTreeMap<PoolSite, PooledCertificate>,
    /// New ones that are being obtained.
    asked: usize,
    failures: u32,
    retry_at: Instant,
    /// Sites whose servers do not see the address that the verifier saw, and until when the pool assumes
    /// that.
    mismatched: BTreeMap<(PoolSite, IpAddr), Instant>,
    /// How many certificates were replaced for this reason, and when the next one may be.
    replaced: u32,
    replace_at: Instant,
}

impl Shelf {
    /// Whether the site's server may see the certified address.
    fn fits(&self, site: &PoolSite, held: &PooledCertificate, now: Instant) -> bool {
        let known = || self.mismatched.get(&(site.clone(), held.certificate.address()));
        self.mismatched.is_empty() || known().is_none_or(|until| *until <= now)
    }

    fn all(&mut self) -> impl Iterator<Item = &mut PooledCertificate> {
        self.fresh.iter_mut().chain(self.sites.values_mut())
    }
}

/// Everything that a pool knows.
#[derive(Debug)]
pub(crate) struct State {
    config: PoolConfig,
    pub(super) issuers: Vec<IssuerAddress>,
    network: NetworkId,
    pub(super) shelves: BTreeMap<(NetworkId, usize), Shelf>,
    /// Networks in the order of the last visit, the present one last.
    visited: Vec<NetworkId>,
    /// How often the host has moved.
    era: u64,
    changes: u64,
}

impl State {
    pub(crate) fn new(config: PoolConfig, issuers: Vec<IssuerAddress>, network: NetworkId) -> Self {
        let (shelves, visited) = (BTreeMap::new(), Vec::new());
        let mut state = Self { config, issuers, network, shelves, visited, era: 0, changes: 0 };
        state.set_network(network);
        state
    }

    /// Counts the changes that the pool's file must follow.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn set_network(&mut self, network: NetworkId) {
        if network != self.network && !self.network.is_known() {
            // The next network without an id may be another one.
            self.shelves.retain(|(network, _), _| network.is_known());
        }
        self.era += u64::from(network != self.network);
        self.network = network;
        self.visited.retain(|other| *other != network);
        self.visited.push(network);
        while self.visited.len() > NETWORKS {
            let gone = self.visited.remove(0);
            self.shelves.retain(|(network, _), _| *network != gone);
        }
        for number in 0..self.issuers.len() {
            // Requests that failed before may succeed now.
            let born = self.changes + 1;
            let new = || Shelf { born, ..Shelf::default() };
            let shelf = self.shelves.entry((network, number)).or_insert_with(new);
            (shelf.retry_at, shelf.replace_at, shelf.replaced) = (Instant::ZERO, Instant::ZERO, 0);
            shelf.mismatched.clear();
        }
        self.changes += 1;
    }

    /// The shelves of the present network.
    fn here(&self) -> impl Iterator<Item = &Shelf> {
        self.shelves.iter().filter(|((network, _), _)| *network == self.network).map(|(_, shelf)| shelf)
    }

    pub(crate) fn is_mismatched(&self, site: &PoolSite, now: Instant) -> bool {
        self.here().any(|shelf| shelf.mismatched.iter().any(|((of, _), until)| of == site && *until > now))
    }

    pub(crate) fn is_failing(&self) -> bool {
        let mut here = self.here().peekable();
        here.peek().is_some() && here.all(|shelf| shelf.failures > 0)
    }

    pub(crate) fn address(&self, v4: bool) -> Option<IpAddr> {
        let held = self.here().flat_map(|shelf| shelf.fresh.iter().chain(shelf.sites.values()));
        held.map(|held| held.certificate.address()).find(|address| address.is_ipv4() == v4)
    }

    pub(crate) fn fresh(&self) -> usize {
        self.here().map(|shelf| shelf.fresh.len()).sum()
    }

    pub(crate) fn certificate_for(
        &mut self,
        site: &PoolSite,
        server: IpAddr,
        trusted: &[VerifierId],
        now: Instant,
    ) -> Option<Arc<ClientCertificate>> {
        self.drop_over(now);
        let fits = |issuer: &IssuerAddress, id: &VerifierId| {
            issuer.id() == *id && issuer.address.is_ipv4() == server.is_ipv4()
        };
        // The verifiers are in the server's order of preference.
        let numbers: Vec<usize> = (trusted.iter())
            .filter_map(|id| self.issuers.iter().position(|issuer| fits(issuer, id)))
            .collect();
        let network = self.network;
        for &number in &numbers {
            let Some(shelf) = self.shelves.get_mut(&(network, number)) else { continue };
            let fits =
                shelf.sites.get(site).is_some_and(|held| held.is_good(now) && shelf.fits(site, held, now));
            if let Some(held) = shelf.sites.get_mut(site).filter(|_| fits) {
                held.used = Some(now);
                return Some(Arc::clone(&held.certificate));
            }
        }
        for number in numbers {
            let Some(shelf) = self.shelves.get_mut(&(network, number)) else { continue };
            // Take the one that lasts longest, but not one that is being refreshed and will soon be replaced.
            let best = (shelf.fresh.iter().enumerate())
                .filter(|(_, held)| held.is_good(now) && !held.renewing && shelf.fits(site, held, now))
                .max_by_key(|(_, held)| held.certificate.remaining(now));
            let Some((at, _)) = best else { continue };
            let mut held = shelf.fresh.swap_remove(at);
            held.used = Some(now);
            let certificate = Arc::clone(&held.certificate);
            if shelf.sites.len() >= self.config.sites {
                let oldest =
                    shelf.sites.iter().min_by_key(|(_, held)| held.used).map(|(site, _)| site.clone());
                oldest.and_then(|site| shelf.sites.remove(&site));
            }
            shelf.sites.insert(site.clone(), held);
            self.changes += 1;
            return Some(certificate);
        }
        None
    }

    /// The next certificate to obtain. It counts as being obtained until one of the `handle_*` methods is
    /// called with it.
    pub(crate) fn poll_wish(&mut self, now: Instant) -> Option<Wish> {
        self.drop_over(now);
        let (network, era, wished) = (self.network, self.era, self.config.wished);
        for (number, issuer) in self.issuers.iter().enumerate() {
            let Some(shelf) = self.shelves.get_mut(&(network, number)) else { continue };
            if shelf.retry_at > now {
                continue;
            }
            let born = shelf.born;
            let wish =
                |renew| Wish { issuer: issuer.clone(), wished, renew, shelf: (network, number), born, era };
            let due = |held: &PooledCertificate| !held.renewing && held.due() <= now;
            let fresh = shelf.fresh.iter_mut().find(|held| due(held));
            // A site that was not visited since its certificate arrived needs no new one.
            let found =
                fresh.or_else(|| shelf.sites.values_mut().find(|held| held.used.is_some() && due(held)));
            if let Some(held) = found {
                held.renewing = true;
                return Some(wish(Some(Arc::clone(&held.certificate))));
            }
            if shelf.fresh.len() + shelf.asked < self.config.fresh {
                shelf.asked += 1;
                return Some(wish(None));
            }
        }
        None
    }

    /// When to poll again at the latest, if nothing else happens.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        self.here()
            .filter_map(|shelf| {
                let waits = |held: &&PooledCertificate| !held.renewing;
                let fresh = shelf.fresh.iter().filter(waits).map(PooledCertificate::due);
                let sites = shelf
                    .sites
                    .values()
                    .filter(waits)
                    .filter(|held| held.used.is_some())
                    .map(PooledCertificate::due);
                let lacking = shelf.fresh.len() + shelf.asked < self.config.fresh;
                let next = fresh.chain(sites).chain(lacking.then_some(now)).min();
                next.map(|next| next.max(shelf.retry_at))
            })
            .min()
    }

    pub(crate) fn handle_obtained(&mut self, wish: Wish, certificate: ClientCertificate) {
        if self.has_moved_since(&wish) {
            return self.unseen(&wish);
        }
        let Some(shelf) = self.shelf_of(&wish) else { return };
        (shelf.failures, shelf.retry_at) = (0, Instant::ZERO);
        let new = PooledCertificate::new(Arc::new(certificate));
        match wish.renew {
            Some(old) => {
                // It replaces the old certificate, for the same site.
                if let Some(held) = shelf.all().find(|held| Arc::ptr_eq(&held.certificate, &old)) {
                    *held = new;
                }
            }
            None => {
                shelf.asked = shelf.asked.saturating_sub(1);
                shelf.fresh.push(new);
            }
        }
        self.changes += 1;
    }

    /// Whether the host has moved since: nobody knows in which network the question was seen.
    const fn has_moved_since(&self, wish: &Wish) -> bool {
        self.era != wish.era
    }

    /// A question whose certificate may have been seen in another network than that of its shelf, in clear. Neither it nor the one
    /// that it renews is shown to a site any more: both networks would know the client by it (`docs/spec/asap.md` 6.8).
    fn unseen(&mut self, wish: &Wish) {
        let Some(shelf) = self.shelf_of(wish) else { return };
        match &wish.renew {
            Some(old) => {
                shelf.fresh.retain(|held| !Arc::ptr_eq(&held.certificate, old));
                shelf.sites.retain(|_, held| !Arc::ptr_eq(&held.certificate, old));
                self.changes += 1;
            }
            None => shelf.asked = shelf.asked.saturating_sub(1),
        }
    }

    /// The host is found to be on another network than that of the wish, which was not sent.
    pub(crate) fn handle_moved(&mut self, wish: &Wish, network: NetworkId) {
        self.set_network(network);
        let Some(shelf) = self.shelf_of(wish) else { return };
        match &wish.renew {
            Some(old) => {
                let held = shelf.all().find(|held| Arc::ptr_eq(&held.certificate, old));
                held.into_iter().for_each(|held| held.renewing = false);
            }
            None => shelf.asked = shelf.asked.saturating_sub(1),
        }
    }

    /// The shelf of a wish. `None` if the network was forgotten in the meantime.
    fn shelf_of(&mut self, wish: &Wish) -> Option<&mut Shelf> {
        self.shelves.get_mut(&wish.shelf).filter(|shelf| shelf.born == wish.born)
    }

    /// The certificate was not obtained. The pool pauses its requests to the verifier, with exponential
    /// backoff, and for the time `wait` that the verifier demanded, but for at most as long as the longest pause: nobody has
    /// signed a refusal. `useless`: the old certificate cannot be renewed. Returns whether it is the first failure since the last success.
    pub(crate) fn handle_failed(&mut self, wish: &Wish, useless: bool, wait: Duration, now: Instant) -> bool {
        if self.has_moved_since(wish) {
            self.unseen(wish);
            return false;
        }
        let wait = wait.min(*PAUSES.end());
        let Some(shelf) = self.shelf_of(wish) else { return false };
        match &wish.renew {
            Some(old) if useless => {
                shelf.fresh.retain(|held| !Arc::ptr_eq(&held.certificate, old));
                shelf.sites.retain(|_, held| !Arc::ptr_eq(&held.certificate, old));
                self.changes += 1;
                return false;
            }
            Some(old) => {
                if let Some(held) = shelf.all().find(|held| Arc::ptr_eq(&held.certificate, old)) {
                    held.renewing = false;
                }
            }
            None => shelf.asked = shelf.asked.saturating_sub(1),
        }
        if shelf.failures > 0 && now < shelf.retry_at {
            // It was asked at the same time as one that failed before.
            shelf.retry_at = shelf.retry_at.max(now + wait);
            return false;
        }
        let pause = PAUSES.start().saturating_mul(1 << shelf.failures.min(16));
        shelf.failures = shelf.failures.saturating_add(1);
        shelf.retry_at = now + pause.min(*PAUSES.end()).max(wait);
        shelf.failures == 1
    }

    pub(crate) fn forget(&mut self, certificate: &ClientCertificate) {
        let key = certificate.body().client_key;
        for shelf in self.shelves.values_mut() {
            shelf.fresh.retain(|held| held.certificate.body().client_key != key);
            shelf.sites.retain(|_, held| held.certificate.body().client_key != key);
        }
        self.changes += 1;
    }

    /// The site's server does not see the address of this certificate. From time to time the pool drops an
    /// unused certificate for this address, so that a new one is obtained for the address that the verifier
    /// sees now.
    pub(crate) fn mismatched(&mut self, site: &PoolSite, certificate: &ClientCertificate, now: Instant) {
        let (network, address) = (self.network, certificate.address());
        let issuer = |issuer: &IssuerAddress| {
            issuer.key == *certificate.verifier() && issuer.address.is_ipv4() == address.is_ipv4()
        };
        let Some(number) = self.issuers.iter().position(issuer) else { return };
        let Some(shelf) = self.shelves.get_mut(&(network, number)) else { return };
        shelf.mismatched.retain(|_, until| *until > now);
        if shelf.mismatched.len() >= self.config.sites {
            let first = shelf.mismatched.iter().min_by_key(|(_, until)| **until).map(|(of, _)| of.clone());
            first.and_then(|of| shelf.mismatched.remove(&of));
        }
        shelf.mismatched.insert((site.clone(), address), now + MISMATCHED_FOR);
        let key = certificate.body().client_key;
        if shelf.sites.get(site).is_some_and(|held| held.certificate.body().client_key == key) {
            shelf.sites.remove(site);
        }
        let alike = |held: &PooledCertificate| held.certificate.address() == address && !held.renewing;
        if shelf.replace_at <= now
            && let Some(at) = shelf.fresh.iter().position(alike)
        {
            shelf.fresh.swap_remove(at);
            let pause = REPLACEMENTS.start().saturating_mul(1 << shelf.replaced.min(16));
            shelf.replaced = shelf.replaced.saturating_add(1);
            shelf.replace_at = now + pause.min(*REPLACEMENTS.end());
        }
        self.changes += 1;
    }

    /// Restores a certificate from a file. One with a site counts as used since it arrived.
    pub(super) fn restore(
        &mut self,
        network: NetworkId,
        issuer: usize,
        site: Option<PoolSite>,
        certificate: ClientCertificate,
    ) {
        if !self.visited.contains(&network) {
            if self.visited.len() >= NETWORKS {
                return;
            }
            self.visited.insert(0, network);
        }
        let shelf = self.shelves.entry((network, issuer)).or_default();
        let obtained = certificate.obtained();
        let held = PooledCertificate::new(Arc::new(certificate));
        match site {
            Some(site) if shelf.sites.len() < self.config.sites => {
                shelf.sites.insert(site, PooledCertificate { used: Some(obtained), ..held });
            }
            None if shelf.fresh.len() < self.config.fresh => shelf.fresh.push(held),
            _ => {}
        }
    }

    /// Drops the certificates that have ended.
    fn drop_over(&mut self, now: Instant) {
        let mut dropped = 0;
        for shelf in self.shelves.values_mut() {
            let before = shelf.fresh.len() + shelf.sites.len();
            shelf.fresh.retain(|held| held.is_good(now));
            shelf.sites.retain(|_, held| held.is_good(now));
            dropped += before - shelf.fresh.len() - shelf.sites.len();
        }
        self.changes += u64::from(dropped > 0);
    }
}
