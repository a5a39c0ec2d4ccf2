//! The content of the file, by subject.

use super::hex;
use super::row::Row;
use super::server::CachedServer;
use crate::memory::health::LONGEST;
use firstflight_credential::NetworkId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

const MINUTE: u64 = 60 * 1000;
const DAY: u64 = 24 * 60 * MINUTE;

/// The content of the file. Each subject is bounded, and what counts no more is left out when the file is written. Times
/// are Unix times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CacheContent {
    /// Read already.
    #[serde(default, skip_serializing)]
    pub(super) version: u32,
    /// Servers by address: cookies, round-trip times, segment sizes, failures. The least recently used one is first.
    pub servers: Vec<CachedServer>,
    /// Addresses that lost a race.
    #[serde(default)]
    pub lost_races: Vec<CachedLostRace>,
    /// Ports that refused an ordinary SYN.
    #[serde(default)]
    pub closed_ports: Vec<CachedClosedPort>,
    /// Networks where UDP pauses.
    #[serde(default)]
    pub udp_pauses: Vec<CachedUdpPause>,
    /// What servers publish.
    #[serde(default)]
    pub records: Vec<CachedRecord>,
    /// What resolvers did with the names of first flights.
    #[serde(default)]
    pub resolvers: Vec<CachedResolver>,
    /// Networks where servers that this host never contacted cannot reach it.
    #[serde(default)]
    pub unreachable: Vec<CachedUnreachable>,
}

/// An address that failed, or that lost a race to another. It is tried after others for ten minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedLostRace {
    /// The local network.
    #[serde(with = "hex::network")]
    pub network: NetworkId,
    /// The server's address and port.
    pub server: SocketAddr,
    /// Its UDP port, if TCP was carried in UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp_port: Option<u16>,
    /// When it lost.
    pub at: u64,
}

/// A port that refused an ordinary SYN. It gets no other for a minute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedClosedPort {
    /// The local network.
    #[serde(with = "hex::network")]
    pub network: NetworkId,
    /// The server's address and port.
    pub server: SocketAddr,
    /// When it refused.
    pub at: u64,
}

/// A network where TCP in UDP pauses, because it lost races to the kernel's TCP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedUdpPause {
    /// The local network.
    #[serde(with = "hex::network")]
    pub network: NetworkId,
    /// Pauses since the last answer in UDP. The next pause is twice as long. It counts for a day after this one.
    pub pauses: u32,
    /// When the pause ends.
    pub until: u64,
}

/// What a server published in its HTTPS record, as found on one network. It selects the way of a first flight and
/// authorises nothing. No key that data is sealed to in place of TLS is kept here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedRecord {
    /// The local network.
    #[serde(with = "hex::network")]
    pub network: NetworkId,
    /// The server's name, in lower case.
    pub name: String,
    /// Its port.
    pub port: u16,
    /// The parameter.
    #[serde(with = "hex::bytes")]
    pub parameter: Vec<u8>,
    /// How long the record may be kept, by its TTL, at most a day.
    pub until: u64,
    /// First flights inside lookups that were sealed to it and lost, in a row.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u32,
    /// When it was last queried again because of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
}

/// A resolver that refused, changed or lost names of first flights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedResolver {
    /// The local network.
    #[serde(with = "hex::network")]
    pub network: NetworkId,
    /// The resolver.
    pub resolver: IpAddr,
    /// The DNS-path zone in wire form.
    #[serde(with = "hex::bytes")]
    pub zone: Vec<u8>,
    /// First flights in a row that failed. One alone is no pause.
    pub strikes: u32,
    /// The resolver said that there is no such zone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_zone: bool,
    /// When the pause ends or ended; without a pause, the time of the strike. It counts for a day after that.
    pub until: u64,
}

/// A network where servers that this host never contacted cannot reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CachedUnreachable {
    /// The local network.
    #[serde(with = "hex::network")]
    pub network: NetworkId,
    /// When that is verified again.
    pub until: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl CachedLostRace {
    /// When it counts no more.
    #[must_use]
    pub const fn until(&self) -> u64 {
        self.at.saturating_add(10 * MINUTE)
    }
}

impl CachedClosedPort {
    /// When it counts no more.
    #[must_use]
    pub const fn until(&self) -> u64 {
        self.at.saturating_add(MINUTE)
    }
}

/// For each type: the most rows, the key of a row with its type, until when a row counts, for how long at most, and its address.
macro_rules! rows {
    ($(
        $of:ident, $most:literal, |$row:ident| $key:expr => $type:ty,
        until $until:expr $(, within $longest:expr)? $(, at $ip:expr)?;
    )*) => {
        $(
            impl Row for $of {
                type Key = $type;
                const MOST: usize = $most;

                fn key(&self) -> Self::Key {
                    let $row = self;
                    $key
                }

                fn network(&self) -> NetworkId {
                    self.network
                }

                $(
                    fn ip(&self) -> Option<IpAddr> {
                        let $row = self;
                        Some($ip)
                    }
                )?

                fn until(&self) -> Option<u64> {
                    let $row = self;
                    Some($until)
                }

                $(
                    fn longest() -> Option<u64> {
                        Some($longest)
                    }
                )?
            }
        )*
    };
}

rows! {
    CachedLostRace, 256, |row| (row.network, row.server, row.udp_port) => (NetworkId, SocketAddr, Option<u16>),
        until row.until(), within 10 * MINUTE, at row.server.ip();
    CachedClosedPort, 64, |row| (row.network, row.server) => (NetworkId, SocketAddr),
        until row.until(), within MINUTE, at row.server.ip();
    CachedUdpPause, 64, |row| row.network => NetworkId,
        until row.until.saturating_add(DAY), within DAY + LONGEST.as_millis() as u64;
    CachedRecord, 1024, |row| (row.network, row.name.clone(), row.port) => (NetworkId, String, u16),
        until row.until;
    CachedResolver, 256, |row| (row.network, row.resolver, row.zone.clone()) => (NetworkId, IpAddr, Vec<u8>),
        until row.until.saturating_add(DAY);
    CachedUnreachable, 256, |row| row.network => NetworkId,
        until row.until, within 60 * MINUTE;
}

impl CacheContent {
    /// Keeps what `keep` says, which is asked for the network and the address of each entry.
    pub fn retain(&mut self, keep: impl Fn(NetworkId, Option<IpAddr>) -> bool) {
        fn each<R: Row>(rows: &mut Vec<R>, keep: &impl Fn(NetworkId, Option<IpAddr>) -> bool) {
            rows.retain(|row| keep(row.network(), row.ip()));
        }
        each(&mut self.servers, &keep);
        each(&mut self.lost_races, &keep);
        each(&mut self.closed_ports, &keep);
        each(&mut self.udp_pauses, &keep);
        each(&mut self.records, &keep);
        each(&mut self.resolvers, &keep);
        each(&mut self.unreachable, &keep);
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.servers.len()
            + self.lost_races.len()
            + self.closed_ports.len()
            + self.udp_pauses.len()
            + self.records.len()
            + self.resolvers.len()
            + self.unreachable.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
