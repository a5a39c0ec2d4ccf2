//! Reading TCP options.

use super::{FastOpen, FastOpenForm, SackBlocks};
use core::fmt;

pub(super) const END: u8 = 0;
pub(super) const NOP: u8 = 1;
pub(super) const MSS: u8 = 2;
pub(super) const WINDOW_SCALE: u8 = 3;
pub(super) const SACK_PERMITTED: u8 = 4;
pub(super) const SACK: u8 = 5;
pub(super) const TIMESTAMPS: u8 = 8;
pub(super) const FAST_OPEN: u8 = 34;
const EXPERIMENT_1: u8 = 253;
pub(super) const EXPERIMENT_2: u8 = 254;
/// Fast Open's experiment identifier.
pub(super) const FAST_OPEN_EXID: u16 = 0xf989;

/// NOP, NOP, then kind and length of the timestamps.
const ALIGNED_TIMESTAMPS: u32 = u32::from_be_bytes([NOP, NOP, TIMESTAMPS, 10]);
/// Kind and length of the MSS option.
const MSS_FIRST: u32 = u32::from_be_bytes([MSS, 4, 0, 0]);
/// SACK permitted, then kind and length of the timestamps.
const SACK_AND_TIMESTAMPS: u32 = u32::from_be_bytes([SACK_PERMITTED, 2, TIMESTAMPS, 10]);
/// NOP, then kind and length of the window scale.
const ALIGNED_SCALE: u32 = u32::from_be_bytes([NOP, WINDOW_SCALE, 3, 0]);

/// The largest legal shift (RFC 7323 §2.3).
pub(super) const MAX_WINDOW_SCALE: u8 = 14;

/// The timestamps option (RFC 7323 §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the receiver's clock, echoed; valid only with ACK.
    pub echo: u32,
}

/// The options of a segment: those that the engine knows, parsed, and all of them as bytes.
///
/// `Debug` omits the bytes, because they may contain a cookie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Options<'a> {
    /// All option bytes, including padding.
    pub raw: &'a [u8],
    /// Maximum segment size, bytes; only on a SYN. Zero counts as absent.
    pub mss: Option<u16>,
    /// Window shift; only on a SYN. A larger shift than 14 counts as 14 (RFC 7323 §2.3).
    pub window_scale: Option<u8>,
    /// SACK is permitted; only on a SYN (RFC 2018 §2).
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    sacks: bool,
    /// The position in `raw` of the valid Fast Open option, plus one; 0 without one.
    first_flight: u8,
    /// The position in `raw` of the last ASAP option, plus one; 0 without one.
    asap: u8,
}

impl<'a> Options<'a> {
    /// Reads the options of a segment; `syn` says that it has the SYN flag. Reading stops at the first option
    /// with an impossible length, and the options before it count (RFC 9293 §3.1, MUST-7; as in Linux).
    #[inline(always)]
    #[must_use]
    pub fn parse(raw: &'a [u8], syn: bool) -> Self {
        // Compare by words: comparing byte by byte costs four times as much.
        if let Ok(&[a, b, c, d, ts @ ..]) = <&[u8; 12]>::try_from(raw)
            && u32::from_be_bytes([a, b, c, d]) == ALIGNED_TIMESTAMPS
        {
            // Almost every segment of a connection that uses timestamps (RFC 7323 appendix A).
            return Self { timestamps: Some(timestamps(ts)), ..Self::none(raw) };
        }
        let mut options = Self::none(raw);
        let mut known = 0;
        // Fast path for the SYN of Linux and of this crate. Usually only Fast Open or nothing follows.
        if let Some(&[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t]) = raw.first_chunk()
            && syn
            && u32::from_be_bytes([a, b, 0, 0]) == MSS_FIRST
            && u32::from_be_bytes([e, f, g, h]) == SACK_AND_TIMESTAMPS
            && u32::from_be_bytes([q, r, s, 0]) == ALIGNED_SCALE
        {
            options.mss = Some(u16::from_be_bytes([c, d])).filter(|mss| *mss > 0);
            options.window_scale = Some(t.min(MAX_WINDOW_SCALE));
            options.sack_permitted = true;
            options.timestamps = Some(timestamps([i, j, k, l, m, n, o, p]));
            known = 20;
        }
        options.read(known, syn);
        options
    }

    #[inline]
    const fn none(raw: &'a [u8]) -> Self {
        Self {
            raw,
            mss: None,
            window_scale: None,
            sack_permitted: false,
            timestamps: None,
            sacks: false,
            first_flight: 0,
            asap: 0,
        }
    }

