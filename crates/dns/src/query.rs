//! DNS messages of the DNS path: the client's questions, the front's answers (`docs/spec/dns-path.md`, section 8).

mod malformed;

pub(crate) use malformed::refuse;

use crate::fragment::{Fragments, LABEL};
use crate::names::{HEADER, Position, name, position, question};
use crate::zone::{FoundKind, ZoneAnswer};
use core::net::Ipv4Addr;
use firstflight_wire::asap::Zone;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};
use rand_core::CryptoRng;

/// The UDP payload that the front advertises. It avoids IP fragments (DNS Flag Day 2020).
const UDP_PAYLOAD: u16 = 1232;
/// The UDP payload that every host accepts (RFC 1035 §4.2.1).
const MIN_PAYLOAD: u16 = 512;

/// A client's question for one fragment.
#[derive(Debug, Clone)]
pub struct FragmentQuery {
    message: Vec<u8>,
}

impl FragmentQuery {
    /// Asks for the addresses (type A) of `label` below `zone`, recursively. `id` is random.
    ///
    /// # Errors
    /// [`MessageError::Encode`], but never with a label from [`Fragments`](crate::Fragments).
    pub fn new(id: u16, label: &[u8; LABEL], zone: Zone<'_>) -> Result<Self, MessageError> {
        let name = Name::from_labels(core::iter::once(&label[..]).chain(zone.labels()))
            .map_err(|_| MessageError::Encode)?;
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(name, RecordType::A));
        Ok(Self { message: message.to_vec().map_err(|_| MessageError::Encode)? })
    }

    /// The questions for all of `fragments`. Their ids are random and all different: the id assigns an answer
    /// to its question, and an answer that is assigned to another question looks mangled.
    ///
    /// # Errors
    /// As [`FragmentQuery::new`].
    pub fn all(
        fragments: &Fragments,
        zone: Zone<'_>,
        rng: &mut impl CryptoRng,
    ) -> Result<Vec<Self>, MessageError> {
        let mut ids: Vec<u16> = Vec::with_capacity(fragments.as_slice().len());
        let query = |label| {
            let id = loop {
                let id = (rng.next_u32() >> 16) as u16;
                if !ids.contains(&id) {
                    break id;
                }
            };
            ids.push(id);
            Self::new(id, &label, zone)
        };
        fragments.labels().map(query).collect()
    }

    /// The message, for a UDP datagram.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.message
    }

    /// What `message`, from the resolver that was asked, answers to this question. `None` if it is not an
    /// answer to it.
    #[must_use]
    pub fn read_answer(&self, message: &[u8]) -> Option<Echo> {
        // Check the id and the QR bit before parsing: it must be an answer to this question.
        let (id, flags) = (message.get(..2)?, message.get(2)?);
        if self.message.get(..2)? != id || flags & 0x80 == 0 {
            return None;
        }
        let asked = question(&self.message)?;
        let answer = Message::from_vec(message).ok()?;
        let code = answer.metadata.response_code;
        if code != ResponseCode::NoError {
            return Some(Echo::Failed(code.into()));
        }
        match question(message) {
            Some(echoed) if answer.queries.len() == 1 && echoed.eq_ignore_ascii_case(asked) => {}
            _ => return Some(Echo::Mangled),
        }
        if answer.metadata.truncation {
            return Some(Echo::Truncated);
        }
        let has_address = answer.answers.iter().any(|record| matches!(record.data, RData::A(_)));
        Some(if has_address { Echo::Answered } else { Echo::Empty })
    }
}

/// How a fragment was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Echo {
    /// The question came back unchanged.
    Answered,
    /// The question came back unchanged, but without an address: this is not a DNS-path zone (any more).
    Empty,
    /// The answer was truncated, which tells the resolver or the client to ask again over TCP.
    Truncated,
    /// The answer has an error, with this response code.
    Failed(u16),
    /// The question came back changed, so octets are changed on the way.
    Mangled,
}

