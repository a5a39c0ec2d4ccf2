//! What the layer above decides about a first flight, as plain data: this crate knows no credential.

use alloc::vec::Vec;
use core::time::Duration;
use firstflight_wire::tcp::OptionBytes;

/// What a client's first SYN carries. One that is sent again carries neither extra options, preamble nor data
/// (RFC 7413 §4.1.3: a middlebox may have dropped it for those).
#[derive(Debug, Default, Clone)]
pub struct SynPlan {
    /// Extra options, sent last.
    pub options: OptionBytes,
    /// Bytes in front of the data that use sequence space but are not part of the stream.
    pub preamble: Vec<u8>,
    /// How many bytes of the stream may ride in the SYN; the rest waits for the SYN-ACK.
    pub data_limit: u32,
    /// How many SYNs that are sent again after a timeout carry the same as the first one. Only for data whose receiver
    /// notices a copy, on paths that do not look at TCP's options.
    pub repeats: u8,
    /// Time until the SYN is sent again the first time; 1 s if absent (RFC 6298 §2.1).
    pub first_timeout: Option<Duration>,
    /// Largest payload of the segments without ACK that follow the SYN's data at once, within the initial window
    /// and [`FOLLOWERS`](firstflight_wire::carrier::FOLLOWERS), bytes; 0: none (on raw IP, always). RFC 9293 §3.10.7
    /// drops such segments.
    pub follow: u16,
    /// The SYN travels another way, which its sender does not see: it counts as sent, and nothing leaves until
    /// [`Connection::release_syn`](crate::Connection::release_syn). When it left is not known, so what answers it
    /// gives no round-trip sample.
    pub elsewhere: bool,
}

/// What a SYN-ACK said about our first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynAckReport {
    /// Numbers acknowledged behind the SYN: more than it carried, if what followed it arrived, too.
    pub acked: u32,
    /// Numbers our SYN carried behind itself: preamble and data.
    pub carried: u32,
    /// Whether the SYN was sent more than once.
    pub retransmitted: bool,
    /// The first SYN timed out, and nothing in this SYN-ACK shows that it arrived: not the numbers
    /// acknowledged, not the timestamp echoed.
    pub first_lost: bool,
    /// An earlier connection of the four-tuple, mostly in TIME-WAIT, answered the SYN, which then went again plain, and
    /// nothing in this SYN-ACK shows that the first one opened something after all. SYNs do reach the peer, so this is
    /// no failure of the path.
    pub met_old: bool,
    /// A RST or an ICMP error answered the first SYN, which then went again plain, and nothing in this SYN-ACK shows that
    /// the first one arrived.
    pub refused: bool,
    /// The first SYN may have been taken although this SYN-ACK does not say so: another one left after a timeout, or a RST
    /// or an ICMP error came. Its data must not go again if it must not run twice.
    pub may_have_run: bool,
    /// The first SYN was too large for the path, as a router said, and went again plain.
    pub too_big: bool,
}

/// The layer above's answer to a [`SynAckReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// What was acknowledged was delivered. The stream begins behind the preamble.
    Accepted,
    /// Nothing was delivered: the stream begins behind the SYN, the data is sent again.
    DataRefused,
    /// The path or the peer is broken: reset.
    Abort,
}

/// How a server's child begins.
#[derive(Debug, Clone)]
pub struct ChildPlan {
    /// Whether the SYN's data is delivered now, before the handshake completes.
    pub early: bool,
    /// Bytes of the SYN's payload in front of the data (a credential), not delivered.
    pub skip: u32,
    /// Options on every SYN-ACK of this connection, retransmissions included, but for the last `once` bytes.
    pub options: OptionBytes,
    /// How many bytes at the end of `options` are on the first SYN-ACK alone: what a middlebox may have dropped it for.
    pub once: u8,
    /// Bytes that may be sent before the client's ACK proves its address, headers included. SYN-ACKs count,
    /// but leave always.
    pub pre_ack_budget: u32,
    /// Bytes below TCP that every packet costs of it.
    pub overhead: u32,
    /// SYN-ACK retransmissions until the child is given up (Linux: 5).
    pub retries: u8,
    /// Seconds after the last of them that the child still waits in silence: it answers the client's SYN when that comes
    /// again, and takes its ACK. A child whose data was delivered early and that is given up sooner would be made a
    /// second time, and the data delivered twice.
    pub linger_s: u16,
    /// Bytes of the stream behind the SYN's data that an early child takes of segments without ACK; 0 (on raw IP,
    /// always): RFC 9293 §3.10.7.4 drops these.
    pub follow: u32,
}

impl Default for ChildPlan {
    fn default() -> Self {
        Self {
            early: false,
            skip: 0,
            options: OptionBytes::EMPTY,
            once: 0,
            pre_ack_budget: u32::MAX,
            overhead: 0,
            retries: 5,
            linger_s: 0,
            follow: 0,
        }
    }
}
