//! What surrounds the connections of a stack: its settings, its clock, its random numbers, the memory of the buffers, its
//! reports, and what leaves. It knows no connection.

use crate::addresses::{possible_on_link, possible_source};
use crate::config::Config;
use crate::event::PacketDrop;
use crate::flow::FlowKey;
use crate::isn::{Initial, IsnGenerator};
use crate::journal::Journal;
use crate::output::{Outbox, Reply};
use crate::random::Random;
use crate::shard::Membership;
use alloc::sync::Arc;
use core::net::IpAddr;
use core::time::Duration;
use firstflight_tcp::{Endpoints, Pool};
use firstflight_wire::hint::unlikely;
use firstflight_wire::icmp::echo_reply;
use firstflight_wire::tcp::{Flags, Segment};
use firstflight_wire::{Clock, Instant, SeqNum, udp};

/// See the module.
pub(crate) struct Env {
    pub config: Config,
    /// The settings of connections that have none of their own.
    pub tcp: Arc<firstflight_tcp::Config>,
    pub clock: Clock,
    pub random: Random,
    pub isn: IsnGenerator,
    pub pool: Pool,
    pub journal: Journal,
    pub outbox: Outbox,
    /// The place among several stacks, if there are several.
    pub shard: Membership,
}

impl Env {
    /// `numbers` is the secret of initial sequence numbers.
    pub(crate) fn new(config: Config, numbers: [u8; 16], random: Random, now: Instant) -> Self {
        let mut tcp = config.tcp.clone();
        // An IPv6 header is 20 bytes longer than IPv4's. Connections take the smaller of this size and the path's.
        tcp.set_mss(tcp.largest_segment().min(config.mtu.saturating_sub(40).min(0xffff) as u16));
        let limits = &config.limits;
        let from_socket =
            config.encapsulation.as_ref().is_some_and(|encapsulation| encapsulation.from_socket);
        Self {
            tcp: Arc::new(tcp),
            clock: Clock { mono: now, unix_ms: 0, uncertainty: Duration::MAX },
            random,
            isn: IsnGenerator::new(numbers),
            pool: Pool::new(limits.buffer_bytes),
            journal: Journal::new(limits.trace),
            outbox: Outbox::new(limits.replies, config.hop_limit.get(), from_socket),
            shard: Membership::new(config.shard, config.claims(), config.comes_here.clone()),
            config,
        }
    }

    /// The wall clock at `now`, computed from the last one that was set.
    pub(crate) fn clock_at(&self, now: Instant) -> Clock {
        let passed = now - self.clock.mono;
        Clock {
            mono: now,
            unix_ms: self.clock.unix_ms.saturating_add(passed.as_millis() as u64),
            uncertainty: self.clock.uncertainty,
        }
    }

