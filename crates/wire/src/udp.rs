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
mod tests {
    use super::*;
    use crate::fixtures::hex;
    use crate::icmp;
    use crate::ip::Packet;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn ends(v6: bool) -> (IpAddr, IpAddr) {
        if v6 {
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        } else {
            ("192.0.2.1".parse().unwrap(), "198.51.100.2".parse().unwrap())
        }
    }

    fn datagram(payload: &[u8], v6: bool) -> Vec<u8> {
        let mut out = vec![0; HEADER + payload.len()];
        let at = Header { src_port: 4433, dst_port: 53 }.emit(payload.len(), &mut out).unwrap();
        out[at..].copy_from_slice(payload);
        let (src, dst) = ends(v6);
        fill_checksum(&mut out, src, dst);
        out
    }

    #[test]
    fn a_datagram_of_linux() {
        // The datagrams that the two reports quote. Linux had sent them with the pseudo-header's sum in the
        // field.
        for quote in [crate::fixtures::UNREACHABLE, crate::fixtures::UNREACHABLE_V6] {
            let bytes = hex(quote);
            let packet = Packet::parse(&bytes).unwrap();
            let error = match packet.src.is_ipv4() {
                true => icmp::parse_v4(packet.payload),
                false => icmp::parse_v6(packet.payload, packet.src, packet.dst),
            }
            .unwrap();
            let quoted = Datagram::parse(error.quoted).unwrap();
            assert_eq!((quoted.dst_port, quoted.payload), (9, &b"xxxx"[..]));
            let mut whole = error.quoted.to_vec();
            fill_checksum(&mut whole, error.src, error.dst);
            assert!(Datagram::parse_checked(&whole, error.src, error.dst).is_ok());
        }
    }

    #[test]
    fn a_checksum_is_required_over_ipv4_too() {
        for v6 in [false, true] {
            let (src, dst) = ends(v6);
            let mut bytes = datagram(b"abc", v6);
            assert!(Datagram::parse_checked(&bytes, src, dst).is_ok());
            bytes[6..8].fill(0);
            assert_eq!(Datagram::parse_checked(&bytes, src, dst), Err(ParseError::BadChecksum));
        }
    }

    #[test]
    fn a_checksum_of_zero_is_sent_as_ones() {
        let (src, dst) = ends(false);
        // The two bytes of payload balance the sum of the rest.
        let mut bytes = datagram(&[0, 0], false);
        let sum = [bytes[6], bytes[7]];
        bytes[8..10].copy_from_slice(&sum);
        fill_checksum(&mut bytes, src, dst);
        assert_eq!(bytes[6..8], [0xff, 0xff]);
        assert!(Datagram::parse_checked(&bytes, src, dst).is_ok());
    }

    #[test]
    fn lengths() {
        let bytes = datagram(b"abc", false);
        for cut in 0..bytes.len() {
            assert_eq!(Datagram::parse(&bytes[..cut]), Err(ParseError::Truncated));
        }
        let mut longer = bytes.clone();
        longer.extend(b"trailer");
        let (src, dst) = ends(false);
        assert_eq!(Datagram::parse_checked(&longer, src, dst).unwrap().payload, b"abc");
        longer[5] = 7;
        assert_eq!(Datagram::parse(&longer), Err(ParseError::BadHeaderLength));
        assert_eq!(Header { src_port: 1, dst_port: 2 }.emit(65_528, &mut [0; 8]), Err(EmitError::TooLong));
        assert_eq!(Header { src_port: 1, dst_port: 2 }.emit(1, &mut [0; 7]), Err(EmitError::BufferTooSmall));
        fill_checksum(&mut [0; 7], src, dst);
    }

    proptest! {
        #[test]
        fn round_trip(payload in proptest::collection::vec(any::<u8>(), 0..100), v6: bool, bit in 0usize..864) {
            let mut bytes = datagram(&payload, v6);
            let (src, dst) = ends(v6);
            let read = Datagram::parse_checked(&bytes, src, dst).unwrap();
            prop_assert_eq!((read.src_port, read.dst_port, read.payload), (4433, 53, &payload[..]));
            let bit = bit % (bytes.len() * 8);
            // A shorter length cuts off bytes, and their sum may hide the change.
            prop_assume!(!(32..48).contains(&bit));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Datagram::parse_checked(&bytes, src, dst).is_err(), "one flipped bit shows");
        }
    }
}
