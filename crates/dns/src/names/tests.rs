use super::*;
use proptest::prelude::*;

const ZONE: &[u8] = b"\x01f\x03xyz\x03com\x00";

fn zone() -> Zone<'static> {
    Zone::new(ZONE).unwrap()
}

#[test]
fn wire_forms_are_zones() {
    let wire = wire_form(&Name::from_ascii("F.xyZ.com.").unwrap());
    assert_eq!((&wire[..], Zone::new(&wire)), (ZONE, Some(zone())));
    assert_eq!(wire_form(&Name::root()), [0]);
}

#[test]
fn positions() {
    assert_eq!(position(ZONE, zone()), Position::Apex);
    assert_eq!(position(b"\x01F\x03xYz\x03COM\x00", zone()), Position::Apex);
    assert_eq!(position(b"\x02ab\x01F\x03xyz\x03com\x00", zone()), Position::Child(b"ab"));
    assert_eq!(position(b"\x01a\x01b\x01f\x03xyz\x03com\x00", zone()), Position::Deeper);
    for outside in
        [&b"\x03xyz\x03com\x00"[..], b"\x00", b"", b"\x02zf\x03xyz\x03com\x00", b"\x01f\x03xyz\x03co"]
    {
        assert_eq!(position(outside, zone()), Position::Outside, "{outside:?}");
    }
    // Octets inside a label that look like the zone.
    assert_eq!(position(b"\x0aa\x01f\x03xyz\x03co\x01m\x00", zone()), Position::Outside);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = position(&bytes, zone());
        if let Some(question) = question(&bytes) {
            prop_assert!(question.len() <= MAX_NAME + 4);
            prop_assert!(name(question).ends_with(&[0]));
        }
    }

    #[test]
    fn a_label_in_front_is_found(label in proptest::collection::vec(any::<u8>(), 1..=63)) {
        let name = [&[label.len() as u8][..], &label, ZONE].concat();
        prop_assert_eq!(position(&name, zone()), Position::Child(&label));
    }
}
