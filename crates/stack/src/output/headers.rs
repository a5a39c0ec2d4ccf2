//! The headers in front of what is sent.

use crate::flow::FlowKey;
use core::net::IpAddr;
use firstflight_wire::ip::{Ecn, Header as IpHeader, Protocol};
use firstflight_wire::tcp::fill_checksum;
use firstflight_wire::{encapsulation, udp};

/// Writes the checksum and the IP header of a segment of `len` bytes, which is in `out` already, behind the
/// header's place.
#[inline(always)]
pub(super) fn wrap(key: &FlowKey, hop_limit: u8, ecn: Ecn, len: usize, out: &mut [u8]) -> Option<usize> {
    // One branch for each family, so that the compiler specializes the code for it.
    match key.v4() {
        Some((src, dst)) => wrap_as(src.into(), dst.into(), hop_limit, ecn, len, out),
        None => wrap_v6(key, hop_limit, ecn, len, out),
    }
}

/// A separate function. Inlined, it would cost the IPv4 path registers.
fn wrap_v6(key: &FlowKey, hop_limit: u8, ecn: Ecn, len: usize, out: &mut [u8]) -> Option<usize> {
    wrap_as(key.local_ip(), key.remote_ip(), hop_limit, ecn, len, out)
}

#[inline(always)]
fn wrap_as(src: IpAddr, dst: IpAddr, hop_limit: u8, ecn: Ecn, len: usize, out: &mut [u8]) -> Option<usize> {
    let at = ip_header(src, dst, Protocol::Tcp, hop_limit, ecn).emit(len, out).ok()?;
    fill_checksum(out.get_mut(at..at + len)?, src, dst);
    Some(at + len)
}

/// The IP header of every packet. Packets may not be fragmented, so they need no identification (RFC 6864 §4.1), and it
/// is zero. A counter would show an off-path attacker how many packets went to others, and so whether a forged segment
/// was answered.
#[inline]
fn ip_header(src: IpAddr, dst: IpAddr, protocol: Protocol, hop_limit: u8, ecn: Ecn) -> IpHeader {
    //= rfc9293 MUST-49
    IpHeader { src, dst, protocol, hop_limit, ecn, dont_fragment: true, identification: 0 }
}

/// Writes the headers of IP, UDP and the encapsulation in front of a segment of `len` bytes, which is in `out` already,
/// behind the headers' place. The segment's checksum stays zero.
pub(super) fn wrap_carried(
    key: &FlowKey,
    hop_limit: u8,
    from_socket: bool,
    ecn: Ecn,
    len: usize,
    out: &mut [u8],
) -> Option<usize> {
    let at = key.ip_header_len() + udp::HEADER;
    encapsulation::emit_segment_header(out.get_mut(at..)?).ok()?;
    wrap_udp(key, hop_limit, from_socket, ecn, encapsulation::HEADER + len, out)
}

/// Like [`wrap_carried`], but without the encapsulation's header, for a UDP payload of `len` bytes.
pub(super) fn wrap_udp(
    key: &FlowKey,
    hop_limit: u8,
    from_socket: bool,
    ecn: Ecn,
    len: usize,
    out: &mut [u8],
) -> Option<usize> {
    let (src, dst) = (key.local_ip(), key.remote_ip());
    let at = ip_header(src, dst, Protocol::Udp, hop_limit, ecn).emit(udp::HEADER + len, out).ok()?;
    let datagram = out.get_mut(at..at + udp::HEADER + len)?;
    let (src_port, dst_port) = (key.outer_local(), key.outer_remote());
    udp::Header { src_port, dst_port }.emit(len, datagram).ok()?;
    if !from_socket {
        udp::fill_checksum(datagram, src, dst);
    }
    Some(at + udp::HEADER + len)
}
