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
mod tests;
