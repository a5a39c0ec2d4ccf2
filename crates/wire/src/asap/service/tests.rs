//! Checks that a published parameter is read back unchanged, and that invalid ones are refused.

use super::*;
use alloc::vec::Vec;
use alloc::{format, vec};
use proptest::prelude::*;

const ZONE: &[u8] = b"\x01f\x07example\x03com\x00";

/// Raw TCP and UDP port 4433, 1440 bytes, two verifiers, DNS path.
fn whole() -> Vec<u8> {
    let mut bytes = vec![1, 0b1111, 0x11, 0x51, 0x05, 0xa0, 2, 7];
    bytes.extend([0x34, 0x75, 0x0f, 0x98, 1, 2, 3, 4]);
    bytes.extend([9; 32]);
    bytes.extend(ZONE);
    bytes
}

#[test]
fn every_field_is_read() {
    let bytes = whole();
    let param = ServiceParam::parse(&bytes).unwrap();
    assert!(param.takes_ip() && param.shared_guard);
    assert_eq!(param.mss(), 1440);
    let ids: Vec<_> = param.verifiers.iter().collect();
    assert_eq!(ids, [VerifierId([0x34, 0x75, 0x0f, 0x98]), VerifierId([1, 2, 3, 4])]);
    let udp = param.udp().unwrap();
    assert_eq!(udp.port.get(), 4433);
    let dns_path = udp.dns_path.unwrap();
    assert_eq!((dns_path.key_id.get(), dns_path.key), (7, [9; 32]));
    assert_eq!(format!("{}", dns_path.zone), "f.example.com.");
    assert_eq!(dns_path.zone.labels().collect::<Vec<_>>(), [&b"f"[..], b"example", b"com"]);
}

#[test]
fn a_zone_file_has_each_octet_in_three_digits() {
    let least = ServiceParam::new(true, None, 536, VerifierIds::default(), false).unwrap();
    assert_eq!(format!("{}", least.zone_text()), "key65300=\"\\001\\001\\000\\000\\002\\024\\000\\000\"");
    let bytes = whole();
    let text = format!("{}", ServiceParam::parse(&bytes).unwrap().zone_text());
    let value = text.strip_prefix("key65300=\"").and_then(|rest| rest.strip_suffix('"')).unwrap();
    let octets: Vec<u8> = value.split('\\').skip(1).map(|octet| octet.parse().unwrap()).collect();
    assert_eq!((octets, value.len()), (bytes.clone(), 4 * bytes.len()));
}

#[test]
fn the_least_and_the_most_fit() {
    let least = ServiceParam::new(true, None, 536, VerifierIds::default(), false).unwrap();
    let mut out = [0xff; ServiceParam::MAX_LEN];
    assert_eq!(least.emit(&mut out), Ok(8));
    assert_eq!(out[..8], [1, 1, 0, 0, 2, 24, 0, 0]);
    assert_eq!(ServiceParam::parse(&out[..8]), Ok(least));

    let labels: Vec<u8> =
        [63, 63, 61].iter().flat_map(|&n: &u8| [vec![n], vec![b'z'; n.into()]].concat()).collect();
    let zone = [labels, vec![0]].concat();
    assert_eq!(zone.len(), Zone::MAX);
    let (ids, one) = ([[1; 4]; VerifierIds::MAX], NonZeroU8::MIN);
    let dns_path = DnsPathParam { key_id: one, key: [2; 32], zone: Zone::new(&zone).unwrap() };
    let udp = UdpService { port: NonZeroU16::MAX, dns_path: Some(dns_path) };
    let most = ServiceParam::new(true, Some(udp), u16::MAX, VerifierIds::new(&ids).unwrap(), true).unwrap();
    assert_eq!(most.emit(&mut out), Ok(ServiceParam::MAX_LEN));
    assert_eq!(ServiceParam::parse(&out), Ok(most));
    for short in 0..ServiceParam::MAX_LEN {
        assert_eq!(most.emit(&mut out[..short]), Err(EmitError::BufferTooSmall));
    }
    assert_eq!(VerifierIds::new(&[[0; 4]; VerifierIds::MAX + 1]), None);
}

