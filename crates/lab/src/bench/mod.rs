//! Two TCP stacks that do the same work in memory, with time measurement.
//!
//! The conditions are equal for both: one thread, packets passed as slices of reused buffers ([`wire`]), the same
//! exchange of turns, the same virtual time, requests and responses compared byte by byte, checksums computed and
//! verified.

pub mod bulk;
pub mod certificates;
pub mod connections;
pub mod engine;
pub mod front;
pub mod gateway;
pub mod memory;
pub mod once;
pub mod ours;
pub mod ours_bulk;
pub mod report;
pub mod seal;
pub mod shards;
pub mod smoltcp;
pub mod smoltcp_bulk;
pub mod sockets;
#[cfg(test)]
mod tests;
pub mod wire;

use clap::Args;
use nix::time::{ClockId, clock_gettime};
use stats_alloc::INSTRUMENTED_SYSTEM;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// Options of a benchmark that measures in rounds, in turn with its reference.
#[derive(Debug, Args)]
pub struct Rounds {
    /// One JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Rounds; medians are taken over them.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(5..=1000))]
    pub rounds: u32,
    /// A fifth of the time per round: for a first look.
    #[arg(long)]
    pub quick: bool,
}

/// Number of connections in flight.
pub const IN_FLIGHT: usize = 64;
/// The client's first bytes.
pub const REQUEST: [u8; 100] = [b'q'; 100];
/// The server's answer.
pub const RESPONSE: [u8; 300] = [b'r'; 300];
/// Virtual time of one exchange (client's turn, server's turn), microseconds. This is about what 64 connections
/// really take, so that sequence number clocks and timers see a plausible rate.
pub const EXCHANGE_US: u64 = 20;
/// Send and receive buffer of the bulk transfer in both stacks, bytes. With 64 KiB, which is too little for a long
/// path, both are a few percent faster. With 1 MiB, which does not fit into the cache, both are slower.
pub const BULK_BUFFER: usize = 256 << 10;
/// Exchanges without progress after which a stack counts as stuck: 4 s of virtual time, longer than any first
/// retransmission timeout.
const STALL: u32 = 200_000;

/// Why a benchmark gave no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A stack refused a command.
    #[error("{what}: {why}")]
    Refused {
        /// Which stack and command.
        what: &'static str,
        why: String,
    },
    /// Bytes or outcomes are not the ones to be measured, so the figures would be wrong.
    #[error("not what was to be measured: {0}")]
    Wrong(String),
    /// No connection or byte made progress for a long time.
    #[error("{0} made no progress for {STALL} exchanges")]
    Stuck(&'static str),
    /// The machine or the caller lacks something.
    #[error("needs {0}")]
    Needs(&'static str),
    /// A program that is to be one end of `bench connections` is none, or failed.
    #[error("{0}")]
    Peer(String),
    /// A file cannot be written. The caller is at fault.
    #[error("cannot write {0}: {1}")]
    File(String, std::io::Error),
    /// The system does not report the CPU time of this thread.
    #[error("no CPU time from this machine: {0}")]
    Clock(nix::Error),
}

impl BenchError {
    /// A stack refused a command.
    pub fn refused(what: &'static str, why: impl fmt::Debug) -> Self {
        Self::Refused { what, why: format!("{why:?}") }
    }
}

/// Two ends connected in memory.
pub trait World {
    /// The name for messages.
    fn name(&self) -> &'static str;
    /// One exchange: the client's turn, then the server's turn. In its turn an end handles all packets, its
    /// application acts, and it sends what is ready.
    fn exchange(&mut self) -> Result<(), BenchError>;
    /// Connections closed at both ends, or bytes read and checked.
    fn done(&self) -> u64;
    /// Packets carried, both directions.
    fn packets(&self) -> u64;
    /// Checks that only the work to be measured was done.
    fn check(&self) -> Result<(), BenchError>;
}

/// CPU time of this thread. The thread never waits, so this is the time of its work, independent of other load on the
/// machine. Only the caches are shared.
pub fn cpu_time() -> Result<Duration, BenchError> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).map_err(BenchError::Clock)
}

/// When a measurement stops.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// After this CPU time.
    pub time: Duration,
    /// After this many connections or bytes.
    pub units: u64,
}

impl Budget {
    /// Stops after `time`.
    pub const fn time(time: Duration) -> Self {
        Self { time, units: u64::MAX }
    }

    /// Stops after `units`.
    pub const fn units(units: u64) -> Self {
        Self { time: Duration::MAX, units }
    }
}

