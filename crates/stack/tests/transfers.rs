//! Random transfers over hostile paths: every byte arrives in order, or both ends see an error.
//!
//! While data waits, no end is silent for longer than its retransmission timeout, and the timeout is no longer than
//! RFC 6298 makes it on such a path.
//!
//! `FIRSTFLIGHT_SEEDS=n` runs n seeds instead of the default, `FIRSTFLIGHT_SEED=n` one of them,
//! `FIRSTFLIGHT_ALGORITHM=name` lets all connections have this congestion control.

use crate::pair::{End, Pair, key, policy};
use crate::translator::{Translator, translate};
use crate::watch::Watch;
use firstflight_credential::{Outcome, Reason};
use firstflight_link::path::PathConfig;
use firstflight_stack::{ConnId, EncapsulationConfig, IoError, ListenerId};
use firstflight_tcp::congestion::Algorithm;
use firstflight_wire::Instant;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::time::Duration;

const DEFAULT_SEEDS: u64 = 1000;
const SERVER_UDP: u16 = 4433;

struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0.next_u64() % n.max(1)
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }
}

/// The byte at `offset` of the stream of one direction.
fn byte(seed: u64, end: End, offset: usize) -> u8 {
    let x = (offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed ^ ((end as u64) << 40);
    (x >> 29) as u8
}

/// The application of one end: writes `total` bytes, closes, reads to the end.
struct App {
    end: End,
    id: Option<ConnId>,
    total: usize,
    written: usize,
    read: usize,
    closed: bool,
    finished: bool,
    failed: Option<IoError>,
}

impl App {
    fn new(end: End, total: usize) -> Self {
        Self { end, id: None, total, written: 0, read: 0, closed: false, finished: false, failed: None }
    }

    fn over(&self) -> bool {
        self.failed.is_some() || (self.closed && self.finished)
    }

    fn run(&mut self, pair: &mut Pair, seed: u64, dice: &mut Dice) {
        let Some(id) = self.id.filter(|_| !self.over()) else { return };
        let now = pair.now;
        let stack = if self.end == End::Client { &mut pair.client } else { &mut pair.server };
        let peer = if self.end == End::Client { End::Server } else { End::Client };
        while self.written < self.total {
            let n = (1 + dice.below(3000) as usize).min(self.total - self.written);
            let bytes: Vec<u8> = (0..n).map(|i| byte(seed, self.end, self.written + i)).collect();
            match stack.write(id, &bytes, now) {
                Ok(n) => self.written += n,
                Err(IoError::WouldBlock) => break,
                Err(error) => return self.failed = Some(error),
            }
        }
        if self.written == self.total && !self.closed {
            match stack.shutdown(id, now) {
                Ok(()) => self.closed = true,
                Err(error) => return self.failed = Some(error),
            }
        }
        let mut buf = vec![0; 1 + dice.below(8000) as usize];
        while !self.finished {
            match stack.read(id, &mut buf, now) {
                Ok(0) => self.finished = true,
                Ok(n) => {
                    for (i, got) in buf[..n].iter().enumerate() {
                        assert_eq!(
                            *got,
                            byte(seed, peer, self.read + i),
                            "byte {} of {peer:?}",
                            self.read + i
                        );
                    }
                    self.read += n;
                }
                Err(IoError::WouldBlock) => break,
                Err(error) => return self.failed = Some(error),
            }
        }
    }
}

fn path(dice: &mut Dice) -> PathConfig {
    let hostile = dice.chance(70);
    PathConfig::default()
        .delay(Duration::from_micros(dice.pick(&[50, 1_000, 10_000, 50_000, 150_000])))
        .jitter(Duration::from_micros(dice.pick(&[0, 0, 500, 5_000])))
        .rate_bits_per_s(dice.pick(&[None, None, Some(1_000_000), Some(20_000_000)]))
        .queue_bytes(dice.pick(&[8_000, 30_000, 256_000]))
        .loss(if hostile { dice.below(200) as f64 / 1000.0 } else { 0.0 })
        .reorder(if hostile { dice.below(200) as f64 / 1000.0 } else { 0.0 })
        .reorder_delay(Duration::from_micros(dice.pick(&[100, 2_000, 30_000])))
        .duplicate(if hostile { dice.below(100) as f64 / 1000.0 } else { 0.0 })
        // The link below corrupts one bit at a time: the Internet checksum finds every single flip, but not every
        // pair.
        .corrupt(0.0)
        .mtu(dice.pick(&[1500, 1500, 1280, 576, 9000]))
}

/// How segments travel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Ip,
    Udp,
    /// In UDP, through an address translator that gives the client another port at random times.
    Rebound,
}

