//! One stack with a Fast Open listener. Anything arrives, time passes, and the application makes any call. Runs once
//! on IP, and once in UDP datagrams.
//!
//! The stack must not panic, must keep its limits, and must send only packets that can be parsed. When the
//! application has released everything, the stack must hold nothing.

use super::peer::{Peer, SERVER_PORT, STACK_OUTER, Spec, outer};
use arbitrary::{Arbitrary, Unstructured};
use firstflight_credential::{
    CookieKey, FastOpenPolicy, FirstFlight, JobRequest, JobResult, KeyRing, PendingLimit, Reason, Scheme,
    Verifier, VerifierVerdict,
};
use firstflight_stack::{
    Config, ConnId, ConnectConfig, EncapsulationConfig, Event, FragmentLimits, JobId, Limits, ListenConfig,
    ListenerId, ResponsePolicy, Stack,
};
use firstflight_wire::encapsulation::Control;
use firstflight_wire::ip::{Fragment, Packet};
use firstflight_wire::tcp::Flags;
use firstflight_wire::{Clock, Instant};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 80;
/// Maximum number of actions in a run, and of connections that the application holds.
const MAX_ACTIONS: usize = 256;
const MAX_HELD: usize = 32;
/// Maximum number of packets at one instant. More than limits and windows permit means that the stack would send
/// forever.
const MAX_BURST: usize = 20_000;

/// A run.
#[derive(Debug, Clone, Arbitrary)]
struct Run {
    setup: Setup,
    actions: Vec<Action>,
}

#[derive(Debug, Clone, Arbitrary)]
struct Setup {
    v6: bool,
    timestamps: bool,
    sack: bool,
    window_scaling: bool,
    nodelay: bool,
    data_in_syn_ack: bool,
    no_cookie: bool,
    defer: bool,
    tight: bool,
    response: u8,
    syn_backlog: u8,
    send_buffer: u16,
    receive_buffer: u16,
}

#[derive(Debug, Clone, Arbitrary)]
enum Action {
    /// Unchanged bytes.
    Frame(Vec<u8>),
    /// A segment with a correct checksum.
    Segment(Spec),
    /// Several equal segments in a row: floods, retransmissions. With a count of 240 or more, one segment in fragments
    /// ([`World::fragments`]).
    Segments(Spec, u8),
    /// A complete handshake, of the peer or of an answer to the stack's SYN, perhaps followed by a FIN.
    Handshake {
        spec: Spec,
        answer: bool,
        finish: bool,
    },
    IcmpError {
        flow: u8,
        kind: u8,
        mtu: u16,
        seq: i16,
    },
    AdvanceTime {
        ms: u16,
    },
    /// Advances to the next timer.
    NextTimer,
    Connect {
        fast_open: bool,
        len: u16,
        port: Option<u8>,
    },
    Accept,
    Read {
        which: u8,
        len: u16,
    },
    Write {
        which: u8,
        len: u16,
    },
    Shutdown {
        which: u8,
    },
    Abort {
        which: u8,
    },
    Release {
        which: u8,
    },
    SetNodelay {
        which: u8,
        on: bool,
    },
    AnswerJob {
        accept: bool,
    },
    Unlisten,
    Listen,
    ForgetCredentials,
}

/// Defers every first flight and asks for a verdict.
struct Defers;

impl Verifier for Defers {
    fn verify(&self, first: &FirstFlight<'_>, _clock: &Clock) -> VerifierVerdict {
        VerifierVerdict::Pending { job: JobRequest::Verify { key: first.payload.len() as u64 }, grant: None }
    }
}

/// Runs what `data` describes.
pub fn run(data: &[u8]) {
    let Ok(run) = Run::arbitrary_take_rest(Unstructured::new(data)) else { return };
    for carried in [false, true] {
        let mut world = World::new(&run.setup, carried);
        for action in run.actions.iter().take(MAX_ACTIONS) {
            world.act(action.clone());
            world.settle();
        }
        world.end();
    }
}

struct World {
    stack: Stack,
    peer: Peer,
    carried: bool,
    listener: Option<ListenerId>,
    policy: FastOpenPolicy,
    response: ResponsePolicy,
    syn_backlog: usize,
    server: SocketAddr,
    held: Vec<ConnId>,
    released: Vec<ConnId>,
    jobs: Vec<JobId>,
    now: Instant,
    out: Vec<u8>,
}

