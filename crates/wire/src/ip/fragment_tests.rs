use super::*;
use crate::ip::Packet;
use crate::ip::tests::v6 as v6_packet;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

fn v4(offset: u16, more: bool, payload: &[u8]) -> Fragment<'_> {
    Fragment {
        src: Ipv4Addr::new(10, 0, 0, 1).into(),
        dst: Ipv4Addr::new(10, 0, 0, 2).into(),
        identification: 0xbeef,
        next: Protocol::Tcp,
        transport: Some(Protocol::Tcp),
        offset,
        more,
        hop_limit: 60,
        ecn: Ecn::Ect0,
        payload,
    }
}

fn v6(offset: u16, more: bool, payload: &[u8]) -> Fragment<'_> {
    let transport = (offset == 0).then_some(Protocol::Tcp);
    let (src, dst) = (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::from(2).into());
    Fragment { src, dst, identification: 0xdead_beef, transport, ..v4(offset, more, payload) }
}

fn bytes(fragment: &Fragment<'_>) -> Vec<u8> {
    let mut out = vec![0; 48 + fragment.payload.len()];
    let len = fragment.emit(&mut out).unwrap();
    out.truncate(len);
    out
}

fn error(fragment: &Fragment<'_>) -> ParseError {
    Fragment::parse(&bytes(fragment)).unwrap_err()
}

/// A first IPv6 fragment with this chain of headers and `payload` bytes behind it.
fn first_v6(next: u8, chain: &[u8], payload: usize) -> Vec<u8> {
    let head = [next, 0, 0, 1, 1, 2, 3, 4];
    v6_packet(44, &[&head[..], chain, &vec![0; payload]].concat())
}

#[test]
fn what_is_written_is_read_again() {
    let payload = [7; 24];
    for of in [v4, v6] {
        for (offset, more) in [(0, true), (24, true), (24, false)] {
            let fragment = of(offset, more, &payload);
            let packet = bytes(&fragment);
            assert_eq!(Packet::parse(&packet), Err(ParseError::Fragment));
            assert_eq!(Fragment::parse(&packet), Ok(fragment));
            // Ethernet's padding is cut off.
            assert_eq!(Fragment::parse(&[&packet[..], &[0; 9]].concat()), Ok(fragment));
            assert_eq!(Fragment::parse(&packet[..packet.len() - 1]), Err(ParseError::Truncated));
        }
    }
}

#[test]
fn the_smallest_pieces_of_a_router_are_legal() {
    // RFC 791 §3.2: with an MTU of 68 bytes, the header may take 60.
    for of in [v4(0, true, &[0; 8]), v4(8, true, &[0; 8]), v4(16, false, &[0])] {
        assert_eq!(Fragment::parse(&bytes(&of)), Ok(of));
    }
    assert_eq!(Fragment::parse(&bytes(&v6(24, true, &[0; 8]))).map(|f| f.end()), Ok(32));
}

