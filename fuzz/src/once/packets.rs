//! Parses the packets of the world, and makes altered copies of them.

use super::server::HEAD;
use firstflight_wire::SeqNum;
use firstflight_wire::asap::{BLOCK_LEN, Block};
use firstflight_wire::encapsulation::{Carried, HEADER, emit_segment_header};
use firstflight_wire::ip::{Ecn, Header as IpHeader, Packet, Protocol};
use firstflight_wire::tcp::{self, Flags, OptionsBuf, Segment};
use firstflight_wire::udp::{self, Datagram};
use std::net::{IpAddr, SocketAddr};

/// The four-tuple of a connection at a server: its address, the client's address and TCP port, and the client's UDP
/// port if the segments travel in UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    pub server: IpAddr,
    pub client: SocketAddr,
    pub outer: Option<u16>,
}

/// A segment with its addresses.
pub struct Sight<'a> {
    pub src: SocketAddr,
    pub dst: SocketAddr,
    /// The UDP ports of the sender and of the receiver.
    pub outer: Option<(u16, u16)>,
    pub segment: Segment<'a>,
    bytes: &'a [u8],
}

/// What the eavesdropper alters in a copy.
#[derive(Debug, Clone, Copy, Default)]
pub struct Change {
    pub src: Option<IpAddr>,
    pub dst: Option<IpAddr>,
    /// The client's TCP port on raw IP, its UDP port in UDP.
    pub port: Option<u16>,
    /// The initial sequence number, which is not signed.
    pub isn: Option<u32>,
    /// The last byte of the data, which is signed.
    pub data: bool,
}

impl<'a> Sight<'a> {
    pub fn of(packet: &'a [u8]) -> Option<Self> {
        let ip = Packet::parse(packet).ok()?;
        let (bytes, outer) = match ip.protocol {
            Protocol::Tcp => (ip.payload, None),
            Protocol::Udp => {
                let datagram = Datagram::parse(ip.payload).ok()?;
                let Ok(Carried::Segment(segment)) = Carried::parse(datagram.payload) else { return None };
                (segment, Some((datagram.src_port, datagram.dst_port)))
            }
            _ => return None,
        };
        let segment = Segment::parse(bytes).ok()?;
        let src = SocketAddr::new(ip.src, segment.src_port);
        let dst = SocketAddr::new(ip.dst, segment.dst_port);
        Some(Self { src, dst, outer, segment, bytes })
    }

    /// The credential block of a SYN.
    pub fn block(&self) -> Option<Block> {
        self.segment.options.asap()?;
        block_of(&self.segment)
    }

    /// The flow at the receiving server.
    pub fn flow(&self) -> Flow {
        Flow { server: self.dst.ip(), client: self.src, outer: self.outer.map(|(client, _)| client) }
    }

    /// The same packet with this change.
    pub fn altered(&self, change: Change) -> Option<Vec<u8>> {
        let (mut src, dst) = (self.src, change.dst.unwrap_or(self.dst.ip()));
        src.set_ip(change.src.unwrap_or(src.ip()));
        let mut segment = self.bytes.to_vec();
        if let Some(isn) = change.isn {
            segment.get_mut(4..8)?.copy_from_slice(&isn.to_be_bytes());
        }
        if change.data && self.segment.payload.len() > BLOCK_LEN + HEAD {
            *segment.last_mut()? ^= 1;
        }
        let mut outer = self.outer;
        match (&mut outer, change.port) {
            (Some((port, _)), Some(other)) => *port = other,
            (None, Some(other)) => segment.get_mut(..2)?.copy_from_slice(&other.to_be_bytes()),
            (_, None) => {}
        }
        wrap(src.ip(), dst, outer, segment)
    }
}

pub fn block_of(segment: &Segment<'_>) -> Option<Block> {
    if segment.flags != Flags::SYN {
        return None;
    }
    Block::parse(segment.payload.first_chunk::<BLOCK_LEN>()?).ok()
}

/// A SYN with these options and this payload.
pub fn syn(
    flow: &Flow,
    port: u16,
    outer: u16,
    isn: SeqNum,
    options: &mut OptionsBuf,
    payload: &[u8],
) -> Option<Vec<u8>> {
    options.mss(1176);
    let header = tcp::Header {
        src_port: flow.client.port(),
        dst_port: port,
        seq: isn,
        ack: SeqNum::new(0),
        flags: Flags::SYN,
        window: 0xffff,
        urgent: 0,
    };
    let options = options.finish();
    let mut segment = vec![0; 20 + options.len() + payload.len()];
    let at = header.emit(options, &mut segment).ok()?;
    segment.get_mut(at..)?.copy_from_slice(payload);
    wrap(flow.client.ip(), flow.server, flow.outer.map(|client| (client, outer)), segment)
}

fn wrap(src: IpAddr, dst: IpAddr, outer: Option<(u16, u16)>, mut segment: Vec<u8>) -> Option<Vec<u8>> {
    let (protocol, payload) = match outer {
        None => {
            segment.get_mut(16..18)?.fill(0);
            tcp::fill_checksum(&mut segment, src, dst);
            (Protocol::Tcp, segment)
        }
        Some((src_port, dst_port)) => {
            let mut datagram = vec![0; udp::HEADER + HEADER];
            emit_segment_header(datagram.get_mut(udp::HEADER..)?).ok()?;
            datagram.extend_from_slice(&segment);
            let header = udp::Header { src_port, dst_port };
            header.emit(datagram.len() - udp::HEADER, &mut datagram).ok()?;
            udp::fill_checksum(&mut datagram, src, dst);
            (Protocol::Udp, datagram)
        }
    };
    let header = IpHeader {
        src,
        dst,
        protocol,
        hop_limit: 64,
        ecn: Ecn::default(),
        dont_fragment: true,
        identification: 0,
    };
    let mut packet = vec![0; header.len() + payload.len()];
    let at = header.emit(payload.len(), &mut packet).ok()?;
    packet.get_mut(at..)?.copy_from_slice(&payload);
    Some(packet)
}
