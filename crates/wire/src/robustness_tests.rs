//! No bytes make anything in this crate panic, and everything that is read lies within the bytes. A fuzz target
//! can call [`parse_everything`] directly.

use crate::tcp::{Options, Segment};
use crate::{Pretty, encapsulation, icmp, ip, udp};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Runs every parser on the same bytes.
fn parse_everything(data: &[u8]) {
    if let Ok(packet) = ip::Packet::parse(data) {
        assert!(packet.payload.len() < data.len());
        assert_eq!(packet.src.is_ipv4(), packet.dst.is_ipv4());
    }
    if let Ok(fragment) = ip::Fragment::parse(data) {
        assert_eq!(ip::Packet::parse(data), Err(crate::ParseError::Fragment));
        assert!(fragment.payload.len() < data.len());
    }
    if let Ok(segment) = Segment::parse(data) {
        assert_eq!(20 + segment.options.raw.len() + segment.payload.len(), data.len());
    }
    let _ = Segment::parse_checked(data, V4, V4);
    if let Ok(datagram) = udp::Datagram::parse(data) {
        assert!(datagram.payload.len() + udp::HEADER <= data.len());
    }
    let _ = udp::Datagram::parse_checked(data, V6, V6);
    if let Ok(encapsulation::Carried::Segment(segment)) = encapsulation::Carried::parse(data) {
        assert_eq!(segment.len() + encapsulation::HEADER, data.len());
    }
    for syn in [false, true] {
        let options = Options::parse(data, syn);
        assert!(options.iter().count() <= data.len());
        assert!(options.window_scale.is_none_or(|shift| shift <= 14));
        assert!(syn || (options.mss.is_none() && options.fast_open().is_none()));
    }
    for error in [icmp::parse_v4(data), icmp::parse_v6(data, V6, V6)].into_iter().flatten() {
        assert!(error.quoted.len() >= 8);
    }
    let mut out = vec![0; data.len()];
    if let Some(len) = icmp::echo_reply(data, &mut out) {
        assert!(ip::Packet::parse(&out[..len]).is_ok());
    }
    assert!(!Pretty(data).to_string().is_empty());
}

/// Corrects fields that are almost never valid in random bytes, so that the test reaches the deeper layers.
fn plausible(mut data: Vec<u8>) -> Vec<u8> {
    let len = data.len() as u16;
    if data.len() >= 40 && data[0] & 1 == 0 {
        data[0] = 0x45 + (data[0] >> 5);
        data[2..4].copy_from_slice(&len.to_be_bytes());
        data[6] &= 0x40;
        data[7] = 0;
        data[9] = [1, 6, 17][usize::from(data[9]) % 3];
        data[10..12].copy_from_slice(&[0, 0]);
        let header = (usize::from(data[0] & 0xf) * 4).min(data.len());
        let sum = crate::checksum::sum(&data[..header]).finish();
        data[10..12].copy_from_slice(&sum.to_be_bytes());
    } else if data.len() >= 40 {
        data[0] = 0x60;
        data[4..6].copy_from_slice(&(len - 40).to_be_bytes());
        data[6] = [0, 6, 17, 43, 44, 58, 59, 60][usize::from(data[6]) % 8];
    }
    // Make the payload an encapsulation's datagram half of the time, so that the test reaches the segment in it, too.
    let udp = if data.first().is_some_and(|first| first >> 4 == 4) { 20 } else { 40 };
    if data.len() >= udp + 12 && data[udp] & 1 == 0 && (data[9] == 17 || data[6] == 17) {
        data[udp + 4..udp + 6].copy_from_slice(&(len - udp as u16).to_be_bytes());
        let header = [8 + (data[udp + 8] & 1), 0, 0, data[udp + 11] % 3];
        data[udp + 8..udp + 12].copy_from_slice(&header);
    }
    data
}

proptest! {
    #[test]
    fn any_bytes(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        parse_everything(&data);
    }

    #[test]
    fn any_plausible_packet(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        parse_everything(&plausible(data));
    }

    #[test]
    fn any_icmp_error_with_a_right_checksum(
        ty: u8,
        code: u8,
        quote in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let kind = icmp::IcmpErrorKind::Other { ty, code };
        for (from, quote) in [(V4, quote.clone()), (V6, quote)] {
            let mut quote = plausible(quote);
            if let Some(first) = quote.first_mut() {
                *first = if from.is_ipv4() { 0x45 } else { 0x60 };
            }
            let mut out = [0; 400];
            let len = icmp::emit_error(kind, from, from, &quote, &mut out).unwrap();
            parse_everything(&out[..len]);
            let at = if from.is_ipv4() { 20 } else { 40 };
            if let Ok(error) = icmp::parse_v6(&out[at..len], from, from) {
                prop_assert!(error.src.is_ipv6());
            }
        }
    }

    #[test]
    fn any_cut_of_a_packet(cut in 0usize..80, payload in proptest::collection::vec(any::<u8>(), 0..40)) {
        let header = ip::Header {
            src: V6, dst: V6, protocol: ip::Protocol::Tcp, hop_limit: 1, ecn: ip::Ecn::Ce,
            dont_fragment: true, identification: 0,
        };
        let mut out = [0; 80];
        let at = header.emit(payload.len(), &mut out).unwrap();
        out[at..at + payload.len()].copy_from_slice(&payload);
        let whole = &out[..at + payload.len()];
        parse_everything(&whole[..cut.min(whole.len())]);
        prop_assert_eq!(ip::Packet::parse(whole).unwrap().payload, &payload[..]);
        if cut < whole.len() {
            prop_assert_eq!(ip::Packet::parse(&whole[..cut]), Err(crate::ParseError::Truncated));
        }
    }
}
