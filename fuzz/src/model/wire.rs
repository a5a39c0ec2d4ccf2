//! Builds the peer's segments from what the model knows, and parses the stack's segments.

use super::state::Arriving;
use super::{PEER_PORT, PORT, World, byte};
use arbitrary::Arbitrary;
use firstflight_wire::SeqNum;
use firstflight_wire::ip::{Ecn, Header as IpHeader, Packet, Protocol};
use firstflight_wire::tcp::{Flags, Header, OptionsBuf, Segment, Timestamps, fill_checksum};

/// A segment, relative to its connection's variables.
#[derive(Debug, Clone, Arbitrary)]
pub struct Spec {
    flags: Bits,
    seq: Number,
    ack: Number,
    window: u16,
    len: u16,
    stamp: Stamp,
    scale: Option<u8>,
}

#[derive(Debug, Clone, Copy, Arbitrary)]
enum Bits {
    Of(Kind),
    Any(u8),
}

/// The kind of segment that a peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Arbitrary)]
pub enum Kind {
    Syn,
    SynAck,
    Ack,
    Data,
    Fin,
    Rst,
    /// A FIN that acknowledges nothing new.
    OldFin,
    /// The SYN-ACK of a peer that also opened, which repeats its SYN.
    Crossed,
}

/// A number near an important one.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Number {
    /// RCV.NXT or SND.NXT.
    Next,
    Near {
        edge: u8,
        distance: i8,
    },
    Any(u32),
}

/// A timestamp around TS.Recent.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Stamp {
    Same,
    Newer(u8),
    Older(u8),
    Any(u32),
    Absent,
}

impl Kind {
    fn flags(self) -> Flags {
        match self {
            Self::Syn => Flags::SYN,
            Self::SynAck | Self::Crossed => Flags::SYN | Flags::ACK,
            Self::Ack => Flags::ACK,
            Self::Data => Flags::ACK | Flags::PSH,
            Self::Fin | Self::OldFin => Flags::FIN | Flags::ACK,
            Self::Rst => Flags::RST,
        }
    }

    /// A segment of a correct peer, with `len` bytes of text where text is possible.
    pub fn right(self, len: u8) -> Spec {
        let text = matches!(self, Self::Data | Self::Fin);
        Spec {
            flags: Bits::Of(self),
            seq: if self == Self::Crossed { Number::Near { edge: 2, distance: 0 } } else { Number::Next },
            ack: if self == Self::OldFin { Number::Near { edge: 0, distance: 0 } } else { Number::Next },
            window: 20_000,
            len: if text { u16::from(len) * 4 } else { 0 },
            stamp: Stamp::Newer(1),
            scale: Some(3),
        }
    }
}

/// A segment of the stack.
#[derive(Debug, Clone)]
pub struct Sent {
    pub seq: u32,
    pub ack: Option<u32>,
    pub syn: bool,
    pub fin: bool,
    pub rst: bool,
    pub window: u16,
    pub text: Vec<u8>,
    pub stamps: Option<(u32, u32)>,
}

impl Sent {
    pub fn read(packet: &[u8]) -> Self {
        let packet = Packet::parse(packet).expect("the stack sends IP");
        let segment = Segment::parse_checked(packet.payload, packet.src, packet.dst).expect("and TCP");
        assert_eq!((segment.src_port, segment.dst_port), (PORT, PEER_PORT));
        let has = |flag| segment.flags.contains(flag);
        Self {
            seq: segment.seq.get(),
            ack: has(Flags::ACK).then_some(segment.ack.get()),
            syn: has(Flags::SYN),
            fin: has(Flags::FIN),
            rst: has(Flags::RST),
            window: segment.window,
            text: segment.payload.to_vec(),
            stamps: segment.options.timestamps.map(|ts| (ts.value, ts.echo)),
        }
    }

    pub fn is_syn(&self) -> bool {
        self.syn && self.ack.is_none() && !self.rst && !self.fin
    }

    /// The number after its last one.
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.text.len() as u32 + u32::from(self.syn) + u32::from(self.fin))
    }

    /// Whether it is an ACK without anything else.
    pub fn is_bare(&self) -> bool {
        self.text.is_empty() && !self.syn && !self.fin && !self.rst
    }
}

