//! Segmentation and checksum offload (`IFF_VNET_HDR`): one call of the system carries many segments of a connection.
//!
//! In front of each packet is a `virtio_net_hdr` of 10 bytes (linux/virtio_net.h). The kernel may hand over one packet
//! for many segments (TSO, USO), which are cut apart here, and may leave a checksum to us. The other way round,
//! segments of a connection that follow one another become one packet, which the kernel takes as it is.

use firstflight_wire::checksum::{Sum, pseudo_header, sum};
use firstflight_wire::tcp::Flags;
use firstflight_wire::{tcp, udp};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of the header in front of a packet.
const HEADER: usize = 10;
/// The longest packet.
const LONGEST: usize = 65_535;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum field has the sum of the pseudo-header.
const NEEDS_CHECKSUM: u8 = 1;
/// The kinds of a header: `VIRTIO_NET_HDR_GSO_*`. [`ECN`] is added for a first segment with CWR.
const ONE: u8 = 0;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
const UDP: u8 = 5;
const ECN: u8 = 0x80;
/// Places in a TCP header.
const SEQUENCE: usize = 4;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;

/// Where the headers of a packet are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    src: IpAddr,
    dst: IpAddr,
    /// Length of the IP header.
    ip: usize,
    /// Length of both headers.
    headers: usize,
    protocol: u8,
}

const TCP_PROTOCOL: u8 = 6;
const UDP_PROTOCOL: u8 = 17;

impl Layout {
    /// `None` for what is neither TCP nor UDP, and for fragments.
    fn of(packet: &[u8]) -> Option<Self> {
        let (src, dst, ip, protocol): (IpAddr, IpAddr, _, _) = match packet.first()? >> 4 {
            4 => {
                let address = |at| Some(Ipv4Addr::from(bytes::<4>(packet, at)?));
                if u16_at(packet, 6)? & 0x3fff != 0 {
                    return None;
                }
                let ip = usize::from(packet.first()? & 15) * 4;
                (address(12)?.into(), address(16)?.into(), ip.max(20), *packet.get(9)?)
            }
            6 => {
                let address = |at| Some(Ipv6Addr::from(bytes::<16>(packet, at)?));
                (address(8)?.into(), address(24)?.into(), 40, *packet.get(6)?)
            }
            _ => return None,
        };
        let transport = match protocol {
            TCP_PROTOCOL => usize::from(packet.get(ip + DATA_OFFSET)? >> 4) * 4,
            UDP_PROTOCOL => 8,
            _ => return None,
        };
        let headers = ip + transport;
        let whole =
            transport >= 8 && headers <= packet.len() && (protocol == UDP_PROTOCOL || transport >= 20);
        whole.then_some(Self { src, dst, ip, headers, protocol })
    }

    /// Writes the lengths and checksums of a packet with these headers, and the number of an IPv4 packet behind `first`.
    fn finish(&self, packet: &mut [u8], number: u16) {
        self.finish_ip(packet, number);
        let Some(segment) = packet.get_mut(self.ip..) else { return };
        if self.protocol == TCP_PROTOCOL {
            tcp::fill_checksum(segment, self.src, self.dst);
        } else {
            let len = segment.len() as u16;
            put(segment, 4, &len.to_be_bytes());
            udp::fill_checksum(segment, self.src, self.dst);
        }
    }

    fn finish_ip(&self, packet: &mut [u8], number: u16) {
        let len = packet.len();
        if self.src.is_ipv4() {
            let id = u16_at(packet, 4).unwrap_or_default().wrapping_add(number);
            put(packet, 2, &(len as u16).to_be_bytes());
            put(packet, 4, &id.to_be_bytes());
            put(packet, 10, &[0, 0]);
            let checksum = sum(packet.get(..self.ip).unwrap_or_default()).finish();
            put(packet, 10, &checksum.to_be_bytes());
        } else {
            put(packet, 4, &((len - self.ip) as u16).to_be_bytes());
        }
    }

    fn pseudo_header(&self, len: usize) -> Sum {
        pseudo_header(self.src, self.dst, self.protocol, (len - self.ip) as u32)
    }
}

fn bytes<const N: usize>(packet: &[u8], at: usize) -> Option<[u8; N]> {
    packet.get(at..at + N)?.try_into().ok()
}

