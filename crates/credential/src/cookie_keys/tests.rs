use super::*;
use alloc::string::ToString;
use proptest::prelude::*;

const ONE: &str = "00010203-04050607-08090a0b-0c0d0e0f";
const TWO: &str = "10111213-14151617-18191a1b-1c1d1e1f";

#[test]
fn the_kernels_text_has_one_key_or_two() {
    let both = alloc::format!("{ONE},{TWO}\n").parse::<CookieKeys>().unwrap();
    let (one, two): (CookieKey, CookieKey) = (ONE.parse().unwrap(), TWO.parse().unwrap());
    assert_eq!(both, CookieKeys::new(one.clone()).with_backup(two));
    assert_eq!(*both.to_text(), alloc::format!("{ONE},{TWO}"));
    assert_eq!(alloc::format!(" {ONE}\n").parse(), Ok(CookieKeys::new(one)));
}

#[test]
fn a_bad_list_says_what_is_wrong() {
    let three = alloc::format!("{ONE},{TWO},{ONE}").parse::<CookieKeys>().unwrap_err();
    assert_eq!(three, KeyParseError::TooMany { found: 3 });
    assert!(three.to_string().ends_with("found 3 keys, not one, or two with a comma between"));
    assert_eq!(alloc::format!("{ONE},").parse::<CookieKeys>(), Err(KeyParseError::Words { found: 1 }));
    assert_eq!("".parse::<CookieKeys>(), Err(KeyParseError::Words { found: 1 }));
}

/// `printf 00010203-04050607-08090a0b-0c0d0e0f | sha256sum | cut -c1-16`
#[test]
fn a_fingerprint_is_the_begin_of_the_sha256_of_the_text() {
    let key: CookieKey = ONE.parse().unwrap();
    assert_eq!(key.fingerprint().to_string(), "bd7a26b655f4fb97");
}

#[test]
fn the_ring_grants_with_the_primary_and_accepts_all() {
    let key = |byte| CookieKey::from_bytes([byte; 16]);
    let flow = crate::Flow { client: [192, 0, 2, 1].into(), server: [192, 0, 2, 2].into() };
    let ring = CookieKeys::new(key(1)).with_backup(key(2)).with_backup(key(3)).ring(Scheme::Linux);
    let check = |byte| ring.check(&flow, &KeyRing::new(Scheme::Linux, key(byte)).grant(&flow));
    assert_eq!(
        [1, 2, 3, 4].map(check),
        [crate::Check::Primary, crate::Check::Backup, crate::Check::Backup, crate::Check::No]
    );
}

proptest! {
    #[test]
    fn text_round_trips(primary: [u8; 16], backup: Option<[u8; 16]>) {
        let mut keys = CookieKeys::new(CookieKey::from_bytes(primary));
        keys.backups.extend(backup.map(CookieKey::from_bytes));
        prop_assert_eq!(keys.to_text().parse::<CookieKeys>(), Ok(keys));
    }
}
