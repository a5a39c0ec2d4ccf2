use super::*;
use crate::cookie_key::KeyParseError;
use alloc::format;
use alloc::string::ToString;
use proptest::prelude::*;

const FLOW: Flow = Flow {
    client: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    server: IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1)),
};

fn key(byte: u8) -> CookieKey {
    CookieKey::from_bytes([byte; 16])
}

#[test]
fn words_are_little_endian() {
    let key: CookieKey = "00010203-04050607-08090A0b-0c0d0e0f\n".parse().unwrap();
    assert_eq!(*key.as_bytes(), [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12]);
    assert_eq!(*key.to_text(), "00010203-04050607-08090a0b-0c0d0e0f");
}

#[test]
fn a_bad_text_says_what_is_wrong_and_quotes_nothing() {
    let cases = [
        ("", KeyParseError::Words { found: 1 }),
        ("a1a1a1a1-b2b2b2b2-c3c3c3c3", KeyParseError::Words { found: 3 }),
        ("a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4-", KeyParseError::Words { found: 5 }),
        ("a1a1a1a1-b2b2b2b2-c3c3c3-d4d4d4d4", KeyParseError::Length { word: 3, found: 6 }),
        ("a1a1a1a1-b2b2b2b2--d4d4d4d4", KeyParseError::Length { word: 3, found: 0 }),
        ("+1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4d4", KeyParseError::NotHexadecimal { word: 1 }),
        ("a1a1a1a1-b2b2b2b2-c3c3c3c3-d4d4d4g4", KeyParseError::NotHexadecimal { word: 4 }),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<CookieKey>(), Err(error), "{text}");
        assert!(!error.to_string().contains("b2b2b2b2"), "{error}");
    }
}

#[test]
fn debug_shows_no_secret() {
    let ring = KeyRing::new(Scheme::Linux, key(0xab)).with_backup(key(0xcd));
    let text = format!("{:?} {ring:?}", key(0xab));
    assert_eq!(text, "CookieKey(..) KeyRing { scheme: Linux, backups: 1, .. }");
}

#[test]
fn linux_takes_the_first_backup_and_its_own_function_only() {
    let ring = |scheme| KeyRing::new(scheme, key(1)).with_backup(key(2)).with_backup(key(3));
    assert_eq!(*KeyRing::new(Scheme::Linux, key(1)).to_linux().unwrap(), [1; 16]);
    assert_eq!(*ring(Scheme::Linux).to_linux().unwrap(), [[1; 16], [2; 16]].concat());
    assert_eq!(ring(Scheme::Paper).to_linux(), None);
}

#[test]
fn every_key_of_the_ring_is_accepted_and_no_other() {
    for scheme in [Scheme::Linux, Scheme::Paper] {
        let ring = KeyRing::new(scheme, key(1)).with_backup(key(2)).with_backup(key(3));
        let check = |byte| ring.check(&FLOW, &KeyRing::new(scheme, key(byte)).grant(&FLOW));
        assert_eq!(
            [check(1), check(2), check(3), check(4)],
            [Check::Primary, Check::Backup, Check::Backup, Check::No]
        );
    }
}

proptest! {
    #[test]
    fn text_round_trips(bytes: [u8; 16]) {
        let key = CookieKey::from_bytes(bytes);
        prop_assert_eq!(key.to_text().parse::<CookieKey>(), Ok(key));
    }

    #[test]
    fn parsing_never_panics(text in "\\PC{0,48}") {
        let _ = text.parse::<CookieKey>();
    }

    #[test]
    fn a_cookie_of_another_length_is_never_ours(bytes in proptest::collection::vec(any::<u8>(), 4..=16)) {
        let ring = KeyRing::new(Scheme::Linux, key(1));
        let granted = ring.grant(&FLOW);
        if let Some(cookie) = Cookie::new(&bytes) {
            let expected = if bytes == granted.as_bytes() { Check::Primary } else { Check::No };
            prop_assert_eq!(ring.check(&FLOW, &cookie), expected);
        }
        for len in [4, 6] {
            let cut = Cookie::new(&granted.as_bytes()[..len]).unwrap();
            prop_assert_eq!(ring.check(&FLOW, &cut), Check::No);
        }
    }
}