/// Changes one field at a time, and checks the error for it.
#[test]
fn what_this_version_does_not_have_is_malformed() {
    let bad = |at: usize, value: u8| {
        let mut bytes = whole();
        bytes[at] = value;
        match ServiceParam::parse(&bytes) {
            Err(ParseError::Malformed(part)) => part,
            other => panic!("byte {at} = {value}: {other:?}"),
        }
    };
    assert_eq!(bad(0, 0), "version of a service parameter");
    assert_eq!(bad(0, 2), "version of a service parameter");
    for bit in [0x10, 0x20, 0x40, 0x80] {
        assert_eq!(bad(1, 0b1111 | bit), "flags of a service parameter");
    }
    // DNS path without UDP, a port without UDP, a key without DNS path, DNS path without a key.
    assert_eq!(bad(1, 0b1101), "UDP port of a service parameter");
    assert_eq!(bad(1, 0b1011), "DNS path of a service parameter");
    assert_eq!(bad(7, 0), "DNS path of a service parameter");
    // The MSS field becomes 160 bytes.
    assert_eq!(bad(4, 0), "encapsulations or MSS of a service parameter");
    assert_eq!(bad(6, 33), "number of verifiers of a service parameter");
    // The zone is in lower case only, and ends where the parameter ends.
    assert_eq!(bad(51, b'E'), "DNS-path zone");
    assert_eq!(bad(48, 0), "DNS-path zone");
    assert_eq!(bad(48, 0xc0), "DNS-path zone");

    let parse = |bytes: &[u8]| ServiceParam::parse(bytes).map(|_| ());
    let named = |part| Err(ParseError::Malformed(part));
    assert_eq!(parse(&[1, 2, 0, 0, 5, 160, 0, 0]), named("UDP port of a service parameter"));
    assert_eq!(parse(&[1, 1, 0, 1, 5, 160, 0, 0]), named("UDP port of a service parameter"));
    assert_eq!(parse(&[1, 0, 0, 0, 5, 160, 0, 0]), named("encapsulations or MSS of a service parameter"));
    assert_eq!(parse(&[1, 1, 0, 0, 5, 160, 0, 0, 0]), named("end of a service parameter"));
    assert_eq!(parse(&[1, 1, 0, 0, 5, 160, 1, 0, 0, 0, 0]), Err(ParseError::Truncated));
    for len in 0..48 {
        assert_eq!(parse(&whole()[..len]), Err(ParseError::Truncated), "{len}");
    }
    for len in 48..whole().len() {
        assert_eq!(parse(&whole()[..len]), named("DNS-path zone"), "{len}");
    }
}

#[test]
fn zones_are_names_with_room_for_a_label_in_front() {
    for good in [ZONE, b"\x01f\0", b"\x03a.b\0"] {
        assert!(Zone::new(good).is_some(), "{good:?}");
    }
    for bad in [&b""[..], b"\0", b"\x01f", b"\x02f\0", b"\x01f\0\0", b"\x40f\0", b"\xc0\x0c", b"\x01F\0"] {
        assert_eq!(Zone::new(bad), None, "{bad:?}");
    }
    assert_eq!(format!("{}", Zone::new(b"\x04a.b\xff\0").unwrap()), "a\\046b\\255.");
    let long = [[vec![63; 1], vec![b'a'; 63]].concat().repeat(3), vec![0]].concat();
    assert_eq!((long.len(), Zone::new(&long)), (193, None));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_come_back(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), good: bool) {
        if good && bytes.len() >= 8 {
            let ids = (bytes.len() - 8) / 4;
            bytes.truncate(8 + 4 * ids);
            (bytes[0], bytes[1], bytes[6], bytes[7]) = (1, bytes[1] & 8 | 3, ids as u8, 0);
            (bytes[3], bytes[4]) = (bytes[3] | 1, bytes[4] | 4);
            prop_assert!(ServiceParam::parse(&bytes).is_ok());
        }
        if let Ok(param) = ServiceParam::parse(&bytes) {
            let mut out = [0; ServiceParam::MAX_LEN];
            let len = param.emit(&mut out).unwrap();
            prop_assert_eq!(&out[..len], &bytes[..]);
        }
    }

    #[test]
    fn a_changed_byte_never_panics(at in 0usize..64, value: u8, len in 0usize..64) {
        let mut bytes = whole();
        if let Some(byte) = bytes.get_mut(at) { *byte = value; }
        bytes.truncate(len);
        let _ = ServiceParam::parse(&bytes);
    }
}
