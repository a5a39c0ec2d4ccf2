//! What the DNS says about a server: its addresses, and in the HTTPS record (RFC 9460) whether it accepts
//! certificates.

mod parameter;

pub use parameter::{Parameter, Validated};

use firstflight_wire::asap::{
    DnsPathParam, ServiceParam, UdpService, VerifierId, VerifierIds, VerifiersParam,
};
use futures_util::future::{Either, select};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::rdata::svcb::{SVCB, SvcParamKey, SvcParamValue};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Minimum time to wait for an HTTPS record after the addresses have arrived, because some resolvers never answer for
/// that type.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long the addresses of one family are waited for after those of the other one have arrived. RFC 8305 §3 connects after 50 ms,
/// and adds what comes later. Here it could not be added, and what came first may lead nowhere.
const OTHER_FAMILY: Duration = Duration::from_secs(1);
/// The parameter's key.
const KEY: u16 = ServiceParam::KEY;

/// What a server publishes about certificates. It selects the method and never authorises anything.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// The server accepts certificates on raw IP.
    pub on_ip: bool,
    /// The UDP port at which the server accepts certificates.
    pub udp_port: Option<u16>,
    /// Bytes that the server accepts in a SYN.
    pub mss: u16,
    /// The verifiers that the server trusts.
    pub verifiers: Vec<VerifierId>,
    /// The parameter itself.
    pub bytes: Vec<u8>,
    /// How long the record may be kept, seconds.
    pub ttl: u32,
    /// The record names verifiers from which a client can get certificates for this site ([`VerifiersParam`]), and does not hide the
    /// server's name (`ech`).
    pub names_verifiers: bool,
}

impl Published {
    /// What a server publishes that accepts certificates of `verifiers` in UDP port `port`, with up to `mss` bytes in a
    /// SYN. `None` if the port is 0, or there are too many verifiers or none.
    #[must_use]
    pub fn in_udp(port: u16, mss: u16, verifiers: &[VerifierId]) -> Option<Self> {
        let udp = UdpService { port: NonZeroU16::new(port)?, dns_path: None };
        Self::by(false, Some(udp), mss, verifiers)
    }

    /// What a server publishes that accepts certificates of `verifiers` in TCP on IP, otherwise as [`Published::in_udp`].
    #[must_use]
    pub fn on_ip(mss: u16, verifiers: &[VerifierId]) -> Option<Self> {
        Self::by(true, None, mss, verifiers)
    }

    fn by(ip: bool, udp: Option<UdpService<'_>>, mss: u16, verifiers: &[VerifierId]) -> Option<Self> {
        let ids: Vec<[u8; 4]> = verifiers.iter().map(|id| id.0).collect();
        let param = ServiceParam::new(ip, udp, mss, VerifierIds::new(&ids)?, false)?;
        let mut bytes = [0; ServiceParam::MAX_LEN];
        let len = param.emit(&mut bytes).ok()?;
        Self::read(bytes.get(..len)?, u32::MAX)
    }

    /// Parses the parameter; `None` if it is malformed and so has no meaning. `ttl` is in seconds.
    #[must_use]
    pub fn read(bytes: &[u8], ttl: u32) -> Option<Self> {
        let param = ServiceParam::parse(bytes).ok()?;
        Some(Self {
            on_ip: param.takes_ip(),
            udp_port: param.udp().map(|udp| udp.port.get()),
            mss: param.mss(),
            verifiers: param.verifiers.iter().collect(),
            bytes: bytes.to_vec(),
            ttl,
            names_verifiers: false,
        })
    }
}

/// Where the server of this parameter accepts first flights in UDP.
pub(crate) fn udp_service(parameter: &[u8]) -> Option<UdpService<'_>> {
    ServiceParam::parse(parameter).ok()?.udp().copied()
}

/// How first flights inside lookups reach the server of this parameter.
pub(crate) fn dns_path(parameter: &[u8]) -> Option<DnsPathParam<'_>> {
    udp_service(parameter)?.dns_path
}

/// A resolver of names.
#[derive(Debug)]
pub struct Names {
    resolver: TokioResolver,
    patience: Duration,
    /// Those that are asked for single parameters.
    servers: parameter::Servers,
}

