//! Writing error reports.

use super::{
    HEADER, IcmpErrorKind, V4_PARAMETER_PROBLEM, V4_TIME_EXCEEDED, V4_UNREACHABLE, V6_PARAMETER_PROBLEM,
    V6_TIME_EXCEEDED, V6_TOO_BIG, V6_UNREACHABLE,
};
use crate::ip::{Ecn, Header, Protocol};
use crate::{EmitError, checksum};
use core::net::IpAddr;

/// The longest report, bytes. As much of the packet is quoted as fits (RFC 1812 §4.3.2.3, RFC 4443 §3.1).
const V4_MAX: usize = 576;
const V6_MAX: usize = 1280;

/// Writes a whole packet from `src` to `dst` that reports an error about `original_packet`, an IP packet of the
/// same family, and returns its length. An MTU that does not fit into IPv4's 16 bits is written as 65,535.
///
/// # Errors
///
/// [`EmitError::MixedFamilies`], [`EmitError::BufferTooSmall`].
pub fn emit_error(
    kind: IcmpErrorKind,
    src: IpAddr,
    dst: IpAddr,
    original_packet: &[u8],
    out: &mut [u8],
) -> Result<usize, EmitError> {
    let (ty, code, value) = if src.is_ipv4() { wire_v4(kind) } else { wire_v6(kind) };
    emit_report(Report { ty, code, value }, src, dst, original_packet, out)
}

/// The first eight bytes of an ICMP error without the checksum, as they are on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// ICMP type.
    pub ty: u8,
    /// ICMP code.
    pub code: u8,
    /// The four bytes behind the checksum: an MTU, a pointer, or zero.
    pub value: u32,
}

/// Like [`emit_error`], for a report of any type and code.
///
/// # Errors
///
/// As [`emit_error`].
pub fn emit_report(
    report: Report,
    src: IpAddr,
    dst: IpAddr,
    original_packet: &[u8],
    out: &mut [u8],
) -> Result<usize, EmitError> {
    let v4 = src.is_ipv4();
    if original_packet.first().is_some_and(|first| (first >> 4 == 4) != v4) {
        return Err(EmitError::MixedFamilies);
    }
    let (protocol, max) = if v4 { (Protocol::Icmp, V4_MAX) } else { (Protocol::Icmpv6, V6_MAX) };
    let ip = Header {
        src,
        dst,
        protocol,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        dont_fragment: true,
        identification: 0,
    };
    let room = max - ip.len() - HEADER;
    let quote = original_packet.get(..room).unwrap_or(original_packet);
    let len = HEADER + quote.len();
    let at = ip.emit(len, out)?;
    let message = out.get_mut(at..at + len).ok_or(EmitError::BufferTooSmall)?;
    let Report { ty, code, value } = report;
    let [a, b, c, d] = value.to_be_bytes();
    let (head, body) = message.split_first_chunk_mut().ok_or(EmitError::BufferTooSmall)?;
    *head = [ty, code, 0, 0, a, b, c, d];
    body.copy_from_slice(quote);
    fill_checksum(message, src, dst);
    Ok(at + len)
}

/// Writes the checksum. ICMPv6's covers the pseudo-header (RFC 4443 §2.3), ICMP's does not.
pub(super) fn fill_checksum(message: &mut [u8], src: IpAddr, dst: IpAddr) {
    let mut sum = match src {
        IpAddr::V4(_) => checksum::Sum::EMPTY,
        IpAddr::V6(_) => {
            let number = Protocol::Icmpv6.number();
            checksum::pseudo_header(src, dst, number, message.len() as u32)
        }
    };
    sum.add_bytes(message);
    if let Some(field) = message.get_mut(2..4) {
        field.copy_from_slice(&sum.finish().to_be_bytes());
    }
}

/// Type, code and the four bytes behind the checksum.
fn wire_v4(kind: IcmpErrorKind) -> (u8, u8, u32) {
    match kind {
        IcmpErrorKind::NetUnreachable => (V4_UNREACHABLE, 0, 0),
        IcmpErrorKind::HostUnreachable => (V4_UNREACHABLE, 1, 0),
        IcmpErrorKind::ProtocolUnreachable => (V4_UNREACHABLE, 2, 0),
        IcmpErrorKind::PortUnreachable => (V4_UNREACHABLE, 3, 0),
        IcmpErrorKind::PacketTooBig { mtu } => (V4_UNREACHABLE, 4, mtu.min(0xffff)),
        IcmpErrorKind::SourceRouteFailed => (V4_UNREACHABLE, 5, 0),
        IcmpErrorKind::AdminProhibited => (V4_UNREACHABLE, 13, 0),
        IcmpErrorKind::TimeExceeded => (V4_TIME_EXCEEDED, 0, 0),
        IcmpErrorKind::ParameterProblem => (V4_PARAMETER_PROBLEM, 0, 0),
        IcmpErrorKind::Other { ty, code } => (ty, code, 0),
    }
}

fn wire_v6(kind: IcmpErrorKind) -> (u8, u8, u32) {
    match kind {
        IcmpErrorKind::NetUnreachable => (V6_UNREACHABLE, 0, 0),
        IcmpErrorKind::HostUnreachable => (V6_UNREACHABLE, 3, 0),
        // The pointer is the offset of the Next Header field.
        IcmpErrorKind::ProtocolUnreachable => (V6_PARAMETER_PROBLEM, 1, 6),
        IcmpErrorKind::PortUnreachable => (V6_UNREACHABLE, 4, 0),
        IcmpErrorKind::PacketTooBig { mtu } => (V6_TOO_BIG, 0, mtu),
        IcmpErrorKind::SourceRouteFailed => (V6_UNREACHABLE, 7, 0),
        IcmpErrorKind::AdminProhibited => (V6_UNREACHABLE, 1, 0),
        IcmpErrorKind::TimeExceeded => (V6_TIME_EXCEEDED, 0, 0),
        IcmpErrorKind::ParameterProblem => (V6_PARAMETER_PROBLEM, 0, 0),
        IcmpErrorKind::Other { ty, code } => (ty, code, 0),
    }
}