fn config(setup: &Setup, ip: IpAddr, carried: bool) -> Config {
    let mut config = Config::new(vec![ip], [7; 32]);
    config.encapsulation = carried.then_some(EncapsulationConfig::new(STACK_OUTER));
    config.tcp.set_timestamps(setup.timestamps);
    config.tcp.set_sack(setup.sack);
    config.tcp.set_window_scaling(setup.window_scaling);
    config.tcp.set_nodelay(setup.nodelay);
    config.tcp.set_data_in_syn_ack(setup.data_in_syn_ack);
    config.tcp.set_send_buffer(u32::from(setup.send_buffer).max(1) * 4);
    config.tcp.set_receive_buffer(u32::from(setup.receive_buffer).max(1) * 4);
    config.limits = Limits::default()
        .connections(if setup.tight { 5 } else { 40 })
        .time_wait(if setup.tight { 2 } else { 16 })
        .buffer_bytes(if setup.tight { 1 << 15 } else { 1 << 20 })
        .replies(8)
        .fragments(FragmentLimits::default().bytes(6000).bytes_per_source(4000))
        .deferred(3)
        .deferred_bytes(4000)
        .credentials(2)
        .trace(16);
    config
}

impl World {
    fn new(setup: &Setup, carried: bool) -> Self {
        let (ours, theirs): (IpAddr, IpAddr) = if setup.v6 {
            ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap())
        } else {
            ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap())
        };
        let mut stack = Stack::new(config(setup, ours, carried), Instant::ZERO);
        stack.handle_clock(Clock {
            mono: Instant::ZERO,
            unix_ms: 1_800_000_000_000,
            uncertainty: Duration::ZERO,
        });
        let ring = KeyRing::new(Scheme::Linux, CookieKey::from_bytes([1; 16]));
        let mut policy = FastOpenPolicy::new(Arc::new(ring), Arc::new(PendingLimit::new(3)));
        policy.no_cookie = setup.no_cookie;
        if setup.defer {
            policy.verifier = Some(Arc::new(Defers));
        }
        let mut world = Self {
            stack,
            peer: Peer::new(theirs, ours, PORT, carried),
            carried,
            listener: None,
            policy,
            response: match setup.response % 3 {
                0 => ResponsePolicy::Immediately,
                1 => ResponsePolicy::Times(3),
                _ => ResponsePolicy::AfterHandshake,
            },
            syn_backlog: usize::from(setup.syn_backlog % 4),
            server: SocketAddr::new(theirs, SERVER_PORT),
            held: Vec::new(),
            released: Vec::new(),
            jobs: Vec::new(),
            now: Instant::ZERO,
            out: vec![0; 2000],
        };
        world.listen();
        world
    }

    fn listen(&mut self) {
        let mut config = ListenConfig::new(SocketAddr::new(self.stack.config().addresses[0], PORT));
        config.fast_open = Some(self.policy.clone());
        config.response = self.response;
        config.backlog = 4;
        config.syn_backlog = self.syn_backlog;
        match self.stack.listen(config) {
            Ok(id) => assert!(self.listener.replace(id).is_none(), "two listeners on one port"),
            Err(_) => assert!(self.listener.is_some(), "the port is free and cannot be had"),
        }
    }

    fn id(&self, which: u8) -> Option<ConnId> {
        // Released ids are also tried. They must find nothing, or their own connection.
        let all = self.held.len() + self.released.len();
        let at = usize::from(which) % all.max(1);
        self.held.iter().chain(&self.released).nth(at).copied()
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Frame(bytes) => self.stack.handle_packet(self.now, &bytes),
            Action::Segment(spec) => self.segment(&spec),
            // The corpus hardly uses these counts, so its inputs keep their meaning.
            Action::Segments(spec, times @ 0xf0..) => self.fragments(&spec, times),
            Action::Segments(spec, times) => (0..times % 16).for_each(|_| self.segment(&spec)),
            Action::Handshake { spec, answer, finish } => {
                let first = if answer { Flags::SYN.union(Flags::ACK) } else { Flags::SYN };
                let last = if finish { Flags::FIN.union(Flags::ACK) } else { Flags::ACK };
                for flags in [first, Flags::ACK, last] {
                    self.segment(&spec.right(flags));
                    self.settle();
                }
            }
            Action::IcmpError { flow, kind, mtu, seq } => {
                // Some of these numbers mean messages of the encapsulation, so that the corpus keeps its meaning.
                let path = self.carried && kind >= 0xf0;
                let checked = if path { self.peer.path_check(flow, kind & 1 != 0) } else { None };
                let packet = match kind % 8 {
                    _ if checked.is_some() => checked.unwrap_or_default(),
                    6 if self.carried => self.peer.control(flow, Control::KeepAlive),
                    7 if self.carried => self.peer.control(flow, Control::Reset),
                    _ => self.peer.icmp(flow, kind, mtu, seq),
                };
                self.stack.handle_packet(self.now, &packet);
            }
            Action::AdvanceTime { ms } => self.advance(self.now + Duration::from_millis(ms.into())),
            Action::NextTimer => {
                if let Some(next) = self.stack.poll_timeout() {
                    self.advance(next.max(self.now));
                }
            }
            Action::AnswerJob { accept } => {
                let result = if accept { JobResult::Accept } else { JobResult::Refuse(Reason::Policy) };
                if let Some(id) = self.jobs.pop() {
                    self.stack.handle_job(id, result, self.now);
                }
            }
            Action::Unlisten => {
                if let Some(id) = self.listener.take() {
                    self.stack.unlisten(id, self.now);
                }
            }
            Action::Listen => self.listen(),
            Action::ForgetCredentials => self.stack.forget_credentials(),
            Action::Connect { fast_open, len, port } => self.connect(fast_open, len, port),
            Action::Accept => {
                if self.held.len() < MAX_HELD
                    && let Some(id) = self.listener.and_then(|l| self.stack.accept(l))
                {
                    self.held.push(id);
                }
            }
            other => self.use_connection(other),
        }
    }

    fn use_connection(&mut self, action: Action) {
        let now = self.now;
        match action {
            Action::Read { which, len } => {
                let mut buf = vec![0; len.into()];
                if let Some(id) = self.id(which)
                    && let Ok(n) = self.stack.read(id, &mut buf, now)
                {
                    assert!(n <= buf.len());
                }
            }
            Action::Write { which, len } => {
                if let Some(id) = self.id(which)
                    && let Ok(n) = self.stack.write(id, &vec![1; len.into()], now)
                {
                    assert!(n <= len.into());
                }
            }
            Action::Shutdown { which } => {
                let _ = self.id(which).map(|id| self.stack.shutdown(id, now));
            }
            Action::Abort { which } => {
                let _ = self.id(which).map(|id| self.stack.abort(id, now));
            }
            Action::SetNodelay { which, on } => {
                let _ = self.id(which).map(|id| self.stack.set_nodelay(id, on, now));
            }
            Action::Release { which } if !self.held.is_empty() => {
                let id = self.held.swap_remove(usize::from(which) % self.held.len());
                self.stack.release(id, now);
                self.released.push(id);
            }
            _ => {}
        }
    }

    fn connect(&mut self, fast_open: bool, len: u16, port: Option<u8>) {
        let local = port.map(|p| SocketAddr::new(self.stack.config().addresses[0], 50_000 + u16::from(p)));
        let encapsulation = self.carried.then_some(outer(SERVER_PORT));
        let config = ConnectConfig::default()
            .fast_open(fast_open)
            .replay_safe(fast_open)
            .local(local)
            .encapsulation(encapsulation);
        let data = vec![2; usize::from(len) % 4000];
        if self.held.len() < MAX_HELD
            && let Ok((id, taken)) = self.stack.connect(self.server, &data, &config, self.now)
        {
            assert!(taken <= data.len());
            self.held.push(id);
        }
    }

    fn segment(&mut self, spec: &Spec) {
        let packet = self.peer.segment(spec, 1500);
        self.stack.handle_packet(self.now, &packet);
    }

    /// A segment in two fragments: in either order, with one fragment repeated, missing, or overlapping.
    fn fragments(&mut self, spec: &Spec, how: u8) {
        let packet = self.peer.segment(spec, 1500);
        let Ok(whole) = Packet::parse(&packet) else { return };
        let cut = (whole.payload.len() / 2).div_ceil(8) * 8;
        let Some((head, tail)) = whole.payload.split_at_checked(cut) else { return };
        let shift = u16::from(how & 8 != 0 && cut > 8) * 8;
        let mut fragments: Vec<Vec<u8>> = [(0, true, head), (cut as u16 - shift, false, tail)]
            .into_iter()
            .filter_map(|(offset, more, payload)| {
                let fragment = Fragment {
                    src: whole.src,
                    dst: whole.dst,
                    identification: u32::from(spec.window),
                    next: whole.protocol,
                    transport: None,
                    offset,
                    more,
                    hop_limit: whole.hop_limit,
                    ecn: whole.ecn,
                    payload,
                };
                let mut out = vec![0; packet.len() + 8];
                let len = fragment.emit(&mut out).ok()?;
                out.truncate(len);
                Some(out)
            })
            .collect();
        if how & 1 != 0 {
            fragments.reverse();
        }
        if how & 2 != 0 {
            fragments.extend(fragments.first().cloned());
        }
        if how & 4 != 0 {
            fragments.pop();
        }
        for fragment in &fragments {
            self.stack.handle_packet(self.now, fragment);
        }
    }

    fn advance(&mut self, to: Instant) {
        self.now = to;
        self.stack.handle_timeout(to);
    }

    /// Polls everything until nothing is left, and checks the invariants.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < MAX_BURST, "events and packets without end");
            let event = self.stack.poll_event();
            if let Some(Event::Ready(id, _)) = event {
                assert!(self.held.contains(&id), "an event for a connection that nobody holds");
            }
            while let Some(job) = self.stack.poll_job() {
                self.jobs.push(job.id);
            }
            while self.stack.poll_trace().is_some() {}
            let sent = self.stack.poll_transmit(self.now, &mut self.out);
            if let Some(len) = sent {
                assert!(len <= self.stack.config().mtu, "{len} bytes do not fit the link");
                self.peer.observe(&self.out[..len]);
            }
            if event.is_none() && sent.is_none() {
                break;
            }
        }
        let limits = &self.stack.config().limits;
        assert!(self.stack.connections() <= limits.connections, "{} connections", self.stack.connections());
        assert!(
            self.stack.buffer_bytes() <= limits.buffer_bytes,
            "{} buffer bytes",
            self.stack.buffer_bytes()
        );
        let kept = self.stack.gauges().fragment_bytes;
        assert!(kept <= limits.fragments.bytes, "{kept} bytes of fragments");
        assert!(self.stack.time_waits() <= limits.time_wait, "{} in TIME-WAIT", self.stack.time_waits());
        let permits = self.policy.pending.pending() as usize;
        let inside = self.stack.connections() + limits.deferred;
        assert!(permits <= inside, "{permits} pending permits for {inside} connections");
    }

    /// Releases everything and waits. Nothing may be left.
    fn end(&mut self) {
        self.act(Action::Unlisten);
        for id in std::mem::take(&mut self.held) {
            self.stack.release(id, self.now);
            self.released.push(id);
        }
        self.settle();
        let end = self.now + Duration::from_secs(4 * 3600);
        for timers in 0.. {
            assert!(timers < 100_000, "timers without end");
            match self.stack.poll_timeout() {
                Some(next) if next <= end => self.advance(next.max(self.now)),
                _ => break,
            }
            self.settle();
        }
        self.advance(end);
        self.settle();
        assert_eq!(self.stack.connections(), 0, "connections are left: {:?}", self.stack);
        assert_eq!(self.stack.buffer_bytes(), 0, "buffers are left");
        assert_eq!(self.stack.gauges().fragment_bytes, 0, "fragments are left");
        assert_eq!(self.stack.time_waits(), 0, "TIME-WAIT is left");
        assert_eq!(self.policy.pending.pending(), 0, "pending permits are left");
        assert_eq!(self.stack.poll_timeout(), None, "timers are left");
        for id in &self.released {
            assert!(self.stack.info(*id).is_none(), "{id} is still alive");
        }
    }
}
