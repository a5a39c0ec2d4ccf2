//! One stack against a hand-made peer, packetdrill style, in virtual time.
//!
//! Numbers are relative: 0 is the SYN of the side that sends them, so the first byte of each stream is 1. Times are
//! milliseconds since the peer was made.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]
#![allow(clippy::wrong_self_convention, reason = "expectations are chained: `p.expect().is_ack().ack(1)`")]

pub(crate) mod primed;
mod segment;
pub(crate) mod visited;

pub(crate) use segment::{Got, LATE_MS, Seg, seg};

use firstflight_credential::{CookieKey, FastOpenPolicy, Flow, KeyRing, PendingLimit, Scheme};
use firstflight_stack::{
    CloseReason, Config, ConnId, ConnectConfig, Event, IoError, ListenConfig, ListenerId, Readiness, Stack,
    StateName, Trace,
};
use firstflight_wire::encapsulation::Carried;
use firstflight_wire::icmp::IcmpErrorKind;
use firstflight_wire::ip::{Ecn, Header as IpHeader, Packet, Protocol};
use firstflight_wire::tcp::{
    Cookie, Flags, Header, OptionsBuf, SackBlocks, Segment, Timestamps, fill_checksum,
};
use firstflight_wire::udp::{self, Datagram};
use firstflight_wire::{Clock, Instant, SeqNum};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Port of the stack's listener, and of the peer when the stack connects.
pub(crate) const PORT: u16 = 80;
/// The peer's port when it connects.
pub(crate) const CLIENT_PORT: u16 = 40_000;
/// The peer's initial sequence number: close to the wrap, so that every test crosses it.
pub(crate) const PEER_ISN: u32 = 0xffff_ff00;

const START: Instant = Instant::from_secs(1_000);

/// The stack and the peer.
pub(crate) struct Peer {
    pub stack: Stack,
    pub now: Instant,
    /// The stack's port on the current flow.
    pub local_port: u16,
    /// The peer's port on the current flow.
    pub port: u16,
    /// The peer's ISN on the current flow.
    pub isn: u32,
    /// The window that the peer announces if a segment does not set one.
    pub window: u16,
    pub events: VecDeque<Event>,
    pub traces: Vec<Trace>,
    /// How long the peer takes for its ACK in `open_passive`, which measures the path.
    pub handshake_ms: u64,
    /// The mark on the peer's packets.
    pub ecn: Ecn,
    /// Segments that were sent and not yet expected.
    pub sent: VecDeque<Got>,
    /// Packets that were sent and are not TCP.
    pub others: VecDeque<Vec<u8>>,
    /// UDP ports of the segments (the peer's, the stack's); `None`: raw IP.
    pub outer: Option<(u16, u16)>,
    ours: IpAddr,
    theirs: IpAddr,
    stack_isn: BTreeMap<u16, SeqNum>,
    peer_isn: BTreeMap<u16, u32>,
    newest_ts: u32,
    states: BTreeMap<ConnId, StateName>,
    out: Vec<u8>,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(tune: impl FnOnce(&mut Config)) -> Self {
        Self::on("10.0.0.1", "10.0.0.2", tune)
    }

    pub(crate) fn v6(tune: impl FnOnce(&mut Config)) -> Self {
        Self::on("fd00::1", "fd00::2", tune)
    }

    fn on(ours: &str, theirs: &str, tune: impl FnOnce(&mut Config)) -> Self {
        let (ours, theirs): (IpAddr, IpAddr) = (ours.parse().unwrap(), theirs.parse().unwrap());
        let mut config = Config::new(vec![ours], [7; 32]);
        // Tests count acknowledgements. The quick ones at the start have their own tests.
        config.tcp.set_quick_acks(0);
        config.limits.trace = 4096;
        tune(&mut config);
        let mut stack = Stack::new(config, START);
        stack.handle_clock(Clock { mono: START, unix_ms: 1_800_000_000_000, uncertainty: Duration::ZERO });
        Self {
            stack,
            now: START,
            local_port: PORT,
            port: CLIENT_PORT,
            isn: PEER_ISN,
            window: 65_000,
            events: VecDeque::new(),
            traces: Vec::new(),
            handshake_ms: 0,
            ecn: Ecn::NotEct,
            sent: VecDeque::new(),
            others: VecDeque::new(),
            outer: None,
            ours,
            theirs,
            stack_isn: BTreeMap::new(),
            peer_isn: BTreeMap::new(),
            newest_ts: 0,
            states: BTreeMap::new(),
            out: vec![0; 65_536],
        }
    }

