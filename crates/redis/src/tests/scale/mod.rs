//! A farm with a cluster in virtual time, as large as the memory of this machine allows: `docs/farm-limits.md` has the figures.
//!
//! The members decide with the project's own code: the guard that asks, the cells, the majority, the lease, the identity and the
//! beginning of a memory, the question and the meaning of its answer, what is owed and what is known. Simulated are
//! the servers, the network, and what `share` and `cluster` do with connections.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "tests")]

mod cluster;
mod member;
mod server;
mod world;

use firstflight::credential::JobRequest;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::Instant;
use world::{Counts, Farm, Scale};

/// The time of the first step, Unix milliseconds.
const UNIX_MS: u64 = 1_800_000_000_000;
/// One way between a member and a master in a rack, microseconds.
const RTT_HALF: u64 = 50;
/// How long an answer to a question may take, and one to a write that keeps the lease.
const WITHIN: u64 = 18_000;
const BEAT_WITHIN: u64 = 1_000_000;

/// The moment that is this many microseconds after the first step.
fn at(us: u64) -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now) + Duration::from_micros(us)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
}

/// A first flight, or a copy of one.
#[derive(Debug, Clone, Copy)]
struct Flight {
    number: u64,
    /// The signed stamp, by the client's clock.
    stamp_ms: u64,
    which: Which,
    request: Option<JobRequest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Original,
    /// It arrives at another member in the same millisecond.
    AtOnce,
    /// It arrives after the original was answered.
    Later,
}

impl Flight {
    fn client(&self) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 | self.number as u32 & 0x00ff_ffff).into()
    }
}

/// Why a first flight waits for the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Replay,
    Floor,
    Skew,
    Lost,
}

/// A question that has no answer yet.
struct OpenQuestion {
    until: u64,
    member: usize,
    number: u64,
    server: usize,
    cell: usize,
    link: u64,
    flight: Option<Flight>,
}

fn from_environment(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Sizes from the environment, or small ones.
fn scale(seconds: usize, tick: u64) -> Scale {
    Scale {
        members: from_environment("FIRSTFLIGHT_MEMBERS", 6),
        masters: from_environment("FIRSTFLIGHT_MASTERS", 3),
        rate: from_environment("FIRSTFLIGHT_RATE", 500),
        seconds: from_environment("FIRSTFLIGHT_SECONDS", seconds),
        tick,
        seed: from_environment("FIRSTFLIGHT_SEED", 1) as u64,
    }
}

fn print(scale: &Scale, counts: &Counts) {
    let share = |part: u64| 100.0 * part as f64 / counts.shown.max(1) as f64;
    println!("{scale:?}");
    println!(
        "{} first flights: {:.3} % accepted, {:.3} % wait: {:.3} % for lack of a master, {:.3} % below a floor, {:.3} % another \
         clock, {:.3} % behind a copy",
        counts.shown,
        share(counts.accepted),
        share(counts.shown - counts.accepted),
        share(counts.refused[Refused::Lost as usize]),
        share(counts.refused[Refused::Floor as usize]),
        share(counts.refused[Refused::Skew as usize]),
        share(counts.refused[Refused::Replay as usize]),
    );
    println!(
        "{} copies, {} of them accepted in the original's place; accepted twice {}; executed after a handshake and once more {}",
        counts.copies, counts.in_place, counts.twice, counts.after_handshake
    );
    println!(
        "latency added: p50 {} µs, p99 {} µs, p99.9 {} µs; masters busy {:.0} %; {} ids at the end",
        counts.latency(500),
        counts.latency(990),
        counts.latency(999),
        100.0 * counts.busy,
        counts.keys
    );
}

/// One second without failures. `FIRSTFLIGHT_RATE=10000000` needs 6 GB.
#[test]
fn copies_at_all_members_of_a_large_farm() {
    let scale = scale(1, 20);
    let counts = Farm::new(&scale).run(false);
    print(&scale, &counts);
    assert_eq!((counts.twice, counts.after_handshake), (0, 0));
    assert!(counts.accepted + counts.in_place > counts.shown * 99 / 100, "of {}", counts.shown);
    assert!(counts.copies > counts.shown / 20);
}

/// A minute in which a tenth of the masters is killed and comes back, a tenth is stopped, replaced and goes on, and 100
/// slots move.
#[test]
fn masters_fail_and_slots_move() {
    let scale = scale(75, 200);
    let counts = Farm::new(&scale).run(true);
    print(&scale, &counts);
    println!("accepted in each second, %: {:?}", counts.seconds());
    assert_eq!(counts.twice, 0);
    assert!(counts.accepted > counts.shown / 2, "{} of {}", counts.accepted, counts.shown);
    assert!(counts.refused[Refused::Lost as usize] > 0 && counts.refused[Refused::Floor as usize] > 0);
}
