//! TCP in UDP: the four bytes in front of a segment, and control datagrams.
//!
//! ```text
//!  0       8       16              32
//! +-------+-------+---------------+
//! | 0x08  | 0     | 0             |  a TCP segment follows: header, options, payload
//! +-------+-------+---------------+
//! | 0x09  | 0     | 1 or 2        |  control, alone: 1 keep-alive, 2 reset
//! +-------+-------+---------------+
//! | 0x09  | 0     | 3 or 4        |  control: 3 path challenge, 4 path response; twelve bytes follow:
//! +-------+-------+---------------+  the sender's inner port, the receiver's, 64 random bits
//! ```
//!
//! RFC 9443 §3 leaves the first bytes 4 to 15 free, so STUN, DTLS, RTP and QUIC can share the port. The ports
//! in the segment are inner ports. Its checksum is zero and ignored, because address translators on the path do
//! not update it, and the UDP checksum is always present.

use crate::{EmitError, ParseError};

/// Length of the encapsulation's header, bytes.
pub const HEADER: usize = 4;
/// UDP payload that every path takes until more is known about the path, bytes: QUIC's initial size (RFC 9000
/// §14).
pub const BASE_DATAGRAM: u16 = 1200;
/// TCP payload of a segment without options in such a datagram, bytes.
pub const BASE_MSS: u16 = BASE_DATAGRAM - HEADER as u16 - 20;

/// Largest number of segments without ACK that may directly follow the SYN of a first flight.
pub const FOLLOWERS: usize = 9;
/// Most bytes of the stream that these segments carry, and that a server accepts from them.
pub const FOLLOWER_BYTES: u32 = 16 << 10;

const SEGMENT: u8 = 0x08;
const CONTROL: u8 = 0x09;
const KEEP_ALIVE: u16 = 1;
const RESET: u16 = 2;
const CHALLENGE: u16 = 3;
const RESPONSE: u16 = 4;

/// What a UDP payload carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried<'a> {
    /// A TCP segment, for [`Segment::parse`](crate::tcp::Segment::parse).
    Segment(&'a [u8]),
    /// A message between the two ends of the encapsulation.
    Control(Control),
}

/// A message between the two ends of the encapsulation, about all connections between two UDP ports or about one of
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Control {
    /// Keeps the mapping of an address translator alive (RFC 4787 §4.3). It has no other meaning.
    KeepAlive,
    /// The answer to a keep-alive: its sender has no connection between these two ports.
    Reset,
    /// The sender asks whether this connection is at the UDP port that the message goes to.
    PathChallenge(PathProof),
    /// The positive answer to a path challenge, with the challenge's bits.
    PathResponse(PathProof),
}

/// The connection that a path check is about, and the bits that prove that the peer can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathProof {
    /// Inner port of the sender, not 0.
    pub src_port: u16,
    /// Inner port of the receiver, not 0.
    pub dst_port: u16,
    /// Random bits of the challenge.
    pub bits: u64,
}

impl PathProof {
    /// Length of a message that contains it, including the encapsulation's header, bytes.
    pub const MESSAGE: usize = HEADER + 12;

    fn parse(rest: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; 12] = rest.try_into().map_err(|_| ParseError::Malformed("path check"))?;
        let &[a, b, c, d, bits @ ..] = bytes;
        let (src_port, dst_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        if src_port == 0 || dst_port == 0 {
            return Err(ParseError::Malformed("path check"));
        }
        Ok(Self { src_port, dst_port, bits: u64::from_be_bytes(bits) })
    }

    fn to_bytes(self) -> [u8; 12] {
        let ([a, b], [c, d]) = (self.src_port.to_be_bytes(), self.dst_port.to_be_bytes());
        let [e, f, g, h, i, j, k, l] = self.bits.to_be_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }
}

impl<'a> Carried<'a> {
    /// Reads a UDP payload.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`] for another first byte (the datagram is not the
    /// encapsulation's), for reserved bits that are set, for an unknown control message, and for bytes behind a
    /// control message.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let (&[kind, flags, high, low], rest) =
            payload.split_first_chunk::<HEADER>().ok_or(ParseError::Truncated)?;
        match (kind, flags, u16::from_be_bytes([high, low])) {
            (SEGMENT, 0, 0) => Ok(Self::Segment(rest)),
            (CONTROL, 0, KEEP_ALIVE) if rest.is_empty() => Ok(Self::Control(Control::KeepAlive)),
            (CONTROL, 0, RESET) if rest.is_empty() => Ok(Self::Control(Control::Reset)),
            (CONTROL, 0, CHALLENGE) => {
                PathProof::parse(rest).map(|p| Self::Control(Control::PathChallenge(p)))
            }
            (CONTROL, 0, RESPONSE) => PathProof::parse(rest).map(|p| Self::Control(Control::PathResponse(p))),
            (SEGMENT | CONTROL, ..) => Err(ParseError::Malformed("encapsulation header")),
            _ => Err(ParseError::Malformed("encapsulation type")),
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
        let (kind, proof) = match self {
            Self::KeepAlive => (KEEP_ALIVE, None),
            Self::Reset => (RESET, None),
            Self::PathChallenge(proof) => (CHALLENGE, Some(proof)),
            Self::PathResponse(proof) => (RESPONSE, Some(proof)),
        };
        let len = if proof.is_some() { PathProof::MESSAGE } else { HEADER };
        let out = out.get_mut(..len).ok_or(EmitError::BufferTooSmall)?;
        let (header, rest) = out.split_first_chunk_mut().ok_or(EmitError::BufferTooSmall)?;
        let [high, low] = kind.to_be_bytes();
        *header = [CONTROL, 0, high, low];
        if let Some(proof) = proof {
            rest.copy_from_slice(&proof.to_bytes());
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests;
