//! How a received packet is handled.

use crate::addresses::is_mapped;
use crate::env::Env;
use crate::event::PacketDrop;
use crate::flow::FlowKey;
use crate::flows::Flows;
use crate::flows::icmp;
use crate::flows::slot::{Owner, ShownCertificate, SlotMarks};
use crate::fragments::Rules;
use crate::output::Reply;
use crate::server::syn::{Syn, is_first_syn};
use crate::stack::Stack;
use core::hint::cold_path;
use core::net::IpAddr;
use firstflight_tcp::{CloseReason, Disposition, DropReason, StateName, TimeWaitAction, follows};
use firstflight_wire::encapsulation::{Carried, Control};
use firstflight_wire::hint::unlikely;
use firstflight_wire::icmp::{self as wire_icmp, IcmpError, IcmpErrorKind};
use firstflight_wire::ip::{Ecn, Packet, Protocol, version};
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::{Instant, ParseError, udp};

/// A RST for a deferred SYN must be this close to it: behind the SYN and the data that it carries.
const DEFERRED_WINDOW: u32 = 1 << 11;

impl Stack {
    /// Handles one IP packet. It may contain any bytes.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8]) {
        self.flows.env.journal.counters.packets_in += 1;
        self.take_in(now, packet);
    }

    /// Handles a packet that is counted already, here or where another stack of the group got it.
    #[inline]
    pub(super) fn take_in(&mut self, now: Instant, packet: &[u8]) {
        // One branch for each family, so that the compiler specializes the code for it.
        match version(packet) {
            Some(4) => match Packet::parse_v4(packet) {
                Ok(ip) => self.handle_ip(&ip, packet, now),
                Err(ParseError::Fragment) => self.handle_fragment(packet, now),
                Err(_) => self.flows.env.journal.drop_packet(PacketDrop::BadIp),
            },
            Some(6) => match Packet::parse_v6(packet) {
                // An IPv6 packet must not have IPv4-mapped addresses: IPv4 addresses travel in IPv4 packets only.
                Ok(ip) if unlikely(is_mapped(ip.src) || is_mapped(ip.dst)) => {
                    self.flows.env.journal.drop_packet(PacketDrop::BadSource)
                }
                Ok(ip) => self.handle_ip(&ip, packet, now),
                Err(ParseError::Fragment) => self.handle_fragment(packet, now),
                Err(_) => self.flows.env.journal.drop_packet(PacketDrop::BadIp),
            },
            _ => self.flows.env.journal.drop_packet(PacketDrop::BadIp),
        }
    }

    #[inline]
    fn handle_ip<A: Into<IpAddr> + Copy>(&mut self, ip: &Packet<'_, A>, packet: &[u8], now: Instant) {
        if unlikely(ip.protocol != Protocol::Tcp) {
            if ip.protocol == Protocol::Udp && self.flows.encapsulation.is_some() {
                let ce = ip.ecn == Ecn::Ce;
                let ends = (ip.src.into(), ip.dst.into());
                return self.handle_udp(ends, ip.payload, ce, packet, now);
            }
            return self.handle_other(packet, now);
        }
        let Ok(mut segment) = Segment::parse_checked(ip.payload, ip.src.into(), ip.dst.into()) else {
            cold_path();
            return self.flows.env.journal.drop_packet(PacketDrop::BadTcp);
        };
        segment.ce = ip.ecn == Ecn::Ce;
        let key = FlowKey::of(ip.dst.into(), segment.dst_port, ip.src.into(), segment.src_port);
        let hash = self.flows.table.hasher.hash(&key);
        match self.flows.table.find_hashed(hash, &key) {
            // The addresses were checked when the connection began.
            Some(index) => self.deliver(index, &segment, now),
            None if self.flows.env.concerns_us(ip.src.into(), ip.dst.into()) => {
                // The key is copied only here, so that the key of the look-up need not be in memory.
                let key = { key };
                if unlikely(self.flows.env.shard.is_in_group()) {
                    return self.handle_new_in_group(&key, hash, &segment, packet, now);
                }
                self.handle_new(&key, hash, &segment, now);
            }
            None => {}
        }
    }

    /// Like [`Self::handle_new`], of a stack that shares its addresses with others: the segment may be for one of them.
    #[inline(never)]
    fn handle_new_in_group(
        &mut self,
        key: &FlowKey,
        hash: u64,
        segment: &Segment<'_>,
        packet: &[u8],
        now: Instant,
    ) {
        let Env { shard, journal, .. } = &mut self.flows.env;
        if shard.pass_on_to_holder(key, hash, is_first_syn(segment), packet, now, journal) {
            return;
        }
        self.handle_new(key, hash, segment, now);
        self.flows.env.shard.send_round(packet, now, &mut self.flows.env.journal);
        if unlikely(self.flows.env.shard.is_back()) && self.server.waiting_syn(key).is_none() {
            self.flows.table.end_round(hash, key);
        }
    }

    /// Handles a packet without a TCP segment.
    fn handle_other(&mut self, packet: &[u8], now: Instant) {
        let Ok(ip) = Packet::parse(packet) else { return };
        let icmp = matches!(ip.protocol, Protocol::Icmp | Protocol::Icmpv6);
        // A socket passes on ICMP errors that the kernel has checked. Their source may be our own address, if the peer
        // is on this host.
        let from_kernel = icmp
            && self.flows.env.is_ours(ip.dst)
            && self.flows.encapsulation.as_ref().is_some_and(|c| c.from_socket);
        match ip.protocol {
            _ if !from_kernel && !self.flows.env.concerns_us(ip.src, ip.dst) => {}
            _ if icmp => self.handle_icmp(&ip, packet, now),
            _ => self.flows.env.journal.drop_packet(PacketDrop::Protocol),
        }
        self.settle(now);
    }

    /// Takes a packet that is a fragment.
    fn handle_fragment(&mut self, packet: &[u8], now: Instant) {
        let rules = Rules {
            limits: self.flows.env.config.limits.fragments,
            mtu: self.flows.env.config.mtu,
            udp: self.flows.encapsulation.is_some(),
        };
        let parsed = rules.parse(packet);
        let ours =
            parsed.as_ref().is_ok_and(|fragment| self.flows.env.concerns_us(fragment.src, fragment.dst));
        // The stack that puts the packet together counts the fragment.
        if let Ok(fragment) = &parsed
            && ours
            && self.flows.env.shard.pass_on_fragment(
                fragment.src,
                fragment.dst,
                packet,
                &mut self.flows.env.journal,
            )
        {
            return;
        }
        self.flows.env.journal.counters.fragments_in += 1;
        let fragment = match parsed {
            Ok(fragment) if ours => fragment,
            Ok(_) => return,
            Err(reason) => return self.flows.env.journal.drop_packet(reason),
        };
        let counters = &mut self.flows.env.journal.counters;
        match self.fragments.handle(&fragment, &rules, now, &mut self.flows.env.random, counters) {
            // The whole packet is not a fragment itself: its header is new, and the headers behind it were checked with
            // the first fragment.
            Some(Ok(whole)) => {
                self.flows.env.journal.counters.packets_reassembled += 1;
                self.handle_packet(now, &whole);
            }
            Some(Err(reason)) => self.flows.env.journal.drop_packet(reason),
            None => {}
        }
    }

    fn handle_icmp(&mut self, ip: &Packet<'_>, packet: &[u8], now: Instant) {
        let error = match ip.protocol {
            Protocol::Icmp => wire_icmp::parse_v4(ip.payload),
            _ => wire_icmp::parse_v6(ip.payload, ip.src, ip.dst),
        };
        match error {
            Ok(error) => self.handle_icmp_error(&error, packet, now),
            Err(_) => self.flows.env.answer_echo(packet),
        }
    }

    //= rfc9293 MUST-54
    fn handle_icmp_error(&mut self, error: &IcmpError<'_>, packet: &[u8], now: Instant) {
        let Some((key, seq)) = icmp::quoted(error) else {
            return self.flows.env.journal.drop_packet(PacketDrop::BadIcmp);
        };
        let Some(index) = self.flows.table.find(&key) else {
            let hash = self.flows.table.hasher.hash(&key);
            let Env { shard, journal, .. } = &mut self.flows.env;
            if shard.pass_on_to_holder(&key, hash, false, packet, now, journal) {
                return;
            }
            return self.flows.env.journal.drop_packet(PacketDrop::BadIcmp);
        };
        let Some(slot) = self.flows.table.slots.get_mut(index) else { return };
        // The quoted number must be outstanding (RFC 5927 §4.1).
        if !slot.conn.owns_sequence(seq) {
            return self.flows.env.journal.drop_packet(PacketDrop::BadIcmp);
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
                if slot.is_client() {
                    let network = self.flows.env.config.network_of(&key);
                    self.client.learn_path_mss(network, key.remote_ip(), mss, now);
                }
            }
            kind if kind.is_hard() => self.unreachable(index, now),
            IcmpErrorKind::HostUnreachable if self.flows.env.config.unreachable_ends_handshakes => {
                self.unreachable(index, now);
            }
            //= rfc9293 MUST-56
            // Soft error: routing may recover, and the connection's own timeouts decide (RFC 5461). But filters report
            // such errors, too, so a plain SYN follows one with an option or data.
            IcmpErrorKind::HostUnreachable | IcmpErrorKind::NetUnreachable => {
                slot.conn.refused_for_now(now);
                if error.kind == IcmpErrorKind::HostUnreachable {
                    self.server.disowned(&mut self.flows, index, now);
                }
            }
            _ => return,
        }
        self.flows.touched(index);
    }

    /// The network says that the peer of connection `index` cannot be reached.
    ///
    /// Of a client in UDP it says nothing: an address translator that has forgotten its mapping reports the same, and the
    /// client's next segment comes from another port. But if a certificate vouches for the client's address, the report may
    /// come from a victim there, which asked for nothing.
    fn unreachable(&mut self, index: u32, now: Instant) {
        let Some(slot) = self.flows.table.slots.get(index) else { return };
        if slot.key.is_carried() && !slot.is_client() && slot.shown == ShownCertificate::Nothing {
            return;
        }
        if !self.client.hold_in_lookup(&mut self.flows, index, CloseReason::Unreachable, now)
            && let Some(slot) = self.flows.table.slots.get_mut(index)
        {
            slot.conn.unreachable(now, &mut self.flows.env.pool);
        }
    }

    /// Handles a segment whose four-tuple is not known.
    #[inline]
    pub(crate) fn handle_new(&mut self, key: &FlowKey, hash: u64, segment: &Segment<'_>, now: Instant) {
        if unlikely(self.client.has_in_lookup()) {
            if let Some(index) = self.client.answers_in_lookup(&mut self.flows, key, segment, now) {
                return self.deliver(index, segment, now);
            }
            if self.client.overtakes_answer(&mut self.flows.table, key, segment) {
                return self.flows.env.journal.drop_packet(PacketDrop::NoConnection);
            }
        }
        self.handle_stray(key, hash, segment, now);
    }

    /// Handles a segment of no connection.
    pub(crate) fn handle_stray(&mut self, key: &FlowKey, hash: u64, segment: &Segment<'_>, now: Instant) {
        if unlikely(key.is_carried()) {
            if follows(segment) && self.server.listener(key).is_some() {
                return self.server.handle_follower(&mut self.flows.env, key, segment);
            }
            let server = &self.server;
            let opens = |flows: &Flows| server.opens_from_cookie(&flows.table, key, segment, now);
            if self.flows.comes_from_new_port(key, segment, now, opens) {
                return;
            }
        }
        if unlikely(!self.flows.table.early_ends.is_empty()) {
            // A SYN cookie may have answered a SYN of this number before, and its ACK would open a connection, too.
            let isn = if is_first_syn(segment) { segment.seq } else { segment.seq - 1 };
            if self.flows.table.early_ends.knows(hash, isn) && !segment.flags.contains(Flags::RST) {
                self.server.not_opened(&mut self.flows, key, segment, now);
                return self.flows.env.reply_reset(*key, segment);
            }
        }
        let (mut above, mut listener) = (None, None);
        if let Some((record, is_last_ack)) = self.flows.table.remembered(hash) {
            let judged = match record.judge(segment) {
                TimeWaitAction::Acknowledge { .. } if self.server.may_reopen(key, hash, &record, segment) => {
                    record.reopen()
                }
                judged => judged,
            };
            if unlikely(!matches!(judged, TimeWaitAction::Reopen { .. })) {
                self.server.not_opened(&mut self.flows, key, segment, now);
            }
            match judged {
                TimeWaitAction::Ignore => {
                    if segment.flags.contains(Flags::RST) && segment.seq == record.rcv_nxt {
                        self.server.time_wait_was_reset(hash, record.rcv_nxt);
                    }
                    return;
                }
                TimeWaitAction::Acknowledge { restart } => {
                    if is_first_syn(segment) {
                        self.server.syn_met_time_wait(hash, record.rcv_nxt);
                    }
                    if restart && !is_last_ack {
                        self.flows.table.time_wait.restart(hash, now, self.flows.env.tcp.time_wait_lasts());
                    }
                    let value = self.flows.env.isn.timestamp(key, now);
                    return self.flows.env.reply(Reply::time_wait(*key, &record, value));
                }
                TimeWaitAction::Reopen { above: isn } => {
                    listener = self.server.listener(key);
                    if listener.is_none() {
                        return self.flows.env.reply_reset(*key, segment);
                    }
                    self.flows.table.time_wait.remove(hash);
                    if unlikely(self.flows.table.last_ack_records.len() > 0) {
                        self.flows.table.last_ack_records.remove(hash);
                    }
                    above = Some(isn);
                }
            }
        }
        if unlikely(segment.flags.contains(Flags::RST))
            && let Some((job, isn)) = self.server.waiting_syn(key)
            && segment.seq.in_window(isn, DEFERRED_WINDOW)
        {
            // The client has given up, so nobody waits for the verdict. Or an attacker with a copy of the SYN for
            // later spoofed the RST.
            if !self.server.overtaken(&mut self.flows, job, now) {
                self.flows.env.journal.drop_packet(PacketDrop::Unreported);
            }
            return;
        }
        let only_syn =
            segment.flags.contains(Flags::SYN) && !segment.flags.intersects(Flags::ACK.union(Flags::RST));
        match listener.or_else(|| self.server.listener(key)) {
            Some(listener) if only_syn => {
                let syn = Syn { listener, key: *key, hash, segment, above, now };
                if let Some(child) = self.server.handle_syn(&mut self.flows, &syn) {
                    self.take_notifications(child, now);
                }
            }
            Some(listener)
                if self.server.handle_cookie_ack(&mut self.flows, listener, *key, hash, segment, now) =>
            {
                self.settle(now);
            }
            // RFC 9293 §3.10.7.2, fourth step: a listener does not answer a segment without SYN, ACK and RST.
            Some(_) if !segment.flags.intersects(Flags::SYN.union(Flags::ACK).union(Flags::RST)) => {
                self.flows.env.journal.drop_packet(PacketDrop::BadFlags);
            }
            _ => self.flows.env.reply_reset(*key, segment),
        }
    }

    /// Delivers a segment to connection `index`.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, index: u32, segment: &Segment<'_>, now: Instant) {
        let Some(slot) = self.flows.table.slots.get_mut(index) else { return };
        let opens_or_ends = segment.flags.intersects(Flags::SYN.union(Flags::RST));
        if opens_or_ends || matches!(slot.owner, Owner::SynQueue(_) | Owner::SecondAttempt(_)) {
            return self.deliver_opening(index, segment, now);
        }
        if self.flows.deliver(index, segment, now) {
            self.take_notifications(index, now);
        }
    }

    /// Like [`Self::deliver`], for a connection that is being opened, and for a SYN or RST.
    fn deliver_opening(&mut self, index: u32, segment: &Segment<'_>, now: Instant) {
        let Some(slot) = self.flows.table.slots.get_mut(index) else { return };
        let (client, owner) = (slot.is_client(), slot.owner);
        if unlikely(self.client.has_in_lookup())
            && slot.conn.is_refused_by(segment)
            && self.client.hold_in_lookup(&mut self.flows, index, CloseReason::Refused, now)
        {
            return self.settle(now);
        }
        if unlikely(segment.flags.contains(Flags::SYN) && !client) {
            self.met_again(index, segment, now);
        }
        if let Owner::SynQueue(listener) = owner
            && !segment.flags.intersects(Flags::SYN.union(Flags::RST))
            && self.server.is_full(listener)
        {
            // The client's data brings the ACK again, and there may be room then.
            return self.flows.env.journal.drop_packet(PacketDrop::AcceptQueueFull);
        }
        let Some(slot) = self.flows.table.slots.get_mut(index) else { return };
        let crosses = !segment.flags.intersects(Flags::ACK.union(Flags::RST));
        if unlikely(crosses && slot.key.is_carried()) && client && slot.conn.state() == StateName::SynSent {
            // Nobody opens connections to clients in UDP, and a SYN without ACK can be forged without knowing any
            // number.
            let dropped = Disposition::Dropped(DropReason::Unexpected);
            return self.flows.not_processed(index, dropped, segment);
        }
        let disposition = if slot.pending.is_some() && slot.conn.state() == StateName::SynSent {
            self.client.handle_answer(&mut self.flows, index, segment, now)
        } else if let Owner::SecondAttempt(first) = owner {
            cold_path();
            self.client.handle_second_attempt(&mut self.flows, index, first, segment, now)
        } else {
            slot.conn.handle_segment(segment, now, &mut self.flows.env.pool)
        };
        if unlikely(disposition != Disposition::Processed) {
            self.flows.not_processed(index, disposition, segment);
        }
        if self.flows.touch(index) {
            self.take_notifications(index, now);
        }
        self.settle(now);
    }

    /// A SYN comes for the child `index`, which exists already.
    fn met_again(&mut self, index: u32, segment: &Segment<'_>, now: Instant) {
        let Some(slot) = self.flows.table.slots.get_mut(index) else { return };
        let key = slot.key;
        if self.server.ran_elsewhere(slot, segment, now) {
            slot.marks.set(SlotMarks::REPEAT);
        }
        self.server.not_opened(&mut self.flows, &key, segment, now);
        self.server.contacted(&mut self.flows.table, index, segment);
    }

    /// Handles the UDP datagram of `packet`. There is an encapsulation. `#[inline(never)]` keeps this out of raw TCP's
    /// path.
    pub(crate) fn handle_udp(
        &mut self,
        (src, dst): (IpAddr, IpAddr),
        bytes: &[u8],
        ce: bool,
        packet: &[u8],
        now: Instant,
    ) {
        let Some(encapsulation) = &self.flows.encapsulation else { return };
        let (port, trusted) = (encapsulation.port, encapsulation.from_socket);
        let datagram =
            if trusted { udp::Datagram::parse(bytes) } else { udp::Datagram::parse_checked(bytes, src, dst) };
        let Ok(datagram) = datagram else { return self.flows.env.journal.drop_packet(PacketDrop::BadUdp) };
        let carried = Carried::parse(datagram.payload).ok().filter(|_| datagram.dst_port == port);
        let Some(carried) = carried else { return self.handle_not_carried(src, dst, port, &datagram) };
        match carried {
            Carried::Segment(bytes) => {
                let Ok(mut segment) = Segment::parse(bytes) else {
                    return self.flows.env.journal.drop_packet(PacketDrop::BadTcp);
                };
                segment.ce = ce;
                let key = FlowKey::of(dst, segment.dst_port, src, segment.src_port)
                    .carried(port, datagram.src_port);
                let hash = self.flows.table.hasher.hash(&key);
                match self.flows.table.find_hashed(hash, &key) {
                    Some(index) => self.deliver(index, &segment, now),
                    None if self.flows.env.comes_from_another(&key)
                        && !self.flows.env.shard.pass_on(&key, packet, &mut self.flows.env.journal) =>
                    {
                        self.handle_new(&key, hash, &segment, now);
                        self.flows.env.shard.send_round(packet, now, &mut self.flows.env.journal);
                    }
                    None => {}
                }
            }
            Carried::Control(control) => {
                let key = FlowKey::of(dst, 0, src, 0).carried(port, datagram.src_port);
                if self.flows.env.comes_from_another(&key) && !self.pass_on_control(&key, control, packet) {
                    self.flows.handle_control(key, control, now);
                }
            }
        }
        self.settle(now);
    }

    /// Whether a control message of the encapsulation is for another stack of the group only.
    fn pass_on_control(&mut self, key: &FlowKey, control: Control, packet: &[u8]) -> bool {
        let Flows { table, env, encapsulation } = &mut self.flows;
        let ours = || {
            encapsulation
                .as_ref()
                .is_some_and(|encapsulation| encapsulation.find(table.hasher.hash(key), key).is_some())
        };
        env.shard.pass_on_control(key, control, ours, packet, &mut env.journal)
    }
}
