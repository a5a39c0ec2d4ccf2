//! Two stacks with an action for everything that happens between them: the fate of each packet, the passing of time,
//! and the calls of both applications.
//!
//! Bytes arrive in order and unchanged, never twice in a stream. Buffers, packets and timers stay within bounds.
//! Everything outstanding has a timer. At the end every packet is delivered and both applications close. Then every
//! connection ends, driven by events alone, and nothing is left.

mod ends;
mod finish;
mod path;

use arbitrary::{Arbitrary, Unstructured};
use ends::End;
use firstflight_credential::{CookieKey, FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use firstflight_stack::{Config, ConnectConfig, Event, Limits, ListenConfig, ListenerId, Stack};
use firstflight_wire::{Clock, Instant};
use path::Path;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 80;
/// Limits of one run: actions, connections, and bytes that one end writes.
const MAX_ACTIONS: usize = 200;
const MAX_CONNECTIONS: usize = 4;
const MAX_WRITTEN: usize = 30_000;
/// Maximum number of packets of one stack at one moment. More than its windows permit means that it would send
/// forever.
const MAX_BURST: usize = 2_000;
/// Fewer losses in a row than this, and packets delayed no longer than this, end no connection (a SYN-ACK is sent six
/// times).
const HARMLESS_LOSSES: usize = 5;
const HARMLESS_WAIT: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Arbitrary)]
struct Setup {
    data_in_syn_ack: bool,
    /// Little memory for all connections together.
    tight: bool,
    ends: [Side; 2],
}

#[derive(Debug, Clone, Arbitrary)]
struct Side {
    timestamps: bool,
    sack: bool,
    window_scaling: bool,
    nodelay: bool,
    send_buffer: u16,
    receive_buffer: u16,
    /// Bytes that its application has written on each connection at the end.
    total: u16,
}

/// The next event. `which` selects a packet under way, or an end that the applications hold.
#[derive(Debug, Clone, Arbitrary)]
enum Action {
    /// The oldest packet arrives, or several of them.
    Deliver(u8),
    /// Another packet overtakes it.
    Overtake {
        which: u8,
    },
    Drop {
        which: u8,
    },
    Duplicate {
        which: u8,
    },
    /// One byte is changed on the path.
    Corrupt {
        which: u8,
        at: u16,
        with: u8,
    },
    /// An attacker sends a packet that resembles a packet under way.
    Inject {
        which: u8,
        forged: path::Forged,
    },
    Advance {
        ms: u16,
    },
    NextTimer,
    Connect {
        fast_open: bool,
        len: u16,
    },
    Accept,
    Write {
        which: u8,
        len: u16,
    },
    Read {
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
    /// New cookie keys, with or without the old ones as backup.
    SetKeys {
        key: u8,
        keep: bool,
    },
    ForgetCredentials,
    /// Everything under way arrives, until nothing more is sent.
    Settle,
}

/// Runs what `data` describes.
pub fn run(data: &[u8]) {
    let mut bytes = Unstructured::new(data);
    let Ok(setup) = Setup::arbitrary(&mut bytes) else { return };
    let mut world = World::new(&setup);
    let mut story = Story(setup, Vec::new());
    while story.1.len() < MAX_ACTIONS && !bytes.is_empty() {
        let Ok(action) = Action::arbitrary(&mut bytes) else { break };
        story.1.push(action.clone());
        world.act(action);
        world.pump();
    }
    world.finish();
}

/// Prints the events that led to a panic.
struct Story(Setup, Vec<Action>);

impl Drop for Story {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}, then {:?}", self.0, self.1);
        }
    }
}

struct World {
    stacks: [Stack; 2],
    path: Path,
    now: Instant,
    listener: ListenerId,
    server: SocketAddr,
    key: CookieKey,
    /// The ends that the applications hold.
    ends: Vec<End>,
    connections: usize,
    totals: [usize; 2],
    /// Whether an attacker sent packets.
    tampered: bool,
    /// Whether that, or something else for which connections may fail, happened.
    disturbed: bool,
    waited: Duration,
    out: Vec<u8>,
}

