//! Byte buffers that grow on demand up to a limit and give their memory back when they are empty.
//!
//! A [`Ring`] owns no memory while it holds nothing. It takes power-of-two blocks from the stack's
//! [`Pool`], which keeps returned blocks, so that the steady state allocates nothing.

use crate::board::Boards;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::hint::cold_path;
use core::mem;

/// Smallest block, 2 KiB: a request or response of one segment.
const MIN_SHIFT: u32 = 11;
const SMALLEST: usize = 1 << MIN_SHIFT;
/// Number of block sizes: 2 KiB to 16 MiB.
const CLASSES: usize = 14;
/// Limit on the bytes kept in free blocks of each size.
const RETAIN_BYTES: usize = 4 << 20;

/// The memory of one stack's rings: blocks of 2 KiB to 16 MiB, with a limit on their total size.
///
/// `Debug` does not show the contents of the blocks.
pub struct Pool {
    free: [Vec<Box<[u8]>>; CLASSES],
    outstanding: usize,
    limit: usize,
    /// Spare boards for the records of segments under way.
    pub(crate) boards: Boards,
}

impl Pool {
    /// A pool that hands out at most `limit` bytes at a time.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { free: Default::default(), outstanding: 0, limit, boards: Boards::default() }
    }

    /// Bytes that rings hold now.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    #[inline]
    fn class(bytes: usize) -> Option<usize> {
        // The number of bits above those that the smallest block has.
        let above = usize::BITS - (bytes.saturating_sub(1) >> MIN_SHIFT).leading_zeros();
        let class = above as usize;
        (class < CLASSES).then_some(class)
    }

    /// A block of at least `bytes`. Usually the smallest size is enough, and no class has to be computed.
    #[inline(always)]
    fn take(&mut self, bytes: usize) -> Option<Box<[u8]>> {
        if bytes <= SMALLEST { self.take_of(0) } else { self.take_larger(bytes) }
    }

    fn take_larger(&mut self, bytes: usize) -> Option<Box<[u8]>> {
        self.take_of(Self::class(bytes)?)
    }

    #[inline(always)]
    fn take_of(&mut self, class: usize) -> Option<Box<[u8]>> {
        let size = SMALLEST << class;
        if self.outstanding + size > self.limit {
            return None;
        }
        self.outstanding += size;
        Some(self.free.get_mut(class).and_then(Vec::pop).unwrap_or_else(|| fresh(size)))
    }

    #[inline(always)]
    fn give(&mut self, block: Box<[u8]>) {
        if block.len() == SMALLEST { self.give_of(MIN_SHIFT, block) } else { self.give_larger(block) }
    }

    fn give_larger(&mut self, block: Box<[u8]>) {
        // All block lengths are powers of two.
        self.give_of(block.len().trailing_zeros(), block);
    }

    #[inline(always)]
    fn give_of(&mut self, shift: u32, block: Box<[u8]>) {
        self.outstanding = self.outstanding.saturating_sub(block.len());
        if let Some(list) = self.free.get_mut(shift.wrapping_sub(MIN_SHIFT) as usize)
            && list.len() < (RETAIN_BYTES >> shift).max(1)
        {
            list.push(block);
        }
    }
}

fn fresh(size: usize) -> Box<[u8]> {
    vec![0; size].into()
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { free, outstanding, limit, boards: _ } = self;
        let free: usize = free.iter().flatten().map(|block| block.len()).sum();
        let mut out = f.debug_struct("Pool");
        out.field("outstanding", outstanding)
            .field("limit", limit)
            .field("free", &free)
            .finish_non_exhaustive()
    }
}

/// A ring of bytes addressed by offset from its first byte.
///
/// `len` bytes are in order; bytes behind them may have been written early by [`Ring::write_at`]
/// (segments out of order) and become part of the ring by [`Ring::advance`].
///
/// `Debug` does not show the bytes.
#[derive(Default)]
pub struct Ring {
    data: Box<[u8]>,
    head: u32,
    len: u32,
    hint: u32,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Ring");
        out.field("len", &self.len).field("room", &self.data.len()).finish_non_exhaustive()
    }
}

impl Ring {
    /// Bytes in order.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no byte is in order.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it owns memory.
    #[inline]
    #[must_use]
    pub fn has_memory(&self) -> bool {
        !self.data.is_empty()
    }

    /// Makes room for `needed` bytes, counted from the first one; false if the pool refuses.
    #[inline]
    fn ensure(&mut self, pool: &mut Pool, needed: usize) -> bool {
        needed <= self.data.len() || self.grow(pool, needed)
    }

