//! What the DNS says of a server: its addresses, and in the HTTPS record (RFC 9460) whether it takes certificates.

use crate::error::Error;
use firstflight_wire::asap::{ServiceParam, VerifierId};
use futures_util::future::{Either, select};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::rdata::svcb::{SVCB, SvcParamKey, SvcParamValue};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long an HTTPS record is waited for when the addresses are there, at least: some resolvers never answer for
/// that type. And how long addresses of one family are, when those of the other one are there.
const PATIENCE: Duration = Duration::from_millis(50);
/// The parameter's key.
const KEY: u16 = ServiceParam::KEY;

/// What a server publishes about certificates. It steers and never authorises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// It takes them on raw IP.
    pub on_ip: bool,
    /// And in UDP to this port.
    pub udp_port: Option<u16>,
    /// Bytes that it takes in a SYN.
    pub mss: u16,
    /// Whom it trusts.
    pub verifiers: Vec<VerifierId>,
    /// The parameter itself.
    pub bytes: Vec<u8>,
    /// How long the record may be kept, seconds.
    pub ttl: u32,
}

impl Published {
    /// Reads the parameter; `None` if it is malformed: then it says nothing.
    pub fn read(bytes: &[u8], ttl: u32) -> Option<Self> {
        let param = ServiceParam::parse(bytes).ok()?;
        Some(Self {
            on_ip: param.takes_ip(),
            udp_port: param.udp().map(|udp| udp.port.get()),
            mss: param.mss(),
            verifiers: param.verifiers.iter().collect(),
            bytes: bytes.to_vec(),
            ttl,
        })
    }
}

/// A resolver that was named.
pub struct Names {
    resolver: TokioResolver,
    patience: Duration,
}

impl Names {
    /// The resolver at this address, over UDP and TCP.
    ///
    /// # Errors
    /// When it cannot be used at all.
    pub fn at(server: SocketAddr) -> Result<Self, Error> {
        let fail = |error: String| Error::Resolver(server, io::Error::other(error));
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = server.port();
            connection
        });
        let one = NameServerConfig::new(server.ip(), true, connections.into());
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![one]);
        let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let resolver = builder.build().map_err(|error| fail(error.to_string()))?;
        Ok(Self { resolver, patience: PATIENCE })
    }

    /// Asks for the addresses of one family of a name, whatever was asked before.
    ///
    /// # Errors
    /// When the name has none.
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

    /// The same; those of the other family, if there are none.
    ///
    /// # Errors
    /// When the name has none of either family; the first one's.
    pub async fn addresses_or(&self, name: &str, v4: bool) -> io::Result<Vec<IpAddr>> {
        match self.addresses(name, v4).await {
            Ok(found) => Ok(found),
            Err(error) => self.addresses(name, !v4).await.map_err(|_| error),
        }
    }

    /// Asks for the addresses of both families at once. Those of the family `v4` says come first. When one family is
    /// there, the other one is waited for shortly (RFC 8305 §3: 50 ms).
    ///
    /// # Errors
    /// When the name has none.
    pub async fn all_addresses(&self, name: &str, v4: bool) -> io::Result<Vec<IpAddr>> {
        let patience = self.patience;
        let (first, second) = (pin!(self.addresses(name, v4)), pin!(self.addresses(name, !v4)));
        let (first, second) = match select(first, second).await {
            Either::Left((Ok(first), second)) => (Ok(first), timeout(patience, second).await.ok()),
            Either::Left((Err(error), second)) => (Err(error), Some(second.await)),
            Either::Right((Ok(second), first)) => {
                let late = || io::Error::from(io::ErrorKind::TimedOut);
                (timeout(patience, first).await.unwrap_or_else(|_| Err(late())), Some(Ok(second)))
            }
            Either::Right((Err(error), first)) => (first.await, Some(Err(error))),
        };
        match (first, second.and_then(Result::ok)) {
            (Ok(first), second) => Ok(first.into_iter().chain(second.into_iter().flatten()).collect()),
            (Err(_), Some(second)) => Ok(second),
            (Err(error), None) => Err(error),
        }
    }

    /// Asks what the server of a name at `port` publishes, whatever was asked before. `None` if its record does not
    /// exist or says nothing that is understood here.
    ///
    /// # Errors
    /// When the resolver does not answer, or cannot tell.
    pub async fn record(&self, name: &str, port: u16) -> io::Result<Option<Published>> {
        let absolute = absolute(name);
        self.resolver.clear_cache();
        match self.resolver.lookup(service(&absolute, port).as_str(), RecordType::HTTPS).await {
            Ok(found) => Ok(published(found.answers(), &absolute, port)),
            Err(error) if error.is_no_records_found() => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Asks for the addresses of a name and for what its server at `port` publishes, all at once. What is published
    /// may take twice as long as the addresses, and is not waited for longer.
    ///
    /// # Errors
    /// When the name has no address.
    pub async fn look_up(&self, name: &str, port: u16) -> Result<(Vec<IpAddr>, Option<Published>), Error> {
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
            return Err(Error::Lookup(name.to_owned(), io::Error::other(why)));
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

/// Whose HTTPS record is that of the server at `port`: with another port than the scheme's own, that stands in front of
/// the name (RFC 9460 §9.1).
fn service(absolute: &str, port: u16) -> String {
    match port {
        80 | 443 => absolute.to_owned(),
        port => format!("_{port}._https.{absolute}"),
    }
}

/// What these records say about the server that has the addresses of `name` (absolute), at `port`: of several the
/// one with the smallest priority that says something. Nothing, if there is one of priority 0: it points to
/// another name, and counts for all (RFC 9460 §2.4.1).
fn published(answers: &[Record], name: &str, port: u16) -> Option<Published> {
    let mut records: Vec<_> = answers
        .iter()
        .filter_map(|answer| match &answer.data {
            RData::HTTPS(https) => Some((&answer.name, &https.0, answer.ttl)),
            _ => None,
        })
        .collect();
    if records.iter().any(|(_, record, _)| record.svc_priority == 0) {
        return None;
    }
    records.sort_by_key(|(_, record, _)| record.svc_priority);
    let name = Name::from_utf8(name).ok();
    let here =
        |owner: &Name, target: &Name| target.is_root() || target == owner || Some(target) == name.as_ref();
    let mut usable = records
        .iter()
        .filter(|(owner, record, _)| here(owner, &record.target_name) && is_compatible(record, port));
    usable.find_map(|(_, record, ttl)| parameter(record, *ttl))
}

/// Whether all that one must understand of a record is understood here (RFC 9460 §8), and it is about this port
/// (§7.2).
fn is_compatible(record: &SVCB, port: u16) -> bool {
    record.svc_params.iter().all(|(_, value)| match value {
        SvcParamValue::Port(other) => *other == port,
        SvcParamValue::Mandatory(keys) => {
            keys.0.iter().all(|key| matches!(key, SvcParamKey::Port | SvcParamKey::Key(KEY)))
        }
        _ => true,
    })
}

fn parameter(record: &SVCB, ttl: u32) -> Option<Published> {
    record.svc_params.iter().find_map(|(key, value)| match (key, value) {
        (SvcParamKey::Key(KEY), SvcParamValue::Unknown(bytes)) => Published::read(&bytes.0, ttl),
        _ => None,
    })
}

#[cfg(test)]
mod tests;
