//! ICMP: which of our packets an error is about (RFC 5927).

use crate::flow::FlowKey;
use core::net::SocketAddr;
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::icmp::IcmpError;
use firstflight_wire::ip::Protocol;
use firstflight_wire::{SeqNum, udp};

/// Smallest MTUs that are believed. A smaller one is an attack or a broken path (RFC 8200 §5; Linux 552).
const MIN_MTU_V4: u32 = 552;
const MIN_MTU_V6: u32 = 1280;

/// The flow and the sequence number of the segment that an error quotes.
pub(crate) fn quoted(error: &IcmpError<'_>) -> Option<(FlowKey, SeqNum)> {
    match error.protocol {
        Protocol::Tcp => quoted_flow(error, error.quoted),
        Protocol::Udp => quoted_datagram(error),
        _ => None,
    }
}

/// Largest payload of a flow's segment, options not counted, that fits into a reported MTU.
pub(crate) fn mss_of(key: &FlowKey, mtu: u32) -> u16 {
    let floor = if key.local_ip().is_ipv4() { MIN_MTU_V4 } else { MIN_MTU_V6 };
    let headers = key.headers_len() as u32 + 20;
    mtu.max(floor).saturating_sub(headers).min(0xffff) as u16
}

/// The four-tuple and sequence number of a packet that we sent and whose TCP header an error quotes.
fn quoted_flow(error: &IcmpError<'_>, header: &[u8]) -> Option<(FlowKey, SeqNum)> {
    let [a, b, c, d, e, f, g, h, ..] = *header else { return None };
    let local = SocketAddr::new(error.src, u16::from_be_bytes([a, b]));
    let remote = SocketAddr::new(error.dst, u16::from_be_bytes([c, d]));
    Some((FlowKey::new(local, remote), SeqNum::new(u32::from_be_bytes([e, f, g, h]))))
}

/// Like [`quoted_flow`], for a datagram that carries a segment. Routers that quote only the UDP header, as RFC 792
/// requires, give nothing that could be believed: the header has no sequence number.
fn quoted_datagram(error: &IcmpError<'_>) -> Option<(FlowKey, SeqNum)> {
    let [a, b, c, d, ..] = *error.quoted else { return None };
    // The quotation is cut short, so its length field says nothing.
    let Ok(Carried::Segment(header)) = Carried::parse(error.quoted.get(udp::HEADER..)?) else { return None };
    let (key, seq) = quoted_flow(error, header)?;
    Some((key.carried(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])), seq))
}
