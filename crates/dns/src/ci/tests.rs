use super::*;
use crate::fixtures::{V4, V6, ci, rng};
use firstflight_wire::tcp::Segment;
use proptest::prelude::*;

fn bytes(ci: &ConnectionInfo<'_>) -> Vec<u8> {
    let mut out = [0; ConnectionInfo::MAX_LEN];
    let len = ci.emit(&mut out).unwrap();
    out[..len].to_vec()
}

#[test]
fn every_length_of_data_is_read_as_it_was_written() {
    for address in [V4, V6] {
        let most = ConnectionInfo::max_data(address);
        assert_eq!(most, if address.is_ipv4() { 135 } else { 123 });
        let data = vec![7; most + 1];
        for len in 0..=most {
            let ci = ci(address, &data[..len], &mut rng(1));
            let written = bytes(&ci);
            assert_eq!(written.len(), ci.wire_len());
            assert_eq!(ConnectionInfo::parse(&written), Ok(ci));
        }
        let longer = ci(address, &data, &mut rng(1));
        assert_eq!(longer.emit(&mut [0; 1000]), Err(EmitError::TooLong));
    }
}

#[test]
fn it_stands_for_a_syn_of_the_encapsulation() {
    let mut info = ci(V4, b"GET / HTTP/1.1", &mut rng(1));
    (info.window_scale, info.sack_permitted) = (WindowScale::new(7), true);
    let bytes = info.segment();
    let syn = Segment::parse(&bytes).unwrap();
    assert_eq!((syn.src_port, syn.dst_port), (info.source_port.get(), info.destination_port.get()));
    assert_eq!((syn.seq, syn.window, syn.flags), (info.isn, info.window, Flags::SYN));
    assert_eq!((syn.options.mss, syn.options.window_scale), (Some(info.mss), Some(7)));
    assert!(syn.options.sack_permitted && syn.options.timestamps.is_none());
    let option = syn.options.asap().and_then(AsapOption::parse);
    assert_eq!(option, Some(AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 }));
    let (block, data) = syn.payload.split_at(BLOCK_LEN);
    assert_eq!((Block::parse(block), data), (Ok(info.block), info.data));
    let client = SocketAddr::new(info.address, info.outer_port.get());
    assert_eq!(ConnectionInfo::from_segment(client, &bytes), Ok(info));
    (info.window_scale, info.sack_permitted) = (None, false);
    let bytes = info.segment();
    let syn = Segment::parse(&bytes).unwrap();
    assert!(syn.options.window_scale.is_none() && !syn.options.sack_permitted);
    assert_eq!(ConnectionInfo::from_segment(client, &bytes), Ok(info));
    for (at, value) in [(13, 0x12), (0, 0), (12, 0x50)] {
        let mut other = bytes.clone();
        other[at] = value;
        if at == 0 {
            other[1] = 0;
        }
        assert!(ConnectionInfo::from_segment(client, &other).is_err(), "byte {at}");
    }
}

#[test]
fn lengths_are_those_of_the_specification() {
    assert_eq!((ConnectionInfo::MIN_LEN, ConnectionInfo::MAX_LEN), (214, 349));
    assert_eq!(bytes(&ci(V4, b"", &mut rng(1))).len(), 214);
    assert_eq!(bytes(&ci(V6, b"", &mut rng(1))).len(), 226);
}

#[test]
fn the_address_tag_follows_from_the_address() {
    let mut ci = ci(V4, b"GET", &mut rng(1));
    let right = ci.block.request.address_tag;
    ci.block.request.address_tag = [!right[0], right[1]];
    assert_eq!(ConnectionInfo::parse(&bytes(&ci)).unwrap().block.request.address_tag, right);
}

#[test]
fn what_is_wrong_is_refused() {
    let good = bytes(&ci(V4, b"GET", &mut rng(1)));
    let change = |at: usize, to: u8| {
        let mut bad = good.clone();
        assert_ne!(bad[at], to);
        bad[at] = to;
        ConnectionInfo::parse(&bad).map(|_| ())
    };
    for (at, to) in [(0, 0x12), (0, 0x21), (16, 15), (16, 0xfe), (17, 1)] {
        assert!(matches!(change(at, to), Err(ParseError::Malformed(_))), "{at} {to}");
    }
    // The encapsulation of raw TCP, and each reserved bit.
    for flags in [0b100].into_iter().chain((3..8).map(|bit| 0b110 | 1 << bit)) {
        assert!(matches!(change(1, flags), Err(ParseError::Malformed(_))), "{flags:b}");
    }
    for port in [2, 4, 6] {
        let mut bad = good.clone();
        bad[port..port + 2].fill(0);
        assert!(matches!(ConnectionInfo::parse(&bad), Err(ParseError::Malformed(_))), "{port}");
    }
    // The block's own rules: version, flags of the certificate.
    assert!(change(22, 0x12).is_err() && change(64, 0xff).is_err());
    for len in 0..ConnectionInfo::MIN_LEN {
        assert_eq!(ConnectionInfo::parse(&good[..len]), Err(ParseError::Truncated));
    }
    let long = [good.as_slice(), &[0; 136]].concat();
    assert!(matches!(ConnectionInfo::parse(&long), Err(ParseError::Malformed(_))));
    assert_eq!(change(16, 0xff), Ok(()));
}

#[test]
fn an_ipv4_mapped_address_is_none() {
    let mapped = "::ffff:192.0.2.1".parse().unwrap();
    assert_eq!(ci(mapped, b"", &mut rng(1)).emit(&mut [0; 1000]), Err(EmitError::MixedFamilies));
    let mut written = bytes(&ci(V6, b"", &mut rng(1)));
    let IpAddr::V6(mapped) = mapped else { panic!() };
    written[18..34].copy_from_slice(&mapped.octets());
    assert!(matches!(ConnectionInfo::parse(&written), Err(ParseError::Malformed(_))));
}

#[test]
fn debug_does_not_tell_what_was_asked() {
    let text = format!("{:?}", ci(V4, b"secret", &mut rng(1)));
    assert!(text.contains("192.0.2.1") && !text.contains("secret") && !text.contains("115"), "{text}");
}

proptest! {
    #[test]
    fn what_is_read_is_written_the_same(
        mut bytes in proptest::collection::vec(any::<u8>(), 200..360),
        v6: bool,
        repaired: bool,
    ) {
        if repaired {
            bytes[0] = VERSION_TYPE;
            bytes[1] = bytes[1] & SACK | UDP | u8::from(v6);
            bytes[16] %= 15;
            bytes[17] = 0;
            let at = if v6 { 34 } else { 22 };
            bytes[at] = 0x11;
            bytes[at + 1] = 0;
            bytes[at + 42] &= 0x1f;
        }
        if let Ok(ci) = ConnectionInfo::parse(&bytes) {
            let mut out = [0; ConnectionInfo::MAX_LEN];
            let len = ci.emit(&mut out).unwrap();
            prop_assert_eq!(&out[..len], &bytes[..]);
        } else {
            let len = bytes.len();
            let fits = (226..=ConnectionInfo::MAX_LEN).contains(&len);
            let ports = [2, 4, 6].into_iter().all(|at| bytes[at..at + 2] != [0, 0]);
            prop_assert!(!(repaired && fits && ports));
        }
    }
}