/// What an answer shows about the way to the front (section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The resolver accepts such names.
    Carried,
    /// The name was lost between the resolver and the front: resolvers report it with SERVFAIL.
    Lost,
    /// There is no such DNS-path zone. It proves nothing about the resolver.
    NoZone,
    /// The resolver refuses such names, or cannot carry them.
    Refused,
}

impl Echo {
    /// What it shows about the way to the front.
    #[must_use]
    pub fn meaning(self) -> Meaning {
        match self {
            Self::Answered | Self::Truncated => Meaning::Carried,
            Self::Empty => Meaning::NoZone,
            Self::Mangled => Meaning::Refused,
            Self::Failed(code) if code == u16::from(ResponseCode::ServFail) => Meaning::Lost,
            Self::Failed(code) if code == u16::from(ResponseCode::NXDomain) => Meaning::NoZone,
            Self::Failed(_) => Meaning::Refused,
        }
    }
}

/// A question that came to the front.
#[derive(Debug, Clone)]
pub struct Question {
    metadata: Metadata,
    edns: Option<Edns>,
    query: Query,
    /// Name, type and class as they were received.
    raw: Vec<u8>,
}

impl Question {
    /// Parses a query with one question, which must fill `message` completely.
    ///
    /// # Errors
    /// [`MessageError::NotAQuery`], [`MessageError::Malformed`]: drop it. The sender is at fault.
    pub fn parse(message: &[u8]) -> Result<Self, MessageError> {
        // Check this before the rest, which may be long.
        if message.get(2).is_none_or(|flags| flags & 0x80 != 0) {
            return Err(MessageError::NotAQuery);
        }
        let raw = question(message).ok_or(MessageError::Malformed)?.to_vec();
        let message = Message::from_vec(message).map_err(|_| MessageError::Malformed)?;
        if message.metadata.op_code != OpCode::Query {
            return Err(MessageError::NotAQuery);
        }
        let mut queries = message.queries.into_iter();
        match (queries.next(), queries.next()) {
            (Some(query), None) => Ok(Self { metadata: message.metadata, edns: message.edns, query, raw }),
            _ => Err(MessageError::Malformed),
        }
    }

