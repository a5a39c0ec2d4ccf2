//! Reads IPv6 headers and the chain of extension headers.

use super::fragment::NUMBER as FRAGMENT;
use super::{Ecn, Fragment, Packet, Protocol, V6_HEADER};
use crate::ParseError;
use core::net::{IpAddr, Ipv6Addr};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const ENCAPSULATING_SECURITY: u8 = 50;
const AUTHENTICATION: u8 = 51;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION_OPTIONS: u8 = 60;

/// Largest number of extension headers. A packet with more is refused: a host may set a limit (RFC 8504 §5.3),
/// and each header costs time. Of the headers in RFC 8200 §4.1 we accept at most five.
const MAX_EXTENSION_HEADERS: usize = 6;

#[inline]
pub(super) fn parse(bytes: &[u8]) -> Result<Packet<'_, Ipv6Addr>, ParseError> {
    let Header { first, src, dst, rest } = split(bytes)?;
    let [_, class, _, _, len_high, len_low, next, hop_limit] = *first;
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    // A jumbogram has length 0 here and its real length in an option that is refused below.
    let payload = rest.get(..len).ok_or(ParseError::Truncated)?;
    let (protocol, payload) = skip_extension_headers(next, payload)?;
    Ok(Packet { src, dst, protocol, hop_limit, ecn: Ecn::from_bits(class >> 4), payload })
}

struct Header<'a> {
    /// The bytes in front of the addresses.
    first: &'a [u8; 8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    rest: &'a [u8],
}

#[inline]
fn split(bytes: &[u8]) -> Result<Header<'_>, ParseError> {
    let (header, rest) = bytes.split_first_chunk::<V6_HEADER>().ok_or(ParseError::Truncated)?;
    let (first, addresses) = header.split_first_chunk::<8>().ok_or(ParseError::Truncated)?;
    let (src, dst) = addresses.split_first_chunk::<16>().ok_or(ParseError::Truncated)?;
    let dst = dst.first_chunk::<16>().ok_or(ParseError::Truncated)?;
    Ok(Header { first, src: Ipv6Addr::from(*src), dst: Ipv6Addr::from(*dst), rest })
}

/// Reads a packet that is a fragment. The length and offset of its payload are not checked yet.
pub(super) fn parse_fragment(bytes: &[u8]) -> Result<Fragment<'_>, ParseError> {
    let Header { first, src, dst, rest } = split(bytes)?;
    let [_, class, _, _, len_high, len_low, mut next, hop_limit] = *first;
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let mut rest = rest.get(..len).ok_or(ParseError::Truncated)?;
    for count in 0..MAX_EXTENSION_HEADERS {
        match next {
            FRAGMENT => {
                let (own, payload) = rest.split_first_chunk::<8>().ok_or(ParseError::Truncated)?;
                let [next, _, p0, p1, identification @ ..] = *own;
                let place = u16::from_be_bytes([p0, p1]);
                let offset = place & !7;
                return Ok(Fragment {
                    src: src.into(),
                    dst: dst.into(),
                    identification: u32::from_be_bytes(identification),
                    next: Protocol::from(next),
                    transport: if offset == 0 { Some(transport(next, payload)?) } else { None },
                    offset,
                    more: place & 1 != 0,
                    hop_limit,
                    ecn: Ecn::from_bits(class >> 4),
                    payload,
                });
            }
            HOP_BY_HOP if count > 0 => break,
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => (next, rest) = skip_one(next, rest)?,
            _ => break,
        }
    }
    Err(ParseError::ExtensionHeader(next))
}

/// The transport protocol of a first fragment, which must contain the transport header (RFC 7112 §5).
/// Hop-by-Hop Options are legal only in front of the Fragment header, and a second Fragment header is refused.
fn transport(next: u8, payload: &[u8]) -> Result<Protocol, ParseError> {
    if matches!(next, HOP_BY_HOP | FRAGMENT) {
        return Err(ParseError::ExtensionHeader(next));
    }
    let (protocol, rest) = match skip_extension_headers(next, payload) {
        Err(ParseError::Truncated | ParseError::Fragment) => return Err(ParseError::BadFragment),
        found => found?,
    };
    let least = if protocol == Protocol::Tcp { 20 } else { 8 };
    if rest.len() < least { Err(ParseError::BadFragment) } else { Ok(protocol) }
}

