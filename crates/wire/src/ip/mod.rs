//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers.

mod emit;
mod fragment;
pub(crate) mod v4;
pub(crate) mod v6;

#[cfg(test)]
mod tests;

pub use emit::Header;
pub use fragment::Fragment;

use crate::ParseError;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Length of an IPv4 header without options, bytes.
pub(crate) const V4_HEADER: usize = 20;
/// Length of an IPv6 header without extension headers, bytes.
pub(crate) const V6_HEADER: usize = 40;

/// A received packet, with its header checked and read. `A` is the address type of one family, or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a, A = IpAddr> {
    /// The claimed sender.
    pub src: A,
    /// The receiver; of the same family as `src`.
    pub dst: A,
    /// The protocol of `payload`.
    pub protocol: Protocol,
    /// Time to live, or hop limit, as it arrived.
    pub hop_limit: u8,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// The transport header and the data behind it; link-layer padding is cut off.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a whole IPv4 or IPv6 packet.
    ///
    /// Skips IPv4 options. Also skips IPv6 Hop-by-Hop Options, Destination Options, a Routing header without
    /// segments left, and the Fragment header of an atomic fragment (RFC 6946).
    ///
    /// # Errors
    ///
    /// Any packet that a host cannot simply accept is an error: see [`ParseError`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        match version(bytes) {
            Some(4) => v4::parse(bytes).map(Packet::of_any_family),
            Some(6) => v6::parse(bytes).map(Packet::of_any_family),
            Some(_) => Err(ParseError::BadVersion),
            None => Err(ParseError::Truncated),
        }
    }
}

impl<'a> Packet<'a, Ipv4Addr> {
    /// Reads a packet whose [`version`] is 4.
    ///
    /// # Errors
    ///
    /// As [`Packet::parse`].
    #[inline]
    pub fn parse_v4(bytes: &'a [u8]) -> Result<Self, ParseError> {
        v4::parse(bytes)
    }
}

impl<'a> Packet<'a, Ipv6Addr> {
    /// Reads a packet whose [`version`] is 6.
    ///
    /// # Errors
    ///
    /// As [`Packet::parse`].
    #[inline]
    pub fn parse_v6(bytes: &'a [u8]) -> Result<Self, ParseError> {
        v6::parse(bytes)
    }
}

impl<'a, A: Into<IpAddr>> Packet<'a, A> {
    #[inline]
    fn of_any_family(self) -> Packet<'a> {
        let Self { src, dst, protocol, hop_limit, ecn, payload } = self;
        Packet { src: src.into(), dst: dst.into(), protocol, hop_limit, ecn, payload }
    }
}

/// The version field of a packet; `None` without any bytes.
#[inline]
#[must_use]
pub fn version(packet: &[u8]) -> Option<u8> {
    packet.first().map(|first| first >> 4)
}

/// The protocol in an IP packet (IANA "Assigned Internet Protocol Numbers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// 1: ICMP for IPv4 (RFC 792).
    Icmp,
    /// 6: TCP (RFC 9293).
    Tcp,
    /// 17: UDP (RFC 768).
    Udp,
    /// 58: ICMP for IPv6 (RFC 4443).
    Icmpv6,
    /// Any other protocol. Use [`Protocol::from_number`], which never returns `Other` for one of the above.
    Other(u8),
}

impl Protocol {
    /// The number on the wire.
    #[inline]
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Icmp => 1,
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Icmpv6 => 58,
            Self::Other(number) => number,
        }
    }

    /// The protocol with this number.
    #[inline]
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Icmp,
            6 => Self::Tcp,
            17 => Self::Udp,
            58 => Self::Icmpv6,
            _ => Self::Other(number),
        }
    }
}

impl From<u8> for Protocol {
    #[inline]
    fn from(number: u8) -> Self {
        Self::from_number(number)
    }
}

/// The ECN field: the two low bits of the traffic class (RFC 3168 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// 00: the sender does not use ECN.
    #[default]
    NotEct,
    /// 01: ECN-capable transport (1), also the mark of L4S (RFC 9331).
    Ect1,
    /// 10: ECN-capable transport (0).
    Ect0,
    /// 11: congestion experienced.
    Ce,
}

impl Ecn {
    /// The ECN field in the two low bits of `bits`; the other bits (the DSCP) are ignored.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The two bits on the wire.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self as u8
    }
}
