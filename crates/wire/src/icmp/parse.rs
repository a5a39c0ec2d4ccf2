//! Reads error reports.

use super::{
    HEADER, IcmpError, IcmpErrorKind, V4_PARAMETER_PROBLEM, V4_REDIRECT, V4_SOURCE_QUENCH, V4_TIME_EXCEEDED,
    V4_UNREACHABLE, V6_PARAMETER_PROBLEM, V6_TIME_EXCEEDED, V6_TOO_BIG, V6_UNREACHABLE,
};
use crate::ip::{self, Protocol};
use crate::{ParseError, checksum};
use core::net::IpAddr;

/// Bytes of the transport header that every report quotes (RFC 792): for TCP, the ports and the sequence
/// number.
const MIN_QUOTE: usize = 8;

/// Reads an ICMP error report: the payload of an IPv4 packet of protocol 1.
///
/// # Errors
///
/// [`ParseError::NotAnError`] for echo and other queries; otherwise the fault of the message or of the header
/// that it quotes.
pub fn parse_v4(bytes: &[u8]) -> Result<IcmpError<'_>, ParseError> {
    let (head, body) = bytes.split_first_chunk::<HEADER>().ok_or(ParseError::Truncated)?;
    if !checksum::sum(bytes).is_valid() {
        return Err(ParseError::BadChecksum);
    }
    let kind = kind_v4(head)?;
    error(kind, ip::v4::parse_quoted(body)?)
}

/// Reads an ICMPv6 error report: the payload of an IPv6 packet of protocol 58 from `src` to `dst`,
/// which the checksum covers.
///
/// # Errors
///
/// As [`parse_v4`].
pub fn parse_v6(bytes: &[u8], src: IpAddr, dst: IpAddr) -> Result<IcmpError<'_>, ParseError> {
    let (head, body) = bytes.split_first_chunk::<HEADER>().ok_or(ParseError::Truncated)?;
    let mut sum = checksum::pseudo_header(src, dst, Protocol::Icmpv6.number(), bytes.len() as u32);
    sum.add_bytes(bytes);
    if !sum.is_valid() {
        return Err(ParseError::BadChecksum);
    }
    let kind = kind_v6(head)?;
    error(kind, ip::v6::parse_quoted(body)?)
}

type Quoted<'a> = (IpAddr, IpAddr, Protocol, &'a [u8]);

fn error(kind: IcmpErrorKind, quoted: Quoted<'_>) -> Result<IcmpError<'_>, ParseError> {
    let (src, dst, protocol, quoted) = quoted;
    if quoted.len() < MIN_QUOTE {
        return Err(ParseError::Truncated);
    }
    Ok(IcmpError { kind, src, dst, protocol, quoted })
}

/// RFC 792, RFC 1122 §3.2.2.1, RFC 1191 §4.
fn kind_v4(head: &[u8; HEADER]) -> Result<IcmpErrorKind, ParseError> {
    let [ty, code, _, _, _, _, mtu_high, mtu_low] = *head;
    Ok(match (ty, code) {
        (V4_UNREACHABLE, 0 | 6 | 11) => IcmpErrorKind::NetUnreachable,
        (V4_UNREACHABLE, 1 | 7 | 8 | 12) => IcmpErrorKind::HostUnreachable,
        (V4_UNREACHABLE, 2) => IcmpErrorKind::ProtocolUnreachable,
        (V4_UNREACHABLE, 3) => IcmpErrorKind::PortUnreachable,
        (V4_UNREACHABLE, 4) => {
            IcmpErrorKind::PacketTooBig { mtu: u16::from_be_bytes([mtu_high, mtu_low]).into() }
        }
        (V4_UNREACHABLE, 5) => IcmpErrorKind::SourceRouteFailed,
        (V4_UNREACHABLE, 9 | 10 | 13) => IcmpErrorKind::AdminProhibited,
        (V4_TIME_EXCEEDED, _) => IcmpErrorKind::TimeExceeded,
        (V4_PARAMETER_PROBLEM, _) => IcmpErrorKind::ParameterProblem,
        // Source quench has no meaning any more (RFC 6633), and a redirect has none for a transport protocol.
        //= rfc9293 MUST-55
        (V4_UNREACHABLE | V4_SOURCE_QUENCH | V4_REDIRECT, _) => IcmpErrorKind::Other { ty, code },
        _ => return Err(ParseError::NotAnError(ty)),
    })
}

/// RFC 4443 §3.
fn kind_v6(head: &[u8; HEADER]) -> Result<IcmpErrorKind, ParseError> {
    let [ty, code, _, _, a, b, c, d] = *head;
    Ok(match (ty, code) {
        (V6_UNREACHABLE, 0) => IcmpErrorKind::NetUnreachable,
        (V6_UNREACHABLE, 1 | 5 | 6) => IcmpErrorKind::AdminProhibited,
        (V6_UNREACHABLE, 2 | 3) => IcmpErrorKind::HostUnreachable,
        (V6_UNREACHABLE, 4) => IcmpErrorKind::PortUnreachable,
        (V6_UNREACHABLE, 7) => IcmpErrorKind::SourceRouteFailed,
        (V6_TOO_BIG, _) => IcmpErrorKind::PacketTooBig { mtu: u32::from_be_bytes([a, b, c, d]) },
        (V6_TIME_EXCEEDED, _) => IcmpErrorKind::TimeExceeded,
        // An unrecognised next header corresponds to IPv4's unreachable protocol.
        (V6_PARAMETER_PROBLEM, 1) => IcmpErrorKind::ProtocolUnreachable,
        (V6_PARAMETER_PROBLEM, _) => IcmpErrorKind::ParameterProblem,
        // Types below 128 are errors, known or not (RFC 4443 §2.1).
        (0..=127, _) => IcmpErrorKind::Other { ty, code },
        _ => return Err(ParseError::NotAnError(ty)),
    })
}