    // --- time ------------------------------------------------------------------------------------

    pub(crate) fn ms(&self) -> u64 {
        (self.now - START).as_millis() as u64
    }

    /// Lets time pass up to `ms` after the start; timers fire on the way.
    pub(crate) fn at(&mut self, ms: u64) {
        let to = START + Duration::from_millis(ms);
        assert!(to >= self.now, "time does not run backwards");
        self.pump();
        while let Some(next) = self.stack.poll_timeout().filter(|t| *t <= to) {
            self.now = next.max(self.now);
            self.stack.handle_timeout(self.now);
            self.pump();
        }
        self.now = to;
        self.pump();
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.at(self.ms() + ms);
    }

    /// Takes events and packets out of the stack.
    pub(crate) fn pump(&mut self) {
        self.events.extend(std::iter::from_fn(|| self.stack.poll_event()));
        while let Some(len) = self.stack.poll_transmit(self.now, &mut self.out) {
            let packet = self.out[..len].to_vec();
            self.note(packet);
        }
        self.events.extend(std::iter::from_fn(|| self.stack.poll_event()));
        while let Some(trace) = self.stack.poll_trace() {
            self.follow(&trace);
            self.traces.push(trace);
        }
    }

    /// In every test, every transition is in the table, and begins where the last one ended.
    fn follow(&mut self, trace: &Trace) {
        let Trace::Transition(id, t) = trace else { return };
        assert_eq!(firstflight_tcp::transition::next(t.from, t.trigger), Some(t.to), "{t:?}");
        let begins = |s| matches!(s, StateName::Closed | StateName::Listen);
        match self.states.insert(*id, t.to) {
            Some(before) => assert_eq!(before, t.from, "{t:?}"),
            None => assert!(begins(t.from), "{t:?}"),
        }
    }

    fn note(&mut self, packet: Vec<u8>) {
        let ip = Packet::parse(&packet).unwrap();
        assert_eq!((ip.src, ip.dst), (self.ours, self.theirs));
        // RFC 6864 §4.1: packets that may not be fragmented need no identification.
        assert!(ip.src.is_ipv6() || packet[4..8] == [0, 0, 0x40, 0], "identification, or no DF");
        let (s, outer) = match ip.protocol {
            Protocol::Tcp => (Segment::parse_checked(ip.payload, ip.src, ip.dst).unwrap(), None),
            Protocol::Udp => {
                // A stack that leaves checksums to its socket computes none.
                let from_socket = self.stack.config().encapsulation.is_some_and(|c| c.from_socket);
                let checked = Datagram::parse_checked(ip.payload, ip.src, ip.dst);
                let datagram = if from_socket { Datagram::parse(ip.payload) } else { checked }.unwrap();
                let Ok(Carried::Segment(bytes)) = Carried::parse(datagram.payload) else {
                    return self.others.push_back(packet);
                };
                assert_eq!(bytes[16..18], [0, 0], "the inner checksum is not used");
                let outer = (datagram.dst_port, datagram.src_port);
                (Segment::parse(bytes).unwrap(), Some(outer))
            }
            _ => return self.others.push_back(packet),
        };
        let port = s.dst_port;
        if s.flags.contains(Flags::SYN) {
            self.stack_isn.insert(port, s.seq);
            self.local_port = s.src_port;
        }
        if let Some(ts) = s.options.timestamps {
            self.newest_ts = ts.value;
        }
        let base = self.stack_isn.get(&port).copied().unwrap_or(SeqNum::new(0));
        let irs = self.peer_isn.get(&port).copied().unwrap_or(self.isn);
        let got = Got {
            at: self.ms(),
            flags: s.flags,
            seq: (s.seq - base) as u32,
            ack: s.ack.get().wrapping_sub(irs),
            raw_seq: s.seq,
            raw_ack: s.ack,
            window: s.window,
            mss: s.options.mss,
            scale: s.options.window_scale,
            sack_ok: s.options.sack_permitted,
            ts: s.options.timestamps,
            sack: (s.options.sack().as_slice().iter())
                .map(|b| (b.0.get().wrapping_sub(irs), b.1.get().wrapping_sub(irs)))
                .collect(),
            fast_open: s.options.fast_open(),
            data: s.payload.to_vec(),
            port,
            outer,
            packet: packet.clone(),
        };
        self.sent.push_back(got);
    }

