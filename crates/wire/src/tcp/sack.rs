//! The blocks of a SACK option.

use crate::SeqNum;

/// Up to four ranges of received data, the most recent first (RFC 2018 §3, §4). Four fill the option space;
/// with timestamps there is room for three.
#[derive(Debug, Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [(SeqNum, SeqNum); Self::MAX],
    len: u8,
}

impl SackBlocks {
    /// Largest number of blocks in one segment.
    pub const MAX: usize = 4;
    /// No block.
    pub const EMPTY: Self = Self { blocks: [(SeqNum::new(0), SeqNum::new(0)); Self::MAX], len: 0 };

    /// Appends the block from `start` up to `end`, the number behind its last byte. Returns false if there are
    /// already four blocks.
    #[inline]
    pub fn push(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let Some(free) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *free = (start, end);
        self.len += 1;
        true
    }

    /// The blocks.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[(SeqNum, SeqNum)] {
        self.blocks.get(..self.len()).unwrap_or_default()
    }

    /// Number of blocks, 0 to 4.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no blocks.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads an option's data: 8 bytes a block. Bytes beyond four blocks are ignored.
    #[inline]
    pub(crate) fn from_wire(data: &[u8]) -> Self {
        let mut blocks = Self::EMPTY;
        let (chunks, _) = data.as_chunks::<8>();
        for &[a, b, c, d, e, f, g, h] in chunks {
            let start = SeqNum::new(u32::from_be_bytes([a, b, c, d]));
            if !blocks.push(start, SeqNum::new(u32::from_be_bytes([e, f, g, h]))) {
                break;
            }
        }
        blocks
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}
