//! What became of packets at a network card.

use firstflight_link::xdp::XdpStatus;
use metrics::{counter, describe_counter};

const DROPPED: &str = "firstflight_card_packets_dropped_total";

/// Publishes the counters of a network card ([`XdpStatus`]) as `firstflight_card_packets_dropped_total`.
#[derive(Debug)]
pub struct CardPublisher(XdpStatus);

impl CardPublisher {
    /// A publisher for the device of `status`. It describes the series, and has not published anything yet.
    #[must_use]
    pub fn new(status: XdpStatus) -> Self {
        describe_counter!(DROPPED, "Packets dropped at the network card, by reason");
        Self(status)
    }

    /// Gives the recorder of the [`metrics`] crate the counters. When the device is no longer used, nothing changes.
    pub fn publish(&self) {
        for (reason, count) in self.0.counters().into_iter().flat_map(|counters| counters.named()) {
            counter!(DROPPED, "reason" => reason).absolute(count);
        }
    }
}