fn u16_at(packet: &[u8], at: usize) -> Option<u16> {
    bytes(packet, at).map(u16::from_be_bytes)
}

/// Writes `value` at this place, if it is there.
fn put(packet: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = packet.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// A number of the header, which has the byte order of the machine.
fn native(header: &[u8], at: usize) -> usize {
    bytes(header, at).map_or(0, u16::from_ne_bytes).into()
}

/// What the kernel handed over in one call.
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// Length of the packet; 0 if there is none.
    len: usize,
    /// How a packet of many segments is cut.
    cut: Option<Cut>,
}

struct Cut {
    layout: Layout,
    /// Payload of each segment but the last.
    size: usize,
    /// Where the payload of the next segment begins.
    at: usize,
    /// Segments so far.
    count: u16,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; HEADER + LONGEST], len: 0, cut: None }
    }

    /// Room for a header and a packet.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// A header and a packet, `len` bytes in total, were put into the room. What cannot be understood is dropped.
    pub(super) fn take(&mut self, len: usize) {
        (self.len, self.cut) = (0, None);
        let Some((header, packet)) =
            self.bytes.get_mut(..len).and_then(|all| all.split_at_mut_checked(HEADER))
        else {
            return;
        };
        let (flags, kind) = (header.first().copied().unwrap_or(0), header.get(1).copied().unwrap_or(0));
        let (size, start, offset) = (native(header, 4), native(header, 6), native(header, 8));
        if kind == ONE {
            if flags & NEEDS_CHECKSUM != 0 && !complete_checksum(packet, start, offset) {
                return;
            }
            self.len = packet.len();
            return;
        }
        let Some(layout) = Layout::of(packet) else { return };
        let expected = if kind == UDP { UDP_PROTOCOL } else { TCP_PROTOCOL };
        let known = matches!(kind & !ECN, TCP_V4 | TCP_V6 | UDP);
        if known && layout.protocol == expected && size > 0 && layout.headers < packet.len() {
            self.len = packet.len();
            self.cut = Some(Cut { layout, size, at: layout.headers, count: 0 });
        }
    }

    /// The next packet, written to `out`. One that `out` does not hold is dropped.
    pub(super) fn next(&mut self, out: &mut [u8]) -> Option<usize> {
        let packet = self.bytes.get(HEADER..HEADER + self.len).filter(|packet| !packet.is_empty())?;
        let Some(cut) = &mut self.cut else {
            self.len = 0;
            out.get_mut(..packet.len())?.copy_from_slice(packet);
            return Some(packet.len());
        };
        let Cut { layout, size, at, count } = cut;
        let end = (*at + *size).min(packet.len());
        let (headers, payload) = (packet.get(..layout.headers)?, packet.get(*at..end)?);
        let len = headers.len() + payload.len();
        let Some(segment) = out.get_mut(..len) else {
            self.len = 0;
            return None;
        };
        let (front, back) = segment.split_at_mut_checked(headers.len())?;
        front.copy_from_slice(headers);
        back.copy_from_slice(payload);
        let last = end == packet.len();
        if layout.protocol == TCP_PROTOCOL {
            let before = (*at - layout.headers) as u32;
            let sequence = bytes(headers, layout.ip + SEQUENCE).map_or(0, u32::from_be_bytes);
            put(segment, layout.ip + SEQUENCE, &sequence.wrapping_add(before).to_be_bytes());
            if let Some(flags) = segment.get_mut(layout.ip + FLAGS) {
                // FIN and PSH are the last segment's, CWR is the first one's (RFC 3168 §6.1.2).
                *flags &= !if last { 0 } else { FIN | PSH };
                *flags &= !if *count == 0 { 0 } else { CWR };
            }
        }
        layout.finish(segment, *count);
        (*at, *count) = (end, count.wrapping_add(1));
        if last {
            self.len = 0;
        }
        Some(len)
    }
}

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Completes the checksum of a packet whose field has the sum of the pseudo-header. False if it is not in the packet.
fn complete_checksum(packet: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(covered) = packet.get(start..) else { return false };
    if covered.len() < offset + 2 {
        return false;
    }
    let checksum = match sum(covered).finish() {
        // In UDP, zero means that there is none (RFC 768).
        0 => 0xffff_u16,
        checksum => checksum,
    };
    put(packet, start + offset, &checksum.to_be_bytes());
    true
}

