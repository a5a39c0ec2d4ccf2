use super::*;
use proptest::prelude::*;

#[test]
fn the_digits_are_all_octets_but_upper_case_in_order() {
    let octets: Vec<u8> = (0..=229).map(octet).collect();
    let expected: Vec<u8> = (0..=255).filter(|octet: &u8| !octet.is_ascii_uppercase()).collect();
    assert_eq!(octets, expected);
    assert!((0..=229).all(|value| digit(octet(value)) == value));
    assert!((0..=255).all(|octet| digit(octet) < 230));
}

#[test]
fn the_ends_of_the_range() {
    assert_eq!(encode(&[0; BYTES]), [0; SYMBOLS]);
    let mut one = [0; BYTES];
    one[BYTES - 1] = 1;
    let mut symbols = [0; SYMBOLS];
    symbols[SYMBOLS - 1] = 1;
    assert_eq!(encode(&one), symbols);
    let largest = encode(&[0xff; BYTES]);
    assert_eq!(decode(&largest), Some([0xff; BYTES]));
    // The next number is too large, and so is the largest number of 60 digits.
    let mut next = largest;
    next[SYMBOLS - 1] = octet(digit(next[SYMBOLS - 1]) + 1);
    assert!(digit(largest[SYMBOLS - 1]) < 229 && decode(&next).is_none());
    assert_eq!(decode(&[0xff; SYMBOLS]), None);
}

proptest! {
    #[test]
    fn what_was_written_is_read(bytes: [u8; BYTES]) {
        let symbols = encode(&bytes);
        prop_assert!(!symbols.iter().any(u8::is_ascii_uppercase));
        prop_assert_eq!(decode(&symbols), Some(bytes));
        prop_assert_eq!(decode(&symbols.map(|octet| octet.to_ascii_uppercase())), Some(bytes));
    }

    #[test]
    fn what_is_read_is_written_the_same(mut symbols: [u8; SYMBOLS], small: bool) {
        // Without this, most numbers are too large.
        if small {
            symbols[0] = 0;
        }
        prop_assert!(!small || decode(&symbols).is_some());
        if let Some(bytes) = decode(&symbols) {
            prop_assert_eq!(encode(&bytes), symbols.map(|octet| octet.to_ascii_lowercase()));
        }
    }
}
