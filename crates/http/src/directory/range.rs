//! Parts of a file that a request asks for (RFC 9110 §14).

use std::ops::Range;

/// Parts in one request. A request for more gets the whole file (RFC 9110 §14.2 allows it).
const MOST: usize = 32;

/// What a field `Range` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RangeRequest {
    /// The whole file: the field is malformed, has another unit, or asks for more than there is.
    Whole,
    /// These bytes, at least one part, each of at least one byte.
    Parts(Vec<Range<u64>>),
    /// Nothing that the file has.
    Nothing,
}

/// Reads a field `Range` about a file of `len` bytes.
pub(super) fn asked(field: &[u8], len: u64) -> RangeRequest {
    parts(field, len).unwrap_or(RangeRequest::Whole)
}

/// `None` if the field is not to be used.
fn parts(field: &[u8], len: u64) -> Option<RangeRequest> {
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
        [] => Some(RangeRequest::Nothing),
        [_] => Some(RangeRequest::Parts(parts)),
        // Parts that overlap could ask for much more than the file.
        several => {
            let bytes = several.iter().fold(0u64, |bytes, part| bytes.saturating_add(part.end - part.start));
            (bytes <= len).then_some(RangeRequest::Parts(parts))
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
mod tests;
