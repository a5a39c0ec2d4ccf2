//! A zone of ordinary names, from a zone file (RFC 1035 §5), and the answers to them (RFC 1034 §4.3.2,
//! wildcards RFC 4592).

mod entries;
mod error;
mod load;
mod loops;
mod read;

pub use entries::EntryFault;
pub use error::{AliasLoop, ZoneError, ZoneFault, ZonePlace};

use core::fmt;
use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Name, RData, Record, RecordType};
use std::collections::HashMap;

/// The most aliases (CNAME) that are followed for one question.
const MAX_ALIASES: usize = 8;

/// A zone that is served.
#[derive(Clone)]
pub struct ZoneData {
    origin: Name,
    soa: Record,
    /// The nodes by name, including names without records that have names below them (RFC 4592 §2.2.2).
    nodes: HashMap<Name, Node>,
    records: usize,
    loops: Vec<AliasLoop>,
}

/// The records of a name.
type Node = Vec<(RecordType, Vec<Record>)>;

fn records(node: &Node, kind: RecordType) -> Option<&[Record]> {
    node.iter().find(|(found, _)| *found == kind).map(|(_, records)| &records[..])
}

/// The answer of a zone to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ZoneAnswer {
    pub kind: FoundKind,
    pub code: ResponseCode,
    pub answers: Vec<Record>,
    pub authorities: Vec<Record>,
    pub additionals: Vec<Record>,
}

/// The kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoundKind {
    /// Records.
    Positive,
    /// Other servers are authoritative for the name.
    Referral,
    /// The name exists, but has no records of this type.
    NoData,
    /// The name does not exist.
    NoName,
}

impl ZoneAnswer {
    fn new(kind: FoundKind) -> Self {
        let code = if kind == FoundKind::NoName { ResponseCode::NXDomain } else { ResponseCode::NoError };
        Self { kind, code, answers: Vec::new(), authorities: Vec::new(), additionals: Vec::new() }
    }
}

