//! The PROXY header: more bytes never change what was read, what follows a header makes no difference, and what is written is
//! read again.

use firstflight_http::proxy_header::{LONGEST, about, local, read};
use std::net::{IpAddr, SocketAddr};

/// Reads `data` as it is, behind a signature, and as what a header is to say.
pub fn run(data: &[u8]) {
    one(data);
    one(&repaired(data));
    written(data);
}

fn one(bytes: &[u8]) {
    let whole = read(bytes);
    let step = 1 + bytes.len() / 500;
    let mut last = Ok(None);
    for cut in (0..bytes.len()).step_by(step) {
        let part = read(&bytes[..cut]);
        assert!(last == Ok(None) || part == last, "{last:?} became {part:?}");
        last = part;
    }
    assert!(last == Ok(None) || whole == last, "{last:?} became {whole:?}");
    assert!(whole != Ok(None) || bytes.len() < LONGEST, "it waits without a bound");
    let Ok(Some(said)) = &whole else { return };
    assert!((16..=LONGEST.min(bytes.len())).contains(&said.length));
    assert_eq!(read(&bytes[..said.length]), whole);
    assert_eq!(read(&bytes[..said.length - 1]), Ok(None));
    assert_eq!(read(&[&bytes[..said.length], bytes].concat()), whole, "what follows makes a difference");
    if let Some((client, local)) = said.addresses {
        assert_eq!(client.is_ipv4(), local.is_ipv4());
    }
}

/// Behind the signature: version and command, family, the length, and the rest.
fn repaired(data: &[u8]) -> Vec<u8> {
    let Some((&[choice, family], body)) = data.split_first_chunk() else { return data.to_vec() };
    let kinds = [0x11, 0x21, 0x12, 0x31, 0x00, family];
    let length = (body.len() as u16).to_be_bytes();
    let head = [0x20 | (choice & 1), kinds[usize::from(choice >> 1) % kinds.len()], length[0], length[1]];
    [b"\r\n\r\n\0\r\nQUIT\n", &head[..], body, b"GET / HTTP/1.1\r\n"].concat()
}

fn written(data: &[u8]) {
    let Some((head, name)) = data.split_first_chunk::<41>() else { return };
    let address = |at: usize, is_v4: bool| -> SocketAddr {
        let bytes = &head[at..at + 18];
        let ip = if is_v4 {
            IpAddr::from(<[u8; 4]>::try_from(&bytes[..4]).unwrap())
        } else {
            IpAddr::from(<[u8; 16]>::try_from(&bytes[..16]).unwrap())
        };
        SocketAddr::new(ip, u16::from_be_bytes([bytes[16], bytes[17]]))
    };
    let (client, server) = (address(1, head[0] & 1 == 0), address(19, head[0] & 2 == 0));
    let early = u32::from_be_bytes(head[37..41].try_into().unwrap());
    let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty());
    let Ok(header) = about(client, server, name, early) else {
        assert!(name.is_some_and(|name| name.len() > LONGEST - 100), "a name that fits");
        return;
    };
    one(&header);
    let said = read(&header).unwrap().unwrap();
    assert_eq!((said.length, said.early_bytes), (header.len(), early));
    let (read_client, read_server) = said.addresses.unwrap();
    let canonical = |at: SocketAddr| (at.ip().to_canonical(), at.port());
    assert_eq!(canonical(read_client), canonical(client));
    assert_eq!(canonical(read_server), canonical(server));
    let own = local().unwrap();
    assert_eq!(read(&[&own[..], data].concat()).unwrap().unwrap().length, own.len());
}
