//! Bytes as hexadecimal digits.

use std::fmt::Write;
use zeroize::Zeroizing;

pub(crate) fn to_hex(bytes: &[u8]) -> Zeroizing<String> {
    // Room for all of it, so that growing leaves no copy behind.
    let mut text = Zeroizing::new(String::with_capacity(2 * bytes.len()));
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// `None` unless it is exactly `N` bytes.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = pair.iter().try_fold(0, |value: u8, digit| {
            let digit = char::from(*digit).to_digit(16)?;
            // Two digits at most, so it is below 256.
            Some((value << 4) | digit as u8)
        })?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        assert_eq!(&*to_hex(&[0, 0x7f, 0xff]), "007fff");
        assert_eq!(*from_hex::<3>("007fFF").unwrap(), [0, 0x7f, 0xff]);
        for bad in ["", "007ff", "007fff0", "007fg0", "00 fff", "+07fff", "éééé"] {
            assert!(from_hex::<3>(bad).is_none(), "{bad}");
        }
    }
}
