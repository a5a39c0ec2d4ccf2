//! Answers that need no connection.

use crate::flow::FlowKey;
use alloc::vec::Vec;
use firstflight_tcp::TimeWait;
use firstflight_wire::carrier::Control;
use firstflight_wire::tcp::{Flags, Header, OptionBytes, OptionsBuf, Segment, SynOptions, Timestamps};
use firstflight_wire::{Instant, SeqNum};

/// The numbers of a SYN-ACK that is a SYN cookie.
pub(crate) struct CookieNumbers {
    /// The cookie.
    pub isn: SeqNum,
    /// What the timestamp clock of the flow is ahead by.
    pub ts_offset: u32,
    /// Largest payload of a segment that we take.
    pub mss: u16,
}

/// An answer that needs no connection.
#[derive(Debug)]
pub(crate) enum Reply {
    /// A TCP segment without payload.
    Segment { key: FlowKey, header: Header, options: OptionsBuf },
    /// A whole IP packet (echo reply).
    Packet(Vec<u8>),
    /// A message of the carrier, between the key's UDP ports.
    Control(FlowKey, Control),
}

impl Reply {
    /// RFC 9293 §3.10.7.1.
    pub fn reset(key: FlowKey, segment: &Segment<'_>) -> Self {
        let (seq, ack, flags) = if segment.flags.contains(Flags::ACK) {
            (segment.ack, SeqNum::new(0), Flags::RST)
        } else {
            (SeqNum::new(0), segment.seq + segment.len(), Flags::RST.union(Flags::ACK))
        };
        Self::Segment { key, header: header(&key, seq, ack, flags, 0), options: OptionsBuf::new() }
    }

    /// The ACK of a connection in TIME-WAIT. Its window has no effect, because nothing can follow the peer's FIN.
    /// The window is not closed, because that would look like a fault. `value` is our timestamp.
    pub fn time_wait(key: FlowKey, record: &TimeWait, value: u32) -> Self {
        let mut options = OptionsBuf::new();
        if record.timestamps {
            options.timestamps(Timestamps { value, echo: record.ts_recent });
        }
        let header = header(&key, record.snd_nxt, record.rcv_nxt, Flags::ACK, u16::MAX);
        Self::Segment { key, header, options }
    }

    /// A SYN-ACK whose sequence number is a SYN cookie. The cookie has no room for the window scale and SACK, so
    /// they ride in the timestamp if the client sent one.
    pub fn syn_cookie(
        key: FlowKey,
        tcp: &firstflight_tcp::Config,
        syn: &Segment<'_>,
        cookie: CookieNumbers,
        extra: &OptionBytes,
        now: Instant,
    ) -> Self {
        let CookieNumbers { isn, ts_offset, mss } = cookie;
        let ts = syn.options.timestamps.filter(|_| tcp.timestamps).map(|ts| {
            let coded = crate::syn_cookie::encode_ts(
                now.as_millis() as u32,
                syn.options.window_scale,
                syn.options.sack_permitted,
            );
            Timestamps { value: coded.wrapping_add(ts_offset), echo: ts.value }
        });
        let scale = (ts.is_some() && tcp.window_scaling && syn.options.window_scale.is_some())
            .then(|| tcp.window_scale());
        let sack = ts.is_some() && tcp.sack && syn.options.sack_permitted;
        let options = SynOptions {
            mss,
            sack_permitted: sack,
            timestamps: ts,
            window_scale: scale,
            extra: extra.as_slice(),
        };
        let options = options.to_buf();
        let window = tcp.receive_buffer.min(0xffff) as u16;
        let flags = Flags::SYN.union(Flags::ACK);
        let header = header(&key, isn, syn.seq + 1, flags, window);
        Self::Segment { key, header, options }
    }
}

fn header(key: &FlowKey, seq: SeqNum, ack: SeqNum, flags: Flags, window: u16) -> Header {
    let (src_port, dst_port) = (key.local_port(), key.remote_port());
    Header { src_port, dst_port, seq, ack, flags, window, urgent: 0 }
}
