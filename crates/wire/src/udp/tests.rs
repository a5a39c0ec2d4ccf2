use super::*;
use crate::fixtures::hex;
use crate::icmp;
use crate::ip::Packet;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn ends(v6: bool) -> (IpAddr, IpAddr) {
    if v6 {
        ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
    } else {
        ("192.0.2.1".parse().unwrap(), "198.51.100.2".parse().unwrap())
    }
}

fn datagram(payload: &[u8], v6: bool) -> Vec<u8> {
    let mut out = vec![0; HEADER + payload.len()];
    let at = Header { src_port: 4433, dst_port: 53 }.emit(payload.len(), &mut out).unwrap();
    out[at..].copy_from_slice(payload);
    let (src, dst) = ends(v6);
    fill_checksum(&mut out, src, dst);
    out
}

#[test]
fn a_datagram_of_linux() {
    // The datagrams that the two reports quote. Linux had sent them with the pseudo-header's sum in the
    // field.
    for quote in [crate::fixtures::UNREACHABLE, crate::fixtures::UNREACHABLE_V6] {
        let bytes = hex(quote);
        let packet = Packet::parse(&bytes).unwrap();
        let error = match packet.src.is_ipv4() {
            true => icmp::parse_v4(packet.payload),
            false => icmp::parse_v6(packet.payload, packet.src, packet.dst),
        }
        .unwrap();
        let quoted = Datagram::parse(error.quoted).unwrap();
        assert_eq!((quoted.dst_port, quoted.payload), (9, &b"xxxx"[..]));
        let mut whole = error.quoted.to_vec();
        fill_checksum(&mut whole, error.src, error.dst);
        assert!(Datagram::parse_checked(&whole, error.src, error.dst).is_ok());
    }
}

#[test]
fn a_checksum_is_required_over_ipv4_too() {
    for v6 in [false, true] {
        let (src, dst) = ends(v6);
        let mut bytes = datagram(b"abc", v6);
        assert!(Datagram::parse_checked(&bytes, src, dst).is_ok());
        bytes[6..8].fill(0);
        assert_eq!(Datagram::parse_checked(&bytes, src, dst), Err(ParseError::BadChecksum));
    }
}

#[test]
fn a_checksum_of_zero_is_sent_as_ones() {
    let (src, dst) = ends(false);
    // The two bytes of payload balance the sum of the rest.
    let mut bytes = datagram(&[0, 0], false);
    let sum = [bytes[6], bytes[7]];
    bytes[8..10].copy_from_slice(&sum);
    fill_checksum(&mut bytes, src, dst);
    assert_eq!(bytes[6..8], [0xff, 0xff]);
    assert!(Datagram::parse_checked(&bytes, src, dst).is_ok());
}

#[test]
fn lengths() {
    let bytes = datagram(b"abc", false);
    for cut in 0..bytes.len() {
        assert_eq!(Datagram::parse(&bytes[..cut]), Err(ParseError::Truncated));
    }
    let mut longer = bytes.clone();
    longer.extend(b"trailer");
    let (src, dst) = ends(false);
    assert_eq!(Datagram::parse_checked(&longer, src, dst).unwrap().payload, b"abc");
    longer[5] = 7;
    assert_eq!(Datagram::parse(&longer), Err(ParseError::BadHeaderLength));
    assert_eq!(Header { src_port: 1, dst_port: 2 }.emit(65_528, &mut [0; 8]), Err(EmitError::TooLong));
    assert_eq!(Header { src_port: 1, dst_port: 2 }.emit(1, &mut [0; 7]), Err(EmitError::BufferTooSmall));
    fill_checksum(&mut [0; 7], src, dst);
}

proptest! {
    #[test]
    fn round_trip(payload in proptest::collection::vec(any::<u8>(), 0..100), v6: bool, bit in 0usize..864) {
        let mut bytes = datagram(&payload, v6);
        let (src, dst) = ends(v6);
        let read = Datagram::parse_checked(&bytes, src, dst).unwrap();
        prop_assert_eq!((read.src_port, read.dst_port, read.payload), (4433, 53, &payload[..]));
        let bit = bit % (bytes.len() * 8);
        // A shorter length cuts off bytes, and their sum may hide the change.
        prop_assume!(!(32..48).contains(&bit));
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Datagram::parse_checked(&bytes, src, dst).is_err(), "one flipped bit shows");
    }
}
