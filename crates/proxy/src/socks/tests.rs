use super::*;
use proptest::prelude::*;

fn ask(kind: u8, address: &[u8], port: u16) -> Vec<u8> {
    [&[5, 1, 0, kind], address, &port.to_be_bytes()].concat()
}

#[test]
fn each_kind_of_address_is_read_whole_and_not_before() {
    let v6 = "2001:db8::1".parse::<Ipv6Addr>().unwrap().octets();
    let name = b"www.Example.com";
    let named = [&[name.len() as u8], &name[..]].concat();
    for (bytes, expected) in [
        (ask(1, &[192, 0, 2, 1], 80), "192.0.2.1:80"),
        (ask(3, &named, 443), "www.example.com:443"),
        (ask(4, &v6, 443), "[2001:db8::1]:443"),
        // Programs write an address as a name, too.
        (ask(3, b"\x09192.0.2.1", 1), "192.0.2.1:1"),
    ] {
        let (server, len) = request(&bytes).unwrap().unwrap();
        assert_eq!((server.to_string().as_str(), len), (expected, bytes.len()));
        for cut in 0..bytes.len() {
            assert_eq!(request(&bytes[..cut]), Ok(None), "{cut} of {expected}");
        }
        assert!(bytes.len() <= LONGEST);
    }
    let longest = [&[255], &[b'a'; 255][..]].concat();
    assert_eq!(ask(3, &longest, 1).len(), LONGEST);
}

#[test]
fn what_is_not_supported_gets_its_code() {
    let code = |error: SocksError| error.answer().map(|answer| answer[1]);
    let refused = |bytes: &[u8]| code(request(bytes).unwrap_err());
    assert_eq!(refused(&[5, 2, 0, 1]), Some(7), "BIND");
    assert_eq!(refused(&[5, 3, 0, 1]), Some(7), "UDP");
    assert_eq!(refused(&[5, 1, 0, 2, 0]), Some(8), "an unknown type");
    assert_eq!(refused(&ask(1, &[1, 1, 1, 1], 0)), Some(4), "port 0");
    assert_eq!(refused(&ask(3, b"\x03a b", 80)), Some(4), "a name with a space");
    assert_eq!(refused(&ask(3, b"\x00", 80)), Some(4), "no name");
    assert_eq!(refused(&ask(3, b"\x04127.", 80)), Some(4), "half an address");
    assert_eq!(refused(&ask(3, b"\x02\xff\xfe", 80)), Some(4), "not UTF-8");
    assert_eq!(refused(b"GET"), None);
    assert_eq!(code(greeting(&[5, 1, 2]).unwrap_err()), Some(0xff), "a password only");
    assert_eq!(greeting(&[5, 2, 2, 0]), Ok(Some(4)));
    assert_eq!(greeting(&[5, 0]), Err(SocksError::Method));
    assert_eq!(greeting(&[5, 2, 0]), Ok(None));
    assert_eq!(greeting(&[4, 1]), Err(SocksError::Version));
}

#[test]
fn replies_are_as_rfc_1928_has_them() {
    assert_eq!(reply(Code::Succeeded), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(reply(Code::TimedOut)[1], 6);
}

proptest! {
    #[test]
    fn any_bytes_have_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for bytes in [bytes.clone(), [&[5, 1, 0], &bytes[..]].concat()] {
            if let Ok(Some(len)) = greeting(&bytes) {
                prop_assert!(len <= bytes.len());
            }
            match request(&bytes) {
                Ok(Some((_, len))) => prop_assert!(len <= bytes.len()),
                // More than the longest request is one, or none.
                Ok(None) => prop_assert!(bytes.len() < LONGEST),
                Err(_) => {}
            }
        }
    }
}
