//! How much memory incomplete packets may take.

use core::time::Duration;
use firstflight_wire::setters;

/// How much memory incomplete packets may take, and for how long they are kept.
///
/// Anyone can send fragments, from any address. When the memory is used up, the oldest packet is given up: the
/// fragments of an honest packet arrive close together, so it is complete before it becomes the oldest. Packets longer
/// than the link's MTU and longer than 1,500 bytes are refused; a peer that keeps to the announced MSS sends none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FragmentLimits {
    /// Bytes of all incomplete packets together, including what is needed to keep track of them. 0 drops all fragments.
    pub bytes: usize,
    /// Bytes of the incomplete packets of one source (an IPv4 address, an IPv6 /64). Beyond this the source's own
    /// oldest packet is given up.
    pub bytes_per_source: usize,
    /// Fragments of one packet. A packet with more fragments is given up. On a path of the smallest MTU that is legal
    /// in IPv4, 68 bytes, a packet of 1,500 bytes has 31.
    pub per_packet: usize,
    /// How long after its first fragment a packet is given up. RFC 791 §3.2 says 15 s, RFC 8200 §4.5 at most 60 s;
    /// Linux takes 30 s and 60 s. The shorter it is, the fewer old fragments meet an identification that is used again
    /// (RFC 4963).
    pub lifetime: Duration,
}

setters! {
    FragmentLimits {
        bytes: usize,
        bytes_per_source: usize,
        per_packet: usize,
        lifetime: Duration,
    }
}

impl FragmentLimits {
    /// Drops all fragments.
    pub const OFF: Self = Self { bytes: 0, bytes_per_source: 0, per_packet: 0, lifetime: Duration::ZERO };
}

impl Default for FragmentLimits {
    /// 4 MiB, as Linux' `ipfrag_high_thresh`; a sixteenth of it for each source; 64 fragments; 15 s.
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            bytes_per_source: 256 << 10,
            per_packet: 64,
            lifetime: Duration::from_secs(15),
        }
    }
}
