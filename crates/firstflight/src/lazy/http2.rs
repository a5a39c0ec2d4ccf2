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
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;
/// `:method: GET` in the static table of HPACK (RFC 7541 appendix A), as an indexed field.
const GET: u8 = 0x82;

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
                Some((over && method(frame) == Some(GET), over))
            }
            (CONTINUATION, Some(request)) => Some(request),
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

/// The first byte of a request's fields. Encoders put the method first (RFC 9113 §8.3).
fn method(frame: Frame<'_>) -> Option<u8> {
    let padded = usize::from(frame.flags & PADDED != 0);
    let priority = if frame.flags & WITH_PRIORITY != 0 { 5 } else { 0 };
    frame.payload.get(padded + priority).copied()
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
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let len = (payload.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn flight(frames: &[Vec<u8>]) -> Vec<u8> {
        [PREFACE.to_vec(), frames.concat()].concat()
    }

    #[test]
    fn the_preface_waits_for_a_whole_request() {
        let settings = frame(SETTINGS, 0, &[0; 6]);
        let head = frame(HEADERS, 4, &[0x83, 0x86]);
        for waits in [
            PREFACE[..5].to_vec(),
            flight(&[]),
            flight(std::slice::from_ref(&settings)),
            flight(&[settings.clone(), head.clone()]),
            flight(&[settings.clone(), head.clone(), frame(DATA, 0, b"a")]),
            flight(&[settings.clone(), frame(HEADERS, 5, &[GET])])[..48].to_vec(),
        ] {
            assert!(awaits_request(&waits), "{waits:?}");
            assert!(!is_safe_request(&waits), "{waits:?}");
        }
        for whole in [
            flight(&[settings.clone(), frame(HEADERS, 5, &[GET])]),
            flight(&[settings, head, frame(DATA, 1, b"a")]),
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            Vec::new(),
        ] {
            assert!(!awaits_request(&whole), "{whole:?}");
        }
    }

    #[test]
    fn only_one_get_is_safe() {
        let get = frame(HEADERS, 5, &[GET, 0x86]);
        assert!(is_safe_request(&flight(std::slice::from_ref(&get))));
        assert!(is_safe_request(&flight(&[frame(HEADERS, 5 | WITH_PRIORITY, &[0, 0, 0, 0, 0, GET])])));
        let post = frame(HEADERS, 5, &[0x83, 0x86]);
        let body = [frame(HEADERS, 4, &[GET]), frame(DATA, 1, b"a")];
        let unknown = frame(6, 0, &[0; 8]);
        for other in [vec![post.clone()], body.to_vec(), vec![get.clone(), post], vec![get, unknown]] {
            assert!(!is_safe_request(&flight(&other)), "{other:?}");
        }
    }
}
