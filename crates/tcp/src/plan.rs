//! What the layer above decides about a first flight, as plain data: this crate knows no credentials.

use alloc::vec::Vec;
use core::time::Duration;
use firstflight_wire::tcp::OptionBytes;

/// What a client's first SYN carries. A retransmitted SYN carries no extra options, preamble or data, because a
/// middlebox may have dropped the first SYN for those (RFC 7413 §4.1.3).
#[derive(Debug, Default, Clone)]
pub struct SynPlan {
    /// Extra options, sent last.
    pub options: OptionBytes,
    /// Bytes in front of the data that use sequence space but are not part of the stream.
    pub preamble: Vec<u8>,
    /// Number of bytes of the stream that the SYN may carry; the rest waits for the SYN-ACK.
    pub data_limit: u32,
    /// Number of SYNs, retransmitted after a timeout, that carry the same content as the first one. Use it only
    /// for data whose receiver recognises a copy, on paths that do not inspect TCP's options.
    pub repeats: u8,
    /// Time until the first retransmission of the SYN; [`Config::initial_rto`](crate::Config::initial_rto) if absent.
    pub first_timeout: Option<Duration>,
    /// Whether a plain SYN follows the first one at once, because the path may not pass what the first one carries. The
    /// two differ in their timestamps, so an answer tells which of them arrived.
    pub hedged: bool,
    /// Largest payload of the segments without ACK that directly follow the SYN's data, in bytes, within the
    /// initial window and [`FOLLOWERS`](firstflight_wire::encapsulation::FOLLOWERS). With 0, which is always used on
    /// raw IP, no such segments are sent, because RFC 9293 §3.10.7 drops them.
    pub follow: u16,
    /// The SYN travels by another way that this connection does not see. The SYN counts as sent, and nothing
    /// leaves until [`Connection::release_syn`](crate::Connection::release_syn), neither the SYN nor what follows it. The
    /// time it left is unknown, so its answer gives no round-trip sample.
    pub elsewhere: bool,
}

/// What a SYN-ACK says about our first flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynAckReport {
    /// Numbers acknowledged behind the SYN: more than the SYN carried, if segments that followed it arrived,
    /// too.
    pub acked: u32,
    /// Numbers that our SYN carried behind its own number: preamble and data.
    pub carried: u32,
    /// Whether the SYN was sent more than once.
    pub retransmitted: bool,
    /// The first SYN timed out, and nothing in this SYN-ACK (the numbers acknowledged, the echoed timestamp)
    /// shows that it arrived.
    pub first_lost: bool,
    /// An earlier connection of the four-tuple, usually in TIME-WAIT, answered the SYN. A plain SYN was then
    /// sent, and nothing in this SYN-ACK shows that the first SYN opened a connection after all. SYNs do reach
    /// the peer, so this is not a failure of the path.
    pub met_old: bool,
    /// A RST or an ICMP error answered the first SYN. A plain SYN was then sent, and nothing in this SYN-ACK
    /// shows that the first one arrived.
    pub refused: bool,
    /// The peer may have accepted the first SYN although this SYN-ACK does not say so: another SYN left after a
    /// timeout, or a RST, an ICMP error or the answer of an earlier connection arrived, all of which can be forged.
    /// Data that must not run twice must not be sent again. A packet-too-big message does not count: its router has
    /// not passed the SYN on.
    pub may_have_run: bool,
    /// A router reported that the first SYN was too large for the path. A plain SYN was then sent.
    pub too_big: bool,
}

/// The answer of the layer above to a [`SynAckReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// What was acknowledged was also delivered. The stream begins behind the preamble.
    Accepted,
    /// Nothing was delivered: the stream begins behind the SYN, and the data is sent again.
    DataRefused,
    /// The path or the peer is broken: reset the connection.
    Abort,
}

/// How a server's child connection begins.
#[derive(Debug, Clone)]
pub struct ChildPlan {
    /// Whether the SYN's data is delivered now, before the handshake completes.
    pub early: bool,
    /// Bytes of the SYN's payload in front of the data (a credential), not delivered.
    pub skip: u32,
    /// Options on every SYN-ACK of this connection, including retransmissions, except the last `once` bytes.
    pub options: OptionBytes,
    /// Number of bytes at the end of `options` that only the first SYN-ACK carries, because a middlebox may
    /// have dropped it for them.
    pub once: u8,
    /// Bytes, including headers, that may be sent before the client's ACK proves its address. SYN-ACKs count,
    /// but they always leave.
    pub pre_ack_budget: u32,
    /// Bytes below TCP that every packet takes from `pre_ack_budget`.
    pub overhead: u32,
    /// SYN-ACK retransmissions until the child is given up (Linux: 5).
    pub retries: u8,
    /// Seconds after the last retransmission for which the child waits without sending. It still answers a
    /// repeated SYN of the client and accepts its ACK. If a child whose data was delivered early were given up
    /// sooner, a repeated SYN would create a second child, and its data would be delivered twice.
    pub linger_s: u16,
    /// Bytes of the stream behind the SYN's data that an early child accepts from segments without ACK. With 0,
    /// which is always used on raw IP, it accepts none: RFC 9293 §3.10.7.4 drops them.
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
