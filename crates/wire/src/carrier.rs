//! TCP in UDP: the four bytes in front of a segment, and control datagrams.
//!
//! ```text
//!  0       8       16              32
//! +-------+-------+---------------+
//! | 0x08  | 0     | 0             |  a TCP segment follows: header, options, payload
//! +-------+-------+---------------+
//! | 0x09  | 0     | 1 or 2        |  control, alone: 1 keep-alive, 2 reset
//! +-------+-------+---------------+
//! ```
//!
//! RFC 9443 §3 leaves first bytes from 4 to 15 free, so STUN, DTLS, RTP and QUIC can share the port. The segment's ports are inner ones; its checksum is zero and ignored, because address
//! translators on the way do not mend it, and UDP's is always there.

use crate::{EmitError, ParseError};

/// Length of the carrier's header, bytes.
pub const HEADER: usize = 4;
/// UDP payload that every path takes until it is known better, bytes: what QUIC begins with (RFC 9000 §14).
pub const BASE_DATAGRAM: u16 = 1200;
/// TCP payload of a segment without options in such a datagram, bytes.
pub const BASE_MSS: u16 = BASE_DATAGRAM - HEADER as u16 - 20;

/// Segments without ACK that may follow the SYN of a first flight at once.
pub const FOLLOWERS: usize = 9;
/// Most bytes of the stream that these carry, and that a server takes of them.
pub const FOLLOWER_BYTES: u32 = 16 << 10;

const SEGMENT: u8 = 0x08;
const CONTROL: u8 = 0x09;
const KEEP_ALIVE: u16 = 1;
const RESET: u16 = 2;

/// What a UDP payload carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried<'a> {
    /// A TCP segment, for [`Segment::parse`](crate::tcp::Segment::parse).
    Segment(&'a [u8]),
    /// A message between the ends of the carrier.
    Control(Control),
}

/// A message between the ends of the carrier, about all connections between two UDP ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Control {
    /// Nothing to say: it keeps the mapping of an address translator alive (RFC 4787 §4.3).
    KeepAlive,
    /// The answer to a keep-alive: its sender has no connection between these two ports.
    Reset,
}

impl<'a> Carried<'a> {
    /// Reads a UDP payload.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`] for another first byte (the datagram is not the
    /// carrier's), for reserved bits that are set, an unknown control message or bytes behind one.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let (&[kind, flags, high, low], rest) =
            payload.split_first_chunk::<HEADER>().ok_or(ParseError::Truncated)?;
        match (kind, flags, u16::from_be_bytes([high, low])) {
            (SEGMENT, 0, 0) => Ok(Self::Segment(rest)),
            (CONTROL, 0, KEEP_ALIVE) if rest.is_empty() => Ok(Self::Control(Control::KeepAlive)),
            (CONTROL, 0, RESET) if rest.is_empty() => Ok(Self::Control(Control::Reset)),
            (SEGMENT | CONTROL, ..) => Err(ParseError::Malformed("carrier header")),
            _ => Err(ParseError::Malformed("carrier type")),
        }
    }
}

/// Writes the header of a segment at the front of `out` and returns [`HEADER`]; the segment goes behind it.
///
/// # Errors
///
/// [`EmitError::BufferTooSmall`].
#[inline]
pub fn emit_segment_header(out: &mut [u8]) -> Result<usize, EmitError> {
    *out.first_chunk_mut().ok_or(EmitError::BufferTooSmall)? = [SEGMENT, 0, 0, 0];
    Ok(HEADER)
}

impl Control {
    /// Writes the message at the front of `out` and returns its length.
    ///
    /// # Errors
    ///
    /// [`EmitError::BufferTooSmall`].
    #[inline]
    pub fn emit(self, out: &mut [u8]) -> Result<usize, EmitError> {
        let [high, low] = match self {
            Self::KeepAlive => KEEP_ALIVE,
            Self::Reset => RESET,
        }
        .to_be_bytes();
        *out.first_chunk_mut().ok_or(EmitError::BufferTooSmall)? = [CONTROL, 0, high, low];
        Ok(HEADER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_three_datagrams() {
        let mut out = [0xff; 6];
        assert_eq!(emit_segment_header(&mut out), Ok(4));
        assert_eq!(out, [8, 0, 0, 0, 0xff, 0xff]);
        assert_eq!(Carried::parse(&out), Ok(Carried::Segment(&[0xff, 0xff])));
        for (control, last) in [(Control::KeepAlive, 1), (Control::Reset, 2)] {
            assert_eq!(control.emit(&mut out), Ok(4));
            assert_eq!(out[..4], [9, 0, 0, last]);
            assert_eq!(Carried::parse(&out[..4]), Ok(Carried::Control(control)));
            assert_eq!(Carried::parse(&out[..5]), Err(ParseError::Malformed("carrier header")));
            assert_eq!(control.emit(&mut out[..3]), Err(EmitError::BufferTooSmall));
        }
        assert_eq!(emit_segment_header(&mut out[..3]), Err(EmitError::BufferTooSmall));
        assert_eq!((BASE_DATAGRAM, BASE_MSS), (1200, 1176));
    }

    #[test]
    fn others_are_refused() {
        assert_eq!(Carried::parse(&[8, 0, 0]), Err(ParseError::Truncated));
        for reserved in [[8, 1, 0, 0], [8, 0, 1, 0], [8, 0, 0, 1], [9, 1, 0, 1], [9, 0, 0, 0], [9, 0, 0, 3]] {
            assert_eq!(Carried::parse(&reserved), Err(ParseError::Malformed("carrier header")));
        }
        // STUN, DTLS, RTP, QUIC's long and short headers.
        for first in [0, 1, 20, 63, 64, 128, 191, 192, 255] {
            assert_eq!(Carried::parse(&[first, 0, 0, 0, 1]), Err(ParseError::Malformed("carrier type")));
        }
    }

    proptest! {
        /// What is read is written the same again.
        #[test]
        fn round_trip(payload in proptest::collection::vec(any::<u8>(), 0..12)) {
            let mut out = [0; 12];
            match Carried::parse(&payload) {
                Ok(Carried::Segment(rest)) => {
                    let at = emit_segment_header(&mut out).unwrap();
                    prop_assert_eq!((&out[..at], rest), payload.split_at(4));
                }
                Ok(Carried::Control(control)) => {
                    let len = control.emit(&mut out).unwrap();
                    prop_assert_eq!(&out[..len], &payload[..]);
                }
                Err(_) => {}
            }
        }
    }
}