impl Names {
    /// The resolver at this address, over UDP and TCP.
    ///
    /// # Errors
    /// When the resolver cannot be used.
    pub fn at(server: SocketAddr) -> io::Result<Self> {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = server.port();
            connection
        });
        let one = NameServerConfig::new(server.ip(), true, connections.into());
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![one]);
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let (resolver, servers) =
            (builder.build().map_err(io::Error::other)?, parameter::Servers::one(server));
        Ok(Self { resolver, patience: PATIENCE, servers })
    }

    /// The resolvers of the system's configuration (`/etc/resolv.conf`).
    ///
    /// # Errors
    /// When there is no usable configuration.
    pub fn system() -> io::Result<Self> {
        let builder = TokioResolver::builder_tokio().map_err(io::Error::other)?;
        let (resolver, servers) = (builder.build().map_err(io::Error::other)?, parameter::Servers::system());
        Ok(Self { resolver, patience: PATIENCE, servers })
    }

    /// Queries the addresses of one family of a name, without a cache.
    ///
    /// # Errors
    /// When the name has no such address.
    pub async fn addresses(&self, name: &str, v4: bool) -> io::Result<Vec<IpAddr>> {
        let absolute = absolute(name);
        self.resolver.clear_cache();
        let kind = if v4 { RecordType::A } else { RecordType::AAAA };
        let found = self.resolver.lookup(absolute.as_str(), kind).await.map_err(io::Error::other)?;
        let addresses: Vec<_> = found.answers().iter().filter_map(|answer| answer.data.ip_addr()).collect();
        if addresses.is_empty() {
            return Err(io::Error::other("it has no address"));
        }
        Ok(addresses)
    }

    /// Like `addresses`, but returns the addresses of the other family if there are none of this family.
    ///
    /// # Errors
    /// When the name has no address of either family. The error is that of the first family.
    pub async fn addresses_or(&self, name: &str, v4: bool) -> io::Result<Vec<IpAddr>> {
        match self.addresses(name, v4).await {
            Ok(found) => Ok(found),
            Err(error) => self.addresses(name, !v4).await.map_err(|_| error),
        }
    }

    /// Queries the addresses of both families at once. Those of the family that `v4` selects come first. When one
    /// family has arrived, waits a second at most for the other one.
    ///
    /// # Errors
    /// When the name has no address.
    pub async fn all_addresses(&self, name: &str, v4: bool) -> io::Result<Vec<IpAddr>> {
        let (first, second) = (pin!(self.addresses(name, v4)), pin!(self.addresses(name, !v4)));
        let (first, second) = match select(first, second).await {
            Either::Left((Ok(first), second)) => (Ok(first), timeout(OTHER_FAMILY, second).await.ok()),
            Either::Left((Err(error), second)) => (Err(error), Some(second.await)),
            Either::Right((Ok(second), first)) => {
                let late = || io::Error::from(io::ErrorKind::TimedOut);
                (timeout(OTHER_FAMILY, first).await.unwrap_or_else(|_| Err(late())), Some(Ok(second)))
            }
            Either::Right((Err(error), first)) => (first.await, Some(Err(error))),
        };
        match (first, second.and_then(Result::ok)) {
            (Ok(first), second) => Ok(first.into_iter().chain(second.into_iter().flatten()).collect()),
            (Err(_), Some(second)) => Ok(second),
            (Err(error), None) => Err(error),
        }
    }

    /// Queries what the server of a name at `port` publishes, without a cache. `None` if the record does not exist or
    /// contains nothing that is supported here.
    ///
    /// # Errors
    /// When the resolver does not answer, or reports a failure.
    pub async fn record(&self, name: &str, port: u16) -> io::Result<Option<Published>> {
        let absolute = absolute(name);
        self.resolver.clear_cache();
        match self.resolver.lookup(service(&absolute, port).as_str(), RecordType::HTTPS).await {
            Ok(found) => Ok(published(found.answers(), &absolute, port)),
            Err(error) if error.is_no_records_found() => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Queries the addresses of a name and what its server at `port` publishes, all at once. Waits for the latter at
    /// most twice as long as for the addresses.
    ///
    /// # Errors
    /// When the name has no address.
    pub async fn look_up(&self, name: &str, port: u16) -> io::Result<(Vec<IpAddr>, Option<Published>)> {
        let absolute = absolute(name);
        let service = service(&absolute, port);
        let began = Instant::now();
        let addresses = async {
            tokio::join!(
                self.resolver.lookup(absolute.as_str(), RecordType::A),
                self.resolver.lookup(absolute.as_str(), RecordType::AAAA),
            )
        };
        let (addresses, record) =
            (pin!(addresses), pin!(self.resolver.lookup(service.as_str(), RecordType::HTTPS)));
        let ((v4, v6), record) = match select(addresses, record).await {
            Either::Left((addresses, record)) => {
                (addresses, timeout(began.elapsed().max(self.patience), record).await.ok())
            }
            Either::Right((record, addresses)) => (addresses.await, Some(record)),
        };
        let mut addresses = Vec::new();
        let mut why = None;
        for found in [v6, v4] {
            match found {
                Ok(found) => {
                    addresses.extend(found.answers().iter().filter_map(|answer| answer.data.ip_addr()))
                }
                Err(error) => why = Some(error.to_string()),
            }
        }
        if addresses.is_empty() {
            let why = why.unwrap_or_else(|| "it has no address".into());
            return Err(io::Error::other(why));
        }
        let published =
            record.and_then(Result::ok).and_then(|found| published(found.answers(), &absolute, port));
        Ok((addresses, published))
    }
}

/// A name with its final dot.
fn absolute(name: &str) -> String {
    format!("{}.", name.trim_end_matches('.'))
}

/// The owner name of the HTTPS record of the server at `port`. A port other than the scheme's default is a prefix of
/// the name (RFC 9460 §9.1).
fn service(absolute: &str, port: u16) -> String {
    match port {
        80 | 443 => absolute.to_owned(),
        port => format!("_{port}._https.{absolute}"),
    }
}

/// What these records say about the server that has the addresses of `name` (absolute), at `port`: the usable record
/// with the smallest priority.
fn published(answers: &[Record], name: &str, port: u16) -> Option<Published> {
    let known = [KEY, VerifiersParam::KEY];
    usable(answers, name, port, &known).into_iter().find_map(|(record, ttl)| parameter(record, ttl))
}

/// The records that are about the server that has the addresses of `name` (absolute), at `port`, with their TTL, that of
/// the smallest priority first. `keys` are the supported parameters. A record of priority 0 points to another name and
/// overrides all others (RFC 9460 §2.4.1), so then there are none.
fn usable<'a>(answers: &'a [Record], name: &str, port: u16, keys: &[u16]) -> Vec<(&'a SVCB, u32)> {
    let mut records: Vec<_> = answers
        .iter()
        .filter_map(|answer| match &answer.data {
            RData::HTTPS(https) => Some((&answer.name, &https.0, answer.ttl)),
            _ => None,
        })
        .collect();
    if records.iter().any(|(_, record, _)| record.svc_priority == 0) {
        return Vec::new();
    }
    records.sort_by_key(|(_, record, _)| record.svc_priority);
    let name = Name::from_utf8(name).ok();
    let here =
        |owner: &Name, target: &Name| target.is_root() || target == owner || Some(target) == name.as_ref();
    records
        .retain(|(owner, record, _)| here(owner, &record.target_name) && is_compatible(record, port, keys));
    records.into_iter().map(|(_, record, ttl)| (record, ttl)).collect()
}

