//! The other fronts of the zone: which of them are alive, and under which number.

use super::{ForwardError, Forwarder};
use core::net::SocketAddr;
use firstflight_wire::Instant;

/// A front that appeared or disappeared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontChange {
    /// Its address.
    pub address: SocketAddr,
    /// Its number.
    pub front: u16,
    /// Whether it appeared or disappeared.
    pub presence: Presence,
}

/// Whether a front is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It is heard now.
    Came,
    /// It was not heard for [`Forwarder::SILENCE`], or it has another number now.
    Went,
}

/// What a genuine datagram shows about the front that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Alive,
    /// It is at an address that is not configured.
    Nowhere,
    /// It has the number of another front that is alive.
    SameNumber,
}

#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    /// Its number, and when it was heard last.
    heard: Option<(u16, Instant)>,
    /// The number under which its appearance was reported.
    announced: Option<u16>,
}

impl Peer {
    fn alive(&self, now: Instant) -> Option<u16> {
        let (front, at) = self.heard?;
        (at + Forwarder::SILENCE > now).then_some(front)
    }
}

#[derive(Debug)]
pub(super) struct Peers {
    all: Vec<Peer>,
    /// When the next round of datagrams begins that announce that this front is alive.
    next: Instant,
    /// How many fronts got their datagram in this round.
    told: usize,
}

impl Peers {
    pub(super) fn new(addresses: Vec<SocketAddr>) -> Result<Self, ForwardError> {
        if !(1..Forwarder::MAX_FRONTS).contains(&addresses.len()) {
            return Err(ForwardError::Count(addresses.len()));
        }
        for (at, address) in addresses.iter().enumerate() {
            if addresses.iter().take(at).any(|other| canonical(*other) == canonical(*address)) {
                return Err(ForwardError::Twice(*address));
            }
        }
        let peer = |address| Peer { address, heard: None, announced: None };
        Ok(Self { all: addresses.into_iter().map(peer).collect(), next: Instant::ZERO, told: 0 })
    }

    pub(super) fn address(&self, place: usize) -> Option<SocketAddr> {
        self.all.get(place).map(|peer| peer.address)
    }

    /// The indexes and numbers of the fronts that are alive.
    pub(super) fn alive(&self, now: Instant) -> impl Iterator<Item = (usize, u16)> {
        self.all.iter().enumerate().filter_map(move |(place, peer)| Some((place, peer.alive(now)?)))
    }

    /// Front `front` was heard from `from`.
    pub(super) fn note(&mut self, from: SocketAddr, front: u16, now: Instant) -> Said {
        let from = canonical(from);
        if self.alive(now).any(|(place, other)| {
            other == front && self.address(place).is_some_and(|address| canonical(address) != from)
        }) {
            return Said::SameNumber;
        }
        match self.all.iter_mut().find(|peer| canonical(peer.address) == from) {
            Some(peer) => {
                peer.heard = Some((front, now));
                Said::Alive
            }
            None => Said::Nowhere,
        }
    }

    /// The index of the next front to tell that this front is alive, if one is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<usize> {
        if self.next > now {
            return None;
        }
        let place = self.told;
        self.told += 1;
        if self.told >= self.all.len() {
            self.told = 0;
            self.next = now + Forwarder::EVERY;
        }
        Some(place)
    }

    pub(super) const fn next_timeout(&self) -> Instant {
        self.next
    }

    pub(super) fn poll_change(&mut self, now: Instant) -> Option<FrontChange> {
        self.all.iter_mut().find_map(|peer| {
            let alive = peer.alive(now);
            let (front, presence) = match (peer.announced, alive) {
                (Some(old), _) if alive != Some(old) => {
                    peer.announced = None;
                    (old, Presence::Went)
                }
                (None, Some(new)) => {
                    peer.announced = alive;
                    (new, Presence::Came)
                }
                _ => return None,
            };
            Some(FrontChange { address: peer.address, front, presence })
        })
    }
}

/// A socket of both families reports IPv4 addresses in their IPv6-mapped form.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
