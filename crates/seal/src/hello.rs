//! The ClientHello in a flight (4.1). The server reads it itself, before a TLS library runs.

use crate::commitment::{DIGEST_PREFIX, PROTOCOL_PREFIX};
use crate::name::HostName;
use crate::reader::Reader;

const RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const TLS13: u16 = 0x0304;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;
const COOKIE: u16 = 44;
const ECH: u16 = 0xfe0d;
/// No ClientHello has more extensions than there are in use, so duplicates are found in a small list.
const MOST_EXTENSIONS: usize = 64;

/// What a ClientHello in a flight says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The server that it is for.
    pub server_name: HostName,
    /// The application protocol, as ALPN names it: 1 to 252 bytes.
    pub protocol: &'a [u8],
    /// The digest of the request that it commits to (4.2).
    pub digest: &'a [u8; 32],
}

/// Why a ClientHello must not be in a flight: the client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloFault {
    /// It is not one record with one ClientHello.
    #[error("not one record with one ClientHello")]
    Malformed,
    /// It offers another version than TLS 1.3, or none.
    #[error("another version than TLS 1.3 is offered")]
    Version,
    /// It does not name exactly one host.
    #[error("no server name, or not one")]
    ServerName,
    /// It offers early data, is an answer to a HelloRetryRequest, or contains another ClientHello.
    #[error("an extension that is not allowed in a flight")]
    Extension,
    /// It does not offer exactly the two ALPN names of a flight.
    #[error("not the ALPN names of a flight")]
    Alpn,
}

impl<'a> Hello<'a> {
    /// Reads a record that contains a ClientHello and nothing else.
    ///
    /// # Errors
    /// The first rule of 4.1 that is broken.
    pub fn parse(record: &'a [u8]) -> Result<Self, HelloFault> {
        let mut extensions = extensions(record).ok_or(HelloFault::Malformed)?;
        let (mut versions, mut name, mut alpn) = (None, None, None);
        let mut seen = Vec::new();
        while !extensions.is_empty() {
            let (Some(kind), Some(data)) = (extensions.u16(), extensions.part16()) else {
                return Err(HelloFault::Malformed);
            };
            if seen.contains(&kind) || seen.len() == MOST_EXTENSIONS {
                return Err(HelloFault::Malformed);
            }
            seen.push(kind);
            match kind {
                SERVER_NAME => name = Some(data),
                ALPN => alpn = Some(data),
                SUPPORTED_VERSIONS => versions = Some(data),
                EARLY_DATA | COOKIE | ECH => return Err(HelloFault::Extension),
                _ => {}
            }
        }
        if versions.and_then(only_version) != Some(TLS13) {
            return Err(HelloFault::Version);
        }
        let server_name = name.and_then(only_name).ok_or(HelloFault::ServerName)?;
        let (protocol, digest) = alpn.and_then(two_names).ok_or(HelloFault::Alpn)?;
        Ok(Self { server_name, protocol, digest })
    }
}

/// The extensions of the only ClientHello in the only record.
fn extensions(record: &[u8]) -> Option<Reader<'_>> {
    let mut reader = Reader::new(record);
    let (kind, version) = (reader.u8()?, reader.u16()?);
    let mut message = Reader::new(reader.part16()?);
    if kind != RECORD || !matches!(version, 0x0301 | 0x0303) || !reader.is_empty() {
        return None;
    }
    let [kind, a, b, c] = *message.array()?;
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    let mut hello = Reader::new(message.take(len)?);
    if kind != CLIENT_HELLO || !message.is_empty() || hello.u16()? != 0x0303 {
        return None;
    }
    let _random: &[u8; 32] = hello.array()?;
    let (session, suites, compression) = (hello.part8()?, hello.part16()?, hello.part8()?);
    let extensions = Reader::new(hello.part16()?);
    let good = session.len() <= 32 && !suites.is_empty() && suites.len() % 2 == 0 && compression == [0];
    (good && hello.is_empty()).then_some(extensions)
}

fn only_version(data: &[u8]) -> Option<u16> {
    let mut reader = Reader::new(data);
    let listed: &[u8; 2] = reader.part8()?.try_into().ok()?;
    reader.is_empty().then_some(u16::from_be_bytes(*listed))
}

fn only_name(data: &[u8]) -> Option<HostName> {
    let mut reader = Reader::new(data);
    let mut list = Reader::new(reader.part16()?);
    let (kind, name) = (list.u8()?, list.part16()?);
    let alone = kind == 0 && list.is_empty() && reader.is_empty();
    HostName::new(name).filter(|_| alone)
}

fn two_names(data: &[u8]) -> Option<(&[u8], &[u8; 32])> {
    let mut reader = Reader::new(data);
    let mut list = Reader::new(reader.part16()?);
    let (one, two) = (list.part8()?, list.part8()?);
    let protocol = one.strip_prefix(&PROTOCOL_PREFIX)?;
    let digest = two.strip_prefix(&DIGEST_PREFIX)?.try_into().ok()?;
    let alone = list.is_empty() && reader.is_empty() && !protocol.is_empty();
    alone.then_some((protocol, digest))
}