/// Packets that go to the kernel in one call.
pub(super) struct Outbox {
    /// A header and a packet.
    bytes: Vec<u8>,
    run: Option<Run>,
}

/// Segments of a connection that follow one another.
struct Run {
    layout: Layout,
    /// Payload of the first segment.
    size: usize,
    segments: usize,
    /// The last segment was shorter, or said PSH.
    closed: bool,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { bytes: Vec::with_capacity(HEADER + LONGEST), run: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether `packet` continues the packets that wait, or is the first one.
    pub(super) fn takes(&self, packet: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        let Some(run) = self.run.as_ref().filter(|run| !run.closed) else { return false };
        let payload = packet.len().saturating_sub(run.layout.headers);
        let first = self.bytes.get(HEADER..).unwrap_or_default();
        let sequence = |packet: &[u8]| bytes(packet, run.layout.ip + SEQUENCE).map_or(0, u32::from_be_bytes);
        let expected = sequence(first).wrapping_add((first.len() - run.layout.headers) as u32);
        (1..=run.size).contains(&payload)
            && first.len() + payload <= LONGEST
            && sequence(packet) == expected
            && Layout::of(packet) == Some(run.layout)
            && alike(first, packet, &run.layout)
    }

    /// Adds a packet that [`Outbox::takes`] accepted.
    pub(super) fn push(&mut self, packet: &[u8]) {
        if let Some(run) = &mut self.run {
            let payload = packet.get(run.layout.headers..).unwrap_or_default();
            let flags = packet.get(run.layout.ip + FLAGS).copied().unwrap_or_default();
            run.segments += 1;
            run.closed = payload.len() < run.size || flags & PSH != 0;
            self.bytes.extend_from_slice(payload);
            if let Some(first) = self.bytes.get_mut(HEADER + run.layout.ip + FLAGS) {
                *first |= flags & PSH;
            }
            return;
        }
        self.bytes.resize(HEADER, 0);
        self.bytes.extend_from_slice(packet);
        let layout = Layout::of(packet).filter(|layout| layout.protocol == TCP_PROTOCOL);
        self.run = layout.and_then(|layout| {
            let size = packet.len() - layout.headers;
            let flags = Flags::from_bits(*packet.get(layout.ip + FLAGS)?);
            // Only data follows data.
            (size > 0 && flags == Flags::ACK).then_some(Run { layout, size, segments: 1, closed: false })
        });
    }

    /// The header and the packet, ready to be sent. Call [`Outbox::clear`] when they were.
    pub(super) fn finish(&mut self) -> &[u8] {
        if let Some(run) = self.run.as_ref().filter(|run| run.segments > 1)
            && let Some((header, packet)) = self.bytes.split_at_mut_checked(HEADER)
        {
            let kind = if run.layout.src.is_ipv4() { TCP_V4 } else { TCP_V6 };
            let numbers = [run.layout.headers, run.size, run.layout.ip, TCP_CHECKSUM].map(|n| n as u16);
            put(header, 0, &[NEEDS_CHECKSUM, kind]);
            for (n, number) in numbers.into_iter().enumerate() {
                put(header, 2 + 2 * n, &number.to_ne_bytes());
            }
            run.layout.finish_ip(packet, 0);
            let partial = !run.layout.pseudo_header(packet.len()).finish();
            put(packet, run.layout.ip + TCP_CHECKSUM, &partial.to_be_bytes());
        }
        &self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.run = None;
    }
}

/// Whether the headers of two segments differ only in what the kernel sets for each segment: lengths, the number of an
/// IPv4 packet, sequence number, PSH, checksums.
fn alike(first: &[u8], second: &[u8], layout: &Layout) -> bool {
    let same = |from: usize, to: usize| first.get(from..to) == second.get(from..to);
    let ip = if layout.src.is_ipv4() {
        same(0, 2) && same(6, 10) && same(12, layout.ip)
    } else {
        same(0, 4) && same(6, layout.ip)
    };
    let flags = |packet: &[u8]| packet.get(layout.ip + FLAGS).map(|flags| flags & !PSH);
    let tcp = layout.ip;
    ip && same(tcp, tcp + SEQUENCE)
        && same(tcp + 8, tcp + FLAGS)
        && flags(first) == flags(second)
        && same(tcp + 14, tcp + TCP_CHECKSUM)
        && same(tcp + 18, layout.headers)
}
