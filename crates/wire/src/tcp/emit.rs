//! Writing TCP headers.

use super::{Flags, HEADER, MAX_OPTIONS};
use crate::{EmitError, SeqNum, checksum};
use core::net::IpAddr;

/// A TCP header to write, without its options and its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Port of the sender.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
    /// Number of the first byte, or of the SYN.
    pub seq: SeqNum,
    /// Next number expected; means something only with ACK.
    pub ack: SeqNum,
    /// The control bits.
    pub flags: Flags,
    /// The window field as it stands on the wire, already shifted.
    pub window: u16,
    /// The urgent pointer; means something only with URG.
    pub urgent: u16,
}

impl Header {
    /// Writes header and options at the front of `out`, the checksum zero, and returns their length:
    /// 20 to 60 bytes. The payload goes behind it, then [`fill_checksum`] completes the segment.
    ///
    /// # Errors
    ///
    /// [`EmitError::BadOptionsLength`], [`EmitError::BufferTooSmall`].
    #[inline]
    pub fn emit(&self, options: &[u8], out: &mut [u8]) -> Result<usize, EmitError> {
        if !options.len().is_multiple_of(4) || options.len() > MAX_OPTIONS {
            return Err(EmitError::BadOptionsLength);
        }
        let len = HEADER + options.len();
        let (head, rest) = out
            .split_first_chunk_mut::<HEADER>()
            .ok_or(EmitError::BufferTooSmall)?;
        let place = rest
            .get_mut(..options.len())
            .ok_or(EmitError::BufferTooSmall)?;
        place.copy_from_slice(options);
        let [s0, s1] = self.src_port.to_be_bytes();
        let [d0, d1] = self.dst_port.to_be_bytes();
        let [q0, q1, q2, q3] = self.seq.get().to_be_bytes();
        let [a0, a1, a2, a3] = self.ack.get().to_be_bytes();
        let [w0, w1] = self.window.to_be_bytes();
        let [u0, u1] = self.urgent.to_be_bytes();
        let offset = (len as u8 / 4) << 4;
        *head = [
            s0,
            s1,
            d0,
            d1,
            q0,
            q1,
            q2,
            q3,
            a0,
            a1,
            a2,
            a3, //
            offset,
            self.flags.bits(),
            w0,
            w1,
            0,
            0,
            u0,
            u1,
        ];
        Ok(len)
    }
}

/// Writes the checksum of a whole segment (header, options, payload) between `src` and `dst`
/// (RFC 9293 §3.1, MUST-2). Bytes too few for a TCP header stay as they are.
#[inline]
pub fn fill_checksum(segment: &mut [u8], src: IpAddr, dst: IpAddr) {
    if segment.len() < HEADER {
        return;
    }
    let len = segment.len() as u32;
    let Some(field) = segment.get_mut(16..18) else {
        return;
    };
    field.copy_from_slice(&[0, 0]);
    let mut sum = checksum::pseudo_header(src, dst, 6, len);
    sum.add_bytes(segment);
    if let Some(field) = segment.get_mut(16..18) {
        field.copy_from_slice(&sum.finish().to_be_bytes());
    }
}
