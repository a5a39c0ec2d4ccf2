//! Settings of the name server in the gateway, and of first flights from other name servers.

use super::Mistake;
use super::check::{in_udp, overlap};
use super::{Config, Listener};
use firstflight::{RelayTarget, RelayTargetError};
use firstflight_dns::front::RateLimit;
use firstflight_dns::service::{DnsPathSettings, FrontSettings, OtherFronts, complete_name};
use firstflight_dns::{DnsPathConfig, ForwardConfig, Name, Question};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use toml::Spanned;

/// First flights inside lookups: a name server of this gateway's own, other name servers that hand first flights over, or both.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Dns {
    /// The listener that gets the first flights, in UDP.
    #[schemars(with = "String")]
    pub listener: Spanned<String>,
    /// Its addresses and UDP ports as clients see them, one of a family, if they are not its own.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub seen_as: Vec<SocketAddr>,
    /// Addresses and ports of the name server, over UDP and TCP.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub listen: Vec<SocketAddr>,
    /// Zone below which the names of first flights are queried.
    #[serde(default, deserialize_with = "optional_name")]
    #[schemars(with = "Option<String>")]
    pub dns_path_zone: Option<Name>,
    /// File with the key that first flights are sealed to.
    pub dns_path_key: Option<PathBuf>,
    /// IPv4 addresses with which parts of first flights are answered: those of the plain name. The default is the listener's.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub dns_path_address: Vec<Ipv4Addr>,
    /// Answers of one kind in a second to one network (/24, /56) over UDP.
    #[serde(default = "answers")]
    pub answers_per_second: NonZeroU32,
    /// First flights that are opened in a second.
    #[serde(default = "opens")]
    pub opens_per_second: NonZeroU32,
    /// Zone files of ordinary names.
    #[serde(default)]
    #[schemars(with = "Vec<Zone>")]
    pub zone: Vec<Spanned<Zone>>,
    /// The other name servers of the DNS-path zone.
    #[schemars(with = "Option<Forward>")]
    pub forward: Option<Spanned<Forward>>,
    /// First flights from name servers that are no gateway's.
    #[schemars(with = "Option<Relay>")]
    pub relay: Option<Spanned<Relay>>,
}

/// A zone whose names the name server answers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Zone {
    /// Its file (RFC 1035).
    pub file: PathBuf,
    /// The name at which it begins.
    #[serde(deserialize_with = "name")]
    #[schemars(with = "String")]
    pub origin: Name,
}

/// The other name servers of the DNS-path zone.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Forward {
    /// Address and UDP port for them, which clients must not reach.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Theirs.
    #[schemars(with = "Vec<String>")]
    pub to: Vec<SocketAddr>,
    /// File with the key that all of them share.
    pub key: PathBuf,
    /// Number of this name server among them.
    pub front_id: u16,
    /// File that records when this name server was last started, created if it does not exist.
    pub state: PathBuf,
    /// Parts of first flights that are handed over in a second, and that are taken.
    #[serde(default = "forwards")]
    pub per_second: NonZeroU32,
}

/// Where other name servers hand first flights over.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Relay {
    /// Address and UDP port for them, which clients must not reach.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// File with the keys that they and this gateway share.
    pub key: PathBuf,
}

defaults! {
    answers: NonZeroU32 = RateLimit::default().per_second;
    opens: NonZeroU32 = DnsPathConfig::OPENS_PER_SECOND;
    forwards: NonZeroU32 = ForwardConfig::PER_SECOND;
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    let text = String::deserialize(deserializer)?;
    let wrong = || {
        D::Error::custom(format_args!("{text:?} is no domain name: write one in ASCII, as \"f.example.com\""))
    };
    complete_name(&text).ok_or_else(wrong)
}

fn optional_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Name>, D::Error> {
    name(deserializer).map(Some)
}