fn key(n: u8) -> CookieKey {
    CookieKey::from_bytes([n; 16])
}

impl World {
    fn new(setup: &Setup) -> Self {
        let ips: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let make = |end: usize| {
            let (side, mut config) = (&setup.ends[end], Config::new(vec![ips[end]], [end as u8; 32]));
            config.tcp.set_timestamps(side.timestamps);
            config.tcp.set_sack(side.sack);
            config.tcp.set_window_scaling(side.window_scaling);
            config.tcp.set_nodelay(side.nodelay);
            config.tcp.set_data_in_syn_ack(setup.data_in_syn_ack);
            config.tcp.set_send_buffer(u32::from(side.send_buffer).max(500));
            config.tcp.set_receive_buffer(u32::from(side.receive_buffer).max(500) * 4);
            let buffer_bytes = if setup.tight { 1 << 14 } else { 1 << 22 };
            config.limits = Limits::default().connections(16).time_wait(8).buffer_bytes(buffer_bytes);
            let mut stack = Stack::new(config, Instant::ZERO);
            let mono = Instant::ZERO;
            stack.handle_clock(Clock { mono, unix_ms: 1_800_000_000_000, uncertainty: Duration::ZERO });
            stack
        };
        let mut stacks = [make(0), make(1)];
        let server = SocketAddr::new(ips[1], PORT);
        let ring = KeyRing::new(Scheme::Linux, key(1));
        let mut config = ListenConfig::new(server);
        config.fast_open = Some(FastOpenPolicy::new(Arc::new(ring), Arc::new(PendingLimit::new(4))));
        let listener = stacks[1].listen(config).expect("the port is free");
        Self {
            stacks,
            path: Path::default(),
            now: Instant::ZERO,
            listener,
            server,
            key: key(1),
            ends: Vec::new(),
            connections: 0,
            totals: [0, 1].map(|end| usize::from(setup.ends[end].total) % MAX_WRITTEN),
            tampered: false,
            disturbed: setup.tight,
            waited: Duration::ZERO,
            out: vec![0; 1500],
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Deliver(count) => {
                for _ in 0..=count % 16 {
                    self.deliver(0);
                }
            }
            Action::Overtake { which } => self.deliver(which.into()),
            Action::Drop { which } => drop(self.path.take(which.into())),
            Action::Duplicate { which } => self.path.duplicate(which.into()),
            Action::Corrupt { which, at, with } => self.path.corrupt(which.into(), at.into(), with),
            Action::Inject { which, forged } => {
                if let Some((to, packet)) = self.path.forge(which.into(), &forged) {
                    (self.tampered, self.disturbed) = (true, true);
                    self.stacks[to].handle_packet(self.now, &packet);
                }
            }
            Action::Advance { ms } => self.advance(self.now + Duration::from_millis(ms.into())),
            Action::NextTimer => {
                if let Some(next) = self.next_timer() {
                    self.advance(next.max(self.now));
                }
            }
            Action::Connect { fast_open, len } => self.connect(fast_open, len),
            Action::Accept => self.accept(),
            Action::SetKeys { key: n, keep } => {
                let old = std::mem::replace(&mut self.key, key(n));
                let mut ring = KeyRing::new(Scheme::Linux, key(n));
                if keep {
                    ring = ring.with_backup(old);
                }
                assert!(self.stacks[1].set_keys(self.listener, Arc::new(ring)));
            }
            Action::ForgetCredentials => self.stacks[0].forget_credentials(),
            Action::Settle => {
                for _ in 0..MAX_BURST {
                    if self.path.is_empty() {
                        break;
                    }
                    self.deliver(0);
                    self.pump();
                }
            }
            other => self.call(&other),
        }
    }

