//! One connection of a stack next to a model of RFC 9293's rules ([`rules`]). Both get the same segments, calls and
//! time. After each step both must have the same state and the same variables, and the stack's answer must be one
//! that the model allows.
//!
//! The peer is not a TCP: its segments have numbers near the edges of both windows, arbitrary control bits, and
//! timestamps around the newest one.

mod check;
mod rules;
mod state;
mod wire;

use arbitrary::{Arbitrary, Unstructured};
use firstflight_stack::{Config, ConnId, ConnectConfig, IoError, ListenConfig, ListenerId, Stack, Trace};
use firstflight_wire::{Clock, Instant};
use state::{Allowed, State, Tcb};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use wire::{Kind, Spec};

/// Maximum number of steps in one run.
const MAX_STEPS: usize = 64;
/// The stack's port, and the peer's.
const PORT: u16 = 80;
const PEER_PORT: u16 = 4000;
/// Minimum number of challenge ACKs per second that the engine sends (RFC 5961 §7 leaves the number open).
const CHALLENGES: usize = 5;
const CHALLENGE_TIME: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Arbitrary)]
struct Run {
    passive: bool,
    timestamps: bool,
    scale: bool,
    /// Index of the initial state.
    start: u8,
    receive_buffer: u16,
    big: bool,
}

#[derive(Debug, Clone, Arbitrary)]
enum Step {
    Segment(Spec),
    /// A segment that a correct peer would send.
    Right(Kind, u8),
    Write(u16),
    Read(u16),
    Close,
    Abort,
    /// A new connection, if the last one is over.
    Open,
    Advance(u16),
    NextTimer,
    /// Long enough for a timestamp to become invalid.
    Days,
}

/// Runs what `data` describes.
pub fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let Ok(run) = Run::arbitrary(&mut bytes) else { return };
    let mut world = World::new(&run);
    let mut story = Story(run, Vec::new());
    world.prelude(story.0.start);
    // Do not use a `Vec` of steps: its encoding would end after every second one on average.
    while story.1.len() < MAX_STEPS && !bytes.is_empty() {
        let Ok(step) = Step::arbitrary(&mut bytes) else { return };
        story.1.push(step.clone());
        world.step(&step);
    }
}

/// Prints the events that led to a panic.
struct Story(Run, Vec<Step>);

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}, then {:#?}", self.0, self.1);
        }
    }
}

/// The byte at `offset` of a stream.
fn byte(offset: u32) -> u8 {
    ((offset.wrapping_mul(0x9e37_79b9) >> 11) ^ (offset >> 3)) as u8
}

struct World {
    stack: Stack,
    listener: Option<ListenerId>,
    id: Option<ConnId>,
    model: Tcb,
    now: Instant,
    ips: [IpAddr; 2],
    /// Bytes written and read by the application.
    written: u32,
    read: u32,
    /// When the ACK of text must be sent at the latest.
    ack_due: Option<Instant>,
    /// When challenge ACKs were sent.
    challenged: VecDeque<Instant>,
    syn_ack_at: Option<Instant>,
    /// The offset from the clock to our timestamps.
    ts_offset: Option<u32>,
    last_ts: u32,
    peer_isn: u32,
    receive_buffer: u32,
    out: Vec<u8>,
}

impl World {
    fn new(run: &Run) -> Self {
        let ips: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let size = u32::from(run.receive_buffer);
        // A few segments fill the small buffer.
        let receive_buffer = if run.big { size.max(600) * 16 } else { 600 + size % 3_000 };
        let mut config = Config::new(vec![ips[0]], [7; 32]);
        config.tcp.set_timestamps(run.timestamps);
        // This is not a field of `Run`, because a new field would change the meaning of the inputs in the corpus.
        config.tcp.set_require_timestamps(run.receive_buffer % 2 == 1);
        config.tcp.set_window_scaling(run.scale);
        config.tcp.set_receive_buffer(receive_buffer);
        config.tcp.set_send_buffer(20_000);
        config.limits.trace = 64;
        let mut model = Tcb::new(run.passive, run.timestamps, run.scale, receive_buffer.min(0xffff));
        model.requires_timestamps = config.tcp.requires_timestamps();
        let now = Instant::from_secs(1_000);
        let mut stack = Stack::new(config, now);
        stack.handle_clock(Clock { mono: now, unix_ms: 1_800_000_000_000, uncertainty: Duration::ZERO });
        let local = SocketAddr::new(ips[0], PORT);
        let listener = run.passive.then(|| stack.listen(ListenConfig::new(local)).expect("the port is free"));
        Self {
            stack,
            listener,
            id: None,
            model,
            now,
            ips,
            written: 0,
            read: 0,
            ack_due: None,
            challenged: VecDeque::new(),
            syn_ack_at: None,
            ts_offset: None,
            last_ts: 0,
            // The streams wrap around zero.
            peer_isn: 0xffff_ff00,
            receive_buffer,
            out: vec![0; 2000],
        }
    }

    fn now_ms(&self) -> u64 {
        self.now.as_millis()
    }

