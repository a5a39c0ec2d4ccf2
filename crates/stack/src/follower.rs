//! First flights longer than one datagram, in UDP: segments without ACK that follow the SYN at once
//! (`docs/spec/asap.md` section 8).
//!
//! They are as good as their SYN: a child that takes that takes them ([`Connection::handle_segment`]), with a SYN
//! that waits they wait, with one that is refused they are dropped, and without one they are nothing. The client
//! has them until they are acknowledged.
//!
//! [`Connection::handle_segment`]: firstflight_tcp::Connection::handle_segment

use crate::config::ConnectConfig;
use crate::event::Drop;
use crate::flow::FlowKey;
use crate::stack::Stack;
use alloc::vec::Vec;
use firstflight_wire::hint::likely;
use firstflight_wire::tcp::{Header, Segment};
use firstflight_wire::{Instant, carrier};

/// Largest payload of the segments that follow a SYN with a credential, 0 if nothing may: on raw IP boxes drop what
/// has no ACK. `mss` is the server's as learnt, if it is.
pub(crate) fn follow(config: &ConnectConfig, key: &FlowKey, mss: Option<u16>) -> u16 {
    if likely(!key.is_carried()) {
        return 0;
    }
    let once = config.asap.as_ref().is_some_and(|certified| certified.once);
    let published = config.asap.as_ref().and_then(|certified| certified.mss);
    let mss = published.or(mss).unwrap_or(carrier::BASE_MSS);
    if config.replay_safe || once { mss } else { 0 }
}

/// The bytes of `segment`; `None` if its options are not whole words.
pub(crate) fn copy_of(segment: &Segment<'_>) -> Option<Vec<u8>> {
    let mut bytes = alloc::vec![0; 60 + segment.payload.len()];
    let header = Header {
        src_port: segment.src_port,
        dst_port: segment.dst_port,
        seq: segment.seq,
        ack: segment.ack,
        flags: segment.flags,
        window: segment.window,
        urgent: segment.urgent,
    };
    let at = header.emit(segment.options.raw, &mut bytes).ok()?;
    bytes.truncate(at + segment.payload.len());
    bytes.get_mut(at..)?.copy_from_slice(segment.payload);
    Some(bytes)
}

impl Stack {
    /// What may follow a SYN of no connection: kept if that one waits, else dropped in silence. Its sender has
    /// no answer yet, so a RST would end its connection; it sends it again.
    pub(crate) fn handle_follower(&mut self, key: &FlowKey, segment: &Segment<'_>) {
        let waits = self.parked.find(key).map(|(job, _)| job);
        let kept = waits
            .is_some_and(|job| copy_of(segment).is_some_and(|bytes| self.parked.follow(job, segment, bytes)));
        if !kept {
            self.drop_packet(Drop::Follower);
        }
    }

    /// What followed the SYN of a child that begins, while that waited.
    pub(crate) fn take_followers(&mut self, key: &FlowKey, followers: &[Vec<u8>], now: Instant) {
        let Some(child) = self.find(key) else { return };
        for segment in followers.iter().filter_map(|bytes| Segment::parse(bytes).ok()) {
            self.deliver(child, &segment, now);
        }
    }
}
