//! Sizes of chunks, and trailers (RFC 9112 §7.1).

use super::Malformed;

/// The longest line with a chunk's size and its extensions, bytes.
const LONGEST_LINE: usize = 1024;
/// The longest trailers, bytes, with the empty line behind them. hyper, which reads what is passed on, refuses more.
const LONGEST_TRAILERS: usize = 16 * 1024 - 1;
/// A file of more bytes is nowhere, and readers with signed numbers would see a negative one.
const LARGEST: u64 = i64::MAX as u64;

/// A line that was read.
pub(super) struct Line {
    pub(super) value: u64,
    /// Its bytes, with the end of the line.
    pub(super) length: usize,
}

/// The size of a chunk. `None` if the line is not whole.
pub(super) fn size(input: &[u8]) -> Result<Option<Line>, Malformed> {
    let digits = input.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (number, rest) = input.split_at_checked(digits).ok_or(Malformed)?;
    if digits > 16 || (digits == 0 && !rest.is_empty()) {
        return Err(Malformed);
    }
    // Extensions mean nothing to anybody, and go no further.
    let end = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r');
    let extensions = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    let mut behind = extensions.iter().skip_while(|byte| matches!(byte, b' ' | b'\t'));
    let begins = behind.next().is_none_or(|&byte| byte == b';');
    if !begins || digits + extensions.len() > LONGEST_LINE || extensions.iter().any(|&byte| is_control(byte))
    {
        return Err(Malformed);
    }
    let Some(end) = end else { return Ok(None) };
    match rest.get(end..).unwrap_or_default() {
        [b'\r', b'\n', ..] => {}
        [b'\r'] => return Ok(None),
        _ => return Err(Malformed),
    }
    let number = std::str::from_utf8(number).map_err(|_| Malformed)?;
    let value = u64::from_str_radix(number, 16).ok().filter(|size| *size <= LARGEST).ok_or(Malformed)?;
    Ok(Some(Line { value, length: digits + end + 2 }))
}

/// The length of the trailers with the empty line behind them. `None` if they are not whole.
pub(super) fn trailers(input: &[u8], most: usize) -> Result<Option<usize>, Malformed> {
    let mut begin = 0;
    let mut lines = 0;
    loop {
        let rest = input.get(begin..).unwrap_or_default();
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { break };
        let Some(line) = rest.get(..end).and_then(|line| line.strip_suffix(b"\r")) else {
            return Err(Malformed);
        };
        begin += end + 1;
        if begin > LONGEST_TRAILERS {
            return Err(Malformed);
        }
        if line.is_empty() {
            let whole = input.get(..begin).unwrap_or_default();
            let mut fields = vec![httparse::EMPTY_HEADER; lines];
            let read = httparse::parse_headers(whole, &mut fields).map_err(|_| Malformed)?;
            return if read.is_complete() { Ok(Some(begin)) } else { Err(Malformed) };
        }
        lines += 1;
        if lines > most || line.iter().any(|&byte| is_control(byte)) {
            return Err(Malformed);
        }
    }
    if input.len() > LONGEST_TRAILERS { Err(Malformed) } else { Ok(None) }
}

const fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}