    /// Goes to one of the states as two correct ends would.
    fn prelude(&mut self, start: u8) {
        use Kind::{Ack, Crossed, Fin, Syn, SynAck};
        let open: &[Kind] = if self.model.passive { &[Syn, Ack] } else { &[SynAck] };
        let (open, close): (&[Kind], &[Option<Kind>]) = match start % 11 {
            0 => return,
            1 => (&[], &[]),
            2 => (&[Syn], &[]),
            3 => (open, &[]),
            4 => (&[Syn, Crossed], &[]),
            5 => (open, &[None]),
            6 => (open, &[None, Some(Ack)]),
            7 => (open, &[Some(Fin)]),
            8 => (open, &[None, Some(Kind::OldFin)]),
            9 => (open, &[Some(Fin), None]),
            _ => (open, &[None, Some(Ack), Some(Fin)]),
        };
        self.step(&Step::Open);
        for kind in open {
            self.step(&Step::Right(*kind, 0));
        }
        for step in close {
            self.step(&step.map_or(Step::Close, |kind| Step::Right(kind, 0)));
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Segment(spec) => self.segment(&spec.clone()),
            Step::Right(kind, len) => self.segment(&kind.right(*len)),
            Step::Write(len) => self.write(len % 5_000),
            Step::Read(len) => self.read(*len),
            Step::Close => self.close(),
            Step::Abort => self.abort(),
            Step::Open => self.open(),
            Step::Advance(ms) => self.advance(self.now + Duration::from_millis((*ms).into())),
            Step::NextTimer => {
                let next = self.stack.poll_timeout().unwrap_or(self.now).max(self.now);
                self.advance(next);
            }
            Step::Days => self.advance(self.now + Duration::from_secs(25 * 86_400)),
        }
        self.compare();
    }

    fn segment(&mut self, spec: &Spec) {
        let (packet, arriving) = self.build(spec);
        let (was, before) = (self.model.state, self.model.clone());
        let allowed = self.model.arrives(&arriving, self.now_ms());
        if was != State::TimeWait && self.model.state == State::TimeWait {
            self.model.time_wait_since = self.now_ms();
        }
        if was == State::Listen && self.model.state == State::SynReceived {
            self.forget();
        }
        self.stack.handle_packet(self.now, &packet);
        self.traces();
        let next = self.begun();
        if was == State::TimeWait && allowed.syn_ack && next {
            // The connection is reopened, with numbers above the old ones (RFC 9293 §3.6.1).
            self.model.state = State::Listen;
            self.forget();
            self.model.arrives(&arriving, self.now_ms());
        }
        if self.model.state == State::SynReceived && was != State::SynReceived && self.model.passive {
            self.learn_iss();
            if was == State::TimeWait {
                let above = self.model.iss.wrapping_sub(before.snd_nxt) as i32 > 0;
                assert!(above, "an ISN that is not above the old numbers");
            }
        }
        let sent = self.drain();
        self.check_answer(&arriving, &before, allowed, &sent);
        self.accept();
    }

    /// Resets what is known for a new connection.
    fn forget(&mut self) {
        (self.written, self.read, self.ack_due, self.syn_ack_at, self.ts_offset) = (0, 0, None, None, None);
        self.model.close_queued = false;
        self.model.fin_sent = None;
        self.challenged.clear();
    }

    /// Whether the stack has a connection in SYN-RECEIVED now.
    fn begun(&self) -> bool {
        self.engine() == State::SynReceived
    }

    fn learn_iss(&mut self) {
        let iss = self.variables().snd_una.get();
        let model = &mut self.model;
        (model.iss, model.snd_una, model.snd_nxt) = (iss, iss, iss.wrapping_add(1));
        model.snd_wl2 = iss;
    }

    fn traces(&mut self) {
        while let Some(trace) = self.stack.poll_trace() {
            if let Trace::Outcome(id, _) = trace {
                self.id = Some(id);
            }
        }
        while self.stack.poll_event().is_some() {}
    }

    /// Accepts the listener's children, so that they stay when they are over.
    fn accept(&mut self) {
        if let Some(id) = self.listener.and_then(|listener| self.stack.accept(listener)) {
            assert_eq!(Some(id), self.id, "a connection that nobody opened");
        }
    }

    fn open(&mut self) {
        if self.model.passive || self.model.state != State::Closed {
            return;
        }
        let local = SocketAddr::new(self.ips[0], PORT);
        let config = ConnectConfig::default().local(Some(local));
        if let Some(id) = self.id.take() {
            self.stack.release(id, self.now);
            assert_eq!(self.drain().len(), 0, "a connection that is over sends something");
        }
        self.forget();
        let server = SocketAddr::new(self.ips[1], PEER_PORT);
        let (id, _) = self.stack.connect(server, b"", &config, self.now).expect("the port is free");
        self.id = Some(id);
        (self.model.state, self.model.met_old) = (State::SynSent, false);
        let iss = self.variables().snd_una.get();
        (self.model.iss, self.model.snd_una, self.model.snd_nxt) = (iss, iss, iss);
        let sent = self.drain();
        assert!(sent.len() == 1 && sent[0].is_syn(), "no SYN: {sent:?}");
    }

