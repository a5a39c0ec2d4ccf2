//! ICMP: an error reaches the connection that it is about, if it proves that it is (RFC 5927).

use crate::event::Drop;
use crate::flow::FlowKey;
use crate::output::Reply;
use crate::stack::Stack;
use core::net::SocketAddr;
use firstflight_tcp::CloseReason;
use firstflight_wire::carrier::Carried;
use firstflight_wire::icmp::{self, IcmpError, IcmpErrorKind};
use firstflight_wire::ip::{Packet, Protocol};
use firstflight_wire::{Instant, SeqNum, udp};

/// Smallest MTUs that are believed. A smaller one is an attack or a broken path (RFC 8200 §5; Linux 552).
const MIN_MTU_V4: u32 = 552;
const MIN_MTU_V6: u32 = 1280;

impl Stack {
    pub(crate) fn handle_icmp(&mut self, ip: &Packet<'_>, packet: &[u8], now: Instant) {
        let error = match ip.protocol {
            Protocol::Icmp => icmp::parse_v4(ip.payload),
            _ => icmp::parse_v6(ip.payload, ip.src, ip.dst),
        };
        match error {
            Ok(error) => self.handle_icmp_error(&error, now),
            Err(_) => self.answer_echo(packet),
        }
    }

    fn answer_echo(&mut self, packet: &[u8]) {
        let mut out = alloc::vec![0; packet.len()];
        match icmp::echo_reply(packet, &mut out) {
            Some(len) if self.config.answer_echo => {
                out.truncate(len);
                self.outbox.reply(Reply::Packet(out), &mut self.journal);
            }
            _ => self.journal.drop_packet(Drop::BadIcmp),
        }
    }

    //= rfc9293 MUST-54
    fn handle_icmp_error(&mut self, error: &IcmpError<'_>, now: Instant) {
        let quoted = match error.protocol {
            Protocol::Tcp => quoted_flow(error, error.quoted),
            Protocol::Udp => quoted_datagram(error),
            _ => None,
        };
        let Some((key, seq)) = quoted else {
            return self.journal.drop_packet(Drop::BadIcmp);
        };
        let Some(index) = self.find(&key) else {
            return self.journal.drop_packet(Drop::BadIcmp);
        };
        let Some(slot) = self.slots.get_mut(index) else { return };
        // The quoted number must be outstanding (RFC 5927 §4.1).
        if !slot.conn.owns_sequence(seq) {
            return self.journal.drop_packet(Drop::BadIcmp);
        }
        //= rfc9293 MUST-47 SHLD-25
        // The application can read the error, whatever it means here (RFC 9293 §3.9.1.8).
        if !matches!(error.kind, IcmpErrorKind::PacketTooBig { .. } | IcmpErrorKind::Other { .. }) {
            slot.network_error = Some(error.kind);
        }
        match error.kind {
            IcmpErrorKind::PacketTooBig { mtu } => {
                let floor = if key.local_ip().is_ipv4() { MIN_MTU_V4 } else { MIN_MTU_V6 };
                let headers = key.headers_len() as u32 + 20;
                let mss = mtu.max(floor).saturating_sub(headers).min(0xffff) as u16;
                slot.conn.reduce_mss(mss, now);
                if slot.client {
                    let network = self.config.network_of(&key);
                    self.credentials.learn_path_mss(network, key.remote_ip(), mss, now);
                }
            }
            kind if kind.is_hard() => self.unreachable(index, now),
            IcmpErrorKind::HostUnreachable if self.config.unreachable_ends_handshakes => {
                self.unreachable(index, now);
            }
            //= rfc9293 MUST-56
            // Soft error: routing may recover, and the connection's own timeouts decide (RFC 5461). But filters report
            // such errors, too, so a plain SYN follows one with an option or data.
            IcmpErrorKind::HostUnreachable | IcmpErrorKind::NetUnreachable => {
                slot.conn.refused_for_now(now);
                if error.kind == IcmpErrorKind::HostUnreachable {
                    self.disowned(index, now);
                }
            }
            _ => return,
        }
        self.touched(index, now);
    }

    /// The network says that the peer of connection `index` cannot be reached.
    #[cold]
    fn unreachable(&mut self, index: u32, now: Instant) {
        if !self.hold_armed(index, CloseReason::Unreachable, now)
            && let Some(slot) = self.slots.get_mut(index)
        {
            slot.conn.unreachable(now, &mut self.pool);
        }
    }
}

/// The four-tuple and sequence number of a packet that we sent and whose TCP header an error quotes.
fn quoted_flow(error: &IcmpError<'_>, header: &[u8]) -> Option<(FlowKey, SeqNum)> {
    let [a, b, c, d, e, f, g, h, ..] = *header else { return None };
    let local = SocketAddr::new(error.src, u16::from_be_bytes([a, b]));
    let remote = SocketAddr::new(error.dst, u16::from_be_bytes([c, d]));
    Some((FlowKey::new(local, remote), SeqNum::new(u32::from_be_bytes([e, f, g, h]))))
}

/// Like [`quoted_flow`], for a datagram that carries a segment. Routers that quote only the UDP header, as RFC 792
/// requires, give nothing that could be believed: the header has no sequence number.
fn quoted_datagram(error: &IcmpError<'_>) -> Option<(FlowKey, SeqNum)> {
    let [a, b, c, d, ..] = *error.quoted else { return None };
    // The quotation is cut short, so its length field says nothing.
    let Ok(Carried::Segment(header)) = Carried::parse(error.quoted.get(udp::HEADER..)?) else { return None };
    let (key, seq) = quoted_flow(error, header)?;
    Some((key.carried(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])), seq))
}
