//! A server that accepts certificates, and SYNs with blocks of all kinds: honest ones, copies, altered ones, with
//! certificates of verifiers that are trusted or no longer trusted, while its clock is set and its queues are full.
//!
//! Only what a client signed for this server may be delivered early, and only once as long as the process lives. At
//! the end nothing of it may be left.

use arbitrary::{Arbitrary, Unstructured};
use firstflight_credential::asap::{
    AsapPolicy, ClientCertificate, GuardDomain, Identity, PrivateKey, TrustStore, Trusted, certify,
};
use firstflight_credential::{GuardKey, PendingLimit, Quarantine, ReplayTable, Window};
use firstflight_stack::{Config, ConnId, Limits, ListenConfig, ListenerId, Stack};
use firstflight_wire::asap::{AsapOption, BLOCK_LEN, CertificateFlags, Encapsulation};
use firstflight_wire::ip::{Ecn, Header as IpHeader, Packet, Protocol};
use firstflight_wire::tcp::{Flags, Header, OptionBytes, OptionsBuf, Segment, fill_checksum};
use firstflight_wire::{Clock, Instant, SeqNum};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const PORT: u16 = 80;
const MAX_ACTIONS: usize = 64;
const UNIX_MS: u64 = 1_800_000_000_000;
/// Number of clients. Each has its own address and a certificate of one of two verifiers.
const CLIENTS: u8 = 6;
/// The byte that clients send with an ACK. No data in a SYN consists only of this byte.
const LATER: u8 = 0x11;
/// Number of SYNs that are kept for copies.
const REMEMBERED: usize = 16;

/// A run.
#[derive(Debug, Clone, Arbitrary)]
struct Run {
    v6: bool,
    few_permits: bool,
    short_queue: bool,
    small_budget: bool,
    per_site: bool,
    actions: Vec<Action>,
}

#[derive(Debug, Clone, Arbitrary)]
enum Action {
    Syn(Syn),
    /// One of the last SYNs again, perhaps from another port.
    Copy {
        which: u8,
        port: Option<u8>,
    },
    /// The verdicts for waiting SYNs arrive, or they are lost.
    Verify {
        lost: bool,
    },
    /// The client's ACK of what the server last acknowledged, perhaps with a byte of data.
    Acknowledge {
        which: u8,
        data: bool,
    },
    Reset {
        which: u8,
    },
    Advance {
        ms: u16,
    },
    NextTimer,
    /// The server's wall clock is set.
    SetClock {
        seconds: i16,
    },
    /// Which verifiers are trusted from now on, and whether they are the operator's own.
    Trust {
        first: bool,
        second: bool,
        own: bool,
    },
    Write {
        which: u8,
        len: u16,
    },
    Release {
        which: u8,
    },
    Relisten,
}

/// A request of one of the clients, either valid or with one fault.
#[derive(Debug, Clone, Arbitrary)]
struct Syn {
    client: u8,
    port: u8,
    isn: u32,
    request: u8,
    len: u8,
    fault: Option<Fault>,
    verify: bool,
}

#[derive(Debug, Clone, Arbitrary)]
enum Fault {
    /// It comes from the address of this client.
    From(u8),
    /// The time of the request, milliseconds from now.
    Made(i16),
    OtherServer,
    InUdp,
    /// Altered bytes of the payload: their position and the change.
    Altered([(u16, u8); 2]),
    Cut(u8),
    Probe,
    Length(u16),
    Option([u8; 6]),
    NoOption,
}

/// Runs what `data` describes.
pub fn run(data: &[u8]) {
    let Ok(run) = Run::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let mut world = World::new(&run);
    for action in run.actions.into_iter().take(MAX_ACTIONS) {
        world.act(action);
        world.settle();
        world.accept();
    }
    world.end();
}

fn identity() -> Identity {
    Identity::name("www.example.com", PORT)
}

