use super::{IcmpErrorKind, echo_reply, emit_error, parse_v4, parse_v6};
use crate::fixtures::{DATA, SYN_ACK_V6, UNREACHABLE, UNREACHABLE_V6, hex};
use crate::ip::{Ecn, Header, Packet, Protocol};
use crate::{EmitError, ParseError, checksum};
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const A6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const B6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

const KINDS: [IcmpErrorKind; 9] = [
    IcmpErrorKind::NetUnreachable,
    IcmpErrorKind::HostUnreachable,
    IcmpErrorKind::ProtocolUnreachable,
    IcmpErrorKind::PortUnreachable,
    IcmpErrorKind::AdminProhibited,
    IcmpErrorKind::PacketTooBig { mtu: 1400 },
    IcmpErrorKind::SourceRouteFailed,
    IcmpErrorKind::TimeExceeded,
    IcmpErrorKind::ParameterProblem,
];

/// A whole packet with an ICMP message of this type, code and body.
fn message(src: IpAddr, dst: IpAddr, ty: u8, code: u8, body: &[u8]) -> Vec<u8> {
    let protocol = if src.is_ipv4() { Protocol::Icmp } else { Protocol::Icmpv6 };
    let ip =
        Header { src, dst, protocol, hop_limit: 3, ecn: Ecn::Ect0, dont_fragment: false, identification: 7 };
    let mut packet = vec![0; ip.len()];
    let at = ip.emit(4 + body.len(), &mut packet).unwrap();
    packet.extend([ty, code, 0, 0]);
    packet.extend(body);
    super::emit::fill_checksum(&mut packet[at..], src, dst);
    packet
}

#[test]
fn reads_errors_of_linux() {
    let bytes = hex(UNREACHABLE);
    let error = parse_v4(&bytes[20..]).unwrap();
    let lo = IpAddr::V4(Ipv4Addr::LOCALHOST);
    assert_eq!((error.kind, error.protocol), (IcmpErrorKind::PortUnreachable, Protocol::Udp));
    assert_eq!((error.src, error.dst, error.quoted), (lo, lo, &bytes[48..]));

    let bytes = hex(UNREACHABLE_V6);
    let lo = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let error = parse_v6(&bytes[40..], lo, lo).unwrap();
    assert_eq!((error.kind, error.protocol), (IcmpErrorKind::PortUnreachable, Protocol::Udp));
    assert_eq!((error.src, error.dst, error.quoted), (lo, lo, &bytes[88..]));
}

#[test]
fn emits_the_error_of_linux() {
    let bytes = hex(UNREACHABLE_V6);
    let lo = IpAddr::V6(Ipv6Addr::LOCALHOST);
    let mut out = [0xff; 200];
    let len = emit_error(IcmpErrorKind::PortUnreachable, lo, lo, &bytes[48..], &mut out).unwrap();
    // Everything except the flow label, which we leave zero.
    assert_eq!(out[4..len], bytes[4..]);
    let bytes = hex(UNREACHABLE);
    let lo = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let len = emit_error(IcmpErrorKind::PortUnreachable, lo, lo, &bytes[28..], &mut out).unwrap();
    assert_eq!(out[20..len], bytes[20..]);
}

#[test]
fn round_trip() {
    let (v4, v6) = (hex(DATA), hex(SYN_ACK_V6));
    let mut out = [0xff; 1500];
    for kind in KINDS {
        let len = emit_error(kind, B, A, &v4, &mut out).unwrap();
        let packet = Packet::parse(&out[..len]).unwrap();
        assert_eq!((packet.src, packet.dst, packet.protocol), (B, A, Protocol::Icmp));
        let error = parse_v4(packet.payload).unwrap();
        assert_eq!((error.kind, error.protocol), (kind, Protocol::Tcp));
        assert_eq!(error.quoted, &v4[20..]);

        let len = emit_error(kind, B6, A6, &v6, &mut out).unwrap();
        let packet = Packet::parse(&out[..len]).unwrap();
        assert_eq!((packet.src, packet.dst, packet.protocol), (B6, A6, Protocol::Icmpv6));
        let error = parse_v6(packet.payload, B6, A6).unwrap();
        assert_eq!((error.kind, error.protocol), (kind, Protocol::Tcp));
        assert_eq!(error.quoted, &v6[40..]);
    }
}

