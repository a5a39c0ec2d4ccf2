//! Reading IPv4 headers.

use super::{Ecn, Packet, Protocol, V4_HEADER};
use crate::{ParseError, checksum};
use core::net::{IpAddr, Ipv4Addr};

/// More-fragments flag and fragment offset, of the flags word.
const FRAGMENT: u16 = 0x3fff;

#[inline(always)]
pub(super) fn parse(bytes: &[u8]) -> Result<Packet<'_, Ipv4Addr>, ParseError> {
    let head: &[u8; V4_HEADER] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
    let header_len = usize::from(head[0] & 0xf) * 4;
    let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if header_len < V4_HEADER || total < header_len {
        return Err(ParseError::BadHeaderLength);
    }
    // Ethernet pads short frames, so there may be more bytes than the packet has.
    let packet = bytes.get(..total).ok_or(ParseError::Truncated)?;
    let (header, payload) = packet.split_at_checked(header_len).ok_or(ParseError::Truncated)?;
    // Nearly every header is just these 20 bytes.
    let sum = if header_len == V4_HEADER { checksum::sum_of(head) } else { checksum::sum(header) };
    if !sum.is_valid() {
        return Err(ParseError::BadChecksum);
    }
    if u16::from_be_bytes([head[6], head[7]]) & FRAGMENT != 0 {
        return Err(ParseError::Fragment);
    }
    if let Some(options) = header.get(V4_HEADER..)
        && !options.is_empty()
    {
        check_options(options)?;
    }
    let (src, dst) = addresses(head);
    Ok(Packet {
        src,
        dst,
        protocol: Protocol::from(head[9]),
        hop_limit: head[8],
        ecn: Ecn::from_bits(head[1]),
        payload,
    })
}

#[inline]
fn addresses(head: &[u8; V4_HEADER]) -> (Ipv4Addr, Ipv4Addr) {
    (
        Ipv4Addr::new(head[12], head[13], head[14], head[15]),
        Ipv4Addr::new(head[16], head[17], head[18], head[19]),
    )
}

/// Every option is skipped but source routes, loose and strict: their only use today is to evade
/// filters and to attract return traffic (RFC 7126 §4.3, §4.4).
//= rfc9293 MUST-50
#[cold]
fn check_options(mut options: &[u8]) -> Result<(), ParseError> {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    loop {
        options = match *options {
            [] | [END, ..] => return Ok(()),
            [NOP, ref rest @ ..] => rest,
            [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, ..] => return Err(ParseError::SourceRoute),
            [_, len, ..] if len >= 2 => options.get(usize::from(len)..).ok_or(ParseError::BadOption)?,
            _ => return Err(ParseError::BadOption),
        };
    }
}

/// The header of a packet that an ICMP error quotes, and what of its payload is quoted.
///
/// Neither its checksum nor its length is believed: routers on the way have changed the header, some
/// in error, and the quotation is cut short anyway.
pub(crate) fn parse_quoted(bytes: &[u8]) -> Result<(IpAddr, IpAddr, Protocol, &[u8]), ParseError> {
    let head: &[u8; V4_HEADER] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
    if head[0] >> 4 != 4 {
        return Err(ParseError::BadVersion);
    }
    let header_len = usize::from(head[0] & 0xf) * 4;
    if header_len < V4_HEADER {
        return Err(ParseError::BadHeaderLength);
    }
    // Only a first fragment begins with the transport header.
    if u16::from_be_bytes([head[6], head[7]]) & 0x1fff != 0 {
        return Err(ParseError::Fragment);
    }
    let quoted = bytes.get(header_len..).ok_or(ParseError::Truncated)?;
    let (src, dst) = addresses(head);
    Ok((src.into(), dst.into(), Protocol::from(head[9]), quoted))
}
