//! The options of a SYN.

use super::build::OptionsBuf;
use super::emit::put_words;
use super::option::{MAX_WINDOW_SCALE, MSS, NOP, SACK_PERMITTED, TIMESTAMPS, WINDOW_SCALE};
use super::{HEADER, Header, MAX_OPTIONS, Timestamps};
use crate::EmitError;
use core::fmt;

/// The options of a SYN or SYN-ACK, written in the order in which Linux sends them, so that middleboxes see what they
/// know: without timestamps `mss,nop,nop,sackOK,nop,wscale,extra`, with them `mss,sackOK,TS,nop,wscale,extra`.
///
/// `Debug` shows of `extra` only the length: there may be a cookie in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SynOptions<'a> {
    /// Maximum segment size, bytes.
    pub mss: u16,
    /// SACK is welcome.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Window shift. At most 14 is legal (RFC 7323 §2.3), so more is written as 14.
    pub window_scale: Option<u8>,
    /// More of them, say a Fast Open option; silently left out if they do not fit (the handshake then goes on
    /// without).
    pub extra: &'a [u8],
}

impl<'a> SynOptions<'a> {
    /// Length of all but `extra`, bytes: whole words.
    #[inline(always)]
    fn known_len(&self) -> usize {
        let sack_and_timestamps = match (self.sack_permitted, self.timestamps) {
            (_, Some(_)) => 12,
            (true, None) => 4,
            (false, None) => 0,
        };
        4 + sack_and_timestamps + if self.window_scale.is_some() { 4 } else { 0 }
    }

    /// What of `extra` is written: all or nothing.
    #[inline(always)]
    fn fitting(&self) -> &'a [u8] {
        if self.known_len() + self.extra.len() <= MAX_OPTIONS { self.extra } else { &[] }
    }

    /// Length on the wire, padding included: 4 to 40 bytes.
    #[inline(always)]
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always the segment size")]
    pub fn len(&self) -> usize {
        self.known_len() + self.fitting().len().next_multiple_of(4)
    }

    /// The options in the field, to be sent later.
    //= rfc9293 MUST-14 SHLD-5
    #[must_use]
    pub fn to_buf(&self) -> OptionsBuf {
        let Self { mss, sack_permitted, timestamps, window_scale, extra } = *self;
        let mut options = OptionsBuf::new();
        // At most 20 of 40 bytes up to `extra`: none of these can fail.
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
    /// [`Header::emit`] with these options and their padding, and without a detour for those of nearly every SYN:
    /// words of eight bytes, which are what the checksum will read.
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
        // A word of padding, of which the options leave what they do not need.
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
