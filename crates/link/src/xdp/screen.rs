//! What the program decides, for packets that come by a packet socket ([`Mode::Packet`]): the same rules, in this process.
//!
//! The kernel's own filter on the socket ([`coarse`]) keeps most other packets of the host away from it.

use std::net::IpAddr;

use socket2::SockFilter;

use super::frame::{HEADER, addresses};
use super::neighbours::Mac;
use super::program::Dropped;
use super::{Allow, Prefix, Transport};

#[cfg(doc)]
use super::Mode;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameFate {
    /// It is the kernel's.
    Passed,
    /// It is the engine's.
    Taken,
    /// It is for a served port, and nobody gets it.
    Dropped(Dropped),
}

/// Looks at frames.
pub(super) struct Screen {
    pub(super) mac: Mac,
    pub(super) allow: Allow,
}

impl Screen {
    /// The fate of a frame. `served` says whether an address and port is served.
    pub(super) fn fate(&self, frame: &[u8], served: impl Fn(IpAddr, u16, Transport) -> bool) -> FrameFate {
        self.look(frame, served).unwrap_or(FrameFate::Passed)
    }

    /// `None` passes.
    fn look(&self, frame: &[u8], served: impl Fn(IpAddr, u16, Transport) -> bool) -> Option<FrameFate> {
        let (header, packet) = frame.split_at_checked(HEADER)?;
        let kind = header.get(12..14)?;
        if header.get(..6)? != self.mac {
            return None;
        }
        match (kind, packet.first()? >> 4) {
            ([0x08, 0x00], 4) => self.ipv4(packet, served),
            ([0x86, 0xdd], 6) => self.ipv6(packet, served),
            _ => None,
        }
    }

    fn ipv4(&self, packet: &[u8], served: impl Fn(IpAddr, u16, Transport) -> bool) -> Option<FrameFate> {
        let (src, dst) = addresses(packet)?;
        let len = usize::from(packet.first()? & 0x0f) * 4;
        let part = half(packet, 6)?;
        let (offset, more) = (part & 0x1fff, part & 0x2000 != 0);
        if len < 20 || offset != 0 {
            return None;
        }
        let protocol = *packet.get(9)?;
        if protocol == 1 {
            let message = packet.get(20..).filter(|_| len == 20 && !more)?;
            // Only errors quote a packet. Those that the engine sends have no options.
            let quoted =
                message.get(8..).filter(|quoted| quoted.len() >= 24 && quoted.first() == Some(&0x45))?;
            let is_error = [3, 11].contains(message.first()?);
            let at = Quoted { transport: transport(*quoted.get(9)?)?, port: half(quoted, 20)? };
            return self.error(is_error, dst, quoted, at, served);
        }
        let transport = transport(protocol)?;
        let port = half(packet, len + 2)?;
        if !served(dst, port, transport) {
            return None;
        }
        let is_host = !matches!(packet.get(12)?, 0 | 127 | 224..);
        let ours = served(src, port, transport);
        Some(if len != 20 {
            FrameFate::Dropped(Dropped::Options)
        } else if more {
            FrameFate::Dropped(Dropped::Fragment)
        } else if !is_host || ours {
            FrameFate::Dropped(Dropped::Source)
        } else {
            self.allowed(src)
        })
    }

    fn ipv6(&self, packet: &[u8], served: impl Fn(IpAddr, u16, Transport) -> bool) -> Option<FrameFate> {
        let (src, dst) = addresses(packet)?;
        let next = *packet.get(6)?;
        if next == 58 {
            let message = packet.get(40..)?;
            let is_v6 =
                |quoted: &&[u8]| quoted.len() >= 44 && quoted.first().is_some_and(|first| first >> 4 == 6);
            let quoted = message.get(8..).filter(is_v6)?;
            let is_error = (1..=4).contains(message.first()?);
            let at = Quoted { transport: transport(*quoted.get(6)?)?, port: half(quoted, 40)? };
            return self.error(is_error, dst, quoted, at, served);
        }
        let transport = transport(next)?;
        let port = half(packet, 42)?;
        if !served(dst, port, transport) {
            return None;
        }
        let is_host = match src {
            IpAddr::V6(src) => !src.is_multicast() && src.to_bits() > 1,
            IpAddr::V4(_) => false,
        };
        if !is_host || served(src, port, transport) {
            return Some(FrameFate::Dropped(Dropped::Source));
        }
        Some(self.allowed(src))
    }

    /// An ICMP message to `host` that quotes a packet.
    fn error(
        &self,
        is_error: bool,
        host: IpAddr,
        quoted: &[u8],
        at: Quoted,
        served: impl Fn(IpAddr, u16, Transport) -> bool,
    ) -> Option<FrameFate> {
        let (from, to) = addresses(quoted)?;
        let about_us = is_error && from == host && served(from, at.port, at.transport);
        (about_us && self.allowed(to) == FrameFate::Taken).then_some(FrameFate::Taken)
    }

