//! Two stacks and a path that chooses the fate of every packet: bytes arrive in order, or both ends see an error.

use arbitrary::{Arbitrary, Unstructured};
use firstflight_credential::{CookieKey, FastOpenPolicy, KeyRing, PendingLimit, Scheme};
use firstflight_stack::{
    CloseReason, Config, ConnId, ConnectConfig, IoError, ListenConfig, ListenerId, Stack,
};
use firstflight_wire::{Clock, Instant};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const PORT: u16 = 80;
/// Fewer losses in a row than this cannot end a connection (a SYN is sent 7 times).
const HARMLESS_LOSSES: usize = 5;
/// Limits of the bytes in one direction, and of the application's calls that transfer them, so that a run takes a
/// millisecond.
const MAX_TOTAL: usize = 20_000;
const MAX_CALLS: usize = 100;

#[derive(Debug, Clone, Arbitrary)]
struct Run {
    first_visit: bool,
    fast_open: bool,
    data_in_syn_ack: bool,
    first_flight: u16,
    ends: [Side; 2],
    fates: Vec<Fate>,
}

#[derive(Debug, Clone, Arbitrary)]
struct Side {
    timestamps: bool,
    sack: bool,
    window_scaling: bool,
    nodelay: bool,
    send_buffer: u16,
    receive_buffer: u16,
    /// Bytes to send, up to [`MAX_TOTAL`].
    total: u16,
    /// Sizes of writes and reads, in turn.
    writes: u16,
    reads: u16,
}

/// The fate of a packet. After the last entry of the list the path is perfect.
#[derive(Debug, Clone, Copy, Arbitrary)]
enum Fate {
    Deliver,
    Lose,
    /// The packet arrives twice, the second time this much later.
    Duplicate {
        ms: u16,
    },
    /// Packets that are sent in the meantime overtake it.
    Delay {
        ms: u16,
    },
}

/// Runs what `data` describes.
pub fn run(data: &[u8]) {
    let Ok(run) = Run::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let mut world = World::new(&run);
    world.transfer(&run);
}

/// The byte at `offset` of the stream of end `end`.
fn byte(end: usize, offset: usize) -> u8 {
    ((offset.wrapping_mul(0x9e37_79b9) >> 11) ^ (offset >> 3) ^ (end * 0x55)) as u8
}

struct App {
    id: Option<ConnId>,
    total: usize,
    written: usize,
    read: usize,
    closed: bool,
    finished: bool,
    failed: Option<IoError>,
}

impl App {
    fn over(&self) -> bool {
        self.failed.is_some() || (self.closed && self.finished)
    }

    fn run(&mut self, end: usize, stack: &mut Stack, side: &Side, now: Instant) {
        if let Err(error) = self.try_run(end, stack, side, now)
            && error != IoError::WouldBlock
        {
            self.failed = Some(error);
        }
    }

    fn try_run(&mut self, end: usize, stack: &mut Stack, side: &Side, now: Instant) -> Result<(), IoError> {
        let Some(id) = self.id.filter(|_| !self.over()) else { return Ok(()) };
        while self.written < self.total {
            let n = usize::from(side.writes).max(1 + self.total / MAX_CALLS).min(self.total - self.written);
            let bytes: Vec<u8> = (0..n).map(|i| byte(end, self.written + i)).collect();
            match stack.write(id, &bytes, now) {
                Ok(n) => self.written += n,
                Err(IoError::WouldBlock) => break,
                Err(error) => return Err(error),
            }
        }
        if self.written == self.total && !self.closed {
            stack.shutdown(id, now)?;
            self.closed = true;
        }
        let mut buf = vec![0; usize::from(side.reads).max(MAX_TOTAL / MAX_CALLS)];
        while !self.finished {
            let n = stack.read(id, &mut buf, now)?;
            self.finished = n == 0;
            for (i, got) in buf[..n].iter().enumerate() {
                assert_eq!(*got, byte(1 - end, self.read + i), "byte {} of end {}", self.read + i, 1 - end);
            }
            self.read += n;
        }
        Ok(())
    }
}

