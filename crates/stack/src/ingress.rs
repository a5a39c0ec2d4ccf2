//! How a received packet is handled.

use crate::event::{Drop, Trace};
use crate::flow::FlowKey;
use crate::fragments::Rules;
use crate::icmp;
use crate::listener::Syn;
use crate::output::Reply;
use crate::slot::Owner;
use crate::stack::Stack;
use core::hint::cold_path;
use core::net::{IpAddr, Ipv6Addr};
use firstflight_tcp::{CloseReason, Disposition, DropReason, StateName, TimeWait, TimeWaitAction, follows};
use firstflight_wire::hint::unlikely;
use firstflight_wire::icmp::{self as wire_icmp, IcmpError, IcmpErrorKind};
use firstflight_wire::ip::{Ecn, Packet, Protocol, version};
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::{Instant, ParseError};

/// A RST for a parked SYN must be this close to it: behind the SYN and the data that it carries.
const PARKED_WINDOW: u32 = 1 << 11;

impl Stack {
    /// Handles one IP packet. It may contain any bytes.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        self.journal.counters.packets_in += 1;
        // One branch for each family, so that the compiler specializes the code for it.
        match version(packet) {
            Some(4) => match Packet::parse_v4(packet) {
                Ok(ip) => self.handle_ip(&ip, packet, now),
                Err(ParseError::Fragment) => self.handle_fragment(packet, now),
                Err(_) => self.journal.drop_packet(Drop::BadIp),
            },
            Some(6) => match Packet::parse_v6(packet) {
                // An IPv6 packet must not have IPv4-mapped addresses: IPv4 addresses travel in IPv4 packets only.
                Ok(ip) if unlikely(is_mapped(ip.src) || is_mapped(ip.dst)) => {
                    self.journal.drop_packet(Drop::BadSource)
                }
                Ok(ip) => self.handle_ip(&ip, packet, now),
                Err(ParseError::Fragment) => self.handle_fragment(packet, now),
                Err(_) => self.journal.drop_packet(Drop::BadIp),
            },
            _ => self.journal.drop_packet(Drop::BadIp),
        }
    }

    #[inline(always)]
    fn handle_ip<A: Into<IpAddr> + Copy>(&mut self, ip: &Packet<'_, A>, packet: &[u8], now: Instant) {
        if unlikely(ip.protocol != Protocol::Tcp) {
            if ip.protocol == Protocol::Udp && self.carrier.is_some() {
                let ce = ip.ecn == Ecn::Ce;
                return self.handle_udp(ip.src.into(), ip.dst.into(), ip.payload, ce, now);
            }
            return self.handle_other(packet, now);
        }
        let Ok(mut segment) = Segment::parse_checked(ip.payload, ip.src.into(), ip.dst.into()) else {
            cold_path();
            return self.journal.drop_packet(Drop::BadTcp);
        };
        segment.ce = ip.ecn == Ecn::Ce;
        let key = FlowKey::of(ip.dst.into(), segment.dst_port, ip.src.into(), segment.src_port);
        let hash = self.hasher.hash(&key);
        match self.find_hashed(hash, &key) {
            // The addresses were checked when the connection began.
            Some(index) => self.deliver(index, &segment, now),
            None if self.concerns_us(ip.src.into(), ip.dst.into()) => {
                // The key is copied only here, so that the key of the look-up need not be in memory.
                self.handle_new(&{ key }, hash, &segment, now)
            }
            None => {}
        }
    }

    /// Handles a packet without a TCP segment.
    #[cold]
    fn handle_other(&mut self, packet: &[u8], now: Instant) {
        let Ok(ip) = Packet::parse(packet) else { return };
        let icmp = matches!(ip.protocol, Protocol::Icmp | Protocol::Icmpv6);
        // A socket passes on ICMP errors that the kernel has checked. Their source may be our own address, if the peer
        // is on this host.
        let from_kernel =
            icmp && self.is_ours(ip.dst) && self.carrier.as_ref().is_some_and(|c| c.from_socket);
        match ip.protocol {
            _ if !from_kernel && !self.concerns_us(ip.src, ip.dst) => {}
            _ if icmp => self.handle_icmp(&ip, packet, now),
            _ => self.journal.drop_packet(Drop::Protocol),
        }
    }

    /// Takes a packet that is a fragment.
    #[cold]
    fn handle_fragment(&mut self, packet: &[u8], now: Instant) {
        self.journal.counters.fragments_in += 1;
        let rules =
            Rules { limits: self.config.limits.fragments, mtu: self.config.mtu, udp: self.carrier.is_some() };
        let fragment = match rules.parse(packet) {
            Ok(fragment) => fragment,
            Err(reason) => return self.journal.drop_packet(reason),
        };
        if !self.concerns_us(fragment.src, fragment.dst) {
            return;
        }
        let counters = &mut self.journal.counters;
        match self.fragments.handle(&fragment, &rules, now, &mut self.random, counters) {
            // The whole packet is not a fragment itself: its header is new, and the headers behind it were checked with
            // the first fragment.
            Some(Ok(whole)) => {
                self.journal.counters.packets_reassembled += 1;
                self.handle_packet(now, &whole);
            }
            Some(Err(reason)) => self.journal.drop_packet(reason),
            None => {}
        }
    }

    fn handle_icmp(&mut self, ip: &Packet<'_>, packet: &[u8], now: Instant) {
        let error = match ip.protocol {
            Protocol::Icmp => wire_icmp::parse_v4(ip.payload),
            _ => wire_icmp::parse_v6(ip.payload, ip.src, ip.dst),
        };
        match error {
            Ok(error) => self.handle_icmp_error(&error, now),
            Err(_) => self.answer_echo(packet),
        }
    }

    fn answer_echo(&mut self, packet: &[u8]) {
        let mut out = alloc::vec![0; packet.len()];
        match wire_icmp::echo_reply(packet, &mut out) {
            Some(len) if self.config.answer_echo => {
                out.truncate(len);
                self.outbox.reply(Reply::Packet(out), &mut self.journal);
            }
            _ => self.journal.drop_packet(Drop::BadIcmp),
        }
    }

    //= rfc9293 MUST-54
    fn handle_icmp_error(&mut self, error: &IcmpError<'_>, now: Instant) {
        let Some((key, seq)) = icmp::quoted(error) else {
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
                let mss = icmp::mss_of(&key, mtu);
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

    /// Whether a packet of no connection is for us and has a valid source. If not, the drop is counted.
    #[inline(always)]
    pub(crate) fn concerns_us(&mut self, src: IpAddr, dst: IpAddr) -> bool {
        //= rfc9293 MUST-57
        if unlikely(!self.is_ours(dst)) {
            self.journal.drop_packet(Drop::NotForUs);
            return false;
        }
        //= rfc9293 MUST-63
        if unlikely(!possible_source(src) || self.is_ours(src)) {
            self.journal.drop_packet(Drop::BadSource);
            return false;
        }
        true
    }

    /// Handles a segment whose four-tuple is not known.
    #[inline(always)]
    pub(crate) fn handle_new(&mut self, key: &FlowKey, hash: u64, segment: &Segment<'_>, now: Instant) {
        if unlikely(!self.armed.is_empty()) {
            if let Some(index) = self.answers_armed(key, segment, now) {
                return self.deliver(index, segment, now);
            }
            if self.overtakes_answer(key, segment) {
                return self.journal.drop_packet(Drop::NoConnection);
            }
        }
        self.handle_stray(key, hash, segment, now);
    }

    /// Handles a segment of no connection.
    #[inline(never)]
    pub(crate) fn handle_stray(&mut self, key: &FlowKey, hash: u64, segment: &Segment<'_>, now: Instant) {
        let key = *key;
        if unlikely(key.is_carried()) && follows(segment) && self.listeners.find(&key).is_some() {
            return self.handle_follower(&key, segment);
        }
        if unlikely(key.is_carried()) && self.comes_from_new_port(&key, segment, now) {
            return;
        }
        let (mut above, mut listener) = (None, None);
        if let Some((record, held)) = self.remembered(hash) {
            let judged = match record.judge(segment) {
                TimeWaitAction::Acknowledge { .. } if self.may_reopen(&key, hash, &record, segment) => {
                    record.reopen()
                }
                judged => judged,
            };
            if unlikely(!matches!(judged, TimeWaitAction::Reopen { .. })) {
                self.not_opened(&key, segment, now);
            }
            match judged {
                TimeWaitAction::Ignore => {
                    if segment.flags.contains(Flags::RST) && segment.seq == record.rcv_nxt {
                        self.challenged.reset(hash, record.rcv_nxt);
                    }
                    return;
                }
                TimeWaitAction::Acknowledge { restart } => {
                    if is_first_syn(segment) {
                        self.challenged.note(hash, record.rcv_nxt);
                    }
                    if restart && !held {
                        self.time_wait.restart(hash, now, self.tcp.time_wait);
                    }
                    let value = self.isn.timestamp(&key, now);
                    return self.outbox.reply(Reply::time_wait(key, &record, value), &mut self.journal);
                }
                TimeWaitAction::Reopen { above: isn } => {
                    listener = self.listeners.find(&key);
                    if listener.is_none() {
                        return self.reply_reset(key, segment);
                    }
                    self.time_wait.remove(hash);
                    if unlikely(self.held.len() > 0) {
                        self.held.remove(hash);
                    }
                    above = Some(isn);
                }
            }
        }
        if unlikely(segment.flags.contains(Flags::RST))
            && let Some((job, isn)) = self.parked.find(&key)
            && segment.seq.in_window(isn, PARKED_WINDOW)
        {
            // The client has given up, so nobody waits for the verdict. Or an attacker with a copy of the SYN for
            // later spoofed the RST.
            return self.overtaken(job, now);
        }
        let only_syn =
            segment.flags.contains(Flags::SYN) && !segment.flags.intersects(Flags::ACK.union(Flags::RST));
        match listener.or_else(|| self.listeners.find(&key)) {
            Some(listener) if only_syn => self.handle_syn(&Syn { listener, key, hash, segment, above, now }),
            Some(listener) if self.handle_cookie_ack(listener, key, hash, segment, now) => {}
            // RFC 9293 §3.10.7.2, fourth step: a listener does not answer a segment without SYN, ACK and RST.
            Some(_) if !segment.flags.intersects(Flags::SYN.union(Flags::ACK).union(Flags::RST)) => {
                self.journal.drop_packet(Drop::BadFlags);
            }
            _ => self.reply_reset(key, segment),
        }
    }

    /// Whether this SYN may open a connection although it is not newer than the old one: the client has answered
    /// our ACK of an earlier SYN with a RST. A SYN with data may not. It may be a copy of the SYN that opened the
    /// old connection, and a client sends the RST for such a copy too.
    #[cold]
    fn may_reopen(&mut self, key: &FlowKey, hash: u64, record: &TimeWait, segment: &Segment<'_>) -> bool {
        is_first_syn(segment)
            && segment.payload.is_empty()
            && self.challenged.is_reset(hash, record.rcv_nxt)
            && self.listeners.find(key).is_some()
    }

    /// Handles a SYN that meets an existing connection or TIME-WAIT of its four-tuple and opens nothing. Its first
    /// flight is invalidated, because the client may open a connection another way.
    fn not_opened(&mut self, key: &FlowKey, segment: &Segment<'_>, now: Instant) {
        if segment.flags.contains(Flags::SYN)
            && !segment.payload.is_empty()
            && let Some(listener) = self.listeners.find(key)
        {
            let hash = self.hasher.hash(key);
            self.spoil(&Syn { listener, key: *key, hash, segment, above: None, now });
        }
    }

    /// What remains of a connection with this hash that is over, and whether the peer closed it first.
    #[inline(always)]
    pub(crate) fn remembered(&self, hash: u64) -> Option<(TimeWait, bool)> {
        if let Some(record) = self.time_wait.find(hash) {
            return Some((record, false));
        }
        if self.held.len() == 0 {
            return None;
        }
        cold_path();
        self.held.find(hash).map(|record| (record, true))
    }

    /// Delivers a segment to connection `index`.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, index: u32, segment: &Segment<'_>, now: Instant) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let opens_or_ends = segment.flags.intersects(Flags::SYN.union(Flags::RST));
        if opens_or_ends || matches!(slot.owner, Owner::SynQueue(_) | Owner::Twin(_)) {
            return self.deliver_opening(index, segment, now);
        }
        let disposition = slot.conn.handle_segment(segment, now, &mut self.pool);
        let news = slot.touch(index, &mut self.outbox, self.journal.is_tracing());
        if unlikely(disposition != Disposition::Processed) {
            let key = slot.key;
            self.not_processed(index, key, disposition, segment);
        }
        if news {
            self.take_news(index, now);
        }
    }

    /// Like [`Self::deliver`], for a connection that is being opened, and for a SYN or RST.
    #[inline(never)]
    fn deliver_opening(&mut self, index: u32, segment: &Segment<'_>, now: Instant) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let key = slot.key;
        if unlikely(!self.armed.is_empty())
            && slot.conn.is_refused_by(segment)
            && self.hold_armed(index, CloseReason::Refused, now)
        {
            return;
        }
        let Some(slot) = self.slots.get_mut(index) else { return };
        if unlikely(segment.flags.contains(Flags::SYN) && !slot.client) {
            self.not_opened(&key, segment, now);
            self.contacted(index, segment);
        }
        let Some(slot) = self.slots.get_mut(index) else { return };
        if let Owner::SynQueue(listener) = slot.owner
            && !segment.flags.intersects(Flags::SYN.union(Flags::RST))
            && self.listeners.at(listener).is_some_and(|l| l.accept_queue.len() >= l.config.backlog)
        {
            // The client's data brings the ACK again, and there may be room then.
            return self.journal.drop_packet(Drop::AcceptQueueFull);
        }
        let crosses = !segment.flags.intersects(Flags::ACK.union(Flags::RST));
        if unlikely(crosses && key.is_carried()) && slot.client && slot.conn.state() == StateName::SynSent {
            // Nobody opens connections to clients in UDP, and a SYN without ACK can be forged without knowing any
            // number.
            return self.not_processed(index, key, Disposition::Dropped(DropReason::Unexpected), segment);
        }
        let disposition = if slot.asked.is_some() && slot.conn.state() == StateName::SynSent {
            self.handle_answer(index, segment, now)
        } else if let Owner::Twin(first) = slot.owner {
            cold_path();
            self.handle_twin(index, first, segment, now)
        } else {
            slot.conn.handle_segment(segment, now, &mut self.pool)
        };
        if unlikely(disposition != Disposition::Processed) {
            self.not_processed(index, key, disposition, segment);
        }
        self.touched(index, now);
    }

    #[cold]
    fn not_processed(&mut self, index: u32, key: FlowKey, disposition: Disposition, segment: &Segment<'_>) {
        match disposition {
            Disposition::Processed => {}
            Disposition::Dropped(reason) => {
                self.journal.counters.segments_dropped += 1;
                let id = self.id(index);
                self.journal.trace(Trace::Segment(id, reason));
            }
            Disposition::Reset => self.reply_reset(key, segment),
        }
    }

    /// RFC 9293 §3.10.7.1: answers a segment that belongs to nothing with a RST, but never answers a RST.
    pub(crate) fn reply_reset(&mut self, key: FlowKey, segment: &Segment<'_>) {
        self.journal.drop_packet(Drop::NoConnection);
        if segment.flags.contains(Flags::RST) {
            return;
        }
        self.journal.counters.resets_sent += 1;
        self.outbox.reply(Reply::reset(key, segment), &mut self.journal);
    }
}

/// Whether a segment is a client's first SYN.
fn is_first_syn(segment: &Segment<'_>) -> bool {
    let others = Flags::ACK.union(Flags::RST).union(Flags::FIN);
    segment.flags.contains(Flags::SYN) && !segment.flags.intersects(others)
}

/// Whether an IPv6 address stands for an IPv4 address (RFC 4291 §2.5.5.2).
pub(crate) fn is_mapped(ip: Ipv6Addr) -> bool {
    ip.to_ipv4_mapped().is_some()
}

/// Whether `ip` can be the address of one host. Nobody sends from other addresses (RFC 1122 §3.2.1.3), and nobody
/// connects to them (RFC 9293 §3.9.1.1).
pub(crate) fn possible_source(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !(ip.is_broadcast() || ip.is_multicast() || ip.is_unspecified()),
        IpAddr::V6(ip) => !(ip.is_multicast() || ip.is_unspecified()),
    }
}
