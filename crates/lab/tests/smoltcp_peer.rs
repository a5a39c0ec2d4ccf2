//! smoltcp as the peer, in virtual time, over lossy paths: an independent TCP implementation, without root and
//! without a kernel. Either end opens; both write, close and read to the end. Every byte arrives, and both ends
//! finish.
//!
//! `FIRSTFLIGHT_SEEDS=n` runs n seeds instead of the default, `FIRSTFLIGHT_SEED=n` one of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use firstflight_link::path::{Duplex, PathConfig};
use firstflight_stack::{Config, ConnId, ConnectConfig, IoError, ListenConfig, ListenerId, Stack};
use firstflight_tcp::congestion::Algorithm;
use firstflight_wire::Instant;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const SEEDS: u64 = 1000;
const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: u16 = 80;
/// smoltcp's timeouts double without a bound. Ours double up to two minutes.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// A random element.
fn pick<T: Copy>(dice: &mut ChaCha8Rng, list: &[T]) -> T {
    *list.choose(dice).unwrap()
}

/// The byte at `offset` of the stream that the opening end sends, or of the other stream.
fn byte(opener: bool, offset: usize) -> u8 {
    ((offset + usize::from(opener) * 0x1234).wrapping_mul(0x9e37_79b9) >> 11) as u8
}

fn bytes(opener: bool, range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(|offset| byte(opener, offset)).collect()
}

/// The state of an application's stream.
struct App {
    opener: bool,
    total: usize,
    written: usize,
    read: usize,
    closed: bool,
    finished: bool,
}

impl App {
    fn new(opener: bool, total: usize) -> Self {
        Self { opener, total, written: 0, read: 0, closed: false, finished: false }
    }

    fn next(&self) -> Vec<u8> {
        bytes(self.opener, self.written..self.total.min(self.written + 3000))
    }

    fn took(&mut self, got: &[u8]) {
        assert_eq!(got, bytes(!self.opener, self.read..self.read + got.len()), "behind byte {}", self.read);
        self.read += got.len();
    }
}

/// smoltcp's packets.
struct Queues {
    rx: VecDeque<Vec<u8>>,
    tx: VecDeque<Vec<u8>>,
    mtu: usize,
}

