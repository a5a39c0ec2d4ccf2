//! Reads IPv4 headers.

use super::{Ecn, Fragment, Packet, Protocol, V4_HEADER};
use crate::{ParseError, checksum};
use core::net::{IpAddr, Ipv4Addr};

/// The more-fragments flag and the fragment offset in the second word.
const FRAGMENT: u32 = 0x3fff;

/// Version 4 and a header of five words: no options, as in nearly every header.
const PLAIN: u8 = 0x45;

#[inline]
pub(super) fn parse(bytes: &[u8]) -> Result<Packet<'_, Ipv4Addr>, ParseError> {
    let head: &[u8; V4_HEADER] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
    let words = words(head);
    let payload = if head[0] == PLAIN { plain_payload(words, bytes) } else { payload(words, bytes) }?;
    let [first, _, third, src, dst] = words;
    let [_, traffic_class, ..] = first.to_ne_bytes();
    let [hop_limit, protocol, ..] = third.to_ne_bytes();
    Ok(Packet {
        src: address(src),
        dst: address(dst),
        protocol: Protocol::from(protocol),
        hop_limit,
        ecn: Ecn::from_bits(traffic_class),
        payload,
    })
}

/// The header as words, so that a word used in several places is loaded only once.
#[inline]
fn words(head: &[u8; V4_HEADER]) -> [u32; 5] {
    let (words, _) = head.as_chunks::<4>();
    core::array::from_fn(|i| words.get(i).map_or(0, |word| u32::from_ne_bytes(*word)))
}

#[inline]
fn address(word: u32) -> Ipv4Addr {
    Ipv4Addr::from(word.to_ne_bytes())
}

/// Checks a header without options and returns what follows it.
#[inline]
fn plain_payload(words: [u32; 5], bytes: &[u8]) -> Result<&[u8], ParseError> {
    // Ethernet pads short frames, so there may be more bytes than the packet's length.
    let packet = bytes.get(..total_len(words)).ok_or(ParseError::Truncated)?;
    let payload = packet.get(V4_HEADER..).ok_or(ParseError::BadHeaderLength)?;
    if !checksum::sum_of(words).is_valid() {
        return Err(ParseError::BadChecksum);
    }
    if is_fragment(words) { Err(ParseError::Fragment) } else { Ok(payload) }
}

/// Checks any other header with its options and returns what follows it.
fn payload(words: [u32; 5], bytes: &[u8]) -> Result<&[u8], ParseError> {
    let (options, payload) = split(words, bytes)?;
    if is_fragment(words) {
        return Err(ParseError::Fragment);
    }
    check_options(options)?;
    Ok(payload)
}

/// Checks the header and returns the options, which are not checked, and what follows the header.
fn split(words: [u32; 5], bytes: &[u8]) -> Result<(&[u8], &[u8]), ParseError> {
    let [first, ..] = words;
    let header_len = usize::from(first.to_ne_bytes()[0] & 0xf) * 4;
    let total = total_len(words);
    if header_len < V4_HEADER || total < header_len {
        return Err(ParseError::BadHeaderLength);
    }
    let packet = bytes.get(..total).ok_or(ParseError::Truncated)?;
    let (header, payload) = packet.split_at_checked(header_len).ok_or(ParseError::Truncated)?;
    if !checksum::sum(header).is_valid() {
        return Err(ParseError::BadChecksum);
    }
    Ok((header.get(V4_HEADER..).unwrap_or_default(), payload))
}

/// Reads a packet that is a fragment. The length and offset of its payload are not checked yet.
pub(super) fn parse_fragment(bytes: &[u8]) -> Result<Fragment<'_>, ParseError> {
    let head: &[u8; V4_HEADER] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
    let words = words(head);
    let (options, payload) = split(words, bytes)?;
    check_options(options)?;
    let place = u16::from_be_bytes([head[6], head[7]]);
    let [_, _, _, src, dst] = words;
    let next = Protocol::from(head[9]);
    Ok(Fragment {
        src: address(src).into(),
        dst: address(dst).into(),
        identification: u16::from_be_bytes([head[4], head[5]]).into(),
        next,
        transport: Some(next),
        offset: place << 3,
        more: place & 0x2000 != 0,
        hop_limit: head[8],
        ecn: Ecn::from_bits(head[1]),
        payload,
    })
}

/// Length of the packet.
#[inline]
fn total_len([first, ..]: [u32; 5]) -> usize {
    usize::from(u32::from_be(first) as u16)
}

#[inline]
fn is_fragment([_, second, ..]: [u32; 5]) -> bool {
    second & FRAGMENT.to_be() != 0
}

/// Skips all options except loose and strict source routes, which are refused: their only use today is to evade
/// filters and to attract return traffic (RFC 7126 §4.3, §4.4).
//= rfc9293 MUST-50
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

/// The header of a packet that an ICMP error quotes, and the quoted part of its payload.
///
/// Its checksum and its length are not checked: routers on the path have changed the header, some of them
/// incorrectly, and the quotation is truncated.
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
    let [_, _, _, src, dst] = words(head);
    Ok((address(src).into(), address(dst).into(), Protocol::from(head[9]), quoted))
}
