//! What a verifier that a record named must be (docs/spec/asap.md, section 9.1), as far as it can be seen without asking anybody.

use firstflight_credential::asap::PublicKey;
use firstflight_wire::asap::message::VantageId;
use firstflight_wire::asap::{Name, SitePoint, SiteVerifier};
use std::fmt;

/// Ports above 1023 at which something answers that is not to be woken by strangers, or whose answers are large: reflectors that are
/// known, telephony, games, databases and other services that are often reachable only from a network's inside.
const BAD_PORTS: [u16; 21] = [
    1434, 1645, 1646, 1701, 1812, 1813, 1900, 2049, 2123, 2152, 3283, 3389, 3478, 3702, 5060, 5061, 5093,
    5353, 5683, 11211, 27015,
];

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Host {
    /// In lower case, without a final dot.
    pub(super) name: String,
    pub(super) port: u16,
}

/// A verifier as a site's record names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) key: PublicKey,
    pub(super) at: Host,
    /// In ascending order of their ids.
    pub(super) points: Vec<(VantageId, Host)>,
}

impl Host {
    fn of(name: &Name<'_>, port: u16) -> Self {
        let mut name = name.to_string();
        // The text ends with the dot of the root.
        name.pop();
        Self { name, port }
    }

    /// Whether a stranger may have datagrams sent here: at port 443, or from 1024 and not one of [`BAD_PORTS`]; and not to a name
    /// of one label, or of characters that no host has.
    fn may_be_asked(&self) -> bool {
        let port = self.port == 443 || (self.port >= 1024 && !BAD_PORTS.contains(&self.port));
        port && self.name.contains('.') && !self.name.contains('\\')
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

impl Named {
    /// The verifier of a record, if it may be learnt.
    pub(super) fn read(one: &SiteVerifier<'_>) -> Option<Self> {
        let key = PublicKey::from_bytes(one.key);
        let points =
            |point: SitePoint<'_>| (VantageId(point.id), Host::of(&point.name, point.udp_port.get()));
        let named = Self {
            key,
            at: Host::of(&one.name, one.udp_port.get()),
            points: one.points.iter().map(points).collect(),
        };
        let may_be_asked = named.hosts().all(Host::may_be_asked);
        (may_be_asked && key.is_sound()).then_some(named)
    }

    /// It, and its vantage points.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &Host> {
        std::iter::once(&self.at).chain(self.points.iter().map(|(_, at)| at))
    }

    /// The site of the record of `host` that named it. A verifier whose own name is the host's or one above it serves all hosts at
    /// or below its name, because who publishes that name has named it too. Any other one serves `host`.
    pub(super) fn site(&self, host: &str) -> String {
        if is_below(host, &self.at.name) { self.at.name.clone() } else { host.to_owned() }
    }
}

/// Whether `host` is `name`, or below it. Both are in lower case.
pub(super) fn is_below(host: &str, name: &str) -> bool {
    host.strip_suffix(name).is_some_and(|front| front.is_empty() || front.ends_with('.'))
}
