//! What leaves the stack: first the answers that need no connection, then the connections in turn.

mod headers;
mod reply;

use crate::event::PacketDrop;
use crate::flow::FlowKey;
use crate::journal::Journal;
use crate::queue::Queue;
use alloc::collections::VecDeque;
use alloc::vec;
use firstflight_wire::ip::Ecn;
use firstflight_wire::udp;

pub(crate) use reply::{Reply, header};

/// Packets that one connection may send before the turn of the next one.
const BURST: u32 = 16;

/// What waits to be sent.
#[derive(Debug)]
pub(crate) struct Outbox {
    replies: VecDeque<Reply>,
    most_replies: usize,
    /// Connections (index) that may have something to send.
    turns: Queue<u32>,
    /// Packets that the first of them has sent in its turn.
    burst: u32,
    /// The hop limit of all packets.
    hop_limit: u8,
    /// The link is a UDP socket, which computes the checksum of UDP.
    from_socket: bool,
}

impl Outbox {
    pub(crate) fn new(most_replies: usize, hop_limit: u8, from_socket: bool) -> Self {
        let (replies, turns) = (VecDeque::new(), Queue::default());
        Self { replies, most_replies, turns, burst: 0, hop_limit, from_socket }
    }

    /// Number of connections that may have something to send.
    pub(crate) fn waiting(&self) -> usize {
        self.turns.len()
    }

    // --- answers -----------------------------------------------------------------------------------

    /// Queues an answer. If too many wait, it is dropped.
    pub(crate) fn reply(&mut self, reply: Reply, journal: &mut Journal) {
        if self.replies.len() >= self.most_replies {
            return journal.drop_packet(PacketDrop::ReplyQueueFull);
        }
        self.replies.push_back(reply);
    }

    /// Queues a UDP datagram with this payload between the key's UDP ports. If too many answers wait, it is dropped.
    pub(crate) fn datagram(&mut self, key: &FlowKey, payload: &[u8], journal: &mut Journal) {
        let at = key.ip_header_len() + udp::HEADER;
        let mut packet = vec![0; at + payload.len()];
        if let Some(place) = packet.get_mut(at..) {
            place.copy_from_slice(payload);
        }
        let (hop_limit, from_socket) = (self.hop_limit, self.from_socket);
        if headers::wrap_udp(key, hop_limit, from_socket, Ecn::NotEct, payload.len(), &mut packet).is_some() {
            self.reply(Reply::Packet(packet), journal);
        }
    }

    /// Whether this number of answers can be queued.
    pub(crate) fn has_room(&self, replies: usize) -> bool {
        self.replies.len() + replies <= self.most_replies
    }

    /// Whether an answer waits.
    #[inline]
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Writes the next answer into `out` and returns its length. One that does not fit is dropped.
    pub(crate) fn poll_reply(&mut self, out: &mut [u8]) -> Option<usize> {
        while let Some(reply) = self.replies.pop_front() {
            if let Some(len) = self.emit(reply, out) {
                return Some(len);
            }
        }
        None
    }

    /// Writes an answer into `out` and returns its length.
    pub(crate) fn emit(&self, reply: Reply, out: &mut [u8]) -> Option<usize> {
        match reply {
            Reply::Segment { key, header, mut options } => {
                let len = header.emit(options.finish(), out.get_mut(key.headers_len()..)?).ok()?;
                self.wrap(&key, Ecn::NotEct, len, out)
            }
            Reply::Control(key, control) => {
                let at = key.ip_header_len() + udp::HEADER;
                let len = control.emit(out.get_mut(at..)?).ok()?;
                headers::wrap_udp(&key, self.hop_limit, self.from_socket, Ecn::NotEct, len, out)
            }
            Reply::Packet(bytes) => {
                out.get_mut(..bytes.len())?.copy_from_slice(&bytes);
                Some(bytes.len())
            }
        }
    }

    /// Writes the headers of a segment of `len` bytes, which is in `out` already, behind the headers' place.
    #[inline]
    pub(crate) fn wrap(&self, key: &FlowKey, ecn: Ecn, len: usize, out: &mut [u8]) -> Option<usize> {
        if key.is_carried() {
            self.wrap_carried(key, ecn, len, out)
        } else {
            self.wrap_raw(key, ecn, len, out)
        }
    }

    /// [`Self::wrap`] on raw IP.
    #[inline]
    pub(crate) fn wrap_raw(&self, key: &FlowKey, ecn: Ecn, len: usize, out: &mut [u8]) -> Option<usize> {
        headers::wrap(key, self.hop_limit, ecn, len, out)
    }

    /// [`Self::wrap`] in UDP.
    pub(crate) fn wrap_carried(&self, key: &FlowKey, ecn: Ecn, len: usize, out: &mut [u8]) -> Option<usize> {
        headers::wrap_carried(key, self.hop_limit, self.from_socket, ecn, len, out)
    }

    // --- turns -------------------------------------------------------------------------------------

    /// Queues a connection that is not queued.
    #[inline]
    pub(crate) fn queue(&mut self, index: u32) {
        self.turns.push_back(index);
    }

    /// Takes the connection whose turn it is. Its turn goes on, or it ends.
    #[inline]
    pub(crate) fn poll_turn(&mut self) -> Option<u32> {
        self.turns.pop_front()
    }

    /// The connection whose turn it is has sent everything, and leaves the queue.
    #[inline]
    pub(crate) fn end_turn(&mut self) {
        self.burst = 0;
    }

    /// The connection whose turn it is has more to send.
    #[inline]
    pub(crate) fn go_on(&mut self, index: u32) {
        self.burst += 1;
        if self.burst >= BURST {
            self.burst = 0;
            self.turns.push_back(index);
        } else {
            self.turns.push_front(index);
        }
    }
}
