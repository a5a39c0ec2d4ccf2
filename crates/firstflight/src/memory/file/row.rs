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
}
