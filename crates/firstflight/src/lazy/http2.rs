//! Requests of HTTP/2 (RFC 9113) in a first flight: the preface, settings, and one request.

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length of a frame's header, bytes (RFC 9113 §4.1).
const HEADER: usize = 9;
/// Types of frames (RFC 9113 §6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
/// Flags of frames.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;
/// `:method: GET` and `:method: POST` in the static table of HPACK (RFC 7541 appendix A).
const GET: usize = 2;
const POST: usize = 3;

/// A frame, as far as it is there.
#[derive(Clone, Copy)]
struct Frame<'a> {
    kind: u8,
    flags: u8,
    payload: &'a [u8],
}

/// What a first flight of HTTP/2 contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Not the preface.
    Other,
    /// The preface, and no whole request.
    NoRequest,
    /// One whole request. Whether its method is GET, which ends with its headers.
    Request { get: bool },
    /// Several requests, or frames that no first flight has.
    More,
}

/// The whole frames in `bytes`, and whether a part of one follows.
fn frames(mut bytes: &[u8]) -> (Vec<Frame<'_>>, bool) {
    let mut frames = Vec::new();
    while let Some((&[a, b, c, kind, flags, ..], rest)) = bytes.split_first_chunk::<HEADER>() {
        let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        let Some((payload, rest)) = rest.split_at_checked(len) else { break };
        frames.push(Frame { kind, flags, payload });
        bytes = rest;
    }
    (frames, !bytes.is_empty())
}

fn content(data: &[u8]) -> Content {
    let Some(rest) = data.strip_prefix(PREFACE) else {
        return if PREFACE.starts_with(data) && !data.is_empty() {
            Content::NoRequest
        } else {
            Content::Other
        };
    };
    let (frames, part) = frames(rest);
    let mut request: Option<(bool, bool)> = None;
    for frame in frames {
        request = match (frame.kind, request) {
            (SETTINGS | WINDOW_UPDATE | PRIORITY, request) => request,
            (HEADERS, None) => {
                let over = frame.flags & END_STREAM != 0;
                Some((over && is_get(frame), over))
            }
            (CONTINUATION, Some((_, over))) => Some((false, over)),
            (DATA, Some((_, false))) => Some((false, frame.flags & END_STREAM != 0)),
            _ => return Content::More,
        };
    }
    match request {
        Some((get, true)) if !part => Content::Request { get },
        Some((_, true)) => Content::More,
        _ => Content::NoRequest,
    }
}

/// Whether a frame has all fields of a request, of which the first is `:method: GET` as encoders write it, and no other
/// one is a method.
fn is_get(frame: Frame<'_>) -> bool {
    let fields = || {
        let mut fields = frame.payload;
        if frame.flags & PADDED != 0 {
            let (padding, rest) = fields.split_first()?;
            fields = rest.get(..rest.len().checked_sub(usize::from(*padding))?)?;
        }
        if frame.flags & WITH_PRIORITY != 0 {
            fields = fields.get(5..)?;
        }
        Some(fields)
    };
    let names = fields().and_then(names).unwrap_or_default();
    let methods = names.iter().filter(|name| matches!(**name, GET | POST)).count();
    frame.flags & END_HEADERS != 0 && names.first() == Some(&GET) && methods == 1
}

/// The index of each field's name (RFC 7541 §6), 0 for one that is spelt out. `None` if they are malformed.
fn names(mut fields: &[u8]) -> Option<Vec<usize>> {
    let mut names = Vec::new();
    while let Some(first) = fields.first() {
        // An indexed field, a literal that is stored, a new size of the table, or another literal.
        let (prefix, is_field, has_value) = match first {
            0x80.. => (7, true, false),
            0x40..0x80 => (6, true, true),
            0x20..0x40 => (5, false, false),
            _ => (4, true, true),
        };
        let (index, rest) = integer(fields, prefix)?;
        fields = rest;
        if is_field {
            // A method that is spelt out, or that is not in the static table, is not known here.
            names.push(if has_value && index == GET { POST } else { index });
        }
        if has_value && index == 0 {
            if is_pseudo(fields) {
                names.push(POST);
            }
            fields = skip(fields)?;
        }
        if has_value {
            fields = skip(fields)?;
        }
    }
    Some(names)
}

/// An integer with a prefix of `prefix` bits (RFC 7541 §5.1), and the bytes behind it.
fn integer(bytes: &[u8], prefix: u32) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value < most {
        return Some((value, rest));
    }
    for shift in [0, 7, 14] {
        let (byte, after) = rest.split_first()?;
        rest = after;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
    }
    None
}

/// Whether a name that is spelt out begins with a colon, plain or in Huffman's code (RFC 7541 appendix B).
fn is_pseudo(name: &[u8]) -> bool {
    match name {
        [length, first, ..] if length & 0x80 == 0 => *first == b':',
        [_, first, ..] => first >> 1 == 0x5c,
        _ => false,
    }
}

/// The bytes behind a string (RFC 7541 §5.2).
fn skip(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = integer(bytes, 7)?;
    rest.get(len..)
}

/// Whether `data` is the preface without a whole request behind it.
pub(super) fn awaits_request(data: &[u8]) -> bool {
    content(data) == Content::NoRequest
}

/// Whether `data` is the preface and one GET, or no request at all.
pub(super) fn is_safe_request(data: &[u8]) -> bool {
    matches!(content(data), Content::Request { get: true })
}

#[cfg(test)]
mod tests;