impl World {
    fn number(&self, number: Number, next: u32, edges: [u32; 6]) -> u32 {
        match number {
            Number::Next => next,
            Number::Near { edge, distance } => {
                edges[usize::from(edge) % edges.len()].wrapping_add(i32::from(distance) as u32)
            }
            Number::Any(n) => n,
        }
    }

    /// The packet, and what the model must know of it.
    pub fn build(&mut self, spec: &Spec) -> (Vec<u8>, Arriving) {
        let flags = match spec.flags {
            Bits::Of(kind) => kind.flags(),
            Bits::Any(bits) => Flags::from_bits(bits & 0x3f),
        };
        let m = &self.model;
        let known = m.synchronized() || self.model.state == super::State::TimeWait;
        let next = if known { m.rcv_nxt } else { self.peer_isn };
        let held = m.held.last().map_or(m.rcv_nxt, |h| h.1);
        let edge = m.rcv_nxt.wrapping_add(m.rcv_wnd);
        let seq =
            self.number(spec.seq, next, [next, edge, m.irs, m.last_ack_sent, held, next.wrapping_sub(500)]);
        let oldest = m.snd_una.wrapping_sub(m.max_wnd);
        let middle = m.snd_una.wrapping_add(m.snd_nxt.wrapping_sub(m.snd_una) / 2);
        let ack = self.number(spec.ack, m.snd_nxt, [m.snd_una, m.snd_nxt, m.iss, oldest, middle, m.snd_wl2]);
        let syn = flags.contains(Flags::SYN);
        let len = u32::from(spec.len) % 1400;
        // The stream of a closed connection does not matter.
        let first = m.irs.wrapping_add(1);
        let text: Vec<u8> = if known && !syn {
            (0..len).map(|i| byte(seq.wrapping_sub(first).wrapping_add(i))).collect()
        } else {
            (0..len).map(byte).collect()
        };
        let stamp = match spec.stamp {
            _ if !self.model.wants_timestamps && syn => None,
            Stamp::Same => Some(m.ts_recent),
            Stamp::Newer(n) => Some(m.ts_recent.wrapping_add(n.into())),
            Stamp::Older(n) => Some(m.ts_recent.wrapping_sub(n.into())),
            Stamp::Any(n) => Some(n),
            Stamp::Absent => None,
        };
        let arriving = Arriving {
            seq,
            ack: flags.contains(Flags::ACK).then_some(ack),
            syn,
            fin: flags.contains(Flags::FIN),
            rst: flags.contains(Flags::RST),
            was_syn: false,
            window: spec.window,
            payload: len,
            stamp,
            scale: spec.scale.filter(|_| syn),
        };
        (self.packet(&arriving, flags, ack, &text), arriving)
    }

    fn packet(&self, seg: &Arriving, flags: Flags, ack: u32, text: &[u8]) -> Vec<u8> {
        let mut options = OptionsBuf::new();
        if seg.syn {
            options.mss(1460);
        }
        if let Some(shift) = seg.scale {
            options.window_scale(shift);
        }
        if let Some(value) = seg.stamp {
            options.timestamps(Timestamps { value, echo: self.last_ts });
        }
        let header = Header {
            src_port: PEER_PORT,
            dst_port: PORT,
            seq: SeqNum::new(seg.seq),
            ack: SeqNum::new(ack),
            flags,
            window: seg.window,
            urgent: 0,
        };
        let mut out = vec![0; 2000];
        let [dst, src] = self.ips;
        let (hop_limit, ecn) = (64, Ecn::default());
        let ip = IpHeader {
            src,
            dst,
            protocol: Protocol::Tcp,
            hop_limit,
            ecn,
            dont_fragment: true,
            identification: 0,
        };
        let head = header.emit(options.finish(), &mut out[20..]).expect("room");
        out[20 + head..20 + head + text.len()].copy_from_slice(text);
        let len = head + text.len();
        ip.emit(len, &mut out).expect("room");
        fill_checksum(&mut out[20..20 + len], src, dst);
        out.truncate(20 + len);
        out
    }
}
