//! The id of a pair of UDP ports.

use core::num::NonZeroU32;

/// A pair of UDP ports in the encapsulation's slab: its index plus one, so that an `Option` of it takes no more space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PairId(NonZeroU32);

impl PairId {
    pub(crate) fn of(index: u32) -> Option<Self> {
        NonZeroU32::new(index.wrapping_add(1)).map(Self)
    }

    pub(crate) fn index(self) -> u32 {
        self.0.get() - 1
    }
}
