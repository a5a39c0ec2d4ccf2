//! ICMP (RFC 792) and ICMPv6 (RFC 4443): error reports and echo.

mod echo;
mod emit;
mod parse;

#[cfg(test)]
mod tests;

pub use echo::echo_reply;
pub use emit::{Report, emit_error, emit_report};
pub use parse::{parse_v4, parse_v6};

use crate::ip::Protocol;
use core::net::IpAddr;

/// An error report about a packet that this host seems to have sent. The receiver must check that the quoted
/// packet is one of its own (RFC 5927 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpError<'a> {
    /// What went wrong.
    pub kind: IcmpErrorKind,
    /// Source of the quoted packet: this host.
    pub src: IpAddr,
    /// Destination of the quoted packet: the peer.
    pub dst: IpAddr,
    /// Protocol of the quoted packet.
    pub protocol: Protocol,
    /// The quoted transport header: at least its first 8 bytes, often no more.
    pub quoted: &'a [u8],
}

/// The meaning of an error report, for both IPv4 and IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IcmpErrorKind {
    /// No route to the network.
    NetUnreachable,
    /// The last router cannot reach the host.
    HostUnreachable,
    /// The host does not support the protocol.
    ProtocolUnreachable,
    /// No application listens on the port.
    PortUnreachable,
    /// A filter forbids the traffic.
    AdminProhibited,
    /// The packet does not fit through the next link (RFC 1191, RFC 8201).
    PacketTooBig {
        /// The link's MTU, bytes; 0 from IPv4 routers older than RFC 1191.
        mtu: u32,
    },
    /// Source routing failed.
    SourceRouteFailed,
    /// The hop limit ran out, or reassembly took too long.
    TimeExceeded,
    /// A field of the header is wrong.
    ParameterProblem,
    /// Any other report.
    Other {
        /// ICMP type.
        ty: u8,
        /// ICMP code.
        code: u8,
    },
}

impl IcmpErrorKind {
    /// Whether it says that further attempts are useless (RFC 1122 §4.2.3.9). The connection decides what to do
    /// with that; an established connection should continue (RFC 5461 §4).
    //= rfc9293 MUST-56
    #[inline]
    #[must_use]
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::ProtocolUnreachable | Self::PortUnreachable | Self::AdminProhibited)
    }
}

const V4_ECHO_REPLY: u8 = 0;
const V4_UNREACHABLE: u8 = 3;
const V4_SOURCE_QUENCH: u8 = 4;
const V4_REDIRECT: u8 = 5;
const V4_ECHO: u8 = 8;
const V4_TIME_EXCEEDED: u8 = 11;
const V4_PARAMETER_PROBLEM: u8 = 12;
const V6_UNREACHABLE: u8 = 1;
const V6_TOO_BIG: u8 = 2;
const V6_TIME_EXCEEDED: u8 = 3;
const V6_PARAMETER_PROBLEM: u8 = 4;
const V6_ECHO: u8 = 128;
const V6_ECHO_REPLY: u8 = 129;

/// Type, code, checksum and four bytes that depend on the type.
const HEADER: usize = 8;