    fn write(&mut self, len: u16) {
        let Some(id) = self.id else { return };
        let bytes: Vec<u8> = (0..u32::from(len)).map(|i| byte(self.written + i)).collect();
        let open = matches!(
            self.model.state,
            State::SynSent | State::SynReceived | State::Established | State::CloseWait
        ) && !self.model.close_queued;
        match self.stack.write(id, &bytes, self.now) {
            Ok(n) => {
                assert!(n == 0 || open, "data for a direction that is closed: {:?}", self.model.state);
                self.written += n as u32;
            }
            Err(IoError::WouldBlock) => assert!(open),
            Err(_) => assert!(!open, "no data taken in {:?}", self.model.state),
        }
        self.call();
    }

    fn read(&mut self, len: u16) {
        let Some(id) = self.id else { return };
        let mut buf = vec![0; usize::from(len)];
        if let Ok(n) = self.stack.read(id, &mut buf, self.now) {
            for (i, got) in (self.read..).zip(&buf[..n]) {
                assert_eq!(*got, byte(i), "byte {i} of the peer");
            }
            self.read += n as u32;
        }
        self.call();
    }

    fn close(&mut self) {
        let Some(id) = self.id else { return };
        let model = &mut self.model;
        if !model.close_queued && !matches!(model.state, State::Closed | State::Listen | State::TimeWait) {
            model.close_queued = true;
            model.fin_sent = Some(model.iss.wrapping_add(1).wrapping_add(self.written));
            model.state = match model.state {
                State::Established => State::FinWait1,
                State::CloseWait => State::LastAck,
                other => other,
            };
        }
        let _ = self.stack.shutdown(id, self.now);
        self.call();
    }

    /// §3.10.5. DELIBERATE: a RST also in CLOSING and LAST-ACK, where the RFC sends none, because the peer then need
    /// not wait.
    fn abort(&mut self) {
        let Some(id) = self.id else { return };
        let synchronized = self.model.synchronized();
        let live = !matches!(self.model.state, State::Closed | State::Listen | State::TimeWait);
        let number = self.model.snd_nxt;
        self.stack.abort(id, self.now);
        if live {
            self.model.gone();
        }
        let sent = self.drain();
        let resets: Vec<_> = sent.iter().filter(|s| s.rst).collect();
        assert_eq!(resets.len(), sent.len(), "an abort sends {sent:?}");
        assert_eq!(resets.len(), usize::from(synchronized && live), "an abort in {:?}", self.model.state);
        assert!(resets.iter().all(|s| s.seq == number), "{resets:?} is not {number}");
        self.ack_due = None;
    }

    /// After a call of the application, data and ACKs may be sent, nothing else.
    fn call(&mut self) {
        let sent = self.drain();
        assert!(sent.iter().all(|s| !s.rst && !s.syn), "after a call: {sent:?}");
    }

    fn advance(&mut self, to: Instant) {
        for calls in 0.. {
            assert!(calls < 10_000, "timers without end");
            match self.stack.poll_timeout() {
                Some(next) if next <= to => self.now = next.max(self.now),
                _ => break,
            }
            self.stack.handle_timeout(self.now);
            self.time_passed();
        }
        self.now = to;
        self.stack.handle_timeout(to);
        self.time_passed();
    }

    /// Timers may retransmit, send a delayed ACK, or give up.
    fn time_passed(&mut self) {
        self.traces();
        let before = self.model.state;
        let engine = self.engine();
        if engine != before && matches!(engine, State::Closed | State::Listen) {
            let unsent = self.written > 0 || self.model.close_queued;
            let waits = self.model.snd_una != self.model.snd_nxt || unsent || before == State::TimeWait;
            assert!(waits || before == State::SynSent, "given up in {before:?}, where nothing is waited for");
            let since = self.now_ms().saturating_sub(self.model.time_wait_since);
            // The model counts in whole milliseconds.
            assert!(before != State::TimeWait || since >= 59_999, "TIME-WAIT took only {since} ms");
            self.model.gone();
            self.ack_due = None;
        }
        let sent = self.drain();
        assert!(sent.len() < 100, "{} segments of a timer", sent.len());
        assert!(sent.iter().all(|s| !s.rst), "a RST of a timer: {sent:?}");
        if let Some(due) = self.ack_due {
            // RFC 9293 §3.8.6.3: less than half a second.
            assert!(self.now < due + Duration::from_millis(500), "no ACK since {due:?}, now {:?}", self.now);
        }
    }

    /// Whether the challenge ACK may be left out because of the limit.
    fn throttled(&self) -> bool {
        let recent = self.challenged.iter().filter(|at| self.now - **at < CHALLENGE_TIME).count();
        recent >= CHALLENGES
    }

    /// Whether a SYN-ACK may be left out because one has just been sent.
    fn syn_ack_recent(&self) -> bool {
        self.syn_ack_at.is_some_and(|at| self.now - at < Duration::from_millis(500))
    }

    fn note_challenge(&mut self, allowed: Allowed) {
        if allowed.throttled {
            self.challenged.push_back(self.now);
            if self.challenged.len() > 4 * CHALLENGES {
                self.challenged.pop_front();
            }
        }
    }
}