fn transfer(seed: u64, way: Way) -> Done {
    let carried = way != Way::Ip;
    let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
    let mut path = path(&mut dice);
    let delay = path.delay + path.jitter;
    let v6 = dice.chance(40);
    if v6 {
        path.mtu = path.mtu.max(1280);
    }
    let (send, receive) = (dice.pick(&[2_000, 20_000, 1 << 20]), dice.pick(&[600, 3_000, 60_000, 1 << 20]));
    let (ts, sack, scale) = (dice.chance(70), dice.chance(70), dice.chance(70));
    let drawn = dice.pick(&Algorithm::ALL);
    let algorithm = algorithm().unwrap_or(drawn);
    let pacing = seed.is_multiple_of(3);
    let longest = crate::watch::longest_timeout(&path);
    let nodelay = dice.chance(30);
    let data_in_syn_ack = dice.chance(50);
    let one_sided = dice.chance(30);
    let mut pair = Pair::new(path, seed, v6, |config, end| {
        let on = |x: bool| x || (one_sided && end == End::Client);
        config.tcp.set_send_buffer(send);
        config.tcp.set_receive_buffer(receive);
        config.tcp.set_timestamps(on(ts));
        config.tcp.set_sack(on(sack));
        config.tcp.set_window_scaling(on(scale));
        config.tcp.set_congestion(algorithm);
        config.tcp.set_pacing(pacing);
        config.tcp.set_nodelay(nodelay);
        config.tcp.set_data_in_syn_ack(data_in_syn_ack);
        if carried {
            config.encapsulation = Some(EncapsulationConfig::new(SERVER_UDP + end as u16));
        }
    });
    pair.encapsulation = carried.then_some(SERVER_UDP + End::Server as u16);
    let rate = if dice.chance(60) { dice.below(50) } else { 0 };
    for path in [&mut pair.wire.a_to_b, &mut pair.wire.b_to_a] {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed ^ dice.0.next_u64()));
        path.set_filter(Box::new(move |packet| {
            if dice.below(1000) < rate {
                let bit = dice.below(packet.len() as u64 * 8) as usize;
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            firstflight_link::path::FilterVerdict::Forward
        }));
    }
    let mut rebinding = (way == Way::Rebound).then(|| Rebinding::new(seed, &mut pair, delay));
    pair.keep_log = std::env::var_os("FIRSTFLIGHT_SEED").is_some();
    let listener = pair.listen(Some(policy(key(1), 10)));
    // In half of the runs a first visit fetches the cookie, so that both paths are tested.
    if dice.chance(50) {
        let id = pair.connect(b"", true);
        pair.idle(Duration::from_secs(5));
        pair.client.release(id, pair.now);
        while let Some(id) = pair.server.accept(listener) {
            pair.server.release(id, pair.now);
        }
    }
    let sizes = [0, 1, 500, 20_000, 200_000, 600_000];
    let mut client = App::new(End::Client, dice.pick(&sizes));
    let mut server = App::new(End::Server, dice.pick(&sizes));
    let first = client.total.min(dice.below(2000) as usize).min(send as usize);
    let data: Vec<u8> = (0..first).map(|i| byte(seed, End::Client, i)).collect();
    client.id = Some(pair.connect(&data, dice.chance(70)));
    client.written = first;
    // The next keep-alive of a client that only receives finds it again, each time.
    let hours = if way == Way::Rebound { 24 } else { 4 };
    let end = pair.now + Duration::from_secs(hours * 3600);
    let mut watches = [End::Client, End::Server].map(|end| Watch::new(end, longest));
    loop {
        pair.flush();
        if server.id.is_none() {
            server.id = accept_of(&mut pair, listener, client.id);
        }
        client.run(&mut pair, seed, &mut dice);
        server.run(&mut pair, seed, &mut dice);
        for (watch, id) in watches.iter_mut().zip([client.id, server.id]) {
            if let Some(stall) = id.and_then(|id| watch.look(&pair, id)) {
                dump(&pair);
                panic!("{stall}");
            }
        }
        if client.over() && (server.over() || (server.id.is_none() && client.failed.is_some())) {
            break;
        }
        // A SYN that is sent again from another port is another SYN, and makes another child.
        let open = client.id.and_then(|id| pair.client.info(id)).is_some_and(|info| info.confirmed);
        if let Some(rebinding) = rebinding.as_mut().filter(|_| open) {
            rebinding.run(pair.now);
        }
        if !pair.step() {
            dump(&pair);
            panic!("a deadlock at {:?}", pair.now);
        }
        if pair.now >= end {
            dump(&pair);
        }
        assert!(
            pair.now < end,
            "no end in sight: client {}/{} {:?}, server {}/{} {:?}",
            client.read,
            server.total,
            client.failed,
            server.read,
            client.total,
            server.failed
        );
    }
    // In UDP, data that must not run twice is not sent again if only the plain SYN is answered.
    let outcome = client.id.and_then(|id| pair.client.info(id)).map(|info| info.outcome);
    let once = client.failed.is_some() && outcome == Some(Outcome::Handshake(Reason::Unknown));
    check(&mut pair, listener, &client, &server);
    let moves = pair.server.counters().encapsulation_paths_moved;
    Done { algorithm, bytes: client.read + server.read, whole: client.failed.is_none(), once, moves }
}