    /// Reads the options behind the first `known` bytes, one by one. It must be inlined with everything that it
    /// calls, or the caller would wait for narrow stores.
    //= rfc9293 MUST-4 MUST-5 MUST-6 MUST-7 MUST-64 MUST-68
    #[inline(always)]
    fn read(&mut self, known: usize, syn: bool) {
        let options = self;
        let raw = options.raw;
        let mut rest = raw.get(known..).unwrap_or_default();
        // Walks the options like `OptionIter`, but does not build the unknown ones.
        loop {
            match *rest {
                [NOP, ref after @ ..] => rest = after,
                [kind, len, ..] if kind != END && len >= 2 => {
                    let Some((option, after)) = rest.split_at_checked(usize::from(len)) else { break };
                    rest = after;
                    match (kind, option) {
                        (TIMESTAMPS, &[_, _, a, b, c, d, e, f, g, h]) => {
                            options.timestamps = Some(timestamps([a, b, c, d, e, f, g, h]));
                        }
                        (SACK, [_, _, data @ ..]) if !data.is_empty() && data.len().is_multiple_of(8) => {
                            options.sacks = true;
                        }
                        //= rfc7323 2.2-c
                        //= rfc7413 4.1.1-b
                        (_, [_, _, data @ ..]) if syn => {
                            let at = raw.len() - option.len() - after.len();
                            options.take_from_syn(kind, data, at);
                        }
                        _ => {}
                    }
                }
                _ => break,
            }
        }
    }

    #[inline]
    fn take_from_syn(&mut self, kind: u8, data: &[u8], at: usize) {
        match (kind, data) {
            //= rfc9293 MUST-14
            (MSS, &[high, low]) => {
                let mss = u16::from_be_bytes([high, low]);
                if mss > 0 {
                    self.mss = Some(mss);
                }
            }
            //= rfc7323 2.3-h
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(MAX_WINDOW_SCALE)),
            (SACK_PERMITTED, []) => self.sack_permitted = true,
            // The last option counts, unless its length is odd.
            //= rfc7413 4.1.1-a
            (FAST_OPEN, _) | (EXPERIMENT_2, [0xf9, 0x89, ..]) if data.len().is_multiple_of(2) => {
                self.first_flight = at as u8 + 1;
            }
            (EXPERIMENT_1, [0xfa, 0x57, ..]) => self.asap = at as u8 + 1,
            _ => {}
        }
    }

    /// Whether the segment has a SACK option.
    #[inline]
    #[must_use]
    pub const fn has_sack(&self) -> bool {
        self.sacks
    }

    /// The SACK blocks; the last SACK option counts. They are parsed only here, because few segments have any.
    #[must_use]
    pub fn sack(&self) -> SackBlocks {
        if !self.sacks {
            return SackBlocks::EMPTY;
        }
        let blocks = self.iter().filter_map(|option| match option {
            TcpOption::Sack(data) => Some(SackBlocks::from_wire(data)),
            _ => None,
        });
        blocks.last().unwrap_or(SackBlocks::EMPTY)
    }

    /// Fast Open; only on a SYN. An option whose cookie has an odd length is ignored, one with another illegal
    /// length counts as no Fast Open, and the last option counts: as in Linux.
    #[must_use]
    #[inline]
    pub fn fast_open(&self) -> Option<FastOpen> {
        let at = usize::from(self.first_flight).checked_sub(1)?;
        let (kind, len, rest) = match *self.raw.get(at..)? {
            [kind, len, ref rest @ ..] => (kind, len, rest),
            _ => return None,
        };
        let data = rest.get(..usize::from(len).checked_sub(2)?)?;
        // With a length that no cookie can have, there is no Fast Open.
        match (kind, data) {
            (FAST_OPEN, _) => FastOpen::from_wire(FastOpenForm::Standard, data),
            (EXPERIMENT_2, [0xf9, 0x89, data @ ..]) => FastOpen::from_wire(FastOpenForm::Experimental, data),
            _ => None,
        }
    }

    /// The last ASAP option; only on a SYN. Returns what follows the experiment identifier, for
    /// [`AsapOption::parse`](crate::asap::AsapOption::parse) or [`Reply::parse`](crate::asap::Reply::parse).
    #[inline]
    #[must_use]
    pub fn asap(&self) -> Option<&'a [u8]> {
        if self.asap == 0 { None } else { self.asap_at() }
    }

    #[inline(never)]
    fn asap_at(&self) -> Option<&'a [u8]> {
        let at = usize::from(self.asap).checked_sub(1)?;
        match OptionIter::new(self.raw.get(at..)?).next() {
            Some(TcpOption::Experimental { data, .. }) => Some(data),
            _ => None,
        }
    }

    /// All options in their order, including unknown ones.
    #[inline]
    #[must_use]
    pub const fn iter(&self) -> OptionIter<'a> {
        OptionIter { rest: self.raw }
    }
}

impl<'a> IntoIterator for &Options<'a> {
    type Item = TcpOption<'a>;
    type IntoIter = OptionIter<'a>;

    fn into_iter(self) -> OptionIter<'a> {
        self.iter()
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Destructured, so that a new field is not forgotten here.
        let Self { raw, mss, window_scale, sack_permitted, timestamps, sacks: _, first_flight: _, asap } =
            self;
        f.debug_struct("Options")
            .field("raw_len", &raw.len())
            .field("mss", mss)
            .field("window_scale", window_scale)
            .field("sack_permitted", sack_permitted)
            .field("timestamps", timestamps)
            .field("sack", &self.sack().as_slice())
            .field("fast_open", &self.fast_open())
            .field("asap", &(*asap != 0))
            .finish()
    }
}