struct Received(Vec<u8>);
struct Room<'a>(&'a mut VecDeque<Vec<u8>>);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push_back(packet);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Received;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Received, Room<'_>)> {
        Some((Received(self.rx.pop_front()?), Room(&mut self.tx)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Room<'_>> {
        Some(Room(&mut self.tx))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}

/// smoltcp's end.
struct Theirs {
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    queues: Queues,
    app: App,
}

fn their_time(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((now.as_nanos() / 1000) as i64)
}

impl Theirs {
    fn new(dice: &mut ChaCha8Rng, mtu: usize, app: App) -> Self {
        let mut queues = Queues { rx: VecDeque::new(), tx: VecDeque::new(), mtu };
        let mut config = smoltcp::iface::Config::new(HardwareAddress::Ip);
        config.random_seed = dice.random();
        let mut interface = Interface::new(config, &mut queues, their_time(Instant::ZERO));
        interface.update_ip_addrs(|list| list.push(IpCidr::new(IpAddress::Ipv4(THEIRS), 24)).unwrap());
        let mut buffer = || tcp::SocketBuffer::new(vec![0; pick(dice, &[2_000, 20_000, 100_000])]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        if dice.random_bool(0.5) {
            socket.set_tsval_generator(Some(|| 77));
        }
        socket.set_nagle_enabled(dice.random_bool(0.5));
        if dice.random_bool(0.3) {
            socket.set_ack_delay(None);
        }
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Self { interface, sockets, socket, queues, app }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn act(&mut self) {
        let Self { sockets, socket, app, .. } = self;
        let socket = sockets.get_mut::<tcp::Socket<'_>>(*socket);
        while app.written < app.total && socket.can_send() {
            app.written += socket.send_slice(&app.next()).unwrap();
        }
        let mut buf = [0; 4000];
        while socket.can_recv() {
            let n = socket.recv_slice(&mut buf).unwrap();
            app.took(&buf[..n]);
        }
        app.finished |= socket.recv_slice(&mut buf) == Err(tcp::RecvError::Finished);
        if app.written == app.total && socket.may_send() && !app.closed {
            socket.close();
            app.closed = true;
        }
    }

    fn run(&mut self, now: Instant) {
        self.interface.poll(their_time(now), &mut self.queues, &mut self.sockets);
        self.act();
        self.interface.poll(their_time(now), &mut self.queues, &mut self.sockets);
    }

    fn next_timer(&mut self, now: Instant) -> Option<Instant> {
        let at = self.interface.poll_at(their_time(now), &self.sockets)?;
        // The time is early by what the conversion truncates.
        Some(Instant::from_nanos(at.total_micros().max(0) as u64 * 1000).max(now + Duration::from_micros(1)))
    }
}

/// The end with our stack.
struct Ours {
    stack: Stack,
    listener: Option<ListenerId>,
    id: Option<ConnId>,
    app: App,
}

impl Ours {
    fn new(dice: &mut ChaCha8Rng, seed: u64, mtu: usize, app: App) -> Self {
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&seed.to_le_bytes());
        let mut config = Config::new(vec![OURS.into()], secret);
        config.mtu = mtu;
        config.tcp.set_timestamps(dice.random_bool(0.7));
        config.tcp.set_sack(dice.random_bool(0.7));
        config.tcp.set_window_scaling(dice.random_bool(0.7));
        config.tcp.set_nodelay(dice.random_bool(0.5));
        config.tcp.set_send_buffer(pick(dice, &[2_000, 20_000, 1 << 20]));
        config.tcp.set_receive_buffer(pick(dice, &[3_000, 60_000, 1 << 20]));
        config.tcp.set_congestion(pick(dice, &Algorithm::ALL));
        Self { stack: Stack::new(config, Instant::ZERO), listener: None, id: None, app }
    }

    fn act(&mut self, now: Instant) {
        self.id = self.id.or_else(|| self.stack.accept(self.listener?));
        while self.stack.poll_event().is_some() {}
        let (Some(id), stack, app) = (self.id, &mut self.stack, &mut self.app) else { return };
        while app.written < app.total {
            match stack.write(id, &app.next(), now) {
                Ok(n) => app.written += n,
                Err(IoError::WouldBlock) => break,
                Err(error) => panic!("our write: {error:?} after {} and {}", app.written, app.read),
            }
        }
        if app.written == app.total && !app.closed {
            stack.shutdown(id, now).unwrap();
            app.closed = true;
        }
        let mut buf = [0; 4000];
        while !app.finished {
            match stack.read(id, &mut buf, now) {
                Ok(0) => app.finished = true,
                Ok(n) => app.took(&buf[..n]),
                Err(IoError::WouldBlock) => break,
                Err(error) => panic!("our read: {error:?} after {} and {}", app.written, app.read),
            }
        }
    }
}

/// Both ends, and the path between them.
struct World {
    ours: Ours,
    theirs: Theirs,
    wire: Duplex,
    now: Instant,
}

impl World {
    fn new(seed: u64) -> Self {
        let dice = &mut ChaCha8Rng::seed_from_u64(seed);
        let hostile = dice.random_bool(0.7);
        let part = |dice: &mut ChaCha8Rng, most| if hostile { dice.random_range(0.0..most) } else { 0.0 };
        let path = PathConfig::default()
            .delay(Duration::from_micros(pick(dice, &[50, 1_000, 10_000, 50_000, 150_000])))
            .jitter(Duration::from_micros(pick(dice, &[0, 0, 500, 5_000])))
            .rate_bits_per_s(pick(dice, &[None, None, Some(1_000_000), Some(20_000_000)]))
            .queue_bytes(pick(dice, &[8_000, 30_000, 256_000]))
            .loss(part(dice, 0.15))
            .reorder(part(dice, 0.2))
            .reorder_delay(Duration::from_micros(pick(dice, &[100, 2_000, 30_000])))
            .duplicate(part(dice, 0.1))
            .mtu(pick(dice, &[1500, 1500, 1280, 576]));
        let we_open = dice.random_bool(0.5);
        let totals = [(); 2].map(|()| {
            let most = pick(dice, &[500, 20_000, 100_000]);
            dice.random_range(0..most)
        });
        let mtu = path.mtu;
        let mut ours = Ours::new(dice, seed, mtu, App::new(we_open, totals[0]));
        let mut theirs = Theirs::new(dice, mtu, App::new(!we_open, totals[1]));
        let (us, them) = (IpAddr::from(OURS), IpAddr::from(THEIRS));
        if we_open {
            theirs.socket().listen(PORT).unwrap();
            let (first, config) = (ours.app.next(), ConnectConfig::default());
            let (id, taken) =
                ours.stack.connect(SocketAddr::new(them, PORT), &first, &config, Instant::ZERO).unwrap();
            (ours.id, ours.app.written) = (Some(id), taken);
        } else {
            ours.listener = Some(ours.stack.listen(ListenConfig::new(SocketAddr::new(us, PORT))).unwrap());
            let Theirs { interface, sockets, socket, .. } = &mut theirs;
            let socket = sockets.get_mut::<tcp::Socket<'_>>(*socket);
            socket.connect(interface.context(), (IpAddress::Ipv4(OURS), PORT), 49_152).unwrap();
        }
        Self { ours, theirs, wire: Duplex::symmetric(path, seed).unwrap(), now: Instant::ZERO }
    }

    /// Does everything that happens at this moment.
    fn turn(&mut self) {
        let now = self.now;
        while let Some(packet) = self.wire.b_to_a.poll_deliver(now) {
            self.ours.stack.handle_packet(now, &packet);
        }
        if self.ours.stack.poll_timeout().is_some_and(|at| at <= now) {
            self.ours.stack.handle_timeout(now);
        }
        self.ours.act(now);
        let mut out = [0; 1500];
        while let Some(len) = self.ours.stack.poll_transmit(now, &mut out) {
            self.wire.a_to_b.send(now, &out[..len]);
        }
        while let Some(packet) = self.wire.a_to_b.poll_deliver(now) {
            self.theirs.queues.rx.push_back(packet);
        }
        self.theirs.run(now);
        for packet in self.theirs.queues.tx.drain(..) {
            self.wire.b_to_a.send(now, &packet);
        }
    }

    /// Runs until `over` is true.
    fn run_until(&mut self, over: impl Fn(&Self) -> bool) {
        loop {
            self.turn();
            if over(self) {
                return;
            }
            let timers = [self.ours.stack.poll_timeout(), self.theirs.next_timer(self.now)];
            let next = timers.into_iter().flatten().chain(self.wire.next_arrival()).min();
            let next = next.expect("nothing is under way, and nobody waits for anything");
            assert!(next - Instant::ZERO < LONGEST, "it takes too long");
            self.now = next.max(self.now);
        }
    }

    /// Runs until both ends have everything, and the connection is over at our end, which keeps nothing of it.
    fn run(&mut self) {
        let done = |app: &App| app.closed && app.finished;
        self.run_until(|world| done(&world.ours.app) && done(&world.theirs.app));
        let (ours, theirs) = (&self.ours.app, &self.theirs.app);
        assert_eq!((ours.read, theirs.read), (theirs.total, ours.total));
        let id = self.ours.id.take().unwrap();
        self.ours.stack.release(id, self.now);
        self.run_until(|world| world.ours.stack.connections() == 0 && world.ours.stack.time_waits() == 0);
        assert_eq!(self.ours.stack.buffer_bytes(), 0);
    }
}

#[test]
fn every_byte_arrives_from_and_at_another_tcp() {
    let one = std::env::var("FIRSTFLIGHT_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("FIRSTFLIGHT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let (mut carried, mut lost) = (0, 0);
    for seed in seeds.clone() {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            let lost = [&world.wire.a_to_b, &world.wire.b_to_a].map(|path| path.counters().lost);
            (world.ours.app.total + world.theirs.app.total, lost[0] + lost[1])
        });
        match run {
            Ok(run) => (carried, lost) = (carried + run.0, lost + run.1),
            Err(panic) => {
                eprintln!("the seed is {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{} seeds, {carried} bytes, {lost} packets lost on the way", seeds.count());
}