/// A translator, and the time of the next change of its mapping.
struct Rebinding {
    translator: Translator,
    dice: Dice,
    next: Instant,
    /// Minimum milliseconds between two changes, and the additional maximum.
    pause: [u64; 2],
}

impl Rebinding {
    fn new(seed: u64, pair: &mut Pair, delay: Duration) -> Self {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(!seed));
        // A mapping lasts at least ten round trips, because it takes some to find the client again.
        let least = (delay.as_millis() as u64 * 20).max(100);
        let pause = dice.pick(&[[least, 1_000], [least, 5_000], [least, 60_000]]);
        let next = pair.now + Duration::from_millis(dice.below(pause[1]));
        Self { translator: translate(pair), dice, next, pause }
    }

    fn run(&mut self, now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + Duration::from_millis(self.pause[0] + self.dice.below(self.pause[1]));
        // Sometimes the port is one that the client had before.
        let back = self.dice.chance(10);
        let step = if back { 3_999 } else { 1 };
        let port = 61_000 + (self.translator.port() - 61_000 + step) % 4_000;
        self.translator.set(port);
    }
}

/// The result of a transfer.
#[derive(Debug)]
struct Done {
    algorithm: Algorithm,
    bytes: usize,
    whole: bool,
    /// It failed because its first data must not run twice.
    once: bool,
    moves: u64,
}

/// The algorithm of all connections, if one is set.
fn algorithm() -> Option<Algorithm> {
    std::env::var("FIRSTFLIGHT_ALGORITHM").ok().map(|name| name.parse().unwrap())
}

/// The last packets, if the log was kept.
fn dump(pair: &Pair) {
    let from = pair.log.len().saturating_sub(40);
    for (at, end, packet) in &pair.log[from..] {
        println!("{:>12} {end:?} {}", at.as_micros(), firstflight_wire::Pretty(packet));
    }
    println!("client {:?}\nserver {:?}", pair.client.counters(), pair.server.counters());
}

