use super::*;
use alloc::format;
use alloc::string::ToString;
use proptest::prelude::*;

fn counting() -> FarmSecret {
    let bytes: Vec<u8> = (0..32).collect();
    FarmSecret::new("a", &bytes).unwrap()
}

/// ```python
/// import hashlib, hmac, struct
/// def key(secret, i):
///     prk = hmac.new(bytes(32), secret, hashlib.sha256).digest()
///     info = b"firstflight tfo key" + struct.pack(">Q", i)
///     return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()[:16].hex()
/// [key(bytes(range(32)), i) for i in (0, 1, 20833, 2**64 - 1)], key(bytes([255]) * 64, 20833)
/// ```
#[test]
fn keys_are_those_of_an_independent_hkdf() {
    let cases = [
        (0, 0x5b96c8c9b55c5d8a413c63853e30196f_u128),
        (1, 0xb2e5ceaff8a1398038b0905a948dec88),
        (20_833, 0xa73b126178a4758e8ed8d6c0f154c393),
        (u64::MAX, 0xaf839ee5f1cecb7845dd52b6e9611452),
    ];
    for (index, expected) in cases {
        assert_eq!(counting().cookie_key(index), CookieKey::from_bytes(expected.to_be_bytes()), "{index}");
    }
    let long = FarmSecret::new("b", &[255; 64]).unwrap().cookie_key(20_833);
    assert_eq!(long, CookieKey::from_bytes(0x29be56b2876745aeea73fecdc998192a_u128.to_be_bytes()));
}

/// `python3 -c 'print(bytes(range(32)).hex(), end="")' | sha256sum | cut -c1-16`
#[test]
fn a_fingerprint_is_the_begin_of_the_sha256_of_the_digits() {
    assert_eq!(counting().fingerprint().to_string(), "6c86c6aac5fb24bc");
}

#[test]
fn debug_shows_the_id_and_no_secret() {
    assert_eq!(format!("{:?}", counting()), "FarmSecret { id: \"a\", .. }");
}

#[test]
fn a_bad_line_says_what_is_wrong_and_quotes_nothing() {
    let digits = "ab".repeat(32);
    let cases = [
        (digits.clone(), SecretError::NoColon),
        (format!(":{digits}"), SecretError::Id),
        (format!("two words:{digits}"), SecretError::Id),
        (format!("{}:{digits}", "i".repeat(33)), SecretError::Id),
        (format!("a:{digits}a"), SecretError::HalfByte),
        (format!("a:+{}", digits.get(1..).unwrap()), SecretError::NotHexadecimal),
        (format!("a:{digits}é"), SecretError::NotHexadecimal),
        (format!("a:{}", "ab".repeat(31)), SecretError::Length { bytes: 31 }),
        (format!("a:{}", "ab".repeat(129)), SecretError::Length { bytes: 129 }),
        ("a:".to_string(), SecretError::Length { bytes: 0 }),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<FarmSecret>(), Err(error), "{text}");
        assert!(!error.to_string().contains("abab"), "{error}");
    }
}

#[test]
fn a_file_has_the_granting_secret_first_and_perhaps_another() {
    let line = |id: &str, byte: u8| FarmSecret::new(id, &[byte; 32]).unwrap();
    let [a, b, c] = [line("a", 1), line("b", 2), line("c", 3)];
    let text = |secrets: &[&FarmSecret]| {
        let lines = secrets.iter().map(|secret| format!("  {}\n\n", *secret.to_text()));
        lines.fold("# farm\n".to_string(), |text, line| text + &line)
    };
    assert_eq!(text(&[&a]).parse(), Ok(FarmSecrets::new(a.clone())));
    assert_eq!(text(&[&b, &a]).parse(), Ok(FarmSecrets { current: b.clone(), other: Some(a.clone()) }));
    assert_eq!("# farm\n".parse::<FarmSecrets>(), Err(SecretFileError::Empty));
    assert_eq!(text(&[&a, &b, &c]).parse::<FarmSecrets>(), Err(SecretFileError::TooMany { found: 3 }));
    assert_eq!(text(&[&a, &line("a", 9)]).parse::<FarmSecrets>(), Err(SecretFileError::SameId));
    assert_eq!(
        format!("{}oops", text(&[&a])).parse::<FarmSecrets>(),
        Err(SecretFileError::Line { line: 4, error: SecretError::NoColon })
    );
}

proptest! {
    #[test]
    fn text_round_trips(id in "[A-Za-z0-9._-]{1,32}", bytes in proptest::collection::vec(any::<u8>(), 32..=128)) {
        let secret = FarmSecret::new(&id, &bytes).unwrap();
        prop_assert_eq!(secret.to_text().to_uppercase().split_once(':').map(|(_, hex)| hex.len()), Some(bytes.len() * 2));
        prop_assert_eq!(secret.to_text().parse::<FarmSecret>(), Ok(secret));
    }

    #[test]
    fn parsing_never_panics(text in "\\PC{0,80}", lines in proptest::collection::vec("[a:# 0-9é]{0,80}", 0..4)) {
        let _ = text.parse::<FarmSecret>();
        let _ = lines.join("\n").parse::<FarmSecrets>();
    }

    #[test]
    fn other_numbers_and_other_secrets_give_other_keys(a: u64, b: u64, byte in 1u8..) {
        let other = FarmSecret::new("a", &[byte; 32]).unwrap();
        prop_assert_ne!(counting().cookie_key(a), other.cookie_key(a));
        prop_assert_eq!(counting().cookie_key(a) == counting().cookie_key(b), a == b);
    }
}
