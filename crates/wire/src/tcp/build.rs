//! Writing TCP options.

use super::option::{
    EXPERIMENT_2, FAST_OPEN, FAST_OPEN_EXID, MSS, NOP, SACK, SACK_PERMITTED, TIMESTAMPS, WINDOW_SCALE,
};
use super::{FastOpen, FastOpenForm, MAX_OPTIONS, SackBlocks, Timestamps};
use core::fmt;

/// Up to 40 bytes of options, built one by one. If an option does not fit, its method writes nothing and
/// returns false.
///
/// NOPs in front of timestamps and SACK align their 32-bit words: receivers, including Linux and this crate,
/// have a fast path for `NOP NOP timestamps` (RFC 7323 appendix A). The NOPs never take the place of an option,
/// because the option space also ends on a word boundary. `Debug` shows only the length, because the options
/// may contain a cookie.
// Aligned, so that it is copied in whole words, like a cookie.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub struct OptionsBuf {
    /// Everything from `len` on is NOP, so the padding is always ready.
    bytes: [u8; MAX_OPTIONS],
    len: u8,
}

impl OptionsBuf {
    /// No options.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [NOP; MAX_OPTIONS], len: 0 }
    }

    /// Appends bytes that are whole options.
    #[inline]
    pub fn raw(&mut self, options: &[u8]) -> bool {
        let start = usize::from(self.len);
        let Some(free) = self.bytes.get_mut(start..start + options.len()) else {
            return false;
        };
        free.copy_from_slice(options);
        self.len += options.len() as u8;
        true
    }

    /// Appends a NOP.
    #[inline]
    pub fn nop(&mut self) -> bool {
        self.raw(&[NOP])
    }

    /// Maximum segment size, bytes; only for a SYN.
    #[inline]
    pub fn mss(&mut self, mss: u16) -> bool {
        let [high, low] = mss.to_be_bytes();
        self.raw(&[MSS, 4, high, low])
    }

    /// SACK permitted; only for a SYN.
    #[inline]
    pub fn sack_permitted(&mut self) -> bool {
        self.raw(&[SACK_PERMITTED, 2])
    }

    /// Window shift; only for a SYN. The largest legal shift is 14 (RFC 7323 §2.3), so a larger one is written
    /// as 14.
    //= rfc7323 2.3-g
    #[inline]
    pub fn window_scale(&mut self, shift: u8) -> bool {
        self.raw(&[WINDOW_SCALE, 3, shift.min(14)])
    }

    /// Timestamps, aligned.
    #[inline]
    pub fn timestamps(&mut self, timestamps: Timestamps) -> bool {
        let [a, b, c, d] = timestamps.value.to_be_bytes();
        let [e, f, g, h] = timestamps.echo.to_be_bytes();
        let before = self.len;
        self.align();
        let fits = self.raw(&[TIMESTAMPS, 10, a, b, c, d, e, f, g, h]);
        if !fits {
            self.len = before;
        }
        fits
    }

    /// The first blocks, as many as fit, aligned. Without blocks nothing is written. Returns false if there is
    /// no room for even one block.
    //= rfc2018 4-f
    pub fn sack(&mut self, blocks: &SackBlocks) -> bool {
        if blocks.is_empty() {
            return true;
        }
        let before = self.len;
        self.align();
        let count = blocks.len().min(self.remaining().saturating_sub(2) / 8);
        if count == 0 {
            self.len = before;
            return false;
        }
        self.raw(&[SACK, 2 + 8 * count as u8]);
        for (start, end) in blocks.as_slice().iter().take(count) {
            self.raw(&start.get().to_be_bytes());
            self.raw(&end.get().to_be_bytes());
        }
        true
    }

    /// Fast Open; only for a SYN.
    #[inline]
    pub fn fast_open(&mut self, fast_open: &FastOpen) -> bool {
        self.raw(OptionBytes::from(fast_open).as_slice())
    }

    /// Number of bytes left.
    #[inline]
    #[must_use]
    pub const fn remaining(&self) -> usize {
        MAX_OPTIONS - self.len as usize
    }

    /// The options, padded with NOPs to whole 32-bit words. More options can still be appended.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len).next_multiple_of(4)).unwrap_or_default()
    }

    /// Makes the padding part of the options and returns them, for [`Header::emit`](super::Header::emit).
    //= rfc9293 MUST-69
    #[inline]
    pub fn finish(&mut self) -> &[u8] {
        self.len = self.len.next_multiple_of(4);
        self.as_slice()
    }

    /// Pads to two bytes before a word boundary: kind and length take these two, and the words follow.
    #[inline]
    fn align(&mut self) {
        let len = self.len + (6 - self.len % 4) % 4;
        // 38 + 2 is the end of the space; from 39 on no option fits.
        self.len = len.min(MAX_OPTIONS as u8);
    }
}

