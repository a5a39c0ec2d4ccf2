//! The reader of requests that leads hyper: whatever comes, in whatever pieces, hyper reads what was passed on as this reader
//! meant it, and what came as it would have been passed on.
//!
//! The first byte of an input chooses limits and pieces. Then come the client's bytes, in which SUB, a byte and a count stand
//! for so many times 64 of that byte: limits of kilobytes are reached with few bytes.

mod server;
mod strict;
#[path = "../http_wire.rs"]
mod wire;

use firstflight_http::framing::{Framing, Limits, Malformed, PassedBytes};
use strict::Seen;
use tokio::io::ReadBuf;
use wire::Sizes;

/// Longer trailers end a connection, bytes.
const LONGEST_TRAILERS: usize = 16 * 1024;
/// The largest input, written out.
const LONGEST: usize = 128 * 1024;

/// What was passed on of a connection.
#[derive(Debug, PartialEq, Eq)]
struct Fed {
    out: Vec<u8>,
    /// Where in it requests begin, as the reader says.
    begins: Vec<usize>,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NeedsMore,
    Over,
    Malformed,
}

/// Passes the bytes on, whole and in pieces, and gives what was passed on to hyper.
pub fn run(data: &[u8]) {
    let Some((&choice, rest)) = data.split_first() else { return };
    let bytes = written_out(rest);
    let limits = match choice & 1 {
        0 => Limits { bytes: 8192, fields: 20 },
        _ => Limits { bytes: 1200, fields: 4 },
    };
    let fed = feed(&bytes, limits, &mut Sizes(0));
    let mut sizes = Sizes(u32::from(choice >> 1) + 1);
    assert_eq!(feed(&bytes, limits, &mut sizes), fed, "pieces make a difference");
    let seen = strict::read(&fed.out);
    let begins: Vec<_> = seen.iter().map(|seen| seen.begin).collect();
    assert_eq!(begins, fed.begins, "bytes of two requests went together");
    let refused = seen.iter().position(|seen| seen.refused);
    assert!(refused.is_none_or(|at| at + 1 == seen.len()), "something went on behind a refusal");
    assert_eq!(refused.is_some(), fed.end == End::Over);
    assert!(fed.end != End::Malformed || seen.last().is_some_and(|seen| !seen.whole));
    server::agrees(&fed.out, &seen, limits, &mut sizes);
    server::agrees_about(&bytes, &seen, &mut sizes);
}

fn written_out(data: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), data);
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, behind) {
            (0x1a, [repeated, count, behind @ ..]) if out.len() < LONGEST => {
                out.resize(out.len() + usize::from(*count) * 64, *repeated);
                rest = behind;
            }
            _ => out.push(byte),
        }
    }
    out
}

fn feed(bytes: &[u8], limits: Limits, sizes: &mut Sizes) -> Fed {
    let mut framing = Framing::new(limits);
    let mut fed = Fed { out: Vec::new(), begins: Vec::new(), end: End::NeedsMore };
    let (mut rest, mut came) = (bytes, 0);
    let mut room = vec![0; LONGEST * 2];
    loop {
        let mut piece = rest.split_at(rest.len().min(sizes.next())).0;
        rest = &rest[piece.len()..];
        came += piece.len() as u64;
        // A reader that may goes past the framing.
        if let Ok(PassedBytes::Directly(most)) = framing.pass(&mut ReadBuf::new(&mut room)) {
            assert!(most > 0 && framing.waiting() == 0 && !framing.is_at_head());
            let count = piece.len().min(usize::try_from(most).unwrap());
            fed.out.extend_from_slice(&piece[..count]);
            framing.passed_directly(count);
            piece = &piece[count..];
        }
        framing.input().extend_from_slice(piece);
        fed.end = drain(&mut framing, &mut room, sizes, &mut fed);
        assert!(framing.consumed() <= came, "more was consumed than came");
        let most = limits.bytes.max(LONGEST_TRAILERS) + 2;
        assert!(framing.waiting() <= most || fed.end != End::NeedsMore, "{} bytes wait", framing.waiting());
        if rest.is_empty() || fed.end != End::NeedsMore {
            stays_ended(framing, fed.end);
            return fed;
        }
    }
}

/// Passes on what there is.
fn drain(framing: &mut Framing, room: &mut [u8], sizes: &mut Sizes, fed: &mut Fed) -> End {
    loop {
        let size = sizes.next().min(room.len());
        let mut buf = ReadBuf::new(&mut room[..size]);
        let at_head = framing.is_at_head();
        match framing.pass(&mut buf) {
            Ok(PassedBytes::Bytes) => {
                assert!(!buf.filled().is_empty());
                if at_head {
                    fed.begins.push(fed.out.len());
                }
                fed.out.extend_from_slice(buf.filled());
                continue;
            }
            Ok(PassedBytes::NeedsMore | PassedBytes::Directly(_)) => return End::NeedsMore,
            Ok(PassedBytes::Over) => return End::Over,
            Err(Malformed) => return End::Malformed,
        }
    }
}

fn stays_ended(mut framing: Framing, end: End) {
    if end == End::NeedsMore {
        return;
    }
    framing.input().extend_from_slice(b"GET /behind HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut room = [0; 64];
    let mut buf = ReadBuf::new(&mut room);
    assert!(
        matches!(framing.pass(&mut buf), Ok(PassedBytes::Over) | Err(Malformed)),
        "it goes on after its end"
    );
    assert!(buf.filled().is_empty());
}

/// Whether hyper certainly reads requests behind this one.
fn goes_on(seen: &Seen) -> bool {
    seen.is_new && seen.whole && seen.method != b"CONNECT" && seen.value("connection").is_none()
}