struct World {
    stacks: [Stack; 2],
    /// Packets under way, by arrival time and number: the receiving end, and the bytes.
    flight: BTreeMap<(Instant, u64), (usize, Vec<u8>)>,
    number: u64,
    fates: Vec<Fate>,
    losses: usize,
    now: Instant,
    listener: ListenerId,
    server: SocketAddr,
    out: Vec<u8>,
}

impl World {
    fn new(run: &Run) -> Self {
        let ips: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let make = |end: usize| {
            let (side, mut config) = (&run.ends[end], Config::new(vec![ips[end]], [end as u8; 32]));
            config.tcp.set_timestamps(side.timestamps);
            config.tcp.set_sack(side.sack);
            config.tcp.set_window_scaling(side.window_scaling);
            config.tcp.set_nodelay(side.nodelay);
            config.tcp.set_data_in_syn_ack(run.data_in_syn_ack);
            config.tcp.set_send_buffer(u32::from(side.send_buffer).max(500));
            config.tcp.set_receive_buffer(u32::from(side.receive_buffer).max(500) * 4);
            let mut stack = Stack::new(config, Instant::ZERO);
            let clock =
                Clock { mono: Instant::ZERO, unix_ms: 1_800_000_000_000, uncertainty: Duration::ZERO };
            stack.handle_clock(clock);
            stack
        };
        let mut stacks = [make(0), make(1)];
        let server = SocketAddr::new(ips[1], PORT);
        let ring = KeyRing::new(Scheme::Linux, CookieKey::from_bytes([1; 16]));
        let mut config = ListenConfig::new(server);
        config.fast_open = Some(FastOpenPolicy::new(Arc::new(ring), Arc::new(PendingLimit::new(4))));
        let listener = stacks[1].listen(config).unwrap();
        Self {
            stacks,
            flight: BTreeMap::new(),
            number: 0,
            fates: Vec::new(),
            losses: 0,
            now: Instant::ZERO,
            listener,
            server,
            out: vec![0; 1500],
        }
    }

    fn connect(&mut self, data: &[u8], fast_open: bool) -> (ConnId, usize) {
        let config = ConnectConfig::default().fast_open(fast_open);
        self.stacks[0].connect(self.server, data, &config, self.now).unwrap()
    }

    fn send(&mut self) {
        for end in 0..2 {
            while self.stacks[end].poll_event().is_some() {}
            while let Some(len) = self.stacks[end].poll_transmit(self.now, &mut self.out) {
                let delay = |ms: u16| Duration::from_millis(10 + u64::from(ms % 8192));
                let after: &[Duration] = match self.fates.pop() {
                    None | Some(Fate::Deliver) => &[delay(0)],
                    Some(Fate::Lose) => {
                        self.losses += 1;
                        &[]
                    }
                    Some(Fate::Duplicate { ms }) => &[delay(0), delay(ms)],
                    Some(Fate::Delay { ms }) => &[delay(ms)],
                };
                for after in after {
                    self.number += 1;
                    let packet = self.out[..len].to_vec();
                    self.flight.insert((self.now + *after, self.number), (1 - end, packet));
                }
            }
        }
    }

    /// Sends, then goes on to the next event. Returns false if there is none before `limit`.
    fn step(&mut self, limit: Instant) -> bool {
        self.send();
        let arrival = self.flight.first_key_value().map(|(k, _)| k.0);
        let timers = self.stacks.iter().map(Stack::poll_timeout);
        let Some(next) = timers.chain([arrival]).flatten().min().filter(|t| *t <= limit) else {
            return false;
        };
        self.now = next.max(self.now);
        while let Some(first) = self.flight.first_entry().filter(|e| e.key().0 <= self.now) {
            let (end, packet) = first.remove();
            self.stacks[end].handle_packet(self.now, &packet);
        }
        for stack in &mut self.stacks {
            stack.handle_timeout(self.now);
        }
        true
    }

