//! The initial values of connections in these tests.

use firstflight_tcp::Endpoints;
use firstflight_wire::{Instant, SeqNum};

/// The endpoints of a connection on a path with Ethernet's MTU, where no larger segments are tried.
pub(crate) fn ends(local_port: u16, remote_port: u16, isn: u32) -> Endpoints {
    Endpoints {
        local_port,
        remote_port,
        isn: SeqNum::new(isn),
        ts_offset: 5,
        default_mss: 536,
        path_mss: 1460,
        probe: [0; 3],
    }
}

/// The instant `n` milliseconds after the origin.
pub(crate) fn ms(n: u64) -> Instant {
    Instant::from_millis(n)
}
