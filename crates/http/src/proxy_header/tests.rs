#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

#[test]
fn what_is_written_is_read() {
    for (client, local) in [("192.0.2.1:1", "192.0.2.2:443"), ("[2001:db8::1]:1", "[2001:db8::2]:443")] {
        let (client, local): (SocketAddr, SocketAddr) = (client.parse().unwrap(), local.parse().unwrap());
        for early_bytes in [0, 1, 70_000] {
            let header = about(client, local, Some("www.example.com"), early_bytes).unwrap();
            let length = header.len();
            let said = Said { addresses: Some((client, local)), early_bytes, length };
            assert_eq!(read(&[&header[..], b"GET"].concat()), Ok(Some(said)));
            for cut in 0..length {
                assert_eq!(read(&header[..cut]), Ok(None), "{cut} bytes");
            }
        }
    }
    let header = local().unwrap();
    assert_eq!(header.len(), 16);
    assert_eq!(read(&header), Ok(Some(Said { addresses: None, early_bytes: 0, length: 16 })));
}

#[test]
fn no_header_is_written_that_is_too_long_to_be_read() {
    let (client, local): (SocketAddr, SocketAddr) =
        ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:443".parse().unwrap());
    for length in [0, 255, 4000, LONGEST, 60_000, 70_000] {
        if let Ok(header) = about(client, local, Some(&"a".repeat(length)), 1) {
            assert_eq!(read(&header).unwrap().unwrap().length, header.len(), "a name of {length}");
        } else {
            assert!(length >= LONGEST, "a name of {length}");
        }
    }
}

#[test]
fn addresses_of_two_families_become_ipv6() {
    let header = about("192.0.2.1:1".parse().unwrap(), "[::1]:2".parse().unwrap(), None, 0).unwrap();
    let said = read(&header).unwrap().unwrap();
    assert_eq!(said.addresses.unwrap().0, "[::ffff:192.0.2.1]:1".parse().unwrap());
    let header = about("[::ffff:192.0.2.1]:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap(), None, 0);
    let said = read(&header.unwrap()).unwrap().unwrap();
    assert_eq!(said.addresses.unwrap().0, "192.0.2.1:1".parse().unwrap());
}

#[test]
fn anything_else_is_refused() {
    assert_eq!(read(b"GET / HTTP/1.1\r\n"), Err(NoHeader::Wrong));
    assert_eq!(read(b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"), Err(NoHeader::Wrong));
    let mut long = local().unwrap();
    long[14..16].copy_from_slice(&60_000_u16.to_be_bytes());
    assert_eq!(read(&long), Ok(None));
    long.resize(LONGEST, 0);
    assert_eq!(read(&long), Err(NoHeader::TooLong));
    long.resize(60_016, 0);
    assert_eq!(read(&long), Err(NoHeader::TooLong));
    // An entry of early bytes with another length.
    let addresses: (SocketAddr, SocketAddr) =
        ("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap());
    let header = Builder::with_addresses(0x21, Protocol::Stream, addresses)
        .write_tlv(EARLY_BYTES, &[1])
        .unwrap()
        .build()
        .unwrap();
    assert_eq!(read(&header), Err(NoHeader::Wrong));
    for at in 0..16 {
        for bit in 0..8 {
            let mut damaged =
                about("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap(), None, 9).unwrap();
            damaged[at] ^= 1 << bit;
            let _ = read(&damaged);
        }
    }
}
