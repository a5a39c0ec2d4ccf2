//! DNS messages of the carriage: the client's questions, the front's answers (`docs/spec/dns-carriage.md`, section 8).

mod malformed;

pub(crate) use malformed::refuse;

use crate::fragment::{Fragments, LABEL};
use crate::names::{HEADER, Position, name, position, question};
use crate::zone::{Found, FoundKind};
use core::fmt;
use core::net::Ipv4Addr;
use firstflight_wire::asap::Zone;
use hickory_proto::op::{Edns, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder};
use rand_core::CryptoRng;

/// Payload that the front says it takes over UDP: no fragments of IP (DNS Flag Day 2020).
const UDP_PAYLOAD: u16 = 1232;
/// What everybody takes over UDP (RFC 1035 §4.2.1).
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
    /// [`MessageError::Encode`]: never with a label as [`Fragments`](crate::Fragments) makes them.
    pub fn new(id: u16, label: &[u8; LABEL], zone: Zone<'_>) -> Result<Self, MessageError> {
        let name = Name::from_labels(core::iter::once(&label[..]).chain(zone.labels()))
            .map_err(|_| MessageError::Encode)?;
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(name, RecordType::A));
        Ok(Self { message: message.to_vec().map_err(|_| MessageError::Encode)? })
    }

    /// The questions for all of `fragments`. Their ids are random and no two are alike: an answer is told by its id,
    /// and one that is taken for another question's looks mangled.
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

    /// What `message`, from the resolver that was asked, says to this question; `None` if it is no answer to
    /// it.
    #[must_use]
    pub fn read_answer(&self, message: &[u8]) -> Option<Echo> {
        // Before anything is read: an answer to this question, by its id and the QR bit.
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
    /// As it was asked.
    Answered,
    /// As it was asked, and without an address: this is no carriage zone (any more).
    Empty,
    /// The answer was cut. The resolver was told to ask again over TCP, or the client is.
    Truncated,
    /// With an error: this response code.
    Failed(u16),
    /// The question came back as another one: octets are changed on the way.
    Mangled,
}

/// What an answer says of the way to the front (section 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The resolver takes such names.
    Carried,
    /// The name was lost between the resolver and the front: resolvers report it with SERVFAIL.
    Lost,
    /// There is no such carriage zone. Says nothing of the resolver.
    NoZone,
    /// The resolver refuses such names, or cannot carry them.
    Refused,
}

impl Echo {
    /// What it says of the way to the front.
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
    /// Name, type and class as they came.
    raw: Vec<u8>,
}

impl Question {
    /// Reads a query with one question, which is the whole of `message`.
    ///
    /// # Errors
    /// [`MessageError::NotAQuery`], [`MessageError::Malformed`]: drop it. The sender is at fault.
    pub fn parse(message: &[u8]) -> Result<Self, MessageError> {
        // Before the rest is read, which may be long.
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

    /// The name that is asked for, as it came, in wire form.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        name(&self.raw)
    }

    /// Where that name is in relation to `zone`.
    #[must_use]
    pub fn position(&self, zone: Zone<'_>) -> Position<'_> {
        position(self.name(), zone)
    }

    /// Whether addresses are asked for: type A, class IN. Only that carries fragments.
    #[must_use]
    pub fn asks_for_a(&self) -> bool {
        self.query.query_type() == RecordType::A && self.query.query_class() == DNSClass::IN
    }

    /// The authoritative answer with these addresses, TTL 0; without any, and to other types, that there is
    /// nothing of the kind. The question is in it octet for octet.
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

    /// The most addresses in one answer: it stays below 512 octets, which everybody takes over UDP.
    pub const MAX_ADDRESSES: usize = 8;

    /// The answer "ask again over TCP", by which a limit of the rate of answers spares who really asks.
    ///
    /// # Errors
    /// [`MessageError::Encode`]: never.
    pub fn slip(&self) -> Result<Vec<u8>, MessageError> {
        let mut answer = self.response();
        answer.metadata.authoritative = true;
        answer.metadata.truncation = true;
        self.encode(&answer)
    }

    /// What is asked for: name, type and class.
    pub(crate) const fn asked(&self) -> &Query {
        &self.query
    }

    /// Whether it has EDNS of a version that nobody knows yet: the answer can only say so.
    pub(crate) fn is_of_unknown_version(&self) -> bool {
        self.edns.as_ref().is_some_and(|edns| edns.version() > 0)
    }

    /// The longest answer over UDP that who asked takes, and that needs no fragments of IP, octets.
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

    /// What a zone says, in `max` octets at most, and whether it was cut to them (RFC 2181 §9): what helps is left
    /// out first, but not what a referral is of no use without (RFC 9471 §3.1).
    pub(crate) fn tell(&self, found: Found, max: u16) -> Result<(Vec<u8>, bool), MessageError> {
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

    /// An answer with nothing in it.
    fn response(&self) -> Message {
        let mut answer = Message::new(self.metadata.id, MessageType::Response, OpCode::Query);
        answer.metadata = Metadata::response_from_request(&self.metadata);
        // It validates nothing (RFC 4035 §3.1.6).
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
        // The library writes names as they were; that it does is not promised.
        if question(&bytes).is_none_or(|echoed| echoed.len() != self.raw.len()) {
            return Err(MessageError::Encode);
        }
        let place = bytes.get_mut(HEADER..HEADER + self.raw.len()).ok_or(MessageError::Encode)?;
        place.copy_from_slice(&self.raw);
        Ok(bytes)
    }
}

/// What is wrong with a DNS message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// It is an answer, or no ordinary query. The sender is at fault.
    NotAQuery,
    /// It cannot be read, or has not one question. The sender is at fault.
    Malformed,
    /// It cannot be written. The caller is at fault.
    Encode,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAQuery => "no ordinary DNS query",
            Self::Malformed => "a malformed DNS message, or one without exactly one question",
            Self::Encode => "a DNS message that cannot be written",
        })
    }
}

impl core::error::Error for MessageError {}

#[cfg(test)]
mod tests;
