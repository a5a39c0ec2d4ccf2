//! Encodes 58 bytes in 60 octets of a name, so that they survive a change of the letters' case
//! (`docs/spec/dns-path.md`, section 6.2): in base 230, with all octets but `A` to `Z` as digits.

/// Octets written.
pub(crate) const SYMBOLS: usize = 60;
/// Bytes that they carry: 230⁶⁰ is between 2⁴⁷⁰ and 2⁴⁷¹, and these are 464 bits.
pub(crate) const BYTES: usize = 58;

const BASE: u32 = 230;
/// Three digits are processed at once: 230³ fits into 32 bits.
const CUBE: u64 = (BASE * BASE * BASE) as u64;
const UPPER_CASE: u8 = 26;
/// 60 bytes in numbers of 32 bits, the highest first. The first two bytes are 0.
const LIMBS: usize = 15;

/// The octet of a digit.
const fn octet(digit: u8) -> u8 {
    if digit < b'A' { digit } else { digit.wrapping_add(UPPER_CASE) }
}

/// The digit of an octet, in upper or lower case.
const fn digit(octet: u8) -> u8 {
    let octet = octet.to_ascii_lowercase();
    if octet < b'A' { octet } else { octet - UPPER_CASE }
}

pub(crate) fn encode(bytes: &[u8; BYTES]) -> [u8; SYMBOLS] {
    let mut whole = [0; 4 * LIMBS];
    whole[2..].copy_from_slice(bytes);
    let (words, _) = whole.as_chunks::<4>();
    let mut limbs = [0_u32; LIMBS];
    for (limb, word) in limbs.iter_mut().zip(words) {
        *limb = u32::from_be_bytes(*word);
    }
    let mut symbols = [0; SYMBOLS];
    let (groups, _) = symbols.as_chunks_mut::<3>();
    for group in groups.iter_mut().rev() {
        let mut rest = 0;
        for limb in &mut limbs {
            let value = rest << 32 | u64::from(*limb);
            // Below 2³², as `rest` is below the divisor.
            *limb = (value / CUBE) as u32;
            rest = value % CUBE;
        }
        let base = u64::from(BASE);
        *group = [rest / (base * base), rest / base % base, rest % base].map(|digit| octet(digit as u8));
    }
    symbols
}

/// `None` if the number does not fit into 58 bytes.
pub(crate) fn decode(symbols: &[u8; SYMBOLS]) -> Option<[u8; BYTES]> {
    let mut limbs = [0_u32; LIMBS];
    let (groups, _) = symbols.as_chunks::<3>();
    for group in groups {
        let mut carry =
            group.iter().fold(0, |value, &octet| value * u64::from(BASE) + u64::from(digit(octet)));
        for limb in limbs.iter_mut().rev() {
            let value = u64::from(*limb) * CUBE + carry;
            *limb = value as u32;
            carry = value >> 32;
        }
        // 230⁶⁰ is below 2⁴⁸⁰, so there is no carry out of the last limb.
    }
    let mut whole = [0; 4 * LIMBS];
    let (words, _) = whole.as_chunks_mut::<4>();
    for (word, limb) in words.iter_mut().zip(limbs) {
        *word = limb.to_be_bytes();
    }
    let ([0, 0], bytes) = whole.split_first_chunk()? else { return None };
    bytes.first_chunk().copied()
}

#[cfg(test)]
mod tests {
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
}
