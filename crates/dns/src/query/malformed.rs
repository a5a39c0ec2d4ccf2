//! Answers to queries that cannot be parsed, with EDNS if the query had it.

use super::UDP_PAYLOAD;
use crate::names::{HEADER, MAX_NAME, TYPE_AND_CLASS};

/// The type OPT (RFC 6891 §6.1.1).
const OPT: u16 = 41;
/// Octets of the bit DO, in the flags of an OPT record (RFC 6891 §6.1.3).
const DNSSEC_OK: u8 = 0x80;

/// The answer to a query that cannot be parsed as one with a single question: FORMERR, or NOTIMP for another
/// operation than a query (RFC 1035 §4.1.1). It is only the header, and an OPT record if the message has one
/// (RFC 6891 §7). `None` for a message shorter than a header.
pub(crate) fn refuse(message: &[u8]) -> Option<Vec<u8>> {
    const FORMERR: u8 = 1;
    const NOTIMP: u8 = 4;
    if message.len() < HEADER {
        return None;
    }
    let &[a, b, flags, ..] = message else { return None };
    let operation = flags & 0x78;
    let code = if operation == 0 { FORMERR } else { NOTIMP };
    let opt = find_opt(message);
    // QR, the operation and RD; no AA, no TC.
    let mut answer =
        vec![a, b, 0x80 | operation | flags & 1, code, 0, 0, 0, 0, 0, 0, 0, u8::from(opt.is_some())];
    if let Some(Opt { dnssec_ok }) = opt {
        let [high, low] = UDP_PAYLOAD.to_be_bytes();
        let flags = if dnssec_ok { DNSSEC_OK } else { 0 };
        // The root, the type, the payload, version 0, no options.
        answer.extend([0, 0, OPT as u8, high, low, 0, 0, flags, 0, 0, 0]);
    }
    Some(answer)
}

/// The fields of a query's OPT record that the answer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Opt {
    dnssec_ok: bool,
}

/// The first OPT record among the additional records, if everything before it can be skipped. Its own data
/// may be invalid. Each record takes at least 11 octets, so the length of the message bounds the work,
/// whatever the counts in its header are.
fn find_opt(message: &[u8]) -> Option<Opt> {
    let (header, mut rest) = message.split_first_chunk::<HEADER>()?;
    let &[_, _, _, _, q, u, a, n, s, t, x, y] = header;
    for _ in 0..u16::from_be_bytes([q, u]) {
        rest = behind_name(rest)?.get(TYPE_AND_CLASS..)?;
    }
    let in_front = u32::from(u16::from_be_bytes([a, n])) + u32::from(u16::from_be_bytes([s, t]));
    for _ in 0..in_front {
        rest = record(rest)?.behind?;
    }
    for _ in 0..u16::from_be_bytes([x, y]) {
        let next = record(rest)?;
        // An OPT record's name is the root (RFC 6891 §6.1.2).
        if next.kind == OPT && rest.first() == Some(&0) {
            return Some(Opt { dnssec_ok: next.ttl[2] & DNSSEC_OK != 0 });
        }
        rest = next.behind?;
    }
    None
}

/// The fixed part of a record, and the bytes after the record.
struct PassedRecord<'a> {
    kind: u16,
    ttl: [u8; 4],
    /// `None` if the record's data is incomplete.
    behind: Option<&'a [u8]>,
}

fn record(bytes: &[u8]) -> Option<PassedRecord<'_>> {
    let (&[k, l, _, _, a, b, c, d, m, n], rest) = behind_name(bytes)?.split_first_chunk()?;
    let behind = rest.get(usize::from(u16::from_be_bytes([m, n]))..);
    Some(PassedRecord { kind: u16::from_be_bytes([k, l]), ttl: [a, b, c, d], behind })
}

/// The bytes after the name at the beginning of `bytes`. The name may end in a pointer (RFC 1035 §4.1.4),
/// which is not followed.
fn behind_name(bytes: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    while at < MAX_NAME {
        match *bytes.get(at)? {
            0 => return bytes.get(at + 1..),
            len @ 1..=63 => at += 1 + usize::from(len),
            0xc0.. => return bytes.get(at + 2..),
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests;
