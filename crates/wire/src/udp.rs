//! UDP datagrams (RFC 768, RFC 8200 §8.1).

use crate::{EmitError, ParseError, checksum};
use core::net::IpAddr;

/// Length of a UDP header, bytes.
pub const HEADER: usize = 8;
const PROTOCOL: u8 = 17;

/// A received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Port of the sender; 0 if it expects no answer.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
    /// The data. Bytes beyond the length in the header are cut off.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads a datagram without checking its checksum: for datagrams that were checked before, or by the
    /// network card.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`], or [`ParseError::BadHeaderLength`] for a length below 8 (jumbograms, RFC
    /// 2675, are not supported).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        split(bytes).map(|(datagram, _, _)| datagram)
    }

    /// Reads a datagram of a packet from `src` to `dst` and verifies its checksum. A datagram without a
    /// checksum is refused, even over IPv4, where RFC 768 allows it: a sender of TCP in UDP always includes
    /// one, because the inner checksum is not used.
    ///
    /// # Errors
    ///
    /// [`ParseError::BadChecksum`], and those of [`parse`](Self::parse).
    #[inline]
    pub fn parse_checked(bytes: &'a [u8], src: IpAddr, dst: IpAddr) -> Result<Self, ParseError> {
        let (datagram, field, whole) = split(bytes)?;
        let mut sum = checksum::pseudo_header(src, dst, PROTOCOL, whole.len() as u32);
        sum.add_bytes(whole);
        if field == 0 || !sum.is_valid() {
            return Err(ParseError::BadChecksum);
        }
        Ok(datagram)
    }
}

/// The datagram, its checksum field and the bytes that it covers.
#[inline]
fn split(bytes: &[u8]) -> Result<(Datagram<'_>, u16, &[u8]), ParseError> {
    let [a, b, c, d, e, f, g, h] = *bytes.first_chunk::<HEADER>().ok_or(ParseError::Truncated)?;
    let [src_port, dst_port, len, field] = [[a, b], [c, d], [e, f], [g, h]].map(u16::from_be_bytes);
    let len = usize::from(len);
    if len < HEADER {
        return Err(ParseError::BadHeaderLength);
    }
    let whole = bytes.get(..len).ok_or(ParseError::Truncated)?;
    let payload = whole.get(HEADER..).unwrap_or_default();
    Ok((Datagram { src_port, dst_port, payload }, field, whole))
}

/// A UDP header to write, without its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Port of the sender.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
}

impl Header {
    /// Writes the header of a datagram with `payload_len` bytes at the front of `out`, with checksum zero, and
    /// returns [`HEADER`]. The payload goes behind it; then [`fill_checksum`] completes the datagram.
    ///
    /// # Errors
    ///
    /// [`EmitError::TooLong`], [`EmitError::BufferTooSmall`].
    #[inline]
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        let len = payload_len.checked_add(HEADER).and_then(|len| u16::try_from(len).ok());
        let [e, f] = len.ok_or(EmitError::TooLong)?.to_be_bytes();
        let [[a, b], [c, d]] = [self.src_port, self.dst_port].map(u16::to_be_bytes);
        *out.first_chunk_mut().ok_or(EmitError::BufferTooSmall)? = [a, b, c, d, e, f, 0, 0];
        Ok(HEADER)
    }
}

/// Computes the checksum of a datagram from `src` to `dst` and writes it. A result of zero is sent as all ones,
/// the other zero of one's complement (RFC 768). Bytes that are too few for a header stay as they are.
#[inline]
pub fn fill_checksum(datagram: &mut [u8], src: IpAddr, dst: IpAddr) {
    let len = datagram.len() as u32;
    let Some(field) = datagram.get_mut(6..HEADER) else { return };
    field.copy_from_slice(&[0, 0]);
    let mut sum = checksum::pseudo_header(src, dst, PROTOCOL, len);
    sum.add_bytes(datagram);
    let sum = match sum.finish() {
        0 => 0xffff,
        sum => sum,
    };
    if let Some(field) = datagram.get_mut(6..HEADER) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