#[test]
fn codes() {
    let quote = [&[0; 4][..], &hex(DATA)].concat();
    let kind_v4 = |ty, code| parse_v4(&message(A, B, ty, code, &quote)[20..]).map(|e| e.kind);
    for (code, kind) in [
        (6, IcmpErrorKind::NetUnreachable),
        (7, IcmpErrorKind::HostUnreachable),
        (9, IcmpErrorKind::AdminProhibited),
        (10, IcmpErrorKind::AdminProhibited),
        (14, IcmpErrorKind::Other { ty: 3, code: 14 }),
        // A router older than RFC 1191 reports no MTU.
        (4, IcmpErrorKind::PacketTooBig { mtu: 0 }),
    ] {
        assert_eq!(kind_v4(3, code), Ok(kind));
    }
    assert_eq!(kind_v4(4, 0), Ok(IcmpErrorKind::Other { ty: 4, code: 0 }));
    assert_eq!(kind_v4(11, 1), Ok(IcmpErrorKind::TimeExceeded));
    assert_eq!(kind_v4(13, 0), Err(ParseError::NotAnError(13)));

    let quote = [&[0; 4][..], &hex(SYN_ACK_V6)].concat();
    let kind_v6 = |ty, code| parse_v6(&message(A6, B6, ty, code, &quote)[40..], A6, B6).map(|e| e.kind);
    assert_eq!(kind_v6(1, 5), Ok(IcmpErrorKind::AdminProhibited));
    assert_eq!(kind_v6(1, 2), Ok(IcmpErrorKind::HostUnreachable));
    assert_eq!(kind_v6(4, 0), Ok(IcmpErrorKind::ParameterProblem));
    assert_eq!(kind_v6(100, 3), Ok(IcmpErrorKind::Other { ty: 100, code: 3 }));
    assert_eq!(kind_v6(135, 0), Err(ParseError::NotAnError(135)));
}

//= rfc9293 MUST-56 test
#[test]
fn hard_errors() {
    // RFC 1122 §4.2.3.9: of the unreachables, protocol and port are hard; net, host and source route are soft.
    let hard: Vec<_> = KINDS.into_iter().filter(|kind| kind.is_hard()).collect();
    assert_eq!(hard, [KINDS[2], KINDS[3], KINDS[4]]);
    assert!(!IcmpErrorKind::Other { ty: 3, code: 2 }.is_hard());
}

#[test]
fn refuses_malformed_errors() {
    let good = hex(UNREACHABLE)[20..].to_vec();
    assert_eq!(parse_v4(&good[..7]), Err(ParseError::Truncated));
    let with = |at: usize, byte: u8| {
        let mut changed = good.clone();
        changed[at] = byte;
        changed[2..4].copy_from_slice(&[0, 0]);
        let sum = checksum::sum(&changed).finish();
        changed[2..4].copy_from_slice(&sum.to_be_bytes());
        parse_v4(&changed).map(|_| ())
    };
    assert_eq!(with(8, 0x45), Ok(()));
    assert_eq!(with(8, 0x65), Err(ParseError::BadVersion));
    assert_eq!(with(8, 0x44), Err(ParseError::BadHeaderLength));
    assert_eq!(with(8, 0x4f), Err(ParseError::Truncated));
    // A later fragment does not begin with the ports.
    assert_eq!(with(15, 1), Err(ParseError::Fragment));
    // A quoted checksum or length may have any value.
    assert_eq!(with(18, 0), Ok(()));
    assert_eq!(with(11, 0xff), Ok(()));
    let mut wrong = good;
    wrong[30] ^= 1;
    assert_eq!(parse_v4(&wrong), Err(ParseError::BadChecksum));

    let good = hex(UNREACHABLE_V6)[40..].to_vec();
    let lo = IpAddr::V6(Ipv6Addr::LOCALHOST);
    assert_eq!(parse_v6(&good, lo, A6), Err(ParseError::BadChecksum));
    assert_eq!(parse_v6(&good[..good.len() - 1], lo, lo), Err(ParseError::BadChecksum));
}

