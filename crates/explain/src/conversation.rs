//! What a capture shows of one connection's first flight: facts, gathered from segments in any order. The verdict
//! interprets them.

use super::offered::Offered;
use super::sealed::Beginning;
use super::sightings::{COPY, Sighting, Sightings, apart};
use firstflight_wire::asap::Reply;
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::tcp::{FastOpen, FastOpenForm, Flags, Options, Segment, TcpOption};
use firstflight_wire::{Instant, SeqNum};
use std::cmp::Ordering;
use std::time::Duration;

/// Captures of several devices or queues reorder packets by less than this.
const DISORDER: Duration = Duration::from_secs(1);
/// A SYN-ACK acknowledges at most what one segment can hold. Any other number belongs to another connection.
const MAX_SEGMENT: u32 = 65_535;
/// Fast Open's experiment identifier.
const FAST_OPEN_EXID: u16 = 0xf989;

/// One of the two ends. Which one is the client becomes clear later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConversationSide {
    /// The end whose address and port sort first.
    Low,
    /// The other end.
    High,
}

impl ConversationSide {
    /// The other end.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Low => Self::High,
            Self::High => Self::Low,
        }
    }
}

/// The Fast Open option of a SYN or SYN-ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FoOption {
    /// There is none.
    Absent,
    /// A request or a cookie.
    Legal(FastOpen),
    /// A cookie of invalid length (RFC 7413 §4.1.1), which receivers ignore like a missing option.
    Illegal(FastOpenForm, usize),
}

impl FoOption {
    /// The option of a segment with SYN.
    pub(crate) fn of(options: &Options<'_>) -> Self {
        if let Some(option) = options.fast_open() {
            return Self::Legal(option);
        }
        let illegal = options.iter().filter_map(|option| match option {
            // Kind 34. A legal cookie would have been parsed as Fast Open.
            TcpOption::Unknown { kind: 34, data } => Some(Self::Illegal(FastOpenForm::Standard, data.len())),
            TcpOption::Experimental { kind: 254, exid: FAST_OPEN_EXID, data } => {
                Some(Self::Illegal(FastOpenForm::Experimental, data.len()))
            }
            _ => None,
        });
        illegal.last().unwrap_or(Self::Absent)
    }

    pub(crate) fn form(&self) -> Option<FastOpenForm> {
        match self {
            Self::Absent => None,
            Self::Legal(option) => Some(option.form()),
            Self::Illegal(form, _) => Some(*form),
        }
    }

    /// The cookie's bytes; `None` without a legal cookie.
    pub(crate) fn cookie(&self) -> Option<&[u8]> {
        match self {
            Self::Legal(option @ FastOpen::Cookie(..)) => Some(option.cookie_bytes()),
            _ => None,
        }
    }
}

/// The SYNs of one end with one initial sequence number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Syn {
    /// The initial sequence number.
    pub isn: SeqNum,
    /// Bytes of data in the largest of them: repeated SYNs are plain (RFC 7413 §4.1.3).
    pub carried: u32,
    /// Its Fast Open option.
    pub option: FoOption,
    /// Its ASAP option.
    pub offered: Option<Offered>,
    /// The times when they were sent.
    pub sent: Sightings,
    /// When the first SYN without option and data was sent.
    pub plain: Option<Instant>,
    /// When the first SYN with the most data was sent.
    full: Instant,
    /// When the first SYN with less was sent.
    lesser: Option<Instant>,
}

impl Syn {
    fn first(seen: Sighting, segment: &Segment<'_>) -> Self {
        let at = seen.at;
        let (option, carried) = (FoOption::of(&segment.options), payload(segment));
        let offered = Offered::of(segment);
        let plain = (option == FoOption::Absent && offered.is_none() && carried == 0).then_some(at);
        let sent = Sightings::first(seen);
        Self { isn: segment.seq, carried, option, offered, sent, plain, full: at, lesser: None }
    }

    fn merge(&mut self, other: Self, seen: Sighting) {
        let at = seen.at;
        self.sent.add(seen);
        self.plain = earliest(self.plain, other.plain);
        let fullness = |syn: &Self| (syn.carried, syn.option != FoOption::Absent || syn.offered.is_some());
        match fullness(&other).cmp(&fullness(self)) {
            Ordering::Less => self.lesser = earliest(self.lesser, Some(at)),
            Ordering::Equal => self.full = self.full.min(at),
            Ordering::Greater => {
                self.lesser = earliest(self.lesser, Some(self.full));
                (self.carried, self.option, self.full) = (other.carried, other.option, at);
                self.offered = other.offered;
            }
        }
    }

