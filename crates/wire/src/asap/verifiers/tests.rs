//! The vectors are read by `tests/vectors.rs`.

use super::*;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// What was read, written again.
fn again(param: &VerifiersParam<'_>) -> Vec<u8> {
    let points: Vec<Vec<_>> = param.iter().map(|one| one.points.iter().collect()).collect();
    let all: Vec<_> = param.iter().zip(&points).map(|(one, points)| (one, points.as_slice())).collect();
    let mut out = [0; VerifiersParam::MAX_LEN];
    let len = VerifiersParam::emit(all.into_iter(), &mut out).unwrap();
    out[..len].to_vec()
}

#[test]
fn a_buffer_that_is_too_small_is_told() {
    let name = Name::new(b"\x02pv\x07example\x03com\0").unwrap();
    let (id, udp_port) = (NonZeroU16::MIN, NonZeroU16::MAX);
    let point = [SitePoint { id, udp_port, name }];
    let points = SitePoints::default();
    let one = SiteVerifier { key: [7; 32], udp_port, tcp_port: None, name, below: true, points };
    let write = |out: &mut [u8]| VerifiersParam::emit([(one, &point[..])].into_iter(), out);
    let mut out = [0; VerifiersParam::MAX_LEN];
    let len = write(&mut out).unwrap();
    assert_eq!(len, 2 + 37 + name.as_bytes().len() + 4 + name.as_bytes().len());
    assert!(
        (0..len)
            .all(|short| write(&mut [0; VerifiersParam::MAX_LEN][..short]) == Err(EmitError::BufferTooSmall))
    );
    let read = VerifiersParam::parse(&out[..len]).unwrap();
    assert_eq!(again(&read), out[..len]);
    assert!((0..len).all(|short| VerifiersParam::parse(&out[..short]).is_err()));
}

#[test]
fn names() {
    assert_eq!(Name::new(b"\x01a\x02_b\0").unwrap().labels().collect::<Vec<_>>(), [&b"a"[..], b"_b"]);
    for wrong in [&b""[..], b"\0", b"\x01a", b"\x01a\0\0", b"\x01A\0", b"\x02a\0", b"\xc0\x0c"] {
        assert_eq!(Name::new(wrong), None, "{wrong:?}");
    }
}

proptest! {
    /// Anything can come in a record. What is read is what was sent.
    #[test]
    fn anything_can_come(bytes in prop::collection::vec(any::<u8>(), 0..300), count in 0..6_u8) {
        let whole = [&[1, count], &bytes[..]].concat();
        for bytes in [&bytes, &whole] {
            if let Ok(param) = VerifiersParam::parse(bytes) {
                prop_assert_eq!(&again(&param), bytes);
            }
        }
    }

    /// A right one with one byte changed.
    #[test]
    fn one_byte_is_another(at in 0..200_usize, value in any::<u8>()) {
        let entry = |n: u8| {
            let head = [[n; 32].as_slice(), &[1, 187, 0, 0, 1]].concat();
            [head, b"\x02pv\x03xyz\x03com\0".to_vec(), b"\0\x01\x01\xbb\x01a\0".to_vec()].concat()
        };
        let mut bytes = [vec![1, 3], entry(1), entry(2), entry(3)].concat();
        prop_assert!(VerifiersParam::parse(&bytes).is_ok());
        let at = at % bytes.len();
        bytes[at] = value;
        if let Ok(param) = VerifiersParam::parse(&bytes) {
            prop_assert_eq!(again(&param), bytes);
        }
    }
}
