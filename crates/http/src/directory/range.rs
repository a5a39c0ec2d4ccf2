//! Parts of a file that a request asks for (RFC 9110 §14).

use std::ops::Range;

/// Parts in one request. A request for more gets the whole file (RFC 9110 §14.2 allows it).
const MOST: usize = 32;

/// What a field `Range` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The whole file: the field is malformed, has another unit, or asks for more than there is.
    Whole,
    /// These bytes, at least one part, each of at least one byte.
    Parts(Vec<Range<u64>>),
    /// Nothing that the file has.
    Nothing,
}

/// Reads a field `Range` about a file of `len` bytes.
pub(super) fn asked(field: &[u8], len: u64) -> Asked {
    parts(field, len).unwrap_or(Asked::Whole)
}

/// `None` if the field is not to be used.
fn parts(field: &[u8], len: u64) -> Option<Asked> {
    let (unit, set) = field.split_at_checked(b"bytes=".len())?;
    if !unit.eq_ignore_ascii_case(b"bytes=") {
        return None;
    }
    let specs: Vec<&[u8]> = set
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|spec| !spec.is_empty())
        .take(MOST + 1)
        .collect();
    if specs.is_empty() || specs.len() > MOST {
        return None;
    }
    let mut parts = Vec::with_capacity(specs.len());
    for spec in specs {
        let dash = spec.iter().position(|byte| *byte == b'-')?;
        let (first, last) = (spec.get(..dash)?, spec.get(dash + 1..)?);
        let part = match (first, last) {
            ([], suffix) => {
                let suffix = number(suffix)?;
                // The last bytes of an empty file are the whole file.
                if len == 0 && suffix > 0 {
                    return None;
                }
                len.saturating_sub(suffix)..len
            }
            (first, []) => number(first)?..len,
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return None;
                }
                first..last.saturating_add(1).min(len)
            }
        };
        if !part.is_empty() {
            parts.push(part);
        }
    }
    match parts.as_slice() {
        [] => Some(Asked::Nothing),
        [_] => Some(Asked::Parts(parts)),
        // Parts that overlap could ask for much more than the file.
        several => {
            let bytes = several.iter().fold(0u64, |bytes, part| bytes.saturating_add(part.end - part.start));
            (bytes <= len).then_some(Asked::Parts(parts))
        }
    }
}

/// A number of digits only. One that is too large is beyond the end of every file.
fn number(digits: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let add = |number: u64, byte| Some(number.saturating_mul(10).saturating_add(digit(byte)?));
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_those_of_rfc_9110() {
        let parts = |parts: &[(u64, u64)]| Asked::Parts(parts.iter().map(|(from, to)| *from..*to).collect());
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
            ("bytes=100-", Asked::Nothing),
            ("bytes=100-200,300-", Asked::Nothing),
            ("bytes=99999999999999999999999-", Asked::Nothing),
            ("bytes=-0", Asked::Nothing),
            ("bytes=0-,0-", Asked::Whole),
            ("bytes=", Asked::Whole),
            ("bytes=,", Asked::Whole),
            ("bytes=-", Asked::Whole),
            ("bytes=2-1", Asked::Whole),
            ("bytes=0-1,2-1", Asked::Whole),
            ("bytes=a-b", Asked::Whole),
            ("bytes=0x0-1", Asked::Whole),
            ("bytes=+0-1", Asked::Whole),
            ("bytes=0 - 1", Asked::Whole),
            ("bytes=0--1", Asked::Whole),
            ("bytes 0-1", Asked::Whole),
            ("items=0-1", Asked::Whole),
            ("0-1", Asked::Whole),
            ("", Asked::Whole),
        ] {
            assert_eq!(asked(field.as_bytes(), 100), wanted, "{field}");
        }
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert!(matches!(asked(many(MOST).as_bytes(), 100), Asked::Parts(_)));
        assert_eq!(asked(many(MOST + 1).as_bytes(), 100), Asked::Whole);
    }

    #[test]
    fn an_empty_file_has_no_first_byte() {
        assert_eq!(asked(b"bytes=0-", 0), Asked::Nothing);
        assert_eq!(asked(b"bytes=-5", 0), Asked::Whole);
        assert_eq!(asked(b"bytes=-0", 0), Asked::Nothing);
    }

    proptest! {
        #[test]
        fn parts_are_inside(field in "bytes=[0-9, -]{0,40}", len in 0u64..200) {
            if let Asked::Parts(parts) = asked(field.as_bytes(), len) {
                prop_assert!(!parts.is_empty());
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= len));
                prop_assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= len);
            }
        }
    }
}
