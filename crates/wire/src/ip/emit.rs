//! Writes IP headers.

use super::{Ecn, Protocol, V4_HEADER, V6_HEADER};
use crate::tcp::put_words;
use crate::{EmitError, checksum};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP header to write: without options or extension headers, with DSCP and flow label zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Source address.
    pub src: IpAddr,
    /// Destination address, of the same family.
    pub dst: IpAddr,
    /// The protocol of the payload.
    pub protocol: Protocol,
    /// Time to live, or hop limit.
    pub hop_limit: u8,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// IPv4's don't-fragment flag. Routers never fragment IPv6 packets.
    pub dont_fragment: bool,
    /// IPv4's identification; unused in IPv6 and if `dont_fragment` is set (RFC 6864 §4.1).
    pub identification: u16,
}

impl Header {
    /// Length on the wire: 20 bytes for IPv4, 40 for IPv6. The source address determines the family.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self.src {
            IpAddr::V4(_) => V4_HEADER,
            IpAddr::V6(_) => V6_HEADER,
        }
    }

    /// Writes the header for a payload of `payload_len` bytes at the front of `out`; returns
    /// [`len`](Self::len). `out` does not need room for the payload.
    ///
    /// # Errors
    ///
    /// [`EmitError::MixedFamilies`], [`EmitError::TooLong`], [`EmitError::BufferTooSmall`].
    #[inline(always)]
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.emit_v4(src, dst, payload_len, out),
            (IpAddr::V6(src), IpAddr::V6(dst)) => self.emit_v6(src, dst, payload_len, out),
            _ => Err(EmitError::MixedFamilies),
        }
    }

    #[inline]
    fn emit_v4(
        &self,
        src: Ipv4Addr,
        dst: Ipv4Addr,
        payload_len: usize,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        let total = payload_len
            .checked_add(V4_HEADER)
            .and_then(|len| u16::try_from(len).ok())
            .ok_or(EmitError::TooLong)?;
        let head: &mut [u8; V4_HEADER] = out.first_chunk_mut().ok_or(EmitError::BufferTooSmall)?;
        let flags = if self.dont_fragment { 0x4000 } else { 0 };
        let first = 0x4500_0000 | u32::from(self.ecn.bits()) << 16 | u32::from(total);
        let second = u32::from(self.identification) << 16 | flags;
        let third = u32::from(self.hop_limit) << 24 | u32::from(self.protocol.number()) << 16;
        let (src, dst) = (src.to_bits(), dst.to_bits());
        let sum = [first, second, third, src, dst].iter().map(|word| u64::from(*word)).sum();
        let third = third | u32::from(!checksum::fold16(sum));
        put_words(head, [first, second, third, src, dst]);
        Ok(V4_HEADER)
    }

    #[inline]
    fn emit_v6(
        &self,
        src: Ipv6Addr,
        dst: Ipv6Addr,
        payload_len: usize,
        out: &mut [u8],
    ) -> Result<usize, EmitError> {
        let len = u16::try_from(payload_len).map_err(|_| EmitError::TooLong)?;
        let head = out.get_mut(..V6_HEADER).ok_or(EmitError::BufferTooSmall)?;
        let [l0, l1] = len.to_be_bytes();
        let class = self.ecn.bits() << 4;
        let first = [0x60, class, 0, 0, l0, l1, self.protocol.number(), self.hop_limit];
        let (place, addresses) = head.split_at_mut(8);
        place.copy_from_slice(&first);
        let (place, place_dst) = addresses.split_at_mut(16);
        place.copy_from_slice(&src.octets());
        place_dst.copy_from_slice(&dst.octets());
        Ok(V6_HEADER)
    }
}
