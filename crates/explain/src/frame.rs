//! Extracts the segment from a captured frame.

use firstflight_wire::encapsulation::Carried;
use firstflight_wire::icmp::{self, IcmpError};
use firstflight_wire::ip::{Packet, Protocol};
use firstflight_wire::tcp::Segment;
use firstflight_wire::udp::{self, Datagram};
use firstflight_wire::{ParseError, SeqNum, checksum};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The type of a frame's header: a number of the tcpdump.org registry (LINKTYPE_…).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkType(pub u32);

impl LinkType {
    /// 4 bytes of address family in the writer's byte order.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// An IP packet without a link-layer header.
    pub const RAW: Self = Self(101);
    /// 4 bytes of address family, in OpenBSD's format.
    pub const LOOP: Self = Self(108);
    /// Linux cooked, version 1, which `tcpdump -i any` wrote for a long time.
    pub const LINUX_SLL: Self = Self(113);
    /// IPv4 only.
    pub const IPV4: Self = Self(228);
    /// IPv6 only.
    pub const IPV6: Self = Self(229);
    /// Linux cooked, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// The offset of the IP packet; `None` if there is none or the link type is unknown.
    fn ip_offset(self, bytes: &[u8]) -> Option<usize> {
        match self {
            // 12 and 14 are raw IP in the headers of some systems, which write them into files.
            Self::RAW | Self::IPV4 | Self::IPV6 | Self(12 | 14) => Some(0),
            // The version of the packet tells the address family.
            Self::NULL | Self::LOOP => Some(4),
            Self::ETHERNET => skip_tags(bytes, 12),
            Self::LINUX_SLL => skip_tags(bytes, 14),
            Self::LINUX_SLL2 => is_ip(ether_type(bytes, 0)?).then_some(20),
            _ => None,
        }
    }

    /// Whether its frames can be read: Ethernet, raw IP, Linux cooked, loopback.
    #[must_use]
    pub const fn is_known(self) -> bool {
        matches!(
            self,
            Self::RAW
                | Self::IPV4
                | Self::IPV6
                | Self(12 | 14)
                | Self::NULL
                | Self::LOOP
                | Self::ETHERNET
                | Self::LINUX_SLL
                | Self::LINUX_SLL2
        )
    }
}

/// Where a packet was captured, if a capture has several places: a device, and the direction in which the packet
/// passed. A packet passes a place once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CapturePlace {
    number: u32,
    /// Two devices always have two different numbers.
    exact: bool,
}

impl CapturePlace {
    /// A place for a device, identified by its number in the capture.
    pub(crate) const fn device(number: u32) -> Self {
        Self { number, exact: true }
    }

    /// The place of a frame of Linux' `any` device. Version 2 names the device. Version 1 has the sender's link-layer
    /// address instead, which is the same for a bridge and its ports.
    pub(crate) fn of(link: LinkType, bytes: &[u8]) -> Option<Self> {
        match link {
            LinkType::LINUX_SLL2 => {
                let device = bytes.get(4..)?.first_chunk().copied().map(u32::from_be_bytes)?;
                Some(Self::device(device << 8 | u32::from(*bytes.get(10)?)))
            }
            LinkType::LINUX_SLL => {
                let (direction, sender) = (*bytes.get(1)?, bytes.get(6..14)?);
                // FNV-1a is not safe against chosen collisions. A collision only merges two devices in this report.
                let hash = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
                let number = sender.iter().fold(0x811c_9dc5 ^ u32::from(direction), hash);
                Some(Self { number, exact: false })
            }
            _ => None,
        }
    }