/// Follows the chain from `next` to the transport header.
#[inline]
pub(crate) fn skip_extension_headers(next: u8, payload: &[u8]) -> Result<(Protocol, &[u8]), ParseError> {
    match next {
        HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS => walk(next, payload),
        ENCAPSULATING_SECURITY | AUTHENTICATION | NO_NEXT_HEADER => Err(ParseError::ExtensionHeader(next)),
        _ => Ok((Protocol::from(next), payload)),
    }
}

fn walk(mut next: u8, mut payload: &[u8]) -> Result<(Protocol, &[u8]), ParseError> {
    for count in 0..=MAX_EXTENSION_HEADERS {
        match next {
            // Hop-by-Hop Options are legal only as the first header (RFC 8200 §4.1).
            HOP_BY_HOP if count > 0 => return Err(ParseError::ExtensionHeader(next)),
            HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS => {
                if count == MAX_EXTENSION_HEADERS {
                    return Err(ParseError::ExtensionHeader(next));
                }
                (next, payload) = skip_one(next, payload)?;
            }
            ENCAPSULATING_SECURITY | AUTHENTICATION | NO_NEXT_HEADER => break,
            _ => return Ok((Protocol::from(next), payload)),
        }
    }
    Err(ParseError::ExtensionHeader(next))
}

/// Checks one extension header; returns the number of the next header and the bytes behind this one.
fn skip_one(kind: u8, payload: &[u8]) -> Result<(u8, &[u8]), ParseError> {
    let [next, units, third, fourth, ..] = *payload else {
        return Err(ParseError::Truncated);
    };
    // A Fragment header has a fixed length and no length field.
    let len = if kind == FRAGMENT { 8 } else { 8 + usize::from(units) * 8 };
    let (header, rest) = payload.split_at_checked(len).ok_or(ParseError::Truncated)?;
    match kind {
        // Offset and more-fragments flag are zero in an atomic fragment, which is a whole packet (RFC 6946).
        FRAGMENT if u16::from_be_bytes([third, fourth]) & 0xfff9 != 0 => Err(ParseError::Fragment),
        // `fourth` is Segments Left. With segments left we would have to forward the packet (RFC 8200 §4.4).
        ROUTING if fourth != 0 => Err(ParseError::SourceRoute),
        FRAGMENT | ROUTING => Ok((next, rest)),
        _ => check_options(header.get(2..).unwrap_or_default()).map(|()| (next, rest)),
    }
}

/// Knows only padding options. Of the other options it skips those whose two high bits allow that (RFC 8200
/// §4.2).
fn check_options(mut options: &[u8]) -> Result<(), ParseError> {
    const PAD_1: u8 = 0;
    loop {
        options = match *options {
            [] => return Ok(()),
            [PAD_1, ref rest @ ..] => rest,
            [kind, len, ref rest @ ..] if kind >> 6 == 0 => {
                rest.get(usize::from(len)..).ok_or(ParseError::BadOption)?
            }
            _ => return Err(ParseError::BadOption),
        };
    }
}

/// The header of a packet that an ICMPv6 error quotes, and the quoted part of its payload.
pub(crate) fn parse_quoted(bytes: &[u8]) -> Result<(IpAddr, IpAddr, Protocol, &[u8]), ParseError> {
    let Header { first, src, dst, rest } = split(bytes)?;
    let [version, _, _, _, _, _, next, _] = *first;
    if version >> 4 != 6 {
        return Err(ParseError::BadVersion);
    }
    let (protocol, quoted) = skip_extension_headers(next, rest)?;
    Ok((src.into(), dst.into(), protocol, quoted))
}
