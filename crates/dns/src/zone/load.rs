//! Builds zones from records, and checks them.

use super::error::{ZoneError, ZoneFault};
use super::loops::find_loops;
use super::read::{Located, Reader};
use super::{Node, ZoneData, labels};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::rdata::svcb::{SVCB, SvcParamValue};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// RFC 2181 §8.
const MAX_TTL: u32 = 0x7fff_ffff;

impl ZoneData {
    /// Parses the zone that begins at `origin` from the text of a zone file. `path` is the file's path, for
    /// messages and for files that it includes.
    ///
    /// # Errors
    /// When it is not a zone file, or not a complete and legal zone. The file's author is at fault.
    pub fn parse(text: &str, path: Option<PathBuf>, origin: &Name) -> Result<Self, ZoneError> {
        Self::parse_with(text, path.as_deref(), origin, &mut |path| std::fs::read_to_string(path))
    }

    /// As [`ZoneData::parse`]. `files` returns the text of included files.
    ///
    /// # Errors
    /// As [`ZoneData::parse`].
    pub fn parse_with(
        text: &str,
        path: Option<&Path>,
        origin: &Name,
        files: &mut dyn FnMut(&Path) -> io::Result<String>,
    ) -> Result<Self, ZoneError> {
        let mut origin = origin.to_lowercase();
        origin.set_fqdn(true);
        let records = Reader::read(text, path, &origin, files)?;
        let zone = Self::build(origin, records)?;
        if zone.nodes.get(&zone.origin).is_none_or(|node| super::records(node, RecordType::NS).is_none()) {
            return Err(ZoneFault::NoServers.at(None));
        }
        Ok(zone)
    }

    /// The zone that begins at `origin` and has only its name servers. This is a DNS-path zone without a
    /// file.
    pub(crate) fn bare(origin: &Name, servers: &[Record], addresses: &[Record]) -> Result<Self, ZoneError> {
        let mname = servers.iter().find_map(|record| match &record.data {
            RData::NS(host) => Some(host.0.clone()),
            _ => None,
        });
        let rname = origin.prepend_label("hostmaster").map_err(|_| ZoneFault::NameTooLong.at(None))?;
        let mname = mname.unwrap_or_else(|| origin.clone());
        // Nothing in it is worth caching. The last number is the time for which a resolver caches a negative
        // answer.
        let soa = SOA::new(mname, rname, 1, 86_400, 7_200, 3_600_000, 0);
        let soa = Record::from_rdata(origin.clone(), 86_400, RData::SOA(soa));
        let own = addresses.iter().filter(|record| origin.zone_of(&record.name));
        let records = core::iter::once(&soa).chain(servers).chain(own).cloned().map(Located::from);
        Self::build(origin.clone(), records.collect())
    }

    fn build(origin: Name, records: Vec<Located>) -> Result<Self, ZoneError> {
        let mut builder = Builder { origin, nodes: HashMap::new(), soa: None, count: 0 };
        let mut aliases = Vec::new();
        for Located { mut record, place } in records {
            let checked = check(&builder.origin, &mut record);
            if let (RData::CNAME(_), Some(place)) = (&record.data, &place) {
                aliases.push((place.clone(), record.name.clone()));
            }
            checked.and_then(|()| builder.add(record)).map_err(|fault| fault.at(place))?;
        }
        let Builder { origin, nodes, soa, count } = builder;
        let soa = soa.ok_or(ZoneFault::NoSoa.at(None))?;
        let mut zone = Self { origin, soa, nodes, records: count, loops: Vec::new() };
        zone.loops = find_loops(&zone, aliases);
        Ok(zone)
    }
}

/// A zone while it is built.
struct Builder {
    origin: Name,
    nodes: HashMap<Name, Node>,
    soa: Option<Record>,
    count: usize,
}

impl Builder {
    fn add(&mut self, record: Record) -> Result<(), ZoneFault> {
        let (name, kind) = (record.name.clone(), record.record_type());
        if kind == RecordType::SOA {
            if name != self.origin {
                return Err(ZoneFault::Soa(name));
            }
            if self.soa.replace(record.clone()).is_some() {
                return Err(ZoneFault::TwoSoas);
            }
        }
        for count in labels(&self.origin)..labels(&name) {
            self.nodes.entry(name.trim_to(count)).or_default();
        }
        let node = self.nodes.entry(name).or_default();
        let is_alias = |kind| kind == RecordType::CNAME;
        if node.iter().any(|(found, _)| is_alias(kind) != is_alias(*found)) {
            return Err(ZoneFault::Alias(record.name));
        }
        let Some((_, set)) = node.iter_mut().find(|(found, _)| *found == kind) else {
            node.push((kind, vec![record]));
            self.count += 1;
            return Ok(());
        };
        // All records of a set have one TTL, and no two are equal (RFC 2181 §5 and §5.2).
        let ttl = set.iter().map(|other| other.ttl).fold(record.ttl, u32::min);
        if !set.iter().any(|other| other.data == record.data) {
            if is_alias(kind) {
                return Err(ZoneFault::Alias(record.name));
            }
            set.push(record);
            self.count += 1;
        }
        set.iter_mut().for_each(|record| record.ttl = ttl);
        Ok(())
    }
}

/// Checks a record, and completes what the library's parser leaves open.
fn check(origin: &Name, record: &mut Record) -> Result<(), ZoneFault> {
    record.name.set_fqdn(true);
    let name = || record.name.clone();
    if !origin.zone_of(&record.name) {
        return Err(ZoneFault::Outside(name()));
    }
    if record.dns_class != DNSClass::IN {
        return Err(ZoneFault::Class(name()));
    }
    if record.ttl > MAX_TTL {
        return Err(ZoneFault::Ttl(name()));
    }
    let kind = record.record_type();
    // This server does not do what the type promises.
    if kind == RecordType::ANAME {
        return Err(ZoneFault::Unsupported(name(), kind));
    }
    let owner = record.name.clone();
    match &mut record.data {
        RData::SVCB(svcb) => check_service(owner, svcb),
        RData::HTTPS(https) => check_service(owner, &mut https.0),
        _ => Ok(()),
    }
}

/// Checks and completes a record, because the library does not change relative targets, the order of
/// parameters, and the escapes in parameters that it does not know.
fn check_service(owner: Name, svcb: &mut SVCB) -> Result<(), ZoneFault> {
    if !svcb.target_name.is_fqdn() {
        return Err(ZoneFault::RelativeTarget(owner));
    }
    svcb.svc_params.sort_by_key(|(key, _)| u16::from(*key));
    if svcb.svc_params.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
        return Err(ZoneFault::Parameter(owner));
    }
    for (_, value) in &mut svcb.svc_params {
        if let SvcParamValue::Unknown(value) = value {
            value.0 = unescape(&value.0).ok_or_else(|| ZoneFault::Parameter(owner.clone()))?;
        }
    }
    Ok(())
}

/// The octets of a `char-string` (RFC 9460 appendix A): `\DDD` is the octet with this number, and `\X` is X
/// itself.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&octet, behind)) = rest.split_first() {
        rest = behind;
        if octet != b'\\' {
            out.push(octet);
            continue;
        }
        let (&next, behind) = rest.split_first()?;
        if !next.is_ascii_digit() {
            out.push(next);
            rest = behind;
            continue;
        }
        let (digits, behind) = rest.split_first_chunk::<3>()?;
        let number = str::from_utf8(digits).ok().filter(|_| digits.iter().all(u8::is_ascii_digit))?;
        out.push(number.parse().ok()?);
        rest = behind;
    }
    Some(out)
}