fn address(v6: bool, n: u8) -> IpAddr {
    // Two clients share a network; the others are in different networks.
    match v6 {
        true => IpAddr::from([0xfd00, 0, 0, u16::from(n / 2) << 8, 0, 0, 0, 2 + u16::from(n)]),
        false => IpAddr::from([10, n / 2, 0, 2 + n]),
    }
}

fn verifier(of: u8) -> PrivateKey {
    PrivateKey::from_seed(&[100 + of % 2; 32])
}

/// Signing takes most of a run's time, so it is done only once.
static CERTIFICATES: LazyLock<[Vec<ClientCertificate>; 2]> = LazyLock::new(|| {
    [false, true].map(|v6| {
        let certificate = |n| {
            let (verifier, key) = (verifier(n), PrivateKey::from_seed(&[n + 1; 32]));
            let flags = CertificateFlags::new(1, true, v6).unwrap();
            let begin = (UNIX_MS / 1000) as u32;
            let body = certify(&verifier, &key.public(), address(v6, n), begin, 3600, flags).unwrap();
            ClientCertificate::new(body, verifier.public(), address(v6, n), key, Instant::ZERO).unwrap()
        };
        (0..CLIENTS).map(certificate).collect()
    })
});

/// The client, the request's number, and the time at which the client made it.
type Request = (u8, u8, Instant);

struct World {
    stack: Stack,
    listener: ListenerId,
    policy: AsapPolicy,
    server: IpAddr,
    v6: bool,
    short_queue: bool,
    trusted: [bool; 2],
    /// Data that a client signed for this server.
    honest: BTreeMap<Vec<u8>, Request>,
    executed: BTreeSet<Request>,
    sent: Vec<(SocketAddr, Vec<u8>)>,
    /// For each client, the last numbers of the server: its next sequence number, and what it expects.
    said: BTreeMap<SocketAddr, (SeqNum, SeqNum)>,
    held: Vec<ConnId>,
    random: ChaCha20Rng,
    now: Instant,
    offset_ms: i64,
}

