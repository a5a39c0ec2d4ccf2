//! TCP segments (RFC 9293 §3.1) and their options.

mod build;
mod cookie;
mod emit;
mod flags;
mod option;
mod sack;
mod syn;

#[cfg(test)]
mod option_tests;
#[cfg(test)]
mod tests;

pub use build::{OptionBytes, OptionsBuf};
pub use cookie::{Cookie, FastOpen, FastOpenForm};
pub(crate) use emit::put_words;
pub use emit::{Header, fill_checksum};
pub use flags::Flags;
pub use option::{OptionIter, Options, TcpOption, Timestamps};
pub use sack::SackBlocks;
pub use syn::SynOptions;

use crate::{ParseError, SeqNum, checksum};
use core::net::IpAddr;

/// Length of a TCP header without options, bytes.
pub(crate) const HEADER: usize = 20;
/// Largest length of a header's options, bytes.
pub const MAX_OPTIONS: usize = 40;

/// A received segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Port of the sender.
    pub src_port: u16,
    /// Port of the receiver.
    pub dst_port: u16,
    /// Number of the first byte, or of the SYN.
    pub seq: SeqNum,
    /// Next number that the sender expects; valid only with ACK.
    pub ack: SeqNum,
    /// The control bits.
    pub flags: Flags,
    /// The window field as received, not scaled.
    pub window: u16,
    /// The urgent pointer; valid only with URG.
    pub urgent: u16,
    /// The options.
    pub options: Options<'a>,
    /// The data.
    pub payload: &'a [u8],
    /// A router marked its packet: congestion experienced (RFC 3168 §5). The code that reads the packet's
    /// header sets this.
    pub ce: bool,
}

impl<'a> Segment<'a> {
    /// Reads a segment without checking its checksum: for segments that were checked before, or by the network
    /// card.
    ///
    /// # Errors
    ///
    /// [`ParseError::Truncated`], or [`ParseError::BadHeaderLength`] for a data offset below 5.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let head: &[u8; HEADER] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
        let header_len = usize::from(head[12] >> 4) * 4;
        if header_len < HEADER {
            return Err(ParseError::BadHeaderLength);
        }
        let (header, payload) = bytes.split_at_checked(header_len).ok_or(ParseError::Truncated)?;
        let options = header.get(HEADER..).unwrap_or_default();
        let flags = Flags::from_bits(head[13]);
        Ok(Self {
            // Parse the options before the other fields, which would otherwise have to be saved meanwhile.
            options: Options::parse(options, flags.contains(Flags::SYN)),
            src_port: u16::from_be_bytes([head[0], head[1]]),
            dst_port: u16::from_be_bytes([head[2], head[3]]),
            seq: SeqNum::new(u32::from_be_bytes([head[4], head[5], head[6], head[7]])),
            ack: SeqNum::new(u32::from_be_bytes([head[8], head[9], head[10], head[11]])),
            flags,
            window: u16::from_be_bytes([head[14], head[15]]),
            urgent: u16::from_be_bytes([head[18], head[19]]),
            payload,
            ce: false,
        })
    }

    /// Reads a segment of a packet from `src` to `dst` and verifies its checksum
    /// (RFC 9293 §3.1: "the receiver MUST check it", MUST-3).
    ///
    /// # Errors
    ///
    /// [`ParseError::BadChecksum`], and those of [`parse`](Self::parse).
    //= rfc9293 MUST-3
    #[inline(always)]
    pub fn parse_checked(bytes: &'a [u8], src: IpAddr, dst: IpAddr) -> Result<Self, ParseError> {
        let mut sum = checksum::pseudo_header(src, dst, 6, bytes.len() as u32);
        sum.add_bytes(bytes);
        if !sum.is_valid() {
            return Err(ParseError::BadChecksum);
        }
        Self::parse(bytes)
    }

    /// Number of sequence numbers that the segment takes: payload bytes, SYN and FIN (RFC 9293 §3.4, SEG.LEN).
    #[inline]
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.payload.len() as u32
            + self.flags.contains(Flags::SYN) as u32
            + self.flags.contains(Flags::FIN) as u32
    }

    /// Whether the segment takes no sequence number: a bare acknowledgement or a reset.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