    fn idle(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
        self.now = end;
        for stack in &mut self.stacks {
            stack.handle_timeout(end);
        }
        self.send();
    }

    /// The server's side of `client`. Other children, which come from old duplicates of a SYN, are released.
    fn accept_of(&mut self, client: Option<ConnId>) -> Option<ConnId> {
        let ours = client.and_then(|id| self.stacks[0].info(id)).map(|i| i.local);
        while let Some(id) = self.stacks[1].accept(self.listener) {
            if ours.is_some() && self.stacks[1].info(id).map(|i| i.remote) == ours {
                return Some(id);
            }
            self.stacks[1].release(id, self.now);
        }
        None
    }

    fn transfer(&mut self, run: &Run) {
        if run.first_visit {
            let (id, _) = self.connect(b"", true);
            self.idle(Duration::from_secs(1));
            self.stacks[0].release(id, self.now);
            self.accept_of(None);
        }
        self.fates = run.fates.iter().rev().take(512).copied().collect();
        let app = |side: &Side| App {
            id: None,
            total: usize::from(side.total) % MAX_TOTAL,
            written: 0,
            read: 0,
            closed: false,
            finished: false,
            failed: None,
        };
        let mut apps = [app(&run.ends[0]), app(&run.ends[1])];
        let first = apps[0].total.min(usize::from(run.first_flight) % 3000);
        let data: Vec<u8> = (0..first).map(|i| byte(0, i)).collect();
        let (id, taken) = self.connect(&data, run.fast_open);
        apps[0].id = Some(id);
        apps[0].written = taken;
        let limit = self.now + Duration::from_secs(4 * 3600);
        loop {
            self.send();
            if apps[1].id.is_none() {
                apps[1].id = self.accept_of(apps[0].id);
            }
            for (end, app) in apps.iter_mut().enumerate() {
                app.run(end, &mut self.stacks[end], &run.ends[end], self.now);
            }
            let never_accepted = apps[1].id.is_none() && apps[0].failed.is_some();
            if apps[0].over() && (apps[1].over() || never_accepted) {
                break;
            }
            if !self.step(limit) {
                // An end that gives up tells nobody: its peer, without a keepalive, waits for ever.
                let gave_up = apps.iter().zip(&self.stacks).any(|(app, stack)| {
                    // An application that has finished does not learn of it.
                    let reason = app.id.and_then(|id| stack.close_reason(id));
                    app.failed.is_some() || reason == Some(CloseReason::TimedOut)
                });
                assert!(
                    gave_up && self.losses > HARMLESS_LOSSES,
                    "no end: {:?}",
                    apps.map(|a| (a.read, a.written, a.total, a.failed))
                );
                break;
            }
        }
        self.check(&apps);
    }

    fn check(&mut self, apps: &[App; 2]) {
        for (end, app) in apps.iter().enumerate() {
            let complete = app.read == apps[1 - end].total;
            assert!(!app.finished || complete, "end {end} took {} bytes for all", app.read);
            assert!(app.failed.is_none() || self.losses > HARMLESS_LOSSES, "end {end}: {:?}", app.failed);
        }
        for (end, app) in apps.iter().enumerate() {
            if let Some(id) = app.id {
                self.stacks[end].release(id, self.now);
            }
        }
        for _ in 0..8 {
            self.idle(Duration::from_secs(900));
            self.accept_of(None);
        }
        for (end, stack) in self.stacks.iter().enumerate() {
            assert_eq!(stack.connections(), 0, "end {end} holds connections: {stack:?}");
            assert_eq!((stack.buffer_bytes(), stack.time_waits()), (0, 0), "end {end} holds memory");
        }
    }
}