impl World {
    fn new(run: &Run) -> Self {
        let server: IpAddr =
            if run.v6 { IpAddr::from([0xfd01, 0, 0, 0, 0, 0, 0, 1]) } else { [10, 99, 0, 1].into() };
        let mut config = Config::new(vec![server], [7; 32]);
        config.limits = Limits::default().connections(12).deferred(4).deferred_bytes(4000).time_wait(8);
        if run.small_budget {
            config.limits.asap.per_second = 40;
        }
        let mut stack = Stack::new(config, Instant::ZERO);
        stack.handle_clock(Clock { mono: Instant::ZERO, unix_ms: UNIX_MS, uncertainty: Duration::ZERO });
        let key = GuardKey::from_bytes([3; 16]);
        let policy = AsapPolicy {
            trust: trust([true, true], true),
            identities: [identity()].into(),
            guard: Arc::new(ReplayTable::new(key, Window::REQUESTS, 1 << 16, UNIX_MS - 600_000)),
            domain: if run.per_site { GuardDomain::Site } else { GuardDomain::All },
            pending: Arc::new(PendingLimit::new(if run.few_permits { 2 } else { 256 })),
            relayed: None,
            quarantine: Quarantine::Accepted,
        };
        let mut world = Self {
            listener: listen(&mut stack, server, &policy, run.short_queue),
            stack,
            policy,
            server,
            v6: run.v6,
            short_queue: run.short_queue,
            trusted: [true; 2],
            honest: BTreeMap::new(),
            executed: BTreeSet::new(),
            sent: Vec::new(),
            said: BTreeMap::new(),
            held: Vec::new(),
            random: ChaCha20Rng::from_seed([9; 32]),
            now: Instant::ZERO,
            offset_ms: 0,
        };
        // The queue is empty from here on.
        world.settle();
        world
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Syn(syn) => self.syn(&syn),
            Action::Copy { which, port } => {
                let Some((mut from, packet)) = self.sent.get(usize::from(which) % REMEMBERED).cloned() else {
                    return;
                };
                let packet = match port {
                    Some(port) => {
                        from.set_port(2000 + u16::from(port));
                        self.moved(&packet, from)
                    }
                    None => packet,
                };
                self.stack.handle_packet(self.now, &packet);
            }
            Action::Verify { lost } => {
                while let Some(flights) = self.stack.poll_verifications() {
                    if !lost {
                        let verdicts = flights.verify(&mut self.random);
                        self.stack.handle_verified(flights, &verdicts, self.now);
                    }
                }
            }
            Action::Acknowledge { which, data } => {
                self.answer(which, Flags::ACK, &[LATER][..usize::from(data)])
            }
            Action::Reset { which } => self.answer(which, Flags::RST, &[]),
            Action::Advance { ms } => self.advance(self.now + Duration::from_millis(ms.into())),
            Action::NextTimer => {
                if let Some(next) = self.stack.poll_timeout() {
                    self.advance(next.max(self.now));
                }
            }
            Action::SetClock { seconds } => {
                self.offset_ms = i64::from(seconds) * 1000;
                self.tell_time();
            }
            Action::Trust { first, second, own } => {
                self.trusted = [first, second];
                self.policy.trust = trust(self.trusted, own);
                self.stack.set_trust(self.listener, self.policy.trust.clone(), self.now);
            }
            Action::Write { which, len } => {
                if let Some(&id) = self.held.get(usize::from(which) % 16) {
                    let _ = self.stack.write(id, &vec![0x22; len.into()], self.now);
                }
            }
            Action::Release { which } if !self.held.is_empty() => {
                let id = self.held.swap_remove(usize::from(which) % self.held.len());
                self.stack.release(id, self.now);
            }
            Action::Release { .. } => {}
            Action::Relisten => {
                self.stack.unlisten(self.listener, self.now);
                self.settle();
                self.listener = listen(&mut self.stack, self.server, &self.policy, self.short_queue);
            }
        }
    }

    fn syn(&mut self, syn: &Syn) {
        let client = syn.client % CLIENTS;
        let certificate = &CERTIFICATES[usize::from(self.v6)][usize::from(client)];
        let (mut from, mut to, mut encapsulation) = (certificate.address(), identity(), Encapsulation::Ip);
        let (mut made, mut option) =
            (self.now, Some(AsapOption::Block { long_reply: true, len: BLOCK_LEN as u16 }));
        let mut raw = None;
        match syn.fault {
            Some(Fault::From(other)) => from = address(self.v6, other % CLIENTS),
            Some(Fault::Made(ms)) => {
                made = Instant::from_millis(self.now.as_millis().saturating_add_signed(ms.into()));
            }
            Some(Fault::OtherServer) => to = Identity::name("other.example.com", PORT),
            Some(Fault::InUdp) => encapsulation = Encapsulation::Udp,
            Some(Fault::Probe) => option = Some(AsapOption::Probe { long_reply: false }),
            Some(Fault::Length(len)) => option = Some(AsapOption::Block { long_reply: false, len }),
            Some(Fault::Option(bytes)) => raw = Some(bytes),
            Some(Fault::NoOption) => option = None,
            Some(Fault::Altered(_) | Fault::Cut(_)) | None => {}
        }
        // The application's data is different for each request, and contains its owner. A number that is used again
        // much later is a different request, because its owner signed it anew.
        let mut data = vec![client, syn.request];
        data.extend(made.as_millis().to_be_bytes());
        data.resize(data.len() + usize::from(syn.len), 0x33);
        let block = certificate.request(encapsulation, &to, &data, [syn.request; 8], made);
        let mut payload = [&block.to_bytes()[..], &data].concat();
        let before = payload.clone();
        match &syn.fault {
            Some(Fault::Altered(alter)) => {
                for &(at, by) in alter {
                    let at = usize::from(at) % payload.len();
                    payload[at] ^= by;
                }
            }
            Some(Fault::Cut(by)) => payload.truncate(payload.len().saturating_sub((*by).into())),
            _ => {}
        }
        let meant = to == identity() && encapsulation == Encapsulation::Ip && from == certificate.address();
        if meant && payload == before {
            self.honest.insert(data, (client, syn.request, made));
        }
        let mut options = OptionsBuf::new();
        options.mss(1460);
        match (raw, option) {
            (Some([a, b, c, d, e, f]), _) => {
                options.raw(&[253, 8, 0xfa, 0x57, a, b, c, d, 253, 4, e, f]);
            }
            (None, Some(option)) => {
                options.raw(OptionBytes::from(option).as_slice());
            }
            (None, None) => {}
        }
        let from = SocketAddr::new(from, 1000 + u16::from(syn.port));
        let packet = self.packet(from, SeqNum::new(syn.isn), None, Flags::SYN, options.finish(), &payload);
        if self.sent.len() == REMEMBERED {
            self.sent.remove(0);
        }
        self.sent.push((from, packet.clone()));
        self.stack.handle_packet(self.now, &packet);
        if syn.verify {
            self.act(Action::Verify { lost: false });
        }
    }

    /// The same SYN from another port.
    fn moved(&self, packet: &[u8], from: SocketAddr) -> Vec<u8> {
        let packet = Packet::parse(packet).unwrap();
        let mut segment = packet.payload.to_vec();
        segment[..2].copy_from_slice(&from.port().to_be_bytes());
        segment[16..18].fill(0);
        self.wrap(packet.src, &mut segment)
    }

    /// A segment that matches what the server last sent to one of the clients.
    fn answer(&mut self, which: u8, flags: Flags, data: &[u8]) {
        let count = self.said.len().max(1);
        let Some((&to, &(end, expected))) = self.said.iter().nth(usize::from(which) % count) else { return };
        let packet = self.packet(to, expected, Some(end), flags, &[], data);
        self.stack.handle_packet(self.now, &packet);
    }

    fn packet(
        &self,
        from: SocketAddr,
        seq: SeqNum,
        ack: Option<SeqNum>,
        flags: Flags,
        options: &[u8],
        payload: &[u8],
    ) -> Vec<u8> {
        let header = Header {
            src_port: from.port(),
            dst_port: PORT,
            seq,
            ack: ack.unwrap_or(SeqNum::new(0)),
            flags,
            window: 0xffff,
            urgent: 0,
        };
        let mut segment = vec![0; 20 + options.len() + payload.len()];
        let at = header.emit(options, &mut segment).unwrap();
        segment[at..].copy_from_slice(payload);
        self.wrap(from.ip(), &mut segment)
    }

    fn wrap(&self, src: IpAddr, segment: &mut [u8]) -> Vec<u8> {
        fill_checksum(segment, src, self.server);
        let header = IpHeader {
            src,
            dst: self.server,
            protocol: Protocol::Tcp,
            hop_limit: 64,
            ecn: Ecn::default(),
            dont_fragment: true,
            identification: 0,
        };
        let mut out = vec![0; header.len() + segment.len()];
        let at = header.emit(segment.len(), &mut out).unwrap();
        out[at..].copy_from_slice(segment);
        out
    }

    fn advance(&mut self, to: Instant) {
        self.now = to;
        self.tell_time();
        self.stack.handle_timeout(to);
    }

    fn tell_time(&mut self) {
        let unix_ms = (UNIX_MS + self.now.as_millis()).saturating_add_signed(self.offset_ms);
        self.stack.handle_clock(Clock { mono: self.now, unix_ms, uncertainty: Duration::ZERO });
    }

    /// Polls everything, and checks the invariants.
    fn settle(&mut self) {
        while self.stack.poll_event().is_some() {}
        while self.stack.poll_trace().is_some() {}
        let mut out = [0; 2000];
        for packets in 0.. {
            assert!(packets < 1000, "packets without end");
            let Some(len) = self.stack.poll_transmit(self.now, &mut out) else { break };
            let packet = Packet::parse(&out[..len]).expect("the stack sent a packet that cannot be read");
            if packet.protocol != Protocol::Tcp {
                continue;
            }
            let segment = Segment::parse_checked(packet.payload, packet.src, packet.dst)
                .expect("the stack sent a segment that cannot be read");
            let to = SocketAddr::new(packet.dst, segment.dst_port);
            self.said.insert(to, (segment.seq + segment.len(), segment.ack));
            if self.said.len() > 2 * REMEMBERED {
                self.said.pop_first();
            }
        }
        let limits = &self.stack.config().limits;
        let gauges = self.stack.gauges();
        assert!(gauges.connections <= limits.connections);
        assert!(gauges.deferred <= limits.deferred);
        let permits = self.policy.pending.pending();
        assert!(permits <= self.policy.pending.limit(), "{permits} pending permits");
        // Each permit belongs to a connection or to a deferred SYN, or is kept after a reset.
        let whose = gauges.connections + gauges.deferred + gauges.quarantined;
        assert!(permits as usize <= whose, "{permits} pending permits of {whose}");
    }

    /// Takes the connections that the server accepted, and checks whether their data may have been delivered before
    /// the ACK.
    fn accept(&mut self) {
        // Data after a first flight, and data without one, arrived with an ACK.
        for &id in &self.held {
            let mut data = [0; 2000];
            let len = self.stack.read(id, &mut data, self.now).unwrap_or(0);
            assert!(data[..len].iter().all(|byte| *byte == LATER), "{:?} of a SYN", &data[..len]);
        }
        while let Some(id) = self.stack.accept(self.listener) {
            self.held.push(id);
            let info = self.stack.info(id).expect("a connection that was accepted");
            let mut data = [0; 2000];
            let len = self.stack.read(id, &mut data, self.now).unwrap_or(0);
            if !info.outcome.is_accepted() {
                assert!(
                    data[..len].iter().all(|byte| *byte == LATER),
                    "a refused first flight was delivered"
                );
                continue;
            }
            let whose = self.honest.get(&data[..len]).copied();
            let request = whose.expect("early data that no client signed for this server");
            assert!(self.executed.insert(request), "{request:?} twice");
            assert!(self.trusted[usize::from(request.0 % 2)], "a verifier that is not trusted");
        }
    }

    /// Releases everything and waits. Nothing may be left.
    fn end(mut self) {
        self.stack.unlisten(self.listener, self.now);
        for id in std::mem::take(&mut self.held) {
            self.stack.release(id, self.now);
        }
        let end = self.now + Duration::from_secs(4 * 3600);
        for timers in 0.. {
            assert!(timers < 10_000, "timers without end");
            self.settle();
            match self.stack.poll_timeout() {
                Some(next) if next <= end => self.advance(next.max(self.now)),
                _ => break,
            }
        }
        self.advance(end);
        self.settle();
        assert_eq!(self.stack.connections(), 0, "connections are left: {:?}", self.stack);
        assert_eq!(self.stack.gauges().deferred, 0, "SYNs wait");
        assert_eq!(self.stack.buffer_bytes(), 0, "buffers are left");
        assert_eq!(self.policy.pending.pending(), 0, "pending permits are left");
    }
}

fn listen(stack: &mut Stack, server: IpAddr, policy: &AsapPolicy, short_queue: bool) -> ListenerId {
    let mut config = ListenConfig::new(SocketAddr::new(server, PORT));
    config.asap = Some(policy.clone());
    config.backlog = 4;
    config.syn_backlog = if short_queue { 1 } else { 8 };
    stack.listen(config).expect("the port is free")
}

fn trust(which: [bool; 2], own: bool) -> Arc<TrustStore> {
    let entries = [0, 1].into_iter().filter(|n| which[usize::from(*n)]);
    let trusted = entries.map(|n| Trusted { own, ..Trusted::new(verifier(n).public()) });
    Arc::new(TrustStore::new(trusted).unwrap())
}