/// Whether all mandatory parameters of a record are supported here (RFC 9460 §8), and the record is for this port
/// (§7.2).
fn is_compatible(record: &SVCB, port: u16, supported: &[u16]) -> bool {
    record.svc_params.iter().all(|(_, value)| match value {
        SvcParamValue::Port(other) => *other == port,
        SvcParamValue::Mandatory(keys) => keys.0.iter().all(|key| match key {
            SvcParamKey::Port => true,
            SvcParamKey::Key(key) => supported.contains(key),
            _ => false,
        }),
        _ => true,
    })
}

fn parameter(record: &SVCB, ttl: u32) -> Option<Published> {
    let mut published = Published::read(&value(record, KEY)?, ttl)?;
    // Who hides a name from the path does not want its verifiers to be asked in sight of the path.
    let hides = record.svc_params.iter().any(|(key, _)| *key == SvcParamKey::EchConfigList);
    published.names_verifiers = value(record, VerifiersParam::KEY).is_some() && !hides;
    Some(published)
}

/// The value of a parameter with this SvcParamKey.
fn value(record: &SVCB, wanted: u16) -> Option<Vec<u8>> {
    record.svc_params.iter().find_map(|(key, value)| match (key, value) {
        (SvcParamKey::Key(key), SvcParamValue::Unknown(bytes)) if *key == wanted => Some(bytes.0.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
