//! Secrets as text.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use zeroize::Zeroizing;

/// A secret as hexadecimal digits. The returned memory is wiped when it is dropped.
#[must_use]
pub fn to_hex(secret: &[u8]) -> Zeroizing<String> {
    // Reserve the whole length, because growing would leave a copy of the secret in memory.
    let mut digits = Zeroizing::new(String::with_capacity(2 * secret.len()));
    HEXLOWER.encode_append(secret, &mut digits);
    digits
}

/// The secret of these digits, in upper or lower case. `None` unless there are exactly `N` bytes.
#[must_use]
pub fn from_hex<const N: usize>(digits: &str) -> Option<Zeroizing<[u8; N]>> {
    if digits.len() != 2 * N {
        return None;
    }
    let mut secret = Zeroizing::new([0; N]);
    HEXLOWER_PERMISSIVE.decode_mut(digits.as_bytes(), &mut *secret).ok()?;
    Some(secret)
}
