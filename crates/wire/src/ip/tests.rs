use super::{Ecn, Fragment, Header, Packet, Protocol};
use crate::fixtures::{DATA, SYN_ACK_V6, hex};
use crate::{EmitError, ParseError, checksum};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

/// An IPv4 packet with these options (whole words), flags word and payload, and a correct checksum.
fn v4(options: &[u8], flags: u16, payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let mut packet = vec![0x40 | (header_len / 4) as u8, 0];
    packet.extend(((header_len + payload.len()) as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(flags.to_be_bytes());
    packet.extend([64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(options);
    let sum = checksum::sum(&packet).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(payload);
    packet
}

/// An IPv6 packet from ::1 to ::2 with this first next-header number.
pub(super) fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((rest.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    packet.extend(Ipv6Addr::LOCALHOST.octets());
    packet.extend(Ipv6Addr::from(2).octets());
    packet.extend(rest);
    packet
}

fn error(packet: &[u8]) -> ParseError {
    Packet::parse(packet).unwrap_err()
}

#[test]
fn reads_a_packet_of_linux() {
    let bytes = hex(DATA);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(packet.src, IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!(packet.dst, IpAddr::V4(Ipv4Addr::LOCALHOST));
    assert_eq!((packet.protocol, packet.hop_limit, packet.ecn), (Protocol::Tcp, 64, Ecn::NotEct));
    assert_eq!(packet.payload, &bytes[20..]);

    let bytes = hex(SYN_ACK_V6);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.src, packet.dst), (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()));
    assert_eq!((packet.protocol, packet.hop_limit), (Protocol::Tcp, 64));
    assert_eq!(packet.payload, &bytes[40..]);
}

#[test]
fn cuts_padding_off() {
    for text in [DATA, SYN_ACK_V6] {
        let bytes = hex(text);
        let mut padded = bytes.clone();
        padded.extend([0xaa; 6]);
        assert_eq!(Packet::parse(&padded), Packet::parse(&bytes));
    }
}

#[test]
fn refuses_malformed_ipv4() {
    let good = v4(&[], 0x4000, b"payload");
    assert!(Packet::parse(&good).is_ok());
    assert_eq!(error(&[]), ParseError::Truncated);
    assert_eq!(error(&good[..19]), ParseError::Truncated);
    assert_eq!(error(&good[..good.len() - 1]), ParseError::Truncated);
    let with = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        error(&packet)
    };
    assert_eq!(with(0, 0x55), ParseError::BadVersion);
    assert_eq!(with(0, 0x44), ParseError::BadHeaderLength);
    assert_eq!(with(0, 0x4f), ParseError::BadHeaderLength);
    assert_eq!(with(3, 19), ParseError::BadHeaderLength);
    assert_eq!(with(8, 63), ParseError::BadChecksum);
}

#[test]
fn refuses_fragments() {
    assert!(Packet::parse(&v4(&[], 0, b"")).is_ok());
    // The reserved bit is ignored.
    assert!(Packet::parse(&v4(&[], 0x8000, b"")).is_ok());
    for flags in [0x2000, 0x0001, 0x1fff, 0x6000] {
        assert_eq!(error(&v4(&[], flags, b"12345678")), ParseError::Fragment);
    }
    // RFC 6946: a fragment with offset 0 and no more fragments is a whole packet, with any identification.
    let atomic = [6, 0, 0, 0, 1, 2, 3, 4, 0xaa];
    assert_eq!(Packet::parse(&v6(44, &atomic)).unwrap().payload, [0xaa]);
    // Reserved bits are ignored, in the second byte and between the offset and the M flag.
    assert!(Packet::parse(&v6(44, &[6, 9, 0, 6, 1, 2, 3, 4])).is_ok());
    for (high, low) in [(0, 1), (0, 8), (0x80, 0)] {
        let packet = v6(44, &[6, 0, high, low, 1, 2, 3, 4, 0xaa]);
        assert_eq!(error(&packet), ParseError::Fragment);
    }
    assert_eq!(error(&v6(44, &atomic[..7])), ParseError::Truncated);
}

//= rfc9293 MUST-50 test
#[test]
fn ipv4_options() {
    let skipped = [
        [1, 1, 1, 1],
        [0, 9, 9, 9],
        [148, 4, 0, 0], // router alert
        [1, 7, 3, 4],   // record route without a slot
    ];
    for options in skipped {
        let packet = v4(&options, 0, b"data");
        assert_eq!(Packet::parse(&packet).unwrap().payload, b"data");
        let fragment = v4(&options, 0x2000, b"a part..");
        assert_eq!(Fragment::parse(&fragment).unwrap().payload, b"a part..");
    }
    for kind in [131, 137] {
        let packet = v4(&[1, kind, 3, 4], 0, b"");
        assert_eq!(error(&packet), ParseError::SourceRoute);
    }
    // Bytes behind the end of the list are ignored.
    assert!(Packet::parse(&v4(&[0, 131, 3, 4], 0, b"")).is_ok());
    for options in [[7, 0, 0, 0], [7, 1, 0, 0], [7, 5, 0, 0], [1, 1, 1, 7]] {
        assert_eq!(error(&v4(&options, 0, b"data")), ParseError::BadOption);
    }
}

#[test]
fn skips_extension_headers() {
    let padding = [60, 0, 1, 4, 0, 0, 0, 0];
    let destination = [43, 1, 0, 0, 5, 2, 0, 0, 0x1e, 8, 1, 2, 3, 4, 5, 6];
    // The last option reaches beyond the end of the header.
    assert_eq!(error(&v6(60, &destination)), ParseError::BadOption);
    let destination = [43, 1, 0, 0, 5, 2, 0, 0, 0x1e, 6, 1, 2, 3, 4, 5, 6];
    let routing = [6, 0, 0, 0, 0, 0, 0, 0];
    let chain = [&padding[..], &destination, &routing, b"data"].concat();
    let packet = v6(0, &chain);
    let packet = Packet::parse(&packet).unwrap();
    assert_eq!((packet.protocol, packet.payload), (Protocol::Tcp, &b"data"[..]));
}

#[test]
fn refuses_extension_headers() {
    for number in [50, 51, 59] {
        assert_eq!(error(&v6(number, &[0; 16])), ParseError::ExtensionHeader(number));
        // Also behind another header.
        let chain = [number, 0, 1, 4, 0, 0, 0, 0];
        assert_eq!(error(&v6(60, &chain)), ParseError::ExtensionHeader(number));
    }
    // Hop-by-Hop Options behind another header.
    let chain = [0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(error(&v6(60, &chain)), ParseError::ExtensionHeader(0));
    // A Routing header that asks us to forward the packet, of type 0 or another.
    for ty in [0, 2, 4] {
        assert_eq!(error(&v6(43, &[6, 0, ty, 1, 0, 0, 0, 0])), ParseError::SourceRoute);
    }
    // Unknown options: only 00 in the two high bits allows us to skip them. 0xc2 is the jumbo payload.
    for kind in [0x40, 0x9e, 0xc2] {
        let header = [6, 0, kind, 4, 0, 0, 0, 0];
        assert_eq!(error(&v6(0, &header)), ParseError::BadOption);
        assert_eq!(error(&v6(60, &header)), ParseError::BadOption);
    }
    assert_eq!(error(&v6(60, &[6, 1, 1, 4, 0, 0, 0, 0])), ParseError::Truncated);
    assert_eq!(error(&v6(60, &[6, 0, 1])), ParseError::Truncated);
}

#[test]
fn the_chain_is_bounded() {
    let one = [60, 0, 1, 4, 0, 0, 0, 0];
    let last = [6, 0, 1, 4, 0, 0, 0, 0];
    let chain = |n: usize| [one.repeat(n - 1), last.to_vec()].concat();
    assert!(Packet::parse(&v6(60, &chain(6))).is_ok());
    assert_eq!(error(&v6(60, &chain(7))), ParseError::ExtensionHeader(60));
    assert_eq!(error(&v6(60, &chain(150))), ParseError::ExtensionHeader(60));
}

#[test]
fn emits_the_header_of_linux() {
    let bytes = hex(DATA);
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let header = Header {
        src: ip,
        dst: ip,
        protocol: Protocol::Tcp,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        dont_fragment: true,
        identification: 0xbd28,
    };
    let mut out = [0xff; 20];
    assert_eq!(header.emit(bytes.len() - 20, &mut out), Ok(20));
    assert_eq!(out, bytes[..20]);
}

#[test]
fn refuses_to_emit() {
    let (a, b) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
    let header = |src, dst| Header {
        src,
        dst,
        protocol: Protocol::Tcp,
        hop_limit: 64,
        ecn: Ecn::NotEct,
        dont_fragment: true,
        identification: 0,
    };
    let mut out = [0; 40];
    assert_eq!(header(a, b).emit(0, &mut out), Err(EmitError::MixedFamilies));
    assert_eq!(header(b, a).emit(0, &mut out), Err(EmitError::MixedFamilies));
    assert_eq!(header(a, a).emit(0, &mut out[..19]), Err(EmitError::BufferTooSmall));
    assert_eq!(header(b, b).emit(0, &mut out[..39]), Err(EmitError::BufferTooSmall));
    assert_eq!(header(a, a).emit(65_515, &mut out), Ok(20));
    assert_eq!(header(a, a).emit(65_516, &mut out), Err(EmitError::TooLong));
    assert_eq!(header(b, b).emit(65_535, &mut out), Ok(40));
    assert_eq!(header(b, b).emit(65_536, &mut out), Err(EmitError::TooLong));
    assert_eq!(header(a, a).emit(usize::MAX, &mut out), Err(EmitError::TooLong));
}

/// Protocol numbers that are valid in both families.
fn protocol() -> impl Strategy<Value = Protocol> {
    let extension = |n: &u8| !matches!(n, 0 | 43 | 44 | 50 | 51 | 59 | 60);
    any::<u8>().prop_filter("extension header", extension).prop_map(Protocol::from)
}

proptest! {
    #[test]
    fn round_trip(
        v6: bool,
        addresses: (u128, u128),
        protocol in protocol(),
        hop_limit: u8,
        ecn in (0u8..4).prop_map(Ecn::from_bits),
        dont_fragment: bool,
        identification: u16,
        payload in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let address = |bits: u128| match v6 {
            true => IpAddr::from(bits.to_be_bytes()),
            false => IpAddr::from((bits as u32).to_be_bytes()),
        };
        let (src, dst) = (address(addresses.0), address(addresses.1));
        let header = Header { src, dst, protocol, hop_limit, ecn, dont_fragment, identification };
        let mut out = vec![0xff; header.len()];
        prop_assert_eq!(header.emit(payload.len(), &mut out), Ok(header.len()));
        out.extend(&payload);
        let expected = Packet { src, dst, protocol, hop_limit, ecn, payload: &payload };
        prop_assert_eq!(Packet::parse(&out), Ok(expected));
    }
}