/// One option. A known kind with an illegal length is returned as `Unknown`.
///
/// For data that is not understood, `Debug` shows only the length, because the data may contain a credential.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TcpOption<'a> {
    /// Kind 1: padding.
    Nop,
    /// Kind 2: maximum segment size, bytes (RFC 9293 §3.7.1).
    Mss(u16),
    /// Kind 3: window shift as received, possibly above 14 (RFC 7323 §2.2).
    WindowScale(u8),
    /// Kind 4 (RFC 2018 §2).
    SackPermitted,
    /// Kind 5: 8 bytes a block, at least one block (RFC 2018 §3).
    Sack(&'a [u8]),
    /// Kind 8 (RFC 7323 §3.2).
    Timestamps(Timestamps),
    /// Kind 34, or 254 with 0xF989.
    FastOpen(FastOpen),
    /// Kind 253 or 254 with a 16-bit experiment identifier (RFC 6994 §3).
    Experimental {
        /// 253 or 254.
        kind: u8,
        /// The experiment identifier.
        exid: u16,
        /// The data behind the identifier.
        data: &'a [u8],
    },
    /// Any other option.
    Unknown {
        /// The option's kind.
        kind: u8,
        /// The data behind kind and length.
        data: &'a [u8],
    },
}

impl fmt::Debug for TcpOption<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nop => f.write_str("Nop"),
            Self::Mss(mss) => write!(f, "Mss({mss})"),
            Self::WindowScale(shift) => write!(f, "WindowScale({shift})"),
            Self::SackPermitted => f.write_str("SackPermitted"),
            Self::Sack(data) => f.debug_tuple("Sack").field(data).finish(),
            Self::Timestamps(timestamps) => timestamps.fmt(f),
            Self::FastOpen(fast_open) => f.debug_tuple("FastOpen").field(fast_open).finish(),
            Self::Experimental { kind, exid, data } => {
                write!(f, "Experimental({kind}, {exid:#06x}, {} bytes)", data.len())
            }
            Self::Unknown { kind, data } => write!(f, "Unknown({kind}, {} bytes)", data.len()),
        }
    }
}

/// Iterates over the options of a segment. Ends at the end-of-list option or at the first impossible length.
#[derive(Clone)]
pub struct OptionIter<'a> {
    rest: &'a [u8],
}

impl<'a> OptionIter<'a> {
    /// Iterates over the given option bytes.
    #[inline]
    #[must_use]
    pub const fn new(raw: &'a [u8]) -> Self {
        Self { rest: raw }
    }
}

impl<'a> Iterator for OptionIter<'a> {
    type Item = TcpOption<'a>;

    #[inline]
    fn next(&mut self) -> Option<TcpOption<'a>> {
        match *self.rest {
            [NOP, ref rest @ ..] => {
                self.rest = rest;
                Some(TcpOption::Nop)
            }
            [kind, len, ..] if kind != END && len >= 2 => {
                let (option, rest) = self.rest.split_at_checked(usize::from(len))?;
                self.rest = rest;
                Some(read_one(kind, option.get(2..).unwrap_or_default()))
            }
            _ => None,
        }
    }
}

impl core::iter::FusedIterator for OptionIter<'_> {}

impl fmt::Debug for OptionIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}

#[inline]
fn read_one(kind: u8, data: &[u8]) -> TcpOption<'_> {
    let unknown = TcpOption::Unknown { kind, data };
    match (kind, data) {
        (MSS, &[high, low]) => TcpOption::Mss(u16::from_be_bytes([high, low])),
        (WINDOW_SCALE, &[shift]) => TcpOption::WindowScale(shift),
        (SACK_PERMITTED, []) => TcpOption::SackPermitted,
        (SACK, _) if !data.is_empty() && data.len().is_multiple_of(8) => TcpOption::Sack(data),
        (TIMESTAMPS, &[a, b, c, d, e, f, g, h]) => {
            TcpOption::Timestamps(timestamps([a, b, c, d, e, f, g, h]))
        }
        (FAST_OPEN, _) => {
            FastOpen::from_wire(FastOpenForm::Standard, data).map_or(unknown, TcpOption::FastOpen)
        }
        (EXPERIMENT_1 | EXPERIMENT_2, &[high, low, ref data @ ..]) => {
            let exid = u16::from_be_bytes([high, low]);
            let fast_open = (kind == EXPERIMENT_2 && exid == FAST_OPEN_EXID)
                .then(|| FastOpen::from_wire(FastOpenForm::Experimental, data))
                .flatten();
            fast_open.map_or(TcpOption::Experimental { kind, exid, data }, TcpOption::FastOpen)
        }
        _ => unknown,
    }
}

#[inline]
const fn timestamps([a, b, c, d, e, f, g, h]: [u8; 8]) -> Timestamps {
    Timestamps { value: u32::from_be_bytes([a, b, c, d]), echo: u32::from_be_bytes([e, f, g, h]) }
}
