//! The ClientHello of TLS that somebody else terminates: where it ends, and which name it asks for (RFC 8446 §4.1.2, RFC 6066 §3).
//!
//! A ClientHello runs nothing, so a copy of it does no harm. What follows it may be early data, which runs.

/// The longest ClientHello that is waited for, bytes. What is longer counts as something else. A hybrid one has 1.8 KB.
pub const LONGEST: usize = 32 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const MESSAGE_HEADER: usize = 4;

/// What the first bytes of a stream are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstRead {
    /// Not yet known.
    More,
    /// A ClientHello in records of `length` bytes. Nothing else is in these records.
    Hello {
        /// Bytes of the records that carry it.
        length: usize,
        /// The name that the client asks for, in lower case, without the dot behind a whole name, which servers leave out.
        name: Option<String>,
    },
    /// Something else.
    Other,
}

/// Looks at the first bytes of a stream.
#[must_use]
pub fn look(bytes: &[u8]) -> FirstRead {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        let used = bytes.len() - rest.len();
        if let Some(needed) = needed(&message) {
            if message.len() > needed || needed > LONGEST {
                // Something is behind it in its last record, or nobody waits for so much.
                return FirstRead::Other;
            }
            if message.len() == needed {
                let name = name(message.get(MESSAGE_HEADER..).unwrap_or_default());
                return FirstRead::Hello { length: used, name };
            }
        }
        // The version is 3.1 to 3.4, also in later versions of TLS.
        if !rest.iter().zip([HANDSHAKE, 3]).all(|(byte, expected)| *byte == expected) {
            return FirstRead::Other;
        }
        let &[_, _, minor, high, low, ref behind @ ..] = rest else { return more(bytes) };
        let length = usize::from(u16::from_be_bytes([high, low]));
        // RFC 8446 §5.1: at most 2¹⁴ bytes, and no empty record of a handshake.
        if !(1..=4).contains(&minor) || length == 0 || length > 1 << 14 {
            return FirstRead::Other;
        }
        message.extend(behind.iter().take(length));
        if message.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
            return FirstRead::Other;
        }
        match behind.get(length..) {
            Some(behind) => rest = behind,
            None if needed(&message).is_some_and(|needed| needed > LONGEST) => return FirstRead::Other,
            None => return more(bytes),
        }
    }
}

fn more(bytes: &[u8]) -> FirstRead {
    if bytes.len() >= 2 * LONGEST { FirstRead::Other } else { FirstRead::More }
}

/// The length of the message, once its header is there.
fn needed(message: &[u8]) -> Option<usize> {
    let &[_, a, b, c, ..] = message else { return None };
    Some(MESSAGE_HEADER + (u32::from_be_bytes([0, a, b, c]) as usize))
}

fn name(hello: &[u8]) -> Option<String> {
    // Version and random.
    let mut rest = hello.get(2 + 32..)?;
    vector8(&mut rest)?;
    vector16(&mut rest)?;
    vector8(&mut rest)?;
    let mut extensions = vector16(&mut rest)?;
    while !extensions.is_empty() {
        let kind = number(&mut extensions)?;
        let mut body = vector16(&mut extensions)?;
        if kind == SERVER_NAME {
            let mut names = vector16(&mut body)?;
            let (&kind, after) = names.split_first()?;
            names = after;
            let name = std::str::from_utf8(vector16(&mut names)?).ok()?;
            let name = name.strip_suffix('.').unwrap_or(name);
            return (kind == 0 && !name.is_empty()).then(|| name.to_ascii_lowercase());
        }
    }
    None
}

fn number(rest: &mut &[u8]) -> Option<u16> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u16::from_be_bytes(*bytes))
}

fn vector16<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = number(rest)?;
    let (vector, after) = rest.split_at_checked(usize::from(length))?;
    *rest = after;
    Some(vector)
}

fn vector8<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, after) = rest.split_first()?;
    let (vector, after) = after.split_at_checked(usize::from(length))?;
    *rest = after;
    Some(vector)
}

/// A ClientHello for this name in one record, for tests of what carries it.
#[doc(hidden)]
#[must_use]
pub fn sample(name: &str) -> Vec<u8> {
    record(HANDSHAKE, &message(name))
}

fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &(body.len() as u16).to_be_bytes(), body].concat()
}

fn message(name: &str) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0x13, 1, 1, 0]);
    let entry = [&[0][..], &(name.len() as u16).to_be_bytes(), name.as_bytes()].concat();
    let list = [&(entry.len() as u16).to_be_bytes()[..], &entry].concat();
    let extension = [&[0, 0][..], &(list.len() as u16).to_be_bytes(), &list].concat();
    // Another extension in front.
    let extensions = [&[0, 43, 0, 1, 0][..], &extension].concat();
    body.extend((extensions.len() as u16).to_be_bytes());
    body.extend(extensions);
    let length = (body.len() as u32).to_be_bytes();
    [&[CLIENT_HELLO][..], &length[1..], &body].concat()
}

#[cfg(test)]
mod tests;
