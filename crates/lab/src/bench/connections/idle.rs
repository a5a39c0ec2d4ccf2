//! Memory of idle connections, and what a visit costs beside them.

use super::process::{Pair, ProcessPlace, Programs, Task};
use super::report::Results;
use super::usage::{Usage, raise_open_files};
use super::way::ConnectWay;
use crate::bench::{BenchError, IN_FLIGHT, progress};
use crate::figure::Figure;
use crate::table::{Cell, Column};
use std::thread;
use std::time::Duration;

/// Descriptors of an end that are not connections.
const SPARE: u64 = 256;
/// Connections between two looks at the progress.
const CHUNK: u32 = 2_000;
/// Until the kernel has freed what it frees later.
const SETTLE: Duration = Duration::from_millis(500);
/// Visits before the first look at memory.
const WARM_UP: u64 = 1_000;

/// The figures of a way.
#[derive(Debug)]
pub struct Idle {
    way: ConnectWay,
    connections: u32,
    /// Pairs of processes that share the connections.
    pairs: usize,
    /// Bytes for each connection: the client's process, the server's, the kernel's slabs and its sockets' buffers for
    /// both ends.
    bytes: [f64; 4],
    /// CPU time of a visit beside them, µs: of some rounds.
    beside_us: Vec<f64>,
}

/// Opens `wanted` connections that stay open and idle. If the limit of open files is lower, several pairs of processes
/// share them.
pub fn measure(
    place: &ProcessPlace,
    programs: &Programs,
    way: ConnectWay,
    (wanted, rounds, time): (u32, u32, Duration),
) -> Result<Idle, BenchError> {
    let shares = shares(wanted, most_of_a_process(way, wanted));
    let mut pairs = Vec::new();
    for _ in &shares {
        let mut pair = Pair::start(place, programs, Task::new(way))?;
        pair.visits(IN_FLIGHT, Duration::ZERO, WARM_UP.min(u64::from(wanted)))?;
        pairs.push(pair);
    }
    thread::sleep(SETTLE);
    let before = all_usages(&mut pairs)?;
    let mut opened = 0;
    for (pair, share) in pairs.iter_mut().zip(&shares) {
        let mut open = 0;
        while open < *share {
            progress(&format!("{}: {} of {wanted} idle connections", way.name(), opened + open));
            let end = (*share).min(open + CHUNK);
            pair.stay(open, end)?;
            open = end;
        }
        opened += share;
    }
    thread::sleep(SETTLE);
    let after = all_usages(&mut pairs)?;
    let grown = |end: usize, of: fn(&Usage) -> f64| {
        let each = after.iter().zip(&before).map(|(after, before)| of(&after[end].since(&before[end])));
        each.collect::<Vec<_>>()
    };
    // Each process has its own memory. The kernel's is the machine's, and any of them sees all of it.
    let of_all = |end| grown(end, |usage| usage.rss_kb).iter().sum::<f64>();
    let of_kernel = |of| grown(0, of).first().copied().unwrap_or_default();
    let kb = [of_all(0), of_all(1), of_kernel(|usage| usage.slab_kb), of_kernel(|usage| usage.sockets_kb)];
    let bytes = kb.map(|kb| kb * 1024.0 / f64::from(wanted.max(1)));
    let mut beside_us = Vec::new();
    for round in 1..=rounds {
        progress(&format!("{}: beside {wanted} idle connections, round {round}", way.name()));
        if let Some(pair) = pairs.first_mut() {
            beside_us.push(pair.visits(IN_FLIGHT, time, 1)?.cpu_us());
        }
    }
    Ok(Idle { way, connections: wanted, pairs: pairs.len(), bytes, beside_us })
}

/// The most connections of a pair of processes.
fn most_of_a_process(way: ConnectWay, wanted: u32) -> u32 {
    if !way.takes_descriptors() {
        return wanted;
    }
    let limit = raise_open_files(u64::from(wanted) + SPARE).saturating_sub(SPARE);
    u32::try_from(limit).unwrap_or(u32::MAX)
}

/// Equal shares of `wanted`, none larger than `most`.
fn shares(wanted: u32, most: u32) -> Vec<u32> {
    let count = wanted.div_ceil(most.max(1)).max(1);
    (0..count).map(|index| wanted / count + u32::from(index < wanted % count)).collect()
}

fn all_usages(pairs: &mut [Pair]) -> Result<Vec<[Usage; 2]>, BenchError> {
    pairs.iter_mut().map(Pair::usage).collect()
}

pub const TITLE: &str = "Idle connections, one request each, then nothing. Bytes a connection: growth of the resident memory of the \
                          processes, and of the machine's slabs and sockets' buffers for both ends. Where a process may not open as \
                          many files, several pairs of client and server share the connections. CPU: a visit beside them, 64 in \
                          flight, and as a multiple of the same without them.";

pub const COLUMNS: [Column<Results, Idle>; 10] = [
    Column::text("", |_, idle| idle.way.name().into()),
    Column::json("way", |_, idle| idle.way.label().into()),
    Column::new("connections", "connections", |_, idle| idle.connections.into()),
    Column::new("pairs", "pairs", |_, idle| idle.pairs.into()),
    Column::new("client B", "client_bytes", |_, idle| Cell::Number(idle.bytes[0], 0)),
    Column::new("server B", "server_bytes", |_, idle| Cell::Number(idle.bytes[1], 0)),
    Column::new("kernel slabs B", "slab_bytes", |_, idle| Cell::Number(idle.bytes[2], 0)),
    Column::new("socket buffers B", "socket_bytes", |_, idle| Cell::Number(idle.bytes[3], 0)),
    Column::new("CPU µs", "cpu_us_beside", |_, idle| Cell::Median(idle.beside(), 1)),
    Column::text("multiple", |results, idle| (idle.beside().median() / results.alone(idle.way)).into()),
];

impl Idle {
    fn beside(&self) -> Figure {
        Figure::new(self.beside_us.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_equal_and_all_of_it() {
        assert_eq!(shares(100_000, 250_000), [100_000]);
        assert_eq!(shares(300, 300), [300]);
        assert_eq!(shares(7, 3), [3, 2, 2]);
        assert_eq!(shares(100_000, 19_744).len(), 6);
        assert_eq!(shares(100_000, 19_744).iter().sum::<u32>(), 100_000);
        assert_eq!(shares(2, 0), [1, 1]);
    }
}