    // --- the wire --------------------------------------------------------------------------------

    /// Another flow: the peer uses this port from now on, and this ISN.
    pub(crate) fn flow(&mut self, port: u16, isn: u32) {
        (self.port, self.isn) = (port, isn);
    }

    pub(crate) fn send(&mut self, seg: Seg) {
        let packet = self.build(&seg);
        self.inject(&packet);
    }

    /// Sends several segments before the stack may answer.
    pub(crate) fn send_all(&mut self, segs: impl IntoIterator<Item = Seg>) {
        for seg in segs {
            let packet = self.build(&seg);
            self.stack.handle_packet(self.now, &packet);
        }
        self.pump();
    }

    /// Hands a segment to the stack without letting it answer yet.
    pub(crate) fn deliver(&mut self, seg: Seg) {
        let packet = self.build(&seg);
        self.stack.handle_packet(self.now, &packet);
    }

    /// The peer has this address from now on.
    pub(crate) fn moves_to(&mut self, ip: &str) {
        self.theirs = ip.parse().unwrap();
    }

    /// Hands an IP packet to the stack.
    pub(crate) fn inject(&mut self, packet: &[u8]) {
        self.stack.handle_packet(self.now, packet);
        self.pump();
    }

    fn build(&mut self, seg: &Seg) -> Vec<u8> {
        self.peer_isn.insert(self.port, self.isn);
        let base = self.stack_isn.get(&self.port).copied().unwrap_or(SeqNum::new(0));
        let rel = |n: u32| base + n;
        let mut options = OptionsBuf::new();
        if let Some(mss) = seg.mss {
            assert!(options.mss(mss));
        }
        if seg.sack_ok {
            assert!(options.sack_permitted());
        }
        if let Some((value, echo)) = seg.ts {
            let first = seg.flags.contains(Flags::SYN) && !seg.flags.contains(Flags::ACK);
            let echo = echo.unwrap_or(if first { 0 } else { self.newest_ts });
            assert!(options.timestamps(Timestamps { value, echo }));
        }
        if let Some(scale) = seg.scale {
            assert!(options.window_scale(scale));
        }
        let mut blocks = SackBlocks::EMPTY;
        for &(a, b) in &seg.sack {
            blocks.push(rel(a), rel(b));
        }
        assert!(options.sack(&blocks));
        assert!(options.raw(&seg.raw_options), "the options do not fit");
        let ack = seg.raw_ack.unwrap_or_else(|| seg.ack.map_or(SeqNum::new(0), rel));
        let header = Header {
            src_port: self.port,
            dst_port: self.local_port,
            seq: SeqNum::new(self.isn.wrapping_add(seg.seq)),
            ack,
            flags: seg.flags,
            window: seg.window.unwrap_or(self.window),
            urgent: 0,
        };
        let mut tcp = vec![0; 60 + seg.data.len()];
        let at = header.emit(options.finish(), &mut tcp).unwrap();
        tcp[at..at + seg.data.len()].copy_from_slice(&seg.data);
        tcp.truncate(at + seg.data.len());
        if let Some(outer) = self.outer {
            return self.udp(outer, &[&[8, 0, 0, 0], &tcp[..]].concat());
        }
        fill_checksum(&mut tcp, self.theirs, self.ours);
        self.ip(Protocol::Tcp, &tcp)
    }

