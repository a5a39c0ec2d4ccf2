//! A peer that is not a TCP: it remembers what a stack sent, and sends segments that are nearly correct.

use arbitrary::Arbitrary;
use firstflight_wire::ip::{Ecn, Header as IpHeader, Packet, Protocol};
use firstflight_wire::tcp::{
    Cookie, FastOpen, FastOpenForm, Flags, Header, OptionsBuf, SackBlocks, Segment, Timestamps, fill_checksum,
};
use firstflight_wire::{SeqNum, encapsulation, icmp, udp};
use std::net::IpAddr;

/// A flow as seen from outside: the numbers that a segment must be close to in order to be interesting.
#[derive(Debug, Clone, Copy)]
struct Flow {
    /// Port of the stack's end.
    local: u16,
    /// Port of the peer.
    remote: u16,
    /// What the stack expects next, as far as its segments show.
    next: SeqNum,
    /// The number after everything that the stack sent.
    end: SeqNum,
    /// The stack's last timestamp.
    stamp: u32,
}

/// A segment, relative to its flow.
#[derive(Debug, Clone, Arbitrary)]
pub struct Spec {
    /// One of the flows, or a new one to the listener.
    flow: u8,
    /// The control bits.
    flags: u8,
    /// Distance of the sequence number from what the stack expects.
    seq: Distance,
    /// Distance of the acknowledgement from the end of what the stack sent.
    ack: Distance,
    pub(super) window: u16,
    /// Payload bytes, up to one segment.
    len: u16,
    options: Vec<OptionSpec>,
}

impl Spec {
    /// This segment with other control bits, and with correct numbers.
    pub fn right(&self, flags: Flags) -> Self {
        Self { flags: flags.bits(), seq: Distance::Right, ack: Distance::Right, ..self.clone() }
    }
}

/// How far a number is from the correct one.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Distance {
    /// Exact.
    Right,
    Near(i8),
    /// Up to a window away.
    Far(i16),
    /// Anywhere.
    Any(u32),
}

impl Distance {
    fn from(self, right: SeqNum) -> SeqNum {
        let add = match self {
            Self::Right => 0,
            Self::Near(n) => n as u32,
            Self::Far(n) => (i32::from(n) * 4) as u32,
            Self::Any(n) => return SeqNum::new(n),
        };
        SeqNum::new(right.get().wrapping_add(add))
    }
}

#[derive(Debug, Clone, Arbitrary)]
enum OptionSpec {
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Timestamps {
        forward: i16,
        echo: i8,
    },
    Sack {
        start: i16,
        len: u16,
    },
    CookieRequest {
        experimental: bool,
    },
    /// The last cookie the stack granted.
    GrantedCookie {
        experimental: bool,
    },
    AnyCookie {
        experimental: bool,
        cookie: [u8; 8],
    },
    Raw(Vec<u8>),
}

/// Everything outside the stack.
pub struct Peer {
    ip: IpAddr,
    stack: IpAddr,
    listener: u16,
    flows: Vec<Flow>,
    cookie: Option<Cookie>,
    /// Segments are in UDP datagrams.
    carried: bool,
    /// The last path challenge that the stack sent, and the UDP port that it went to.
    challenge: Option<(u16, encapsulation::PathProof)>,
}

/// The port that the stack connects to.
pub const SERVER_PORT: u16 = 443;
/// The stack's UDP port.
pub const STACK_OUTER: u16 = 4433;

/// The peer's UDP port for its inner port `remote`. Several flows share one.
pub fn outer(remote: u16) -> u16 {
    6000 + remote % 3
}

/// A peer never remembers more flows than this.
const MAX_FLOWS: usize = 16;

impl Peer {
    /// The peer at `ip` of a stack at `stack` with a listener on port `listener`, perhaps over UDP.
    pub fn new(ip: IpAddr, stack: IpAddr, listener: u16, carried: bool) -> Self {
        Self { ip, stack, listener, flows: Vec::new(), cookie: None, carried, challenge: None }
    }

    /// Examines a packet that the stack sent: it must be valid, and from the stack to the peer.
    pub fn observe(&mut self, packet: &[u8]) {
        let packet = Packet::parse(packet).expect("the stack sent a packet that cannot be read");
        assert_eq!(packet.src, self.stack);
        let segment = match packet.protocol {
            Protocol::Tcp => {
                assert!(!self.carried, "a segment on IP where everything is in UDP");
                Segment::parse_checked(packet.payload, packet.src, packet.dst)
            }
            Protocol::Udp => match self.unwrap(&packet) {
                Some(segment) => Segment::parse(segment),
                None => return,
            },
            _ => return,
        }
        .expect("the stack sent a segment that cannot be read");
        if packet.dst != self.ip {
            return;
        }
        if let Some(FastOpen::Cookie(_, cookie)) = segment.options.fast_open()
            && segment.flags.contains(Flags::SYN.union(Flags::ACK))
        {
            self.cookie = Some(cookie);
        }
        let flow = self.flow(segment.src_port, segment.dst_port);
        let end = segment.seq + segment.len();
        if segment.flags.contains(Flags::SYN) || flow.end.lt(end) {
            flow.end = end;
        }
        if segment.flags.contains(Flags::ACK) {
            flow.next = segment.ack;
        }
        if let Some(timestamps) = segment.options.timestamps {
            flow.stamp = timestamps.value;
        }
    }

