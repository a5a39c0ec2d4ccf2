//! Whether UDP works on a network.

use firstflight_credential::NetworkId;
use firstflight_wire::Instant;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// An answer this long ago shows that UDP works.
const LATELY: Duration = Duration::from_secs(600);
/// UDP pauses after this number of lost races in a row, to servers of as many networks: a server that is slow in UDP has its own pause
/// (`History`), and does not switch UDP off for the others.
const LOSSES: u32 = 2;
/// The same where UDP answered lately: there, races are lost because single datagrams are. With 2 % of loss each way, two
/// lost races in a row would soon come by chance.
const LOSSES_WHERE_IT_WORKED: u32 = 4;
/// The first pause, and the longest. Each one is twice as long as the one before.
const PAUSE: Duration = Duration::from_secs(600);
const LONGEST_PAUSE: Duration = Duration::from_secs(2 * 3600);

/// Networks of servers that are remembered for this.
const COUNTED: usize = 8;

/// The network of a server: a /24, or a /48.
fn network_of(server: IpAddr) -> u64 {
    match server {
        IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
        IpAddr::V6(ip) => (ip.to_bits() >> 80) as u64 | 1 << 63,
    }
}

/// What is known of UDP on one network.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The last answer, if no connect in UDP was silent or lost a race since.
    answered: Option<Instant>,
    /// The last answer.
    worked: Option<Instant>,
    /// Lost races since the last answer.
    lost: u32,
    /// The servers' networks of the last of them.
    losers: Vec<u64>,
    /// Pauses since the last answer.
    pauses: u32,
    /// UDP pauses until then.
    until: Option<Instant>,
}

/// How long a saved pause may last.
pub(crate) const LONGEST: Duration = LONGEST_PAUSE;

fn is_lately(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_since(at) < LATELY)
}

impl Health {
    /// A server answered in UDP.
    pub(crate) fn answered(&mut self, now: Instant) {
        *self = Self { answered: Some(now), worked: Some(now), ..Self::default() };
    }

    /// A connect in UDP ended without an answer, or its caller gave up.
    pub(crate) fn silent(&mut self) {
        self.answered = None;
    }

    /// The kernel's TCP was faster, although UDP began first.
    pub(crate) fn lost(&mut self, server: IpAddr, now: Instant) {
        self.silent();
        let loser = network_of(server);
        if self.losers.contains(&loser) {
            return;
        }
        if self.losers.len() == COUNTED {
            self.losers.remove(0);
        }
        self.losers.push(loser);
        self.lost = self.lost.saturating_add(1);
        let most = if is_lately(self.worked, now) { LOSSES_WHERE_IT_WORKED } else { LOSSES };
        if self.pauses > 0 || self.lost >= most {
            let doubled = PAUSE * 2u32.saturating_pow(self.pauses.min(8));
            self.until = Some(now + doubled.min(LONGEST_PAUSE));
            self.pauses = self.pauses.saturating_add(1);
        }
    }

    fn pause(&self) -> Option<Pause> {
        self.until.map(|until| Pause { pauses: self.pauses, until })
    }

    fn paused(Pause { pauses, until }: Pause) -> Self {
        Self { pauses, until: Some(until), ..Self::default() }
    }

    /// Whether a first flight may go in UDP. One that must not run twice needs an answer lately, because it cannot be
    /// sent again by another way.
    pub(crate) fn allows(&self, replayable: bool, now: Instant) -> bool {
        let pauses = self.until.is_some_and(|until| now < until);
        let works = is_lately(self.answered, now);
        !pauses && (replayable || works)
    }
}

/// Networks remembered.
const NETWORKS: usize = 64;

/// A pause that outlives a stay on the network, and the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pause {
    /// Pauses since the last answer.
    pub pauses: u32,
    pub until: Instant,
}

/// UDP on each network.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    health: HashMap<NetworkId, Health>,
    /// Counts changes of pauses.
    changes: u64,
}

impl Networks {
    /// Whether a first flight may go in UDP: see [`Health::allows`].
    pub(crate) fn allows(&self, network: NetworkId, replayable: bool, now: Instant) -> bool {
        self.health.get(&network).map_or(replayable, |health| health.allows(replayable, now))
    }

    fn change(&mut self, network: NetworkId, change: impl FnOnce(&mut Health)) {
        if self.health.len() >= NETWORKS && !self.health.contains_key(&network) {
            let first = self.health.iter().min_by_key(|(_, health)| health.until.or(health.worked));
            let first = first.map(|(network, _)| *network);
            first.and_then(|network| self.health.remove(&network));
        }
        let health = self.health.entry(network).or_default();
        let before = health.pause();
        change(health);
        self.changes += u64::from(health.pause() != before);
    }

    /// See [`Health::answered`].
    pub(crate) fn answered(&mut self, network: NetworkId, now: Instant) {
        self.change(network, |health| health.answered(now));
    }

    /// See [`Health::silent`].
    pub(crate) fn silent(&mut self, network: NetworkId) {
        self.change(network, Health::silent);
    }

    /// See [`Health::lost`].
    pub(crate) fn lost(&mut self, network: NetworkId, server: IpAddr, now: Instant) {
        self.change(network, |health| health.lost(server, now));
    }

    /// The host left `network`. Only a pause counts when it comes back.
    pub(crate) fn left(&mut self, network: NetworkId) {
        let pause = self.health.remove(&network).and_then(|health| health.pause());
        if let Some(pause) = pause.filter(|_| network.is_known()) {
            self.health.insert(network, Health::paused(pause));
        }
    }

    /// Takes a saved pause.
    pub(crate) fn restore(&mut self, network: NetworkId, pause: Pause) {
        self.change(network, |health| *health = Health::paused(pause));
    }

    pub(crate) fn clear(&mut self) {
        self.health.clear();
        self.changes += 1;
    }

    /// The pauses, in any order.
    pub(crate) fn pauses(&self) -> impl Iterator<Item = (NetworkId, Pause)> {
        self.health.iter().filter_map(|(network, health)| Some((*network, health.pause()?)))
    }

    /// The number of changes of pauses.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests;