    #[inline(always)]
    fn grow(&mut self, pool: &mut Pool, needed: usize) -> bool {
        if self.data.is_empty() {
            // The ring will probably need as much as it held before it was emptied.
            let wanted = needed.max(self.hint as usize);
            let Some(block) = pool.take(wanted) else {
                return wanted > needed && self.grow_less(pool, needed);
            };
            return self.begin(block);
        }
        self.move_to_larger(pool, needed)
    }

    /// The pool cannot give as much as the ring held before, so the ring takes only what it needs now.
    fn grow_less(&mut self, pool: &mut Pool, needed: usize) -> bool {
        pool.take(needed).is_some_and(|block| self.begin(block))
    }

    #[inline]
    fn begin(&mut self, block: Box<[u8]>) -> bool {
        (self.hint, self.head) = (block.len() as u32, 0);
        self.data = block;
        true
    }

    #[inline(never)]
    fn move_to_larger(&mut self, pool: &mut Pool, needed: usize) -> bool {
        let Some(mut bigger) = pool.take(needed) else { return false };
        self.hint = bigger.len() as u32;
        let old = self.data.len();
        let head = (self.head as usize).min(old);
        let (front, back) = (&self.data[head..], &self.data[..head]);
        bigger[..front.len()].copy_from_slice(front);
        bigger[front.len()..old].copy_from_slice(back);
        pool.give(mem::replace(&mut self.data, bigger));
        self.head = 0;
        true
    }

    /// Appends `bytes` up to the ring's `limit`, or fewer if there is no memory for them; returns how many
    /// bytes were appended.
    #[inline(always)]
    pub fn push(&mut self, pool: &mut Pool, limit: usize, bytes: &[u8]) -> usize {
        let mut n = bytes.len().min(limit.saturating_sub(self.len()));
        while n > 0 && !self.append(pool, &bytes[..n]) {
            n /= 2;
        }
        n
    }

    /// Writes `bytes` at `offset` from the first byte without making them part of the ring; false if there is
    /// no memory.
    #[inline(always)]
    pub fn write_at(&mut self, pool: &mut Pool, offset: usize, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if !self.ensure(pool, offset + bytes.len()) {
            return false;
        }
        let mask = self.data.len() - 1;
        let start = (self.head as usize + offset) & mask;
        if let Some(place) = self.data.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
            return true;
        }
        cold_path();
        let (first, second) = bytes.split_at(bytes.len().min(self.data.len() - start));
        self.data[start..start + first.len()].copy_from_slice(first);
        self.data[..second.len()].copy_from_slice(second);
        true
    }

    /// Appends all of `bytes`; false if there is no memory for them.
    #[inline(always)]
    pub fn append(&mut self, pool: &mut Pool, bytes: &[u8]) -> bool {
        let written = self.write_at(pool, self.len(), bytes);
        if written {
            self.len += bytes.len() as u32;
        }
        written
    }

    /// Makes the next `n` bytes, written before by [`Ring::write_at`], part of the ring.
    pub fn advance(&mut self, n: usize) {
        debug_assert!(self.len() + n <= self.data.len());
        self.len += n as u32;
    }

    /// Copies `out.len()` bytes from `offset` on; the caller has checked that they are there.
    #[inline]
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        if out.is_empty() {
            return;
        }
        let mask = self.data.len() - 1;
        let start = (self.head as usize + offset) & mask;
        if let Some(bytes) = self.data.get(start..start + out.len()) {
            return out.copy_from_slice(bytes);
        }
        cold_path();
        let (a, b) = out.split_at_mut(out.len().min(self.data.len() - start));
        a.copy_from_slice(&self.data[start..start + a.len()]);
        b.copy_from_slice(&self.data[..b.len()]);
    }

    /// Drops the first `n` bytes. `keep` says that bytes written ahead must survive.
    #[inline(always)]
    pub fn consume(&mut self, pool: &mut Pool, n: usize, keep: bool) {
        if n >= self.len() && !keep {
            return self.clear(pool);
        }
        let n = n.min(self.len());
        if n > 0 {
            self.len -= n as u32;
            self.head = ((self.head as usize + n) & (self.data.len() - 1)) as u32;
        }
    }

    /// Removes everything and gives the memory back.
    #[inline]
    pub fn clear(&mut self, pool: &mut Pool) {
        if !self.data.is_empty() {
            pool.give(mem::take(&mut self.data));
        }
        self.head = 0;
        self.len = 0;
    }
}

#[cfg(test)]
mod tests;
