//! Packets to send: first the answers without state, then the connections in turn.

use crate::flow::FlowKey;
use crate::stack::Stack;
use alloc::vec::Vec;
use core::net::IpAddr;
use firstflight_tcp::TimeWait;
use firstflight_wire::carrier::{self, Control};
use firstflight_wire::hint::{likely, unlikely};
use firstflight_wire::ip::{Ecn, Header as IpHeader, Protocol};
use firstflight_wire::tcp::{
    Flags, Header, OptionBytes, OptionsBuf, Segment, SynOptions, Timestamps, fill_checksum,
};
use firstflight_wire::{Instant, SeqNum, udp};

/// Packets that one connection may send before the turn of the next one.
const BURST: u32 = 16;

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
}

fn header(key: &FlowKey, seq: SeqNum, ack: SeqNum, flags: Flags, window: u16) -> Header {
    let (src_port, dst_port) = (key.local_port(), key.remote_port());
    Header { src_port, dst_port, seq, ack, flags, window, urgent: 0 }
}

impl Stack {
    /// Writes the next packet to send into `out` (at least the MTU long) and returns its length.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        while unlikely(!self.replies.is_empty())
            && let Some(reply) = self.replies.pop_front()
        {
            if let Some(len) = self.emit_reply(reply, out) {
                self.counters.packets_out += 1;
                return Some(len);
            }
        }
        if unlikely(self.carrier.is_some())
            && let Some(key) = self.carrier.as_mut().and_then(|carrier| carrier.poll_keep_alive())
            && let Some(len) = self.emit_reply(Reply::Control(key, Control::KeepAlive), out)
        {
            self.counters.keep_alives_sent += 1;
            self.counters.packets_out += 1;
            return Some(len);
        }
        while let Some(index) = self.to_send.pop_front() {
            let Some(slot) = self.slots.get_mut(index) else { continue };
            let body = out.get_mut(slot.key.headers_len()..);
            let sent = body.and_then(|body| slot.conn.poll_transmit(now, body, &mut self.pool));
            let whole = match (sent, &mut self.carrier) {
                (Some(len), Some(carrier)) if unlikely(slot.key.is_carried()) => {
                    // The pair is `None` if the connection is over: its last segment leaves after that.
                    if let Some(pair) = slot.pair {
                        carrier.sent(pair, now);
                    }
                    wrap_carried(&slot.key, self.hop_limit, carrier.from_socket, slot.conn.ecn(), len, out)
                }
                (Some(len), _) => wrap(&slot.key, self.hop_limit, slot.conn.ecn(), len, out),
                (None, _) => None,
            };
            // In most cases the connection has sent everything and leaves the queue.
            if likely(sent.is_none() || slot.conn.is_quiet()) {
                self.burst = 0;
                slot.queued = false;
                let readiness = slot.conn.poll_readiness();
                slot.ready |= readiness;
                if !slot.mapped {
                    self.reap(index);
                } else if let Some(at) = slot.deadline() {
                    // An earlier timer stays in place: most timers are pushed back and never reached.
                    self.wheel.expedite(index, at.max(now));
                }
                if !readiness.is_empty() {
                    self.announce(index);
                }
            } else {
                self.burst += 1;
                if self.burst >= BURST {
                    self.burst = 0;
                    self.to_send.push_back(index);
                } else {
                    self.to_send.push_front(index);
                }
            }
            if likely(whole.is_some()) {
                self.counters.packets_out += 1;
                return whole;
            }
        }
        None
    }

    #[inline(never)]
    fn emit_reply(&mut self, reply: Reply, out: &mut [u8]) -> Option<usize> {
        match reply {
            Reply::Segment { key, header, mut options } => {
                let len = header.emit(options.finish(), out.get_mut(key.headers_len()..)?).ok()?;
                match &self.carrier {
                    Some(carrier) if key.is_carried() => {
                        wrap_carried(&key, self.hop_limit, carrier.from_socket, Ecn::NotEct, len, out)
                    }
                    _ => wrap(&key, self.hop_limit, Ecn::NotEct, len, out),
                }
            }
            Reply::Control(key, control) => {
                let at = key.ip_header_len() + udp::HEADER;
                let len = control.emit(out.get_mut(at..)?).ok()?;
                let from_socket = self.carrier.as_ref()?.from_socket;
                wrap_udp(&key, self.hop_limit, from_socket, Ecn::NotEct, len, out)
            }
            Reply::Packet(bytes) => {
                out.get_mut(..bytes.len())?.copy_from_slice(&bytes);
                Some(bytes.len())
            }
        }
    }

    /// The ACK of a connection in TIME-WAIT. Its window has no effect, because nothing can follow the peer's FIN.
    /// The window is not closed, because that would look like a fault. `value` is our timestamp; `None` takes the
    /// clock's.
    pub(crate) fn reply_time_wait(
        &mut self,
        key: FlowKey,
        record: &TimeWait,
        value: Option<u32>,
        now: Instant,
    ) {
        let mut options = OptionsBuf::new();
        if record.timestamps {
            let offset = self.isn.initial(&key, now).ts_offset;
            let value = value.unwrap_or((now.as_millis() as u32).wrapping_add(offset));
            options.timestamps(Timestamps { value, echo: record.ts_recent });
        }
        let header = header(&key, record.snd_nxt, record.rcv_nxt, Flags::ACK, u16::MAX);
        self.reply(Reply::Segment { key, header, options });
    }

    /// A SYN-ACK whose sequence number is a SYN cookie. The cookie has no room for the window scale and SACK, so
    /// they ride in the timestamp if the client sent one.
    pub(crate) fn reply_syn_cookie(
        &mut self,
        key: FlowKey,
        tcp: &firstflight_tcp::Config,
        syn: &Segment<'_>,
        cookie: SeqNum,
        extra: &OptionBytes,
        now: Instant,
    ) {
        let mss = tcp.mss.min(self.path_mss(&key).max(self.probe_sizes(&key)[2]));
        let offset = self.isn.initial(&key, now).ts_offset;
        let ts = syn.options.timestamps.filter(|_| tcp.timestamps).map(|ts| {
            let coded = crate::syn_cookie::encode_ts(
                now.as_millis() as u32,
                syn.options.window_scale,
                syn.options.sack_permitted,
            );
            Timestamps { value: coded.wrapping_add(offset), echo: ts.value }
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
        let header = header(&key, cookie, syn.seq + 1, flags, window);
        self.reply(Reply::Segment { key, header, options });
    }
}

/// Writes the checksum and the IP header of a segment of `len` bytes, which is in `out` already, behind the
/// header's place.
#[inline(always)]
fn wrap(key: &FlowKey, hop_limit: u8, ecn: Ecn, len: usize, out: &mut [u8]) -> Option<usize> {
    // One branch for each family, so that the compiler specializes the code for it.
    match key.v4() {
        Some((src, dst)) => wrap_as(src.into(), dst.into(), hop_limit, ecn, len, out),
        None => wrap_v6(key, hop_limit, ecn, len, out),
    }
}

/// A separate function. Inlined, it would cost the IPv4 path registers.
#[inline(never)]
fn wrap_v6(key: &FlowKey, hop_limit: u8, ecn: Ecn, len: usize, out: &mut [u8]) -> Option<usize> {
    wrap_as(key.local_ip(), key.remote_ip(), hop_limit, ecn, len, out)
}

#[inline(always)]
fn wrap_as(src: IpAddr, dst: IpAddr, hop_limit: u8, ecn: Ecn, len: usize, out: &mut [u8]) -> Option<usize> {
    let at = ip_header(src, dst, Protocol::Tcp, hop_limit, ecn).emit(len, out).ok()?;
    fill_checksum(out.get_mut(at..at + len)?, src, dst);
    Some(at + len)
}

/// The IP header of every packet. Packets may not be fragmented, so they need no identification (RFC 6864 §4.1), and it
/// is zero. A counter would show an off-path attacker how many packets went to others, and so whether a forged segment
/// was answered.
#[inline(always)]
fn ip_header(src: IpAddr, dst: IpAddr, protocol: Protocol, hop_limit: u8, ecn: Ecn) -> IpHeader {
    //= rfc9293 MUST-49
    IpHeader { src, dst, protocol, hop_limit, ecn, dont_fragment: true, identification: 0 }
}

/// Writes the headers of IP, UDP and the carrier in front of a segment of `len` bytes, which is in `out` already,
/// behind the headers' place. The segment's checksum stays zero.
#[inline(never)]
fn wrap_carried(
    key: &FlowKey,
    hop_limit: u8,
    from_socket: bool,
    ecn: Ecn,
    len: usize,
    out: &mut [u8],
) -> Option<usize> {
    let at = key.ip_header_len() + udp::HEADER;
    carrier::emit_segment_header(out.get_mut(at..)?).ok()?;
    wrap_udp(key, hop_limit, from_socket, ecn, carrier::HEADER + len, out)
}

/// Like [`wrap_carried`], but without the carrier's header, for a UDP payload of `len` bytes.
fn wrap_udp(
    key: &FlowKey,
    hop_limit: u8,
    from_socket: bool,
    ecn: Ecn,
    len: usize,
    out: &mut [u8],
) -> Option<usize> {
    let (src, dst) = (key.local_ip(), key.remote_ip());
    let at = ip_header(src, dst, Protocol::Udp, hop_limit, ecn).emit(udp::HEADER + len, out).ok()?;
    let datagram = out.get_mut(at..at + udp::HEADER + len)?;
    let (src_port, dst_port) = (key.outer_local(), key.outer_remote());
    udp::Header { src_port, dst_port }.emit(len, datagram).ok()?;
    if !from_socket {
        udp::fill_checksum(datagram, src, dst);
    }
    Some(at + udp::HEADER + len)
}