#[test]
fn what_no_sender_makes_is_refused() {
    for of in [v4, v6] {
        // Empty; not a multiple of 8 although others follow; beyond the longest packet.
        assert_eq!(error(&of(24, false, &[])), ParseError::BadFragment);
        assert_eq!(error(&of(24, true, &[])), ParseError::BadFragment);
        assert_eq!(error(&of(24, true, &[0; 23])), ParseError::BadFragment);
        let mut far = bytes(&of(24, false, &[0; 24]));
        let at = if far[0] >> 4 == 4 { 6 } else { 42 };
        let last: u16 = if at == 6 { 0x1fff } else { 0xfff8 };
        far[at..at + 2].copy_from_slice(&last.to_be_bytes());
        if at == 6 {
            far[10..12].copy_from_slice(&[0, 0]);
            let sum = checksum::sum(&far[..20]).finish();
            far[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        assert_eq!(Fragment::parse(&far), Err(ParseError::BadFragment));
    }
    let mut out = vec![0; 100];
    assert_eq!(v4(0xfff8, false, &[0; 24]).emit(&mut out), Err(EmitError::TooLong));
    // The longest packets: their length just fits into its field.
    assert_eq!(v4(65_512, false, &[0; 3]).emit(&mut out), Ok(23));
    assert_eq!(v4(65_512, false, &[0; 4]).emit(&mut out), Err(EmitError::TooLong));
    assert_eq!(v6(65_528, false, &[0; 7]).emit(&mut out), Ok(55));
    assert_eq!(v6(65_528, false, &[0; 8]).emit(&mut out), Err(EmitError::TooLong));
    assert_eq!(v6(24, false, &[0; 24]).emit(&mut out[..71]), Err(EmitError::BufferTooSmall));
}

#[test]
fn whole_packets_and_atomic_fragments_are_none() {
    let mut whole = bytes(&v4(8, false, &[0; 24]));
    whole[6..12].copy_from_slice(&[0, 0, 60, 6, 0, 0]);
    let sum = checksum::sum(&whole[..20]).finish();
    whole[10..12].copy_from_slice(&sum.to_be_bytes());
    assert!(Packet::parse(&whole).is_ok());
    assert_eq!(Fragment::parse(&whole), Err(ParseError::BadFragment));
    let atomic = [&[6, 0, 0, 0, 1, 2, 3, 4], &[0; 24][..]].concat();
    assert_eq!(Fragment::parse(&v6_packet(44, &atomic)), Err(ParseError::BadFragment));
    assert_eq!(Fragment::parse(&v6_packet(6, &[0; 24])), Err(ParseError::ExtensionHeader(6)));
    assert_eq!(Fragment::parse(&[0x50; 60]), Err(ParseError::BadVersion));
    assert_eq!(Fragment::parse(&[]), Err(ParseError::Truncated));
}

#[test]
fn headers_are_checked_as_those_of_whole_packets() {
    let good = bytes(&v4(0, true, &[0; 24]));
    let mut bad = good.clone();
    bad[8] = 1;
    assert_eq!(Fragment::parse(&bad), Err(ParseError::BadChecksum));
    let mut routed = good[..20].to_vec();
    routed[0] = 0x46;
    routed[3] += 4;
    routed.extend([131, 3, 4, 0]);
    routed.extend([0; 24]);
    routed[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum::sum(&routed[..24]).finish();
    routed[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(Fragment::parse(&routed), Err(ParseError::SourceRoute));
    // In front of the Fragment header, headers for routers are skipped, but a Routing header that asks us to
    // forward the packet is refused.
    let fragment = [&[6, 0, 0, 1, 1, 2, 3, 4], &[0; 24][..]].concat();
    let padding = [44, 0, 1, 4, 0, 0, 0, 0];
    assert!(Fragment::parse(&v6_packet(0, &[&padding[..], &fragment].concat())).is_ok());
    let routing = [44, 0, 0, 1, 0, 0, 0, 0];
    let routed = v6_packet(43, &[&routing[..], &fragment].concat());
    assert_eq!(Fragment::parse(&routed), Err(ParseError::SourceRoute));
    let long = [[60, 0, 1, 4, 0, 0, 0, 0].repeat(7), fragment.clone()].concat();
    assert_eq!(Fragment::parse(&v6_packet(60, &long)), Err(ParseError::ExtensionHeader(60)));
}

/// RFC 7112 §5, RFC 8200 §4.5: the first fragment contains all headers.
#[test]
fn the_first_ipv6_fragment_has_the_transport_header() {
    assert!(Fragment::parse(&first_v6(6, &[], 24)).is_ok());
    assert_eq!(Fragment::parse(&first_v6(6, &[], 16)), Err(ParseError::BadFragment));
    assert!(Fragment::parse(&first_v6(17, &[], 8)).is_ok());
    let options = [6, 0, 1, 4, 0, 0, 0, 0];
    let found = Fragment::parse(&first_v6(60, &options, 24)).map(|f| (f.next, f.transport));
    assert_eq!(found.err(), None);
    let packet = first_v6(60, &options, 24);
    let fragment = Fragment::parse(&packet).unwrap();
    assert_eq!((fragment.next, fragment.transport), (Protocol::Other(60), Some(Protocol::Tcp)));
    assert_eq!(Fragment::parse(&first_v6(60, &options, 16)), Err(ParseError::BadFragment));
    // The options continue in the next fragment.
    assert_eq!(Fragment::parse(&first_v6(60, &[6, 9, 1, 4, 0, 0, 0, 0], 24)), Err(ParseError::BadFragment));
    // Hop-by-Hop Options and Fragment headers are legal only in front of the Fragment header.
    assert_eq!(Fragment::parse(&first_v6(0, &options, 24)), Err(ParseError::ExtensionHeader(0)));
    assert_eq!(
        Fragment::parse(&first_v6(44, &[6, 0, 0, 0, 0, 0, 0, 0], 24)),
        Err(ParseError::ExtensionHeader(44))
    );
    let nested = [44, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 0];
    assert_eq!(Fragment::parse(&first_v6(60, &nested, 24)), Err(ParseError::BadFragment));
    assert_eq!(Fragment::parse(&first_v6(50, &[], 24)), Err(ParseError::ExtensionHeader(50)));
}

proptest! {
    #[test]
    fn round_trip(
        is_v6: bool,
        units in 0u16..8000,
        more: bool,
        eights in 1usize..9,
        rest in 0usize..8,
        identification: u16,
        ecn in (0u8..4).prop_map(Ecn::from_bits),
    ) {
        let len = if more { eights * 8 } else { eights * 8 - rest };
        let payload = vec![5; len.max(24)];
        let fragment = if is_v6 { v6(units * 8, more, &payload) } else { v4(units * 8, more, &payload) };
        let fragment = Fragment { identification: identification.into(), ecn, ..fragment };
        let packet = bytes(&fragment);
        if more || units > 0 {
            prop_assert_eq!(Fragment::parse(&packet), Ok(fragment));
        } else {
            prop_assert!(Packet::parse(&packet).is_ok());
        }
    }
}