    /// The segment in a datagram of the stack, if it contains one.
    fn unwrap<'a>(&mut self, packet: &Packet<'a>) -> Option<&'a [u8]> {
        assert!(self.carried, "a datagram of a stack without UDP");
        let datagram = udp::Datagram::parse_checked(packet.payload, packet.src, packet.dst)
            .expect("the stack sent a datagram that cannot be read");
        assert_eq!(datagram.src_port, STACK_OUTER);
        assert_ne!(datagram.dst_port, 0);
        let base = datagram.payload.len() <= usize::from(encapsulation::BASE_DATAGRAM);
        match encapsulation::Carried::parse(datagram.payload)
            .expect("the stack sent what is not the encapsulation's")
        {
            encapsulation::Carried::Segment(segment) => {
                assert_eq!(segment.get(16..18), Some(&[0, 0][..]), "the inner checksum");
                // A larger datagram probes the path (RFC 8899), with data of an open connection.
                let tries = |s: Segment<'_>| !s.flags.contains(Flags::SYN) && !s.payload.is_empty();
                assert!(base || Segment::parse(segment).is_ok_and(tries), "{} bytes", datagram.payload.len());
                Some(segment)
            }
            encapsulation::Carried::Control(control) => {
                assert!(base);
                if let encapsulation::Control::PathChallenge(proof) = control {
                    self.challenge = Some((datagram.dst_port, proof));
                }
                None
            }
        }
    }

    /// The packet with a UDP payload from the port `from`.
    fn datagram(&self, from: u16, payload: &[u8]) -> Vec<u8> {
        let ip = self.ip_header(Protocol::Udp);
        let mut out = vec![0; ip.len() + udp::HEADER];
        let at = ip.emit(udp::HEADER + payload.len(), &mut out).unwrap();
        udp::Header { src_port: from, dst_port: STACK_OUTER }.emit(payload.len(), &mut out[at..]).unwrap();
        out.extend_from_slice(payload);
        udp::fill_checksum(&mut out[at..], self.ip, self.stack);
        out
    }

    /// A control message of the encapsulation, from the UDP port of one of the flows.
    pub fn control(&mut self, flow: u8, control: encapsulation::Control) -> Vec<u8> {
        let from = outer(self.choose(flow).remote);
        self.control_from(from, control)
    }

    fn control_from(&self, from: u16, control: encapsulation::Control) -> Vec<u8> {
        let mut payload = [0; encapsulation::PathProof::MESSAGE];
        let len = control.emit(&mut payload).unwrap();
        self.datagram(from, &payload[..len])
    }

    /// The response to the last path challenge that the stack sent, from the port that it was sent to. If `forged`, a
    /// challenge for one of the flows instead.
    pub fn path_check(&mut self, flow: u8, forged: bool) -> Option<Vec<u8>> {
        if forged {
            let Flow { local, remote, .. } = self.choose(flow);
            let proof = encapsulation::PathProof { src_port: remote, dst_port: local, bits: u64::from(flow) };
            return Some(self.control_from(outer(remote), encapsulation::Control::PathChallenge(proof)));
        }
        let (from, encapsulation::PathProof { src_port, dst_port, bits }) = self.challenge?;
        let answer = encapsulation::PathProof { src_port: dst_port, dst_port: src_port, bits };
        Some(self.control_from(from, encapsulation::Control::PathResponse(answer)))
    }

    fn flow(&mut self, local: u16, remote: u16) -> &mut Flow {
        let known = self.flows.iter().position(|f| (f.local, f.remote) == (local, remote));
        let at = known.unwrap_or_else(|| {
            if self.flows.len() == MAX_FLOWS {
                self.flows.remove(0);
            }
            let number = SeqNum::new(u32::from(remote) << 16);
            self.flows.push(Flow { local, remote, next: number, end: number, stamp: 0 });
            self.flows.len() - 1
        });
        &mut self.flows[at]
    }

    fn choose(&mut self, number: u8) -> Flow {
        match self.flows.get(usize::from(number) % (MAX_FLOWS * 2)) {
            Some(flow) => *flow,
            None => {
                let listener = self.listener;
                *self.flow(listener, 40_000 + u16::from(number % 8))
            }
        }
    }

    /// The complete packet of a segment.
    pub fn segment(&mut self, spec: &Spec, mtu: usize) -> Vec<u8> {
        let flow = self.choose(spec.flow);
        let header = Header {
            src_port: flow.remote,
            dst_port: flow.local,
            seq: spec.seq.from(flow.next),
            ack: spec.ack.from(flow.end),
            flags: Flags::from_bits(spec.flags),
            window: spec.window,
            urgent: spec.len,
        };
        let mut options = self.options(spec, &flow);
        let options = options.finish();
        let ip = self.ip_header(Protocol::Tcp);
        let room = mtu - ip.len() - 20 - options.len();
        let payload = usize::from(spec.len) % (room + 1);
        if self.carried {
            let mut out = vec![0x5a; encapsulation::HEADER + 20 + options.len() + payload];
            let at = encapsulation::emit_segment_header(&mut out).unwrap();
            header.emit(options, &mut out[at..]).unwrap();
            // Some of these numbers mean a flow whose UDP port has changed.
            let moved = if spec.flow >= 0xf0 { u16::from(spec.flow) } else { 0 };
            return self.datagram(outer(flow.remote) + moved, &out);
        }
        let mut out = vec![0x5a; ip.len() + 20 + options.len() + payload];
        let at = ip.emit(out.len() - ip.len(), &mut out).unwrap();
        header.emit(options, &mut out[at..]).unwrap();
        fill_checksum(&mut out[at..], self.ip, self.stack);
        out
    }

    fn options(&self, spec: &Spec, flow: &Flow) -> OptionsBuf {
        let mut options = OptionsBuf::new();
        for option in spec.options.iter().take(8) {
            match option {
                OptionSpec::Mss(mss) => options.mss(*mss),
                OptionSpec::WindowScale(shift) => options.window_scale(*shift),
                OptionSpec::SackPermitted => options.sack_permitted(),
                OptionSpec::Timestamps { forward, echo } => options.timestamps(Timestamps {
                    value: 1_000_000u32.wrapping_add_signed((*forward).into()),
                    echo: flow.stamp.wrapping_add_signed((*echo).into()),
                }),
                OptionSpec::Sack { start, len } => {
                    let start = SeqNum::new(flow.end.get().wrapping_add_signed((*start).into()));
                    let mut blocks = SackBlocks::default();
                    blocks.push(start, start + u32::from(*len));
                    options.sack(&blocks)
                }
                OptionSpec::CookieRequest { experimental } => {
                    options.fast_open(&FastOpen::Request(form(*experimental)))
                }
                OptionSpec::GrantedCookie { experimental } => {
                    self.cookie.is_some_and(|c| options.fast_open(&FastOpen::Cookie(form(*experimental), c)))
                }
                OptionSpec::AnyCookie { experimental, cookie } => Cookie::new(cookie)
                    .is_some_and(|c| options.fast_open(&FastOpen::Cookie(form(*experimental), c))),
                OptionSpec::Raw(bytes) => options.raw(bytes),
            };
        }
        options
    }

    /// An ICMP error about a packet that the stack may have sent.
    pub fn icmp(&mut self, flow: u8, kind: u8, mtu: u16, seq: i16) -> Vec<u8> {
        use icmp::IcmpErrorKind as Kind;
        let kind = match kind % 6 {
            0 => Kind::PortUnreachable,
            1 => Kind::HostUnreachable,
            2 => Kind::PacketTooBig { mtu: mtu.into() },
            3 => Kind::AdminProhibited,
            4 => Kind::TimeExceeded,
            _ => Kind::Other { ty: mtu as u8, code: (mtu >> 8) as u8 },
        };
        let flow = self.choose(flow);
        let header = Header {
            src_port: flow.local,
            dst_port: flow.remote,
            seq: SeqNum::new(flow.end.get().wrapping_add_signed(seq.into())),
            ack: flow.next,
            flags: Flags::ACK,
            window: 1000,
            urgent: 0,
        };
        let (protocol, between) = match self.carried {
            true => (Protocol::Udp, udp::HEADER + encapsulation::HEADER),
            false => (Protocol::Tcp, 0),
        };
        let quoted_ip = IpHeader { src: self.stack, dst: self.ip, ..self.ip_header(protocol) };
        let mut quoted = vec![0; quoted_ip.len() + between + 20];
        let at = quoted_ip.emit(between + 20, &mut quoted).unwrap();
        if self.carried {
            let ports = udp::Header { src_port: STACK_OUTER, dst_port: outer(flow.remote) };
            let udp = ports.emit(encapsulation::HEADER + 20, &mut quoted[at..]).unwrap();
            encapsulation::emit_segment_header(&mut quoted[at + udp..]).unwrap();
        }
        header.emit(&[], &mut quoted[at + between..]).unwrap();
        let mut out = vec![0; 200];
        let len = icmp::emit_error(kind, self.ip, self.stack, &quoted, &mut out).unwrap();
        out.truncate(len);
        out
    }

    fn ip_header(&self, protocol: Protocol) -> IpHeader {
        IpHeader {
            src: self.ip,
            dst: self.stack,
            protocol,
            hop_limit: 64,
            ecn: Ecn::NotEct,
            dont_fragment: true,
            identification: 0,
        }
    }
}

fn form(experimental: bool) -> FastOpenForm {
    if experimental { FastOpenForm::Experimental } else { FastOpenForm::Standard }
}
