//! Which way a branch mostly goes. What rarely happens is laid out apart from what always does: the packet path then
//! needs fewer lines of the instruction cache, and saves fewer registers for what does not come.

use core::hint::cold_path;

/// Empties a place that is mostly empty, without the call that dropping nothing would be.
#[inline(always)]
pub fn vacate<T>(place: &mut Option<T>) {
    if unlikely(place.is_some()) {
        *place = None;
    }
}

/// `value`, which is mostly there.
#[inline(always)]
#[must_use]
pub fn expected<T>(value: Option<T>) -> Option<T> {
    if value.is_none() {
        cold_path();
    }
    value
}

/// `condition`, which is mostly true.
#[inline(always)]
#[must_use]
pub const fn likely(condition: bool) -> bool {
    if !condition {
        cold_path();
    }
    condition
}

/// `condition`, which is mostly false.
#[inline(always)]
#[must_use]
pub const fn unlikely(condition: bool) -> bool {
    if condition {
        cold_path();
    }
    condition
}