    /// Length of its credential block, bytes.
    pub(crate) fn block_len(&self) -> u32 {
        match self.offered {
            Some(Offered::Block(len, _)) => len.min(self.carried),
            _ => 0,
        }
    }

    /// Whether a SYN with less had been sent by then.
    pub(crate) fn shrank_by(&self, at: Instant) -> bool {
        self.lesser.is_some_and(|lesser| lesser <= at)
    }

    /// Whether it was seen with and without option or data at the same time: it was repeated without waiting, or
    /// changed on the path.
    pub(crate) fn has_lesser_copy(&self) -> bool {
        self.lesser.is_some_and(|lesser| apart(lesser, self.full) < COPY)
    }
}

/// The SYN-ACKs of one end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SynAck {
    /// The smallest number acknowledged.
    pub least: SeqNum,
    /// The greatest number acknowledged.
    pub greatest: SeqNum,
    /// The option. If one SYN-ACK has a cookie, that one.
    pub option: FoOption,
    /// ASAP's reply.
    pub reply: Option<Reply>,
    /// A SYN-ACK has a malformed reply, which receivers ignore.
    pub unreadable_reply: bool,
    /// Bytes of data.
    pub carried: u32,
    /// The times when they were sent.
    pub sent: Sightings,
}

impl SynAck {
    fn first(seen: Sighting, segment: &Segment<'_>) -> Self {
        let (asap, reply) = (segment.options.asap(), segment.options.asap().and_then(Reply::parse));
        Self {
            least: segment.ack,
            greatest: segment.ack,
            option: FoOption::of(&segment.options),
            reply,
            unreadable_reply: asap.is_some() && reply.is_none(),
            carried: payload(segment),
            sent: Sightings::first(seen),
        }
    }

    fn merge(&mut self, other: Self, seen: Sighting) {
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
        self.carried = self.carried.max(other.carried);
        self.reply = self.reply.or(other.reply);
        self.unreadable_reply |= other.unreadable_reply;
        if self.option.cookie().is_none() && other.option != FoOption::Absent {
            self.option = other.option;
        }
        self.sent.add(seen);
    }
}

/// What one end sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Half {
    /// Its SYNs without ACK.
    pub syn: Option<Syn>,
    /// Its SYN-ACKs.
    pub syn_ack: Option<SynAck>,
    /// When its first byte of data after a SYN was sent, or data in a SYN-ACK.
    pub data: Option<Instant>,
    /// The first bytes of its stream, a credential block left out.
    pub beginning: Option<Beginning>,
    /// The end of the data that followed its SYN without an acknowledgement.
    pub followed: Option<SeqNum>,
    /// When it first sent an acknowledgement that is neither SYN nor RST.
    pub ack: Option<Instant>,
    /// When it first sent a RST.
    pub rst: Option<Instant>,
    /// The kind of an ICMP error about its SYN.
    pub icmp: Option<IcmpErrorKind>,
}

impl Half {
    /// Keeps what may be the beginning of the stream.
    fn begins(&mut self, seq: SeqNum, data: &[u8]) {
        let new = Beginning::of(seq, data);
        self.beginning = match (self.beginning, new) {
            (Some(old), Some(new)) => Some(old.earlier(new)),
            (old, new) => old.or(new),
        };
    }
}

/// Everything that is kept of a connection. It takes less than a kilobyte, whatever the connection does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conversation {
    began: Instant,
    low: Half,
    high: Half,
}

impl Conversation {
    /// Starts with the connection's first segment in the capture.
    pub(crate) fn new(seen: impl Into<Sighting>, from: ConversationSide, segment: &Segment<'_>) -> Self {
        let seen = seen.into();
        let mut new = Self { began: seen.at, low: Half::default(), high: Half::default() };
        new.handle_segment(seen, from, segment);
        new
    }

    /// What this end sent.
    pub(crate) fn half(&self, side: ConversationSide) -> &Half {
        match side {
            ConversationSide::Low => &self.low,
            ConversationSide::High => &self.high,
        }
    }

    fn half_mut(&mut self, side: ConversationSide) -> &mut Half {
        match side {
            ConversationSide::Low => &mut self.low,
            ConversationSide::High => &mut self.high,
        }
    }