    /// The name of the question as it was received, in wire form.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        name(&self.raw)
    }

    /// The position of that name in relation to `zone`.
    #[must_use]
    pub fn position(&self, zone: Zone<'_>) -> Position<'_> {
        position(self.name(), zone)
    }

    /// Whether the question is for addresses: type A, class IN. Only such questions carry fragments.
    #[must_use]
    pub fn asks_for_a(&self) -> bool {
        self.query.query_type() == RecordType::A && self.query.query_class() == DNSClass::IN
    }

    /// The authoritative answer with these addresses, TTL 0. Without addresses, and for other types, it says
    /// that there are no such records. It contains the question octet for octet.
    ///
    /// # Errors
    /// [`MessageError::Encode`] for more than [`Question::MAX_ADDRESSES`]: the caller is at fault.
    pub fn answer(&self, addresses: &[Ipv4Addr]) -> Result<Vec<u8>, MessageError> {
        if addresses.len() > Self::MAX_ADDRESSES {
            return Err(MessageError::Encode);
        }
        let mut answer = self.response();
        answer.metadata.authoritative = true;
        if self.asks_for_a() && answer.metadata.response_code == ResponseCode::NoError {
            let name = || self.query.name().clone();
            let record = |address: &Ipv4Addr| Record::from_rdata(name(), 0, RData::A(A(*address)));
            answer.add_answers(addresses.iter().map(record));
        }
        self.encode(&answer)
    }

    /// The most addresses in one answer. It stays below 512 octets, which every host accepts over UDP.
    pub const MAX_ADDRESSES: usize = 8;

    /// The answer "ask again over TCP". With it, a limit of the rate of answers does not affect genuine
    /// resolvers.
    ///
    /// # Errors
    /// [`MessageError::Encode`]: never.
    pub fn slip(&self) -> Result<Vec<u8>, MessageError> {
        let mut answer = self.response();
        answer.metadata.authoritative = true;
        answer.metadata.truncation = true;
        self.encode(&answer)
    }

    /// The question: name, type and class.
    pub(crate) const fn asked(&self) -> &Query {
        &self.query
    }

    /// Whether it has EDNS of an unknown version. The answer can only say so.
    pub(crate) fn is_of_unknown_version(&self) -> bool {
        self.edns.as_ref().is_some_and(|edns| edns.version() > 0)
    }

    /// The longest answer over UDP that the resolver accepts and that needs no IP fragments, octets.
    pub(crate) fn max_payload(&self) -> u16 {
        self.edns.as_ref().map_or(MIN_PAYLOAD, |edns| edns.max_payload().clamp(MIN_PAYLOAD, UDP_PAYLOAD))
    }

    /// An answer with no records and this code, from a server that is not authoritative for the name.
    pub(crate) fn fail(&self, code: ResponseCode) -> Result<Vec<u8>, MessageError> {
        let mut answer = self.response();
        if answer.metadata.response_code == ResponseCode::NoError {
            answer.metadata.response_code = code;
        }
        self.encode(&answer)
    }

    /// The answer of a zone in at most `max` octets, and whether it was truncated (RFC 2181 §9). Additional
    /// records are left out first, but not in a referral, which needs them (RFC 9471 §3.1).
    pub(crate) fn tell(&self, found: ZoneAnswer, max: u16) -> Result<(Vec<u8>, bool), MessageError> {
        let mut answer = self.response();
        answer.metadata.authoritative = found.kind != FoundKind::Referral;
        answer.metadata.response_code = found.code;
        answer.answers = found.answers;
        answer.authorities = found.authorities;
        answer.additionals = found.additionals;
        let max = usize::from(max);
        let whole = self.encode(&answer)?;
        if whole.len() <= max {
            return Ok((whole, false));
        }
        if found.kind != FoundKind::Referral && !answer.additionals.is_empty() {
            answer.additionals.clear();
            let whole = self.encode(&answer)?;
            if whole.len() <= max {
                return Ok((whole, false));
            }
        }
        let mut cut = self.response();
        cut.metadata.authoritative = answer.metadata.authoritative;
        cut.metadata.response_code = answer.metadata.response_code;
        cut.metadata.truncation = true;
        Ok((self.encode(&cut)?, true))
    }

    /// An empty answer.
    fn response(&self) -> Message {
        let mut answer = Message::new(self.metadata.id, MessageType::Response, OpCode::Query);
        answer.metadata = Metadata::response_from_request(&self.metadata);
        // The server does not validate (RFC 4035 §3.1.6).
        answer.metadata.checking_disabled = false;
        answer.add_query(self.query.clone());
        if let Some(asked) = &self.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(UDP_PAYLOAD).set_dnssec_ok(asked.flags().dnssec_ok);
            if asked.version() > 0 {
                // RFC 6891 §6.1.3.
                answer.metadata.response_code = ResponseCode::BADVERS;
                edns.set_rcode_high(ResponseCode::BADVERS.high());
            }
            answer.set_edns(edns);
        }
        answer
    }

    fn encode(&self, answer: &Message) -> Result<Vec<u8>, MessageError> {
        let mut bytes = Vec::with_capacity(512);
        let mut encoder = BinEncoder::new(&mut bytes);
        encoder.set_max_size(u16::MAX);
        answer.emit(&mut encoder).map_err(|_| MessageError::Encode)?;
        // The library writes names unchanged, but does not guarantee it.
        if question(&bytes).is_none_or(|echoed| echoed.len() != self.raw.len()) {
            return Err(MessageError::Encode);
        }
        let place = bytes.get_mut(HEADER..HEADER + self.raw.len()).ok_or(MessageError::Encode)?;
        place.copy_from_slice(&self.raw);
        Ok(bytes)
    }
}

/// What is wrong with a DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// It is an answer, or not an ordinary query. The sender is at fault.
    #[error("no ordinary DNS query")]
    NotAQuery,
    /// It cannot be parsed, or does not have exactly one question. The sender is at fault.
    #[error("a malformed DNS message, or one without exactly one question")]
    Malformed,
    /// It cannot be written. The caller is at fault.
    #[error("a DNS message that cannot be written")]
    Encode,
}

#[cfg(test)]
mod tests;
