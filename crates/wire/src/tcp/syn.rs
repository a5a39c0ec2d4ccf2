//! The options of a SYN.

use super::build::OptionsBuf;
use super::emit::put_words;
use super::option::{MAX_WINDOW_SCALE, MSS, NOP, SACK_PERMITTED, TIMESTAMPS, WINDOW_SCALE};
use super::{HEADER, Header, MAX_OPTIONS, Timestamps};
use crate::EmitError;
use core::fmt;

/// The options of a SYN or SYN-ACK. They are written in Linux's order, so that middleboxes see a known pattern:
/// without timestamps `mss,nop,nop,sackOK,nop,wscale,extra`, with timestamps `mss,sackOK,TS,nop,wscale,extra`.
///
/// `Debug` shows only the length of `extra`, because it may contain a cookie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SynOptions<'a> {
    /// Maximum segment size, bytes.
    pub mss: u16,
    /// SACK is permitted.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Window shift. The largest legal shift is 14 (RFC 7323 §2.3), so a larger one is written as 14.
    pub window_scale: Option<u8>,
    /// More options, for example Fast Open. If they do not fit, they are silently omitted, and the handshake
    /// continues without them.
    pub extra: &'a [u8],
}

impl<'a> SynOptions<'a> {
    /// Length of everything except `extra`, bytes: whole words.
    #[inline]
    fn known_len(&self) -> usize {
        let sack_and_timestamps = match (self.sack_permitted, self.timestamps) {
            (_, Some(_)) => 12,
            (true, None) => 4,
            (false, None) => 0,
        };
        4 + sack_and_timestamps + if self.window_scale.is_some() { 4 } else { 0 }
    }

    /// The part of `extra` that is written: all or nothing.
    #[inline]
    fn fitting(&self) -> &'a [u8] {
        if self.known_len() + self.extra.len() <= MAX_OPTIONS { self.extra } else { &[] }
    }

    /// Length on the wire, including padding: 4 to 40 bytes.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always the segment size")]
    pub fn len(&self) -> usize {
        self.known_len() + self.fitting().len().next_multiple_of(4)
    }

    /// The options as bytes, to be sent later.
    //= rfc9293 MUST-14 SHLD-5
    #[must_use]
    pub fn to_buf(&self) -> OptionsBuf {
        let Self { mss, sack_permitted, timestamps, window_scale, extra } = *self;
        let mut options = OptionsBuf::new();
        // At most 20 of the 40 bytes are used before `extra`, so none of these calls can fail.
        options.mss(mss);
        if sack_permitted {
            if timestamps.is_none() {
                options.raw(&[NOP, NOP]);
            }
            options.sack_permitted();
        }
        if let Some(timestamps) = timestamps {
            options.timestamps(timestamps);
        }
        if let Some(shift) = window_scale {
            options.nop();
            options.window_scale(shift);
        }
        options.raw(extra);
        options
    }
}

impl fmt::Debug for SynOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mss, sack_permitted, timestamps, window_scale, extra } = self;
        f.debug_struct("SynOptions")
            .field("mss", mss)
            .field("sack_permitted", sack_permitted)
            .field("timestamps", timestamps)
            .field("window_scale", window_scale)
            .field("extra_len", &extra.len())
            .finish()
    }
}

impl Header {
    /// Like [`Header::emit`], with these options and their padding. Fast path for the options of nearly every
    /// SYN: it writes words of eight bytes, the size that the checksum reads.
    ///
    /// # Errors
    ///
    /// [`EmitError::BufferTooSmall`].
    //= rfc7323 2.3-g
    //= rfc9293 MUST-69
    #[inline(always)]
    pub fn emit_syn(&self, options: &SynOptions<'_>, out: &mut [u8]) -> Result<usize, EmitError> {
        const KNOWN: usize = 20;
        let (Some(ts), Some(shift), true) =
            (options.timestamps, options.window_scale, options.sack_permitted)
        else {
            return self.emit(options.to_buf().finish(), out);
        };
        let (extra, len) = (options.fitting(), HEADER + options.len());
        let (head, rest) =
            out.split_first_chunk_mut::<{ HEADER + KNOWN }>().ok_or(EmitError::BufferTooSmall)?;
        let rest = rest.get_mut(..len - HEADER - KNOWN).ok_or(EmitError::BufferTooSmall)?;
        // Write a word of padding first. The options overwrite what they need of it.
        if let Some(last) = rest.last_chunk_mut() {
            *last = [NOP; 4];
        }
        rest.get_mut(..extra.len()).ok_or(EmitError::BufferTooSmall)?.copy_from_slice(extra);
        let [ports, seq, ack, window, urgent] = self.words(len);
        let mss = u32::from_be_bytes([MSS, 4, 0, 0]) | u32::from(options.mss);
        let kinds = u32::from_be_bytes([SACK_PERMITTED, 2, TIMESTAMPS, 10]);
        let scale = u32::from_be_bytes([NOP, WINDOW_SCALE, 3, shift.min(MAX_WINDOW_SCALE)]);
        put_words(head, [ports, seq, ack, window, urgent, mss, kinds, ts.value, ts.echo, scale]);
        Ok(len)
    }
}
