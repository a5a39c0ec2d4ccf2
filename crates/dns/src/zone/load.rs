//! Zone files read, and what they must have.

use super::{Node, ZoneData, labels};
use core::fmt;
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::rdata::svcb::{SVCB, SvcParamValue};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::txt::{ParseError, Parser};
use std::collections::HashMap;
use std::path::PathBuf;

/// RFC 2181 §8.
const MAX_TTL: u32 = 0x7fff_ffff;

impl ZoneData {
    /// Reads the zone that begins at `origin` from the text of a zone file. `path` is where it was, for other
    /// files that it includes.
    ///
    /// # Errors
    /// When it is no zone file, or not a whole and legal zone. Whoever wrote the file is at fault.
    pub fn parse(text: &str, path: Option<PathBuf>, origin: &Name) -> Result<Self, ZoneError> {
        let mut origin = origin.to_lowercase();
        origin.set_fqdn(true);
        let parsed = Parser::new(text, path, Some(origin.clone())).parse();
        let (_, sets) = parsed.map_err(ZoneError::Syntax)?;
        let sets = sets.into_values().map(|set| (set.record_type(), set.into_parts().records));
        Self::new(origin, sets)
    }

    /// The zone that begins at `origin` and has only its servers: what a carriage zone is without a file.
    pub(crate) fn bare(origin: &Name, servers: &[Record], addresses: &[Record]) -> Result<Self, ZoneError> {
        let mname = servers.iter().find_map(|record| match &record.data {
            RData::NS(host) => Some(host.0.clone()),
            _ => None,
        });
        let rname = origin.prepend_label("hostmaster").map_err(|_| ZoneError::NameTooLong)?;
        let mname = mname.unwrap_or_else(|| origin.clone());
        // Nothing in it is worth keeping: the last number is how long a resolver keeps that there is nothing.
        let soa = SOA::new(mname, rname, 1, 86_400, 7_200, 3_600_000, 0);
        let mut sets: Vec<(RecordType, Vec<Record>)> =
            vec![(RecordType::SOA, vec![Record::from_rdata(origin.clone(), 86_400, RData::SOA(soa))])];
        if !servers.is_empty() {
            sets.push((RecordType::NS, servers.to_vec()));
        }
        let own = addresses.iter().filter(|record| origin.zone_of(&record.name));
        sets.extend(own.map(|record| (record.record_type(), vec![record.clone()])));
        Self::build(origin.clone(), sets)
    }

    fn new(
        origin: Name,
        sets: impl IntoIterator<Item = (RecordType, Vec<Record>)>,
    ) -> Result<Self, ZoneError> {
        let zone = Self::build(origin, sets)?;
        if zone.nodes.get(&zone.origin).is_none_or(|node| super::records(node, RecordType::NS).is_none()) {
            return Err(ZoneError::NoServers);
        }
        Ok(zone)
    }

    fn build(
        origin: Name,
        sets: impl IntoIterator<Item = (RecordType, Vec<Record>)>,
    ) -> Result<Self, ZoneError> {
        let (mut nodes, mut soa, mut count) = (HashMap::<Name, Node>::new(), None, 0);
        for (kind, mut records) in sets {
            for record in &mut records {
                check(&origin, record)?;
                count += 1;
            }
            let Some(first) = records.first() else { continue };
            let name = first.name.clone();
            if kind == RecordType::SOA {
                if name != origin {
                    return Err(ZoneError::Soa(name));
                }
                soa = Some(first.clone());
            }
            // All of one set have one TTL (RFC 2181 §5.2).
            let ttl = records.iter().map(|record| record.ttl).min().unwrap_or(0);
            records.iter_mut().for_each(|record| record.ttl = ttl);
            for count in labels(&origin)..labels(&name) {
                nodes.entry(name.trim_to(count)).or_default();
            }
            let node = nodes.entry(name).or_default();
            match node.iter_mut().find(|(found, _)| *found == kind) {
                Some((_, before)) => before.append(&mut records),
                None => node.push((kind, records)),
            }
        }
        for (name, node) in &nodes {
            let alias = super::records(node, RecordType::CNAME);
            if alias.is_some_and(|alias| alias.len() > 1 || node.len() > 1) {
                return Err(ZoneError::Alias(name.clone()));
            }
        }
        let soa = soa.ok_or(ZoneError::NoSoa)?;
        Ok(Self { origin, soa, nodes, records: count })
    }
}

