//! SYNs for listeners, and how the admission reads them.

use crate::flow::FlowKey;
use firstflight_credential::{Claim, FirstFlight, Flow, Presented};
use firstflight_wire::tcp::{FastOpen, Flags, Segment};
use firstflight_wire::{Instant, SeqNum};

/// A SYN for a listener.
pub(crate) struct Syn<'a> {
    /// The listener (index).
    pub listener: u32,
    pub key: FlowKey,
    /// The hash of its flow.
    pub hash: u64,
    pub segment: &'a Segment<'a>,
    /// It takes the place of a TIME-WAIT: our ISN must be above this.
    pub above: Option<SeqNum>,
    pub now: Instant,
}

impl<'a> Syn<'a> {
    /// In the form in which `admit` takes it. `fast_open` is its Fast Open option.
    #[inline]
    pub(crate) fn first_flight(&self, fast_open: Option<&'a FastOpen>) -> FirstFlight<'a> {
        FirstFlight {
            flow: Flow { client: self.key.remote_ip(), server: self.key.local_ip() },
            ports: (self.segment.src_port, self.segment.dst_port),
            isn: self.segment.seq,
            presented: fast_open.map_or(Presented::None, Presented::FastOpen),
            claim: Claim::None,
            offered: self.offered(),
            payload: self.segment.payload,
            relayed: false,
            syn_cookie_pressure: false,
        }
    }
}

/// Whether a segment is a client's first SYN.
pub(crate) fn is_first_syn(segment: &Segment<'_>) -> bool {
    let others = Flags::ACK.union(Flags::RST).union(Flags::FIN);
    segment.flags.contains(Flags::SYN) && !segment.flags.intersects(others)
}