impl Dns {
    /// Which key differs in `other`, that a reload cannot change.
    pub(crate) fn fixed_difference(&self, other: &Self) -> Option<&'static str> {
        let Self {
            listener,
            seen_as,
            listen,
            dns_path_zone,
            dns_path_key,
            dns_path_address,
            answers_per_second,
            opens_per_second,
            // It is followed.
            zone: _,
            forward,
            relay,
        } = self;
        let differs = [
            ("listener", listener.get_ref() != other.listener.get_ref()),
            ("seen_as", *seen_as != other.seen_as),
            ("listen", *listen != other.listen),
            ("dns_path_zone", *dns_path_zone != other.dns_path_zone),
            ("dns_path_key", *dns_path_key != other.dns_path_key),
            ("dns_path_address", *dns_path_address != other.dns_path_address),
            ("answers_per_second", *answers_per_second != other.answers_per_second),
            ("opens_per_second", *opens_per_second != other.opens_per_second),
            (
                "forward",
                forward.as_ref().map(Spanned::get_ref) != other.forward.as_ref().map(Spanned::get_ref),
            ),
            ("relay", relay.as_ref().map(Spanned::get_ref) != other.relay.as_ref().map(Spanned::get_ref)),
        ];
        differs.into_iter().find(|(_, differs)| *differs).map(|(key, _)| key)
    }

    /// The zone files, and the names that they begin at.
    pub(crate) fn zone_files(&self) -> Vec<(PathBuf, Name)> {
        self.zone.iter().map(Spanned::get_ref).map(|zone| (zone.file.clone(), zone.origin.clone())).collect()
    }

    /// Where `listener` gets first flights from name servers.
    fn target(&self, listener: &Listener) -> Result<RelayTarget, RelayTargetError> {
        RelayTarget::new(&in_udp(listener), &self.seen_as)
    }

    fn others(&self) -> Option<OtherFronts> {
        let forward = self.forward.as_ref()?.get_ref();
        Some(OtherFronts {
            listen: forward.listen,
            others: forward.to.clone(),
            key: forward.key.clone(),
            per_second: forward.per_second,
        })
    }

    /// The settings of the name server. `None` without one.
    pub(crate) fn front(&self, listener: &Listener) -> Option<FrontSettings> {
        let (zone, key) = (self.dns_path_zone.clone()?, self.dns_path_key.clone()?);
        let mut addresses = self.dns_path_address.clone();
        if addresses.is_empty() {
            addresses.extend(self.target(listener).ok().and_then(|target| target.ipv4()));
        }
        let forward = self.forward.as_ref().map(Spanned::get_ref);
        let dns_path = DnsPathSettings {
            zone,
            key,
            addresses,
            opens_per_second: self.opens_per_second,
            servers: None,
            others: self.others(),
            front_id: forward.map_or(0, |forward| forward.front_id),
            state: forward.map(|forward| forward.state.clone()),
        };
        Some(FrontSettings {
            listen: self.listen.clone(),
            zones: self.zone_files(),
            answers_per_second: self.answers_per_second,
            dns_path: Some(dns_path),
        })
    }
}

impl Config {
    /// `[dns]`, and the listener that gets the first flights.
    pub(crate) fn dns(&self) -> Option<(&Dns, &Listener)> {
        let dns = self.dns.as_ref()?.get_ref();
        let listener = self.listeners.iter().find(|one| one.name.get_ref() == dns.listener.get_ref())?;
        Some((dns, listener))
    }

