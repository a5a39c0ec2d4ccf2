//! Sequence numbers: arithmetic modulo 2³² (RFC 9293 §3.4).

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence number.
///
/// There is no `PartialOrd`: "before" on a circle is not transitive (0 is before 2³⁰·1.5, which is before
/// 2³⁰·3, which is before 0), so sorting and `BTreeMap` keys would be silently wrong. The methods
/// [`lt`](Self::lt), [`le`](Self::le), [`gt`](Self::gt) and [`ge`](Self::ge) compare numbers that are less than
/// 2³¹ apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNum(u32);

impl SeqNum {
    /// The sequence number with this value on the wire.
    #[inline]
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// The value on the wire.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Whether `self` is before `other`.
    #[inline]
    #[must_use]
    pub const fn lt(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` is before `other` or equal to it.
    #[inline]
    #[must_use]
    pub const fn le(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) <= 0
    }

    /// Whether `self` is after `other`.
    #[inline]
    #[must_use]
    pub const fn gt(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// Whether `self` is after `other` or equal to it.
    #[inline]
    #[must_use]
    pub const fn ge(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) >= 0
    }

    /// The earlier of the two.
    #[inline]
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if other.lt(self) { other } else { self }
    }

    /// The later of the two.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if other.gt(self) { other } else { self }
    }

    /// The number of steps from `earlier` up to `self`, modulo 2³².
    #[inline]
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether `self` is one of the `len` numbers that begin at `start`.
    #[inline]
    #[must_use]
    pub const fn in_window(self, start: Self, len: u32) -> bool {
        self.distance_from(start) < len
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;

    #[inline]
    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl AddAssign<u32> for SeqNum {
    #[inline]
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub<u32> for SeqNum {
    type Output = Self;

    #[inline]
    fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

/// The signed distance: negative if `self` is before `other`.
impl Sub for SeqNum {
    type Output = i32;

    #[inline]
    fn sub(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