/// What a record must be, and what the library's parser leaves open.
fn check(origin: &Name, record: &mut Record) -> Result<(), ZoneError> {
    record.name.set_fqdn(true);
    let name = || record.name.clone();
    if !origin.zone_of(&record.name) {
        return Err(ZoneError::Outside(name()));
    }
    if record.dns_class != DNSClass::IN {
        return Err(ZoneError::Class(name()));
    }
    if record.ttl > MAX_TTL {
        return Err(ZoneError::Ttl(name()));
    }
    let kind = record.record_type();
    // It promises what this server does not do.
    if kind == RecordType::ANAME {
        return Err(ZoneError::Unsupported(name(), kind));
    }
    let owner = record.name.clone();
    match &mut record.data {
        RData::SVCB(svcb) => check_service(owner, svcb),
        RData::HTTPS(https) => check_service(owner, &mut https.0),
        _ => Ok(()),
    }
}

/// The library leaves relative targets as they are, the order of parameters, and the escapes in those that it
/// does not know.
fn check_service(owner: Name, svcb: &mut SVCB) -> Result<(), ZoneError> {
    if !svcb.target_name.is_fqdn() {
        return Err(ZoneError::RelativeTarget(owner));
    }
    svcb.svc_params.sort_by_key(|(key, _)| u16::from(*key));
    if svcb.svc_params.windows(2).any(|pair| matches!(pair, [(a, _), (b, _)] if a == b)) {
        return Err(ZoneError::Parameter(owner));
    }
    for (_, value) in &mut svcb.svc_params {
        if let SvcParamValue::Unknown(value) = value {
            value.0 = unescape(&value.0).ok_or_else(|| ZoneError::Parameter(owner.clone()))?;
        }
    }
    Ok(())
}

/// The octets of a `char-string` (RFC 9460 appendix A): `\DDD` is one by its number, `\X` is X itself.
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

/// What is wrong with a zone: whoever wrote it is at fault.
#[derive(Debug)]
#[non_exhaustive]
pub enum ZoneError {
    /// The text is no zone file.
    Syntax(ParseError),
    /// No SOA record at the origin.
    NoSoa,
    /// No NS record at the origin.
    NoServers,
    /// An SOA record at another name.
    Soa(Name),
    /// A name that is not in the zone.
    Outside(Name),
    /// Another class than IN.
    Class(Name),
    /// A TTL above 2³¹ − 1 (RFC 2181 §8).
    Ttl(Name),
    /// A CNAME record beside others (RFC 1034 §3.6.2).
    Alias(Name),
    /// A type that is not served.
    Unsupported(Name, RecordType),
    /// The target of an SVCB or HTTPS record without its final dot.
    RelativeTarget(Name),
    /// A parameter of an SVCB or HTTPS record that is none, or is there twice.
    Parameter(Name),
    /// The zone's name leaves no room for names below it.
    NameTooLong,
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(error) => write!(f, "is no zone file: {error}"),
            Self::NoSoa => f.write_str("has no SOA record at its origin"),
            Self::NoServers => f.write_str("has no NS record at its origin"),
            Self::Soa(name) => write!(f, "has an SOA record at {name}, which is not its origin"),
            Self::Outside(name) => write!(f, "has the name {name}, which is not in the zone"),
            Self::Class(name) => write!(f, "has a record of another class than IN at {name}"),
            Self::Ttl(name) => write!(f, "has a TTL above 2147483647 at {name}"),
            Self::Alias(name) => write!(f, "has a CNAME record beside others at {name}"),
            Self::Unsupported(name, kind) => {
                write!(f, "has a record of type {kind} at {name}, which is not served")
            }
            Self::RelativeTarget(name) => {
                write!(f, "has a target without its final dot in the record at {name}: write the whole name")
            }
            Self::Parameter(name) => {
                write!(f, "has a parameter that is none, or one twice, in the record at {name}")
            }
            Self::NameTooLong => f.write_str("has a name that leaves no room for names below it"),
        }
    }
}

impl std::error::Error for ZoneError {}
