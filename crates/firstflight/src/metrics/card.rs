//! What became of packets at a network card.

use super::CARD_DROPPED;
use firstflight_link::xdp::XdpStatus;
use metrics::counter;

/// Publishes the counters of a network card ([`XdpStatus`]) as `firstflight_card_packets_dropped_total`.
#[derive(Debug)]
pub struct CardPublisher(XdpStatus);

impl CardPublisher {
    /// A publisher for the device of `status`. It has not published anything yet.
    #[must_use]
    pub const fn new(status: XdpStatus) -> Self {
        Self(status)
    }

    /// Gives the recorder of the [`metrics`] crate the counters. When the device is no longer used, nothing changes.
    pub fn publish(&self) {
        for (reason, count) in self.0.counters().into_iter().flat_map(|counters| counters.named()) {
            counter!(CARD_DROPPED, "reason" => reason).absolute(count);
        }
    }
}