/// The measurements of one round.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Connections or bytes.
    pub units: u64,
    /// Packets carried: each was sent by one end and handled by the other.
    pub packets: u64,
    /// Heap allocations.
    pub allocations: u64,
    /// Seconds of CPU time.
    pub seconds: f64,
}

impl Sample {
    /// Connections or bytes per second.
    pub fn per_second(&self) -> f64 {
        self.units as f64 / self.seconds
    }

    /// Nanoseconds per packet handled. A carried packet is handled twice: sent at one end and received at the other.
    /// The applications' work is included.
    pub fn ns_per_packet(&self) -> f64 {
        self.seconds * 1e9 / (2 * self.packets.max(1)) as f64
    }

    /// Packets carried per connection or byte.
    pub fn packets_per_unit(&self) -> f64 {
        self.packets as f64 / self.units.max(1) as f64
    }

    /// Heap allocations per connection or byte.
    pub fn allocations_per_unit(&self) -> f64 {
        self.allocations as f64 / self.units.max(1) as f64
    }
}

/// Runs `world` until `budget` is used up. The clock is read every 16 exchanges, which are hundreds of microseconds
/// of work.
pub fn measure(world: &mut dyn World, budget: Budget) -> Result<Sample, BenchError> {
    let (units, packets) = (world.done(), world.packets());
    let allocations = INSTRUMENTED_SYSTEM.stats().allocations;
    let (mut last, mut idle) = (units, 0);
    let start = cpu_time()?;
    loop {
        for _ in 0..16 {
            world.exchange()?;
        }
        let done = world.done();
        idle = if done == last { idle + 16 } else { 0 };
        last = done;
        if idle > STALL {
            return Err(BenchError::Stuck(world.name()));
        }
        let passed = cpu_time()?.saturating_sub(start);
        if passed >= budget.time || done - units >= budget.units {
            let allocations = INSTRUMENTED_SYSTEM.stats().allocations - allocations;
            world.check()?;
            return Ok(Sample {
                units: done - units,
                packets: world.packets() - packets,
                allocations: allocations as u64,
                seconds: passed.as_secs_f64(),
            });
        }
    }
}

/// The bytes of the bulk transfer: a repeated chunk of 64 KiB. It is stored twice in a row, so that a chunk from any
/// offset is one slice.
pub struct Pattern(Vec<u8>);

/// Bytes that a bulk application writes or reads at once.
pub const CHUNK: usize = 64 << 10;

impl Pattern {
    /// Bytes without a short period.
    pub fn new() -> Self {
        let mut x = 0x9e37_79b9_u32;
        let once: Vec<u8> = (0..CHUNK)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 17;
                x ^= x << 5;
                x as u8
            })
            .collect();
        Self([once.clone(), once].concat())
    }

    /// 64 KiB from `offset` of the stream.
    pub fn chunk(&self, offset: u64) -> &[u8] {
        let at = (offset % CHUNK as u64) as usize;
        &self.0[at..at + CHUNK]
    }

    /// Compares the bytes read at `offset`: all of them in the first megabyte of a stream, later only the first and
    /// last bytes.
    pub fn verify(&self, offset: u64, read: &[u8]) -> Result<(), BenchError> {
        let want = &self.chunk(offset)[..read.len()];
        let edge = if offset < 1 << 20 { read.len() } else { read.len().min(32) };
        let tail = read.len() - edge;
        if read[..edge] == want[..edge] && read[tail..] == want[tail..] {
            return Ok(());
        }
        Err(BenchError::Wrong(format!("{} bytes read at {offset} are not those written", read.len())))
    }
}

/// Repeats a step for `time`. A step returns the number of operations and their CPU time. Returns the sums.
fn repeat(
    time: Duration,
    mut step: impl FnMut() -> Result<(u64, Duration), BenchError>,
) -> Result<(u64, Duration), BenchError> {
    let (mut done, mut passed) = (0, Duration::ZERO);
    while passed < time {
        let (more, took) = step()?;
        done += more;
        passed += took;
    }
    Ok((done, passed))
}

/// Microseconds for each operation.
fn each(
    time: Duration,
    step: impl FnMut() -> Result<(u64, Duration), BenchError>,
) -> Result<f64, BenchError> {
    let (done, passed) = repeat(time, step)?;
    Ok(passed.as_secs_f64() * 1e6 / done as f64)
}

/// The result of `step`, and its CPU time.
fn timed<T>(step: impl FnOnce() -> T) -> Result<(T, Duration), BenchError> {
    let start = cpu_time()?;
    let done = step();
    Ok((done, cpu_time()?.saturating_sub(start)))
}

/// Prints one line that overwrites itself, if stderr is a terminal.
pub fn progress(text: &str) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        // An error is ignored: the measurement can continue without a progress line.
        let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
    }
}