impl Default for OptionsBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for OptionsBuf {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for OptionsBuf {}

impl fmt::Debug for OptionsBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OptionsBuf({} bytes)", self.len)
    }
}

/// Up to 24 bytes of options that a layer passes on without knowing them, such as the option with a credential.
/// `Debug` shows only the length.
// Aligned, so that it is copied in whole words, like a cookie.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(align(8))]
pub struct OptionBytes {
    /// Zero from `len` on.
    bytes: [u8; Self::CAPACITY],
    len: u8,
}

impl OptionBytes {
    /// Largest number of bytes; a Fast Open option takes at most 20.
    pub const CAPACITY: usize = 24;
    /// No option.
    pub const EMPTY: Self = Self { bytes: [0; Self::CAPACITY], len: 0 };

    /// The given bytes, which must be whole options; `None` for more than 24.
    #[inline]
    #[must_use]
    pub fn new(options: &[u8]) -> Option<Self> {
        let mut copy = Self::EMPTY;
        copy.append(options).then_some(copy)
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.len()).unwrap_or_default()
    }

    /// Number of bytes.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no bytes.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a Fast Open option, including kind and length. If it does not fit, writes nothing and returns
    /// false.
    #[inline]
    pub fn append_fast_open(&mut self, fast_open: &FastOpen) -> bool {
        let cookie = fast_open.cookie_bytes();
        // Fast path for the usual cookie: written in one piece, without a copy of variable length.
        if let (FastOpenForm::Standard, Ok([a, b, c, d, e, f, g, h])) =
            (fast_open.form(), <[u8; 8]>::try_from(cookie))
        {
            return self.append(&[FAST_OPEN, 10, a, b, c, d, e, f, g, h]);
        }
        let [high, low] = FAST_OPEN_EXID.to_be_bytes();
        let head: &[u8] = match fast_open.form() {
            FastOpenForm::Standard => &[FAST_OPEN, 2 + cookie.len() as u8],
            FastOpenForm::Experimental => &[EXPERIMENT_2, 4 + cookie.len() as u8, high, low],
        };
        head.len() + cookie.len() <= Self::CAPACITY - self.len() && self.append(head) && self.append(cookie)
    }

    /// Appends whole options. If they do not fit, writes nothing and returns false.
    #[inline]
    pub fn append(&mut self, more: &[u8]) -> bool {
        let start = self.len();
        let Some(free) = self.bytes.get_mut(start..start + more.len()) else {
            return false;
        };
        free.copy_from_slice(more);
        self.len += more.len() as u8;
        true
    }
}

impl From<&FastOpen> for OptionBytes {
    /// The whole option, including kind and length, without padding.
    fn from(fast_open: &FastOpen) -> Self {
        let mut bytes = Self::EMPTY;
        bytes.append_fast_open(fast_open);
        bytes
    }
}

impl fmt::Debug for OptionBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OptionBytes({} bytes)", self.len)
    }
}
