//! How TLS begins: where a ClientHello ends in what a client has sent so far.

/// What the first bytes of a client are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// A ClientHello of TLS, whole in this many bytes, which end with a record. It runs nothing, so it may be sent twice
    /// (RFC 8446 §2.3: only early data behind it does).
    Hello(usize),
    /// The beginning of a ClientHello.
    Unfinished,
    /// Something else.
    Other,
}

/// `handshake`, the type of a record (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;
/// `client_hello`, the type of a message (RFC 8446 §4).
const CLIENT_HELLO: u8 = 1;
/// The longest record (RFC 8446 §5.1).
const LONGEST_RECORD: usize = 1 << 14;
/// The longest ClientHello that is waited for. A hybrid one has 1.8 KB.
const LONGEST: usize = 1 << 15;
/// Type, version, length.
const HEADER: usize = 5;

/// Reads the records at the beginning of `bytes`.
pub(crate) fn read(bytes: &[u8]) -> First {
    let mut message = Vec::new();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        // The version is 3.1 to 3.4, also in later versions of TLS.
        if !rest.iter().zip([HANDSHAKE, 3]).all(|(byte, expected)| *byte == expected) {
            return First::Other;
        }
        let &[_, _, minor, high, low, ref body @ ..] = rest else { return First::Unfinished };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if !(1..=4).contains(&minor) || len == 0 || len > LONGEST_RECORD {
            return First::Other;
        }
        message.extend(body.iter().take(len));
        match (expected(&message), body.len() < len) {
            (Some(None), _) => return First::Other,
            (_, true) | (None, false) if message.len() > LONGEST => return First::Other,
            (_, true) => return First::Unfinished,
            (Some(Some(whole)), false) if message.len() > whole => return First::Other,
            (Some(Some(whole)), false) if message.len() == whole => return First::Hello(at + HEADER + len),
            (_, false) => at += HEADER + len,
        }
    }
}

/// The length of the message that begins here, with its header: `None` if that is not known yet, and an inner `None` if
/// the message is not a ClientHello.
fn expected(message: &[u8]) -> Option<Option<usize>> {
    if *message.first()? != CLIENT_HELLO {
        return Some(None);
    }
    let &[_, a, b, c, ..] = message else { return None };
    let len = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    Some(Some(len + 4).filter(|_| len + 4 <= LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A ClientHello with a body of `len` bytes, in records of at most `most` bytes.
    pub(crate) fn hello(len: usize, most: usize) -> Vec<u8> {
        let length = (len as u32).to_be_bytes();
        let message = [&[CLIENT_HELLO], &length[1..], &vec![7; len]].concat();
        let record = |part: &[u8]| {
            let length = (part.len() as u16).to_be_bytes();
            [&[HANDSHAKE, 3, 1], &length[..], part].concat()
        };
        message.chunks(most).flat_map(record).collect()
    }

    #[test]
    fn a_hello_is_whole_or_unfinished() {
        for (len, most) in
            [(240, LONGEST_RECORD), (1800, LONGEST_RECORD), (1800, 500), (5, 1), (20_000, 16_000)]
        {
            let whole = hello(len, most);
            assert_eq!(read(&whole), First::Hello(whole.len()));
            for cut in 0..whole.len() {
                assert_eq!(read(&whole[..cut]), First::Unfinished, "{cut} of {}", whole.len());
            }
            // Early data, and whatever else follows.
            let more = [&whole[..], &[23, 3, 3, 0, 9]].concat();
            assert_eq!(read(&more), First::Hello(whole.len()));
        }
    }

    #[test]
    fn what_is_no_hello() {
        let whole = hello(100, 1000);
        let with = |at: usize, byte: u8| {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            bytes
        };
        for (wrong, what) in [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "a request"),
            (b"SSH-2.0-x\r\n".to_vec(), "SSH"),
            (with(0, 23), "application data"),
            (with(1, 2), "SSL 2"),
            (with(2, 9), "an unknown version"),
            (with(5, 2), "a ServerHello"),
            (with(8, 99), "another message in the same record"),
            (vec![22, 3, 1, 0, 0], "an empty record"),
            (vec![22, 3, 1, 0xff, 0xff, 1], "a record that is too long"),
            (vec![22, 3, 1, 0x40, 0, 1, 0xff, 0, 0], "a ClientHello that is too long"),
        ] {
            assert_eq!(read(&wrong), First::Other, "{what}");
        }
        let half = [&hello(100, 60)[..65], &[23, 3, 3, 0, 1, 0]].concat();
        assert_eq!(read(&half), First::Other, "application data in the middle");
        assert_eq!(read(&[]), First::Unfinished);
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer_and_a_hello_is_within_them(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [&[22, 3, 1, 0][..], &bytes].concat();
            if let First::Hello(len) = read(&bytes) {
                prop_assert!(len <= bytes.len());
            }
        }
    }
}