/// The server's side of our connection. Other ones (old duplicates of a SYN) are released.
fn accept_of(pair: &mut Pair, listener: ListenerId, client: Option<ConnId>) -> Option<ConnId> {
    let ours = client.and_then(|id| pair.client.info(id)).map(|i| i.local);
    while let Some(id) = pair.server.accept(listener) {
        if pair.server.info(id).map(|i| i.remote) == ours {
            return Some(id);
        }
        pair.server.release(id, pair.now);
    }
    None
}

/// Complete on both sides, or failed on both, and no state is left.
fn check(pair: &mut Pair, listener: ListenerId, client: &App, server: &App) {
    if client.failed.is_none() && server.failed.is_none() {
        assert_eq!((client.read, server.read), (server.total, client.total));
    } else {
        // The other side may have finished before the failure, but never with wrong or missing bytes that it
        // considered complete.
        assert!(!client.finished || client.read == server.total);
        assert!(!server.finished || server.read == client.total);
    }
    for (stack, id) in [(End::Client, client.id), (End::Server, server.id)] {
        let (stack, now) =
            if stack == End::Client { (&mut pair.client, pair.now) } else { (&mut pair.server, pair.now) };
        if let Some(id) = id {
            stack.release(id, now);
        }
    }
    for _ in 0..8 {
        pair.idle(Duration::from_secs(900));
        // An old duplicate of a SYN, or a connect that its client gave up, makes a child as well.
        while let Some(id) = pair.server.accept(listener) {
            pair.server.release(id, pair.now);
        }
    }
    for (name, stack) in [("client", &pair.client), ("server", &pair.server)] {
        assert_eq!(stack.buffer_bytes(), 0, "{name} holds buffers");
        assert_eq!(stack.connections(), 0, "{name} holds connections: {stack:?}");
        assert_eq!(stack.time_waits(), 0, "{name} holds TIME-WAIT");
    }
}

#[test]
fn every_byte_arrives_or_both_ends_fail() {
    transfers(Way::Ip);
}

#[test]
fn the_same_in_udp() {
    transfers(Way::Udp);
}

#[test]
fn the_same_in_udp_from_ports_that_change() {
    let (moves, seeds) = (transfers(Way::Rebound), seeds());
    // A few transfers may happen to have none.
    assert!(moves > seeds / 10 || seeds < 20, "{moves} moves in {seeds} transfers");
}

fn seeds() -> u64 {
    std::env::var("FIRSTFLIGHT_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(DEFAULT_SEEDS)
}

/// The total number of moves of connections.
fn transfers(way: Way) -> u64 {
    if let Some(seed) = std::env::var("FIRSTFLIGHT_SEED").ok().and_then(|s| s.parse().ok()) {
        println!("seed {seed}: {:?}", transfer(seed, way));
        return u64::MAX;
    }
    let seeds = seeds();
    let mut moves = 0;
    let mut sums = Algorithm::ALL.map(|_| (0, 0, 0, 0));
    for seed in 0..seeds {
        let result = std::panic::catch_unwind(|| transfer(seed, way));
        match result {
            Ok(done) => {
                let at = Algorithm::ALL.iter().position(|a| *a == done.algorithm).unwrap();
                let (runs, complete, once, bytes) = &mut sums[at];
                *runs += 1;
                *complete += u64::from(done.whole);
                *once += u64::from(done.once);
                *bytes += done.bytes;
                moves += done.moves;
            }
            Err(panic) => {
                eprintln!("seed {seed} failed: run it alone with FIRSTFLIGHT_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    for (algorithm, (runs, complete, once, bytes)) in Algorithm::ALL.iter().zip(sums) {
        println!("{algorithm}: {runs} seeds, {complete} complete, {once} not sent twice, {bytes} bytes");
        // Paths this bad may break some connections; if many break, recovery does not work.
        assert!(complete * 100 >= runs * 95, "{algorithm}: only {complete} of {runs} complete");
        let rest = runs - complete - once;
        assert!(rest * 200 <= runs, "{algorithm}: {rest} of {runs} failed for another reason");
        assert!(once == 0 || way != Way::Ip, "{algorithm}: {once} were not sent twice");
    }
    moves
}
