//! The errors for invalid bytes from the network, and for packets that cannot be written.

use core::fmt;

/// Why a packet was refused. The sender, or the path, is at fault: drop the packet and count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end before the header, or before the length that the header gives.
    Truncated,
    /// The version field is neither 4 nor 6, or not that of the expected family.
    BadVersion,
    /// The header's own length is below its minimum, or its lengths contradict each other.
    BadHeaderLength,
    /// The checksum does not match (RFC 1071).
    BadChecksum,
    /// A fragment: [`ip::Fragment::parse`](crate::ip::Fragment::parse) reads it.
    Fragment,
    /// An invalid fragment: it is empty, is not the last one and has a length that is not a multiple of 8
    /// bytes, reaches beyond the longest packet, or is a first IPv6 fragment without its headers (RFC 7112 §5).
    /// Or a whole packet where a fragment was expected.
    BadFragment,
    /// An IPv6 extension header that is unknown, in the wrong place or one too many; its number.
    ExtensionHeader(u8),
    /// The packet asks for source routing (RFC 7126 §4.3 and §4.4, RFC 5095).
    SourceRoute,
    /// An IP option is malformed, or unknown and asks that the packet be discarded (RFC 8200 §4.2).
    BadOption,
    /// An ICMP message that is not an error report; its type.
    NotAnError(u8),
    /// A part of an ASAP object or of an encapsulation datagram that this version does not define.
    Malformed(&'static str),
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("truncated"),
            Self::BadVersion => f.write_str("bad IP version"),
            Self::BadHeaderLength => f.write_str("bad header length"),
            Self::BadChecksum => f.write_str("bad checksum"),
            Self::Fragment => f.write_str("fragment"),
            Self::BadFragment => f.write_str("bad fragment"),
            Self::ExtensionHeader(number) => write!(f, "extension header {number} refused"),
            Self::SourceRoute => f.write_str("source route"),
            Self::BadOption => f.write_str("bad IP option"),
            Self::Malformed(part) => write!(f, "malformed {part}"),
            Self::NotAnError(ty) => write!(f, "ICMP type {ty} is not an error"),
        }
    }
}

impl core::error::Error for ParseError {}

/// Why a packet could not be written. The caller is at fault. The contents of the output buffer are then
/// unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EmitError {
    /// The output buffer is shorter than the data to be written.
    BufferTooSmall,
    /// One address is IPv4, the other IPv6.
    MixedFamilies,
    /// The packet would be longer than its 16-bit length field allows.
    TooLong,
    /// TCP options are longer than 40 bytes, or their length is not a multiple of 4.
    BadOptionsLength,
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BufferTooSmall => "buffer too small",
            Self::MixedFamilies => "source and destination are of different families",
            Self::TooLong => "packet too long for its length field",
            Self::BadOptionsLength => "TCP options do not make up whole words or exceed 40 bytes",
        })
    }
}

impl core::error::Error for EmitError {}
