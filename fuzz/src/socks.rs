//! The reader of SOCKS5: more bytes never change what was read, and what follows a message makes no difference.

use firstflight_proxy::socks::{Code, LONGEST, SocksError, greeting, reply, request};
use std::fmt::Debug;

/// Reads `data` as a greeting and as a request, as it is and behind the bytes with which they begin.
pub fn run(data: &[u8]) {
    for bytes in [data, &[&[5][..], data].concat(), &[&[5, 1, 0][..], data].concat()] {
        one(bytes, greeting, |length| *length);
        one(bytes, request, |(_, length)| *length);
        again(bytes);
    }
}

type Read<T> = Result<Option<T>, SocksError>;

fn one<T: PartialEq + Debug>(bytes: &[u8], read: fn(&[u8]) -> Read<T>, length: fn(&T) -> usize) {
    let whole = read(bytes);
    let mut last = Ok(None);
    for cut in 0..bytes.len().min(2 * LONGEST) {
        let part = read(&bytes[..cut]);
        assert!(last == Ok(None) || part == last, "{last:?} became {part:?}");
        last = part;
    }
    assert!(last == Ok(None) || whole == last, "{last:?} became {whole:?}");
    match &whole {
        Ok(Some(found)) => {
            let length = length(found);
            assert!(length <= bytes.len().min(LONGEST));
            assert_eq!(read(&bytes[..length]), whole);
            assert_eq!(read(&bytes[..length - 1]), Ok(None));
        }
        Ok(None) => assert!(bytes.len() < LONGEST, "it waits without a bound"),
        Err(error) => {
            let answer = error.answer();
            assert!(answer.is_none_or(|answer| answer[0] == 5 && answer[1] != 0), "{answer:?}");
            assert_eq!(answer.is_none(), *error == SocksError::Version);
        }
    }
}

/// A server is the same one if it is asked for by what was read of it.
fn again(bytes: &[u8]) {
    let Ok(Some((server, _))) = request(bytes) else { return };
    let text = server.to_string();
    let (name, port) = text.rsplit_once(':').unwrap();
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let port: u16 = port.parse().unwrap();
    assert_ne!(port, 0);
    let asked = [&[5, 1, 0, 3, name.len() as u8][..], name.as_bytes(), &port.to_be_bytes()].concat();
    assert_eq!(request(&asked), Ok(Some((server, asked.len()))), "{text}");
    assert_eq!(reply(Code::Succeeded)[..2], [5, 0]);
}
