//! Segments of the peer, to build, and segments of the stack, to check.

use firstflight_wire::SeqNum;
use firstflight_wire::tcp::{Cookie, FastOpen, FastOpenForm, Flags, Timestamps};

/// A segment to send.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seg {
    pub(super) flags: Flags,
    pub(super) seq: u32,
    pub(super) ack: Option<u32>,
    pub(super) raw_ack: Option<SeqNum>,
    pub(super) window: Option<u16>,
    pub(super) mss: Option<u16>,
    pub(super) scale: Option<u8>,
    pub(super) sack_ok: bool,
    pub(super) ts: Option<(u32, Option<u32>)>,
    pub(super) sack: Vec<(u32, u32)>,
    pub(super) raw_options: Vec<u8>,
    pub(super) data: Vec<u8>,
}

/// An empty segment with number 0.
pub(crate) fn seg() -> Seg {
    Seg::default()
}

impl Seg {
    fn flag(mut self, flag: Flags) -> Self {
        self.flags |= flag;
        self
    }
    pub(crate) fn syn(self) -> Self {
        self.flag(Flags::SYN)
    }
    pub(crate) fn fin(self) -> Self {
        self.flag(Flags::FIN)
    }
    pub(crate) fn rst(self) -> Self {
        self.flag(Flags::RST)
    }
    pub(crate) fn urg(self) -> Self {
        self.flag(Flags::URG)
    }
    pub(crate) fn ece(self) -> Self {
        self.flag(Flags::ECE)
    }
    pub(crate) fn cwr(self) -> Self {
        self.flag(Flags::CWR)
    }
    pub(crate) fn seq(mut self, seq: u32) -> Self {
        self.seq = seq;
        self
    }
    /// Acknowledges the stack's relative number.
    pub(crate) fn ack(mut self, ack: u32) -> Self {
        self.ack = Some(ack);
        self.flag(Flags::ACK)
    }
    /// Acknowledges an absolute number.
    pub(crate) fn raw_ack(mut self, ack: SeqNum) -> Self {
        self.raw_ack = Some(ack);
        self.flag(Flags::ACK)
    }
    pub(crate) fn win(mut self, window: u16) -> Self {
        self.window = Some(window);
        self
    }
    pub(crate) fn mss(mut self, mss: u16) -> Self {
        self.mss = Some(mss);
        self
    }
    pub(crate) fn scale(mut self, scale: u8) -> Self {
        self.scale = Some(scale);
        self
    }
    pub(crate) fn sack_ok(mut self) -> Self {
        self.sack_ok = true;
        self
    }
    /// A timestamp; the echo is the stack's newest.
    pub(crate) fn ts(mut self, value: u32) -> Self {
        self.ts = Some((value, None));
        self
    }
    /// The timestamp it carries.
    pub(crate) fn stamp(&self) -> Option<u32> {
        self.ts.map(|t| t.0)
    }
    pub(crate) fn ts_echo(mut self, value: u32, echo: u32) -> Self {
        self.ts = Some((value, Some(echo)));
        self
    }
    pub(crate) fn sack(mut self, blocks: &[(u32, u32)]) -> Self {
        self.sack = blocks.to_vec();
        self
    }
    pub(crate) fn option(mut self, raw: &[u8]) -> Self {
        self.raw_options.extend_from_slice(raw);
        self
    }
    /// A Fast Open option, kind 34.
    pub(crate) fn cookie(self, cookie: &[u8]) -> Self {
        let head = [34, 2 + cookie.len() as u8];
        self.option(&head).option(cookie)
    }
    /// A Fast Open option, kind 254.
    pub(crate) fn cookie_254(self, cookie: &[u8]) -> Self {
        let head = [254, 4 + cookie.len() as u8, 0xf9, 0x89];
        self.option(&head).option(cookie)
    }
    pub(crate) fn data(mut self, data: &[u8]) -> Self {
        self.data = data.to_vec();
        self.flag(Flags::PSH)
    }
    /// `n` bytes of data, the letter `x`.
    pub(crate) fn bytes(self, n: usize) -> Self {
        self.data(&vec![b'x'; n])
    }
    /// Like `bytes`, in the middle of a write.
    pub(crate) fn part(mut self, n: usize) -> Self {
        self.data = vec![b'x'; n];
        self
    }
}

