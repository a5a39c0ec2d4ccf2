//! Fragments of packets (RFC 791 §3.2, RFC 8200 §4.5).

use super::{Ecn, Header, Protocol, V4_HEADER, v4, v6, version};
use crate::{EmitError, ParseError, checksum};
use core::net::IpAddr;

/// Length of IPv6's Fragment header, bytes.
const V6_FRAGMENT: usize = 8;
/// Protocol number of IPv6's Fragment header.
pub(super) const NUMBER: u8 = 44;

/// A fragment of a packet, with its headers checked and read.
///
/// Its payload is never empty. It begins at a multiple of 8 bytes and, unless it is the last one, also ends at
/// one. It ends within the longest legal packet. In IPv6 the first fragment contains all headers up to and
/// including the transport header (RFC 7112 §5, RFC 8200 §4.5).
///
/// There is no smallest payload. Every IPv4 link carries 68 bytes, of which up to 60 are header (RFC 791 §3.2),
/// and a router that splits a fragment again may leave pieces of any multiple of 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The claimed sender.
    pub src: IpAddr,
    /// The receiver; of the same family as `src`.
    pub dst: IpAddr,
    /// Identifies the packet, together with the addresses and, in IPv4, `next`. 16 bits in IPv4, 32 in IPv6.
    pub identification: u32,
    /// The header at the start of the whole packet's payload. In IPv6 only the first fragment's value counts,
    /// and it may be the number of an extension header.
    pub next: Protocol,
    /// The transport protocol; `None` in an IPv6 fragment that is not the first, because it does not contain
    /// it.
    pub transport: Option<Protocol>,
    /// Offset of `payload` in the payload of the whole packet, bytes.
    pub offset: u16,
    /// Whether more fragments follow behind it.
    pub more: bool,
    /// Time to live, or hop limit, as it arrived.
    pub hop_limit: u8,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// This fragment's part of the payload.
    pub payload: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Reads a packet that [`Packet::parse`](super::Packet::parse) refuses with [`ParseError::Fragment`].
    ///
    /// # Errors
    ///
    /// [`ParseError::BadFragment`] if it is an invalid fragment, or a whole packet;
    /// [`ParseError::ExtensionHeader`] if it is an IPv6 packet without a Fragment header; all other errors as
    /// for `Packet::parse`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let fragment = match version(bytes) {
            Some(4) => v4::parse_fragment(bytes),
            Some(6) => v6::parse_fragment(bytes),
            Some(_) => Err(ParseError::BadVersion),
            None => Err(ParseError::Truncated),
        }?;
        if fragment.is_legal() { Ok(fragment) } else { Err(ParseError::BadFragment) }
    }

    fn is_legal(&self) -> bool {
        let part = self.more || self.offset > 0;
        let whole_units = !self.more || self.payload.len().is_multiple_of(8);
        part && !self.payload.is_empty() && whole_units && !self.is_too_long()
    }

    /// Whether the whole packet would be too long for its length field, which counts the header only in IPv4.
    fn is_too_long(&self) -> bool {
        let header = if self.src.is_ipv4() { V4_HEADER } else { 0 };
        header + self.end() > 0xffff
    }

    /// Offset of the end of its payload in the payload of the whole packet, bytes.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.offset as usize + self.payload.len()
    }

    /// Writes the fragment and returns its length. It has no IP options, and no extension header other than the
    /// Fragment header.
    ///
    /// # Errors
    ///
    /// As [`Header::emit`]; [`EmitError::TooLong`] also if the whole packet would be too long.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let v4 = self.src.is_ipv4();
        let between = if v4 { 0 } else { V6_FRAGMENT };
        let header = Header {
            src: self.src,
            dst: self.dst,
            protocol: if v4 { self.next } else { Protocol::Other(NUMBER) },
            hop_limit: self.hop_limit,
            ecn: self.ecn,
            dont_fragment: false,
            identification: self.identification as u16,
        };
        if self.is_too_long() {
            return Err(EmitError::TooLong);
        }
        let at = header.emit(between + self.payload.len(), out)?;
        let end = at + between + self.payload.len();
        let packet = out.get_mut(..end).ok_or(EmitError::BufferTooSmall)?;
        let (head, rest) = packet.split_at_mut(at);
        if let Some(head) = head.first_chunk_mut::<V4_HEADER>().filter(|_| v4) {
            let place = self.offset >> 3 | u16::from(self.more) << 13;
            [head[6], head[7]] = place.to_be_bytes();
            [head[10], head[11]] = [0, 0];
            [head[10], head[11]] = checksum::sum(head).finish().to_be_bytes();
        }
        let (own, payload) = rest.split_at_mut(between);
        if let Some(own) = own.first_chunk_mut::<V6_FRAGMENT>() {
            let [p0, p1] = (self.offset & !7 | u16::from(self.more)).to_be_bytes();
            let [a, b, c, d] = self.identification.to_be_bytes();
            *own = [self.next.number(), 0, p0, p1, a, b, c, d];
        }
        payload.copy_from_slice(self.payload);
        Ok(end)
    }
}

#[cfg(test)]
#[path = "fragment_tests.rs"]
mod tests;
