//! Hints about which way a branch usually goes. Rare code is laid out apart from the usual code. The packet
//! path then needs fewer lines of the instruction cache, and saves fewer registers for rare code.

use core::hint::cold_path;

/// Returns `value`, which is usually `Some`.
#[inline]
#[must_use]
pub fn expected<T>(value: Option<T>) -> Option<T> {
    if value.is_none() {
        cold_path();
    }
    value
}

/// Returns `condition`, which is usually true.
#[inline]
#[must_use]
pub const fn likely(condition: bool) -> bool {
    if !condition {
        cold_path();
    }
    condition
}

/// Returns `condition`, which is usually false.
#[inline]
#[must_use]
pub const fn unlikely(condition: bool) -> bool {
    if condition {
        cold_path();
    }
    condition
}