/// A segment that the stack sent.
#[derive(Clone)]
pub(crate) struct Got {
    /// Milliseconds since the start.
    pub at: u64,
    pub flags: Flags,
    /// Relative to the stack's ISN.
    pub seq: u32,
    /// Relative to the peer's ISN.
    pub ack: u32,
    pub raw_seq: SeqNum,
    pub raw_ack: SeqNum,
    pub window: u16,
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack_ok: bool,
    pub ts: Option<Timestamps>,
    /// Relative to the peer's ISN.
    pub sack: Vec<(u32, u32)>,
    pub fast_open: Option<FastOpen>,
    pub data: Vec<u8>,
    pub port: u16,
    /// UDP ports of the datagram (the peer's, the stack's); `None`: raw IP.
    pub outer: Option<(u16, u16)>,
    pub packet: Vec<u8>,
}

impl std::fmt::Debug for Got {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "[{} ms: {} seq {} ack {} win {}", self.at, self.flags, self.seq, self.ack, self.window)?;
        write!(f, " len {} ts {:?} sack {:?} {:?}]", self.data.len(), self.ts, self.sack, self.fast_open)
    }
}

/// Timers may be late by a few ticks of the wheel, never early.
pub(crate) const LATE_MS: u64 = 4;

impl Got {
    #[track_caller]
    fn only(self, wanted: Flags) -> Self {
        let without_push = Flags::from_bits(self.flags.bits() & !Flags::PSH.bits());
        assert_eq!(without_push, wanted, "{self:?}");
        self
    }
    #[track_caller]
    pub(crate) fn is_syn(self) -> Self {
        self.only(Flags::SYN).seq(0)
    }
    #[track_caller]
    pub(crate) fn syn_ack(self) -> Self {
        self.only(Flags::SYN | Flags::ACK).seq(0)
    }
    /// Only ACK, with or without data.
    #[track_caller]
    pub(crate) fn is_ack(self) -> Self {
        self.only(Flags::ACK)
    }
    #[track_caller]
    pub(crate) fn is_fin(self) -> Self {
        self.only(Flags::FIN | Flags::ACK)
    }
    #[track_caller]
    pub(crate) fn is_rst(self) -> Self {
        assert!(self.flags.contains(Flags::RST), "{self:?}");
        assert!(!self.flags.intersects(Flags::SYN | Flags::FIN), "{self:?}");
        self
    }
    #[track_caller]
    pub(crate) fn seq(self, seq: u32) -> Self {
        assert_eq!(self.seq, seq, "number of {self:?}");
        self
    }
    #[track_caller]
    pub(crate) fn ack(self, ack: u32) -> Self {
        assert!(self.flags.contains(Flags::ACK), "{self:?}");
        assert_eq!(self.ack, ack, "acknowledgement of {self:?}");
        self
    }
    #[track_caller]
    pub(crate) fn data(self, data: &[u8]) -> Self {
        assert_eq!(self.data, data, "payload of {self:?}");
        self
    }
    #[track_caller]
    pub(crate) fn len(self, len: usize) -> Self {
        assert_eq!(self.data.len(), len, "payload of {self:?}");
        self
    }
    #[track_caller]
    pub(crate) fn empty(self) -> Self {
        self.len(0)
    }
    #[track_caller]
    pub(crate) fn at(self, ms: u64) -> Self {
        assert!((ms..=ms + LATE_MS).contains(&self.at), "not at {ms}: {self:?}");
        self
    }
    #[track_caller]
    pub(crate) fn win(self, window: u16) -> Self {
        assert_eq!(self.window, window, "window of {self:?}");
        self
    }
    #[track_caller]
    pub(crate) fn sack(self, blocks: &[(u32, u32)]) -> Self {
        assert_eq!(self.sack, blocks, "SACK blocks of {self:?}");
        self
    }
    #[track_caller]
    pub(crate) fn no_fast_open(self) -> Self {
        assert_eq!(self.fast_open, None, "{self:?}");
        self
    }
    /// The cookie that the option grants, which must be of this form.
    #[track_caller]
    pub(crate) fn grants(&self, form: FastOpenForm) -> Cookie {
        match self.fast_open {
            Some(FastOpen::Cookie(f, cookie)) if f == form => cookie,
            _ => panic!("no cookie of form {form:?} in {self:?}"),
        }
    }
}
