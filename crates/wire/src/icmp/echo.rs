//! Answers ping.

use super::emit::fill_checksum;
use super::{HEADER, V4_ECHO, V4_ECHO_REPLY, V6_ECHO, V6_ECHO_REPLY};
use crate::checksum;
use crate::ip::{Ecn, Header, Packet, Protocol};
use core::net::IpAddr;

/// If `packet`, including its IP header, is an echo request to one host, writes the whole reply (never longer
/// than the request) into `out` and returns its length (RFC 1122 §3.2.2.6, RFC 4443 §4.2).
///
/// Returns `None` for any other packet, for a wrong checksum, for a request to or from more than one host
/// (broadcast, multicast), and if `out` is too short.
#[must_use]
pub fn echo_reply(packet: &[u8], out: &mut [u8]) -> Option<usize> {
    let request = Packet::parse(packet).ok()?;
    if !is_one_host(request.src) || !is_one_host(request.dst) {
        return None;
    }
    let (sum, echo, reply) = match (request.protocol, request.src) {
        (Protocol::Icmp, IpAddr::V4(_)) => (checksum::Sum::EMPTY, V4_ECHO, V4_ECHO_REPLY),
        (Protocol::Icmpv6, IpAddr::V6(_)) => {
            let len = request.payload.len() as u32;
            let number = Protocol::Icmpv6.number();
            let sum = checksum::pseudo_header(request.src, request.dst, number, len);
            (sum, V6_ECHO, V6_ECHO_REPLY)
        }
        _ => return None,
    };
    let (head, body) = request.payload.split_first_chunk::<HEADER>()?;
    if head[0] != echo || head[1] != 0 {
        return None;
    }
    if !sum.combine(checksum::sum(request.payload)).is_valid() {
        return None;
    }
    let ip = Header {
        src: request.dst,
        dst: request.src,
        protocol: request.protocol,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        dont_fragment: true,
        identification: 0,
    };
    let at = ip.emit(request.payload.len(), out).ok()?;
    let message = out.get_mut(at..at + request.payload.len())?;
    let (out_head, out_body) = message.split_first_chunk_mut::<HEADER>()?;
    let [_, _, _, _, a, b, c, d] = *head;
    *out_head = [reply, 0, 0, 0, a, b, c, d];
    out_body.copy_from_slice(body);
    fill_checksum(message, ip.src, ip.dst);
    Some(at + request.payload.len())
}

fn is_one_host(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !(broadcast || ip.is_multicast() || ip.is_unspecified())
}
