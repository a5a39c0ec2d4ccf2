//! What every entry of the file has.

use firstflight_credential::NetworkId;
use std::hash::Hash;
use std::net::IpAddr;

/// One entry of a subject.
pub(crate) trait Row: Clone + PartialEq {
    /// What it is about.
    type Key: Clone + Eq + Hash;
    /// The most in a file. The ones that were written first are left out.
    const MOST: usize;

    fn key(&self) -> Self::Key;
    /// Where it was learnt.
    fn network(&self) -> NetworkId;
    /// The server's address, if it is about one.
    fn ip(&self) -> Option<IpAddr> {
        None
    }
    /// When it counts no more.
    fn until(&self) -> Option<u64>;

    /// How far ahead that is at most, milliseconds; `None` if there is another bound.
    fn longest() -> Option<u64> {
        None
    }

    /// Whether it counts at `now`: its time is not over, and it is not of a clock that was ahead.
    fn counts(&self, now: u64) -> bool {
        // Two clocks of one host differ a little.
        let most = Self::longest().map(|longest| now.saturating_add(longest + 60_000));
        let in_time = |until: u64| now < until && most.is_none_or(|most| until <= most);
        self.network().is_known() && self.until().is_none_or(in_time)
    }
}
