use super::*;
use proptest::prelude::*;

#[test]
fn ranges_are_those_of_rfc_9110() {
    let parts =
        |parts: &[(u64, u64)]| RangeRequest::Parts(parts.iter().map(|(from, to)| *from..*to).collect());
    for (field, wanted) in [
        ("bytes=0-0", parts(&[(0, 1)])),
        ("bytes=0-", parts(&[(0, 100)])),
        ("bytes=90-", parts(&[(90, 100)])),
        ("bytes=10-19", parts(&[(10, 20)])),
        ("bytes=99-1000", parts(&[(99, 100)])),
        ("bytes=0-99999999999999999999999", parts(&[(0, 100)])),
        ("bytes=-1", parts(&[(99, 100)])),
        ("bytes=-100", parts(&[(0, 100)])),
        ("bytes=-101", parts(&[(0, 100)])),
        ("Bytes=0-1", parts(&[(0, 2)])),
        ("bytes= 0-1 , ,\t5-6", parts(&[(0, 2), (5, 7)])),
        ("bytes=5-6,0-1", parts(&[(5, 7), (0, 2)])),
        ("bytes=0-1,200-", parts(&[(0, 2)])),
        ("bytes=100-", RangeRequest::Nothing),
        ("bytes=100-200,300-", RangeRequest::Nothing),
        ("bytes=99999999999999999999999-", RangeRequest::Nothing),
        ("bytes=-0", RangeRequest::Nothing),
        ("bytes=0-,0-", RangeRequest::Whole),
        ("bytes=", RangeRequest::Whole),
        ("bytes=,", RangeRequest::Whole),
        ("bytes=-", RangeRequest::Whole),
        ("bytes=2-1", RangeRequest::Whole),
        ("bytes=0-1,2-1", RangeRequest::Whole),
        ("bytes=a-b", RangeRequest::Whole),
        ("bytes=0x0-1", RangeRequest::Whole),
        ("bytes=+0-1", RangeRequest::Whole),
        ("bytes=0 - 1", RangeRequest::Whole),
        ("bytes=0--1", RangeRequest::Whole),
        ("bytes 0-1", RangeRequest::Whole),
        ("items=0-1", RangeRequest::Whole),
        ("0-1", RangeRequest::Whole),
        ("", RangeRequest::Whole),
    ] {
        assert_eq!(asked(field.as_bytes(), 100), wanted, "{field}");
    }
    let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
    assert!(matches!(asked(many(MOST).as_bytes(), 100), RangeRequest::Parts(_)));
    assert_eq!(asked(many(MOST + 1).as_bytes(), 100), RangeRequest::Whole);
}

#[test]
fn an_empty_file_has_no_first_byte() {
    assert_eq!(asked(b"bytes=0-", 0), RangeRequest::Nothing);
    assert_eq!(asked(b"bytes=-5", 0), RangeRequest::Whole);
    assert_eq!(asked(b"bytes=-0", 0), RangeRequest::Nothing);
}

proptest! {
    #[test]
    fn parts_are_inside(field in "bytes=[0-9, -]{0,40}", len in 0u64..200) {
        if let RangeRequest::Parts(parts) = asked(field.as_bytes(), len) {
            prop_assert!(!parts.is_empty());
            prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= len));
            prop_assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= len);
        }
    }
}
