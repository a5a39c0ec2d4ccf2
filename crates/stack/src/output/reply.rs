//! Answers that need no connection.

use crate::flow::FlowKey;
use alloc::vec::Vec;
use firstflight_tcp::TimeWait;
use firstflight_wire::SeqNum;
use firstflight_wire::encapsulation::Control;
use firstflight_wire::tcp::{Flags, Header, OptionsBuf, Segment, Timestamps};

/// An answer that needs no connection.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A TCP segment without payload.
    Segment { key: FlowKey, header: Header, options: OptionsBuf },
    /// A whole IP packet (echo reply).
    Packet(Vec<u8>),
    /// A message of the encapsulation, between the key's UDP ports.
    Control(FlowKey, Control),
}

impl Reply {
    /// RFC 9293 §3.10.7.1.
    pub(crate) fn reset(key: FlowKey, segment: &Segment<'_>) -> Self {
        let (seq, ack, flags) = if segment.flags.contains(Flags::ACK) {
            (segment.ack, SeqNum::new(0), Flags::RST)
        } else {
            (SeqNum::new(0), segment.seq + segment.len(), Flags::RST.union(Flags::ACK))
        };
        Self::Segment { key, header: header(&key, seq, ack, flags, 0), options: OptionsBuf::new() }
    }

    /// The ACK of a connection in TIME-WAIT. Its window has no effect, because nothing can follow the peer's FIN.
    /// The window is not closed, because that would look like a fault. `value` is our timestamp.
    pub(crate) fn time_wait(key: FlowKey, record: &TimeWait, value: u32) -> Self {
        let mut options = OptionsBuf::new();
        if record.timestamps {
            options.timestamps(Timestamps { value, echo: record.ts_recent });
        }
        let header = header(&key, record.snd_nxt, record.rcv_nxt, Flags::ACK, u16::MAX);
        Self::Segment { key, header, options }
    }
}

/// The header of an answer.
pub(crate) fn header(key: &FlowKey, seq: SeqNum, ack: SeqNum, flags: Flags, window: u16) -> Header {
    let (src_port, dst_port) = (key.local_port(), key.remote_port());
    Header { src_port, dst_port, seq, ack, flags, window, urgent: 0 }
}
