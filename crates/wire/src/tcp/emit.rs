//! Writing TCP headers.

use super::{Flags, HEADER, MAX_OPTIONS, Timestamps};
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
    /// Next number expected; valid only with ACK.
    pub ack: SeqNum,
    /// The control bits.
    pub flags: Flags,
    /// The window field as it stands on the wire, already shifted.
    pub window: u16,
    /// The urgent pointer; valid only with URG.
    pub urgent: u16,
}

impl Header {
    /// Writes header and options at the front of `out`, with checksum zero, and returns their length: 20 to 60
    /// bytes. The payload goes behind them; then [`fill_checksum`] completes the segment.
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
        let (head, rest) = out.split_first_chunk_mut::<HEADER>().ok_or(EmitError::BufferTooSmall)?;
        let place = rest.get_mut(..options.len()).ok_or(EmitError::BufferTooSmall)?;
        place.copy_from_slice(options);
        put_words(head, self.words(len));
        Ok(len)
    }

    /// Like [`Header::emit`], with timestamps as the only option. Fast path: nearly every segment of a
    /// connection has exactly these.
    ///
    /// # Errors
    ///
    /// [`EmitError::BufferTooSmall`].
    #[inline]
    pub fn emit_with_timestamps(&self, ts: Timestamps, out: &mut [u8]) -> Result<usize, EmitError> {
        const LEN: usize = HEADER + 12;
        let head = out.first_chunk_mut::<LEN>().ok_or(EmitError::BufferTooSmall)?;
        let [ports, seq, ack, window, urgent] = self.words(LEN);
        // NOP, NOP, kind 8, length 10 (RFC 7323 appendix A).
        put_words(head, [ports, seq, ack, window, urgent, 0x0101_080a, ts.value, ts.echo]);
        Ok(LEN)
    }

    /// The header's five words, with the data offset for `len` bytes of header and options.
    #[inline]
    pub(super) fn words(&self, len: usize) -> [u32; 5] {
        let offset = (len as u32 / 4) << 28;
        [
            u32::from(self.src_port) << 16 | u32::from(self.dst_port),
            self.seq.get(),
            self.ack.get(),
            offset | u32::from(self.flags.bits()) << 16 | u32::from(self.window),
            u32::from(self.urgent),
        ]
    }
}

/// Writes two words at a time: the checksum reads eight bytes at once, and would wait for two narrow stores.
#[inline(always)]
pub(crate) fn put_words<const W: usize>(out: &mut [u8], words: [u32; W]) {
    let (places, rest) = out.as_chunks_mut::<8>();
    let (pairs, last) = words.as_chunks::<2>();
    for (place, [first, second]) in places.iter_mut().zip(pairs) {
        *place = (u64::from(*first) << 32 | u64::from(*second)).to_be_bytes();
    }
    if let ([last], Some(place)) = (last, rest.first_chunk_mut()) {
        *place = last.to_be_bytes();
    }
}

/// Writes the checksum of a whole segment (header, options, payload) between `src` and `dst` (RFC 9293 §3.1,
/// MUST-2). Bytes that are too few for a TCP header stay as they are.
//= rfc9293 MUST-2
#[inline]
pub fn fill_checksum(segment: &mut [u8], src: IpAddr, dst: IpAddr) {
    let len = segment.len() as u32;
    let Some([a, b]) = segment.get(16..18).filter(|_| len >= HEADER as u32).and_then(|f| f.first_chunk())
    else {
        return;
    };
    let field = u16::from_be_bytes([*a, *b]);
    let mut sum = checksum::pseudo_header(src, dst, 6, len);
    // Subtract the old value of the field from the sum. If it were set to zero first, the sum's wide loads
    // would wait for that narrow store.
    sum.add_u16(!field);
    sum.add_bytes(segment);
    if let Some(field) = segment.get_mut(16..18) {
        field.copy_from_slice(&sum.finish().to_be_bytes());
    }
}
