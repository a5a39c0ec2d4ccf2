//! The reader of ClientHellos: more bytes never change what it said, what follows a ClientHello makes no difference, and where
//! rustls takes one, both read the same name.

use firstflight_http::hello::{FirstRead, LONGEST, look, sample};
use rustls::server::Acceptor;

/// Looks at `data` as it is, as a message in records, and as the extensions of a message.
pub fn run(data: &[u8]) {
    one(data);
    let Some((&size, body)) = data.split_first() else { return };
    one(&records(&message(body), size));
    one(&records(&message(&hello(body)), size));
    if let Ok(name) = std::str::from_utf8(body)
        && (1..300).contains(&name.len())
    {
        let whole = sample(name);
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let name = Some(name).filter(|name| !name.is_empty());
        assert_eq!(look(&whole), FirstRead::Hello { length: whole.len(), name });
        one(&whole);
    }
}

fn one(bytes: &[u8]) {
    let whole = look(bytes);
    let step = 1 + bytes.len() / 500;
    let mut last = FirstRead::More;
    for cut in (0..bytes.len()).step_by(step) {
        let part = look(&bytes[..cut]);
        assert!(last == FirstRead::More || part == last, "{last:?} became {part:?}");
        last = part;
    }
    assert!(last == FirstRead::More || whole == last, "{last:?} became {whole:?}");
    assert!(whole != FirstRead::More || bytes.len() < 2 * LONGEST, "it waits without a bound");
    let FirstRead::Hello { length, ref name } = whole else { return };
    assert!(length <= bytes.len());
    assert_eq!(look(&bytes[..length]), whole, "what follows makes a difference");
    assert_eq!(look(&bytes[..length - 1]), FirstRead::More);
    for behind in [&[22, 3, 1, 0, 1, 0][..], &[23, 3, 3, 0, 1, 0], b"GET / HTTP/1.1\r\n\r\n"] {
        assert_eq!(look(&[&bytes[..length], behind].concat()), whole, "what follows makes a difference");
    }
    if let Some(theirs) = read_by_rustls(&bytes[..length]) {
        let is_name = |name: &str| {
            let is_part = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            name.split('.').all(is_part) && name.parse::<std::net::IpAddr>().is_err()
        };
        match theirs {
            Some(theirs) => assert_eq!(name.as_ref(), Some(&theirs)),
            // It ignores what is no name.
            None => assert!(name.as_ref().is_none_or(|name| !is_name(name) || name.len() > 63)),
        }
    }
}

/// The name that rustls reads, if it takes the ClientHello.
fn read_by_rustls(bytes: &[u8]) -> Option<Option<String>> {
    let (mut acceptor, mut rest) = (Acceptor::default(), bytes);
    loop {
        match acceptor.accept() {
            Ok(None) if rest.is_empty() => return None,
            Ok(None) => _ = acceptor.read_tls(&mut rest).ok()?,
            Ok(Some(accepted)) => {
                return Some(accepted.client_hello().server_name().map(str::to_ascii_lowercase));
            }
            Err(_) => return None,
        }
    }
}

fn records(message: &[u8], size: u8) -> Vec<u8> {
    let size = if size == 0 { 1 << 14 } else { usize::from(size) };
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    message.chunks(size).flat_map(record).collect()
}

fn message(body: &[u8]) -> Vec<u8> {
    [&[1][..], &(body.len() as u32).to_be_bytes()[1..], body].concat()
}

/// A ClientHello with the extensions of TLS 1.3 that rustls needs, and those in `data`: a type, a length and a body, each.
fn hello(data: &[u8]) -> Vec<u8> {
    let mut extensions = Vec::new();
    for (kind, body) in [
        (10, &[0, 2, 0, 29][..]),
        (13, &[0, 2, 8, 4]),
        (43, &[2, 3, 4]),
        (51, &[&[0, 36, 0, 29, 0, 32][..], &[9; 32]].concat()),
    ] {
        extensions.extend((kind as u16).to_be_bytes());
        extensions.extend((body.len() as u16).to_be_bytes());
        extensions.extend(body);
    }
    let mut rest = data;
    while let [kind, length, behind @ ..] = rest {
        let (body, behind) = behind.split_at(behind.len().min(usize::from(*length)));
        extensions.extend(u16::from(*kind).to_be_bytes());
        extensions.extend((body.len() as u16).to_be_bytes());
        extensions.extend(body);
        rest = behind;
    }
    let fixed = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    [&fixed[..], &(extensions.len() as u16).to_be_bytes(), &extensions].concat()
}