#[test]
fn eight_quoted_bytes_are_enough_and_needed() {
    let (v4, v6) = (hex(DATA), hex(SYN_ACK_V6));
    let mut out = [0; 200];
    for (quote, fits) in [(28, true), (27, false)] {
        let len = emit_error(KINDS[0], B, A, &v4[..quote], &mut out).unwrap();
        assert_eq!(parse_v4(&out[20..len]).is_ok(), fits);
        let len = emit_error(KINDS[0], B6, A6, &v6[..quote + 20], &mut out).unwrap();
        assert_eq!(parse_v6(&out[40..len], B6, A6).is_ok(), fits);
    }
}

#[test]
fn quoted_extension_headers_are_skipped() {
    let mut quoted = hex(SYN_ACK_V6);
    quoted[6] = 60;
    quoted.splice(40..40, [6, 0, 1, 4, 0, 0, 0, 0]);
    let mut out = [0; 200];
    let len = emit_error(KINDS[1], B6, A6, &quoted, &mut out).unwrap();
    let error = parse_v6(&out[40..len], B6, A6).unwrap();
    assert_eq!((error.protocol, error.quoted), (Protocol::Tcp, &quoted[48..]));
}

#[test]
fn long_packets_are_quoted_in_part() {
    let mut out = [0; 1500];
    let mut big = [0; 3000];
    big[0] = 0x45;
    assert_eq!(emit_error(KINDS[0], B, A, &big, &mut out), Ok(576));
    big[0] = 0x60;
    assert_eq!(emit_error(KINDS[0], B6, A6, &big, &mut out), Ok(1280));
}

#[test]
fn refuses_to_emit() {
    let v4 = hex(DATA);
    let mut out = [0; 200];
    assert_eq!(emit_error(KINDS[0], A, B6, &v4, &mut out), Err(EmitError::MixedFamilies));
    assert_eq!(emit_error(KINDS[0], A6, B6, &v4, &mut out), Err(EmitError::MixedFamilies));
    let short = &mut out[..28 + v4.len() - 1];
    assert_eq!(emit_error(KINDS[0], A, B, &v4, short), Err(EmitError::BufferTooSmall));
}

#[test]
fn answers_ping() {
    let body = [0x12, 0x34, 0, 1, b'a', b'b', b'c'];
    for (src, dst, request, reply) in [(A, B, 8, 0), (A6, B6, 128, 129)] {
        let ping = message(src, dst, request, 0, &body);
        let mut out = vec![0xff; ping.len()];
        assert_eq!(echo_reply(&ping, &mut out), Some(ping.len()));
        let packet = Packet::parse(&out).unwrap();
        assert_eq!((packet.src, packet.dst, packet.hop_limit), (dst, src, 64));
        let mut expected = message(dst, src, reply, 0, &body);
        let at = expected.len() - 4 - body.len();
        assert_eq!(packet.payload, expected.split_off(at));
        // There is no answer to a reply, to a damaged request, or if the buffer is too short.
        assert_eq!(echo_reply(&out.clone(), &mut out), None);
        let room = ping.len() - 1;
        assert_eq!(echo_reply(&ping, &mut out[..room]), None);
        let mut damaged = ping.clone();
        damaged[room] ^= 1;
        assert_eq!(echo_reply(&damaged, &mut out), None);
    }
}

#[test]
fn ping_to_or_from_many_is_not_answered() {
    let mut out = [0; 200];
    let many = [Ipv4Addr::BROADCAST, Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(224, 0, 0, 1)];
    for many in many.map(IpAddr::V4) {
        assert_eq!(echo_reply(&message(A, many, 8, 0, &[0; 4]), &mut out), None);
        assert_eq!(echo_reply(&message(many, B, 8, 0, &[0; 4]), &mut out), None);
    }
    let many = IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1));
    assert_eq!(echo_reply(&message(A6, many, 128, 0, &[0; 4]), &mut out), None);
    assert_eq!(echo_reply(&message(many, B6, 128, 0, &[0; 4]), &mut out), None);
}
