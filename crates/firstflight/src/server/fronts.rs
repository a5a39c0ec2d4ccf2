//! First flights that fronts found in lookups (`docs/spec/dns-path.md`, section 9).

use super::{Served, Server, ServerBuilder};
use crate::credential::PendingLimit;
use crate::credential::asap::AsapPolicy;
use crate::endpoint::Endpoint;
use firstflight_dns::Relayed;
use firstflight_stack::RelayedFlight;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// How many first flights from fronts may wait for their client's ACK, in total and for one client.
const PENDING: (u32, u32) = (64, 4);

/// Where a server gets first flights from *fronts*, the name servers that find them in lookups: its addresses in UDP, and those that
/// clients see. A front may be a part of the server (`firstflight_dns::service::FrontSettings`), or on another machine
/// (`firstflight_dns::service::RelaySocket`). Both give what they open to [`RelayTarget::take`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayTarget {
    places: Vec<FamilyAddresses>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FamilyAddresses {
    /// To which the client would have sent its SYN.
    address: IpAddr,
    seen_as: SocketAddr,
}

/// Why a server cannot get first flights from fronts at its addresses. The caller is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RelayTargetError {
    /// The server is at all addresses, and none is named that clients see.
    #[error("{0} is all addresses: say which one clients are answered from")]
    NotSeen(SocketAddr),
    /// Clients cannot see the server at this address: it is all addresses, has no port, or is of a family at which the server is not.
    #[error(
        "clients cannot see the server as {0}: name one address and UDP port, of a family at which the server listens"
    )]
    Unusable(SocketAddr),
    /// Two addresses of one family.
    #[error("clients see the server as {0} and {1}: name one address of a family")]
    Twice(SocketAddr, SocketAddr),
}

impl RelayTarget {
    /// A server at these addresses and ports in UDP. `seen_as` are those that clients see, at most one of a family, where a translator
    /// in front of the server changes them, or where the server is at all addresses. A family whose address is unknown gets nothing.
    ///
    /// # Errors
    /// [`RelayTargetError`]: the caller is at fault.
    pub fn new(udp: &[SocketAddr], seen_as: &[SocketAddr]) -> Result<Self, RelayTargetError> {
        for (n, seen) in seen_as.iter().enumerate() {
            let is_known = udp.iter().any(|at| at.is_ipv4() == seen.is_ipv4());
            if seen.ip().is_unspecified() || seen.port() == 0 || !is_known {
                return Err(RelayTargetError::Unusable(*seen));
            }
            if let Some(other) = seen_as.iter().take(n).find(|other| other.is_ipv4() == seen.is_ipv4()) {
                return Err(RelayTargetError::Twice(*other, *seen));
            }
        }
        let mut places: Vec<FamilyAddresses> = Vec::new();
        for at in udp {
            if places.iter().any(|place| place.seen_as.is_ipv4() == at.is_ipv4()) {
                continue;
            }
            let seen = seen_as.iter().find(|seen| seen.is_ipv4() == at.is_ipv4()).copied();
            let seen = seen.or(Some(*at).filter(|at| !at.ip().is_unspecified()));
            let address = |seen: SocketAddr| if at.ip().is_unspecified() { seen.ip() } else { at.ip() };
            places.extend(seen.map(|seen_as| FamilyAddresses { address: address(seen_as), seen_as }));
        }
        match udp.first() {
            Some(first) if places.is_empty() => Err(RelayTargetError::NotSeen(*first)),
            _ => Ok(Self { places }),
        }
    }

    /// The addresses and UDP ports that clients see, at most one of a family.
    pub fn seen_as(&self) -> impl Iterator<Item = SocketAddr> {
        self.places.iter().map(|place| place.seen_as)
    }

    /// The IPv4 address that clients see: fragments are answered with it, if no other is named.
    #[must_use]
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.seen_as().find_map(|seen| match seen.ip() {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    }

    /// Lets a listener with `policy` take first flights from fronts: 64 may wait for their client's ACK, and 4 of one client.
    pub fn admit(policy: &mut AsapPolicy) {
        let (all, each) = PENDING;
        let limit = PendingLimit::with_clients(all, each).within(Arc::clone(&policy.pending));
        policy.relayed = Some(Arc::new(limit));
    }

    /// Gives the server, whose engine in UDP is `endpoint`, a first flight that its front has opened or that another front has
    /// authenticated. The server accepts it, or drops it silently: anybody can query names.
    pub fn take(&self, endpoint: &Endpoint, relayed: Relayed<'_>) {
        let client = SocketAddr::new(relayed.ci.address, relayed.ci.outer_port.get());
        let Some(place) = self.places.iter().find(|place| place.seen_as.is_ipv4() == client.is_ipv4()) else {
            tracing::debug!(%client, "a first flight of a family at which the server is not");
            return;
        };
        let segment = relayed.ci.segment();
        endpoint.handle_relayed(RelayedFlight {
            client,
            server: place.address,
            segment: &segment,
            key: relayed.reply,
            seen_as: Some(place.seen_as),
        });
    }
}

/// Whether a server gets first flights from fronts.
#[derive(Debug, Default)]
pub(super) struct Settings {
    /// What clients see.
    seen_as: Option<Vec<SocketAddr>>,
}

/// Where it gets them.
pub(super) type Target = Option<RelayTarget>;

impl Settings {
    /// Whether it does. Then it needs UDP.
    pub(super) const fn are_wanted(&self) -> bool {
        self.seen_as.is_some()
    }

    /// Lets listeners take them.
    pub(super) fn admit(&self, policy: Option<&mut AsapPolicy>) -> io::Result<()> {
        match policy {
            Some(policy) if self.are_wanted() && policy.relayed.is_none() => RelayTarget::admit(policy),
            None if self.are_wanted() => {
                return Err(wrong("they need certificates: name the verifiers to trust"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Where the server gets them, which listens at `addresses`.
    pub(super) fn target(&self, addresses: &[SocketAddr], udp: Option<&Served>) -> io::Result<Target> {
        let Some(seen_as) = &self.seen_as else { return Ok(None) };
        let Some(udp) = udp else { return Err(wrong("they need UDP: name a port")) };
        let at: Vec<_> = addresses.iter().map(|at| SocketAddr::new(at.ip(), udp.port)).collect();
        RelayTarget::new(&at, seen_as).map(Some).map_err(wrong)
    }
}

fn wrong(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("first flights from name servers: {why}"))
}

impl ServerBuilder {
    /// Takes first flights from *fronts*, the name servers that find them in lookups: see [`Server::relay_target`]. `seen_as` is what
    /// clients see of the server in UDP, at most one address of a family, where that is not the server's own address. It needs
    /// [`ServerBuilder::trust`], and a UDP port that is free.
    pub fn from_fronts(mut self, seen_as: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.fronts.seen_as = Some(seen_as.into_iter().collect());
        self
    }
}

impl Server {
    /// Where fronts give first flights, together with [`Server::endpoint`]. `None` without [`ServerBuilder::from_fronts`].
    #[must_use]
    pub const fn relay_target(&self) -> Option<&RelayTarget> {
        self.target.as_ref()
    }
}

#[cfg(test)]
mod tests;
