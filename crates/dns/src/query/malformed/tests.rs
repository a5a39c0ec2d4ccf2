use super::*;
use proptest::prelude::*;

const QUESTION: &[u8] = b"\x03www\x03xyz\x03com\x00\x00\x01\x00\x01";
const WITH_DO: &[u8] = &[0, 0, 41, 16, 0, 0, 0, 0x80, 0, 0, 0];

/// A query with these counts, and `rest` after the header.
fn message(counts: [u8; 4], rest: &[&[u8]]) -> Vec<u8> {
    let [q, a, n, x] = counts;
    [&[0x12, 0x34, 1, 0, 0, q, 0, a, 0, n, 0, x][..], &rest.concat()].concat()
}

fn has_opt(message: &[u8]) -> Option<bool> {
    find_opt(message).map(|opt| opt.dnssec_ok)
}

/// RFC 6891 §7: the answer to a query with OPT has OPT, with the server's payload, version 0 and the DO
/// bit of the query.
#[test]
fn the_opt_record_is_found_and_answered() {
    let answer = refuse(&message([2, 0, 0, 1], &[QUESTION, QUESTION, WITH_DO])).unwrap();
    let opt = [0, 0, 41, 0x04, 0xd0, 0, 0, 0x80, 0, 0, 0];
    assert_eq!(answer, [&[0x12, 0x34, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 1][..], &opt].concat());
    let without = [0, 0, 41, 16, 0, 9, 3, 0x7f, 0xff, 0, 0];
    let answer = refuse(&message([0, 0, 0, 1], &[&without])).unwrap();
    assert_eq!(answer[12..], [0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);
    let mut notify = message([1, 0, 0, 1], &[QUESTION, WITH_DO]);
    notify[2] = 0x20;
    assert_eq!(refuse(&notify).unwrap()[..4], [0x12, 0x34, 0xa0, 4]);
    assert_eq!(refuse(&message([1, 0, 0, 0], &[QUESTION])).unwrap().len(), HEADER);
    assert_eq!(refuse(&notify[..11]), None);
}

#[test]
fn what_is_in_front_is_passed_over() {
    let a = [&b"\xc0\x0c"[..], &[0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 192, 0, 2, 1]].concat();
    assert_eq!(has_opt(&message([1, 1, 1, 2], &[QUESTION, &a, &a, &a, WITH_DO])), Some(true));
    // Two OPT records, or one whose data is cut.
    assert_eq!(has_opt(&message([1, 0, 0, 2], &[QUESTION, WITH_DO, WITH_DO])), Some(true));
    let cut = [0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 9, 1];
    assert_eq!(has_opt(&message([1, 0, 0, 1], &[QUESTION, &cut, b"garbage"])), Some(false));
    // An OPT record in another section, at a name that is not the root, or after a record that is cut.
    assert_eq!(has_opt(&message([1, 1, 0, 0], &[QUESTION, WITH_DO])), None);
    assert_eq!(has_opt(&message([1, 0, 0, 1], &[QUESTION, b"\x01a", WITH_DO])), None);
    assert_eq!(has_opt(&message([1, 0, 0, 2], &[QUESTION, &a[..14], WITH_DO])), None);
    assert_eq!(has_opt(&message([2, 0, 0, 1], &[QUESTION, WITH_DO])), None);
    // Too many labels, or one of an unknown form.
    assert_eq!(behind_name(&b"\x01a".repeat(200)), None);
    assert_eq!(behind_name(&[0x40, 0, 0]), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), counts: [u8; 4]) {
        let [q, a, n, x] = counts.map(|count| count % 4);
        let mut bytes = bytes;
        if bytes.len() >= HEADER {
            bytes[4..HEADER].copy_from_slice(&[0, q, 0, a, 0, n, 0, x]);
        }
        let answer = refuse(&bytes);
        prop_assert_eq!(answer.is_some(), bytes.len() >= HEADER);
        if let Some(answer) = answer {
            prop_assert!(answer.len() == HEADER || answer.len() == HEADER + 11);
        }
    }
}