    /// What the name server, first flights and their listener demand of each other.
    pub(super) fn check_dns(&self, text: &str) -> Result<(), Mistake> {
        let Some(table) = &self.dns else { return Ok(()) };
        let dns = table.get_ref();
        let wrong = |problem: String| Mistake::at(text, &table.span(), problem);
        let Some((_, listener)) = self.dns() else {
            let problem = format!("there is no listener {:?}", dns.listener.get_ref());
            return Err(Mistake::at(text, &dns.listener.span(), problem));
        };
        if let Some(needs) = lacks(listener) {
            let problem = format!("the listener {:?} needs {needs}", dns.listener.get_ref());
            return Err(Mistake::at(text, &dns.listener.span(), problem));
        }
        let target = dns.target(listener).map_err(|error| wrong(format!("seen_as: {error}")))?;
        dns.check_names(&target).map_err(|problem| wrong(problem.to_owned()))?;
        for (n, zone) in dns.zone.iter().enumerate() {
            let origin = &zone.get_ref().origin;
            if dns.zone.iter().take(n).any(|other| other.get_ref().origin == *origin) {
                return Err(Mistake::at(text, &zone.span(), format!("another zone begins at {origin}, too")));
            }
        }
        if let (Some(forward), Some(others)) = (&dns.forward, dns.others()) {
            let at = |problem: String| Mistake::at(text, &forward.span(), problem);
            if others.others.is_empty() {
                return Err(at("needs to, the listen of the zone's other name servers".to_owned()));
            }
            others.check().map_err(|error| at(error.to_string()))?;
        }
        self.check_ports(dns).map_err(wrong)
    }

    /// Whether each port is free of this configuration's others.
    fn check_ports(&self, dns: &Dns) -> Result<(), String> {
        let listeners = || self.listeners.iter();
        let mut tcp: Vec<_> = listeners().flat_map(|one| one.address.get_ref()).copied().collect();
        tcp.extend(self.gateway.admin);
        let mut udp: Vec<_> = listeners().flat_map(in_udp).collect();
        let taken =
            |key: &str, at: &SocketAddr, of: &[SocketAddr]| match of.iter().find(|one| overlap(one, at)) {
                Some(other) => Err(format!("{key}: {other} is in use for something else in this file")),
                None => Ok(()),
            };
        for at in &dns.listen {
            taken("listen", at, &tcp)?;
            taken("listen", at, &udp)?;
            tcp.push(*at);
            udp.push(*at);
        }
        for (key, at) in [
            ("forward.listen", dns.forward.as_ref().map(|forward| forward.get_ref().listen)),
            ("relay.listen", dns.relay.as_ref().map(|relay| relay.get_ref().listen)),
        ] {
            let Some(at) = at else { continue };
            taken(key, &at, &udp)?;
            udp.push(at);
        }
        Ok(())
    }
}

/// What a listener needs to get first flights from name servers.
fn lacks(listener: &Listener) -> Option<&'static str> {
    let udp = in_udp(listener);
    let of_v4 = udp.iter().filter(|at| at.is_ipv4()).count();
    match () {
        () if !listener.takes_certificates() => Some("trust: first flights inside lookups have certificates"),
        () if listener.per_site => Some(
            "one memory with the other servers of its names: a request inside a lookup and its direct copy may reach two of them, and \
             would run at both. Share a [store] in place of per_site = true",
        ),
        () if !listener.fast_open || listener.pending == 0 => Some("fast_open and pending"),
        () if udp.is_empty() => Some("UDP (udp_port)"),
        () if of_v4 > 1 || udp.len() - of_v4 > 1 => {
            Some("one address of a family at most: UDP has one socket for each")
        }
        () => None,
    }
}

impl Dns {
    /// What the name server lacks, or has without being one.
    fn check_names(&self, target: &RelayTarget) -> Result<(), &'static str> {
        let has_any = self.dns_path_zone.is_some() || self.dns_path_key.is_some() || self.forward.is_some();
        if self.listen.is_empty() {
            return match &self.relay {
                _ if has_any || !self.zone.is_empty() => {
                    Err("needs listen, the addresses of the name server, as [\"192.0.2.80:53\"]")
                }
                Some(_) => Ok(()),
                None => Err("needs listen, the addresses of the name server, or [dns.relay]"),
            };
        }
        if self.dns_path_zone.is_none() || self.dns_path_key.is_none() {
            return Err("a name server needs dns_path_zone and dns_path_key");
        }
        if self.dns_path_address.len() > Question::MAX_ADDRESSES {
            return Err("dns_path_address has more than 8 addresses");
        }
        if self.dns_path_address.is_empty() && target.ipv4().is_none() {
            return Err(
                "needs dns_path_address: parts of first flights are answered with an IPv4 address, and the listener has none",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
