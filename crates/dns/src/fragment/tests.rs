use super::*;
use crate::ci::ConnectionInfo;
use crate::fixtures::{V4, V6, sealed};
use proptest::prelude::*;

fn random(len: usize, seed: u8) -> Sealed {
    let bytes: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
    Sealed::new(&bytes).unwrap()
}

/// The table of the module's documentation.
#[test]
fn the_arithmetic_of_fragments() {
    for (address, table) in [(V4, [(6, 35), (7, 85), (8, 135)]), (V6, [(6, 23), (7, 73), (8, 123)])] {
        for (count, most) in table {
            let overhead =
                ConnectionInfo::MIN_LEN + if address.is_ipv4() { 0 } else { 12 } + Sealed::OVERHEAD;
            let fragments = |len| Fragments::split(&random(overhead + len, 0), Attempt::default(), false);
            assert_eq!(fragments(most).as_slice().len(), count);
            assert_eq!(50 * count - 2 - overhead, most);
            if count < MAX_FRAGMENTS {
                assert_eq!(fragments(most + 1).as_slice().len(), count + 1);
            } else {
                assert_eq!(ConnectionInfo::max_data(address), most);
                assert!(Sealed::new(&vec![0; overhead + most + 1]).is_none());
            }
        }
    }
    // 60 digits hold 58 bytes, and not 59: 230⁶⁰ is between 2⁴⁶⁴ and 2⁴⁷².
    let bits = 60.0 * 230_f64.log2();
    assert!((464.0..472.0).contains(&bits), "{bits}");
}

#[test]
fn every_length_goes_and_comes_back() {
    for len in Sealed::MIN..=Sealed::MAX {
        let sealed = random(len, len as u8);
        let fragments = Fragments::split(&sealed, Attempt::default(), false);
        let read: Vec<Fragment> = fragments.labels().map(|label| Fragment::parse(&label).unwrap()).collect();
        assert_eq!(read, fragments.as_slice());
        let bodies: Vec<[u8; BODY]> = read.iter().map(|fragment| fragment.body).collect();
        assert_eq!(join(FragmentId::of(&sealed), &bodies), Some(sealed));
    }
}

#[test]
fn labels_are_as_the_specification_has_them() {
    let sealed = sealed(85, 1);
    let fragments = Fragments::split(&sealed, Attempt::new(5).unwrap(), true);
    assert_eq!(fragments.as_slice().len(), 8);
    for (at, label) in fragments.labels().enumerate() {
        assert_eq!(label.len(), 63);
        assert!(label.starts_with(b"ff0") && !label.iter().any(u8::is_ascii_uppercase));
        assert!(Fragment::is_marked(&label));
        let fragment = Fragment::parse(&label).unwrap();
        assert_eq!(fragment.id(), FragmentId::of(&sealed));
        assert_eq!((fragment.count(), fragment.attempt().get()), (7, 5));
        assert_eq!(
            fragment.part(),
            if at == 7 { FragmentPart::Parity } else { FragmentPart::Data(at as u8) }
        );
    }
}

#[test]
fn another_attempt_has_other_names_and_the_same_parts() {
    let sealed = sealed(10, 1);
    let [one, two] = [0, 1].map(|number| Fragments::split(&sealed, Attempt::new(number).unwrap(), true));
    for (one, two) in one.as_slice().iter().zip(two.as_slice()) {
        assert_ne!(one.to_label(), two.to_label());
        assert_eq!((one.id(), one.part(), one.body), (two.id(), two.part(), two.body));
    }
    assert_eq!(Attempt::new(16), None);
}

#[test]
fn what_is_no_fragment_is_refused() {
    let good = Fragments::split(&sealed(0, 1), Attempt::default(), false).labels().next().unwrap();
    assert!(Fragment::parse(&good).is_ok());
    assert_eq!(Fragment::parse(&good[..62]), Err(ParseError::Truncated));
    assert_eq!(Fragment::parse(&[&good[..], b"a"].concat()), Err(ParseError::Truncated));
    for at in 0..3 {
        let mut bad = good;
        bad[at] = b'x';
        assert!(matches!(Fragment::parse(&bad), Err(ParseError::Malformed(_))));
    }
    let with = |place: u8, version: u8| {
        let mut bytes = [0; BYTES];
        bytes[6..8].copy_from_slice(&[place, version]);
        let mut label = good;
        label[3..].copy_from_slice(&base230::encode(&bytes));
        Fragment::parse(&label).is_ok()
    };
    assert!(with(0x05, 0xf1) && with(0x65, 1) && with(0x87, 1));
    // Version, count and index.
    assert!(!with(0x05, 0) && !with(0x05, 2));
    assert!(!with(0x04, 1) && !with(0x08, 1) && !with(0x0f, 1));
    assert!(!with(0x75, 1) && !with(0x97, 1));
}

#[test]
fn padding_and_length_are_checked() {
    let sealed = random(Sealed::MIN, 9);
    let id = FragmentId::of(&sealed);
    let fragments = Fragments::split(&sealed, Attempt::default(), false);
    let bodies: Vec<[u8; BODY]> = fragments.as_slice().iter().map(|fragment| fragment.body).collect();
    assert_eq!(join(id, &bodies), Some(sealed));
    let mut bad = bodies.clone();
    bad[5][49] = 1;
    assert_eq!(join(id, &bad), None);
    for len in [Sealed::MIN - 1, Sealed::MIN + 1, 0, 0xffff] {
        let mut bad = bodies.clone();
        bad[0][..2].copy_from_slice(&(len as u16).to_be_bytes());
        assert_eq!(join(id, &bad), None, "{len}");
    }
    // One fragment too many, although it is empty.
    assert_eq!(join(id, &[bodies.as_slice(), &[[0; BODY]]].concat()), None);
    assert_eq!(join(FragmentId([0; 6]), &bodies), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(label in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = Fragment::parse(&label);
    }

    #[test]
    fn what_is_read_is_written_the_same(
        symbols in proptest::collection::vec(any::<u8>(), 60),
        id: [u8; 6], index in 0_u8..=8, count in 6_u8..=8, attempt in 0_u8..16, body: [u8; 50],
        upper: bool,
    ) {
        let random = [&b"fF0"[..], &symbols].concat();
        if let Ok(fragment) = Fragment::parse(&random) {
            prop_assert_eq!(fragment.to_label().to_vec(), random.to_ascii_lowercase());
        }
        let part = if index >= count { FragmentPart::Parity } else { FragmentPart::Data(index) };
        let fragment = Fragment { id: FragmentId(id), part, count, attempt: Attempt(attempt), body };
        let mut label = fragment.to_label();
        if upper {
            label.make_ascii_uppercase();
        }
        prop_assert_eq!(Fragment::parse(&label), Ok(fragment));
    }
}