    // --- addresses -----------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn is_ours(&self, ip: IpAddr) -> bool {
        self.config.addresses.contains(&ip)
    }

    /// Whether `ip` means all hosts of a network of the link.
    pub(crate) fn is_broadcast(&self, ip: IpAddr) -> bool {
        matches!(ip, IpAddr::V4(ip) if self.config.broadcasts.contains(&ip))
    }

    /// Whether a packet of no connection is for us and has a valid source. If not, the drop is counted.
    #[inline]
    pub(crate) fn concerns_us(&mut self, src: IpAddr, dst: IpAddr) -> bool {
        //= rfc9293 MUST-57
        if unlikely(!self.is_ours(dst)) {
            self.journal.drop_packet(PacketDrop::NotForUs);
            return false;
        }
        //= rfc9293 MUST-63
        if unlikely(!possible_on_link(src) || self.is_ours(src) || self.is_broadcast(src)) {
            self.journal.drop_packet(PacketDrop::BadSource);
            return false;
        }
        true
    }

    /// Whether a datagram of no connection is for us and from a peer that can be answered. If not, the drop is
    /// counted.
    pub(crate) fn comes_from_another(&mut self, key: &FlowKey) -> bool {
        let (src, dst) = (key.remote_ip(), key.local_ip());
        // The system has checked what comes through its socket. A program on this host may be at a loopback address.
        let from_socket =
            self.config.encapsulation.as_ref().is_some_and(|encapsulation| encapsulation.from_socket);
        if !from_socket && !self.is_ours(dst) {
            self.journal.drop_packet(PacketDrop::NotForUs);
            return false;
        }
        // Another program on the same host may have another UDP port.
        let ourselves = key.outer_local() == key.outer_remote() && (src == dst || self.is_ours(src));
        let possible =
            if from_socket { possible_source(src) } else { possible_on_link(src) && !self.is_broadcast(src) };
        if ourselves || key.outer_remote() == 0 || !possible {
            self.journal.drop_packet(PacketDrop::BadSource);
            return false;
        }
        true
    }

    // --- numbers and sizes of a connection ---------------------------------------------------------------

    /// Largest payload of a flow's segment that the link takes, options not counted. In UDP it is what fits into a
    /// datagram of the size that every path takes.
    #[inline]
    pub(crate) fn path_mss(&self, key: &FlowKey) -> u16 {
        let mut packet = self.config.mtu;
        if let Some(encapsulation) = self.config.encapsulation.as_ref().filter(|_| key.is_carried()) {
            packet = packet.min(key.ip_header_len() + udp::HEADER + usize::from(encapsulation.datagram));
        }
        packet.saturating_sub(key.headers_len() + 20).clamp(48, 0xffff) as u16
    }

    /// Payloads, options not counted, that a connection in UDP tries above [`Env::path_mss`]: the sizes that most
    /// tunnels take, that Ethernet takes, and that the link takes.
    #[inline]
    pub(crate) fn probe_sizes(&self, key: &FlowKey) -> [u16; 3] {
        if unlikely(key.is_carried()) { self.carried_probe_sizes(key) } else { [0; 3] }
    }

    fn carried_probe_sizes(&self, key: &FlowKey) -> [u16; 3] {
        if self.config.encapsulation.as_ref().is_none_or(|encapsulation| !encapsulation.probe) {
            return [0; 3];
        }
        let base = self.path_mss(key);
        let size = |packet: usize| {
            let payload = packet.min(self.config.mtu).saturating_sub(key.headers_len() + 20);
            payload.min(0xffff) as u16
        };
        let [tunnel, ethernet, link] = [1428, 1500, self.config.mtu].map(size);
        if link > base { [tunnel, ethernet, link] } else { [0; 3] }
    }

    /// The ports, initial numbers and sizes of a connection that begins. Its ISN is above `above`.
    #[inline]
    pub(crate) fn endpoints(&self, key: &FlowKey, above: Option<SeqNum>, now: Instant) -> Endpoints {
        let Initial { isn, ts_offset } = self.isn.initial(key, now);
        Endpoints {
            local_port: key.local_port(),
            remote_port: key.remote_port(),
            isn: above.map_or(isn, |a| if isn.gt(a) { isn } else { a + 1 }),
            ts_offset,
            default_mss: key.default_mss(),
            path_mss: self.path_mss(key),
            probe: self.probe_sizes(key),
        }
    }

    // --- answers ---------------------------------------------------------------------------------------

    /// Queues an answer. If too many wait, it is dropped.
    pub(crate) fn reply(&mut self, reply: Reply) {
        self.outbox.reply(reply, &mut self.journal);
    }

    /// RFC 9293 §3.10.7.1: answers a segment that belongs to nothing with a RST, but never answers a RST.
    pub(crate) fn reply_reset(&mut self, key: FlowKey, segment: &Segment<'_>) {
        self.journal.drop_packet(PacketDrop::NoConnection);
        if segment.flags.contains(Flags::RST) {
            return;
        }
        self.journal.counters.resets_sent += 1;
        self.reply(Reply::reset(key, segment));
    }

    pub(crate) fn answer_echo(&mut self, packet: &[u8]) {
        let mut out = alloc::vec![0; packet.len()];
        match echo_reply(packet, &mut out) {
            Some(len) if self.config.answer_echo => {
                out.truncate(len);
                self.reply(Reply::Packet(out));
            }
            _ => self.journal.drop_packet(PacketDrop::BadIcmp),
        }
    }
}
