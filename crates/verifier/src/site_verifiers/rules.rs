//! What a verifier that a record named must be (docs/spec/asap.md, section 9.1), as far as it can be seen without asking anybody.

use firstflight_credential::asap::PublicKey;
use firstflight_wire::asap::message::VantageId;
use firstflight_wire::asap::{Name, SitePoint, SiteVerifier};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ports above 1023 at which something answers that is not to be woken by strangers, or whose answers are large: reflectors that are
/// known, telephony, games, databases and other services that are often reachable only from a network's inside.
const BAD_PORTS: [u16; 21] = [
    1434, 1645, 1646, 1701, 1812, 1813, 1900, 2049, 2123, 2152, 3283, 3389, 3478, 3702, 5060, 5061, 5093,
    5353, 5683, 11211, 27015,
];

/// Names that mean something else in each network, or nothing in the DNS (RFC 6761, RFC 7686, RFC 8375, RFC 6762 appendix G).
const LOCAL: [&str; 11] = [
    "arpa",
    "corp",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localhost",
    "onion",
    "private",
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
pub(super) struct VerifierOfSite {
    pub(super) key: PublicKey,
    pub(super) at: Host,
    /// It is for all names below its own.
    pub(super) below: bool,
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

    /// Whether a stranger may have datagrams sent here: at port 443, or from 1024 and not one of [`BAD_PORTS`]; and at a name of
    /// two labels or more that a host can have, and that is nobody's own.
    fn may_be_asked(&self) -> bool {
        let port = self.port == 443 || (self.port >= 1024 && !BAD_PORTS.contains(&self.port));
        let is_label = |label: &str| label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let Some((_, last)) = self.name.rsplit_once('.') else { return false };
        // An address, in one of the forms that old parsers take.
        let number = last.starts_with(|first: char| first.is_ascii_digit());
        port && self.name.split('.').all(is_label) && !number && !LOCAL.contains(&last)
    }
}

/// For which hosts a verifier is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostRule {
    pub(super) name: String,
    /// For those below the name, too.
    wide: bool,
}

impl HostRule {
    pub(super) fn has(&self, host: &str) -> bool {
        if self.wide { is_below(host, &self.name) } else { host == self.name }
    }
}

/// The hosts that share the bounds of what one domain can use up: those with the same last two labels.
pub(super) fn group(host: &str) -> String {
    let mut labels = host.rsplit('.');
    let (last, second) = (labels.next().unwrap_or_default(), labels.next());
    second.map_or_else(|| last.to_owned(), |second| format!("{second}.{last}"))
}

/// The part of an address in which silence is counted: a small network's.
pub(super) fn prefix(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !0xff).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !(u128::MAX >> 48)).into(),
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

impl VerifierOfSite {
    /// The verifier of a record, if it may be learnt.
    pub(super) fn read(one: &SiteVerifier<'_>) -> Option<Self> {
        let key = PublicKey::from_bytes(one.key);
        let points =
            |point: SitePoint<'_>| (VantageId(point.id), Host::of(&point.name, point.udp_port.get()));
        let named = Self {
            key,
            at: Host::of(&one.name, one.udp_port.get()),
            below: one.below,
            points: one.points.iter().map(points).collect(),
        };
        let may_be_asked = named.hosts().all(Host::may_be_asked);
        (may_be_asked && key.is_sound()).then_some(named)
    }

    /// It, and its vantage points.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &Host> {
        std::iter::once(&self.at).chain(self.points.iter().map(|(_, at)| at))
    }

    /// The site of the record of `host` that named it. A verifier that says that it is for all names below its own, and the host's is
    /// one of them, is for all of them: the owner of that name says so, too, in the verifier's own record. Any other one is for
    /// `host`.
    pub(super) fn site(&self, host: &str) -> HostRule {
        let wide = self.below && is_below(host, &self.at.name);
        HostRule { name: if wide { self.at.name.clone() } else { host.to_owned() }, wide }
    }
}

/// Whether `host` is `name`, or below it. Both are in lower case.
fn is_below(host: &str, name: &str) -> bool {
    host.strip_suffix(name).is_some_and(|front| front.is_empty() || front.ends_with('.'))
}
