//! The connections of a capture. The table keeps a limited number of them.

use super::conversation::{Conversation, ConversationSide};
use super::frame::{self, Content, FrameEnd};
use super::sightings::Sighting;
use firstflight_wire::icmp::IcmpError;
use firstflight_wire::tcp::Segment;
use lru::LruCache;

/// Maximum number of connections kept. They take about 50 MB.
pub(crate) const CONNECTIONS: usize = 65_536;

/// The two ends of a connection, in sorted order. As in the stack, a connection in UDP belongs to its UDP ports: the
/// same TCP ports with other UDP ports are another connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlowEnds {
    low: FrameEnd,
    high: FrameEnd,
}

impl FlowEnds {
    /// The ends of a packet, and which of them sent it.
    pub(crate) fn of(src: FrameEnd, dst: FrameEnd) -> (Self, ConversationSide) {
        if src <= dst {
            (Self { low: src, high: dst }, ConversationSide::Low)
        } else {
            (Self { low: dst, high: src }, ConversationSide::High)
        }
    }

    /// Whether the connection is in UDP.
    pub(crate) fn in_udp(&self) -> bool {
        self.low.udp_port.is_some()
    }

    /// One of the two ends.
    pub(crate) fn end(&self, side: ConversationSide) -> FrameEnd {
        match side {
            ConversationSide::Low => self.low,
            ConversationSide::High => self.high,
        }
    }
}

/// A connection that is complete.
pub(crate) type DoneConnection = (FlowEnds, Conversation);

/// The connections that were seen recently.
pub(crate) struct Table {
    connections: LruCache<FlowEnds, Conversation>,
    limit: usize,
}

impl Table {
    /// Keeps at most `limit` connections.
    pub(crate) fn new(limit: usize) -> Self {
        Self { connections: LruCache::unbounded(), limit }
    }

    /// Records a frame's content. Returns a connection that was removed: the one that had no segment for the longest
    /// time, or an earlier one between the same ports.
    pub(crate) fn handle(&mut self, seen: Sighting, content: &Content<'_>) -> Option<DoneConnection> {
        match content {
            Content::Tcp(src, dst, segment) => self.handle_segment(seen, *src, *dst, segment),
            Content::Icmp(error) => {
                self.handle_icmp(error);
                None
            }
        }
    }

    fn handle_segment(
        &mut self,
        seen: Sighting,
        src: FrameEnd,
        dst: FrameEnd,
        segment: &Segment<'_>,
    ) -> Option<DoneConnection> {
        let (ends, from) = FlowEnds::of(src, dst);
        if let Some(conversation) = self.connections.get_mut(&ends) {
            if conversation.owns(seen.at, from, segment) {
                conversation.handle_segment(seen, from, segment);
                return None;
            }
            let new = Conversation::new(seen, from, segment);
            return Some((ends, std::mem::replace(conversation, new)));
        }
        let oldest = (self.connections.len() >= self.limit).then(|| self.connections.pop_lru()).flatten();
        self.connections.put(ends, Conversation::new(seen, from, segment));
        oldest
    }

    fn handle_icmp(&mut self, error: &IcmpError<'_>) {
        let Some((src, dst, seq)) = frame::quoted(error) else { return };
        let (ends, from) = FlowEnds::of(src, dst);
        // Use `peek`, which does not count as a use: forged errors must not keep a connection in the table.
        if let Some(conversation) = self.connections.peek_mut(&ends) {
            conversation.handle_icmp(from, seq, error.kind);
        }
    }

    /// The remaining connections, in the order in which they began.
    pub(crate) fn finish(mut self) -> impl Iterator<Item = DoneConnection> {
        let mut left: Vec<_> = self.connections.iter().map(|(ends, c)| (c.began(), *ends)).collect();
        left.sort_by_key(|(began, _)| *began);
        left.into_iter().filter_map(move |(_, ends)| self.connections.pop_entry(&ends))
    }
}