    /// Whether no other place has the same number.
    pub(crate) const fn is_exact(self) -> bool {
        self.exact
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

fn ether_type(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

const fn is_ip(ether_type: u16) -> bool {
    matches!(ether_type, 0x0800 | 0x86dd)
}

/// Skips VLAN tags (IEEE 802.1Q, 802.1ad). The packet follows the type at `at` or after the tags.
fn skip_tags(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match ether_type(bytes, at)? {
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            other => return is_ip(other).then_some(at + 2),
        }
    }
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FrameEnd {
    /// Its address and TCP port.
    pub address: SocketAddr,
    /// Its UDP port, if the connection is in UDP.
    pub udp_port: Option<u16>,
}

/// The content of a frame.
#[derive(Debug)]
pub(crate) enum Content<'a> {
    /// A segment, with its sender and its receiver.
    Tcp(FrameEnd, FrameEnd, Segment<'a>),
    /// An ICMP error about a packet that was sent.
    Icmp(IcmpError<'a>),
}

impl<'a> Content<'a> {
    /// Reads a frame. Corrects in place what capturing does to packets: the part that was cut off becomes zeros, and
    /// a header whose checksum was left to the network card gets that checksum. For the same reason TCP's own
    /// checksum is not verified.
    ///
    /// Returns `None` if it is neither TCP (on IP, or in firstflight's UDP encapsulation) nor an ICMP error over IP, if
    /// it is a later fragment, or if too little of it was captured.
    pub(crate) fn read(link: LinkType, bytes: &'a mut Vec<u8>) -> Option<Self> {
        let start = link.ip_offset(bytes)?;
        let captured = bytes.len();
        match Packet::parse(bytes.get(start..)?) {
            Ok(_) => {}
            Err(ParseError::Truncated | ParseError::BadChecksum | ParseError::BadHeaderLength) => {
                mend(bytes, start)?;
            }
            Err(_) => return None,
        }
        let absent = bytes.len() - captured;
        let packet = Packet::parse(bytes.get(start..)?).ok()?;
        match packet.protocol {
            Protocol::Tcp | Protocol::Udp => {
                let (udp_ports, segment) = segment_of(&packet)?;
                let segment = Segment::parse(segment).ok()?;
                // Options that were cut off must not look like absent options.
                if absent > segment.payload.len() {
                    return None;
                }
                let tcp_ports = (segment.src_port, segment.dst_port);
                let (src, dst) = ends(packet.src, packet.dst, tcp_ports, udp_ports);
                Some(Self::Tcp(src, dst, segment))
            }
            Protocol::Icmp => icmp::parse_v4(packet.payload).ok().map(Self::Icmp),
            Protocol::Icmpv6 => icmp::parse_v6(packet.payload, packet.src, packet.dst).ok().map(Self::Icmp),
            Protocol::Other(_) => None,
        }
    }
}

/// Source and destination port.
type Ports = (u16, u16);

/// The TCP segment of a packet, and the UDP ports if it is in UDP.
fn segment_of<'a>(packet: &Packet<'a>) -> Option<(Option<Ports>, &'a [u8])> {
    if packet.protocol == Protocol::Tcp {
        return Some((None, packet.payload));
    }
    // Ignore the bytes between the end of the datagram and the end of the packet.
    let Datagram { src_port, dst_port, payload } = Datagram::parse(packet.payload).ok()?;
    Some((Some((src_port, dst_port)), carried(payload)?))
}

/// The TCP segment in a datagram's payload.
fn carried(payload: &[u8]) -> Option<&[u8]> {
    match Carried::parse(payload).ok()? {
        Carried::Segment(segment) => Some(segment),
        Carried::Control(_) => None,
    }
}

/// The sender, the receiver and the sequence number of the segment that an ICMP error quotes; `None` if it quotes no
/// segment, or too little of it.
pub(crate) fn quoted(error: &IcmpError<'_>) -> Option<(FrameEnd, FrameEnd, SeqNum)> {
    let ports = |a, b, c, d| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let (udp_ports, segment) = match error.protocol {
        Protocol::Tcp => (None, error.quoted),
        Protocol::Udp => {
            let (&[a, b, c, d, ..], payload) = error.quoted.split_first_chunk::<{ udp::HEADER }>()?;
            (Some(ports(a, b, c, d)), carried(payload)?)
        }
        _ => return None,
    };
    let &[a, b, c, d, e, f, g, h] = segment.first_chunk()?;
    let (src, dst) = ends(error.src, error.dst, ports(a, b, c, d), udp_ports);
    Some((src, dst, SeqNum::new(u32::from_be_bytes([e, f, g, h]))))
}

/// The two ends of a packet between these addresses.
fn ends(src: IpAddr, dst: IpAddr, tcp: Ports, udp: Option<Ports>) -> (FrameEnd, FrameEnd) {
    let end = |ip, tcp_port, udp_port| FrameEnd { address: SocketAddr::new(ip, tcp_port), udp_port };
    (end(src, tcp.0, udp.map(|ports| ports.0)), end(dst, tcp.1, udp.map(|ports| ports.1)))
}

fn mend(bytes: &mut Vec<u8>, start: usize) -> Option<()> {
    let captured = bytes.len() - start;
    let head = bytes.get(start..)?;
    let length = match (head.first()? >> 4, ether_type(head, 2)?) {
        // The card was supposed to split a large packet and to write the lengths.
        (4, 0) => captured,
        (4, length) => usize::from(length),
        (6, _) => 40 + usize::from(ether_type(head, 4)?),
        _ => return None,
    };
    bytes.resize(bytes.len().max(start + length), 0);
    let packet = bytes.get_mut(start..)?;
    if packet.first()? >> 4 == 4 {
        let field = u16::try_from(length).ok()?;
        packet.get_mut(2..4)?.copy_from_slice(&field.to_be_bytes());
        let header = usize::from(packet.first()? & 0xf) * 4;
        packet.get_mut(10..12)?.fill(0);
        let sum = checksum::sum(packet.get(..header)?).finish();
        packet.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
    }
    Some(())
}