    /// Performs an application's call on one of the connections that it holds.
    fn call(&mut self, action: &Action) {
        let which = match action {
            Action::Write { which, .. } | Action::Read { which, .. } | Action::Shutdown { which } => *which,
            Action::Abort { which } | Action::Release { which } | Action::SetNodelay { which, .. } => *which,
            _ => return,
        };
        let at = usize::from(which) % self.ends.len().max(1);
        let now = self.now;
        let Some(end) = self.ends.get_mut(at) else { return };
        let stack = &mut self.stacks[end.side];
        match action {
            Action::Write { len, .. } => end.write(stack, (*len).into(), now),
            Action::Read { len, .. } => end.read(stack, (*len).into(), now),
            Action::Shutdown { .. } => end.shutdown(stack, now),
            Action::SetNodelay { on, .. } => stack.set_nodelay(end.id, *on, now),
            Action::Abort { .. } => {
                self.disturbed |= !end.over();
                stack.abort(end.id, now);
            }
            _ => {
                self.disturbed |= !end.over();
                stack.release(end.id, now);
                self.ends.swap_remove(at);
            }
        }
    }

    fn connect(&mut self, fast_open: bool, len: u16) {
        if self.connections >= MAX_CONNECTIONS {
            return;
        }
        let config = ConnectConfig::default().fast_open(fast_open);
        // The port is known only after the connect, and the bytes depend on it.
        let port = 50_000 + self.connections as u16;
        let local = SocketAddr::new(self.stacks[0].config().addresses[0], port);
        let config = config.local(Some(local));
        let data: Vec<u8> = (0..usize::from(len) % 3_000).map(|i| ends::byte(0, port, i)).collect();
        let Ok((id, taken)) = self.stacks[0].connect(self.server, &data, &config, self.now) else { return };
        self.connections += 1;
        self.ends.push(End { written: taken, ..End::new(0, id, port) });
    }

    fn accept(&mut self) {
        while let Some(id) = self.stacks[1].accept(self.listener) {
            let port = self.stacks[1].info(id).map_or(0, |info| info.remote.port());
            self.ends.push(End::new(1, id, port));
        }
    }

    fn deliver(&mut self, which: usize) {
        if let Some((to, packet)) = self.path.take_to_deliver(which) {
            self.stacks[to].handle_packet(self.now, &packet);
        }
    }

    fn next_timer(&self) -> Option<Instant> {
        self.stacks.iter().filter_map(Stack::poll_timeout).min()
    }

    /// Advances the time of both stacks. Timers that are due fire.
    fn advance(&mut self, to: Instant) {
        for calls in 0.. {
            assert!(calls < 20_000, "timers without end");
            let next = self.next_timer().filter(|at| *at <= to).unwrap_or(to).max(self.now);
            if !self.path.is_empty() {
                self.waited += next - self.now;
            }
            self.now = next;
            for stack in &mut self.stacks {
                stack.handle_timeout(next);
            }
            self.pump();
            if next == to && self.next_timer().is_none_or(|at| at > to) {
                break;
            }
        }
    }

    /// Takes packets and events out of both stacks, and checks the invariants.
    fn pump(&mut self) {
        for side in 0..2 {
            for count in 0.. {
                assert!(count < MAX_BURST, "packets and events without end");
                let event = self.stacks[side].poll_event();
                if let Some(Event::Ready(id, _)) = event
                    && let Some(end) = self.ends.iter_mut().find(|end| end.side == side && end.id == id)
                {
                    end.woken = true;
                }
                let len = self.stacks[side].poll_transmit(self.now, &mut self.out);
                if let Some(len) = len {
                    self.path.send(1 - side, &self.out[..len]);
                }
                if event.is_none() && len.is_none() {
                    break;
                }
            }
            let stack = &self.stacks[side];
            let limits = &stack.config().limits;
            assert!(stack.connections() <= limits.connections && stack.time_waits() <= limits.time_wait);
            assert!(stack.buffer_bytes() <= limits.buffer_bytes, "{} bytes", stack.buffer_bytes());
        }
        for end in &self.ends {
            let stack = &self.stacks[end.side];
            if end.is_waiting(stack) {
                assert!(stack.poll_timeout().is_some(), "{end:?} waits without a timer: {stack:?}");
            }
        }
    }
}