    /// When the earliest of its packets was captured.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// The side that opened the connection: the sender of the SYN, or the receiver of a SYN-ACK. `None` if the
    /// capture began later.
    pub(crate) fn client(&self) -> Option<ConversationSide> {
        let sent = |of: fn(&Half) -> bool| {
            [ConversationSide::Low, ConversationSide::High].into_iter().find(|s| of(self.half(*s)))
        };
        match (self.low.syn, self.high.syn) {
            // Both sides opened: take the one that did so first.
            (Some(low), Some(high)) if high.sent.earliest() < low.sent.earliest() => {
                Some(ConversationSide::High)
            }
            (Some(_), Some(_)) => Some(ConversationSide::Low),
            _ => sent(|half| half.syn.is_some())
                .or_else(|| sent(|half| half.syn_ack.is_some()).map(ConversationSide::other)),
        }
    }

    /// Whether a segment belongs to this connection, and not to a later one between the same ports.
    pub(crate) fn owns(&self, at: Instant, from: ConversationSide, segment: &Segment<'_>) -> bool {
        let (own, peer) = (self.half(from), self.half(from.other()));
        if !segment.flags.contains(Flags::SYN) {
            return true;
        }
        // Packets that are out of order arrive soon. Ports are not reused so soon.
        let near = apart(self.began, at) <= DISORDER;
        if segment.flags.contains(Flags::ACK) {
            let answers = |syn: Syn| acknowledged(segment.ack, syn.isn).is_some();
            let repeats = |old: SynAck| [old.least, old.greatest].contains(&segment.ack);
            return near || peer.syn.is_some_and(answers) || own.syn_ack.is_some_and(repeats);
        }
        match own.syn {
            Some(syn) => syn.isn == segment.seq,
            None => near || peer.syn_ack.is_some_and(|old| acknowledged(old.least, segment.seq).is_some()),
        }
    }

    /// Records a segment.
    pub(crate) fn handle_segment(
        &mut self,
        seen: impl Into<Sighting>,
        from: ConversationSide,
        segment: &Segment<'_>,
    ) {
        let seen = seen.into();
        let at = seen.at;
        self.began = self.began.min(at);
        let half = self.half_mut(from);
        let flags = segment.flags;
        if flags.contains(Flags::RST) {
            half.rst = earliest(half.rst, Some(at));
            return;
        }
        if flags.contains(Flags::SYN | Flags::ACK) {
            let new = SynAck::first(seen, segment);
            match &mut half.syn_ack {
                Some(old) => old.merge(new, seen),
                none => *none = Some(new),
            }
        } else if flags.contains(Flags::SYN) {
            let new = Syn::first(seen, segment);
            let block = new.block_len();
            let data = segment.payload.get(block as usize..).unwrap_or_default();
            half.begins(segment.seq + 1 + block, data);
            match &mut half.syn {
                Some(old) => old.merge(new, seen),
                none => *none = Some(new),
            }
            return;
        } else if flags.contains(Flags::ACK) {
            half.ack = earliest(half.ack, Some(at));
        } else if !segment.payload.is_empty() {
            let end = segment.seq + payload(segment);
            half.followed = Some(half.followed.filter(|other| end.lt(*other)).unwrap_or(end));
        }
        if !segment.payload.is_empty() {
            half.data = earliest(half.data, Some(at));
            half.begins(segment.seq + u32::from(flags.contains(Flags::SYN)), segment.payload);
        }
    }

    /// Records an ICMP error about a segment of `from` with the number `seq`.
    pub(crate) fn handle_icmp(&mut self, from: ConversationSide, seq: SeqNum, kind: IcmpErrorKind) {
        let half = self.half_mut(from);
        if half.syn.is_some_and(|syn| syn.isn == seq) && half.icmp.is_none() {
            half.icmp = Some(kind);
        }
    }
}

/// How many bytes after a SYN with the number `isn` are acknowledged; `None` if the number is not possible.
pub(crate) fn acknowledged(ack: SeqNum, isn: SeqNum) -> Option<u32> {
    let bytes = ack.distance_from(isn).wrapping_sub(1);
    (bytes <= MAX_SEGMENT).then_some(bytes)
}

fn payload(segment: &Segment<'_>) -> u32 {
    u32::try_from(segment.payload.len()).unwrap_or(u32::MAX)
}

fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    a.into_iter().chain(b).min()
}