/// Where a name leads in a zone.
enum NamePlace<'a> {
    /// Its own records, or those of a wildcard.
    Node(&'a Node),
    /// The name is in another zone that begins below this one. These are its name servers.
    Cut(&'a [Record]),
    Nowhere,
}

impl ZoneData {
    /// The name at which it begins.
    #[must_use]
    pub const fn origin(&self) -> &Name {
        &self.origin
    }

    /// The number of its records.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.records
    }

    /// Whether it has no records. This is never true, because it has an SOA record.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The serial number in its SOA record.
    #[must_use]
    pub const fn serial(&self) -> u32 {
        match &self.soa.data {
            RData::SOA(soa) => soa.serial,
            _ => 0,
        }
    }

    /// Aliases in its file that lead back to themselves. They are answered, but have no address.
    #[must_use]
    pub fn alias_loops(&self) -> &[AliasLoop] {
        &self.loops
    }

    /// The name servers that this zone names for a zone that begins at `child`, with the addresses that it
    /// knows.
    pub(crate) fn delegation(&self, child: &Name) -> Option<(&[Record], Vec<Record>)> {
        let servers = records(self.nodes.get(child)?, RecordType::NS)?;
        Some((servers, self.addresses(servers)))
    }

    /// The answer to a question for `kind` at `name`, which is in this zone.
    pub(crate) fn look_up(&self, name: &Name, kind: RecordType) -> ZoneAnswer {
        let mut answers = Vec::new();
        let mut asked = name.clone();
        // The answer has the first alias in the letters' case of the question.
        let mut found = loop {
            let node = match self.find(&asked, kind) {
                NamePlace::Node(node) => node,
                // If an alias leads to another zone, the client must ask there.
                NamePlace::Cut(servers) if answers.is_empty() => break self.referral(servers),
                NamePlace::Cut(_) => break ZoneAnswer::new(FoundKind::Positive),
                NamePlace::Nowhere => break self.negative(FoundKind::NoName),
            };
            if let Some(alias) = records(node, RecordType::CNAME)
                && !matches!(kind, RecordType::CNAME | RecordType::ANY)
            {
                let target = alias.iter().find_map(|record| match &record.data {
                    RData::CNAME(target) => Some(target.0.clone()),
                    _ => None,
                });
                push(&mut answers, alias, &asked);
                // A chain of aliases that returns to a name ends there, so each record is in the answer only
                // once.
                let is_new = |next: &Name| !answers.iter().any(|record: &Record| record.name == *next);
                match target {
                    Some(next)
                        if self.origin.zone_of(&next) && answers.len() < MAX_ALIASES && is_new(&next) =>
                    {
                        asked = next;
                    }
                    _ => break ZoneAnswer::new(FoundKind::Positive),
                }
                continue;
            }
            let set = match kind {
                // One set is sufficient (RFC 8482 §4.1).
                RecordType::ANY => node.first().map(|(_, records)| &records[..]),
                kind => records(node, kind),
            };
            break match set {
                Some(set) => {
                    push(&mut answers, set, &asked);
                    let mut found = ZoneAnswer::new(FoundKind::Positive);
                    found.additionals = self.addresses(set);
                    found
                }
                None => self.negative(FoundKind::NoData),
            };
        };
        found.answers = answers;
        if found.kind == FoundKind::NoData && !found.answers.is_empty() {
            found.kind = FoundKind::Positive;
        }
        found
    }

    /// Goes from the zone's beginning down to the name, as far as names exist.
    fn find(&self, name: &Name, kind: RecordType) -> NamePlace<'_> {
        let (from, to) = (labels(&self.origin), labels(name));
        let mut encloser = &self.origin;
        let mut last = self.nodes.get(encloser);
        for count in from + 1..=to {
            let ancestor = name.trim_to(count);
            let Some((found, node)) = self.nodes.get_key_value(&ancestor) else {
                let wildcard = encloser.prepend_label("*").ok();
                let node = wildcard.and_then(|wildcard| self.nodes.get(&wildcard));
                return node.map_or(NamePlace::Nowhere, NamePlace::Node);
            };
            // The type DS belongs to the upper side of a zone cut (RFC 4035 §3.1.4.1).
            if let Some(servers) = records(node, RecordType::NS)
                && !(kind == RecordType::DS && count == to)
            {
                return NamePlace::Cut(servers);
            }
            (encloser, last) = (found, Some(node));
        }
        last.map_or(NamePlace::Nowhere, NamePlace::Node)
    }

    fn referral(&self, servers: &[Record]) -> ZoneAnswer {
        let mut found = ZoneAnswer::new(FoundKind::Referral);
        found.additionals = self.addresses(servers);
        found.authorities = servers.to_vec();
        found
    }

    /// A negative answer with the SOA record, whose TTL says how long the answer may be cached (RFC 2308 §3).
    pub(crate) fn negative(&self, kind: FoundKind) -> ZoneAnswer {
        let mut found = ZoneAnswer::new(kind);
        let mut soa = self.soa.clone();
        if let RData::SOA(data) = &soa.data {
            soa.ttl = soa.ttl.min(data.minimum);
        }
        found.authorities.push(soa);
        found
    }

    /// The addresses of the hosts that these records name, as far as the zone has them.
    fn addresses(&self, records: &[Record]) -> Vec<Record> {
        let mut found: Vec<Record> = Vec::new();
        for record in records {
            let host = match &record.data {
                RData::NS(host) => &host.0,
                RData::MX(mx) => &mx.exchange,
                RData::SRV(srv) => &srv.target,
                RData::SVCB(svcb) => &svcb.target_name,
                RData::HTTPS(https) => &https.0.target_name,
                _ => continue,
            };
            let Some(node) = self.nodes.get(host) else { continue };
            for kind in [RecordType::A, RecordType::AAAA] {
                let known = self::records(node, kind).unwrap_or_default().iter();
                let new: Vec<Record> = known.filter(|address| !found.contains(address)).cloned().collect();
                found.extend(new);
            }
        }
        found
    }
}

impl fmt::Debug for ZoneData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ZoneData({}, {} records)", self.origin, self.records)
    }
}

/// The number of labels, including a wildcard's asterisk, which the library does not count.
fn labels(name: &Name) -> usize {
    name.iter().len()
}

/// Adds records under the name of the question. This expands a wildcard, and keeps the letters' case of the
/// question.
fn push(answers: &mut Vec<Record>, records: &[Record], name: &Name) {
    answers.extend(records.iter().cloned().map(|mut record| {
        record.name = name.clone();
        record
    }));
}

#[cfg(test)]
mod tests;
