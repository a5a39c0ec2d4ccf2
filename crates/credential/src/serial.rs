//! The numbers of one-time cookies.

use core::num::NonZeroU64;

const COUNTER_BITS: u32 = 48;
/// The largest counter.
pub(crate) const COUNTER: u64 = (1 << COUNTER_BITS) - 1;

/// The number of a one-time cookie: its issuer (16 bits) and a counter (48 bits, from 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Serial(NonZeroU64);

impl Serial {
    /// The serial of an issuer and a counter. `None` if the counter is 0 or needs more than 48 bits.
    #[must_use]
    pub fn new(issuer: u16, counter: u64) -> Option<Self> {
        if counter > COUNTER {
            return None;
        }
        Self::from_u64(u64::from(issuer) << COUNTER_BITS | counter)
    }

    /// The serial with this 64-bit value. `None` if its counter is 0.
    #[must_use]
    pub fn from_u64(value: u64) -> Option<Self> {
        if value & COUNTER == 0 { None } else { NonZeroU64::new(value).map(Self) }
    }

    /// The 64-bit value.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The issuer: a server, or a shard of one.
    #[must_use]
    pub const fn issuer(self) -> u16 {
        (self.get() >> COUNTER_BITS) as u16
    }

    /// The counter.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.get() & COUNTER
    }
}