    fn allowed(&self, host: IpAddr) -> FrameFate {
        let allowed = match &self.allow {
            Allow::Any => true,
            Allow::Prefixes(prefixes) => prefixes.iter().any(|prefix| prefix.contains(host)),
        };
        if allowed { FrameFate::Taken } else { FrameFate::Dropped(Dropped::NotAllowed) }
    }
}

/// The sender of a packet that an ICMP message quotes.
struct Quoted {
    transport: Transport,
    port: u16,
}

impl Prefix {
    /// Whether the address begins with these bits.
    fn contains(&self, host: IpAddr) -> bool {
        let differ = match (self.address, host) {
            (IpAddr::V4(one), IpAddr::V4(other)) => u128::from(one.to_bits() ^ other.to_bits()) << 96,
            (IpAddr::V6(one), IpAddr::V6(other)) => one.to_bits() ^ other.to_bits(),
            _ => return false,
        };
        differ.leading_zeros() >= u32::from(self.len)
    }
}

const fn transport(protocol: u8) -> Option<Transport> {
    match protocol {
        6 => Some(Transport::Tcp),
        17 => Some(Transport::Udp),
        _ => None,
    }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Loads, jumps and results of a classic filter (`linux/filter.h`).
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_BEHIND: u16 = 0x48;
const LOAD_BYTE_BEHIND: u16 = 0x50;
/// The length of the IPv4 header at a place becomes the index of the next load.
const HEADER_LEN: u16 = 0xb1;
const EQUAL: u16 = 0x15;
const GREATER: u16 = 0x25;
const GREATER_OR_EQUAL: u16 = 0x35;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
/// `SKF_AD_OFF` with `SKF_AD_PKTTYPE` and `SKF_AD_VLAN_TAG_PRESENT`.
const PACKET_TYPE: u32 = (-0x1000_i32 + 4) as u32;
const HAS_VLAN_TAG: u32 = (-0x1000_i32 + 48) as u32;

/// A filter for frames that may be for a port from `first` to `last`, and for ICMP errors. It leaves out packets that this host sends,
/// those with a VLAN tag, which a card may have taken out of them, and later fragments.
pub(super) fn coarse(first: u16, last: u16) -> Vec<SockFilter> {
    let (first, last) = (u32::from(first), u32::from(last));
    // Jumps count the instructions that they leave out. The last but one takes a packet, the last one leaves it out.
    let rows: [(u16, Row, u32); 28] = [
        (LOAD_WORD, Row::Next, PACKET_TYPE),
        (EQUAL, Row::ElseOut, 0),
        (LOAD_WORD, Row::Next, HAS_VLAN_TAG),
        (EQUAL, Row::ElseOut, 0),
        (LOAD_HALF, Row::Next, 12),
        (EQUAL, Row::To(18), 0x86dd),
        (EQUAL, Row::ElseOut, 0x0800),
        // IPv4.
        (LOAD_HALF, Row::Next, 20),
        (ANY_BIT, Row::Out, 0x1fff),
        (HEADER_LEN, Row::Next, 14),
        (LOAD_BYTE, Row::Next, 23),
        (EQUAL, Row::To(15), 1),
        (LOAD_HALF_BEHIND, Row::Next, 16),
        (GREATER_OR_EQUAL, Row::ElseOut, first),
        (GREATER, Row::OutElseTake, last),
        // ICMP errors.
        (LOAD_BYTE_BEHIND, Row::Next, 14),
        (EQUAL, Row::Take, 3),
        (EQUAL, Row::TakeElseOut, 11),
        // IPv6.
        (LOAD_BYTE, Row::Next, 20),
        (EQUAL, Row::To(23), 58),
        (LOAD_HALF, Row::Next, 56),
        (GREATER_OR_EQUAL, Row::ElseOut, first),
        (GREATER, Row::OutElseTake, last),
        (LOAD_BYTE, Row::Next, 54),
        (GREATER_OR_EQUAL, Row::ElseOut, 1),
        (GREATER, Row::OutElseTake, 4),
        (RETURN, Row::Next, u32::MAX),
        (RETURN, Row::Next, 0),
    ];
    let (take, out) = (rows.len() - 2, rows.len() - 1);
    let filter = rows.into_iter().enumerate().map(|(n, (code, row, value))| {
        let to = |target: usize| (target - n - 1) as u8;
        let (yes, no) = match row {
            Row::Next => (0, 0),
            Row::To(target) => (to(target), 0),
            Row::Out => (to(out), 0),
            Row::Take => (to(take), 0),
            Row::ElseOut => (0, to(out)),
            Row::OutElseTake => (to(out), to(take)),
            Row::TakeElseOut => (to(take), to(out)),
        };
        SockFilter::new(code, yes, no, value)
    });
    filter.collect()
}

/// Where an instruction of the filter leads.
enum Row {
    /// To the next one.
    Next,
    /// If it holds, to the one with this number.
    To(usize),
    /// If it holds, the packet is left out.
    Out,
    /// If it holds, the packet is taken.
    Take,
    /// If it does not hold, the packet is left out.
    ElseOut,
    /// If it holds, the packet is left out, else taken.
    OutElseTake,
    /// If it holds, the packet is taken, else left out.
    TakeElseOut,
}