    /// An IP packet from the peer to the stack with a UDP datagram between these ports.
    pub(crate) fn udp(&self, (from, to): (u16, u16), payload: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0; 8];
        udp::Header { src_port: from, dst_port: to }.emit(payload.len(), &mut datagram).unwrap();
        datagram.extend_from_slice(payload);
        udp::fill_checksum(&mut datagram, self.theirs, self.ours);
        self.ip(Protocol::Udp, &datagram)
    }

    /// The segment as an IP packet, not sent.
    pub(crate) fn packet(&mut self, seg: &Seg) -> Vec<u8> {
        self.build(seg)
    }

    /// An IP packet from the peer to the stack.
    pub(crate) fn ip(&self, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
        let header = IpHeader {
            src: self.theirs,
            dst: self.ours,
            protocol,
            hop_limit: 60,
            ecn: self.ecn,
            dont_fragment: true,
            identification: 1,
        };
        let mut out = vec![0; 40 + payload.len()];
        let at = header.emit(payload.len(), &mut out).unwrap();
        out[at..at + payload.len()].copy_from_slice(payload);
        out.truncate(at + payload.len());
        out
    }

    /// A router reports `kind` about a packet that the stack sent.
    pub(crate) fn icmp(&mut self, kind: IcmpErrorKind, about: &[u8]) {
        let mut out = vec![0; 2048];
        let len = firstflight_wire::icmp::emit_error(kind, self.theirs, self.ours, about, &mut out).unwrap();
        self.inject(&out[..len]);
    }

    /// The next segment that the stack sent.
    #[track_caller]
    pub(crate) fn expect(&mut self) -> Got {
        self.pump();
        match self.sent.pop_front() {
            Some(got) => got,
            None => panic!("the stack sent nothing"),
        }
    }

    /// What is sent from now until `until` ms is sent at these times and nothing else.
    #[track_caller]
    pub(crate) fn sends_at(&mut self, until: u64, times: &[u64]) -> Vec<Got> {
        self.at(until);
        let got = self.drain();
        assert_eq!(got.len(), times.len(), "{got:?}");
        got.into_iter().zip(times).map(|(g, t)| g.at(*t)).collect()
    }

    /// The stack has sent nothing more.
    #[track_caller]
    pub(crate) fn quiet(&mut self) {
        self.pump();
        assert!(self.sent.is_empty(), "unexpected: {:?}", self.sent);
    }

    /// Everything that was sent and not yet expected.
    pub(crate) fn drain(&mut self) -> Vec<Got> {
        self.pump();
        self.sent.drain(..).collect()
    }

    // --- the application above the stack -----------------------------------------------------------

    pub(crate) fn local(&self) -> SocketAddr {
        SocketAddr::new(self.ours, PORT)
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.theirs, self.port)
    }

    pub(crate) fn listen(&mut self) -> ListenerId {
        self.listen_with(|_| {})
    }

    pub(crate) fn listen_with(&mut self, tune: impl FnOnce(&mut ListenConfig)) -> ListenerId {
        let mut config = ListenConfig::new(self.local());
        tune(&mut config);
        self.stack.listen(config).unwrap()
    }

    /// Connects to the peer, which waits at port 80.
    pub(crate) fn connect(&mut self, data: &[u8], fast_open: bool) -> ConnId {
        self.port = PORT;
        let encapsulation = self.outer.map(|(theirs, _)| theirs);
        self.connect_with(data, &ConnectConfig::default().fast_open(fast_open).encapsulation(encapsulation))
    }

    pub(crate) fn connect_with(&mut self, data: &[u8], config: &ConnectConfig) -> ConnId {
        let remote = SocketAddr::new(self.theirs, self.port);
        let (id, taken) = self.stack.connect(remote, data, config, self.now).unwrap();
        assert_eq!(taken, data.len());
        self.pump();
        id
    }

    /// The peer's SYN, the SYN-ACK, the ACK; `syn` carries the options. Returns the connection.
    pub(crate) fn open_passive(&mut self, listener: ListenerId, syn: Seg) -> ConnId {
        let ts = syn.ts;
        self.send(syn.syn());
        self.expect().syn_ack().ack(1);
        self.pass(self.handshake_ms);
        let mut ack = seg().seq(1).ack(1);
        ack.ts = ts;
        self.send(ack);
        self.quiet();
        self.accept(listener)
    }

    /// The stack's SYN, the peer's SYN-ACK with the options of `syn_ack`, the ACK.
    pub(crate) fn open_active(&mut self, syn_ack: Seg) -> ConnId {
        let id = self.connect(b"", false);
        self.expect().is_syn();
        self.send(syn_ack.syn().ack(1));
        self.expect().is_ack().seq(1).ack(1).empty();
        self.quiet();
        id
    }

    #[track_caller]
    pub(crate) fn accept(&mut self, listener: ListenerId) -> ConnId {
        let id = self.stack.accept(listener).expect("nothing to accept");
        self.pump();
        id
    }

    #[track_caller]
    pub(crate) fn nothing_to_accept(&mut self, listener: ListenerId) {
        assert!(self.stack.accept(listener).is_none());
    }

    pub(crate) fn write(&mut self, id: ConnId, data: &[u8]) -> usize {
        let n = self.stack.write(id, data, self.now).unwrap();
        self.pump();
        n
    }

    /// Everything readable now.
    pub(crate) fn read(&mut self, id: ConnId) -> Vec<u8> {
        let mut all = Vec::new();
        let mut buf = [0; 4096];
        while let Ok(n @ 1..) = self.stack.read(id, &mut buf, self.now) {
            all.extend_from_slice(&buf[..n]);
        }
        self.pump();
        all
    }

    /// The result of one read.
    pub(crate) fn read_once(&mut self, id: ConnId) -> Result<usize, IoError> {
        let result = self.stack.read(id, &mut [0; 16], self.now);
        self.pump();
        result
    }

    pub(crate) fn shutdown(&mut self, id: ConnId) {
        self.stack.shutdown(id, self.now).unwrap();
        self.pump();
    }

    pub(crate) fn release(&mut self, id: ConnId) {
        self.stack.release(id, self.now);
        self.pump();
    }

    pub(crate) fn abort(&mut self, id: ConnId) {
        self.stack.abort(id, self.now);
        self.pump();
    }

    #[track_caller]
    pub(crate) fn state(&self, id: ConnId) -> StateName {
        self.stack.info(id).expect("the connection is gone").state
    }

    pub(crate) fn reason(&self, id: ConnId) -> Option<CloseReason> {
        self.stack.close_reason(id)
    }

    /// Whether an event reported this.
    pub(crate) fn saw(&self, id: ConnId, what: Readiness) -> bool {
        self.events.iter().any(|e| matches!(e, Event::Ready(i, r) if *i == id && r.contains(what)))
    }

    // --- Fast Open -------------------------------------------------------------------------------

    /// The cookie that `key` gives to the peer's address.
    pub(crate) fn cookie_of(&self, key: CookieKey) -> Cookie {
        KeyRing::new(Scheme::Linux, key).grant(&Flow { client: self.theirs, server: self.ours })
    }
}

pub(crate) fn key(n: u8) -> CookieKey {
    CookieKey::from_bytes([n; 16])
}

/// Fast Open with this key and pending limit.
pub(crate) fn policy(key: CookieKey, pending: u32) -> FastOpenPolicy {
    FastOpenPolicy::new(Arc::new(KeyRing::new(Scheme::Linux, key)), Arc::new(PendingLimit::new(pending)))
}
